package tests

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	keyHeader    = "Idempotency-Key"
	replayHeader = "Idempotent-Replayed"
	byokHeader   = "X-Svc-Use-Byok"
)

// keyedCall is a call with an Idempotency-Key and what its client saw of it the first time.
type keyedCall struct {
	key, model, body string
	stream, byok     bool
	first            completed
}

func (k *keyedCall) headers() []string {
	headers := []string{keyHeader, k.key}
	if k.byok {
		headers = append(headers, byokHeader, "true")
	}
	return headers
}

// run makes the call for the first time.
func (k *keyedCall) run(t testing.TB, as *client) {
	t.Helper()
	a := as.chat(t, k.body, k.headers()...)
	require.Empty(t, a.Header.Get(replayHeader))
	k.first = requireAnswered(t, a, k.model, k.stream)
}

// requireReplay sends the call again and requires the first answer: all of it but the request's id.
func (k *keyedCall) requireReplay(t testing.TB, as *client, after string) {
	t.Helper()
	a := as.chat(t, k.body, k.headers()...)
	require.Equal(t, "true", a.Header.Get(replayHeader), "%s: %d %s", after, a.Status, a.Body)
	again := requireAnswered(t, a, k.model, k.stream)
	require.NotEqual(t, k.first.RequestID, again.RequestID)
	again.RequestID = k.first.RequestID
	require.Equal(t, k.first, again, after)
}

// TestReplay guarantees docs/contract.md#idempotency-key for a resend with the same Idempotency-Key: the same answer in the same form
// with the same id, usage and charge, marked by Idempotent-Replayed; it causes no call of the provider and no charge. It
// holds after a price change, with an empty wallet, by another API key of the organization, after a restart, and with
// a new master key before the old one; for an own provider key, too. An API key is checked before anything is replayed.
func TestReplay(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		const funds = 1_000_000
		c := p.operator().customer(t, funds)
		c.ownKey(t, "own", "sk-own-key-of-the-customer")
		s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		var calls []*keyedCall
		for _, stream := range []bool{false, true} {
			calls = append(calls,
				&keyedCall{key: fmt.Sprintf("paid-%t", stream), model: modelStd, stream: stream},
				&keyedCall{key: fmt.Sprintf("free-%t", stream), model: modelFree, stream: stream},
				&keyedCall{key: fmt.Sprintf("own-%t", stream), model: modelKeyed, stream: stream, byok: true},
			)
		}
		var spent int64
		for _, call := range calls {
			call.body = prompt(call.model, s.Mark, call.stream)
			call.run(t, p.as(c))
			spent += call.first.charged(t)
		}
		require.EqualValues(t, 2*usualCharge, spent)
		requireAll := func(as *client, after string) {
			t.Helper()
			for _, call := range calls {
				call.requireReplay(t, as, after)
			}
			require.Len(t, s.Calls(), len(calls), "requests at the provider")
		}
		requireAll(p.as(c), "at once")

		dearer := strings.ReplaceAll(p.caddyfile(t), "price_input 1000000", "price_input 3000000")
		require.NoError(t, p.reload(dearer))
		requireAll(p.as(c), "after a price change")

		wallet := billing.WalletID{OrgID: c.OrgID, Env: c.Env}
		_, err := c.book.Adjust(t.Context(), actor, wallet, -(funds - spent), "empty it", "r", "")
		require.NoError(t, err)
		requireError(t, p.as(c).chat(t, prompt(modelStd, s.Mark, false)), "insufficient_credits")
		requireAll(p.as(c), "with an empty wallet")

		_, another := c.newKey(t, identity.KeyRequest{})
		_, reader := c.newKey(t, identity.KeyRequest{Scopes: []string{"models:read"}})
		require.NoError(t, c.db.APIKeys.Revoke(t.Context(), actor, c.OrgID, c.KeyID))
		requireError(t, p.as(c).chat(t, calls[0].body, calls[0].headers()...), "api_key_revoked")
		requireError(t, p.withKey(reader).chat(t, calls[0].body, calls[0].headers()...), "insufficient_scope")
		requireAll(p.withKey(another), "by another API key")

		require.NoError(t, c.db.Organizations.SetSuspended(t.Context(), actor, c.OrgID, true, ""))
		requireError(t, p.withKey(another).chat(t, calls[0].body, calls[0].headers()...), "organization_suspended")
		require.NoError(t, c.db.Organizations.SetSuspended(t.Context(), actor, c.OrgID, false, ""))

		p.restart()
		requireAll(p.withKey(another), "after a restart")

		fresh := make([]byte, 32)
		_, _ = rand.Read(fresh)
		p.restart("SVC_MASTER_KEY=" + base64.StdEncoding.EncodeToString(fresh) + " " + p.masterKey)
		requireAll(p.withKey(another), "with a new master key before the old one")

		c.awaitCalls(t, len(calls))
		require.Zero(t, c.wallet(t).BalanceMicros)
	})
}

