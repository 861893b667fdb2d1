package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// The bounds of the slow engine's transactions are those of PostgreSQL.
const (
	slowWriteTime  = 4 * time.Second
	slowCommitTime = 5 * time.Second
)

// slowEngine is a database whose commits take as long as the test says. It runs on the fake clock.
type slowEngine struct {
	commit atomic.Int64  // of transactions that begin now, in nanoseconds
	open   int           // transactions that may be in flight, 0 for one
	life   time.Duration // of a transaction, 0 for no bound
	failed atomic.Int64  // transactions that their deadline ended
}

func newSlowEngine(commit, life time.Duration) *slowEngine {
	e := &slowEngine{life: life}
	e.commit.Store(int64(commit))
	return e
}

// TakeTurn waits for a moment of the fake clock: all callers that the transaction before has released ask for what comes
// next before a batch is collected. Else the processors that are free decide how much a batch carries.
func (e *slowEngine) TakeTurn(<-chan struct{}) (release func()) {
	time.Sleep(time.Nanosecond) //nolint:forbidigo // on the fake clock
	return func() {}
}

func (e *slowEngine) Begin(ctx context.Context) (driver.Transaction, error) {
	return &slowTransaction{engine: e, ctx: ctx, commitTime: time.Duration(e.commit.Load())}, nil
}

func (e *slowEngine) InFlight() int { return max(1, e.open) }

func (e *slowEngine) MaxTime() time.Duration { return e.life }

func (e *slowEngine) Close() error { return nil }

// slowTransaction takes every statement and is slow to commit.
type slowTransaction struct {
	driver.Tx

	engine     *slowEngine
	ctx        context.Context
	commitTime time.Duration
}

func (t *slowTransaction) Context() context.Context          { return t.ctx }
func (*slowTransaction) Savepoint() error                    { return nil }
func (*slowTransaction) Release(context.Context, bool) error { return nil }
func (*slowTransaction) RollbackTo(context.Context) error    { return nil }
func (*slowTransaction) Rollback()                           {}
func (*slowTransaction) Flush(context.Context) error         { return nil }
func (*slowTransaction) Queue(int64, string, ...any)         {}

func (t *slowTransaction) Commit(ctx context.Context) error {
	select {
	case <-time.After(t.commitTime):
		return nil
	case <-ctx.Done():
		t.engine.failed.Add(1)
		return driver.ErrCommitUnknown
	}
}

// callKind takes the operations of [overload]: a hold, and the settlement that ends its call.
type callKind struct{}

type callHold struct{}

type callSettlement struct{}

func (*callSettlement) Urgent() bool { return true }

func (callKind) Name() string { return "calls" }

func (callKind) Apply(context.Context, driver.Tx, []Op) []error { return nil }

// mustNew is New for options that are right.
func mustNew(conn driver.Writer, options Options) *Writer {
	w, err := New(conn, options)
	if err != nil {
		panic(err)
	}
	return w
}

// slowWriter is a running writer on a slow engine. The test ends it with the returned function.
func slowWriter(engine *slowEngine) (w *Writer, stop func()) {
	w = mustNew(engine, Options{Kinds: []Kind{callKind{}}, Logger: slog.New(slog.DiscardHandler)})
	go w.Run()
	return w, func() {
		w.queue.close()
		<-w.stopped
	}
}

// callerPatience is what a caller of the gateway waits for a hold, and for a settlement.
const callerPatience = 5 * time.Second

// overload offers calls at a rate: each holds, and settles once its hold is durable.
type overload struct {
	writer *Writer
	rate   float64 // calls per second

	mu      sync.Mutex
	done    []time.Duration // when each served call ended, since the start
	refused []time.Duration // how long each refused hold had waited
	lost    int             // holds whose transaction failed
	unheard int             // holds that were made and could not be settled
}

func (o *overload) run(lasts time.Duration) {
	var calls sync.WaitGroup
	start := time.Now()
	interval := time.Duration(float64(time.Second) / o.rate)
	for time.Since(start) < lasts {
		calls.Go(func() { o.call(start) })
		time.Sleep(interval) //nolint:forbidigo // on the fake clock
	}
	calls.Wait()
}

