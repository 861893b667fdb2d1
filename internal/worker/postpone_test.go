package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// fullGateway has no place for a call before refusals were counted down.
type fullGateway struct {
	Gateway
	outcome  gateway.Outcome
	refusals int
}

func (g *fullGateway) Call(ctx context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error) {
	if g.refusals > 0 {
		g.refusals--
		return nil, &gateway.Failure{Outcome: g.outcome, RetryAfter: time.Second}
	}
	return g.Gateway.Call(ctx, req, sink)
}

// TestATurnWaitsForItsPlace: a turn whose call finds no place in the process, or whose hold the busy store refuses, waits, however often, and is answered in the
// end. It neither counts as failed nor needs attention.
func TestATurnWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	for _, outcome := range []gateway.Outcome{
		gateway.OutcomeTooManyCalls, gateway.OutcomeProviderBusy,
		gateway.OutcomeInternalError, // with RetryAfter: the store, or the count of tokens, has too much to do
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, h *fixture) {
				full := &fullGateway{Gateway: h.gateway, outcome: outcome, refusals: maxTries + 3}
				seen := observe()
				w := h.worker(func(c *Config) { c.Gateway, c.Observer = full, seen })
				h.say(t, bot, "lan", "hello")
				for full.refusals > 0 {
					before := full.refusals
					h.drain(t, w)
					require.Equal(t, before-1, full.refusals, "not asked again before its time")
					require.Empty(t, h.turns(t, acme), "it hasn't begun")
					require.Empty(t, h.conversation(t, acme, "lan").Attention)
					require.Zero(t, h.conversation(t, acme, "lan").Attempts)
					h.leaseless(t)
					h.hurry(t)
				}
				h.drain(t, w)
				require.Equal(t, []string{"You said: hello"}, h.texts())
				require.EqualValues(t, answerCost, h.spent(t, acme))
				require.Equal(t, maxTries+3, seen.all()["turn postponed"])
			})
		})
	}
}

// TestAWatchedTurnWaitsForItsPlace: without a free place the watching visitor isn't kept waiting, and the call isn't repeated
// meanwhile: the turn stays for a worker.
func TestAWatchedTurnWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	h := open(t)
	full := &fullGateway{Gateway: h.gateway, outcome: gateway.OutcomeTooManyCalls, refusals: 100}
	w := h.worker(func(c *Config) { c.Gateway = full })
	h.deliver(t, bot, inbox.Item{Kind: platforms.Text, CustomerRef: "lan", Address: "to-lan", MessageID: "m1", Text: "hello"})
	reply, err := w.AnswerNow(t.Context(), acme, bot, "m1", new(reader))
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.Equal(t, 99, full.refusals)
	full.refusals = 0
	h.hurry(t)
	h.drain(t, w)
	require.Equal(t, []string{"You said: hello"}, h.texts())
}
