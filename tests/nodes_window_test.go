package tests

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// planShared has a window that several nodes fill together, of sharedLimit requests.
	planShared  = "shared"
	sharedLimit = 100
	// edgeTime is how long callers ask on either side of a minute's turn.
	edgeTime = 1500 * time.Millisecond
)

// TestNodesShareWindows guarantees that any number of nodes count in one window, in Redis and, without one, in
// PostgreSQL: of 200 parallel callers on three nodes exactly the limit passes, and of a burst across the minute's turn no
// more than the limit in each of the two windows. What a 429 says is the same on every node.
func TestNodesShareWindows(t *testing.T) {
	t.Parallel()
	counters := map[string]*windowCounter{}
	for name, url := range map[string]string{"postgres": "", "redis": testRedis(t)} {
		d := deploy(t, store.Postgres, startUpstream(t))
		d.Redis, d.RedisNodes = url, clusterNodes
		d.App = fmt.Sprintf("plan %s {\nrequests_per_minute %d\n}\n", planShared, sharedLimit)
		counters[name] = &windowCounter{cluster: startCluster(t, d, clusterNodes, 0)}
	}
	for name, counter := range counters {
		t.Run("burst/"+name, func(t *testing.T) { counter.requireExactBurst(t) })
	}
	customers := map[string]*customer{}
	for name, counter := range counters {
		customers[name] = counter.operator().customerOn(t, planShared, 0)
	}
	// The windows are real minutes of the counter's clock. This is the one wait for the next minute; nothing runs meanwhile.
	turn := time.Now().Add(edgeTime).Truncate(time.Minute).Add(time.Minute)
	<-time.After(time.Until(turn.Add(-edgeTime)))
	asked := map[string]chan []windowAsk{}
	for name, counter := range counters {
		asks, customer := make(chan []windowAsk, 1), customers[name]
		asked[name] = asks
		go func() { asks <- counter.askUntil(t, customer, turn.Add(edgeTime)) }()
	}
	for name := range counters {
		asks := <-asked[name]
		t.Run("edge/"+name, func(t *testing.T) { requireWindows(t, asks) })
	}
}

// windowCounter is a cluster and what it counts in.
type windowCounter struct{ *cluster }

// windowAsk is one request and what was said about the window.
type windowAsk struct {
	answer

	node int
	// end is the end of the window that answered; limit and remaining are the headers'.
	end              time.Time
	limit, remaining int
}

// shared says whether the request was counted in the window that the nodes share: a node that waits for Redis in vain
// admits its own part of the limit instead.
func (a windowAsk) shared() bool { return a.limit == sharedLimit }

// ask sends one request to a node.
func (c *windowCounter) ask(t testing.TB, customer *customer, node int) (asked windowAsk, fine bool) {
	t.Helper()
	sent := time.Now()
	a, err := c.node(node).as(customer).try(context.Background(), http.MethodGet, "/v1/models", http.NoBody)
	if !failOn(t, err) || !failOn(t, a.Broken) {
		return windowAsk{}, false
	}
	asked = windowAsk{answer: a, node: node % len(c.nodes)}
	var reset int
	for name, value := range map[string]*int{"Limit": &asked.limit, "Remaining": &asked.remaining} {
		*value, err = strconv.Atoi(a.Header.Get("X-Ratelimit-" + name + "-Requests"))
		if !failOn(t, err) {
			return windowAsk{}, false
		}
	}
	_, err = fmt.Sscanf(a.Header.Get("X-Ratelimit-Reset-Requests"), "%ds", &reset)
	// Windows end a minute apart, and the header is rounded up to a second: the nearest minute is the one.
	asked.end = sent.Add(time.Duration(reset)*time.Second - 500*time.Millisecond).Round(time.Minute)
	return asked, failOn(t, err)
}

