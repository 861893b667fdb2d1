package tests

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	crashFunds = 1_000_000
	crashKey   = "order-1"
)

// crash is a power failure at one place of a call's path, and what it leaves in the store and at the provider.
type crash struct {
	point failpoint.Point
	// held: the hold is open and the key, if there is one, in progress.
	held bool
	// charged: the call is settled and the key, if there is one, finished.
	charged bool
	// asked: the provider has been asked.
	asked bool
}

var crashes = []crash{
	{point: failpoint.AfterClaim},
	{point: failpoint.AfterHold, held: true},
	{point: failpoint.AfterUpstreamHeaders, held: true, asked: true},
	{point: failpoint.AfterLastByte, held: true, asked: true},
	{point: failpoint.BeforeCommit, held: true, asked: true},
	{point: failpoint.AfterCommitBeforeWrite, charged: true, asked: true},
}

// TestCrash guarantees that a process which dies anywhere in a call's path costs no organization anything: unfinished calls are
// given back when their hold expires, what was settled stays settled, and the ledger's invariants hold. A client that sends the
// same call again after the restart is charged once for the answer it sees if it has an Idempotency-Key, and replayed that answer
// if it was paid before; without a key it pays for a call whose answer it never got only if that was settled.
func TestCrash(t *testing.T) {
	t.Parallel()
	covered := make([]failpoint.Point, 0, len(crashes))
	for _, crash := range crashes {
		covered = append(covered, crash.point)
	}
	require.Equal(t, failpoint.CallPoints(), covered)
	binary, err := crashBinary()
	require.NoError(t, err)

	eachEngine(t, func(t *testing.T, engine store.Engine) {
		for i, crash := range crashes {
			for form, stream := range map[string]bool{"whole": false, "stream": true} {
				name := string(crash.point) + "/" + form
				// Each point with each pair of engine, form and key. The long form of the test has all three together.
				keyed := (i%2 == 1) == ((engine == store.SQLite) == stream)
				if keyed || soak() {
					t.Run(name+"/keyed", func(t *testing.T) {
						t.Parallel()
						crashed(t, engine, binary, crash, stream, keyHeader, crashKey).requireKeyedRetry(t)
					})
				}
				if !keyed || soak() {
					t.Run(name+"/unkeyed", func(t *testing.T) {
						t.Parallel()
						crashed(t, engine, binary, crash, stream).requireUnkeyedRetry(t)
					})
				}
			}
		}
	})
}

// aftermath is a product that died in a call and has been started again, with the client of that call.
type aftermath struct {
	*product
	crash
	customer *customer
	script   *script
	body     string
	stream   bool
}

// crashed makes a call on a product that dies in it, looks at what that left, and starts the product without failpoints.
func crashed(t *testing.T, engine store.Engine, binary string, crash crash, stream bool, headers ...string) *aftermath {
	t.Helper()
	up := startUpstream(t)
	d := deploy(t, engine, up)
	d.Longest, d.HoldTTL, d.Sweep = "2s", "100ms", "200ms"
	p := prepareProduct(t, d)
	a := &aftermath{product: p, crash: crash, stream: stream}
	a.script = up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	a.body = prompt(modelStd, a.script.Mark, stream)

	// Only the product has the store open when it dies, so that the next process to open it recovers it.
	before := openOperatorStore(t, d.location, d.masterKey)
	a.customer = before.customer(t, crashFunds)
	before.close(t)

	p.startBinary(binary, failpoint.Variable+"="+string(crash.point))
	p.awaitReady()
	a.requireDeath(t, headers)
	a.customer.operatorStore = p.operator()
	a.requireLeft(t, len(headers) > 0)

	// The dead call's hold expires soon, as it was made to; the calls that follow have all the time of a loaded machine.
	d.Longest, d.HoldTTL = "60s", "30s"
	p.writeCaddyfile(d.caddyfile(t))
	p.start()
	p.awaitReady()
	return a
}

