package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestAttention: for each reason no model is called and nothing is tried again by itself; when the reason is gone, the
// message is answered.
func TestAttention(t *testing.T) {
	t.Parallel()
	const org, channel, agent = "org_poor", "chn_poor", "agt_poor"
	setChannel := func(t *testing.T, h *fixture, change store.ChannelChange) {
		require.NoError(t, h.db.Channels.Update(t.Context(), "test", org, channel, change))
	}
	suspend := func(t *testing.T, h *fixture, suspended bool) {
		require.NoError(t, h.db.Organizations.SetSuspended(t.Context(), "test", org, suspended, ""))
	}
	text := func(s string) *string { return &s }
	tests := map[string]struct {
		funds      int64
		spoil, fix func(t *testing.T, h *fixture)
		code       string
		eachEngine bool
	}{
		"insufficient_credits": {
			eachEngine: true,
			spoil:      func(*testing.T, *fixture) {},
			fix:        func(t *testing.T, h *fixture) { h.credit(t, org, credits) },
		},
		"insufficient_credits with something left": {
			funds: 3, code: "insufficient_credits",
			spoil: func(*testing.T, *fixture) {},
			fix:   func(t *testing.T, h *fixture) { h.credit(t, org, credits) },
		},
		"plan_limit_exceeded": {
			eachEngine: true,
			funds:      credits,
			spoil: func(t *testing.T, h *fixture) {
				_, err := h.book.CreateBudget(t.Context(), "test", billing.Budget{
					Wallet: billing.WalletID{OrgID: org, Env: store.Live}, Owner: billing.OwnerAssistant, OwnerID: agent, Name: "n",
					Period: billing.PeriodMonth, LimitMicros: 3,
				})
				require.NoError(t, err)
			},
			fix: func(t *testing.T, h *fixture) {
				budgets, err := h.book.Budgets(t.Context(), billing.WalletID{OrgID: org, Env: store.Live})
				require.NoError(t, err)
				enough := int64(credits)
				_, err = h.book.ChangeBudget(t.Context(), "test", org, budgets[0].ID, billing.BudgetChange{LimitMicros: &enough})
				require.NoError(t, err)
			},
		},
		"organization_suspended": {
			funds: credits,
			spoil: func(t *testing.T, h *fixture) { suspend(t, h, true) },
			fix:   func(t *testing.T, h *fixture) { suspend(t, h, false) },
		},
		"no_agent": {
			eachEngine: true,
			funds:      credits,
			spoil:      func(t *testing.T, h *fixture) { setChannel(t, h, store.ChannelChange{AgentID: text("")}) },
			fix:        func(t *testing.T, h *fixture) { setChannel(t, h, store.ChannelChange{AgentID: text(agent)}) },
		},
		"channel_needs_reauth": {
			funds: credits,
			spoil: func(t *testing.T, h *fixture) {
				setChannel(t, h, store.ChannelChange{State: text(store.ChannelNeedsReauth)})
			},
			fix: func(t *testing.T, h *fixture) {
				setChannel(t, h, store.ChannelChange{State: text(store.ChannelActive)})
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(t *testing.T, h *fixture) {
				code := orElse(test.code, name)
				h.organization(t, org, test.funds)
				h.agent(t, org, agent)
				h.channel(t, org, channel, botType, agent)
				test.spoil(t, h)
				w := h.worker()
				h.say(t, channel, "lan", "hello", "anybody there?")
				h.drain(t, w)
				require.Equal(t, []string{"needs_attention " + code}, h.turns(t, org))
				require.Equal(t, code, h.conversation(t, org, "lan").Attention)

				for range 3 {
					resumeStanding(t, w)
					require.Zero(t, h.drain(t, w), "tried again though nothing has changed")
				}
				require.Empty(t, h.vendor.calls())
				require.Empty(t, h.texts())

				test.fix(t, h)
				resumeStanding(t, w)
				h.drain(t, w)
				require.Equal(t, []string{"You said: hello and anybody there?"}, h.texts())
				require.EqualValues(t, answerCost, h.spent(t, org))
				require.Empty(t, h.conversation(t, org, "lan").Attention)
				h.leaseless(t)
			}
			if test.eachEngine {
				onEach(t, run)
			} else {
				run(t, open(t))
			}
		})
	}
}

// TestATopUpBetweenTheRefusalAndTheBalance is not missed: the model is asked once more after the balance was read.
func TestATopUpBetweenTheRefusalAndTheBalance(t *testing.T) {
	t.Parallel()
	const org, channel, agent = "org_poor", "chn_poor", "agt_poor"
	for _, moment := range []int{1, 2} { // before the first, before the second reading
		h := open(t)
		h.organization(t, org, 0)
		h.agent(t, org, agent)
		h.channel(t, org, channel, botType, agent)
		readings := 0
		w := h.worker(func(c *Config) {
			c.Gateway = &teller{Gateway: h.gateway, before: func() {
				if readings++; readings == moment {
					h.credit(t, org, credits)
				}
			}}
		})
		h.say(t, channel, "lan", "hello")
		h.drain(t, w)
		resumeStanding(t, w)
		h.drain(t, w)
		require.Equal(t, []string{"You said: hello"}, h.texts(), "moment %d", moment)
		require.EqualValues(t, answerCost, h.spent(t, org))
	}
}