// restart ends the product in order and starts it again, with some variables of its environment changed.
func (p *product) restart(changed ...string) {
	p.t.Helper()
	p.terminate()
	p.wait()
	for _, variable := range changed {
		name, _, _ := strings.Cut(variable, "=")
		for i := range p.env {
			if strings.HasPrefix(p.env[i], name+"=") {
				p.env[i] = variable
			}
		}
	}
	p.start()
	p.awaitReady()
}

// TestKeyIsForOneContent guarantees that a key stands for one content: another message, parameter, model, form or byok
// flag is 409 idempotency_key_reused, which official clients don't retry, and the first answer stays. What says the same
// in other words is the same content: the order of members, blanks, unknown members, null, defaults, 10.0 for 10,
// escapes, quotes around the key.
func TestKeyIsForOneContent(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 1_000_000)
		c.ownKey(t, "acme", "sk-own-key-of-the-customer")
		s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		eachForm(t, func(t *testing.T, stream bool) {
			first := &keyedCall{key: fmt.Sprintf("order-%t", stream), model: modelStd, stream: stream}
			first.body = prompt(modelStd, s.Mark+"ä", stream, `"max_tokens":10`, `"stop":["x"]`)
			first.run(t, p.as(c))
			asked := len(s.Calls())
			for name, other := range map[string]string{
				"message":     prompt(modelStd, s.Mark+"Ä", stream, `"max_tokens":10`, `"stop":["x"]`),
				"model":       prompt(modelFree, s.Mark+"ä", stream, `"max_tokens":10`, `"stop":["x"]`),
				"form":        prompt(modelStd, s.Mark+"ä", !stream, `"max_tokens":10`, `"stop":["x"]`),
				"max_tokens":  prompt(modelStd, s.Mark+"ä", stream, `"max_tokens":11`, `"stop":["x"]`),
				"temperature": prompt(modelStd, s.Mark+"ä", stream, `"max_tokens":10`, `"stop":["x"]`, `"temperature":0`),
				"top_p":       prompt(modelStd, s.Mark+"ä", stream, `"max_tokens":10`, `"stop":["x"]`, `"top_p":1`),
				"stop":        prompt(modelStd, s.Mark+"ä", stream, `"max_tokens":10`),
			} {
				a := p.as(c).chat(t, other, keyHeader, first.key)
				requireError(t, a, "idempotency_key_reused")
				require.Equal(t, "false", a.Header.Get("X-Should-Retry"), name)
				require.Empty(t, a.Header.Get(replayHeader))
			}
			requireError(t, p.as(c).chat(t, first.body, keyHeader, first.key, byokHeader, "true"), "idempotency_key_reused")

			same := fmt.Sprintf(`{ "stop" : "x", "tools":null, "stream":%t, "max_completion_tokens":10.0, "temperature":null, "seed":7,
				"messages":[{"content":%s, "role":"user", "name":"bob"}], "model":"acme\/std"}`,
				stream, strings.Replace(quoted(s.Mark+"ä"), "ä", `\u00e4`, 1))
			for _, body := range []string{first.body, same} {
				(&keyedCall{key: `"` + first.key + `"`, model: modelStd, stream: stream, body: body, first: first.first}).
					requireReplay(t, p.as(c), body)
			}
			require.Len(t, s.Calls(), asked)
		})
		c.awaitCalls(t, 2)
		require.EqualValues(t, 1_000_000-2*usualCharge, c.wallet(t).BalanceMicros)
	})
}

