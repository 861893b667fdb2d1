package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// bothStores runs f against one product on each store, with an upstream.
func bothStores(t *testing.T, f func(t *testing.T, p *product, up *upstream)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		f(t, startProduct(t, deploy(t, engine, up)), up)
	})
}

// TestCharge guarantees that svc.charged_micros is what leaves the wallet, to the micro, for every kind of price: tokens
// in and out, cached tokens, a price of 0, an own key (BYOK), the test environment, and a cost that rounds up once.
func TestCharge(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 100_000_000)
		c.ownKey(t, "own", "sk-own-key-of-the-customer")
		c.ownKey(t, "acme", "sk-own-key-of-the-customer")
		charge := func(t *testing.T, as *customer, model, usage string, stream bool, headers ...string) (completed, int64) {
			t.Helper()
			s := up.script(func(call *upstreamCall) { call.answer(usualText, usage) })
			before, calls := as.wallet(t).BalanceMicros, len(as.calls(t))
			done := requireAnswered(t, p.as(as).chat(t, prompt(model, s.Mark, stream), headers...), model, stream)
			row := as.awaitCalls(t, calls+1)[calls]
			paid := before - as.wallet(t).BalanceMicros
			require.Equal(t, paid, done.charged(t), "what the client is told is what the wallet loses")
			require.Equal(t, paid, row.Charged)
			require.Equal(t, "completed", row.Outcome)
			require.Equal(t, done.RequestID, row.RequestID)
			require.Equal(t, done.SVC.BYOK, row.BYOK)
			require.Equal(t, stream, row.Stream)
			want := "Bearer " + operatorKey
			if done.SVC.BYOK {
				want = "Bearer sk-own-key-of-the-customer"
			}
			require.Equal(t, want, s.only(t).Header.Get("Authorization"))
			return done, paid
		}
		eachForm(t, func(t *testing.T, stream bool) {
			done, paid := charge(t, c, modelStd, usage(123, 45), stream)
			require.EqualValues(t, 123+2*45, paid)
			require.EqualValues(t, 123, done.Usage.Prompt)
			require.EqualValues(t, 45, done.Usage.Completion)

			_, paid = charge(t, c, modelStd, `{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":81}}`, stream)
			require.EqualValues(t, 19+41+2*7, paid, "81 cached tokens at half a micro round up with the rest, once")

			_, paid = charge(t, c, modelFree, usage(100_000, 5_000), stream)
			require.Zero(t, paid)

			done, paid = charge(t, c, modelKeyed, usage(11, 7), stream, "X-Svc-Use-Byok", "TRUE")
			require.Zero(t, paid)
			require.True(t, done.SVC.BYOK)
			done, paid = charge(t, c, modelStd, usage(11, 7), stream, "X-Svc-Use-Byok", "true")
			require.Zero(t, paid)
			require.True(t, done.SVC.BYOK)
			done, _ = charge(t, c, modelStd, usage(11, 7), stream, "X-Svc-Use-Byok", "yes")
			require.False(t, done.SVC.BYOK)
		})

		t.Run("a test key spends test credits only", func(t *testing.T) {
			testing := c.testing(t)
			requireError(t, p.as(testing).chat(t, prompt(modelStd, "hi", false)), "insufficient_credits")
			testing.credit(t, store.Test, 1_000_000)
			live := c.wallet(t)
			_, paid := charge(t, testing, modelStd, usualUsage, false)
			require.EqualValues(t, usualCharge, paid)
			require.Equal(t, live, c.wallet(t))
		})
		t.Run("a model may be closed to test keys, and reserve its largest answer", func(t *testing.T) {
			testing := c.testing(t)
			testing.credit(t, store.Test, 1_000_000)
			requireError(t, p.as(testing).chat(t, prompt(modelDeep, "hi", false)), "unsupported_model")
			require.NotContains(t, string(p.as(testing).get(t, "/v1/models").Body), modelDeep)
			require.Contains(t, string(p.as(c).get(t, "/v1/models").Body), modelDeep)
			s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
			poor := p.operator().customer(t, 2*stdMaxOut)
			requireError(t, p.as(poor).chat(t, prompt(modelDeep, s.Mark, false, `"max_tokens":10`)), "insufficient_credits")
			requireAnswered(t, p.as(poor).chat(t, prompt(modelStd, s.Mark, false, `"max_tokens":10`)), modelStd, false)
		})
		t.Run("an own key works at zero balance, and no key at all is told", func(t *testing.T) {
			poor := p.operator().customer(t, 0)
			a := p.as(poor).chat(t, prompt(modelStd, "hi", false), "X-Svc-Use-Byok", "true")
			requireError(t, a, "provider_error")
			require.Equal(t, "false", a.Header.Get("X-Should-Retry"))
			// The wallet comes before the provider.
			requireError(t, p.as(poor).chat(t, prompt(modelKeyed, "hi", false)), "insufficient_credits")
			funded := p.operator().customer(t, 1_000_000)
			requireError(t, p.as(funded).chat(t, prompt(modelKeyed, "hi", false)), "provider_error")
			funded.awaitCalls(t, 1)
			require.EqualValues(t, 1_000_000, funded.wallet(t).BalanceMicros)
			poor.ownKey(t, "own", "sk-own-key-of-the-customer")
			_, paid := charge(t, poor, modelKeyed, usualUsage, true, "X-Svc-Use-Byok", "true")
			require.Zero(t, paid)
		})
		t.Run("a price of 0 works at zero balance", func(t *testing.T) {
			charge(t, p.operator().customer(t, 0), modelFree, usualUsage, false)
		})
	})
}

