package tests

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// openStreams are streams that run until the test opens the gate: each has sent one piece and waits with the rest.
type openStreams struct {
	gate *gate
	live []*liveStream
}

// holdStreams opens n streams and returns when each has brought its first text to its client.
func holdStreams(t *testing.T, p *product, up *upstream, c *customer, n int) *openStreams {
	t.Helper()
	s := &openStreams{gate: newGate(t)}
	script := up.script(func(call *upstreamCall) {
		call.begin()
		call.text("Hello ")
		if s.gate.pass(call) {
			call.text("from upstream.")
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		}
	})
	for range n {
		live := openStream(t, p.as(c), prompt(modelStd, script.Mark, true))
		live.readUntil(t, "Hello ")
		s.live = append(s.live, live)
	}
	return s
}

// requireWhole lets the streams go on and requires that each ends whole and is charged the price it began with.
func (s *openStreams) requireWhole(t *testing.T) {
	t.Helper()
	s.gate.open()
	for _, live := range s.live {
		a := live.rest()
		require.NoError(t, a.Broken)
		require.Contains(t, string(a.Body), `"content":"from upstream."`)
		require.Contains(t, string(a.Body), fmt.Sprintf(`"charged_micros":"%d"`, usualCharge))
		require.True(t, strings.HasSuffix(string(a.Body), "data: [DONE]\n\n"), "%s", a.Body)
	}
}

const runningStreams = 50

// TestReloadDuringStreams guarantees that a reload disturbs no stream: 50 that run while the configuration changes, on
// the same store, end whole, and are settled at the prices they began with, while new calls have the new prices.
func TestReloadDuringStreams(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 10_000_000)
		streams := holdStreams(t, p, up, c, runningStreams)
		dearer := strings.ReplaceAll(p.caddyfile(t), "price_input 1000000", "price_input 3000000")
		for range 3 {
			require.NoError(t, p.reload(dearer))
		}
		done := requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
		require.EqualValues(t, 3*11+2*7, done.charged(t))
		streams.requireWhole(t)
		c.awaitCalls(t, runningStreams+1)
		require.EqualValues(t, 10_000_000-runningStreams*usualCharge-(3*11+2*7), c.wallet(t).BalanceMicros)
	})
}

// TestReloadToAnotherStore guarantees the same when the store changes: what began on the old store is settled there, and
// the old store is closed behind the last call.
func TestReloadToAnotherStore(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 10_000_000)
	streams := holdStreams(t, p, up, c, runningStreams)
	other := storetest.Location(t, store.SQLite)
	require.NoError(t, p.reload(strings.Replace(p.caddyfile(t), p.StoreLine, "store sqlite "+other.DSN, 1)))
	requireError(t, p.withKey(c.Key).get(t, "/v1/models"), "invalid_api_key") // it is a key of the old store
	requireError(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), "invalid_api_key")
	streams.requireWhole(t)
	c.awaitCalls(t, runningStreams)
	require.EqualValues(t, 10_000_000-runningStreams*usualCharge, c.wallet(t).BalanceMicros)
	p.await("the old store to be closed", patience, func() bool { return p.openFiles(t, p.location.DSN) == 0 })
	require.Positive(t, p.openFiles(t, other.DSN))

	require.NoError(t, p.reload(p.caddyfile(t))) // and back, to a store that is opened anew
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
}

// TestReloadThereAndBack guarantees that a store may be configured again while calls of its first time still run: for a
// while it is open twice, both serve the same wallet, and the first one is closed behind its last call.
func TestReloadThereAndBack(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 10_000_000)
	early := holdStreams(t, p, up, c, 10)
	other := storetest.Location(t, store.SQLite)
	require.NoError(t, p.reload(strings.Replace(p.caddyfile(t), p.StoreLine, "store sqlite "+other.DSN, 1)))
	require.NoError(t, p.reload(p.caddyfile(t)))
	require.Equal(t, 2, p.pools(t))
	late := holdStreams(t, p, up, c, 10)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	early.requireWhole(t)
	p.await("the store of the first configuration to be closed", patience, func() bool { return p.pools(t) == 1 })
	p.await("the other store to be closed", patience, func() bool { return p.openFiles(t, other.DSN) == 0 })
	late.requireWhole(t)
	c.awaitCalls(t, 21)
	require.EqualValues(t, 10_000_000-21*usualCharge, c.wallet(t).BalanceMicros)
}

