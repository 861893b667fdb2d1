package tests

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestTerminateWithinGrace guarantees that SIGTERM loses nothing: streams that run finish within grace_period, whole and
// settled, and the process ends with status 0.
func TestTerminateWithinGrace(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 10_000_000)
		streams := holdStreams(t, p, up, c, runningStreams)
		p.terminate()
		p.awaitRefused()
		streams.requireWhole(t)
		p.wait()
		c.awaitCalls(t, runningStreams)
		require.EqualValues(t, 10_000_000-runningStreams*usualCharge, c.wallet(t).BalanceMicros)
	})
}

// awaitRefused waits until the product, which was asked to end, takes no new connections.
func (p *product) awaitRefused() {
	p.t.Helper()
	p.await("new connections to be refused", patience, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.BaseURL, "http://")) //nolint:noctx // it is local
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// TestTerminateBeyondGrace guarantees that a call which outlives the grace period is cut and settled all the same: what
// its provider had reported is charged and nothing else, no hold stays open, and the process ends.
func TestTerminateBeyondGrace(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.Grace = "500ms"
		p := startProduct(t, d)
		c := p.operator().customer(t, 10_000_000)
		hangs := up.script(func(call *upstreamCall) {
			if call.Body.Stream {
				call.begin()
				call.text("Hello ")
			}
			call.hang()
		})
		reports := up.script(func(call *upstreamCall) {
			call.begin()
			call.raw(`data: {"choices":[{"index":0,"delta":{"content":"Hello "},"finish_reason":null}],"usage":` + usualUsage + "}\n\n")
			call.hang()
		})
		var streams []*liveStream
		for _, s := range []*script{hangs, hangs, reports} {
			live := openStream(t, p.as(c), prompt(modelStd, s.Mark, true))
			live.readUntil(t, "Hello ")
			streams = append(streams, live)
		}
		whole := make(chan answer, 1)
		go func() {
			a, err := p.as(c).tryChat(prompt(modelStd, hangs.Mark, false))
			if err != nil {
				a.Broken = err
			}
			whole <- a
		}()
		p.await("all calls to be with the provider", patience, func() bool { return len(hangs.Calls()) == 3 })
		p.terminate()
		p.wait()
		for _, live := range streams {
			requireCut(t, live.rest())
		}
		requireCut(t, <-whole)
		calls := c.awaitCalls(t, 4)
		var charged int64
		for _, call := range calls {
			require.Equal(t, "exiting", call.Outcome)
			charged += call.Charged
		}
		require.EqualValues(t, usualCharge, charged)
		require.EqualValues(t, 10_000_000-usualCharge, c.wallet(t).BalanceMicros)
	})
}

// requireCut requires an answer that its client can't take for whole.
func requireCut(t testing.TB, a answer) {
	t.Helper()
	require.NotContains(t, string(a.Body), "charged_micros")
	require.NotContains(t, string(a.Body), "[DONE]")
	require.NotContains(t, string(a.Body), `"finish_reason":"`)
	if a.Broken == nil {
		require.Contains(t, string(a.Body), `"error"`)
	}
}

// TestTerminateAfterReload guarantees that calls which began under an earlier configuration have the grace period, too,
// wherever their store is by now, and that they are cut and settled after it.
func TestTerminateAfterReload(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(t *testing.T, p *product) string{
		"the same store": func(t *testing.T, p *product) string {
			t.Helper()
			return p.caddyfile(t)
		},
		"another store": func(t *testing.T, p *product) string {
			t.Helper()
			return strings.Replace(p.caddyfile(t), p.StoreLine, "store sqlite "+storetest.Location(t, store.SQLite).DSN, 1)
		},
		"no store": func(_ *testing.T, p *product) string {
			return fmt.Sprintf("{\n admin unix/%s/admin.sock\n persist_config off\n grace_period %s\n}\nhttp://:%d {\n bind 127.0.0.1\n respond hi\n}\n",
				p.Dir, p.Grace, p.Port)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := startUpstream(t)
			d := deploy(t, store.SQLite, up)
			d.Grace = "20s" // it begins with the reload, and is long enough for all that follows on a slow machine
			p := startProduct(t, d)
			c := p.operator().customer(t, 10_000_000)
			streams := holdStreams(t, p, up, c, 5)
			hangs := up.script(func(call *upstreamCall) {
				call.begin()
				call.text("Hello ")
				call.hang()
			})
			cut := openStream(t, p.as(c), prompt(modelStd, hangs.Mark, true))
			cut.readUntil(t, "Hello ")
			require.NoError(t, p.reload(next(t, p)))
			p.terminate()
			p.awaitRefused()
			ended := make(chan answer, 1)
			go func() { ended <- cut.rest() }()
			select {
			case a := <-ended:
				t.Fatalf("cut while there was time: %s", a.Body)
			case <-time.After(time.Second):
			}
			streams.requireWhole(t)
			p.wait()
			requireCut(t, <-ended)
			calls := c.awaitCalls(t, 6)
			outcomes := map[string]int{}
			for _, call := range calls {
				outcomes[call.Outcome]++
			}
			require.Equal(t, map[string]int{"completed": 5, "exiting": 1}, outcomes)
			require.EqualValues(t, 10_000_000-5*usualCharge, c.wallet(t).BalanceMicros)
		})
	}
}