func (o *overload) call(start time.Time) {
	asked := time.Now()
	err := o.write(&callHold{})
	waited := time.Since(asked)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if errors.Is(err, driver.ErrBusy) {
			o.refused = append(o.refused, waited)
		} else {
			o.lost++
		}
		return
	}
	err = o.write(&callSettlement{})
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.unheard++
		return
	}
	o.done = append(o.done, time.Since(start))
}

func (o *overload) write(op Op) error {
	ctx, cancel := context.WithTimeout(context.Background(), callerPatience)
	defer cancel()
	return o.writer.await(ctx, newPendingWrite(0, op))
}

// between counts the calls that ended in a part of the run.
func (o *overload) between(from, to time.Duration) (n int) {
	for _, at := range o.done {
		if at >= from && at < to {
			n++
		}
	}
	return n
}

// TestOverload guarantees that the writer goes on with whole batches, however much more is asked than it can do and
// however slow its commits are: goodput stays, refusals cost no waiting, and no settlement is lost.
func TestOverload(t *testing.T) {
	t.Parallel()
	for _, commit := range []time.Duration{200 * time.Millisecond, 1200 * time.Millisecond} {
		for _, times := range []float64{1, 2, 4} {
			t.Run(fmt.Sprintf("%gx at %s", times, commit), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					engine := newSlowEngine(commit, slowWriteTime)
					w, stop := slowWriter(engine)
					defer stop()
					capacity := maxBatch / 2 / commit.Seconds() // calls per second: a hold and a settlement each
					load := &overload{writer: w, rate: times * capacity}
					window := 20 * commit // one transaction more or less is a twentieth
					load.run(4 * window)
					require.Zero(t, engine.failed.Load(), "transactions that were given up")
					require.Zero(t, load.unheard, "calls that could not be settled")
					for from := window; from < 4*window; from += window {
						goodput := float64(load.between(from, from+window)) / window.Seconds()
						require.GreaterOrEqual(t, goodput, 0.9*capacity, "calls per second after %s", from)
					}
					if len(load.refused) > 0 {
						require.Zero(t, slices.Max(load.refused), "a hold waited for its refusal")
					}
				})
			})
		}
	}
}

// TestRecovery guarantees that the writer takes everything again as soon as its commits are quick again.
func TestRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(1200*time.Millisecond, slowWriteTime)
		w, stop := slowWriter(engine)
		defer stop()
		slow := &overload{writer: w, rate: 400}
		slow.run(10 * time.Second)
		engine.commit.Store(int64(5 * time.Millisecond))
		quick := &overload{writer: w, rate: 400}
		quick.run(5 * time.Second)
		require.Empty(t, quick.refused)
		require.Len(t, quick.done, 2000)
	})
}

// TestRecoveryFromAHang guarantees the same after commits that never ended within their time, but for what comes while the
// first quick one runs.
func TestRecoveryFromAHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(time.Hour, 4*time.Second)
		w, stop := slowWriter(engine)
		defer stop()
		hung := &overload{writer: w, rate: 400}
		hung.run(20 * time.Second)
		require.Empty(t, hung.done)
		require.LessOrEqual(t, engine.failed.Load(), int64(6))
		immediate := 0
		for _, waited := range hung.refused {
			if waited == 0 {
				immediate++
			}
		}
		require.GreaterOrEqual(t, immediate, len(hung.refused)*9/10, "nobody waits for a store that is known to hang")
		engine.commit.Store(int64(5 * time.Millisecond))
		quick := &overload{writer: w, rate: 400}
		quick.run(5 * time.Second)
		require.LessOrEqual(t, len(quick.refused)+quick.lost, 10)
		require.Len(t, quick.done, 2000-len(quick.refused)-quick.lost)
	})
}

// TestTransactionHasItsWholeTime guarantees that an operation which has waited in line for most of its patience still gets
// a whole transaction.
func TestTransactionHasItsWholeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(slowWriteTime-time.Second, slowWriteTime)
		w, stop := slowWriter(engine)
		defer stop()
		first := make(chan error, 1)
		go func() { first <- w.await(t.Context(), newPendingWrite(0, &callHold{})) }()
		synctest.Wait()
		second := w.await(t.Context(), newPendingWrite(0, &callSettlement{}))
		require.NoError(t, second, "it waited for the first one's commit, and committed as slowly")
		require.NoError(t, <-first)
	})
}

