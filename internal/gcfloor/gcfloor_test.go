package gcfloor

import (
	"bytes"
	"log/slog"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                  string
		floor                 int64
		base                  int
		live, stacks, globals int64
		want                  int
	}{
		{"the next collection is at the floor", 64 * mib, 100, 16 * mib, 0, 0, 300},
		{"roots count as live", 64 * mib, 100, 14 * mib, 1 * mib, 1 * mib, 312},
		{"GOGC would do as much", 64 * mib, 100, 32 * mib, 0, 0, 100},
		{"a large heap has GOGC", 64 * mib, 100, 200 * mib, mib, mib, 100},
		{"another GOGC", 64 * mib, 400, 16 * mib, 0, 0, 400},
		{"a tiny heap, whose first collection GOGC multiplies", 64 * mib, 100, mib, 0, 0, 1600},
		{"before the first collection", 64 * mib, 100, 0, 0, 0, 1600},
		{"the lowest floor", Lowest, 100, mib, 0, 0, 100},
		{"the highest floor", Highest, 100, 1024 * mib, 0, 0, 102_300},
	} {
		got := percent(test.floor, test.base, [figures]int64{heapLive: test.live, stacks: test.stacks, globals: test.globals})
		require.Equal(t, test.want, got, test.name)
	}
}

// garbage is what a test allocates; it is a variable so that the compiler doesn't leave the allocation out.
var garbage []byte

// collections returns how many collections it takes to allocate that much garbage.
func collections(size int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range size / (64 << 10) {
		garbage = make([]byte, 64<<10)
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// The floor is kept from collection to collection, follows the newest configuration, and leaves no trace.
func TestUse(t *testing.T) {
	base := debug.SetGCPercent(100)
	defer debug.SetGCPercent(base)
	log := slog.New(slog.DiscardHandler)
	tuned := func() int64 { runtime.GC(); return read()[gogc] }

	release := Use(64*mib, log)
	for tuned() <= 100 { //nolint:revive // until the tuner has seen a collection
	}
	alive := make([]byte, 100*mib)
	for tuned() > 100 { //nolint:revive // until GOGC is enough for what is live
	}
	runtime.KeepAlive(alive)
	for tuned() <= 100 { //nolint:revive // until that is gone
	}
	kept := collections(512 * mib)
	newer := Use(0, log)
	require.EqualValues(t, 100, read()[gogc], "the newest configuration has none")
	free := collections(512 * mib)
	require.Greater(t, free, 4*kept, "%d collections without a floor, %d with it", free, kept)
	newer()
	newer()
	require.Greater(t, read()[gogc], int64(100))
	other := Use(128*mib, log)
	release()
	require.Greater(t, read()[gogc], int64(100))
	other()
	require.EqualValues(t, 100, read()[gogc])
	require.Empty(t, floors.inUse)
	require.Nil(t, floors.tuner)
}

// A process with little memory, or one that doesn't collect by GOGC, has no floor, and its log says so.
func TestNoFloorWithLittleMemory(t *testing.T) {
	base := debug.SetGCPercent(100)
	defer debug.SetGCPercent(base)
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	for _, test := range []struct {
		floor, limit int64
		percent      int
		ignored      bool
	}{
		{64 * mib, 256 * mib, 100, false},
		{64 * mib, 256*mib - 1, 100, true},
		{4 * mib, 255 * mib, 100, true},
		{100 * mib, 399 * mib, 100, true},
		{64 * mib, 1024 * mib, -1, true},
		{0, 1 * mib, 100, false},
	} {
		var log bytes.Buffer
		debug.SetMemoryLimit(test.limit)
		debug.SetGCPercent(test.percent)
		release := Use(test.floor, slog.New(slog.NewTextHandler(&log, nil)))
		require.Equal(t, test.ignored, log.Len() > 0, log.String())
		require.Equal(t, test.floor > 0 && !test.ignored, floors.tuner != nil)
		release()
		require.EqualValues(t, test.percent, read()[gogc])
	}
}
