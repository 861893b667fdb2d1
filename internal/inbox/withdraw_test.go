package inbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

func tookBack(customer, id string) Item {
	return Item{Kind: platforms.Unsent, CustomerRef: customer, MessageID: id}
}

// said is what the customer's conversation shows.
func (q *inboxTest) said(t *testing.T, customer string) []string {
	t.Helper()
	c, err := q.ConversationOf(t.Context(), "org_1", "chn_1", customer)
	require.NoError(t, err)
	messages, err := q.Messages(t.Context(), "org_1", c.ID, pageAll)
	require.NoError(t, err)
	return textsOf(messages)
}

// requests counts the turns whose requests are stored.
func (q *inboxTest) requests(t *testing.T) string {
	t.Helper()
	return q.value(t, `SELECT count(*) FROM turns WHERE request IS NOT NULL`)
}

// The text of a message that was taken back is deleted, and so are the stored requests that repeat it. The platform may report it several
// times. Other messages and earlier requests stay.
func TestWithdrawnMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{textOf("ann", "2", "kept")}}}))
		require.NoError(t, q.Release(t.Context(), q.take(t)))
		q.exec(t, `UPDATE conversations SET run_at = NULL WHERE org_id = 'org_2'`)
		q.exec(t, `UPDATE messages SET handled = TRUE WHERE org_id = 'org_2'`)

		q.arrive(t, textOf("ann", "1", "first"))
		q.reply(t, "answer", "p1")
		q.exec(t, `UPDATE turns SET created_at = created_at - 10`)
		q.exec(t, `UPDATE messages SET received_at = received_at - 10 WHERE org_id = 'org_1'`)
		q.arrive(t, textOf("ann", "2", "my card is 4711"))
		q.reply(t, "another", "p2")
		q.arrive(t, textOf("ann", "3", "thanks"))
		q.reply(t, "welcome", "p3")
		require.Equal(t, "3", q.requests(t))
		for range 2 {
			q.arrive(t, tookBack("ann", "2"))
			require.Equal(t, []string{"first", "answer", WithdrawnText, "another", "thanks", "welcome"}, q.said(t, "ann"))
			require.Equal(t, "1", q.requests(t), "the one before it doesn't know it")
		}
		q.idle(t)
		messages, err := q.Messages(t.Context(), "org_2", q.value(t, `SELECT id FROM conversations WHERE org_id = 'org_2'`), pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"kept"}, textsOf(messages))

		q.arrive(t, echoOf("ann", "h1"), tookBack("ann", "h1"), tookBack("ann", "p3"))
		said := q.said(t, "ann")
		require.Equal(t, []string{WithdrawnText, WithdrawnText}, said[5:], "so do those of the business")
		q.healthy(t)
	})
}

// What is taken back before it is answered gets no answer, and the texts beside it get one that doesn't know it.
func TestWithdrawnBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), textOf("ann", "2", "two"), tookBack("ann", "1"))
		lease := q.take(t)
		require.Equal(t, []string{"two"}, textsOf(q.open(t, lease).Waiting))
		turn := q.begin(t, lease)
		q.arrive(t, textOf("ann", "3", "three"), tookBack("ann", "2"))
		seen, err := q.Interruptions(ctx, []RunningTurn{{lease.ConversationID, turn}})
		require.NoError(t, err)
		require.True(t, seen[turn].Ended, "the running call ends")
		_, err = q.Answer(ctx, lease, turn, []string{"x"}, true)
		require.ErrorIs(t, err, ErrEnded)
		require.Equal(t, "0", q.requests(t))
		require.NoError(t, q.Release(ctx, lease))

		lease = q.take(t)
		require.Equal(t, []string{"three"}, textsOf(q.open(t, lease).Waiting))
		turn = q.begin(t, lease)
		q.arrive(t, tookBack("ann", "3"))
		_, err = q.Answer(ctx, lease, turn, []string{"x"}, true)
		require.ErrorIs(t, err, ErrEnded)
		require.Empty(t, q.open(t, lease).Waiting)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		c, err := q.Conversation(ctx, "org_1", lease.ConversationID)
		require.NoError(t, err)
		require.Zero(t, c.UnansweredSince, "nobody waits")
		q.healthy(t)
	})
}

// A text whose turn stands is not asked about when the cause is gone, and those beside it are.
func TestWithdrawnWhileItStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"), textOf("ann", "2", "two"))
		lease := q.take(t)
		turn := q.begin(t, lease)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turn, Code: codes.NoAgent}))
		require.NoError(t, q.Release(ctx, lease))
		q.arrive(t, tookBack("ann", "1"))
		q.idle(t)
		require.Equal(t, "0", q.requests(t))
		q.healthy(t)
		require.NoError(t, q.Resume(ctx, turn, 0))
		lease = q.take(t)
		require.Equal(t, []string{"two"}, textsOf(q.open(t, lease).Waiting))
		q.healthy(t)
	})
}

