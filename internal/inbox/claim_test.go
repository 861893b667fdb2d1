package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// inWindow stores a text that waits in a quiet window for d.
func (c *clocked) inWindow(t *testing.T, id string, d time.Duration) {
	t.Helper()
	route := c.route
	route.DebounceMS, route.DebounceMaxMS = d.Milliseconds(), d.Milliseconds()
	require.NoError(t, c.Enqueue(t.Context(), []Arrival{{route, []Item{textOf("lan", id, "text "+id)}}}))
}

// TestClaim: a visitor's request gets the lease of its conversation before the quiet window is over, and no worker has it meanwhile.
func TestClaim(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	ctx := t.Context()
	c.inWindow(t, "1", 5*time.Second)
	c.idle(t)
	reply, err := c.Reply(ctx, "org_1", "chn_1", "1")
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.NoError(t, reply.Claimable(), "a quiet window keeps nobody from it")

	for org, id := range map[string]string{"org_2": reply.ConversationID, "org_1": "cnv_none"} {
		_, err = c.Claim(ctx, org, id, life)
		require.ErrorIs(t, err, ErrNotDue)
	}
	lease, err := c.Claim(ctx, "org_1", reply.ConversationID, life)
	require.NoError(t, err)
	require.Equal(t, []string{"text 1"}, textsOf(c.open(t, lease).Waiting), "the window is over")
	_, err = c.Claim(ctx, "org_1", reply.ConversationID, life)
	require.ErrorIs(t, err, ErrLeased)
	reply, err = c.Reply(ctx, "org_1", "chn_1", "1")
	require.NoError(t, err)
	require.ErrorIs(t, reply.Claimable(), ErrLeased)
	c.pass(time.Minute)
	c.idle(t)

	// A message that arrives meanwhile waits for the request that brought it, and then for a worker.
	turnID := c.begin(t, lease)
	c.inWindow(t, "2", 5*time.Second)
	_, err = c.Answer(ctx, lease, turnID, []string{"answer"}, true)
	require.NoError(t, err)
	require.NoError(t, c.Release(ctx, lease))
	reply, err = c.Reply(ctx, "org_1", "chn_1", "1")
	require.NoError(t, err)
	require.False(t, reply.Waits())
	require.Equal(t, "answer", reply.Text)
	require.Equal(t, TurnAnswered, reply.TurnState)
	reply, err = c.Reply(ctx, "org_1", "chn_1", "2")
	require.NoError(t, err)
	require.True(t, reply.Waits())
	again, err := c.Claim(ctx, "org_1", reply.ConversationID, life)
	require.NoError(t, err)
	require.Greater(t, again.Token, lease.Token)
	require.ErrorIs(t, c.Release(ctx, lease), ErrLeaseLost)
}

// TestClaimOfTheDead: a lease that ran out is claimed like it is leased, as a failed attempt.
func TestClaimOfTheDead(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.inWindow(t, "1", time.Second)
	reply, err := c.Reply(t.Context(), "org_1", "chn_1", "1")
	require.NoError(t, err)
	lease, err := c.Claim(t.Context(), "org_1", reply.ConversationID, time.Minute)
	require.NoError(t, err)
	turnID := c.begin(t, lease)
	c.pass(time.Minute + time.Millisecond)
	reply, err = c.Reply(t.Context(), "org_1", "chn_1", "1")
	require.NoError(t, err)
	require.True(t, reply.Waits())
	require.Equal(t, []string{turnID, TurnAwaiting}, []string{reply.TurnID, reply.TurnState})
	require.NoError(t, reply.Claimable(), "its lease ran out")
	lease, err = c.Claim(t.Context(), "org_1", reply.ConversationID, time.Minute)
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.Attempts)
	require.EqualValues(t, 1, c.open(t, lease).Turn.Attempts)

	// A claim doesn't end the pause after a failed attempt.
	require.NoError(t, c.Backoff(t.Context(), lease, 10*time.Second))
	_, err = c.Claim(t.Context(), "org_1", reply.ConversationID, time.Minute)
	require.ErrorIs(t, err, ErrNotDue)
	reply, err = c.Reply(t.Context(), "org_1", "chn_1", "1")
	require.NoError(t, err)
	require.ErrorIs(t, reply.Claimable(), ErrNotDue)
	c.pass(10 * time.Second)
	_, err = c.Claim(t.Context(), "org_1", reply.ConversationID, time.Minute)
	require.NoError(t, err)
}

// TestReply: what became of a text, for the organization whose it is.
func TestReply(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := context.Background()
		_, err := q.Reply(ctx, "org_1", "chn_1", "1")
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = q.ConversationOf(ctx, "org_1", "chn_1", "lan")
		require.ErrorIs(t, err, store.ErrNotFound)
		q.arrive(t, textOf("lan", "1", "text"))
		for _, foreign := range [][2]string{{"org_2", "chn_1"}, {"org_1", "chn_2"}} {
			_, err = q.Reply(ctx, foreign[0], foreign[1], "1")
			require.ErrorIs(t, err, store.ErrNotFound)
			_, err = q.ConversationOf(ctx, foreign[0], foreign[1], "lan")
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		conversation, err := q.ConversationOf(ctx, "org_1", "chn_1", "lan")
		require.NoError(t, err)
		require.Equal(t, "Ms lan", conversation.CustomerName)

		lease, parts := q.answering(t, "one", "two")
		reply, err := q.Reply(ctx, "org_1", "chn_1", "1")
		require.NoError(t, err)
		require.Equal(t, "one\n\ntwo", reply.Text)
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p", ""))
		require.NoError(t, q.HandOver(ctx, "test", "org_1", lease.ConversationID)) // discards the rest
		reply, err = q.Reply(ctx, "org_1", "chn_1", "1")
		require.NoError(t, err)
		require.Equal(t, "one", reply.Text, "what the customer has")

		q.arrive(t, textOf("lan", "2", "to a human"))
		reply, err = q.Reply(ctx, "org_1", "chn_1", "2")
		require.NoError(t, err)
		require.False(t, reply.Waits())
		require.Empty(t, reply.Text)
		_, err = q.Claim(ctx, "org_1", reply.ConversationID, life)
		require.ErrorIs(t, err, ErrLeased)
		require.NoError(t, q.Release(ctx, lease))
		_, err = q.Claim(ctx, "org_1", reply.ConversationID, life)
		require.ErrorIs(t, err, ErrNotDue, "nobody has to answer")
		q.healthy(t)
	})
}