// TestKeyHeader guarantees that a key that isn't 1 to 255 visible ASCII characters, or comes twice, is invalid_request
// with its field before anything is held, and that GET requests ignore the header.
func TestKeyHeader(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	body := prompt(modelStd, s.Mark, false)
	for name, values := range map[string][]string{
		"empty": {""}, "only quotes": {`""`}, "too long": {strings.Repeat("k", 256)}, "a blank": {"a b"}, "a tab": {"a\tb"},
		"not ASCII": {"ké"}, "twice": {"a", "b"}, "twice the same": {"a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := p.as(c).request(t.Context(), http.MethodPost, chatPath, strings.NewReader(body))
			require.NoError(t, err)
			r.Header[keyHeader] = values
			response, err := p.clear.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			text, err := readAll(response)
			require.NoError(t, err)
			e := requireError(t, answer{Status: response.StatusCode, Header: response.Header, Body: text}, "invalid_request")
			require.Equal(t, keyHeader, e.Field)
		})
	}
	require.Empty(t, s.Calls())
	require.Equal(t, http.StatusOK, p.as(c).get(t, "/v1/models", keyHeader, "a b").Status)
	require.Equal(t, http.StatusOK, p.as(c).get(t, "/v1/models", keyHeader, "k").Status)
	for _, key := range []string{"!", strings.Repeat("~", 255), "k"} {
		call := &keyedCall{key: key, model: modelStd, body: body}
		call.run(t, p.as(c))
		call.requireReplay(t, p.as(c), key)
	}
	c.awaitCalls(t, 3)
}

// TestFailureReleasesTheKey guarantees that what cost nothing leaves no trace of its key, so that an official client's
// own retries, which send the same key, run again: every failure of the provider, an invalid request, an unknown model,
// an empty wallet. A failure that was charged is replayed with the part that was delivered, and never runs again.
func TestFailureReleasesTheKey(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 1_000_000)
		eachForm(t, func(t *testing.T, stream bool) {
			failures := map[string]func(*upstreamCall){
				"provider_error": vendorError(500), "provider_overloaded": vendorError(503), "provider_timeout": vendorError(504),
				"context_too_long": func(call *upstreamCall) {
					call.json(400, `{"error":{"message":"This model's maximum context length is 128 tokens.","code":"context_length_exceeded"}}`)
				},
			}
			for code, fail := range failures {
				calls, funds := len(c.calls(t)), c.wallet(t).BalanceMicros
				var well atomic.Bool
				s := up.script(func(call *upstreamCall) {
					if well.Load() {
						call.answer(usualText, usualUsage)
						return
					}
					fail(call)
				})
				call := &keyedCall{key: fmt.Sprintf("%s-%t", code, stream), model: modelStd, stream: stream, body: prompt(modelStd, s.Mark, stream)}
				for range 2 {
					requireError(t, p.as(c).chat(t, call.body, call.headers()...), code)
				}
				require.Equal(t, funds, c.wallet(t).BalanceMicros)
				well.Store(true)
				call.run(t, p.as(c))
				call.requireReplay(t, p.as(c), code)
				require.Len(t, s.Calls(), 3)
				c.awaitCalls(t, calls+3)
				require.Equal(t, funds-usualCharge, c.wallet(t).BalanceMicros)
			}

			s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
			call := &keyedCall{key: fmt.Sprintf("poor-%t", stream), model: modelStd, stream: stream, body: prompt(modelStd, s.Mark, stream)}
			poor := p.operator().customer(t, 0)
			requireError(t, p.as(poor).chat(t, "{", call.headers()...), "invalid_request")
			requireError(t, p.as(poor).chat(t, prompt("acme/none", s.Mark, stream), call.headers()...), "unsupported_model")
			requireError(t, p.as(poor).chat(t, prompt(modelStd, "other", stream), call.headers()...), "insufficient_credits")
			poor.credit(t, store.Live, 100_000)
			call.run(t, p.as(poor))
			call.requireReplay(t, p.as(poor), "insufficient_credits")
		})

		t.Run("a charged failure", func(t *testing.T) {
			s := up.script(func(call *upstreamCall) {
				call.begin()
				call.raw(`data: {"choices":[{"index":0,"delta":{"content":"Hello "},"finish_reason":null}],"usage":` + usualUsage + "}\n\n")
				call.drop()
			})
			calls, funds := len(c.calls(t)), c.wallet(t).BalanceMicros
			body := prompt(modelStd, s.Mark, true)
			for i := range 3 {
				a := p.as(c).chat(t, body, keyHeader, "charged-failure")
				requireBroken(t, a, "provider_error")
				require.Contains(t, string(a.Body), `"content":"Hello "`)
				require.Equal(t, i > 0, a.Header.Get(replayHeader) == "true")
			}
			s.only(t)
			c.awaitCalls(t, calls+1)
			require.Equal(t, funds-usualCharge, c.wallet(t).BalanceMicros)
		})
	})
}