// teller lets a test act before each reading of a balance.
type teller struct {
	Gateway
	before func()
}

func (g *teller) FreeBalance(ctx context.Context, orgID string, env store.Env) (int64, error) {
	g.before()
	return g.Gateway.FreeBalance(ctx, orgID, env)
}

// TestOldTurnsAreNotTakenUp: a day later an answer is of no use.
func TestOldTurnsAreNotTakenUp(t *testing.T) {
	t.Parallel()
	h := open(t)
	require.NoError(t, h.db.Organizations.SetSuspended(t.Context(), "test", acme, true, ""))
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.NoError(t, h.db.Organizations.SetSuspended(t.Context(), "test", acme, false, ""))
	tomorrow := h.worker(func(c *Config) { c.Now = func() time.Time { return time.Now().Add(resumeAge + time.Minute) } })
	resumeStanding(t, tomorrow)
	require.Zero(t, h.drain(t, tomorrow))
	require.Empty(t, h.texts())
}

// TestLoopGuard: another bot that answers ours gets maxRecentReplies answers, then none until ten minutes are over, of which nobody
// needs to be told.
func TestLoopGuard(t *testing.T) {
	t.Parallel()
	h := open(t)
	w := h.worker()
	for range maxRecentReplies + 3 {
		h.say(t, bot, "bot", "thanks!")
		h.drain(t, w)
	}
	require.Len(t, h.texts(), maxRecentReplies)
	require.Len(t, h.vendor.calls(), maxRecentReplies)
	require.Equal(t, "loop_guard", h.conversation(t, acme, "bot").Attention)
	resumeStanding(t, w)
	require.Zero(t, h.drain(t, w))

	h.exec(t, `UPDATE turns SET updated_at = updated_at - $1`, inbox.LoopWindow.Milliseconds())
	h.exec(t, `UPDATE outbound_messages SET created_at = created_at - $1`, inbox.LoopWindow.Milliseconds())
	resumeStanding(t, w)
	h.drain(t, w)
	require.Len(t, h.texts(), maxRecentReplies+1)
	require.Empty(t, h.conversation(t, acme, "bot").Attention)
}

// TestFailedCalls: what may pass is tried again with a pause, under the same turn; then it stands and is tried with longer pauses for a
// day, after which only an operator may revive it.
func TestFailedCalls(t *testing.T) {
	t.Parallel()
	for failure, code := range map[providers.Failure]string{
		providers.FailureOverloaded:  "provider_overloaded",
		providers.FailureTimeout:     "provider_timeout",
		providers.FailureRefused:     "provider_error",
		providers.FailureUnreachable: "provider_error",
	} {
		t.Run(string(failure), func(t *testing.T) {
			t.Parallel()
			h := open(t)
			works := false
			h.vendor.reply = func(_ context.Context, _ int, asked []string) (string, error) {
				if works {
					return echo(asked), nil
				}
				return "", broken(failure)
			}
			h.say(t, bot, "lan", "hello")
			for try := range maxTries {
				require.Equal(t, []string{"awaiting"}, orAsking(h.turns(t, acme)), "try %d", try)
				h.drain(t, h.worker())
				require.Len(t, h.vendor.calls(), try+1, "one call, then a pause")
				h.hurry(t)
			}
			require.Equal(t, []string{"needs_attention " + code}, h.turns(t, acme))
			require.Equal(t, code, h.conversation(t, acme, "lan").Attention)

			for range 3 {
				resumeStanding(t, h.worker())
				require.Zero(t, h.drain(t, h.worker()), "tried again before its time")
				h.exec(t, `UPDATE turns SET updated_at = updated_at - $1`, (longestStanding * 5 / 4).Milliseconds())
				before := len(h.vendor.calls())
				resumeStanding(t, h.worker())
				h.drain(t, h.worker())
				h.hurry(t)
				h.drain(t, h.worker())
				require.Equal(t, []string{"needs_attention " + code}, h.turns(t, acme))
				require.Len(t, h.vendor.calls(), before+maxTries-resumeAttempts)
			}
			h.exec(t, `UPDATE turns SET created_at = created_at - $1, updated_at = updated_at - $2`,
				(24 * time.Hour).Milliseconds(), (longestStanding * 5 / 4).Milliseconds())
			resumeStanding(t, h.worker())
			h.drain(t, h.worker())
			h.hurry(t)
			h.drain(t, h.worker())
			require.Equal(t, []string{"dead " + code}, h.turns(t, acme))
			require.Equal(t, code, h.conversation(t, acme, "lan").Attention)
			require.Zero(t, h.spent(t, acme))

			works = true
			dead, err := h.queue.DeadTurns(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, dead, 1)
			require.NoError(t, h.queue.Retry(t.Context(), "operator", dead[0].TurnID))
			h.drain(t, h.worker())
			require.Equal(t, []string{"You said: hello"}, h.texts())
			require.EqualValues(t, answerCost, h.spent(t, acme))
		})
	}
}

