package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// hangUp sends a call and leaves when reached reports that the provider has it.
func hangUp(t *testing.T, p *product, c *client, body string, reached func() bool) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.try(ctx, http.MethodPost, chatPath, strings.NewReader(body))
		left <- err
	}()
	p.await("the call to be with the provider", patience, reached)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
}

// TestHangUp guarantees that a client which leaves before its provider begins to answer pays for what the provider does
// then: the prompt at least for a stream, whose call is cancelled when it begins, and what the provider reports for an
// answer in one piece.
func TestHangUp(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.TLS = true
		p := startProduct(t, d)
		for protocol, overTLS := range map[string]bool{"h1": false, "h2": true} {
			as := p.as
			if overTLS {
				as = p.asOverTLS
			}
			for env, wallet := range map[string]func(*customer) *customer{
				"live": func(c *customer) *customer { return c },
				"test": func(c *customer) *customer {
					other := c.testing(t)
					other.credit(t, store.Test, 1_000_000)
					return other
				},
			} {
				t.Run(protocol+" "+env+" stream", func(t *testing.T) {
					begin, gone := newGate(t), make(chan struct{})
					s := up.script(func(call *upstreamCall) {
						if begin.pass(call) {
							call.begin()
							call.text("Hello ")
							<-call.Gone
							close(gone)
						}
					})
					c := wallet(p.operator().customer(t, 1_000_000))
					hangUp(t, p, as(c), prompt(modelStd, s.Mark, true), func() bool { return begin.waiting.Load() == 1 })
					begin.open()
					<-gone // the provider's call was cancelled
					call := c.awaitCalls(t, 1)[0]
					require.Equal(t, "client_gone", call.Outcome)
					require.Equal(t, "estimated", call.Source)
					require.GreaterOrEqual(t, call.Charged, int64(len(s.Mark)/3))
					require.Less(t, call.Charged, int64(100))
					require.Equal(t, call.Charged, 1_000_000-c.wallet(t).BalanceMicros)
				})
				t.Run(protocol+" "+env+" answer", func(t *testing.T) {
					begin := newGate(t)
					s := up.script(func(call *upstreamCall) {
						if begin.pass(call) {
							call.answer(usualText, usualUsage)
						}
					})
					c := wallet(p.operator().customer(t, 1_000_000))
					hangUp(t, p, as(c), prompt(modelStd, s.Mark, false), func() bool { return begin.waiting.Load() == 1 })
					begin.open()
					call := c.awaitCalls(t, 1)[0]
					require.Equal(t, "provider", call.Source)
					require.EqualValues(t, usualCharge, call.Charged)
					require.EqualValues(t, 1_000_000-usualCharge, c.wallet(t).BalanceMicros)
				})
			}
		}
		p.operator().requireBooksInOrder(t)
	})
}

// TestHangUpOnHiddenTokens guarantees that a model with hidden tokens costs the same whether its client stays until the end or closes
// the connection after the last visible text.
func TestHangUpOnHiddenTokens(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	const charge = 10 + 2*4000
	for name, leaves := range map[string]bool{"stays": false, "leaves": true} {
		t.Run(name, func(t *testing.T) {
			c := p.operator().customer(t, 1_000_000)
			rest := newGate(t)
			s := up.script(func(call *upstreamCall) {
				call.begin()
				call.text(usualText)
				if rest.pass(call) {
					call.finish("stop")
					call.usage(usage(10, 4000))
					call.done()
				}
			})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = p.as(c).try(ctx, http.MethodPost, chatPath, strings.NewReader(prompt(modelDeep, s.Mark, true)))
			}()
			p.await("the text to be sent", patience, func() bool { return rest.waiting.Load() == 1 })
			if leaves {
				leave()
				<-ended
				p.await("the call to go on", patience, func() bool { return strings.Contains(p.metrics(t), "svc_detached_calls 1\n") })
			}
			rest.open()
			call := c.awaitCalls(t, 1)[0]
			<-ended
			require.Equal(t, "completed", call.Outcome)
			require.EqualValues(t, charge, call.Charged)
			require.EqualValues(t, 1_000_000-charge, c.wallet(t).BalanceMicros)
		})
	}
	p.operator().requireBooksInOrder(t)
}

// TestHangUpOnSilence guarantees that a provider which fails, or never begins, costs a client that left nothing, and that
// its call ends with the provider's timer.
func TestHangUpOnSilence(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.First, d.Response = "4s", "4s" // longer than a client needs to leave
	p := startProduct(t, d)
	for outcome, play := range map[string]func(*upstreamCall){
		"provider_timeout": (*upstreamCall).hang,
		"provider_error":   vendorError(500),
	} {
		eachForm(t, func(t *testing.T, stream bool) {
			begin := newGate(t)
			s := up.script(func(call *upstreamCall) {
				if outcome == "provider_timeout" || begin.pass(call) {
					play(call)
				}
			})
			c := p.operator().customer(t, 1_000_000)
			hangUp(t, p, p.as(c), prompt(modelStd, s.Mark, stream), func() bool { return len(s.Calls()) == 1 })
			begin.open()
			call := c.awaitCalls(t, 1)[0]
			require.Equal(t, outcome, call.Outcome)
			require.EqualValues(t, 1_000_000, c.wallet(t).BalanceMicros)
		})
	}
	p.operator().requireBooksInOrder(t)
}

// TestManyHangUps guarantees that 200 clients of one organization that hang up at once take no more than its share of the
// places for calls without a client: the provider's other calls are cancelled at once. Meanwhile another organization's
// client that hangs up gets its place, and all that went on are charged.
func TestManyHangUps(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	const calls, share = 200, 128
	begin := newGate(t)
	var cancelled atomic.Int64
	s := up.script(func(call *upstreamCall) {
		if !begin.pass(call) {
			cancelled.Add(1)
			return
		}
		call.begin()
		call.text("Hello ")
		<-call.Gone
	})
	greedy, modest := p.operator().customer(t, 100_000_000), p.operator().customer(t, 1_000_000)
	body := prompt(modelStd, s.Mark, true)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var clients sync.WaitGroup
	for range calls {
		clients.Go(func() {
			_, err := p.as(greedy).try(ctx, http.MethodPost, chatPath, strings.NewReader(body))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a client got another end than its own: %v", err)
			}
		})
	}
	p.await("all calls to be with the provider", patience, func() bool { return len(s.Calls()) == calls })
	leave()
	clients.Wait()
	p.await("the others to be cancelled", patience, func() bool { return cancelled.Load() == calls-share })
	require.Contains(t, p.metrics(t), fmt.Sprintf("svc_detached_calls %d\n", share))
	hangUp(t, p, p.as(modest), body, func() bool { return len(s.Calls()) == calls+1 })
	p.await("its call to go on", patience, func() bool {
		return strings.Contains(p.metrics(t), fmt.Sprintf("svc_detached_calls %d\n", share+1))
	})
	begin.open()
	charged := 0
	for _, call := range greedy.awaitCalls(t, calls) {
		require.Equal(t, "client_gone", call.Outcome)
		if call.Charged > 0 {
			charged++
		}
	}
	require.Equal(t, share, charged)
	require.Positive(t, modest.awaitCalls(t, 1)[0].Charged)
	p.operator().requireBooksInOrder(t)
	p.await("the places to be given back", patience, func() bool { return strings.Contains(p.metrics(t), "svc_detached_calls 0\n") })
}