// TestKeysOfOthers guarantees that a key counts within one organization and environment: the same key and content of
// another organization, or of the other environment, is another call.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		one, other := p.operator().customer(t, 1_000_000), p.operator().customer(t, 1_000_000)
		testing := one.testing(t)
		testing.credit(t, store.Test, 1_000_000)
		s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		ids := map[string]bool{}
		for _, c := range []*customer{one, other, testing} {
			call := &keyedCall{key: "same", model: modelStd, body: prompt(modelStd, s.Mark, false)}
			call.run(t, p.as(c))
			call.requireReplay(t, p.as(c), "at once")
			ids[call.first.ID] = true
			requireError(t, p.as(c).chat(t, prompt(modelStd, "other", false), call.headers()...), "idempotency_key_reused")
		}
		require.Len(t, ids, 3)
		require.Len(t, s.Calls(), 3)
		for _, c := range []*customer{one, other, testing} {
			c.awaitCalls(t, 1)
			require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
		}
	})
}

// TestParallelDuplicates guarantees that 50 identical keyed posts at once, through two gateways on one store, make one
// request to the provider and one charge: the other 49 wait and get the same answer as replays.
func TestParallelDuplicates(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		gateways := []*product{startProduct(t, d), startProduct(t, d.beside())}
		c := gateways[0].operator().customer(t, 1_000_000)
		eachForm(t, func(t *testing.T, stream bool) {
			calls := len(c.calls(t))
			hold := newGate(t)
			s := up.script(func(call *upstreamCall) {
				if hold.pass(call) {
					call.answer(usualText, usualUsage)
				}
			})
			body, key := prompt(modelStd, s.Mark, stream), fmt.Sprintf("same-%t", stream)
			const n = 50
			answers := make([]answer, n)
			ended := make(chan struct{})
			var sent atomic.Int64
			go func() {
				defer close(ended)
				together(n, func(i int) {
					sent.Add(1)
					var err error
					answers[i], err = gateways[i%2].as(c).tryChat(body, keyHeader, key)
					failOn(t, err)
				})
			}()
			gateways[0].await("the first to be with the provider", patience, func() bool {
				return hold.waiting.Load() > 0 && sent.Load() == n
			})
			hold.open()
			<-ended
			replays := 0
			var first completed
			for i, a := range answers {
				done := requireAnswered(t, a, modelStd, stream)
				if a.Header.Get(replayHeader) == "true" {
					replays++
				}
				done.RequestID = ""
				if i == 0 {
					first = done
				}
				require.Equal(t, first, done)
			}
			require.Equal(t, n-1, replays)
			s.only(t)
			c.awaitCalls(t, calls+1)
		})
		require.EqualValues(t, 1_000_000-2*usualCharge, c.wallet(t).BalanceMicros)
	})
}

