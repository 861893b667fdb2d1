package writer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// rowKind locks rows, and passes on how many operations each of its transactions has.
type rowKind struct{ began chan int }

func (rowKind) Name() string { return "rows" }

func (rowKind) LocksRows() {}

func (k rowKind) Apply(_ context.Context, _ driver.Tx, ops []Op) []error {
	k.began <- len(ops)
	return nil
}

// overlapping is a running writer on an engine with two transactions in flight, whose commits take a second.
type overlapping struct {
	*Writer

	t     *testing.T
	start time.Time
	began chan int
	rows  rowKind
}

func overlap(t *testing.T, open int, run func(w *overlapping)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(time.Second, slowWriteTime)
		engine.open = open
		o := &overlapping{t: t, start: time.Now(), began: make(chan int, 100)}
		o.rows = rowKind{o.began}
		o.Writer = mustNew(engine, Options{Kinds: []Kind{callKind{}, o.rows}, Logger: slog.New(slog.DiscardHandler)})
		go o.Run()
		defer func() { require.NoError(t, o.Close(context.Background())) }()
		run(o)
	})
}

// at waits until a tenth of a second of the test.
func (o *overlapping) at(tenths int) {
	time.Sleep(time.Until(o.start.Add(time.Duration(tenths) * 100 * time.Millisecond))) //nolint:forbidigo // on the fake clock
}

func (o *overlapping) requireEnd(tenths int, writes ...*PendingWrite) {
	o.t.Helper()
	for _, write := range writes {
		<-write.Done()
		require.NoError(o.t, write.Err())
	}
	require.Equal(o.t, time.Duration(tenths)*100*time.Millisecond, time.Since(o.start).Round(time.Millisecond))
}

// TestNextBeginsWhileOneCommits guarantees that a transaction of kinds that lock rows begins while another one commits, that there are two at
// most, and that any other waits until both have ended and lets none begin beside it.
func TestNextBeginsWhileOneCommits(t *testing.T) {
	t.Parallel()
	overlap(t, 2, func(w *overlapping) {
		first := w.Submit(w.rows, nil)
		w.at(2)
		second := w.Submit(w.rows, nil)
		w.at(3)
		third := w.Submit(w.rows, nil)
		w.requireEnd(10, first)
		w.requireEnd(12, second)
		w.at(13)
		call := w.Submit(callKind{}, nil)
		w.at(14)
		fourth := w.Submit(w.rows, nil)
		w.requireEnd(20, third)
		w.requireEnd(30, call)
		w.requireEnd(40, fourth)
		w.at(41)
		exec := make(chan error)
		last := w.Submit(w.rows, nil)
		go func() { exec <- w.Exec(context.Background(), func(context.Context, driver.Tx) error { return nil }) }()
		require.NoError(w.t, <-exec)
		w.requireEnd(51, last)
	})
}

// TestNextWaitsForCompany guarantees that no transaction of few operations begins beside one of many, and that it begins when that has ended.
func TestNextWaitsForCompany(t *testing.T) {
	t.Parallel()
	overlap(t, 2, func(w *overlapping) {
		var many []*PendingWrite
		for range 8 {
			many = append(many, w.Submit(w.rows, nil))
		}
		require.Equal(t, 8, <-w.began)
		w.at(1)
		few := []*PendingWrite{w.Submit(w.rows, nil), w.Submit(w.rows, nil), w.Submit(w.rows, nil)}
		w.at(2)
		require.Empty(t, w.began)
		w.requireEnd(10, many...)
		w.requireEnd(20, few...)
		w.at(21)
		many = many[:0]
		for range 8 {
			many = append(many, w.Submit(w.rows, nil))
		}
		w.at(22)
		for range 4 {
			few = append(few, w.Submit(w.rows, nil))
		}
		w.requireEnd(31, many...)
		w.requireEnd(32, few...)
	})
}

// TestOneInFlight guarantees that an engine with one writer gets one transaction after the other.
func TestOneInFlight(t *testing.T) {
	t.Parallel()
	overlap(t, 1, func(w *overlapping) {
		first := w.Submit(w.rows, nil)
		w.at(1)
		second := w.Submit(w.rows, nil)
		w.requireEnd(10, first)
		w.requireEnd(20, second)
	})
}

// TestOverlappingTransactionsAreMeasuredOnce guarantees that what is refused follows from how many transactions end in a time: two in
// flight let each wait half as long.
func TestOverlappingTransactionsAreMeasuredOnce(t *testing.T) {
	t.Parallel()
	overlap(t, 2, func(w *overlapping) {
		for range 4 {
			first := w.Submit(w.rows, nil)
			w.at(int(time.Since(w.start)/(100*time.Millisecond)) + 5)
			second := w.Submit(w.rows, nil)
			<-first.Done()
			<-second.Done()
		}
		w.queue.mu.Lock()
		defer w.queue.mu.Unlock()
		require.Equal(t, 500*time.Millisecond, w.queue.pace.last.Round(time.Millisecond))
		require.Zero(t, w.queue.open)
		require.True(t, w.queue.pace.began.IsZero())
	})
}

// TestLostCommitBesideAnother guarantees that a COMMIT without an answer is told to its own callers only, and that what is closed meanwhile
// still ends.
func TestLostCommitBesideAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := newSlowEngine(time.Hour, slowWriteTime)
		engine.open = 2
		rows := rowKind{make(chan int, 100)}
		w := mustNew(engine, Options{Kinds: []Kind{rows}, Logger: slog.New(slog.DiscardHandler)})
		go w.Run()
		lost := w.Submit(rows, nil)
		<-rows.began
		engine.commit.Store(int64(time.Second))
		kept := w.Submit(rows, nil)
		later := w.Submit(rows, nil)
		require.NoError(t, w.Close(context.Background()))
		require.ErrorIs(t, lost.Err(), driver.ErrCommitUnknown)
		require.NoError(t, kept.Err())
		require.NoError(t, later.Err())
	})
}
