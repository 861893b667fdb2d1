package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const readyTemplate = `{"name":"order_ready","language":"en","variables":[{"name":"1","value":"SECRET-value"}]}`

// A template goes out as such, is shown as its text, and ends the attention that wanted one.
func TestSendTemplate(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		lease, parts := q.answering(t, "late")
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundFailed, "template_required", SendFailure{RestOfTurn: true}))
		require.NoError(t, q.Release(ctx, lease))
		id := lease.ConversationID
		require.Equal(t, "template_required", q.attention(t, id))
		q.idle(t)

		sent, replayed, err := q.SendTemplate(ctx, "usr_1", "org_1", id, "Your order is ready.", []byte(readyTemplate), nil)
		require.NoError(t, err)
		require.False(t, replayed)
		require.Len(t, sent, 1)
		require.Equal(t, KindTemplate, sent[0].Kind)
		require.Equal(t, "Your order is ready.", sent[0].Text)
		require.Empty(t, q.attention(t, id))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM audit_log WHERE action = 'conversation.send' AND actor = 'usr_1'`))
		require.NotContains(t, q.value(t, `SELECT template FROM outbound_messages WHERE template IS NOT NULL`), "SECRET", "it is sealed")

		lease = q.take(t)
		out := q.open(t, lease).Outbound
		require.Len(t, out, 1)
		require.JSONEq(t, readyTemplate, string(out[0].Template))
		require.Equal(t, "Your order is ready.", out[0].Text)
		require.NoError(t, q.Sending(ctx, lease, out[0].ID))
		require.NoError(t, q.SendFailed(ctx, lease, out[0].ID, OutboundFailed, codes.TemplatePaused, SendFailure{}))
		require.NoError(t, q.Release(ctx, lease))
		require.Equal(t, codes.TemplatePaused, q.attention(t, id))

		messages, err := q.Messages(ctx, "org_1", id, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{KindText, KindText, KindTemplate}, []string{messages[0].Kind, messages[1].Kind, messages[2].Kind})
		message, err := q.Outgoing(ctx, "org_1", id, out[0].ID)
		require.NoError(t, err)
		require.Equal(t, KindTemplate, message.Kind)
		require.NoError(t, q.Resend(ctx, "usr_1", "org_1", id, out[0].ID, false))
		again := q.open(t, q.take(t)).Outbound
		require.JSONEq(t, readyTemplate, string(again[0].Template), "it is sent again as a template")
		q.healthy(t)
	})
}

// What else stands in the conversation stays, and is shown.
func TestSendTemplateLeavesWhatStands(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id, turnID := q.stand(t, "no_agent", true)
		_, _, err := q.SendTemplate(ctx, "usr_1", "org_1", id, "x", []byte(readyTemplate), nil)
		require.NoError(t, err)
		require.Equal(t, "no_agent", q.attention(t, id))
		lease := q.take(t)
		out := q.open(t, lease).Outbound
		require.NoError(t, q.SendFailed(ctx, lease, out[0].ID, OutboundFailed, codes.TemplateRefused, SendFailure{}))
		require.NoError(t, q.Release(ctx, lease))
		require.Equal(t, codes.TemplateRefused, q.attention(t, id))
		_, _, err = q.SendTemplate(ctx, "usr_1", "org_1", id, "x", []byte(readyTemplate), nil)
		require.NoError(t, err)
		require.Equal(t, "no_agent", q.attention(t, id))
		require.Equal(t, TurnNeedsAttention, q.value(t, `SELECT state FROM turns WHERE id = $1`, turnID))
		q.healthy(t)
	})
}

// A key counts for a template as for a text, and a template that doesn't open is not sent as a text.
func TestSendTemplateKeyed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "one"))
		id := q.value(t, `SELECT id FROM conversations`)
		key := keyOf("k", "template")
		sent, replayed, err := q.SendTemplate(ctx, "usr_1", "org_1", id, "x", []byte(readyTemplate), &key)
		require.NoError(t, err)
		require.False(t, replayed)
		again, replayed, err := q.SendTemplate(ctx, "usr_1", "org_1", id, "x", []byte(readyTemplate), &key)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, sent, again)
		other := keyOf("k", "another")
		_, _, err = q.SendTemplate(ctx, "usr_1", "org_1", id, "y", []byte(readyTemplate), &other)
		require.ErrorIs(t, err, ErrKeyReused)
		for _, none := range []*SendKey{nil, &other} {
			_, _, err = q.SendTemplate(ctx, "usr_1", "org_2", id, "x", []byte(readyTemplate), none)
			require.Error(t, err)
			_, _, err = q.SendTemplate(ctx, "usr_1", "org_1", id, "", []byte(readyTemplate), none)
			require.ErrorIs(t, err, ErrInvalid)
			_, _, err = q.SendTemplate(ctx, "usr_1", "org_1", id, "x", nil, none)
			require.ErrorIs(t, err, ErrInvalid)
		}
		_, _, err = q.SendTemplate(ctx, "usr_1", "org_2", id, "x", []byte(readyTemplate), nil)
		require.ErrorIs(t, err, store.ErrNotFound)

		q.exec(t, `UPDATE outbound_messages SET template = $1`, []byte("damaged"))
		out := q.open(t, q.take(t)).Outbound
		require.Len(t, out, 1)
		require.True(t, out[0].Unreadable)
	})
}