// TestDuplicateThatWaitsInVain guarantees that a duplicate of a call which runs on for long ends as 409 conflict, which
// official clients retry, on the same gateway and on another; the first call is not disturbed.
func TestDuplicateThatWaitsInVain(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		gateways := []*product{startProduct(t, d), startProduct(t, d.beside())}
		c := gateways[0].operator().customer(t, 1_000_000)
		hold := newGate(t)
		s := up.script(func(call *upstreamCall) {
			if hold.pass(call) {
				call.answer(usualText, usualUsage)
			}
		})
		body := prompt(modelStd, s.Mark, true)
		first := make(chan answer, 1)
		go func() {
			a, err := gateways[0].as(c).tryChat(body, keyHeader, "long")
			failOn(t, err)
			first <- a
		}()
		gateways[0].await("the first to be with the provider", patience, func() bool { return len(s.Calls()) == 1 })
		together(2, func(i int) {
			a, err := gateways[i].as(c).tryChat(body, keyHeader, "long")
			if failOn(t, err) && expectStatus(t, a, http.StatusConflict) {
				if !strings.Contains(string(a.Body), `"code":"conflict"`) || a.Header.Get("X-Should-Retry") == "false" {
					t.Errorf("%v %s", a.Header, a.Body)
				}
			}
		})
		hold.open()
		requireStream(t, <-first, modelStd)
		s.only(t)
		c.awaitCalls(t, 1)
		require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
	})
}

// TestClientComesBack guarantees docs/billing.md#what-each-ending-costs for a client with a key that leaves, before the first byte
// or in the
// middle: the provider's answer is made to its end, charged once, and the resend gets all of it; on another gateway,
// too, and while the first is still running.
func TestClientComesBack(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.TLS = true
		p := startProduct(t, d)
		other := startProduct(t, d.beside())
		for protocol, overTLS := range map[string]bool{"h1": false, "h2": true} {
			as := p.as
			if overTLS {
				as = p.asOverTLS
			}
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s early %t", protocol, early), func(t *testing.T) {
					hold := newGate(t)
					s := up.script(func(call *upstreamCall) {
						call.begin()
						call.text("Hello ")
						if hold.pass(call) {
							call.text("from upstream.")
							call.finish("stop")
							call.usage(usualUsage)
							call.done()
						}
					})
					c := p.operator().customer(t, 1_000_000)
					body := prompt(modelStd, s.Mark, true)
					live := openStream(t, as(c), body, keyHeader, "k")
					live.readUntil(t, "Hello ")
					live.abort()
					if early {
						hold.open()
						c.awaitCalls(t, 1)
					}
					back := make(chan answer, 1)
					go func() {
						a, err := other.as(c).tryChat(body, keyHeader, "k")
						failOn(t, err)
						back <- a
					}()
					hold.open()
					a := <-back
					require.Equal(t, "true", a.Header.Get(replayHeader))
					done := requireStream(t, a, modelStd)
					require.Equal(t, usualText, done.Text)
					require.EqualValues(t, usualCharge, done.charged(t))
					s.only(t)
					require.Equal(t, "completed", c.awaitCalls(t, 1)[0].Outcome)
					require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
				})
			}
			t.Run(protocol+" before the first byte", func(t *testing.T) {
				hold := newGate(t)
				s := up.script(func(call *upstreamCall) {
					if hold.pass(call) {
						call.answer(usualText, usualUsage)
					}
				})
				c := p.operator().customer(t, 1_000_000)
				body := prompt(modelStd, s.Mark, false)
				ctx, leave := context.WithCancel(t.Context())
				left := make(chan error)
				go func() {
					_, err := as(c).try(ctx, http.MethodPost, chatPath, strings.NewReader(body), keyHeader, "k")
					left <- err
				}()
				p.await("the call to be with the provider", patience, func() bool { return hold.waiting.Load() == 1 })
				leave()
				require.ErrorIs(t, <-left, context.Canceled)
				hold.open()
				c.awaitCalls(t, 1)
				a := other.as(c).chat(t, body, keyHeader, "k")
				require.Equal(t, "true", a.Header.Get(replayHeader))
				require.EqualValues(t, usualCharge, requireCompletion(t, a, modelStd).charged(t))
				s.only(t)
				require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
			})
		}
	})
}