// TestNoDebt guarantees that a wallet never goes below zero under any crowd: of 100 parallel calls on a wallet
// that can carry one, one is served and ninety-nine get 402 without a call to the provider.
func TestNoDebt(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		const n = 100
		eachForm(t, func(t *testing.T, stream bool) {
			hold := newGate(t)
			s := up.script(func(call *upstreamCall) {
				if hold.pass(call) {
					call.answer(usualText, usage(50, 25))
				}
			})
			body := prompt(modelStd, s.Mark, stream, `"max_tokens":50`)
			// The highest cost of one call is at most its bytes and 24 tokens more, and 50 tokens at 2 micros; its
			// lowest bound is the 16 + 8 tokens that every prompt is counted with, and the same 50.
			c := p.operator().customer(t, 190)
			var served, refused atomic.Int64
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				together(n, func(int) {
					a, err := p.as(c).tryChat(body)
					switch {
					case !failOn(t, err):
					case a.Status == http.StatusOK:
						served.Add(1)
					case a.Status == http.StatusPaymentRequired:
						refused.Add(1)
					default:
						t.Errorf("%d %s", a.Status, a.Body)
					}
				})
			}()
			p.await("ninety-nine refusals", patience, func() bool { return refused.Load() == n-1 })
			hold.open()
			<-ended
			require.EqualValues(t, 1, served.Load())
			s.only(t)
			c.awaitCalls(t, 1)
			require.EqualValues(t, 190-100, c.wallet(t).BalanceMicros)
		})
	})
}

// TestParallelCharges guarantees that many calls of one wallet at once lose nothing and mix up nothing: the wallet loses
// the sum of the charges in the answers, and each call is recorded once with the charge of its answer.
func TestParallelCharges(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		const clients, each, funds = 20, 10, 1_000_000_000
		c := p.operator().customer(t, funds)
		charges := make(chan map[string]int64, clients)
		together(clients, func(i int) {
			seen := map[string]int64{}
			for k := range each {
				tokens := int64(1 + i*each + k)
				s := up.script(func(call *upstreamCall) { call.answer(usualText, usage(tokens, 1)) })
				a, err := p.as(c).tryChat(prompt(modelStd, s.Mark, k%2 == 0))
				if !failOn(t, err) {
					break
				}
				if a.Status != http.StatusOK || !strings.Contains(string(a.Body), `"charged_micros":"`) {
					t.Errorf("%d %s", a.Status, a.Body)
					break
				}
				seen[a.Header.Get("X-Request-Id")] = tokens + 2
			}
			charges <- seen
		})
		rows := c.awaitCalls(t, clients*each)
		recorded := map[string]int64{}
		var sum int64
		for _, row := range rows {
			recorded[row.RequestID] = row.Charged
			sum += row.Charged
		}
		require.Len(t, recorded, clients*each)
		for range clients {
			for id, want := range <-charges {
				require.Equal(t, want, recorded[id])
			}
		}
		require.Equal(t, funds-sum, c.wallet(t).BalanceMicros)
	})
}