// A draft may repeat what was taken back: it can't be read or sent any more, and the next one is about the other texts, if there are any.
func TestWithdrawnUnderADraft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "my card is 4711"), textOf("ann", "2", "is it here?"))
		id, draft := q.propose(t, "4711 is here")
		q.arrive(t, tookBack("ann", "1"))
		require.Empty(t, q.drafts(t, id))
		require.Empty(t, q.attention(t, id))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns WHERE draft IS NOT NULL`), "nothing repeats it")
		_, _, err := q.SendDraft(ctx, "usr_1", "org_1", id, draft, []string{"4711 is here"}, false, nil)
		require.ErrorIs(t, err, ErrEnded)
		q.healthy(t)

		id, _ = q.propose(t, "It is here")
		require.Equal(t, []string{"It is here"}, q.drafts(t, id))
		q.arrive(t, tookBack("ann", "2"))
		require.Empty(t, q.drafts(t, id))
		lease := q.take(t)
		require.Empty(t, q.open(t, lease).Waiting)
		require.NoError(t, q.Release(ctx, lease))
		q.idle(t)
		c, err := q.Conversation(ctx, "org_1", id)
		require.NoError(t, err)
		require.Zero(t, c.UnansweredSince, "nobody waits")
		q.healthy(t)
	})
}

// A message that is taken back before it arrives is not stored, and begins no conversation.
func TestWithdrawnBeforeItArrives(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, tookBack("ann", "1"))
		q.arrive(t, textOf("ann", "1", "one"))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM conversations`))
		q.arrive(t, textOf("ann", "2", "two"))
		require.Equal(t, []string{"two"}, q.said(t, "ann"))
	})
}

// A customer who wants it is erased, by the platform's word, and nobody else.
func TestErasureWanted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{other, []Item{textOf("ann", "1", "kept")}}}))
		q.arrive(t, textOf("ann", "1", "one"), textOf("bob", "2", "two"))
		for range 2 {
			q.arrive(t, Item{Kind: platforms.ErasureWanted, CustomerRef: "ann"})
			_, err := q.ConversationOf(t.Context(), "org_1", "chn_1", "ann")
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		require.Equal(t, []string{"two"}, q.said(t, "bob"))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM conversations WHERE org_id = 'org_2'`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE actor = 'platform' AND action = 'conversation.delete' AND org_id = 'org_1'`))
		q.healthy(t)
	})
}

// A request for erasure that the platform repeats, or delivers late, deletes what is older than it: a customer who came back stays, with
// what was answered since.
func TestErasureWantedOfACustomerWhoCameBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		textAt := func(at int64, id, text string) Item {
			item := textOf("ann", id, text)
			item.SentAt = at
			return item
		}
		wants := Item{Kind: platforms.ErasureWanted, CustomerRef: "ann", SentAt: 50_000}
		q.arrive(t, textAt(40_000, "1", "my card is 4711"))
		q.arrive(t, wants)
		q.arrive(t, textAt(60_000, "2", "back again"))
		q.reply(t, "Welcome back", "p-1")
		q.arrive(t, textAt(70_000, "3", "one more"))
		lease := q.take(t)
		turn := q.begin(t, lease)
		before := q.value(t, `SELECT updated_at FROM conversations`)
		q.arrive(t, wants)
		require.Equal(t, []string{"back again", "Welcome back", "one more"}, q.said(t, "ann"))
		require.Equal(t, before, q.value(t, `SELECT updated_at FROM conversations`), "nothing changes")
		_, err := q.Answer(ctx, lease, turn, []string{"Sure"}, true)
		require.NoError(t, err, "the answer that is being made goes on")
		q.healthy(t)
	})
}

// What a late request for erasure finds beside newer messages goes: texts, answers to them, echoes, and prompts and drafts that may repeat
// them. Texts that came after it are asked about anew, and what was deleted doesn't come back.
func TestErasureWantedLate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		item := func(kind platforms.Kind, at int64, id, text string) Item {
			return Item{Kind: kind, CustomerRef: "ann", Address: "to ann", MessageID: id, Text: text, SentAt: at}
		}
		q.arrive(t, item(platforms.Text, 10_000, "1", "my card is 4711"))
		q.reply(t, "4711 is noted", "p-1")
		q.arrive(t, item(platforms.Text, 50_000, "2", "forget me"), item(platforms.Text, 50_001, "3", "no, wait"))
		lease := q.take(t)
		turn := q.begin(t, lease)
		wants := item(platforms.ErasureWanted, 50_000, "", "")
		q.arrive(t, wants)
		require.Equal(t, []string{"no, wait"}, q.said(t, "ann"))
		_, err := q.Answer(ctx, lease, turn, []string{"4711"}, true)
		require.ErrorIs(t, err, ErrEnded, "the prompt repeats what was deleted")
		require.NoError(t, q.Release(ctx, lease))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns WHERE request IS NOT NULL`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE actor = 'platform' AND action = 'conversation.erase'`))
		q.healthy(t)

		q.arrive(t, item(platforms.Text, 10_000, "1", "my card is 4711"), item(platforms.HumanEcho, 20_000, "p-1", "4711 is noted"))
		require.Equal(t, []string{"no, wait"}, q.said(t, "ann"), "deliveries that come again")
		lease = q.take(t)
		require.Equal(t, []string{"no, wait"}, textsOf(q.open(t, lease).Waiting))
		require.Empty(t, q.open(t, lease).History)
		q.healthy(t)
	})
}

// TestErasureOfPersonsMessages guarantees that what people wrote to a customer before the erasure goes, and what they wrote after it stays.
func TestErasureOfPersonsMessages(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	id := ""
	says := func(text string) {
		_, err := c.SendAsHuman(t.Context(), "usr_1", "org_1", id, []string{text})
		require.NoError(t, err)
		c.sendAll(t)
	}
	c.arrive(t, textAt("ann", "1", c.ms.Load()))
	id = c.value(t, `SELECT id FROM conversations`)
	require.NoError(t, c.HandOver(t.Context(), "usr_1", "org_1", id))
	says("4711 is noted")
	wants := Item{Kind: platforms.ErasureWanted, CustomerRef: "ann", SentAt: c.ms.Load()}
	c.pass(time.Second)
	c.arrive(t, textAt("ann", "2", c.ms.Load()))
	says("Welcome back")
	c.arrive(t, wants)
	require.Equal(t, []string{"text 2", "Welcome back"}, c.said(t, "ann"))
	c.healthy(t)
}
