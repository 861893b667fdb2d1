package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// soak says whether the long form of a test was asked for (make soak).
func soak() bool { return os.Getenv("SVC_SOAK") != "" }

// beside is the same deployment for another process on the same store.
func (d *deployment) beside() *deployment {
	other := *d
	return &other
}

// TestTwoGatewaysMakeProgress guarantees that while one gateway is saturated, another on the same store still
// serves its clients, and all of it adds up in one wallet. How fairly two writers share a SQLite file is measured and
// tested in package store.
func TestTwoGatewaysMakeProgress(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		busy, other := startProduct(t, d), startProduct(t, d.beside())
		c := busy.operator().customer(t, 1_000_000_000)
		body := prompt(modelStd, "hi", false)

		var stop atomic.Bool
		var served atomic.Int64
		saturated := make(chan struct{})
		go func() {
			defer close(saturated)
			together(24, func(int) {
				for !stop.Load() {
					a, err := busy.as(c).tryChat(body)
					if !failOn(t, err) || !expectStatus(t, a, http.StatusOK) {
						return
					}
					served.Add(1)
				}
			})
		}()
		busy.await("the first gateway to be under load", patience, func() bool { return served.Load() > 100 })
		before := served.Load()
		const n = 60
		ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
		defer cancel()
		for i := range n {
			a, err := other.as(c).try(ctx, http.MethodPost, chatPath, strings.NewReader(body))
			require.NoError(t, err, "call %d of the other gateway", i)
			requireCompletion(t, a, modelStd)
		}
		require.Greater(t, served.Load(), before+n/2, "the first gateway goes on meanwhile")
		stop.Store(true)
		<-saturated
		total := served.Load() + n
		c.awaitCalls(t, int(total))
		require.Equal(t, 1_000_000_000-total*usualCharge, c.wallet(t).BalanceMicros)
	})
}

func expectStatus(t testing.TB, a answer, status int) (fine bool) {
	t.Helper()
	if a.Status != status {
		t.Errorf("%d instead of %d: %.300s", a.Status, status, a.Body)
	}
	return a.Status == status
}

// TestNoDebtAcrossGateways guarantees that two gateways on one store share one wallet: of 60 parallel calls through both
// on a wallet that can carry one, one is served. On PostgreSQL they share one window of the rate limit, too.
func TestNoDebtAcrossGateways(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		gateways := []*product{startProduct(t, d), startProduct(t, d.beside())}
		hold := newGate(t)
		s := up.script(func(call *upstreamCall) {
			if hold.pass(call) {
				call.answer(usualText, usage(50, 25))
			}
		})
		c := gateways[0].operator().customer(t, 190)
		const n = 60
		var served, refused atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			together(n, func(i int) {
				a, err := gateways[i%2].as(c).tryChat(prompt(modelStd, s.Mark, i%3 == 0, `"max_tokens":50`))
				switch {
				case !failOn(t, err):
				case a.Status == http.StatusOK:
					served.Add(1)
				case expectStatus(t, a, http.StatusPaymentRequired):
					refused.Add(1)
				}
			})
		}()
		gateways[0].await("all other calls to be refused", patience, func() bool { return refused.Load() == n-1 })
		hold.open()
		<-ended
		require.EqualValues(t, 1, served.Load())
		s.only(t)

		// Revoked through one process, refused by the other at the next request.
		revoked := gateways[0].withKey(c.Key)
		require.Equal(t, http.StatusOK, gateways[1].withKey(c.Key).get(t, "/v1/models").Status)
		require.NoError(t, c.db.APIKeys.Revoke(t.Context(), actor, c.OrgID, c.KeyID))
		requireError(t, gateways[1].withKey(c.Key).get(t, "/v1/models"), "api_key_revoked")
		requireError(t, revoked.get(t, "/v1/models"), "api_key_revoked")

		if engine == store.Postgres {
			tight := gateways[0].operator().customerOn(t, planTight, 0)
			requireWindowGoesOn(t, gateways[0], tight, 1, func() { gateways[1].as(tight).get(t, "/v1/models") })
		}
	})
}

// TestKill guarantees that a power failure of either of two gateways on one store leaves the books right: every answer
// that a client has seen whole is on record with the charge it saw, and what was under way is given back when its hold
// expires.
func TestKill(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.Longest, d.HoldTTL, d.Sweep = "2s", "1s", "200ms"
		gateways := []*product{startProduct(t, d), startProduct(t, d.beside())}
		c := gateways[0].operator().customer(t, 1_000_000_000)
		rounds := 2
		if soak() {
			rounds = 100
		}
		var seen observed
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			together(8, func(i int) {
				for k := 0; !stop.Load(); k++ {
					a, err := gateways[i%2].as(c).tryChat(prompt(modelStd, "hi", k%2 == 0))
					if err == nil && a.Broken == nil {
						seen.note(t, a)
					} else {
						betweenLooks() // the gateway is down; don't spin
					}
				}
			})
		}()
		for round := range rounds {
			p := gateways[round%2]
			before := seen.count()
			p.await("calls to be served", patience, func() bool { return seen.count() >= before+30 })
			p.kill()
			p.start()
			p.awaitReady()
		}
		stop.Store(true)
		<-ended
		gateways[0].await("the holds of killed calls to expire", patience, func() bool {
			return gateways[0].operator().openHolds(t) == 0
		})
		recorded := map[string]int64{}
		var sum int64
		for _, call := range c.calls(t) {
			recorded[call.RequestID] = call.Charged
			sum += call.Charged
		}
		for id, charge := range seen.charges {
			got, ok := recorded[id]
			require.True(t, ok, "the call %s was answered and is not on record", id)
			require.Equal(t, charge, got, "%s", id)
		}
		require.Equal(t, 1_000_000_000-sum, c.wallet(t).BalanceMicros)
		c.awaitNothingHeld(t)
		gateways[0].svc(t, "doctor")
	})
}

// observed are the answers that clients have seen whole: request id and charge.
type observed struct {
	mu      sync.Mutex
	charges map[string]int64
}

func (o *observed) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.charges)
}

// note keeps an answer with a charge.
func (o *observed) note(t testing.TB, a answer) {
	t.Helper()
	if a.Status != http.StatusOK {
		if a.Status < 500 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		return
	}
	text := string(a.Body)
	if at := strings.LastIndex(text, `{"id"`); at >= 0 {
		text = text[at:]
	}
	var last usageAndCharge
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&last); err != nil || last.SVC.ChargedMicros == "" {
		t.Errorf("an answer without an end and without an error: %s", a.Body)
		return
	}
	var micros int64
	_, err := fmt.Sscan(last.SVC.ChargedMicros, &micros)
	failOn(t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.charges == nil {
		o.charges = map[string]int64{}
	}
	o.charges[a.Header.Get("X-Request-Id")] = micros
}
