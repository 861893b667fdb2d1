package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A turn binds its texts: nothing else can answer them, and a conversation has one running turn.
func TestOneTurnForAText(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		first := idsOf(q.open(t, lease).Waiting)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "2", "two"))
		second := idsOf(q.open(t, lease).Waiting)

		_, err := q.BeginTurn(ctx, lease, "a", second, nil)
		require.ErrorIs(t, err, ErrEnded, "a turn is running")
		_, err = q.BeginTurn(ctx, lease, "a", nil, nil)
		require.ErrorIs(t, err, ErrEnded, "it answers no text")
		_, err = q.Answer(ctx, lease, turnID, nil, false)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = q.Answer(ctx, lease, turnID, []string{"x"}, false)
		require.NoError(t, err)
		_, err = q.Answer(ctx, lease, turnID, []string{"y"}, false)
		require.ErrorIs(t, err, ErrEnded)
		require.ErrorIs(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "x", Final: true}), ErrEnded)
		require.ErrorIs(t, q.BeginCall(ctx, lease, Turn{ID: turnID}, nil), ErrEnded)
		_, err = q.Answer(ctx, lease, "trn_unknown", []string{"y"}, false)
		require.ErrorIs(t, err, ErrEnded)
		_, err = q.BeginTurn(ctx, lease, "a", first, nil)
		require.ErrorIs(t, err, ErrHandedOver, "it was answered")
		_, err = q.BeginTurn(ctx, lease, "a", append(first, second...), nil)
		require.ErrorIs(t, err, ErrHandedOver, "one of them was answered")
		_, err = q.BeginTurn(ctx, lease, "a", second, nil)
		require.NoError(t, err)
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM outbound_messages`))
		q.healthy(t)
	})
}

// An answer for which newer texts wait is given up, if its caller wants that; the next answers all, in order.
func TestSupersede(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "2", "two"))
		q.superseded(t, lease, turnID)
		work := q.open(t, lease)
		require.Nil(t, work.Turn)
		require.Equal(t, []string{"one", "two"}, textsOf(work.Waiting))
		_, err := q.Answer(ctx, lease, turnID, []string{"x"}, true)
		require.ErrorIs(t, err, ErrEnded)
		require.NoError(t, q.Release(ctx, lease))
		q.reply(t, "both", "p1")
		q.healthy(t)
	})
}

// A turn that needs attention stands, with its reason, until it is resumed with its stored request.
func TestAttentionAndResume(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		balance := int64(17)
		require.ErrorIs(t, q.Stand(ctx, lease, Standing{TurnID: turnID}), ErrInvalid)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "insufficient_credits", BalanceMicros: &balance}))
		require.Equal(t, "insufficient_credits", q.open(t, lease).Conversation.Attention)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t) // no retry loop
		q.healthy(t)

		list := q.attentions(t)
		require.Equal(t, []StandingTurn{{
			TurnID: turnID, OrgID: "org_1", ConversationID: lease.ConversationID, ChannelID: "chn_1",
			Code: "insufficient_credits", BalanceMicros: &balance, AgentID: "agt_chn_1", HasAgent: true, ChannelState: "active",
		}}, list)
		depth, err := q.Depth(ctx)
		require.NoError(t, err)
		require.Equal(t, Depth{Attention: 1}, depth)

		require.NoError(t, q.Resume(ctx, turnID, 0))
		require.NoError(t, q.Resume(ctx, turnID, 0), "another worker was faster")
		require.Empty(t, q.attentions(t))
		work := q.open(t, q.take(t))
		require.Equal(t, turnID, work.Turn.ID)
		require.Equal(t, "request", string(work.Turn.Request))
		require.Empty(t, work.Conversation.Attention)
		require.Error(t, q.Resume(ctx, "trn_unknown", 0))
	})
}

func (q *inboxTest) attentions(t *testing.T) []StandingTurn {
	t.Helper()
	now, err := q.db.Now(t.Context())
	require.NoError(t, err)
	turns, err := q.StandingTurns(t.Context(), timeOf(now-60_000), 10)
	require.NoError(t, err)
	later, err := q.StandingTurns(t.Context(), timeOf(now+60_000), 10)
	require.NoError(t, err)
	require.Empty(t, later)
	for i := range turns {
		require.GreaterOrEqual(t, turns[i].Age, turns[i].Stood)
		require.Less(t, turns[i].Age, time.Minute)
		turns[i].Age, turns[i].Stood = 0, 0
	}
	return turns
}

// Without an agent a turn stands without a request: resumed, its texts wait for a new one.
func TestAttentionWithoutRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		agentless := ""
		require.NoError(t, q.db.Channels.Update(ctx, "test", "org_1", "chn_1", storeChange(&agentless)))
		require.NoError(t, q.db.Organizations.SetSuspended(ctx, "test", "org_1", true, ""))
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		work := q.open(t, lease)
		require.Nil(t, work.Agent)
		require.True(t, work.Suspended)
		require.NoError(t, q.Stand(ctx, lease, Standing{MessageIDs: idsOf(work.Waiting), Code: "no_agent"}))
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		turns := q.attentions(t)
		require.Len(t, turns, 1)
		require.True(t, turns[0].Suspended)
		require.False(t, turns[0].HasAgent)
		require.Nil(t, turns[0].BalanceMicros)
		require.NoError(t, q.Resume(ctx, turns[0].TurnID, 0))
		require.Equal(t, []string{"one"}, textsOf(q.open(t, q.take(t)).Waiting))
		q.healthy(t)
	})
}

// What could not be answered is answered together with the customer's next text, so that the order stays: also when
// that text arrives while the attempt still runs.
func TestNewTextTakesUpAttention(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: q.begin(t, lease), Code: "insufficient_credits"}))
		require.NoError(t, q.Release(ctx, lease))
		q.arrive(t, textOf("ann", "2", "two"))
		require.Empty(t, q.attentions(t))
		lease = q.take(t)
		work := q.open(t, lease)
		require.Equal(t, []string{"one", "two"}, textsOf(work.Waiting))

		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "3", "three"))
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "insufficient_credits"}))
		require.NoError(t, q.Release(ctx, lease))
		lease = q.take(t)
		work = q.open(t, lease)
		require.Equal(t, []string{"one", "two", "three"}, textsOf(work.Waiting))
		q.arrive(t, textOf("ann", "4", "four"))
		require.NoError(t, q.Stand(ctx, lease, Standing{MessageIDs: idsOf(work.Waiting), Code: "no_agent"}))
		require.Empty(t, q.attentions(t))
		require.NoError(t, q.Release(ctx, lease))
		q.reply(t, "all of it", "p1")
		q.idle(t)
		q.healthy(t)
	})
}

// A dead turn is listed, lets later texts have their own answer, and runs again when an operator says so.
func TestDeadTurns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		require.ErrorIs(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Final: true}), ErrInvalid)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "provider_error", Final: true}))
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		dead, err := q.DeadTurns(ctx, 10)
		require.NoError(t, err)
		require.Len(t, dead, 1)
		require.Equal(t, turnID, dead[0].TurnID)
		require.Equal(t, "provider_error", dead[0].Code)
		q.arrive(t, textOf("ann", "2", "two"))
		q.reply(t, "to two", "p1")

		require.NoError(t, q.Resume(ctx, turnID, 0), "only what needs attention is resumed")
		q.idle(t)
		require.NoError(t, q.Retry(ctx, "cli", turnID))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'turn.retry' AND target = $1`, turnID))
		lease = q.take(t)
		require.Equal(t, turnID, q.open(t, lease).Turn.ID)
		require.ErrorIs(t, q.Retry(ctx, "cli", turnID), ErrEnded)
		require.Error(t, q.Retry(ctx, "cli", "trn_unknown"))
		_, err = q.Answer(ctx, lease, turnID, []string{"to one"}, false)
		require.NoError(t, err)
		q.healthy(t)
	})
}

// A dead turn that is retried while other texts wait is answered together with them.
func TestRetryWhileOthersWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: "provider_error", Final: true}))
		q.arrive(t, textOf("ann", "2", "two"))
		require.NoError(t, q.Retry(ctx, "cli", turnID))
		require.Equal(t, []string{"one", "two"}, textsOf(q.open(t, lease).Waiting))
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: q.begin(t, lease), Code: "insufficient_credits"}))
		q.healthy(t)
	})
}
