package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// batches records what the writer did.
type batches struct {
	mu   sync.Mutex
	seen []store.Batch
}

func (b *batches) ObserveBatch(batch store.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, batch)
}

func (b *batches) all() []store.Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]store.Batch(nil), b.seen...)
}

// eachWith runs a test on both engines with a database whose transactions are recorded and whose operations wait as long as a
// gate is closed.
func eachWith(t *testing.T, kinds []store.Kind, run func(t *testing.T, db *store.DB, seen *batches)) {
	t.Helper()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			seen := &batches{}
			db := storetest.OpenAt(t, storetest.Location(t, engine), store.Options{Kinds: kinds, Observer: seen})
			db.Unhurried()
			createItems(t, db)
			run(t, db, seen)
		})
	}
}

// Operations that wait at the same moment share one transaction of at most 256.
func TestOperationsThatWaitShareATransaction(t *testing.T) {
	t.Parallel()
	eachWith(t, []store.Kind{&items{name: "items"}}, func(t *testing.T, db *store.DB, seen *batches) {
		const n = 600
		atGate := closeGate(t, db)
		tickets := make([]*store.PendingWrite, n)
		kind := &items{name: "items"}
		for i := range tickets {
			tickets[i] = db.Submit(kind, &insert{ID: int64(i)})
		}
		before := len(seen.all())
		require.NoError(t, atGate.open())
		for _, ticket := range tickets {
			<-ticket.Done()
			require.NoError(t, ticket.Err())
		}
		require.Equal(t, n, countItems(t, db))
		require.NoError(t, db.Exec(t.Context(), func(context.Context, store.Tx) error { return nil })) // so that the last one is recorded
		var sizes []int
		for _, batch := range seen.all()[before:] {
			if batch.Operations > 1 {
				sizes = append(sizes, batch.Operations)
			}
		}
		require.Equal(t, []int{256, 256, 88}, sizes)
	})
}

// A result is returned only after the COMMIT: while its transaction is open the operation is neither done nor visible.
func TestResultsAreToldAfterCommit(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			kind := &lingering{applied: make(chan struct{}), leave: make(chan struct{})}
			db := storetest.Open(t, engine, kind)
			db.Unhurried()
			createItems(t, db)
			leave := sync.OnceFunc(func() { close(kind.leave) })
			t.Cleanup(leave)
			ticket := db.Submit(kind, nil)
			<-kind.applied
			select {
			case <-ticket.Done():
				require.Fail(t, "told before COMMIT")
			default:
			}
			require.Zero(t, countItems(t, db))
			leave()
			<-ticket.Done()
			require.NoError(t, ticket.Err())
			require.Equal(t, 1, countItems(t, db))
		})
	}
}

// lingering writes a row and stays in its transaction until leave is closed.
type lingering struct{ applied, leave chan struct{} }

func (*lingering) Name() string { return "lingering" }

func (k *lingering) Apply(ctx context.Context, tx store.Tx, _ []store.Op) []error {
	tx.Queue(1, `INSERT INTO items (id) VALUES (1)`)
	err := tx.Flush(ctx)
	close(k.applied)
	<-k.leave
	return []error{err}
}

// One operation the database refuses costs its companions nothing but another transaction: each of the group runs
// again alone, and only the bad one gets its error.
func TestFailedGroupRunsAgainAlone(t *testing.T) {
	t.Parallel()
	eachWith(t, []store.Kind{&items{name: "items"}}, func(t *testing.T, db *store.DB, seen *batches) {
		write(t, db, `INSERT INTO items (id, owner) VALUES (3, 'there before')`)
		kind := &items{name: "items"} // same name, so the registered one applies
		atGate := closeGate(t, db)
		var tickets []*store.PendingWrite
		for id := range int64(5) {
			tickets = append(tickets, db.Submit(kind, &insert{ID: id, Owner: "group"}))
		}
		require.NoError(t, atGate.open())
		for id, ticket := range tickets {
			<-ticket.Done()
			if id == 3 {
				require.ErrorIs(t, ticket.Err(), store.ErrConflict)
				continue
			}
			require.NoError(t, ticket.Err())
		}
		require.Equal(t, 5, countItems(t, db))
		retried, failed := 0, 0
		for _, batch := range seen.all() {
			retried += batch.Retried
			failed += batch.Failed
		}
		require.Equal(t, 5, retried)
		require.Equal(t, 1, failed)
	})
}

