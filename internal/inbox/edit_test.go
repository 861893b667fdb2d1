package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func changed(customer, id, text string) Item {
	return Item{Kind: platforms.Edited, CustomerRef: customer, MessageID: id, Text: text}
}

// A change of a message that waits, or is being answered, is answered as it reads now. What was answered already isn't answered again.
func TestEditedMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "a sencha"), changed("ann", "1", "an oolong"))
		lease := q.take(t)
		require.Equal(t, []string{"an oolong"}, textsOf(q.open(t, lease).Waiting), "it waited")
		turn := q.begin(t, lease)
		q.arrive(t, changed("ann", "1", "an oolong"))
		require.Equal(t, turn, q.open(t, lease).Turn.ID, "a change to the same text is none")
		q.arrive(t, changed("ann", "1", "two oolongs"))
		_, err := q.Answer(ctx, lease, turn, []string{"One oolong it is"}, true)
		require.ErrorIs(t, err, ErrEnded, "the old text is not answered")
		require.NoError(t, q.Release(ctx, lease))
		lease = q.take(t)
		require.Equal(t, []string{"two oolongs"}, textsOf(q.open(t, lease).Waiting))
		require.NoError(t, q.Release(ctx, lease))
		q.exec(t, `UPDATE conversations SET run_at = 1`)
		q.reply(t, "Two oolongs it is", "p-1")

		q.arrive(t, changed("ann", "1", "three oolongs"))
		q.idle(t)
		c, err := q.ConversationOf(ctx, "org_1", "chn_1", "ann")
		require.NoError(t, err)
		listed, err := q.Messages(ctx, "org_1", c.ID, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"three oolongs", "Two oolongs it is"}, textsOf(listed))
		require.True(t, listed[0].Edited)
		require.False(t, listed[1].Edited)
		q.healthy(t)
	})
}

// A colleague's message is changed like a customer's. A message that was taken back stays so, and of one that isn't there nothing comes.
func TestEditedByOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "one"), echoSaying("ann", "h-1", "Tomorow", 0), textOf("bob", "2", "two"))
		q.arrive(t, changed("ann", "h-1", "Tomorrow"), tookBack("bob", "2"))
		q.arrive(t, changed("bob", "2", "zwei"), changed("cat", "3", "drei"))
		require.Equal(t, []string{"one", "Tomorrow"}, q.said(t, "ann"))
		require.Equal(t, []string{WithdrawnText}, q.said(t, "bob"))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages WHERE edited`))
		other := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{changed("ann", "h-1", "theirs")}}}))
		require.Equal(t, []string{"one", "Tomorrow"}, q.said(t, "ann"))
		q.healthy(t)
	})
}

// A change under a draft takes the draft back: the next one is about the new text.
func TestEditedUnderADraft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "a sencha"))
		id, _ := q.propose(t, "One sencha")
		q.arrive(t, changed("ann", "1", "an oolong"))
		require.Empty(t, q.drafts(t, id))
		lease := q.take(t)
		require.Equal(t, []string{"an oolong"}, textsOf(q.open(t, lease).Waiting))
		require.NoError(t, q.Release(t.Context(), lease))

		q.exec(t, `UPDATE conversations SET run_at = 1`)
		lease = q.take(t)
		turn := q.begin(t, lease)
		require.NoError(t, q.Stand(t.Context(), lease, Standing{TurnID: turn, Code: codes.NoAgent}))
		require.NoError(t, q.Release(t.Context(), lease))
		q.arrive(t, changed("ann", "1", "a matcha"))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns WHERE state = 'needs_attention' AND request IS NOT NULL`), "it is asked about as it reads now")
		q.healthy(t)
	})
}
