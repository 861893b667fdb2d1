package inbox

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// propose lets the assistant propose an answer to everything that waits, and returns the conversation and the draft.
func (q *inboxTest) propose(t testing.TB, parts ...string) (conversationID, draftID string) {
	t.Helper()
	lease := q.take(t)
	turnID := q.begin(t, lease)
	require.NoError(t, q.Propose(t.Context(), lease, turnID, parts))
	require.NoError(t, q.Release(t.Context(), lease))
	return lease.ConversationID, turnID
}

// drafts are the texts of what waits to be sent in a conversation.
func (q *inboxTest) drafts(t testing.TB, id string) (texts []string) {
	t.Helper()
	drafts, err := q.Drafts(t.Context(), "org_1", id)
	require.NoError(t, err)
	for _, draft := range drafts {
		require.Positive(t, draft.CreatedAt)
		texts = append(texts, draft.Text())
	}
	return texts
}

// A draft waits for a person. One event is written about it, nothing is sent, and the customer still waits.
func TestPropose(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.endpoint(t)
		q.arrive(t, textOf("ann", "1", "hello"))
		id, draft := q.propose(t, "Good", "day")
		require.Equal(t, []string{"Good\n\nday"}, q.drafts(t, id))
		require.Equal(t, codes.Draft, q.attention(t, id))
		require.Equal(t, []string{"conversation.attention draft_waiting"}, q.told(t))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM outbound_messages`))
		require.NotEqual(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`))
		require.NotContains(t, q.value(t, `SELECT draft FROM turns WHERE id = $1`, draft), "Good", "it is sealed")
		count, err := q.WaitingForPeople(t.Context(), "org_1")
		require.NoError(t, err)
		require.Equal(t, 1, count)
		standing, err := q.StandingByCode(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, standing[codes.Draft])
		q.idle(t)
		q.healthy(t)
		_, err = q.Drafts(t.Context(), "org_2", id)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// A draft that is sent becomes a message of the person who sent it. It can be sent once.
func TestSendDraft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		for n, changed := range []bool{false, true} {
			q.arrive(t, textOf("ann", number(n), "hello"))
			id, draft := q.propose(t, "Good day")
			_, _, err := q.SendDraft(ctx, "usr_2", "org_2", id, draft, []string{"x"}, changed, nil)
			require.ErrorIs(t, err, store.ErrNotFound)
			_, _, err = q.SendDraft(ctx, "usr_1", "org_1", id, "trn_x", []string{"x"}, changed, nil)
			require.ErrorIs(t, err, ErrEnded)
			sent, replayed, err := q.SendDraft(ctx, "usr_1", "org_1", id, draft, []string{"Good", "day"}, changed, nil)
			require.NoError(t, err)
			require.False(t, replayed)
			require.Equal(t, []string{"Good", "day"}, textsOf(sent))
			require.Equal(t, AuthorHuman, sent[0].Author)
			_, _, err = q.SendDraft(ctx, "usr_1", "org_1", id, draft, []string{"Good", "day"}, changed, nil)
			require.ErrorIs(t, err, ErrEnded)
			require.ErrorIs(t, q.DiscardDraft(ctx, "usr_1", "org_1", id, draft), ErrEnded)
			require.Empty(t, q.drafts(t, id))
			require.Empty(t, q.attention(t, id))
			require.NotEqual(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`), "it isn't sent yet")
			code := map[bool]string{false: "draft_sent", true: "draft_changed"}[changed]
			require.Equal(t, "discarded "+code, q.value(t, `SELECT state || ' ' || code FROM turns WHERE id = $1`, draft))
			lease := q.take(t)
			work := q.open(t, lease)
			require.Len(t, work.Outbound, 2)
			require.Empty(t, work.Waiting)
			for i, part := range work.Outbound {
				require.NoError(t, q.Sending(ctx, lease, part.ID))
				require.NoError(t, q.Sent(ctx, lease, part.ID, draft+number(i), ""))
			}
			require.NoError(t, q.Release(ctx, lease))
			q.healthy(t)
		}
	})
}

// A draft that is sent again under the key of the first time is not sent twice, and the answer is that of the first time. Nor does a key
// send another draft.
func TestSendDraftAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		id, draft := q.propose(t, "Good day")
		key := keyOf("k", draft)
		_, _, err := q.SendDraft(ctx, "usr_1", "org_1", id, "trn_x", []string{"x"}, false, &key)
		require.ErrorIs(t, err, ErrEnded, "a refusal takes no key")
		sent, replayed, err := q.SendDraft(ctx, "usr_1", "org_1", id, draft, []string{"Good", "day"}, false, &key)
		require.NoError(t, err)
		require.False(t, replayed)
		again, replayed, err := q.SendDraft(ctx, "usr_1", "org_1", id, draft, []string{"Good", "day"}, false, &key)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, sent, again)
		require.Empty(t, q.drafts(t, id))

		q.arrive(t, textOf("ann", "2", "and now?"))
		_, next := q.propose(t, "Good night")
		other := keyOf("k", next)
		_, _, err = q.SendDraft(ctx, "usr_1", "org_1", id, next, []string{"Good night"}, false, &other)
		require.ErrorIs(t, err, ErrKeyReused)
		require.Equal(t, []string{"Good night"}, q.drafts(t, id))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM outbound_messages`))
		q.healthy(t)
	})
}

