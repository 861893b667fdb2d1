package caddymodule

import (
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gcfloor"
)

// Memory sets how the process uses its memory.
type Memory struct {
	// The size of the heap in bytes below which Go's garbage collector doesn't run, from 4 MiB to 1 TiB. A busy server whose heap
	// is small otherwise collects many times a second; the price is up to that much memory. Above it GOGC applies, and a memory
	// limit (GOMEMLIMIT, or that of the container) always does. It is for the whole process. It is ignored, with a warning, where
	// the memory limit is below 256 MiB or four times the floor, or GOGC is off. Default: none.
	GCFloor *int64 `json:"gc_floor,omitempty"`
}

func (m *Memory) faults(fs *config.Faults) {
	if m != nil {
		fs.OptionalBetween("svc.memory.gc_floor", m.GCFloor, gcfloor.Lowest, gcfloor.Highest)
	}
}

// gcFloor returns the floor in bytes, 0 for none; m may be nil.
func (m *Memory) gcFloor() int64 { return valueOr(valueOr(m, Memory{}).GCFloor, 0) }

func (a *App) readMemory(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		memory := new(Memory)
		r.NoArguments(path, o)
		r.Block(path, o, []caddyfile.Rule{
			{Word: "gc_floor", Read: r.Size(&memory.GCFloor)},
		})
		caddyfile.Set(r, path, o, &a.Memory, memory)
	}
}
