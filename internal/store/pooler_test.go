package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// pgBouncerVariable names the environment variable with the path of PgBouncer's program (scripts/services.sh).
const pgBouncerVariable = "SVC_TEST_PGBOUNCER"

// pgBouncerUser is the user id of PgBouncer, which refuses to run as root.
const pgBouncerUser = 65534

// startPgBouncer starts a PgBouncer before a database, on a socket of its own, and returns the location of the database through
// it. All clients share four server connections. It has its default configuration: it ignores no startup parameters and keeps
// no prepared statements.
func startPgBouncer(t *testing.T, server store.Location, mode string) store.Location {
	t.Helper()
	program := os.Getenv(pgBouncerVariable)
	require.NotEmpty(t, program, "%s is not set: run the tests through scripts/services.sh", pgBouncerVariable)
	config, err := pgconn.ParseConfig(server.DSN)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "pgb") // a short path: a socket's has a bound
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777)) //nolint:gosec // another user's socket stands in it
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = %s
default_pool_size = 4
max_client_conn = 200
`, config.Host, config.Port, config.User, config.Password, dir, mode), 0o644)) //nolint:gosec // as above

	var log strings.Builder
	command := exec.Command(program, ini)
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: pgBouncerUser, Gid: pgBouncerUser}
	}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() // its clients are closed
		command.Wait()         // killed
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool {
		connection, err := net.Dial("unix", filepath.Join(dir, ".s.PGSQL.6432")) // the file is there before anybody listens
		if err == nil {
			connection.Close()
		}
		return err == nil
	}, time.Minute, time.Millisecond)
	location, err := store.ParseLocation(store.Postgres, server.DSN+" host="+dir+" port=6432 sslmode=disable")
	require.NoError(t, err)
	return location
}

// Through a pooler that gives each transaction another session everything works: batches and their savepoints, shared
// lookups, pages, the clock. Two processes keep the pooler changing sessions. What needs a session goes directly.
func TestPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	direct := storetest.Location(t, store.Postgres)
	location, err := startPgBouncer(t, direct, "transaction").WithDirect(direct.DSN)
	require.NoError(t, err)
	kind, bad := &items{name: "items"}, failing{errors.New("refused")}
	options := store.Options{Kinds: []store.Kind{kind, bad}}
	nodes := []*store.DB{storetest.OpenAt(t, location, options), storetest.OpenAt(t, location, options)}
	createItems(t, nodes[0])
	useThroughPooler(t, nodes, kind, bad)
	requireBounds(t, nodes[0])
	requireWakeUp(t, nodes)
}

// A pooler in session mode gives sessions: it needs no direct address.
func TestPoolerInSessionMode(t *testing.T) {
	t.Parallel()
	location := startPgBouncer(t, storetest.Location(t, store.Postgres), "session")
	location, err := store.ParseLocation(store.Postgres, location.DSN+" pool_max_conns=3") // of four sessions
	require.NoError(t, err)
	kind, bad := &items{name: "items"}, failing{errors.New("refused")}
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind, bad}})
	createItems(t, db)
	useThroughPooler(t, []*store.DB{db}, kind, bad)
	requireBounds(t, db)
	requireWakeUp(t, []*store.DB{db})
}

// useThroughPooler does everything that a node does with a database, on all nodes at once.
func useThroughPooler(t *testing.T, nodes []*store.DB, kind *items, bad store.Kind) {
	t.Helper()
	const rounds, callers = 20, 8
	createOrganization(t, nodes[0], "org_1")
	var running sync.WaitGroup
	for n, db := range nodes {
		for caller := range callers {
			running.Go(func() {
				for round := range rounds {
					id := int64((n*callers+caller)*rounds + round)
					if err := useOnce(db, kind, bad, id); err != nil {
						t.Errorf("node %d, %d: %v", n, id, err)
						return
					}
				}
			})
		}
	}
	running.Wait()
	require.Equal(t, len(nodes)*callers*rounds, countItems(t, nodes[0]))
}

func useOnce(db *store.DB, kind *items, bad store.Kind, id int64) error {
	ctx := context.Background()
	if err := db.Do(ctx, kind, &insert{ID: id, Owner: fmt.Sprint("owner ", id)}); err != nil {
		return err
	}
	if err := db.Do(ctx, kind, &insert{ID: id}); err == nil {
		return errors.New("an id was stored twice")
	}
	if err := db.Do(ctx, bad, id); err == nil {
		return errors.New("the kind's refusal was lost")
	}
	var hash [32]byte
	copy(hash[:], fmt.Sprintf("%032d", id))
	if err := db.APIKeys.Create(ctx, "cli", store.APIKey{ID: fmt.Sprint("key_", id), OrgID: "org_1", Env: store.Live, Hash: hash}); err != nil {
		return err
	}
	record, found, err := db.APIKeys.ByHash(ctx, hash)
	if err != nil || !found || record.KeyID != fmt.Sprint("key_", id) || record.NowMS == 0 {
		return fmt.Errorf("looked up key %d: %v %v %w", id, record, found, err)
	}
	if _, err := db.Organizations.Models(ctx, "org_1"); err != nil {
		return err
	}
	if _, err := db.Routes.ByKeys(ctx, []store.RouteKey{{Type: "photo_dm", ExternalID: "x"}, {Type: "bot", ExternalID: fmt.Sprint(id)}}); err != nil {
		return err
	}
	_, err = db.Organizations.ByID(ctx, "org_1")
	return err
}

// requireBounds shows that the server keeps the writer's bounds, and that a failed transaction leaves nothing of it.
func requireBounds(t *testing.T, db *store.DB) {
	t.Helper()
	require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return tx.Query(ctx, func(row store.Row) error {
			var statement, idle string
			err := row.Scan(&statement, &idle)
			require.Equal(t, "3s", statement)
			require.Equal(t, "2s", idle)
			return err
		}, `SELECT current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')`)
	}))
	requireIndexInSmallTable(t, db)
	require.Error(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return tx.Query(ctx, func(store.Row) error { return nil }, `SELECT pg_sleep(60)`)
	}))
	require.NoError(t, db.Ping(t.Context()))
}

// requireIndexInSmallTable shows that the writer plans with an index what PostgreSQL by itself would look for from end to
// end, in a table that it takes for small: connections keep such plans while the table grows.
func requireIndexInSmallTable(t *testing.T, db *store.DB) {
	t.Helper()
	var steps []string
	require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
		return tx.Query(ctx, func(row store.Row) error {
			steps = append(steps, "")
			return row.Scan(&steps[len(steps)-1])
		}, `EXPLAIN SELECT id FROM calls WHERE id IN ('call_0'`+strings.Repeat(`, 'call_1'`, 99)+`)`)
	}))
	require.Contains(t, steps[0], "calls")
	require.NotContains(t, strings.Join(steps, "\n"), "Seq Scan")
}

// requireWakeUp shows that one node hears another's notification.
func requireWakeUp(t *testing.T, nodes []*store.DB) {
	t.Helper()
	require.NoError(t, nodes[0].Listen(t.Context(), "svc_test", func(wait func(context.Context, time.Duration) (bool, error)) error {
		write(t, nodes[len(nodes)-1], `SELECT pg_notify('svc_test', '')`)
		heard, err := wait(t.Context(), time.Minute)
		require.True(t, heard)
		return err
	}))
}