// TestSettlementsOvertakeHolds guarantees that the operations which end a call go before those which begin one, whenever
// they came, and are not refused when those are.
func TestSettlementsOvertakeHolds(t *testing.T) {
	t.Parallel()
	q := newQueue()
	var holds, settlements []*PendingWrite
	for range maxBatch {
		holds = append(holds, newPendingWrite(0, &callHold{}))
		require.NoError(t, q.push(holds[len(holds)-1]))
	}
	for range 3 {
		settlements = append(settlements, newPendingWrite(0, &callSettlement{}))
		require.NoError(t, q.push(settlements[len(settlements)-1]))
	}
	batch := q.take(nil)
	require.Len(t, batch, maxBatch)
	require.Equal(t, settlements, batch[:3])
	require.Equal(t, holds[:maxBatch-3], batch[3:])

	q.drain(nil)
	for _, line := range []struct{ settlements, holds, places int }{
		{maxBatch, 0, maxBatch},
		{maxBatch, 3, maxBatch - 3},
		{urgentPlaces + 1, maxBatch, urgentPlaces},
		{urgentPlaces + 40, maxBatch, urgentPlaces + 20},
		{10 * maxBatch, maxBatch, mostUrgent},
	} {
		for range line.settlements {
			require.NoError(t, q.push(newPendingWrite(0, &callSettlement{})))
		}
		for range line.holds {
			require.NoError(t, q.push(newPendingWrite(0, &callHold{})))
		}
		batch = q.take(nil)
		require.Len(t, batch, maxBatch)
		require.Equal(t, urgent, batch[line.places-1].class)
		if line.holds > 0 {
			require.Equal(t, ordinary, batch[line.places].class, "however many settlements wait, some holds go with them")
		}
		q.drain(nil)
	}

	q.begin(time.Now().Add(-time.Hour)) // hangs
	require.ErrorIs(t, q.push(newPendingWrite(0, &callHold{})), driver.ErrBusy)
	require.NoError(t, q.push(newPendingWrite(0, &callSettlement{})))
	for range MaxQueued - 1 {
		require.NoError(t, q.push(newPendingWrite(0, &callSettlement{})))
	}
	require.ErrorIs(t, q.push(newPendingWrite(0, &callSettlement{})), driver.ErrBusy, "the line has an end")
}

// TestSettlementsPassSlowWrites guarantees that settlements don't wait for all the hand-written writes that a transaction has cut off: they
// would be given up, while more hand-written ones come with each transaction.
func TestSettlementsPassSlowWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, stop := slowWriter(newSlowEngine(5*time.Millisecond, slowWriteTime))
		defer stop()
		ctx, leave := context.WithCancel(t.Context())
		var writers, callers sync.WaitGroup
		var slow atomic.Int64
		type ended struct {
			waited time.Duration
			err    error
		}
		settlements := make(chan ended, 2000*5)
		for range 200 {
			writers.Go(func() {
				for ctx.Err() == nil {
					err := w.Exec(t.Context(), func(context.Context, driver.Tx) error {
						time.Sleep(3 * time.Millisecond) //nolint:forbidigo // on the fake clock
						return nil
					})
					if err == nil {
						slow.Add(1)
					}
					time.Sleep(time.Millisecond) //nolint:forbidigo // on the fake clock
				}
			})
		}
		for range cap(settlements) {
			callers.Go(func() {
				asked := time.Now()
				err := w.await(t.Context(), newPendingWrite(0, &callSettlement{}))
				settlements <- ended{time.Since(asked), err}
			})
			time.Sleep(time.Second / 2000) //nolint:forbidigo // on the fake clock
		}
		leave()
		callers.Wait()
		writers.Wait()
		close(settlements)
		for settlement := range settlements {
			require.NoError(t, settlement.err)
			require.Less(t, settlement.waited, 100*time.Millisecond)
		}
		require.Greater(t, slow.Load(), int64(300), "they are written, too")
	})
}