// TestCostAboveTheHold guarantees that no call is charged more than was held for it, however much the wallet has: the rest of its cost is
// the operator's loss. The client is told what was really taken; there is no debt.
func TestCostAboveTheHold(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		const cost = 20_000 + 2*5
		var lost int64
		eachForm(t, func(t *testing.T, stream bool) {
			s := up.script(func(call *upstreamCall) { call.answer(usualText, usage(20_000, 5)) })
			body := prompt(modelStd, s.Mark, stream, `"max_tokens":5`)
			held := promptBound(s.Mark) + 2*5
			for _, funds := range []int64{50_000, held} {
				c := p.operator().customer(t, funds)
				done := requireAnswered(t, p.as(c).chat(t, body), modelStd, stream)
				require.Equal(t, held, done.charged(t))
				call := c.awaitCalls(t, 1)[0]
				require.Equal(t, []int64{held, held, cost - held}, []int64{call.Reserved, call.Charged, call.Shortfall})
				require.Equal(t, funds-held, c.wallet(t).BalanceMicros)
				lost += cost - held
			}
		})
		p.await("the operator's loss in the metrics", patience, func() bool {
			return strings.Contains(p.metrics(t), fmt.Sprintf(`svc_shortfall_micros_total{model="acme/std"} %d`, lost))
		})
	})
}

// TestClientGone guarantees for clients that leave in the middle or at the end that the provider's call is cancelled,
// delivered text is charged by an estimate, and no hold stays. For those that leave before: see TestHangUp.
func TestClientGone(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.TLS = true
		p := startProduct(t, d)
		for protocol, overTLS := range map[string]bool{"h1": false, "h2": true} {
			as := func(c *customer) *client {
				if overTLS {
					return p.asOverTLS(c)
				}
				return p.as(c)
			}
			t.Run(protocol+" mid-stream", func(t *testing.T) {
				gone := make(chan struct{})
				s := up.script(func(call *upstreamCall) {
					call.begin()
					call.text("Hello from upstream ")
					<-call.Gone
					close(gone)
				})
				c := p.operator().customer(t, 1_000_000)
				live := openStream(t, as(c), prompt(modelStd, s.Mark, true))
				live.readUntil(t, "upstream")
				live.abort()
				<-gone // the provider's call was cancelled
				call := c.awaitCalls(t, 1)[0]
				require.Equal(t, "client_gone", call.Outcome)
				require.Equal(t, "estimated", call.Source)
				require.Positive(t, call.Charged)
				require.Less(t, call.Charged, int64(200))
				require.Equal(t, call.Charged, 1_000_000-c.wallet(t).BalanceMicros)
			})
			t.Run(protocol+" right after [DONE]", func(t *testing.T) {
				const n = 40
				c := p.operator().customer(t, 1_000_000)
				together(4, func(int) {
					for range n / 4 {
						live, err := as(c).stream(prompt(modelStd, "hi", true))
						if !failOn(t, err) {
							return
						}
						for event := ""; err == nil && event != "[DONE]"; {
							event, err = live.next()
						}
						live.abort()
						failOn(t, err)
					}
				})
				c.awaitCalls(t, n)
				require.EqualValues(t, 1_000_000-n*usualCharge, c.wallet(t).BalanceMicros) // gateways.md lesson 6
			})
		}
	})
}