// TestLongAnswer guarantees that an answer too long to be kept is charged once and never made again: its resend is 409
// conflict, not to be retried. One just below the bound is replayed.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, up *upstream) {
		c := p.operator().customer(t, 1_000_000)
		eachForm(t, func(t *testing.T, stream bool) {
			for size, kept := range map[int]bool{1<<20 - 1<<10: true, 1 << 20: false} {
				s := up.script(func(call *upstreamCall) { call.answer(strings.Repeat("x", size), usualUsage) })
				call := &keyedCall{key: fmt.Sprintf("%d-%t", size, stream), model: modelStd, stream: stream, body: prompt(modelStd, s.Mark, stream)}
				call.run(t, p.as(c))
				require.Len(t, call.first.Text, size)
				if kept {
					call.requireReplay(t, p.as(c), "at once")
				} else {
					a := p.as(c).chat(t, call.body, call.headers()...)
					requireError(t, a, "conflict")
					require.Equal(t, "false", a.Header.Get("X-Should-Retry"))
				}
				s.only(t)
			}
		})
		c.awaitCalls(t, 4)
		require.EqualValues(t, 1_000_000-4*usualCharge, c.wallet(t).BalanceMicros)
	})
}

// TestGoneAfterDone guarantees that a client which closes the connection right after [DONE] has paid, with and without a key: 200
// streams, 200 charges.
func TestGoneAfterDone(t *testing.T) {
	t.Parallel()
	bothStores(t, func(t *testing.T, p *product, _ *upstream) {
		const n, clients = 200, 8
		c := p.operator().customer(t, 1_000_000)
		together(clients, func(i int) {
			for k := range n / clients {
				var headers []string
				if k%2 == 0 {
					headers = []string{keyHeader, fmt.Sprintf("done-%d-%d", i, k)}
				}
				live, err := p.as(c).stream(prompt(modelStd, "hi", true), headers...)
				if !failOn(t, err) {
					return
				}
				for event := ""; err == nil && event != "[DONE]"; {
					event, err = live.next()
				}
				live.abort()
				if !failOn(t, err) {
					return
				}
			}
		})
		c.awaitCalls(t, n)
		require.EqualValues(t, 1_000_000-n*usualCharge, c.wallet(t).BalanceMicros)
	})
}

// TestExactlyWhatTheWalletCarries guarantees that of many calls at once through two gateways exactly as many pass as the
// wallet carries holds of, keyed or not, and that what they don't use comes back.
func TestExactlyWhatTheWalletCarries(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		gateways := []*product{startProduct(t, d), startProduct(t, d.beside())}
		hold := newGate(t)
		s := up.script(func(call *upstreamCall) {
			if hold.pass(call) {
				call.answer(usualText, usualUsage)
			}
		})
		// A hold is 2 × 4,000 micros for the output and less than 100 for the prompt, however it is bounded.
		const n, carried = 60, 7
		c := gateways[0].operator().customer(t, carried*8_100)
		var served, refused atomic.Int64
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			together(n, func(i int) {
				var headers []string
				if i%3 == 0 {
					headers = []string{keyHeader, fmt.Sprintf("call-%d", i)}
				}
				a, err := gateways[i%2].as(c).tryChat(prompt(modelStd, s.Mark, i%4 == 0, `"max_tokens":4000`), headers...)
				switch {
				case !failOn(t, err):
				case a.Status == http.StatusOK:
					served.Add(1)
				case expectStatus(t, a, http.StatusPaymentRequired):
					refused.Add(1)
				}
			})
		}()
		gateways[0].await("all others to be refused", patience, func() bool { return refused.Load() == n-carried })
		hold.open()
		<-ended
		require.EqualValues(t, carried, served.Load())
		require.Len(t, s.Calls(), carried)
		c.awaitCalls(t, carried)
		require.EqualValues(t, carried*(8_100-usualCharge), c.wallet(t).BalanceMicros)
	})
}
