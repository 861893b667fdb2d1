package caddymodule

import (
	"log/slog"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/gcfloor"
)

// DefaultGCFloor is the floor of the heap in bytes. docs/operating.md has the price of it, and of more.
const DefaultGCFloor = 32 << 20

// Memory sets how the process uses its memory.
type Memory struct {
	// The size of the heap in bytes below which Go's garbage collector doesn't run, from 4 MiB to 1 TiB. A busy server whose heap
	// is small otherwise collects many times a second; the price is up to that much memory. Above it GOGC applies, and a memory
	// limit (GOMEMLIMIT, or that of the container) always does. It is for the whole process. It is ignored, with a warning unless it is
	// the default, where the memory limit is below 256 MiB or four times the floor, or GOGC is off. 4 MiB is as without a floor.
	// Default: 32 MiB.
	GCFloor *int64 `json:"gc_floor,omitempty"`
}

func (m *Memory) faults(fs *config.Faults) {
	if m != nil {
		fs.OptionalBetween("svc.memory.gc_floor", m.GCFloor, gcfloor.Lowest, gcfloor.Highest)
	}
}

// useFloor sets the floor until release is called; m may be nil.
func (m *Memory) useFloor(log *slog.Logger) (release func()) {
	floor := valueOr(m, Memory{}).GCFloor
	if floor == nil {
		log = slog.New(slog.DiscardHandler) // the default needs no warning
	}
	return gcfloor.Use(valueOr(floor, DefaultGCFloor), log)
}

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
