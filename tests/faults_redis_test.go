package tests

import (
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// countedPlan admits sharedWindow requests a minute over all nodes; without Redis each node admits localWindow.
	countedPlan  = "counted"
	sharedWindow = 60
	localWindow  = 20
)

// windowed is a product with one of three nodes' share of the windows in a Redis.
type windowed struct {
	*product
	up *upstream
	// probe is a customer that only looks where requests are counted.
	probe *customer
}

// startWindowed starts a product with its windows in the Redis at a URL.
func startWindowed(t *testing.T, redisURL string) *windowed {
	t.Helper()
	up := startUpstream(t)
	d := deploy(t, store.Postgres, up)
	d.App += fmt.Sprintf("plan %s {\nrequests_per_minute %d\n}\n", countedPlan, sharedWindow)
	d.Redis, d.RedisNodes = redisURL, sharedWindow/localWindow
	w := &windowed{product: startProduct(t, d), up: up}
	w.probe = w.operator().customerOn(t, countedPlan, 0)
	return w
}

// redisThrough puts a link between a product and the Redis of all tests.
func redisThrough(t *testing.T, x *toxiproxy) (redisURL string, l *link) {
	t.Helper()
	address, err := url.Parse(testRedis(t))
	require.NoError(t, err)
	l = x.before(address.Host)
	address.Host = l.Address
	return address.String(), l
}

// awaitWindow waits until requests are counted in windows of this size, and the metric says where.
func (w *windowed) awaitWindow(t *testing.T, size int) {
	t.Helper()
	up := float64(count(size == sharedWindow))
	w.await(fmt.Sprintf("requests to be counted in windows of %d", size), patience, func() bool {
		a := w.as(w.probe).get(t, "/v1/models")
		if a.Status != http.StatusOK {
			requireError(t, a, "rate_limited")
		}
		return a.Header.Get("X-Ratelimit-Limit-Requests") == strconv.Itoa(size) && w.metric(t, "svc_redis_up") == up
	})
}

// requireLocalWindow requires that a customer that sends more requests than a node's share at once gets exactly that many
// through in a minute, and 429 for the others, whatever becomes of Redis.
func (w *windowed) requireLocalWindow(t *testing.T) {
	t.Helper()
	for range 3 {
		c := w.operator().customerOn(t, countedPlan, 0)
		minute := time.Now().Truncate(time.Minute)
		answers := make([]answer, 2*localWindow)
		var broken atomic.Bool
		together(len(answers), func(i int) {
			a, err := w.as(c).try(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
			if answers[i] = a; !failOn(t, err) {
				broken.Store(true)
			}
		})
		require.False(t, broken.Load())
		admitted := 0
		for _, a := range answers {
			require.Equal(t, strconv.Itoa(localWindow), a.Header.Get("X-Ratelimit-Limit-Requests"), "%d %s", a.Status, a.Body)
			if a.Status == http.StatusOK {
				admitted++
			} else {
				requireError(t, a, "rate_limited")
			}
		}
		if minute.Equal(time.Now().Truncate(time.Minute)) {
			require.Equal(t, localWindow, admitted)
			return
		}
	}
	t.Fatal("three minutes ended, each within one burst")
}

// requireUnimpressed requires what doesn't depend on Redis: readiness, calls and their charges, and that a revoked key is
// refused at its next request.
func (w *windowed) requireUnimpressed(t *testing.T) {
	t.Helper()
	w.requireReady(http.StatusOK)
	c := w.operator().customerOn(t, countedPlan, pendingFunds)
	s := w.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	for i, stream := range []bool{false, true} {
		done := requireAnswered(t, w.as(c).chat(t, prompt(modelStd, s.Mark, stream)), modelStd, stream)
		require.EqualValues(t, usualCharge, done.charged(t))
		require.EqualValues(t, pendingFunds-(i+1)*usualCharge, c.wallet(t).BalanceMicros)
	}
	require.NoError(t, c.db.APIKeys.Revoke(t.Context(), actor, c.OrgID, c.KeyID))
	requireError(t, w.as(c).get(t, "/v1/models"), "api_key_revoked")
}

// live takes the product through one fault of its Redis and requires at every moment: requests go
// on, counted in this node's share of the window, which the metric says; nothing else is impressed; and when Redis answers
// again, requests are counted there again without a restart.
func (w *windowed) live(t *testing.T, l *link, fault func(*link)) {
	t.Helper()
	w.awaitWindow(t, sharedWindow)
	w.requireUnimpressed(t)
	goodDay := w.goroutines(t)
	l.during(fault, func() {
		w.requireLocalWindow(t)
		w.awaitWindow(t, localWindow)
		w.requireLocalWindow(t)
		w.requireUnimpressed(t)
		require.Contains(t, w.metrics(t), `svc_redis_local_requests_total{reason="open"}`)
		require.Contains(t, w.log.String(), "Redis doesn't answer")
		w.requireFewGoroutines(t, goodDay)
	})
	w.awaitWindow(t, sharedWindow)
	w.requireUnimpressed(t)
	w.requireFewGoroutines(t, goodDay)
}

// TestRedisFaults guarantees [windowed.live] for each fault of the network before Redis.
func TestRedisFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*link){
		"refuses connections":                         (*link).gone,
		"takes commands and answers nothing":          (*link).hang,
		"cuts each connection when it answers":        (*link).reset,
		"loses packets both ways on open connections": (*link).partition,
		"answers later than a request waits for it":   func(l *link) { l.slow(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, l := redisThrough(t, startToxiproxy(t))
			startWindowed(t, address).live(t, l, fault)
		})
	}
}

