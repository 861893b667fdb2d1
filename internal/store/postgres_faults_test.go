package store_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

const killOthers = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

// A connection that dies inside a transaction fails the operations of that transaction; the next one has a new one.
func TestLostConnection(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	db := storetest.Open(t, store.Postgres, kind)
	createItems(t, db)
	err := db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		tx.Queue(1, `INSERT INTO items (id) VALUES (1)`)
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		_, err := db.Reader().ExecContext(ctx, killOthers)
		if err != nil {
			return err
		}
		return tx.Query(ctx, func(store.Row) error { return nil }, `SELECT id FROM items`)
	})
	require.Error(t, err)
	require.NotErrorIs(t, err, store.ErrCommitUnknown, "COMMIT was never sent")
	require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 2}))
	require.Equal(t, 1, countItems(t, db))
}

// When the server drops every connection, key lookups don't notice, and writing goes on after at most one failure.
func TestServerDropsAllConnections(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}})
	killer := storetest.OpenAt(t, location, store.Options{})
	createItems(t, db)
	for round := range int64(3) {
		_, _, err := db.APIKeys.ByHash(t.Context(), [32]byte{})
		require.NoError(t, err)
		_, err = killer.Reader().Exec(killOthers)
		require.NoError(t, err)
		_, _, err = db.APIKeys.ByHash(t.Context(), [32]byte{})
		require.NoError(t, err)
		if err := db.Do(t.Context(), kind, &insert{ID: 2 * round}); err != nil {
			require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 2*round + 1}))
		}
	}
	require.Equal(t, 3, countItems(t, db))
}

// A server that takes no writes, as the old primary after a failover, refuses each one and says so, while reads go on;
// nothing has to be restarted when it is the primary again.
func TestReadOnlyServer(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)
	operator, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, operator.Close(context.WithoutCancel(t.Context()))) }()
	become := func(readOnly string) {
		name := pgx.Identifier{operator.Config().Database}.Sanitize()
		_, err := operator.Exec(t.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = "+readOnly)
		require.NoError(t, err)
		_, err = operator.Exec(t.Context(), killOthers)
		require.NoError(t, err)
	}
	require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 1}))

	become("on")
	_, _, err = db.APIKeys.ByHash(t.Context(), [32]byte{})
	require.NoError(t, err)
	_ = db.Do(t.Context(), kind, &insert{ID: 2}) // may meet the connection that was cut
	for id := range int64(5) {
		err = db.Do(t.Context(), kind, &insert{ID: 10 + id})
		require.ErrorContains(t, err, "read-only")
		require.NotErrorIs(t, err, store.ErrCommitUnknown)
	}
	require.Equal(t, 1, countItems(t, db))

	become("off")
	if err = db.Do(t.Context(), kind, &insert{ID: 3}); err != nil {
		require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 4}))
	}
	require.Equal(t, 2, countItems(t, db))
}