// requireExactBurst sends twice the limit at once, until a burst has been counted in the shared window as a whole: on a
// machine that is busy with other tests some requests may wait for Redis in vain. Then fewer are sent at a time.
func (c *windowCounter) requireExactBurst(t *testing.T) {
	t.Helper()
	const requests, tries = 2 * sharedLimit, 10
	for try := range tries {
		c.awaitRedis()
		customer := c.operator().customerOn(t, planShared, 0)
		callers := max(5, requests>>max(0, try-1))
		asks := make([]windowAsk, requests+len(c.nodes))
		var next atomic.Int64
		together(callers, func(int) {
			for n := next.Add(1) - 1; n < requests && !t.Failed(); n = next.Add(1) - 1 {
				asks[n], _ = c.ask(t, customer, int(n))
			}
		})
		for node := range c.nodes { // repeating it before the window's end gives the same, on every node
			asks[requests+node], _ = c.ask(t, customer, node)
		}
		require.False(t, t.Failed(), "a request failed")
		if requireWindows(t, asks) {
			t.Logf("%d callers at a time", callers)
			return
		}
	}
	t.Fatalf("in %d bursts some requests were always counted by one node alone", tries)
}

// awaitRedis waits until no node has given Redis up.
func (c *windowCounter) awaitRedis() {
	for _, node := range c.nodes {
		if node.Redis != "" {
			node.await("Redis to count", patience, func() bool { return strings.Contains(node.metrics(node.t), "\nsvc_redis_up 1\n") })
		}
	}
}

// askUntil lets callers ask all nodes without a pause until a moment.
func (c *windowCounter) askUntil(t testing.TB, customer *customer, end time.Time) (asks []windowAsk) {
	t.Helper()
	const callers = 30
	by := make([][]windowAsk, callers)
	together(callers, func(i int) {
		for n := 0; time.Now().Before(end); n++ {
			asked, fine := c.ask(t, customer, i+n)
			if !fine {
				return
			}
			by[i] = append(by[i], asked)
		}
	})
	for _, some := range by {
		asks = append(asks, some...)
	}
	return asks
}

// windowTally is what was asked and admitted in one window.
type windowTally struct {
	asked     int
	remaining map[int]bool // what admitted requests were told
	// alone are the requests that each node admitted by itself.
	alone map[int]int
	local int
}

// requireWindows requires the contract of every answer, and of every window that no more than the limit passed; exactly
// the limit, each with another rest, when it was counted by all nodes together, which is then the result.
func requireWindows(t *testing.T, asks []windowAsk) (together bool) {
	t.Helper()
	windows := map[time.Time]*windowTally{}
	for _, a := range asks {
		w := windows[a.end]
		if w == nil {
			w = &windowTally{remaining: map[int]bool{}, alone: map[int]int{}}
			windows[a.end] = w
		}
		w.add(t, a)
	}
	require.LessOrEqual(t, len(windows), 2, "windows of a few seconds: %v", maps.Keys(windows))
	together = true
	for end, w := range windows {
		t.Logf("window until %s: %d asked, %d passed, %d counted by one node alone", end.Format(time.TimeOnly), w.asked, len(w.remaining), w.local)
		for node, n := range w.alone {
			require.LessOrEqual(t, n, sharedLimit/clusterNodes, "passed by node %d alone", node)
		}
		if w.local > 0 {
			together = false
			require.LessOrEqual(t, len(w.remaining), sharedLimit)
			continue
		}
		require.Len(t, w.remaining, min(sharedLimit, w.asked), "passed of %d", w.asked)
	}
	return together
}

// add counts a request.
func (w *windowTally) add(t *testing.T, a windowAsk) {
	t.Helper()
	w.asked++
	reset := a.Header.Get("X-Ratelimit-Reset-Requests")
	require.Regexp(t, `^([1-9]|[1-5][0-9]|60)s$`, reset)
	w.local += count(!a.shared())
	if a.Status != http.StatusOK {
		e := requireError(t, a.answer, "rate_limited") // with Retry-After from 1 to 60, the same as in the body
		require.Equal(t, reset, fmt.Sprintf("%ds", e.RetryAfter))
		require.Zero(t, a.remaining)
		return
	}
	if !a.shared() {
		require.Equal(t, sharedLimit/clusterNodes, a.limit)
		w.alone[a.node]++
		return
	}
	require.False(t, w.remaining[a.remaining], "two requests were told that %d remain", a.remaining)
	require.Less(t, a.remaining, sharedLimit)
	w.remaining[a.remaining] = true
}