// openFiles counts the product's open files whose path begins with a path.
func (p *product) openFiles(t testing.TB, path string) int {
	t.Helper()
	return openFiles(t, p.cmd.Process.Pid, path)
}

// pools counts the product's open pools on its SQLite file: each has the writers' lock file open once.
func (p *product) pools(t testing.TB) int {
	t.Helper()
	return p.openFiles(t, p.location.DSN+".turn")
}

func openFiles(t testing.TB, process int, path string) (n int) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", process)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range entries {
		if target, err := os.Readlink(filepath.Join(folder, entry.Name())); err == nil && strings.HasPrefix(target, path) {
			n++
		}
	}
	return n
}

// TestFailedReloadLeavesAllAlone guarantees that a reload which fails after our app has started, in another app's Start,
// changes nothing: running streams end whole, the window of the rate limit goes on, the store stays open, and no second
// one is left open.
func TestFailedReloadLeavesAllAlone(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 10_000_000)
	tight := p.operator().customerOn(t, planTight, 0)
	streams := holdStreams(t, p, up, c, 10)
	other := storetest.Location(t, store.SQLite)

	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer occupied.Close()
	broken := p.caddyfile(t) + fmt.Sprintf("http://:%d {\n bind 127.0.0.1\n respond hi\n}\n", occupied.Addr().(*net.TCPAddr).Port)

	requireWindowGoesOn(t, p, tight, 0, func() {
		for range 3 {
			require.ErrorContains(t, p.reload(broken), "address already in use")
		}
		require.Error(t, p.reload(strings.Replace(broken, p.StoreLine, "store sqlite "+other.DSN, 1)))
	})
	require.Equal(t, 1, p.pools(t))
	p.await("the store of the failed configuration to be closed", patience, func() bool { return p.openFiles(t, other.DSN) == 0 })
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	streams.requireWhole(t)
	c.awaitCalls(t, 11)
	require.NoError(t, p.reload(p.caddyfile(t)))
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
}

// requireWindowGoesOn requires that something takes used requests from the window of a customer on the tight plan and
// leaves the rest as it is. A window is a minute of the clock, and one may end meanwhile; then it is tried again.
func requireWindowGoesOn(t testing.TB, p *product, c *customer, used int, something func()) {
	t.Helper()
	minute := func() int64 { return time.Now().Unix() / 60 }
	take := func() int {
		a := p.as(c).get(t, "/v1/models")
		if a.Status != http.StatusOK {
			requireError(t, a, "rate_limited")
		}
		remaining, err := strconv.Atoi(a.Header.Get("X-Ratelimit-Remaining-Requests"))
		require.NoError(t, err)
		return remaining
	}
	for range 3 {
		take()
		began := minute()
		before := take()
		something()
		after := take()
		if began == minute() {
			require.Equal(t, max(0, before-used-1), after, "requests left in the window")
			return
		}
	}
	t.Fatal("three windows ended, each during a reload")
}

// TestOneDatabaseIsOnePool guarantees that one database spelled in two ways in the old and the new configuration is one
// pool with one writer, and that its rate-limit windows survive the reload.
func TestOneDatabaseIsOnePool(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customerOn(t, planTight, 1_000_000)
	link := filepath.Join(p.Dir, "link.db")
	require.NoError(t, os.Symlink(p.location.DSN, link))
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	require.Equal(t, 1, p.pools(t))
	requireWindowGoesOn(t, p, c, 0, func() {
		for _, spelling := range []string{p.relative(t), link, p.location.DSN} {
			require.NoError(t, p.reload(strings.Replace(p.caddyfile(t), p.StoreLine, "store sqlite "+spelling, 1)))
			require.Equal(t, 1, p.pools(t), "pools after the reload to %s", spelling)
		}
	})
}

// TestPlanChangeByReload guarantees that a reload changes what a plan allows without starting its window anew.
func TestPlanChangeByReload(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, _ *upstream) {
		c := p.operator().customerOn(t, planTight, 0)
		requireWindowGoesOn(t, p, c, 0, func() { require.NoError(t, p.reload(p.caddyfile(t))) })
		require.NoError(t, p.reload(strings.Replace(p.caddyfile(t), "requests_per_minute 5", "requests_per_minute 1000", 1)))
		a := p.as(c).get(t, "/v1/models")
		require.Equal(t, http.StatusOK, a.Status)
		require.Equal(t, "1000", a.Header.Get("X-Ratelimit-Limit-Requests"))
	})
}