// TestAnOutageEnds: what stands because of the vendor is answered by itself when the vendor works again, together with what the customer
// wrote meanwhile.
func TestAnOutageEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
			if n <= maxTries {
				return "", broken(providers.FailureUnreachable)
			}
			return echo(asked), nil
		}
		h.say(t, bot, "lan", "hello")
		for range maxTries {
			h.drain(t, h.worker())
			h.hurry(t)
		}
		require.Equal(t, "provider_error", h.conversation(t, acme, "lan").Attention)
		h.say(t, bot, "lan", "anybody there?")
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello and anybody there?"}, h.texts())
		require.Empty(t, h.conversation(t, acme, "lan").Attention)
	})
}

// TestStandingPausesGrow: by half of the turn's age, between one and fifteen minutes, and apart for turns that stand together.
func TestStandingPausesGrow(t *testing.T) {
	t.Parallel()
	pause := func(age time.Duration, id string) time.Duration {
		return standingPause(&inbox.StandingTurn{TurnID: id, Code: "provider_error", Age: age + time.Hour, Stood: time.Hour})
	}
	for age, least := range map[time.Duration]time.Duration{
		0: time.Minute, 11 * time.Minute: 5*time.Minute + 30*time.Second, 20 * time.Minute: 10 * time.Minute, 20 * time.Hour: 15 * time.Minute,
	} {
		apart := map[time.Duration]bool{}
		for range 50 {
			wait := pause(age, store.NewID("trn"))
			require.GreaterOrEqual(t, wait, least)
			require.LessOrEqual(t, wait, least*5/4)
			apart[wait] = true
		}
		require.Greater(t, len(apart), 25)
	}
}

func orAsking(turns []string) []string {
	if len(turns) == 0 {
		return []string{"awaiting"} // not begun yet
	}
	return turns
}

// TestAStoredRequestIsAskedAsItIs: a retry doesn't see what the agent has become meanwhile.
func TestAStoredRequestIsAskedAsItIs(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
		if n == 1 {
			return "", broken(providers.FailureTimeout)
		}
		return echo(asked), nil
	}
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	h.changeAgent(t, func(a *store.Agent) { a.Instructions = "Be rude." })
	h.say(t, bot, "lan", "still there?")
	h.hurry(t)
	h.drain(t, h.worker())
	calls := h.vendor.calls()
	require.Len(t, calls, 3)
	require.Equal(t, calls[0], calls[1])
	require.Equal(t, "system: Be rude.", calls[2][0])
	require.Equal(t, []string{"You said: hello", "You said: still there?"}, h.texts())
}

// TestABrokenAnswerIsNotPaid: the vendor breaks off after it has reported usage. The customer's next answer is the only one that is paid.
func TestABrokenAnswerIsNotPaid(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(_ context.Context, n int, asked []string) (string, error) {
			if n == 1 {
				return "half an", errBrokenOff
			}
			return echo(asked), nil
		}
		h.say(t, bot, "lan", "hello")
		h.drain(t, h.worker())
		require.Equal(t, []string{"awaiting"}, h.turns(t, acme))
		require.Zero(t, h.spent(t, acme))
		h.hurry(t)
		h.drain(t, h.worker())
		require.Equal(t, []string{"You said: hello"}, h.texts())
		require.EqualValues(t, answerCost, h.spent(t, acme))
	})
}

// TestATurnThatKillsItsWorkersDies: it is not asked for ever.
func TestATurnThatKillsItsWorkersDies(t *testing.T) {
	t.Parallel()
	h := open(t)
	broken := &panicker{Gateway: h.gateway}
	h.say(t, bot, "lan", "hello")
	for range maxTries + 3 {
		h.drain(t, h.worker(func(c *Config) { c.Gateway = broken }))
		h.hurry(t)
	}
	require.Equal(t, 1+maxTries, broken.calls, "the first panics before its turn has begun")
	require.Equal(t, []string{"dead internal_error"}, h.turns(t, acme))
	h.leaseless(t)
	require.Contains(t, h.log.String(), "a poisonous message")
}

// TestADeletedConversationIsNoFault: a deletion during the work only ends the work.
func TestADeletedConversationIsNoFault(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.vendor.reply = func(_ context.Context, _ int, asked []string) (string, error) {
		require.NoError(t, h.queue.DeleteConversation(t.Context(), "test", acme, h.conversation(t, acme, "lan").ID))
		return echo(asked), nil
	}
	h.say(t, bot, "lan", "hello")
	h.drain(t, h.worker())
	require.Empty(t, h.texts())
	all, err := h.queue.Conversations(t.Context(), acme, inbox.ConversationFilter{}, store.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, all)
}
