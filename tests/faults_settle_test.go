package tests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pendingCall is a call that has begun at the provider and waits there until the test lets it end.
type pendingCall struct {
	*customer
	script *script
	body   string
	key    string
	stream bool
	began  time.Time

	live  *liveStream // of a stream
	whole chan answer // of another
	end   answer
}

// pendingFunds is what the customer of a pending call begins with.
const pendingFunds = 1_000_000

// pendingCalls has one call of each kind at the provider: whole and streamed, with and without an Idempotency-Key, each
// of a customer of its own. They end when the gate opens.
func (o *outage) pendingCalls(t *testing.T) (calls []*pendingCall, gate *gate) {
	t.Helper()
	gate = newGate(t)
	for _, stream := range []bool{false, true} {
		for _, key := range []string{"", "again-" + freshID()} {
			calls = append(calls, o.pendingCall(t, stream, key, gate))
		}
	}
	return calls, gate
}

// pendingCall is one of them.
func (o *outage) pendingCall(t *testing.T, stream bool, key string, gate *gate) *pendingCall {
	t.Helper()
	c := &pendingCall{customer: o.operator().customer(t, pendingFunds), stream: stream, key: key}
	c.script = o.up.script(func(call *upstreamCall) {
		if stream {
			call.begin()
			call.text("Hello ")
		}
		switch {
		case !gate.pass(call):
		case stream:
			call.text("from upstream.")
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		default:
			call.answer(usualText, usualUsage)
		}
	})
	c.body = prompt(modelStd, c.script.Mark, stream)
	at := gate.waiting.Load() + 1
	c.began = time.Now()
	c.begin(t, o)
	o.await("the call to be at the provider", patience, func() bool { return gate.waiting.Load() == at })
	return c
}

func (c *pendingCall) headers() []string {
	if c.key == "" {
		return nil
	}
	return []string{"Idempotency-Key", c.key}
}

func (c *pendingCall) begin(t *testing.T, o *outage) {
	t.Helper()
	if c.stream {
		c.live = openStream(t, o.as(c.customer), c.body, c.headers()...)
		c.live.readUntil(t, "Hello ")
		return
	}
	c.whole = make(chan answer, 1)
	go func() {
		a, err := o.product.as(c.customer).tryChat(c.body, c.headers()...)
		failOn(t, err)
		c.whole <- a
	}()
}

// awaitEnd reads the whole answer.
func (c *pendingCall) awaitEnd(t *testing.T) {
	t.Helper()
	if c.stream {
		c.end = c.live.whole()
		require.NoError(t, c.end.Broken)
		return
	}
	c.end = <-c.whole
}

// failed reports whether the answer is an error.
func (c *pendingCall) failed() bool { return strings.Contains(string(c.end.Body), `"error"`) }

// requireFailed requires the end of a call that was answered by the provider and can't be settled: internal_error, as the
// answer or at the end of the stream, which looks not whole.
func (c *pendingCall) requireFailed(t *testing.T) {
	t.Helper()
	c.awaitEnd(t)
	if !c.stream {
		requireError(t, c.end, "internal_error")
		return
	}
	events := events(t, c.end.Body)
	require.Equal(t, "internal_error", parseError(t, []byte(events[len(events)-1])).Code)
	requireCut(t, c.end)
}

// requireRight requires that a call which may have failed, or not, is paid for as its client saw it.
func (c *pendingCall) requireRight(t *testing.T, o *outage) {
	t.Helper()
	if c.failed() {
		c.requirePaidOnce(t, o)
		return
	}
	done := requireAnswered(t, c.end, modelStd, c.stream)
	require.Equal(t, pendingFunds-done.charged(t), c.wallet(t).BalanceMicros)
}

// requirePaidOnce requires what docs/billing.md#what-each-ending-costs promises in the end: without a key an answer that was
// reported as failed costs nothing; with one the same request gets an answer, and pays for one. That is the answer of the first
// time, unless its hold has expired meanwhile: then the request runs once more.
func (c *pendingCall) requirePaidOnce(t *testing.T, o *outage) {
	t.Helper()
	paid := int64(0)
	if c.key != "" {
		a := o.product.as(c.customer).chat(t, c.body, c.headers()...)
		done := requireAnswered(t, a, modelStd, c.stream)
		paid = done.charged(t)
		require.EqualValues(t, usualCharge, paid)
		ran := len(c.script.Calls())
		if a.Header.Get(replayHeader) == "true" {
			require.Equal(t, 1, ran, "a replay asks nobody")
		} else {
			require.Equal(t, 2, ran)
			require.Greater(t, time.Since(c.began), holdLife(t, o.deployment), "a keyed call runs again only when its hold has expired")
		}
	}
	o.await("the wallet to be right", 2*patience, func() bool {
		wallet := c.wallet(t)
		return wallet.HeldMicros == 0 && wallet.BalanceMicros == pendingFunds-paid
	})
}

// sweptCredits is what the log says when the sweeper found reservations whose time was over.
const sweptCredits = "released credits of calls that were never settled"

// holdLife is how long the hold of a call lasts.
func holdLife(t testing.TB, d *deployment) time.Duration {
	t.Helper()
	longest, err := time.ParseDuration(d.Longest)
	require.NoError(t, err)
	ttl, err := time.ParseDuration(d.HoldTTL)
	require.NoError(t, err)
	return longest + ttl
}

// live takes the outage through one fault of its PostgreSQL, and requires at every moment:
//
//   - Under the fault every request is answered within its deadline: /v1 and the groups 500 internal_error, webhooks 500
//     with Retry-After; readiness says 503; the provider is called for nothing that isn't held.
//   - Calls that the provider has answered and that can't be settled are reported as failed.
//   - Nothing piles up meanwhile: neither goroutines nor connections.
//   - After the fault the service works again without a restart. What was acknowledged is stored; a call that was reported as
//     failed costs nothing, but a repeated request with a key gets one answer for one charge; the books are in order.
func (o *outage) live(t *testing.T, fault func(*link)) {
	t.Helper()
	o.gather(t)
	goodDay := o.goroutines(t)
	pending, gate := o.pendingCalls(t)
	o.link.during(fault, func() {
		o.requireDown(t, 3)
		o.requireReady(http.StatusServiceUnavailable)
		gate.open()
		for _, call := range pending {
			call.requireFailed(t)
		}
		o.requireDown(t, 12)
		o.requireNoPileUp(t, goodDay)
	})
	o.requireReady(http.StatusOK)
	o.crowd.awaitWell(30)
	o.crowd.disperse()
	o.requireNoPileUp(t, goodDay)
	o.crowd.requireStored(t)
	for _, call := range pending {
		call.requirePaidOnce(t, o)
	}
	o.requireBooks(t)
}

// requireBooks requires that nothing stays on hold, and that the crowd has paid for what it got; it returns how many of
// its calls were broken.
func (o *outage) requireBooks(t *testing.T) (broken int) {
	t.Helper()
	o.await("what was left behind to expire", 2*patience, func() bool { return o.operator().openHolds(t) == 0 })
	charged, broken := o.crowd.requireRight(t)
	o.await("the crowd's wallet to be right", 2*patience, func() bool {
		return o.caller.wallet(t).BalanceMicros == outageFunds-charged
	})
	return broken
}
