package gcfloor

import (
	"bytes"
	"log/slog"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

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

// next collects and returns the size of the heap, in bytes, at which the following collection begins. The tuner may not have seen this
// one yet, and what is allocated while a collection runs counts as live: a test waits for the size it expects.
func next() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.NextGC) //nolint:gosec // bytes of a small heap
}

// eventually waits until the next collection begins between the two sizes.
func eventually(t *testing.T, least, most int64, message string) {
	t.Helper()
	require.Eventually(t, func() bool { n := next(); return least <= n && n <= most }, time.Minute, time.Millisecond, message)
}

// The floor is kept from collection to collection, follows the newest configuration, and leaves no trace.
func TestUse(t *testing.T) {
	base := debug.SetGCPercent(100)
	defer debug.SetGCPercent(base)
	log := slog.New(slog.DiscardHandler)

	release := Use(64*mib, log)
	defer release()
	eventually(t, 60*mib, 68*mib, "at the floor")
	alive := make([]byte, 100*mib)
	eventually(t, 200*mib, 220*mib, "GOGC, with more alive than half the floor")
	runtime.KeepAlive(alive)
	eventually(t, 60*mib, 68*mib, "at the floor again")
	newer := Use(0, log)
	defer newer()
	require.EqualValues(t, 100, read()[gogc], "the newest configuration has none")
	eventually(t, 0, 20*mib, "without a floor")
	newer()
	newer()
	eventually(t, 60*mib, 68*mib, "the floor before it")
	other := Use(128*mib, log)
	defer other()
	release()
	eventually(t, 120*mib, 136*mib, "the floor that is left")
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