// The customer's next text makes the draft stale: all is answered by the next one, and the stale one can't be sent any more.
func TestStaleDraft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, stale := q.propose(t, "to one")
		q.arrive(t, textOf("ann", "2", "two"))
		require.Empty(t, q.drafts(t, id))
		_, _, err := q.SendDraft(ctx, "usr_1", "org_1", id, stale, []string{"to one"}, false, nil)
		require.ErrorIs(t, err, ErrEnded)
		require.ErrorIs(t, q.DiscardDraft(ctx, "usr_1", "org_1", id, stale), ErrEnded)

		// One that arrives during the call makes its draft stale before anybody sees it.
		lease := q.take(t)
		require.Equal(t, []string{"one", "two"}, textsOf(q.open(t, lease).Waiting))
		turn := q.begin(t, lease)
		q.arrive(t, textOf("ann", "3", "three"))
		require.NoError(t, q.Propose(ctx, lease, turn, []string{"to two"}))
		require.ErrorIs(t, q.Propose(ctx, lease, turn, []string{"to two"}), ErrEnded)
		require.NoError(t, q.Release(ctx, lease))
		require.Empty(t, q.drafts(t, id))
		q.propose(t, "to three")
		require.Equal(t, []string{"to three"}, q.drafts(t, id))
		require.Equal(t, "3", q.value(t, `SELECT count(*) FROM messages WHERE turn_id = (SELECT id FROM turns WHERE state = 'needs_attention')`))
		q.healthy(t)
	})
}

// When a channel's answers become drafts while an answer is made, that one isn't sent either. A turn that ends without a word can still
// hand its conversation over.
func TestAnswersThatBecomeDrafts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease := q.take(t)
		turn := q.begin(t, lease)
		q.exec(t, `UPDATE channels SET drafts = TRUE`)
		for _, sendFirst := range []bool{true, false} {
			_, err := q.Answer(ctx, lease, turn, []string{"to one"}, sendFirst)
			require.ErrorIs(t, err, ErrDraftMode)
			_, err = q.AnswerAndHandOver(ctx, lease, turn, HandoverAssistant, []string{"to one"}, sendFirst)
			require.ErrorIs(t, err, ErrDraftMode)
		}
		require.Equal(t, TurnAwaiting, q.value(t, `SELECT state FROM turns`))
		require.NoError(t, q.Propose(ctx, lease, turn, []string{"to one"}))
		require.NoError(t, q.Release(ctx, lease))
		require.Equal(t, []string{"to one"}, q.drafts(t, lease.ConversationID))

		q.arrive(t, textOf("bob", "2", "two"))
		lease = q.take(t)
		_, err := q.AnswerAndHandOver(ctx, lease, q.begin(t, lease), HandoverAssistant, nil, false)
		require.NoError(t, err)
		require.Equal(t, StateHuman, q.value(t, `SELECT state FROM conversations WHERE id = $1`, lease.ConversationID))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM outbound_messages`))
		q.healthy(t)
	})
}

// A draft is discarded by a person, or with the conversation's handover; nothing else ends it.
func TestEndOfDrafts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, draft := q.propose(t, "to one")
		require.ErrorIs(t, q.RetryStanding(ctx, "usr_1", "org_1", id, ""), ErrEnded, "it is no failure")
		_, err := q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"One moment."})
		require.NoError(t, err)
		require.Equal(t, []string{"to one"}, q.drafts(t, id))
		require.ErrorIs(t, q.DiscardDraft(ctx, "usr_2", "org_2", id, draft), store.ErrNotFound)
		require.NoError(t, q.DiscardDraft(ctx, "usr_1", "org_1", id, draft))
		require.Empty(t, q.drafts(t, id))
		require.Empty(t, q.attention(t, id))
		require.Equal(t, "discarded dismissed", q.value(t, `SELECT state || ' ' || code FROM turns WHERE id = $1`, draft))

		q.arrive(t, textOf("ann", "2", "two"))
		q.propose(t, "to two")
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.Empty(t, q.drafts(t, id))
		q.healthy(t)
	})
}

// A draft belongs to the customer's data: it is exported and erased with it, and shown as unreadable when its key is gone.
func TestDraftsAreTheCustomers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, draft := q.propose(t, "a <proposal>")
		var file bytes.Buffer
		require.NoError(t, q.Export(ctx, "org_1", id, &file, func() {}))
		require.Contains(t, file.String(), `"draft":"a <proposal>"`)

		q.exec(t, `UPDATE turns SET draft = $1 WHERE id = $2`, []byte("damaged"), draft)
		drafts, err := q.Drafts(ctx, "org_1", id)
		require.NoError(t, err)
		require.True(t, drafts[0].Unreadable)
		require.Equal(t, UnreadableText, drafts[0].Text())
		require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", id))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM turns`))
	})
}
