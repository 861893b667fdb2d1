// Package gcfloor keeps the garbage collector from running while the heap is small.
//
// Go collects when the heap has grown by GOGC percent of its live objects. A gateway with few live objects, and many requests that each allocate a
// little, collects many times a second without need. A floor is a size of the heap below which no collection begins: after each collection, GOGC
// is raised so that the next one begins at the floor. Above the floor GOGC has its own value, so a large heap behaves as if there were no floor.
//
// The package changes GOGC and nothing else: there is no ballast, and a memory limit (GOMEMLIMIT) stays in force. While a floor is set, nothing
// else in the process may call [debug.SetGCPercent].
package gcfloor

import (
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
)

// The bounds of a floor in bytes.
const (
	Lowest  = 4 << 20
	Highest = 1 << 40
)

const (
	// leastLimit is the least memory limit of the process for a floor, and limitPerFloor the least number of floors in a memory limit, because a
	// small container needs its memory for live objects.
	leastLimit    = 256 << 20
	limitPerFloor = 4
	// leastHeap is the size at which Go first collects with a GOGC of 100. With another GOGC it is as many percent of that.
	leastHeap = 4 << 20
)

// floors are the floors in use, newest last. They belong to the process, as GOGC does.
var floors struct {
	mu    sync.Mutex
	inUse []*int64
	tuner *tuner
}

// Use sets the floor until release is called: the heap, in bytes, at which collections begin. 0 means no floor. Of several in use the newest
// counts, so that a reload that fails restores the floor before it. If the memory limit (GOMEMLIMIT) is below 256 MiB or four floors, or GOGC is
// off, the floor is ignored and log gets a warning.
func Use(floor int64, log *slog.Logger) (release func()) {
	floors.mu.Lock()
	defer floors.mu.Unlock()
	limit := debug.SetMemoryLimit(-1) // which only reads it
	if floor > 0 && (limit < max(leastLimit, limitPerFloor*floor) || read()[gogc] < 0) {
		log.Warn("gc_floor is ignored: it needs a memory limit of at least 256 MiB and four floors, and a GOGC that isn't off",
			"gc_floor", floor, "limit", limit)
		floor = 0
	}
	added := &floor
	floors.inUse = append(floors.inUse, added)
	apply(floor)
	return sync.OnceFunc(func() {
		floors.mu.Lock()
		defer floors.mu.Unlock()
		floors.inUse = slices.DeleteFunc(floors.inUse, func(other *int64) bool { return other == added })
		newest := int64(0)
		if n := len(floors.inUse); n > 0 {
			newest = *floors.inUse[n-1]
		}
		apply(newest)
	})
}

// apply sets a floor.
func apply(floor int64) {
	if floors.tuner != nil {
		if floors.tuner.floor == floor {
			return
		}
		floors.tuner.stop()
		floors.tuner = nil
	}
	if floor > 0 {
		t := &tuner{floor: floor, collected: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
		t.base = int(read()[gogc])
		t.now = t.base
		t.tune()
		go t.run()
		floors.tuner = t
	}
}

// tuner keeps one floor. A goroutine of its own sets GOGC after each collection.
type tuner struct {
	floor int64
	// base is the GOGC that stop restores, and now the current GOGC.
	base, now int
	// collected gets a value when a collection has found the last sentinel dead.
	collected chan struct{}
	quit      chan struct{}
	ended     chan struct{}
}

// sentinel is allocated to be collected. It is too large for Go to put it beside an object that lives on.
type sentinel [64]byte

func (t *tuner) run() {
	defer close(t.ended)
	for {
		runtime.AddCleanup(new(sentinel), func(collected chan<- struct{}) {
			select {
			case collected <- struct{}{}:
			default:
			}
		}, t.collected)
		select {
		case <-t.collected:
			t.tune()
		case <-t.quit:
			return
		}
	}
}

// stop ends the goroutine and restores GOGC.
func (t *tuner) stop() {
	close(t.quit)
	<-t.ended
	t.set(t.base)
}

// tune sets GOGC by the live heap.
func (t *tuner) tune() { t.set(percent(t.floor, t.base, read())) }

func (t *tuner) set(percent int) {
	if percent != t.now {
		debug.SetGCPercent(percent)
		t.now = percent
	}
}

// percent returns the GOGC with which the next collection begins at floor, at least base.
func percent(floor int64, base int, m [figures]int64) int {
	live := m[heapLive]
	roots := max(1, live+m[stacks]+m[globals]) // GOGC is a percentage of all of them
	most := 100 * float64(floor) / leastHeap   // beyond, the size of the first collection would exceed the floor
	want := 100 * float64(floor-live) / float64(roots)
	return max(base, int(math.Min(want, most)))
}

// The figures of the runtime that decide when it collects.
const (
	heapLive = iota
	stacks
	globals
	gogc

	figures = iota
)

// read returns the figures, in bytes and percent.
func read() (m [figures]int64) {
	samples := [figures]metrics.Sample{
		heapLive: {Name: "/gc/heap/live:bytes"},
		stacks:   {Name: "/gc/scan/stack:bytes"},
		globals:  {Name: "/gc/scan/globals:bytes"},
		gogc:     {Name: "/gc/gogc:percent"},
	}
	metrics.Read(samples[:])
	for i := range samples {
		m[i] = int64(samples[i].Value.Uint64()) //nolint:gosec // bytes and percents; GOGC=off is the largest number, -1
	}
	return m
}