// TestTerminateIdle guarantees that a product without work ends at once on every signal that asks for it, also right
// after a reload.
func TestTerminateIdle(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	require.NoError(t, p.reload(p.caddyfile(t)))
	p.terminate()
	p.wait()
	require.Zero(t, p.operator().openHolds(t))
}

// bootWait is how long a request waits for a store that another process still migrates.
const bootWait = 5 * time.Second

// TestFirstBootUnderTraffic guarantees that requests which come while another process still migrates the store wait up
// to 5 s and are then served without an error; those that wait longer get 500 with a hint, and none hangs.
func TestFirstBootUnderTraffic(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		for tries := 1; !servedAfterMigration(t, engine); tries++ {
			require.Less(t, tries, 5, "the start took longer than requests wait, each time")
		}
	})
}

// servedAfterMigration starts a product on a store that is being migrated. It reports whether requests which wait are served
// when the migration has ended: all are, unless the machine is so slow that the product's own start takes longer than they wait.
func servedAfterMigration(t *testing.T, engine store.Engine) (served bool) {
	t.Helper()
	d := deploy(t, engine, startUpstream(t))
	release := holdMigration(t, d.location)
	p := prepareProduct(t, d)
	// Caddy starts its apps in random order, and listens only once http has its turn.
	for tries := 1; ; tries++ {
		p.start()
		if listens(p, 3*time.Second) {
			break
		}
		require.Less(t, tries, 20, "http never started before our app")
		p.kill()
	}
	as := p.withKey(unknownKey())

	for range 2 { // longer than SQLite waits for a lock by itself
		late := as.get(t, "/v1/models")
		requireError(t, late, "internal_error")
		require.NotEmpty(t, late.Header.Get("Retry-After"))
	}
	ready, err := p.clear.Get(p.SideURL + "/ready") //nolint:noctx // it is local
	require.NoError(t, err)
	require.NoError(t, ready.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, ready.StatusCode)

	type ended struct {
		answer
		took time.Duration
	}
	answers := make(chan ended)
	const n = 10
	for range n {
		go func() {
			sent := time.Now()
			a, err := as.try(context.Background(), http.MethodGet, "/v1/models", http.NoBody)
			failOn(t, err)
			answers <- ended{a, time.Since(sent)}
		}()
	}
	select {
	case a := <-answers:
		t.Errorf("a request did not wait: %d %s", a.Status, a.Body)
	case <-time.After(500 * time.Millisecond):
	}
	release()
	served = true
	for range n {
		a := <-answers
		if a.Status == http.StatusInternalServerError && a.took >= bootWait {
			served = false
			continue
		}
		requireError(t, a.answer, "invalid_api_key") // the store has been asked
	}
	p.awaitReady()
	return served
}

// listens reports whether the product accepts connections within a time.
func listens(p *product, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); betweenLooks() {
		if conn, err := net.Dial("tcp", strings.TrimPrefix(p.BaseURL, "http://")); err == nil { //nolint:noctx // it is local
			_ = conn.Close()
			return true
		}
	}
	return false
}

// holdMigration takes what another process would hold for as long as it migrates a store that is already in use: on
// SQLite the write lock, on PostgreSQL the advisory lock of the migrations.
func holdMigration(t testing.TB, location store.Location) (release func()) {
	t.Helper()
	db, err := store.Open(t.Context(), location, store.Options{}) // a process of this build
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close(context.Background())) })
	conn := connect(t, location)
	run := func(statement string, args ...any) {
		_, err := conn.ExecContext(context.Background(), statement, args...)
		require.NoError(t, err)
	}
	if location.Engine == store.Postgres {
		run("SELECT pg_advisory_lock($1)", lock.DefaultLockID)
		return func() { run("SELECT pg_advisory_unlock($1)", lock.DefaultLockID) }
	}
	run("BEGIN IMMEDIATE")
	return func() { run("COMMIT") }
}

// connect is a connection of the test's own to the store, around the product's code. It is closed after the test.
func connect(t testing.TB, location store.Location) *sql.Conn {
	t.Helper()
	conn, disconnect := connectShortly(t, location)
	t.Cleanup(disconnect)
	return conn
}

// connectShortly is connect until disconnect is called.
func connectShortly(t testing.TB, location store.Location) (conn *sql.Conn, disconnect func()) {
	t.Helper()
	driver := map[store.Engine]string{store.SQLite: "sqlite", store.Postgres: "pgx"}[location.Engine]
	db, err := sql.Open(driver, location.DSN)
	require.NoError(t, err)
	conn, err = db.Conn(t.Context())
	require.NoError(t, err)
	if location.Engine == store.SQLite { // the product may write at the moment
		_, err = conn.ExecContext(t.Context(), `PRAGMA busy_timeout = 10000`)
		require.NoError(t, err)
	}
	return conn, func() {
		require.NoError(t, conn.Close())
		require.NoError(t, db.Close())
	}
}
