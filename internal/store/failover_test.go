package store_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// failoverWait bounds each step of a failover on a loaded machine.
const failoverWait = time.Minute

// postgresProgram is a program of the newest PostgreSQL server on this machine, where scripts/services.sh installs one.
func postgresProgram(t *testing.T, name string) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	require.NoError(t, err)
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b string) int {
			version := func(path string) int { n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); return n }
			return version(a) - version(b)
		})
		return found[len(found)-1]
	}
	path, err := exec.LookPath(name)
	require.NoError(t, err, "the test needs the programs of a PostgreSQL server (Debian: postgresql)")
	return path
}

// pair is a private PostgreSQL with a standby.
type pair struct {
	t    *testing.T
	user *syscall.SysProcAttr // PostgreSQL refuses to run as root

	primary                  *exec.Cmd
	primaryPort, standbyPort int
	onPrimary, onStandby     *pgx.Conn
	// network is what the standby hears its server through.
	network *storetest.Wire
}

// startPair starts a server and its standby, which has everything that the server has and is asynchronous so far.
func startPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, primaryPort: unusedPort(t), standbyPort: unusedPort(t)}
	dir, err := os.MkdirTemp("", "svc") // the folders above it are open to another user, unlike those of t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		account, err := user.Lookup("postgres")
		require.NoError(t, err)
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		require.NoError(t, err)
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		require.NoError(t, err)
		p.user = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		require.NoError(t, os.Chown(dir, int(uid), int(gid)))
	}
	first, second := filepath.Join(dir, "primary"), filepath.Join(dir, "standby")
	p.run("initdb", "-D", first, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	p.primary = p.serve(first, p.primaryPort)
	p.onPrimary = p.connect(p.primaryPort)
	location, err := store.ParseLocation(store.Postgres, p.onPrimary.Config().ConnString())
	require.NoError(t, err)
	p.network = storetest.StartWire(t, location)
	through, err := pgx.ParseConfig(p.network.Location.DSN)
	require.NoError(t, err)
	p.run("pg_basebackup", "-h", through.Host, "-p", strconv.Itoa(int(through.Port)), "-U", "postgres", "-D", second, "-R",
		"--checkpoint=fast", "--no-sync")
	p.serve(second, p.standbyPort)
	p.onStandby = p.connect(p.standbyPort)
	return p
}

// unusedPort finds a port below those that outgoing connections use.
func unusedPort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func (p *pair) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(postgresProgram(p.t, name), args...)
	cmd.SysProcAttr, cmd.Dir = p.user, "/"
	return cmd
}

func (p *pair) run(name string, args ...string) {
	p.t.Helper()
	out, err := p.command(name, args...).CombinedOutput()
	require.NoError(p.t, err, "%s: %s", name, out)
}

// serve runs a server until the test's end.
func (p *pair) serve(dir string, port int) *exec.Cmd {
	p.t.Helper()
	cmd := p.command("postgres", "-D", dir, "-p", strconv.Itoa(port), "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
		"-c", "shared_buffers=16MB", "-c", "max_connections=50", "-c", "wal_retrieve_retry_interval=50ms")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGQUIT) // at once; it may have ended
		cmd.Wait()                          // its status is that of the signal
		if p.t.Failed() {
			p.t.Logf("the server on port %d:\n%s", port, log.String())
		}
	})
	return cmd
}

// connect waits until the server accepts connections.
func (p *pair) connect(port int) (conn *pgx.Conn) {
	p.t.Helper()
	require.Eventually(p.t, func() (ready bool) {
		ctx, cancel := context.WithTimeout(p.t.Context(), failoverWait)
		defer cancel()
		var err error
		conn, err = pgx.Connect(ctx, fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable", port))
		return err == nil
	}, failoverWait, 20*time.Millisecond)
	p.t.Cleanup(func() { conn.Close(context.Background()) }) // its server may be gone
	return conn
}

func value[T any](p *pair, on *pgx.Conn, query string) (v T) {
	p.t.Helper()
	require.NoError(p.t, on.QueryRow(p.t.Context(), query).Scan(&v))
	return v
}

// promote makes the standby the server. A statement that waited for that would have a snapshot meanwhile, for which the server may put off
// what it still has to replay until it ends the statement.
func (p *pair) promote() {
	p.t.Helper()
	require.True(p.t, value[bool](p, p.onStandby, `SELECT pg_promote(wait => false)`))
	require.Eventually(p.t, func() bool { return !value[bool](p, p.onStandby, `SELECT pg_is_in_recovery()`) }, failoverWait, 10*time.Millisecond)
}

// A failover to a synchronous standby loses nothing that was acknowledged, also when the standby was behind when the server
// died; and the same store writes on, without being opened again, when its address names both servers.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	_, err := p.onPrimary.Exec(t.Context(), `ALTER SYSTEM SET synchronous_standby_names = '*'`)
	require.NoError(t, err)
	value[bool](p, p.onPrimary, `SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool {
		return value[int](p, p.onPrimary, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	}, failoverWait, 10*time.Millisecond)

	kind := &items{name: "items"}
	location, err := store.ParseLocation(store.Postgres, fmt.Sprintf(
		"host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres dbname=postgres sslmode=disable target_session_attrs=read-write", p.primaryPort, p.standbyPort))
	require.NoError(t, err)
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)

	var ids, acknowledged atomic.Int64
	var kept sync.Map
	var stop atomic.Bool
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for !stop.Load() {
				id := ids.Add(1)
				if db.Do(context.Background(), kind, &insert{ID: id}) == nil {
					kept.Store(id, true)
					acknowledged.Add(1)
				}
			}
		})
	}
	t.Cleanup(func() { stop.Store(true); writers.Wait() })
	wrote := func(n int64) func() bool {
		from := acknowledged.Load()
		return func() bool { return acknowledged.Load() >= from+n }
	}
	require.Eventually(t, wrote(200), failoverWait, time.Millisecond)

	// The standby hears nothing more, and the server dies when a commit waits for it. What the server would acknowledge
	// without its standby would be lost now.
	p.network.Hang()
	require.Eventually(t, func() bool {
		return value[int](p, p.onPrimary, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) > 0
	}, failoverWait, time.Millisecond)
	require.NoError(t, p.primary.Process.Signal(syscall.SIGQUIT))
	p.network.Drop()
	p.promote()

	require.Eventually(t, wrote(50), failoverWait, time.Millisecond, "the store goes on with the standby")
	stop.Store(true)
	writers.Wait()
	rows, err := p.onStandby.Query(t.Context(), `SELECT id FROM items`)
	require.NoError(t, err)
	stored, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	there := map[int64]bool{}
	for _, id := range stored {
		there[id] = true
	}
	for id := range kept.Range {
		require.True(t, there[id.(int64)], "acknowledged and lost: %d", id)
	}
}
