package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// rollers is how many callers keep calling while nodes change.
	rollers = 8
	// heldEach is how many streams are held open on a node while it changes.
	heldEach = 3
	// rollingFunds is more than they can spend.
	rollingFunds = 1_000_000_000
)

// TestRollingRestart guarantees that a release costs no client an answer: while one node after the other is asked to end and
// started again, and then one after the other gets a new configuration, no call through the balancer fails, plain or
// streamed (what a reload closed unanswered, the balancer tries again); streams that were open on a node that ends end
// whole; and each call is charged once.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.Postgres, up)
	d.Global = "shutdown_delay " + shutdownDelay.String()
	c := startCluster(t, d, clusterNodes, 0)
	load := c.startLoad(t, up)
	defer load.end()
	load.awaitAnswers(t, 50)
	for _, node := range c.nodes {
		streams := holdStreams(t, node, up, load.customer, heldEach)
		node.terminate()
		node.awaitRefused()
		load.awaitAnswers(t, 20)
		streams.requireWhole(t)
		node.wait()
		load.awaitAnswers(t, 20) // two nodes are enough
		node.start()
		node.awaitReady()
		c.awaitServing(t, node)
	}
	t.Cleanup(c.end) // before their own ends
	c.balancer.reloads.Store(true)
	for _, node := range c.nodes {
		streams := holdStreams(t, node, up, load.customer, heldEach)
		require.NoError(t, node.reload(strings.Replace(node.caddyfile(t), "plan tight {", "plan new {\n}\nplan tight {", 1)))
		load.awaitAnswers(t, 20)
		streams.requireWhole(t)
		c.awaitServing(t, node)
	}
	load.end()
	load.requireCharges(t, 2*clusterNodes*heldEach)
	c.nodes[0].svc(t, "doctor")
}

// rollingLoad is what goes on while nodes or the store change.
type rollingLoad struct {
	customer *customer
	end      func()
	// seen are the answers that clients have got whole.
	seen observed
}

// startLoad lets callers call through the balancer without a pause until the load's end. Every answer must be whole.
func (c *cluster) startLoad(t *testing.T, up *upstream) *rollingLoad {
	t.Helper()
	owner := c.operator().customer(t, rollingFunds)
	return startLoad(t, owner, c.as(owner), up.script(answeringSoon), rollers)
}

// answeringSoon is the script of a load's model, which takes its time.
func answeringSoon(call *upstreamCall) {
	if call.Body.Stream {
		call.begin()
	}
	select {
	case <-time.After(time.Duration(10+len(call.Raw)%40) * time.Millisecond):
	case <-call.Gone:
	}
	if call.Body.Stream {
		call.text(usualText)
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	} else {
		call.answer(usualText, usualUsage)
	}
}

// startLoad lets some callers call as a customer with rollingFunds, without a pause until the load's end. Every answer must be
// whole.
func startLoad(t *testing.T, owner *customer, as *client, s *script, callers int) *rollingLoad {
	t.Helper()
	load := &rollingLoad{customer: owner}
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		together(callers, func(i int) {
			for n := 0; !stop.Load() && !t.Failed(); n++ {
				a, err := as.tryChat(prompt(modelStd, fmt.Sprintf("%s %d", s.Mark, n), (i+n)%2 == 0))
				if failOn(t, err) && expectStatus(t, a, http.StatusOK) && expectWhole(t, a) {
					load.seen.note(t, a)
				}
			}
		})
	}()
	load.end = func() { stop.Store(true); <-ended }
	return load
}

// awaitAnswers waits until callers have got n more answers.
func (l *rollingLoad) awaitAnswers(t *testing.T, n int) {
	t.Helper()
	want := l.seen.count() + n
	for deadline := time.Now().Add(patience); l.seen.count() < want; betweenLooks() {
		require.False(t, t.Failed(), "a call failed")
		require.True(t, time.Now().Before(deadline), "calls go on")
	}
}

// requireCharges requires the reported charge of each answer, once, and those of the further calls that the customer made.
func (l *rollingLoad) requireCharges(t *testing.T, further int) {
	t.Helper()
	answers := l.seen.count() + further
	calls := l.customer.awaitCalls(t, answers)
	recorded := map[string]int64{}
	for _, call := range calls {
		require.Equal(t, "completed", call.Outcome)
		require.EqualValues(t, usualCharge, call.Charged)
		recorded[call.RequestID] = call.Charged
	}
	require.Len(t, recorded, answers)
	for id, charge := range l.seen.charges {
		require.Equal(t, charge, recorded[id], "the call %s", id)
	}
	require.EqualValues(t, rollingFunds-answers*usualCharge, l.customer.wallet(t).BalanceMicros)
}

// awaitServing waits until the balancer gives a node requests again and they are answered.
func (c *cluster) awaitServing(t *testing.T, node *product) {
	t.Helper()
	for _, backend := range c.balancer.backends {
		if backend.probe != node.SideURL+"/ready" {
			continue
		}
		before := backend.answered.Load()
		node.await("the balancer to come back to the node", patience, func() bool { return backend.answered.Load() >= before+5 })
	}
}