// TestSlowReader guarantees that a client that stops reading holds the provider back instead of filling our memory, and
// gets the whole stream when it reads on.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000_000)
	const pieces, size = 900, 16 << 10 // twice what the buffers of the connections between have been seen to take
	var sent atomic.Int64
	s := up.script(func(call *upstreamCall) {
		call.begin()
		piece := strings.Repeat("x", size)
		for range pieces {
			call.text(piece)
			sent.Add(1)
		}
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	})
	live := openStream(t, p.as(c), prompt(modelStd, s.Mark, true))
	// The provider comes to a stop somewhere: the same count for many looks in a row.
	still := 0
	var last int64
	p.await("the provider to be held back", patience, func() bool {
		if now := sent.Load(); now == last {
			still++
		} else {
			still, last = 0, now
		}
		return still == 25
	})
	require.Less(t, last, int64(pieces))
	done := requireStream(t, live.rest(), modelStd)
	require.Len(t, done.Text, pieces*size)
	require.EqualValues(t, usualCharge, done.charged(t))
}

// TestStreamLimit guarantees that an organization has a bound of streams at a time: one more gets
// 429 with a retryAfter of 1, and a stream that ends makes room, however it ended.
func TestStreamLimit(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.App = "limits {\n streams 2\n }"
	p := startProduct(t, d)
	c, other := p.operator().customer(t, 1_000_000), p.operator().customer(t, 1_000_000)
	s := up.script(func(call *upstreamCall) {
		call.begin()
		call.text("Hello ")
		call.hang()
	})
	body := prompt(modelStd, s.Mark, true)
	for round := range 3 {
		streams := []*liveStream{openStream(t, p.as(c), body), openStream(t, p.as(c), body)}
		e := requireError(t, p.as(c).chat(t, body), "rate_limited")
		require.Equal(t, 1, e.RetryAfter)
		requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
		openStream(t, p.as(other), body).abort()
		for _, live := range streams {
			live.abort()
		}
		c.awaitCalls(t, (round+1)*3)
		p.await("the streams to be given back", patience, func() bool {
			return strings.Contains(p.metrics(t), "\nsvc_calls_running 0\n")
		})
	}
}

// TestMetrics guarantees that the operator's figures follow the calls, and that no label names a key or organization.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	c := p.operator().customer(t, 1_000_000)
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	requireStream(t, p.as(c).chat(t, prompt(modelStd, "hi", true)), modelStd)
	requireError(t, p.as(c).chat(t, prompt(modelStd, "scenario:500", true)), "provider_error")
	requireError(t, p.as(c).chat(t, "{"), "invalid_request")
	requireError(t, p.withKey("ck_live_x").get(t, "/v1/models"), "invalid_api_key")
	var text string
	for _, want := range []string{
		`svc_calls_total{byok="false",model="acme/std",outcome="completed",stream="false"} 1`,
		`svc_calls_total{byok="false",model="acme/std",outcome="completed",stream="true"} 1`,
		`svc_calls_total{byok="false",model="acme/std",outcome="provider_error",stream="true"} 1`,
		`svc_charged_micros_total{model="acme/std"} 50`,
		`svc_tokens_total{kind="prompt",model="acme/std",source="provider"} 22`,
		`svc_tokens_total{kind="completion",model="acme/std",source="provider"} 14`,
		`svc_open_holds 0`,
		`svc_provider_seconds_count{provider="acme"} 3`,
		`svc_first_text_seconds_count{provider="acme"} 2`,
	} {
		p.await("the metric "+want, patience, func() bool {
			text = p.metrics(t)
			return strings.Contains(text, want)
		})
	}
	require.Regexp(t, `svc_wal_bytes [1-9]`, text)
	require.Regexp(t, `svc_requests_total\{.*handler="svc_chat".*\} 4`, text)
	require.Regexp(t, `svc_failures_total\{.*code="invalid_request".*\} 1`, text)
	require.Regexp(t, `svc_failures_total\{.*code="invalid_api_key".*\} 1`, text)
	require.Regexp(t, `svc_failures_total\{.*code="provider_error".*\} 1`, text)
	require.NotContains(t, text, c.OrgID)
	require.NotContains(t, text, c.KeyID)
	require.NotContains(t, text, c.Key)

	var config map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.adminGet(t, "/config/")), &config))
}
