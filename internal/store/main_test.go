package store_test

import (
	"context"
	"flag"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// parallelTests is how many tests run at a time at least.
const parallelTests = 4

// TestMain runs the tests, or, re-executed by one of them, the second process of a two-process test.
func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(role, os.Getenv(childPath)))
	}
	// Many of these tests wait for a deadline of several seconds. The command line's -parallel still wins.
	if err := flag.Set("test.parallel", strconv.Itoa(max(parallelTests, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// insert is an operation of the items kind: one row, named by its id.
type insert struct {
	ID    int64
	Owner string
	Rows  int64 // result: rows in the table after the operation's group
}

// items inserts rows into the table of createItems. Its group fails when one of its ids exists.
type items struct {
	name  string
	calls atomic.Int64 // of Apply
}

func (k *items) Name() string { return k.name }

func (k *items) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	k.calls.Add(1)
	for _, op := range ops {
		item := op.(*insert)
		tx.Queue(1, `INSERT INTO items (id, owner) VALUES ($1, $2)`, item.ID, item.Owner)
	}
	var rows int64
	err := tx.Query(ctx, func(row store.Row) error { return row.Scan(&rows) }, `SELECT count(*) FROM items`)
	errs := make([]error, len(ops))
	for i, op := range ops {
		op.(*insert).Rows, errs[i] = rows, err
	}
	return errs
}

// failing refuses every operation with its error.
type failing struct{ err error }

func (failing) Name() string { return "failing" }

func (k failing) Apply(_ context.Context, tx store.Tx, ops []store.Op) []error {
	tx.Queue(1, `INSERT INTO items (id, owner) VALUES (-1, 'failing')`)
	errs := make([]error, len(ops))
	for i := range errs {
		errs[i] = k.err
	}
	return errs
}

// panicking panics on every operation that is true.
type panicking struct{}

func (panicking) Name() string { return "panicking" }

func (panicking) Apply(_ context.Context, _ store.Tx, ops []store.Op) []error {
	for _, op := range ops {
		if op.(bool) {
			panic("told to")
		}
	}
	return nil
}

func createItems(t *testing.T, db *store.DB) {
	t.Helper()
	write(t, db, `CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, owner TEXT)`)
}

// write runs one statement through the writer.
func write(t *testing.T, db *store.DB, text string, arguments ...any) {
	t.Helper()
	require.NoError(t, tryWrite(db, text, arguments...))
}

func tryWrite(db *store.DB, text string, arguments ...any) error {
	return db.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, arguments...)
		return nil
	})
}

func countItems(t *testing.T, db *store.DB) int {
	t.Helper()
	return countRows(t, db, "items")
}

func countRows(t *testing.T, db *store.DB, from string) (n int) {
	t.Helper()
	require.NoError(t, db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+from).Scan(&n))
	return n
}

// gate keeps the writer inside a transaction until it is opened, so that a test can line operations up behind it.
type gate struct {
	opened func()
	passed chan error
}

func closeGate(t *testing.T, db *store.DB) *gate {
	t.Helper()
	entered, opened := make(chan struct{}), make(chan struct{})
	g := &gate{opened: sync.OnceFunc(func() { close(opened) }), passed: make(chan error, 1)}
	t.Cleanup(g.opened) // a failed test must not keep Close waiting
	go func() {
		g.passed <- db.Exec(context.Background(), func(context.Context, store.Tx) error {
			close(entered)
			<-opened
			return nil
		})
	}()
	<-entered
	return g
}

// open lets the writer go on, and answers how the transaction at the gate ended.
func (g *gate) open() error {
	g.opened()
	return <-g.passed
}
