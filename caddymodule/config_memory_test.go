package caddymodule

import (
	"bytes"
	"log/slog"
	goruntime "runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without `memory` the heap has the default floor. Where there is no room for it, only a floor that somebody chose is worth a warning.
func TestDefaultFloor(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	release := (*Memory)(nil).useFloor(logger)
	defer release()
	require.Eventually(t, func() bool {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.NextGC >= DefaultGCFloor-2<<20
	}, time.Minute, time.Millisecond)

	limit := debug.SetMemoryLimit(255 << 20)
	defer debug.SetMemoryLimit(limit)
	new(Memory).useFloor(logger)()
	require.Empty(t, log.String())
	chosen := int64(DefaultGCFloor)
	(&Memory{GCFloor: &chosen}).useFloor(logger)()
	require.Contains(t, log.String(), "gc_floor is ignored")
}