// A kind that fails leaves nothing behind, and the other kinds of the transaction are not touched by it.
func TestKindsAreApart(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	good := &items{name: "items"}
	kinds := []store.Kind{failing{broken}, good, panicking{}}
	storetest.Each(t, kinds, func(t *testing.T, db *store.DB) {
		db.Unhurried()
		createItems(t, db)
		atGate := closeGate(t, db)
		tickets := map[string]*store.PendingWrite{
			"failing":   db.Submit(failing{}, nil),
			"good":      db.Submit(good, &insert{ID: 1}),
			"panicking": db.Submit(panicking{}, true),
			"calm":      db.Submit(panicking{}, false),
		}
		require.NoError(t, atGate.open())
		for _, ticket := range tickets {
			<-ticket.Done()
		}
		require.ErrorIs(t, tickets["failing"].Err(), broken)
		require.NoError(t, tickets["good"].Err())
		require.ErrorContains(t, tickets["panicking"].Err(), "panicked")
		require.NoError(t, tickets["calm"].Err())
		require.Equal(t, 1, countItems(t, db))
	})
}

// Execs of one batch have a savepoint each, and a statement that failed fails its Exec even when run ignores it.
func TestExecIsAtomic(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createItems(t, db)
		refused := errors.New("refused")
		err := db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO items (id) VALUES (1)`)
			return refused
		})
		require.ErrorIs(t, err, refused)

		err = db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO items (id) VALUES (2)`)
			tx.Queue(1, `INSERT INTO items (id) VALUES (2)`)
			tx.Flush(ctx) // ignoring it must not help
			return nil
		})
		require.ErrorIs(t, err, store.ErrConflict)

		err = db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO items (id) VALUES (3)`)
			require.Error(t, tx.Query(ctx, nil, `SELECT id FROM nowhere`))
			tx.Queue(1, `INSERT INTO items (id) VALUES (4)`)
			return nil
		})
		require.ErrorContains(t, err, "nowhere")
		require.Zero(t, countItems(t, db))

		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO items (id) VALUES (5)`)
			return nil
		}))
		require.Equal(t, 1, countItems(t, db))
	})
}

// A queued statement must affect the given number of rows, also when it is the last of its transaction.
func TestWantedRows(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createItems(t, db)
		err := db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(2, `INSERT INTO items (id) VALUES (1), (2)`)
			tx.Queue(1, `UPDATE items SET owner = 'nobody' WHERE id > 0`)
			return nil
		})
		require.ErrorIs(t, err, store.ErrRows)
		require.Zero(t, countItems(t, db))
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(2, `INSERT INTO items (id) VALUES (1), (2)`)
			tx.Queue(0, `DELETE FROM items WHERE id = 9`)
			tx.Queue(store.AnyRows, `UPDATE items SET owner = 'somebody'`)
			return nil
		}))
		require.Equal(t, 2, countItems(t, db))
	})
}

// A transaction ends after about 5 ms, or a quarter of a commit; the operations that it cut off run in the next ones.
func TestSlowBatchIsCut(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	eachWith(t, []store.Kind{kind}, func(t *testing.T, db *store.DB, seen *batches) {
		atGate := closeGate(t, db)
		var wait sync.WaitGroup
		errs := make(chan error, 4)
		for id := range int64(4) {
			wait.Go(func() {
				errs <- db.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
					for start := time.Now(); time.Since(start) < 200*time.Millisecond; {
						continue // a slow write
					}
					tx.Queue(1, `INSERT INTO items (id) VALUES ($1)`, id)
					return nil
				})
			})
		}
		require.Eventually(t, func() bool { return db.Queued() == 4 }, time.Minute, time.Millisecond)
		require.NoError(t, atGate.open())
		wait.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		putBack := 0
		for _, batch := range seen.all() {
			putBack += batch.PutBack
		}
		require.Equal(t, 3+2+1, putBack)
		require.Equal(t, 4, countItems(t, db))
	})
}

