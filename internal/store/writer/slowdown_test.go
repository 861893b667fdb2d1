package writer

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// TestSlowdown guarantees that of the holds which were admitted before commits became far slower, those that can't be
// served in time any more are refused as soon as that shows, that as many are served as fit into the transactions, and that
// no settlement is lost.
func TestSlowdown(t *testing.T) {
	t.Parallel()
	const rate = 4000 // calls per second
	for name, test := range map[string]struct {
		commit time.Duration
		lasts  time.Duration // of the load
		// long is what few holds waited for their refusal: those of one transaction. All others waited less.
		long   time.Duration
		served int // calls at least
	}{
		"to 0.2 s":      {200 * time.Millisecond, time.Second, 0, 1000},
		"to 1.2 s":      {1200 * time.Millisecond, time.Second, 1200 * time.Millisecond, 3 * usualShare},
		"to 3 s":        {3 * time.Second, time.Second, 1700 * time.Millisecond, usualShare},
		"a hang":        {time.Hour, time.Second, 2500 * time.Millisecond, 0},
		"a few at 3 s":  {3 * time.Second, 20 * time.Millisecond, 0, 20 * rate / 1000},
		"a few in hang": {time.Hour, 20 * time.Millisecond, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				engine := newSlowEngine(time.Millisecond, slowWriteTime+slowCommitTime)
				w, stop := slowWriter(engine)
				defer stop()
				quick, slow := &overload{writer: w, rate: rate}, &overload{writer: w, rate: rate}
				quick.run(time.Second)
				require.Len(t, quick.done, rate)
				engine.commit.Store(int64(test.commit))
				slow.run(test.lasts)
				slices.Sort(slow.refused)
				most := len(slow.refused) - usualShare - 1
				if most >= 0 {
					require.LessOrEqual(t, slow.refused[most], test.long+reviewEvery)
					require.LessOrEqual(t, slices.Max(slow.refused), longestWait+reviewEvery)
				}
				require.GreaterOrEqual(t, len(slow.done), test.served)
				require.Zero(t, slow.unheard, "calls that could not be settled")
			})
		})
	}
}

// batchSizes remembers how many operations each transaction ended.
type batchSizes struct {
	mu    sync.Mutex
	sizes []int
}

func (b *batchSizes) ObserveBatch(batch Batch) {
	if batch.Transaction == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes = append(b.sizes, batch.Operations)
}

// TestHangIsAskedByOne guarantees that a store whose transactions don't end within their time is asked by one operation
// at a time, and all others are refused when they come.
func TestHangIsAskedByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(time.Hour, 4*time.Second)
		seen := &batchSizes{}
		w := mustNew(engine, Options{Kinds: []Kind{callKind{}}, Logger: slog.New(slog.DiscardHandler), Observer: seen})
		go w.Run()
		hung := &overload{writer: w, rate: 400}
		hung.run(20 * time.Second)
		w.queue.close()
		<-w.stopped
		require.GreaterOrEqual(t, len(seen.sizes), 4)
		for _, size := range seen.sizes[2:] { // the first hung unexpectedly, and the second is for what came meanwhile
			require.Equal(t, 1, size)
		}
	})
}

// TestWhatRunsIsNotWaitedForTwice guarantees that while the operations run that were cut off, or failed, before, those in
// line are expected to wait for them once: they may be served in time.
func TestWhatRunsIsNotWaitedForTwice(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(w *Writer, writes []*PendingWrite){
		"cut off": func(w *Writer, writes []*PendingWrite) { w.back = writes },
		"failed":  func(w *Writer, writes []*PendingWrite) { w.again = [][]*PendingWrite{writes} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := mustNew(newSlowEngine(0, 0), Options{Logger: slog.New(slog.DiscardHandler)})
				again(w, []*PendingWrite{newPendingWrite(execWrite, nil)})
				waits := newPendingWrite(execWrite, nil)
				require.NoError(t, w.queue.push(waits))
				w.queue.end(2*time.Second, false, len(w.back) > 0, len(w.again))
				time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // on the fake clock
				w.queue.begin(time.Now())
				require.Len(t, w.collect(), 1)
				w.queue.boarded(len(w.again))
				defer w.queue.end(0, false, false, 0)
				time.Sleep(reviewEvery * 3 / 2) //nolint:forbidigo // on the fake clock
				synctest.Wait()
				require.True(t, w.queue.withdraw(waits), "it is served at 3.5 s")
			})
		})
	}
}

// TestUrgentWritesAreNotCutBetween guarantees that a transaction of urgent writes, between two for what was cut off before, adds nothing to
// that: it would be cut off again behind it.
func TestUrgentWritesAreNotCutBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := mustNew(newSlowEngine(0, 0), Options{
			Kinds: []Kind{lastingKind{name: "calls"}, lastingKind{name: "messages"}}, Logger: slog.New(slog.DiscardHandler),
		})
		for kind := range w.kinds {
			require.NoError(t, w.queue.push(newPendingWrite(kind, &callSettlement{})))
		}
		first, second := newPendingWrite(execWrite, nil), newPendingWrite(execWrite, nil)
		w.back = []*PendingWrite{first}
		require.Equal(t, []*PendingWrite{first}, w.collect())
		w.back = []*PendingWrite{second}
		o := w.transact(w.collect())
		require.Equal(t, 2, o.batch.Operations)
		require.Equal(t, []*PendingWrite{second}, w.collect())
	})
}

// lastingKind takes longer than a transaction may work.
type lastingKind struct{ name string }

func (k lastingKind) Name() string { return k.name }

func (lastingKind) Apply(context.Context, driver.Tx, []Op) []error {
	time.Sleep(2 * batchTime) //nolint:forbidigo // on the fake clock
	return nil
}

// TestQuickAgain guarantees that a store which hung once is known to be quick again after some transactions, even by a clock that doesn't
// move during one of them, as one in a bubble or a coarse one.
func TestQuickAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(time.Hour, 2*time.Hour)
		w, stop := slowWriter(engine)
		defer stop()
		write := func() { require.NoError(t, w.Exec(t.Context(), func(context.Context, driver.Tx) error { return nil })) }
		write()
		engine.commit.Store(0)
		for range 50 {
			write()
		}
		require.True(t, w.queue.pace.admits(time.Now(), 1000, 0))
	})
}
