package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The reasons for which [Queue.Claim] doesn't lease a conversation.
var (
	// ErrLeased: another lease is valid; it may end soon.
	ErrLeased = errors.New("inbox: the conversation is leased")
	// ErrNotDue: there is nothing to do in it, or not before the pause after a failed attempt is over.
	ErrNotDue = errors.New("inbox: nothing is to be done in the conversation now")
)

// Claim leases one conversation for a caller that waits for its answer, with the same duties as after [Queue.Lease]. A quiet
// window ends with it; a pause after a failed attempt doesn't. It returns [ErrLeased], [ErrNotDue], also for a conversation
// that doesn't exist or isn't the organization's, or a wrapped error of the store.
func (q *Queue) Claim(ctx context.Context, orgID, conversationID string, life time.Duration) (Lease, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Lease{}, fmt.Errorf("claim a conversation: %w", err)
	}
	op := &claimOp{orgID: orgID, id: conversationID, life: life}
	if err := q.do(ctx, "claim a conversation", op); err != nil {
		return Lease{}, err
	}
	return q.opened(op.lease), nil
}

type claimOp struct {
	orgID, id string
	life      time.Duration

	lease   Lease
	refused error
}

func (op *claimOp) conversation() string { return op.id }

func (op *claimOp) refusal() error { return op.refused }

func (op *claimOp) run(_ context.Context, s *session) error {
	op.refused = ErrNotDue
	c := s.rows[op.id]
	if c == nil || c.deleted || c.orgID != op.orgID {
		return nil
	}
	if op.refused = claimable(c.runAt, c.leaseUntil, c.attempts, s.now); op.refused != nil {
		return nil //nolint:nilerr // refusal says it; the transaction is well
	}
	if c.runAt.Int64 > s.now {
		c.runAt = sql.NullInt64{Int64: s.now, Valid: true}
	}
	op.lease = c.lease(s.tx, s.now, op.life)
	return nil
}

// claimable returns why the conversation can't be claimed now, or nil.
func claimable(runAt sql.NullInt64, leaseUntil, attempts, now int64) error {
	switch {
	case leaseUntil >= now:
		return ErrLeased
	case !runAt.Valid, runAt.Int64 > now && attempts > 0:
		return ErrNotDue
	default:
		return nil
	}
}

// Reply is the state of a customer's text and its answer.
type Reply struct {
	// MessageID and ConversationID are the text's; ReceivedAt is in epoch milliseconds.
	MessageID, ConversationID string
	ReceivedAt                int64
	// TurnID is the turn that answers it, "" for none yet, and TurnState its state.
	TurnID, TurnState string
	// Text is the answer as it was sent; "" while there is none.
	Text string
	// handled: the text needs no answer. silent: the assistant answers nothing in the conversation now.
	handled, silent bool
	// claimable is the result of Claimable.
	claimable error
}

// Claimable returns what [Queue.Claim] of the conversation would have returned at the moment of the read: nil, [ErrLeased] or
// [ErrNotDue]. Waiting callers use it, because a claim is a write.
func (r *Reply) Claimable() error { return r.claimable }

// Waits reports whether the assistant may still answer the text by itself: the text waits for a turn, or its turn is running.
func (r *Reply) Waits() bool {
	return r.TurnID == "" && !r.handled && !r.silent || r.TurnState == TurnAwaiting
}

const (
	selectReply = `SELECT m.id, m.conversation_id, m.received_at, m.handled, COALESCE(m.turn_id, ''), COALESCE(t.state, ''),
			c.run_at, c.lease_until, c.attempts, c.state, c.paused_until, c.blocked_at
		FROM messages m JOIN conversations c ON c.id = m.conversation_id LEFT JOIN turns t ON t.id = m.turn_id
		WHERE m.channel_id = $1 AND m.platform_message_id = $2 AND m.org_id = $3 AND m.author = 'customer'`
	selectParts = `SELECT ` + outboundColumns + ` WHERE turn_id = $1 AND org_id = $2
		AND state IN ('pending', 'sending', 'sent', 'delivery_unknown') ORDER BY part`
)

// Reply reads the state of a text by the platform's id, or returns [store.ErrNotFound] when it was never stored.
func (q *Queue) Reply(ctx context.Context, orgID, channelID, platformMessageID string) (Reply, error) {
	ids, err := q.loadIDs(ctx, false)
	if err != nil {
		return Reply{}, fmt.Errorf("read a reply: %w", err)
	}
	now, err := q.db.Now(ctx)
	if err != nil {
		return Reply{}, fmt.Errorf("read a reply: %w", err)
	}
	reply, err := store.ReadRow(ctx, q.db, "read a reply", func(row store.Row) (r Reply, err error) {
		var runAt sql.NullInt64
		var c Conversation
		var leaseUntil, attempts int64
		err = row.Scan(&r.MessageID, &r.ConversationID, &r.ReceivedAt, &r.handled, &r.TurnID, &r.TurnState, &runAt, &leaseUntil, &attempts,
			&c.State, &c.PausedUntil, &c.BlockedAt)
		r.silent = c.silent(now)
		r.claimable = claimable(runAt, leaseUntil, attempts, now)
		return r, err
	}, selectReply, channelID, ids.seal(platformMessageID, vault.PlatformMessageID(orgID)), orgID)
	if err != nil || reply.TurnState != TurnAnswered {
		return reply, err
	}
	parts, err := store.ReadRows(ctx, q.db, "read a reply", q.scanMessage(vault.OutboundBody), selectParts, reply.TurnID, orgID)
	for i := range parts {
		if i > 0 {
			reply.Text += "\n\n"
		}
		reply.Text += parts[i].Text
	}
	return reply, err
}

// ConversationOf reads a customer's conversation on a channel of an organization, or returns [store.ErrNotFound].
func (q *Queue) ConversationOf(ctx context.Context, orgID, channelID, customerRef string) (Conversation, error) {
	ids, err := q.loadIDs(ctx, false)
	if err != nil {
		return Conversation{}, err
	}
	return store.ReadRow(ctx, q.db, "read a conversation", func(row store.Row) (Conversation, error) {
		return q.scanConversation(row)
	}, conversationColumns+` FROM conversations WHERE channel_id = $1 AND customer_ref = $2 AND org_id = $3`,
		channelID, ids.seal(customerRef, vault.CustomerID(orgID)), orgID)
}