// heavy is an operation that carries much.
type heavy struct{ bytes int }

func (h *heavy) Size() int { return h.bytes }

// TestBatchIsBoundedInBytes guarantees that a transaction carries at most maxBatchBytes, or one operation that is larger,
// and that none of them is left out.
func TestBatchIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for _, bytes := range []int{maxBatchBytes / 2, maxBatchBytes / 2, 1, 3 * maxBatchBytes, 0, maxBatchBytes} {
		require.NoError(t, q.push(newPendingWrite(0, &heavy{bytes})))
	}
	var sizes []int
	for q.waiting() {
		sizes = append(sizes, len(q.take(nil)))
	}
	require.Equal(t, []int{2, 1, 1, 2}, sizes)
}

// heavySettlement ends what was begun, and carries much.
type heavySettlement struct{ heavy }

func (*heavySettlement) Urgent() bool { return true }

// TestHeavySettlementsLeaveRoom guarantees that large answers which are kept, however many, and however small beside a large
// delivery, let each transaction take some of what is ordinary, and take what that leaves.
func TestHeavySettlementsLeaveRoom(t *testing.T) {
	t.Parallel()
	for bytes, fits := range map[int]int{1: 4 + 1 + 3, maxBatchBytes: 4 + 1} {
		q := newQueue()
		for range 64 {
			require.NoError(t, q.push(newPendingWrite(0, &heavySettlement{heavy{maxBatchBytes / 8}})))
		}
		require.NoError(t, q.push(newPendingWrite(0, &heavy{bytes})))
		batch := q.take(nil)
		require.Equal(t, urgent, batch[3].class)
		require.Equal(t, ordinary, batch[4].class)
		require.Len(t, batch, fits)
	}
}

// TestBytesInLineAreWaitedFor guarantees that what is refused at the door follows from how many transactions those in line
// need, not only from their number.
func TestBytesInLineAreWaitedFor(t *testing.T) {
	t.Parallel()
	q := newQueue()
	q.begin(time.Now())
	q.end(time.Second, false, false, 0)
	for range 3 {
		require.NoError(t, q.push(newPendingWrite(0, &heavy{maxBatchBytes})))
	}
	require.ErrorIs(t, q.push(newPendingWrite(0, &callHold{})), driver.ErrBusy)
}

// TestPiecesOfAFailedGroup guarantees that one bad operation of a full batch costs the others a few transactions, not one
// for each: when a commit is slow nothing else would be written meanwhile.
func TestPiecesOfAFailedGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(10*time.Millisecond, 0)
		bad := errors.New("bad")
		kind := &pickyKind{bad: bad}
		w := mustNew(engine, Options{Kinds: []Kind{kind}, Logger: slog.New(slog.DiscardHandler)})
		var writes []*PendingWrite
		for i := range maxBatch {
			write := newPendingWrite(0, i == 100)
			writes = append(writes, write)
			require.NoError(t, w.queue.push(write))
		}
		go w.Run()
		for w.queue.waiting() {
			time.Sleep(time.Millisecond) //nolint:forbidigo // on the fake clock
		}
		late := newPendingWrite(0, false)
		require.NoError(t, w.queue.push(late))
		<-late.Done()
		require.LessOrEqual(t, kind.applied.Load(), int64(3), "what comes doesn't wait for all of them")
		for i, write := range writes {
			<-write.Done()
			if i == 100 {
				require.ErrorIs(t, write.Err(), bad)
				continue
			}
			require.NoError(t, write.Err())
		}
		require.LessOrEqual(t, kind.applied.Load(), int64(2+2*retryPieces))
		w.queue.close()
		<-w.stopped
	})
}

// pickyKind fails for every group that contains true.
type pickyKind struct {
	bad     error
	applied atomic.Int64
}

func (*pickyKind) Name() string { return "picky" }

func (k *pickyKind) Apply(_ context.Context, _ driver.Tx, ops []Op) []error {
	k.applied.Add(1)
	errs := make([]error, len(ops))
	for i, op := range ops {
		if op.(bool) {
			errs[i] = k.bad
		}
	}
	return errs
}
