package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
)

const (
	// slowCommit is longer than half of what an operation may have to wait: no more is let in than a transaction takes.
	slowCommit = 1050 * time.Millisecond
	// overloadCalls come at once, more than two transactions take. Each that is refused is followed by a delivery.
	overloadCalls = 384
	overloadFunds = 10_000_000
	overloadLimit = 10_000 // requests per minute
)

// TestOverload guarantees that a store whose commits are slow serves what it can: a call or a delivery beyond that gets 500 with
// Retry-After at once, and leaves nothing behind, no hold, charge, permit or message. The log says once that it happens. When
// commits are quick again every request is served.
func TestOverload(t *testing.T) {
	t.Parallel()
	binary, err := crashBinary()
	require.NoError(t, err)
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up).receiving(t, platformfake.Start(t))
		d.App += "\nplan counted {\n\trequests_per_minute " + strconv.Itoa(overloadLimit) + "\n}\n"
		p := prepareProduct(t, d)
		slow := filepath.Join(p.Dir, "slow-commits")
		p.startBinary(binary, failpoint.SlowVariable+"="+slow)
		p.awaitReady()
		s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		r := &receiver{product: p, business: p.business(t, 1, s, nil), lines: map[platforms.Type]*line{}}
		r.lines[localchat.Type] = r.line(t, localchat.Type)
		c := p.operator().customerOn(t, "counted", overloadFunds)
		as := p.as(c)

		require.NoError(t, os.WriteFile(slow+".half", []byte(slowCommit.String()), 0o600))
		require.NoError(t, os.Rename(slow+".half", slow))
		requireCompletion(t, as.chat(t, prompt(modelStd, s.Mark, false)), modelStd) // the store is known to be slow

		var mu sync.Mutex
		served, accepted, deliveries := 1, 0, 0
		var refusals []answer
		waves := 0
		for ; deliveries == 0; waves++ { // a loaded machine may need longer to send a wave than the store to write it
			require.Less(t, waves, 5)
			together(overloadCalls, func(int) {
				a, err := as.tryChat(prompt(modelStd, s.Mark, false))
				if !failOn(t, err) {
					return
				}
				mu.Lock()
				if a.Status == http.StatusOK {
					served++
					mu.Unlock()
					return
				}
				refusals = append(refusals, a)
				mu.Unlock()
				a, err = p.tryDeliver(r.lines[localchat.Type].from(1).says("hello"))
				if !failOn(t, err) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if a.accepted() {
					accepted++
					return
				}
				deliveries++
				refusals = append(refusals, a)
			})
		}
		t.Logf("%d calls were served, %d deliveries accepted; %d calls and %d deliveries refused",
			served, accepted, len(refusals)-deliveries, deliveries)
		require.Greater(t, served, overloadCalls/8)
		require.NotZero(t, deliveries)
		require.Greater(t, len(refusals), deliveries)
		for _, a := range refusals {
			requireError(t, a, "internal_error")
			require.Equal(t, "1", a.Header.Get("Retry-After"))
		}

		require.NoError(t, os.Remove(slow))
		together(32, func(int) {
			a, err := as.tryChat(prompt(modelStd, s.Mark, false))
			if failOn(t, err) {
				expectStatus(t, a, http.StatusOK)
			}
		})
		served += 32
		requireQueued(t, p.deliver(t, r.lines[localchat.Type].from(1).says("hello again")), 1)
		accepted++
		// Permits of refused calls go back with what other transactions have room for.
		used := overloadLimit
		for range 20 {
			last := as.chat(t, prompt(modelStd, s.Mark, false))
			requireCompletion(t, last, modelStd)
			served++
			remaining, err := strconv.Atoi(last.Header.Get("X-Ratelimit-Remaining-Requests"))
			require.NoError(t, err)
			if used = overloadLimit - remaining; used <= served {
				break
			}
		}
		require.LessOrEqual(t, used, served, "permits that were used")
		require.Len(t, s.Calls(), served)
		require.Len(t, c.awaitCalls(t, served), served)
		require.Zero(t, c.wallet(t).HeldMicros)
		require.EqualValues(t, overloadFunds-served*usualCharge, c.wallet(t).BalanceMicros)
		for _, call := range c.calls(t) {
			require.Equal(t, "completed", call.Outcome)
			require.EqualValues(t, usualCharge, call.Charged)
		}
		require.Zero(t, c.openHolds(t))
		require.NotContains(t, p.log.String(), sweptCredits)
		require.Len(t, r.received(t, localchat.Type), accepted)
		require.GreaterOrEqual(t, p.metric(t, "svc_writer_refused_operations_total"), float64(len(refusals)))
		p.svc(t, "doctor")
		requireFewWarnings(t, p, waves)
	})
}

// requireFewWarnings requires that the log has a single line that people see about all refusals of the store, or one for each of
// several waves of requests between which nothing was refused.
func requireFewWarnings(t *testing.T, p *product, waves int) {
	t.Helper()
	warnings := 0
	for line := range strings.Lines(p.log.String()) {
		if !strings.Contains(line, `"level":"debug"`) && strings.Contains(line, "store: busy") {
			t.Errorf("a refusal was logged by itself: %s", line)
		}
		if strings.Contains(line, "writes are refused") {
			warnings++
		}
	}
	require.Positive(t, warnings)
	require.LessOrEqual(t, warnings, waves)
}
