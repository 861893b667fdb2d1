package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// ErrMayArriveTwice means that the customer may already have the message, and the caller hasn't accepted that it arrives twice.
var ErrMayArriveTwice = errors.New("inbox: the message may arrive twice")

// Resend puts a part that failed, or whose delivery is unknown, back to be sent, because a person wants it; with it the later parts of the
// same answer that failed without having been tried. They are sent whoever has the conversation. mayArriveTwice says that the person
// knows that the customer may get a part twice, which only one of unknown delivery needs. The caller checks first whether the platform
// takes the message now. In a closed conversation they are sent, too: customers unblock a channel without a word, and if the platform takes a
// part, the conversation is open again.
//
// It returns [store.ErrNotFound], [ErrEnded] for a part in another state, [ErrMayArriveTwice], or a wrapped error of the store.
func (q *Queue) Resend(ctx context.Context, actor, orgID, conversationID, messageID string, mayArriveTwice bool) error {
	return q.do(ctx, "send a message again", &resendOp{
		standingOp: standingOp{ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}}, part: messageID, mayArriveTwice: mayArriveTwice,
	})
}

type resendOp struct {
	standingOp

	part           string
	mayArriveTwice bool
}

// resend makes a part pending as if it were new, but for its mark ([Outbound.Mark]). The platform's id of the last try would take its
// late reports for those of the next.
const resend = `UPDATE outbound_messages SET state = 'pending', code = '', platform_message_id = '', attempts = 0,
	resends = resends + 1, updated_at = $2`

func (op *resendOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	if c == nil {
		return nil
	}
	var state string
	var turnID sql.NullString
	var number, createdAt int64
	err := s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&state, &turnID, &number, &createdAt) },
		`SELECT state, turn_id, part, created_at FROM outbound_messages WHERE id = $1 AND conversation_id = $2`, op.part, op.id)
	switch {
	case err != nil:
		return fmt.Errorf("read a message: %w", err)
	case state == "":
		op.refused = store.ErrNotFound
		return nil
	case state != OutboundFailed && state != OutboundDeliveryUnknown:
		op.refused = ErrEnded
		return nil
	case state == OutboundDeliveryUnknown && !op.mayArriveTwice:
		op.refused = ErrMayArriveTwice
		return nil
	}
	c.unsentSince = min(c.unsentSince, createdAt) // that of all parts of an answer
	s.tx.Queue(1, resend+` WHERE id = $1`, op.part, s.now)
	if turnID.Valid {
		s.tx.Queue(store.AnyRows, resend+` WHERE turn_id = $1 AND part > $3 AND state = 'failed' AND attempts = 0`, turnID, s.now, number)
	}
	return op.end(ctx, s, c)
}

// end makes the conversation due and shows in it what else a person should look at.
func (op *resendOp) end(ctx context.Context, s *session, c *conversationRow) error {
	turns, _, err := op.turns(ctx, s)
	if err != nil {
		return err
	}
	c.looked(newestCode(turns))
	c.runBy(s.now)
	c.touch(s.now)
	store.QueueAudit(s.tx, store.AuditEntry{
		At: s.now, Actor: op.actor, Action: "message.resend", Target: op.part, OrgID: op.orgID, Detail: op.id,
	})
	return nil
}

// Outgoing reads a message to the customer of an organization's conversation, or [store.ErrNotFound].
func (q *Queue) Outgoing(ctx context.Context, orgID, conversationID, messageID string) (Message, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return Message{}, err
	}
	message, err := store.ReadRow(ctx, q.db, "read a message", q.scanMessage(vault.OutboundBody),
		`SELECT `+outboundColumns+` WHERE id = $1 AND conversation_id = $2 AND org_id = $3`, messageID, conversationID, orgID)
	return message.Message, err
}