// requireDeath makes the call and requires that the process kills itself in it, and that the client notices.
func (a *aftermath) requireDeath(t *testing.T, headers []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := a.as(a.customer).try(ctx, http.MethodPost, chatPath, strings.NewReader(a.body), headers...)
	require.NoError(t, ctx.Err(), "the process lives")
	if err == nil {
		require.Error(t, answer.Broken, "%d %s", answer.Status, answer.Body)
		requireCut(t, answer)
	}
	a.awaitDeath()
}

// requireLeft requires of the store, before anything else runs on it, what the crash is said to leave.
func (a *aftermath) requireLeft(t *testing.T, keyed bool) {
	t.Helper()
	wallet := a.customer.wallet(t)
	require.Equal(t, a.held, wallet.HeldMicros > 0, "%d micros are held", wallet.HeldMicros)
	require.EqualValues(t, count(a.held), a.customer.openHolds(t))
	require.Equal(t, crashFunds-a.paid(), wallet.BalanceMicros)
	require.Len(t, a.customer.calls(t), count(a.charged))
	require.Len(t, a.script.Calls(), count(a.asked), "requests at the provider")
	require.Equal(t, count(keyed && a.held), a.keys(t, false))
	require.Equal(t, count(keyed && a.charged), a.keys(t, true))
}

// requireKeyedRetry sends the call again with its key: one charge in the end, whatever came before.
func (a *aftermath) requireKeyedRetry(t *testing.T) {
	t.Helper()
	// A key in progress is waited for until the dead call's lease is over.
	again := a.as(a.customer).chat(t, a.body, keyHeader, crashKey)
	call := &keyedCall{key: crashKey, model: modelStd, body: a.body, stream: a.stream}
	call.first = requireAnswered(t, again, modelStd, a.stream)
	require.Equal(t, a.charged, again.Header.Get(replayHeader) == "true")
	require.EqualValues(t, usualCharge, call.first.charged(t))
	require.Equal(t, usualText, call.first.Text)
	call.requireReplay(t, a.as(a.customer), "once more")

	asked := count(a.asked) + count(!a.charged)
	a.requireEnd(t, asked, 1)
	require.Zero(t, a.keys(t, false))
	require.Equal(t, 1, a.keys(t, true))
}

// requireUnkeyedRetry sends the call again without a key: it is another call, with a charge of its own.
func (a *aftermath) requireUnkeyedRetry(t *testing.T) {
	t.Helper()
	again := requireAnswered(t, a.as(a.customer).chat(t, a.body), modelStd, a.stream)
	require.EqualValues(t, usualCharge, again.charged(t))
	a.requireEnd(t, count(a.asked)+1, count(a.charged)+1)
}

// requireEnd requires that the provider was asked so often, that so many calls were charged and nothing else was, and
// that no hold is left once the dead call's has expired.
func (a *aftermath) requireEnd(t *testing.T, asked, charged int) {
	t.Helper()
	a.await("the dead call's hold to expire", patience, func() bool { return a.customer.openHolds(t) == 0 })
	require.Len(t, a.script.Calls(), asked, "requests at the provider")
	for _, call := range a.customer.awaitCalls(t, charged) {
		require.EqualValues(t, usualCharge, call.Charged)
		require.Equal(t, "completed", call.Outcome)
	}
	wallet := a.customer.wallet(t)
	require.Zero(t, wallet.HeldMicros)
	require.EqualValues(t, crashFunds-charged*usualCharge, wallet.BalanceMicros)
	a.customer.requireBooksInOrder(t)
}

// paid is what the dead call cost.
func (c crash) paid() int64 { return int64(count(c.charged)) * usualCharge }

// keys is how many Idempotency-Keys of the store have a call that is running, or that is done.
func (a *aftermath) keys(t *testing.T, done bool) int {
	t.Helper()
	table := "running_keys"
	if done {
		table = "idempotency_keys"
	}
	var n int
	require.NoError(t, a.customer.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
