package inbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// codeClosed is the code of answered turns that answer no message: they have what a customer was sent because the business is closed.
const codeClosed = "closed"

// SayClosed lets the customer of a leased conversation wait until the business opens. The event conversation.waiting counts from the
// opening. The parts are the notice: they are stored as pending messages of the assistant and returned, once per closed
// period. Without parts no notice is sent. The customer's texts keep waiting. It returns [ErrHandedOver], [ErrLeaseLost], or a wrapped error
// of the store.
func (q *Queue) SayClosed(ctx context.Context, lease Lease, parts []string, opening time.Time) ([]Outbound, error) {
	op := &closedOp{
		leased: leased{lease: lease}, turnID: store.NewID("trn"), parts: q.sealParts(lease.OrgID, parts), opening: opening.UnixMilli(),
	}
	if err := q.do(ctx, "say that a business is closed", op); err != nil {
		return nil, err
	}
	if !op.said {
		return nil, nil
	}
	return assistantParts(op.turnID, op.parts, op.at), nil
}

type closedOp struct {
	leased

	turnID  string
	parts   []outboundPart
	opening int64
	said    bool
	at      int64
}

func (op *closedOp) run(_ context.Context, s *session) error {
	op.said = false
	c := op.holder(s)
	switch {
	case c == nil:
		return nil
	case c.silent(s.now):
		op.refused = ErrHandedOver
		return nil
	}
	if c.people.unansweredSince > 0 {
		c.people.unansweredSince = op.opening
	}
	c.changed = true
	if c.people.closedUntil > s.now || len(op.parts) == 0 {
		return nil
	}
	c.people.closedUntil, op.said = op.opening, true
	s.tx.Queue(1, insertTurn, op.turnID, c.orgID, c.key.channelID, c.id, "", TurnAnswered, []byte(nil), codeClosed, sql.NullInt64{}, s.now, s.now, "")
	op.at = s.queueParts(c, sql.NullString{String: op.turnID, Valid: true}, AuthorAssistant, op.parts)
	return nil
}