// A commit whose answer is lost is neither a success nor a failure: the error says so, and the row may be there.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	direct := storetest.Location(t, store.Postgres)
	wire := storetest.StartWire(t, direct)
	location, err := store.ParseLocation(store.Postgres, wire.Location.DSN+" pool_max_conns=1")
	require.NoError(t, err)
	db := storetest.OpenAt(t, location, store.Options{})
	createItems(t, db)
	add := func(id int64, then func()) error {
		return db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			if err := tx.Flush(ctx); err != nil {
				return err
			}
			tx.Queue(store.AnyRows, `INSERT INTO items (id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
			then()
			return nil
		})
	}
	require.NoError(t, add(1, func() {})) // the statements are prepared now, so that the next COMMIT is one message
	require.ErrorIs(t, add(2, wire.CutAnswers), store.ErrCommitUnknown)

	witness := storetest.OpenAt(t, direct, store.Options{})
	require.Eventually(t, func() bool { return countItems(t, witness) == 2 }, time.Minute, time.Millisecond, "the server did commit")
	wire.Mend()
	require.NoError(t, add(2, func() {}), "asked again with the same id")
	require.Equal(t, 2, countItems(t, witness))
}

// A transaction the server ends during COMMIT may have committed for all we know.
func TestKilledDuringCommit(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	createItems(t, db)
	write(t, db, `CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$`)
	write(t, db, `CREATE CONSTRAINT TRIGGER die AFTER INSERT ON items DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
	require.ErrorIs(t, tryWrite(db, `INSERT INTO items (id) VALUES (1)`), store.ErrCommitUnknown)
	write(t, db, `DROP TRIGGER die ON items`)
	write(t, db, `INSERT INTO items (id) VALUES (2)`)
	require.Equal(t, 1, countItems(t, db))
}

// A transaction that the server ended because nothing came for too long, as from a starved process, has certainly not committed: the
// write may be repeated.
func TestTransactionEndedIdle(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{})
	witness := storetest.OpenAt(t, location, store.Options{})
	createItems(t, db)
	err := db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, `SET LOCAL idle_in_transaction_session_timeout = 1`)
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		tx.Queue(1, `INSERT INTO items (id) VALUES (1)`)
		require.Eventually(t, func() bool {
			var idle int
			err := witness.Reader().QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND state LIKE 'idle in transaction%'`).Scan(&idle)
			return err == nil && idle == 0
		}, time.Minute, time.Millisecond)
		return nil
	})
	require.ErrorIs(t, err, store.ErrBusy)
	require.NotErrorIs(t, err, store.ErrCommitUnknown)
	write(t, db, `INSERT INTO items (id) VALUES (2)`)
	require.Equal(t, 1, countItems(t, db))
}

// A transaction the server refuses to commit has certainly not committed.
func TestRefusedCommit(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	createItems(t, db)
	write(t, db, `CREATE TABLE late (id BIGINT REFERENCES items (id) DEFERRABLE INITIALLY DEFERRED)`)
	err := tryWrite(db, `INSERT INTO late (id) VALUES (1)`)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.NotErrorIs(t, err, store.ErrCommitUnknown)
	write(t, db, `INSERT INTO items (id) VALUES (1)`)
}

// A statement that takes too long ends by itself and takes nothing else with it.
func TestSlowStatement(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	db := storetest.Open(t, store.Postgres, kind)
	db.Unhurried()
	createItems(t, db)
	atGate := closeGate(t, db)
	good := db.Submit(kind, &insert{ID: 1})
	slow := make(chan error, 1)
	go func() {
		slow <- db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
			return tx.Query(ctx, func(store.Row) error { return nil }, `SELECT pg_sleep(60)`)
		})
	}()
	require.Eventually(t, func() bool { return db.Queued() == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, atGate.open())
	require.ErrorContains(t, <-slow, "statement timeout")
	<-good.Done()
	require.NoError(t, good.Err())
}

// A write that waits in vain for a row which another node has locked ends as busy: nothing happened, and it can be repeated.
func TestLockedRowIsBusy(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.Postgres)
	createOrganization(t, db, "org_1")
	conn, err := pgx.Connect(t.Context(), db.Location().DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // its transaction is over
	other, err := conn.Begin(t.Context())
	require.NoError(t, err)
	const touch = `UPDATE organizations SET name = name || 'x' WHERE id = 'org_1'`
	_, err = other.Exec(t.Context(), touch)
	require.NoError(t, err)
	require.ErrorIs(t, tryWrite(db, touch), store.ErrBusy)
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, storetest.Insist(func() error { return tryWrite(db, touch) }))
}

// No server is an error at once, and never shows the password.
func TestNoServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	location, err := store.ParseLocation(store.Postgres, "postgres://me:hunter2@"+address+"/db")
	require.NoError(t, err)
	_, err = store.Open(t.Context(), location, store.Options{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}