// TestRedisGoneAtStart guarantees that a product starts and serves without its Redis, and counts there once it is there.
func TestRedisGoneAtStart(t *testing.T) {
	t.Parallel()
	address, l := redisThrough(t, startToxiproxy(t))
	var w *windowed
	l.during((*link).gone, func() {
		w = startWindowed(t, address)
		w.requireLocalWindow(t)
		w.requireUnimpressed(t)
		w.awaitWindow(t, localWindow)
	})
	w.awaitWindow(t, sharedWindow)
	w.requireUnimpressed(t)
}

// redisServer is a Redis of one test's own.
type redisServer struct {
	process
	url string
	run func()
}

// startRedisServer runs one until the test's end.
func startRedisServer(t *testing.T) *redisServer {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	require.NoError(t, err, "scripts/services.sh installs it")
	port, dir := strconv.Itoa(freePort(t)), t.TempDir()
	s := &redisServer{process: process{t: t, what: "Redis"}, url: "redis://127.0.0.1:" + port + "/0"}
	s.run = func() {
		s.process.run(dir, nil, s.kill, binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
		s.await("Redis to answer", startWait, func() bool {
			client := s.client()
			defer client.Close()
			return client.Ping(t.Context()).Err() == nil
		})
	}
	s.run()
	return s
}

func (s *redisServer) client() *redis.Client {
	options, err := redis.ParseURL(s.url)
	require.NoError(s.t, err)
	return redis.NewClient(options)
}

// TestRedisRestarts guarantees that a Redis which is killed and comes back empty costs at most its counts: meanwhile
// requests are counted in this node's share of the window, afterwards in Redis again.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	s := startRedisServer(t)
	w := startWindowed(t, s.url)
	w.awaitWindow(t, sharedWindow)
	s.kill()
	w.requireLocalWindow(t)
	w.awaitWindow(t, localWindow)
	w.requireUnimpressed(t)
	s.run()
	w.awaitWindow(t, sharedWindow)
	w.requireUnimpressed(t)
}

// TestRedisEmptied guarantees that a Redis which forgets its keys and the script of the windows goes on counting from
// zero, and that no request fails for it. What is not a window is left alone, and its organization counted in this node's
// share.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	s := startRedisServer(t)
	w := startWindowed(t, s.url)
	client := s.client()
	defer client.Close()
	c := w.operator().customerOn(t, countedPlan, 0)
	counted := func() bool { // a loaded machine may make the node count by itself
		a := w.as(c).get(t, "/v1/models")
		if a.Status != http.StatusOK {
			requireError(t, a, "rate_limited")
			c = w.operator().customerOn(t, countedPlan, 0)
			return false
		}
		return len(w.windows(t, client, c)) == 1
	}
	w.await("counts in Redis", patience, counted)
	require.NoError(t, client.ScriptFlush(t.Context()).Err())
	require.NoError(t, client.FlushAll(t.Context()).Err())
	w.await("counts in Redis again", patience, counted)
	key := w.windows(t, client, c)[0]
	w.awaitWindow(t, sharedWindow)
	w.requireUnimpressed(t)

	require.NoError(t, client.Set(t.Context(), key, "something else", 0).Err())
	w.await("this node's share for who has no window", patience, func() bool {
		a := w.as(c).get(t, "/v1/models")
		return a.Header.Get("X-Ratelimit-Limit-Requests") == strconv.Itoa(localWindow)
	})
	require.Equal(t, "something else", client.Get(t.Context(), key).Val())
	w.awaitWindow(t, sharedWindow)
}

// windows are the keys that name a customer.
func (w *windowed) windows(t *testing.T, client *redis.Client, c *customer) []string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*"+c.OrgID+"*").Result()
	require.NoError(t, err)
	return keys
}