// A full queue refuses with ErrBusy, and a place is free again as soon as a waiting operation is withdrawn.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	storetest.Each(t, []store.Kind{kind}, func(t *testing.T, db *store.DB) {
		db.Unhurried()
		createItems(t, db)
		atGate := closeGate(t, db)
		ctx, cancel := context.WithCancelCause(context.Background())
		left := make(chan error, 1)
		go func() { left <- db.Do(ctx, kind, &insert{ID: -1}) }()
		require.Eventually(t, func() bool { return db.Queued() == 1 }, time.Minute, time.Millisecond)
		var tickets []*store.PendingWrite
		for id := int64(1); id < store.MaxQueued; id++ {
			tickets = append(tickets, db.Submit(kind, &insert{ID: id}))
		}
		require.ErrorIs(t, db.Submit(kind, &insert{ID: -2}).Err(), store.ErrBusy)
		require.ErrorIs(t, db.Do(context.Background(), kind, &insert{ID: -3}), store.ErrBusy)

		gaveUp := errors.New("gave up")
		cancel(gaveUp)
		require.ErrorIs(t, <-left, gaveUp)
		tickets = append(tickets, db.Submit(kind, &insert{ID: store.MaxQueued}))
		require.NoError(t, atGate.open())
		for _, ticket := range tickets {
			<-ticket.Done()
			require.NoError(t, ticket.Err())
		}
		require.Equal(t, store.MaxQueued, countItems(t, db))
	})
}

// A full queue is not waited for.
func TestFullQueueIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	storetest.Each(t, []store.Kind{kind}, func(t *testing.T, db *store.DB) {
		db.Unhurried()
		createItems(t, db)
		atGate := closeGate(t, db)
		var last *store.PendingWrite
		for id := range int64(store.MaxQueued) {
			last = db.Submit(kind, &insert{ID: id})
		}
		require.ErrorIs(t, db.Do(context.Background(), kind, &insert{ID: -1}), store.ErrBusy)
		require.NoError(t, atGate.open())
		<-last.Done()
		require.NoError(t, last.Err())
		require.Equal(t, store.MaxQueued, countItems(t, db))
	})
}

// An operation that was not taken yet is withdrawn when its context ends, and leaves no trace; one that was taken is
// waited for, so that its outcome is known.
func TestContextOfDo(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	storetest.Each(t, []store.Kind{kind}, func(t *testing.T, db *store.DB) {
		db.Unhurried()
		createItems(t, db)
		gaveUp := errors.New("gave up")

		atGate := closeGate(t, db)
		ctx, cancel := context.WithCancelCause(context.Background())
		withdrawn := make(chan error, 1)
		go func() { withdrawn <- db.Do(ctx, kind, &insert{ID: 1}) }()
		require.Eventually(t, func() bool { return db.Queued() == 1 }, time.Minute, time.Millisecond)
		cancel(gaveUp)
		err := <-withdrawn
		require.ErrorIs(t, err, gaveUp)
		require.ErrorIs(t, err, store.ErrBusy)
		require.NoError(t, atGate.open())
		require.ErrorIs(t, db.Do(ctx, kind, &insert{ID: 2}), gaveUp)
		require.Zero(t, countItems(t, db))

		ctx, cancel = context.WithCancelCause(context.Background())
		require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
			cancel(gaveUp) // taken already
			tx.Queue(1, `INSERT INTO items (id) VALUES (3)`)
			return nil
		}))
		require.Equal(t, 1, countItems(t, db))
	})
}

func TestUnknownKindIsRefused(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		require.ErrorContains(t, db.Do(t.Context(), panicking{}, true), "panicking")
		ticket := db.Submit(panicking{}, true)
		<-ticket.Done()
		require.ErrorContains(t, ticket.Err(), "panicking")
	})
}

func TestKindNamesAreUnique(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		_, err := store.Open(t.Context(), storetest.Location(t, engine), store.Options{Kinds: []store.Kind{panicking{}, panicking{}}})
		require.ErrorContains(t, err, "panicking")
	}
}

// A kind that answers the wrong number of errors is a fault, not a success.
func TestKindMustAnswerEveryOperation(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{short{}}, func(t *testing.T, db *store.DB) {
		require.ErrorContains(t, db.Do(t.Context(), short{}, nil), "2 errors for 1 operations")
	})
}

type short struct{}

func (short) Name() string { return "short" }

func (short) Apply(context.Context, store.Tx, []store.Op) []error { return make([]error, 2) }
