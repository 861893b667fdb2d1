package inbox

import (
	"context"
	"database/sql"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Unmark makes the part of a leased conversation that is sending pending again. The caller knows that the platform was not called for
// it: the commit that marked it was in doubt. called is a part for which the platform was called, and which stays as it is, "" for
// none. It may be repeated. It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Unmark(ctx context.Context, lease Lease, called string) error {
	return q.do(ctx, "make a part pending again", &unmarkOp{leased: leased{lease: lease}, called: called})
}

type unmarkOp struct {
	leased

	called string
}

func (op *unmarkOp) run(_ context.Context, s *session) error {
	if c := op.holder(s); c != nil {
		s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'pending', updated_at = $3
			WHERE conversation_id = $1 AND state IN ('pending', 'sending') AND state = 'sending' AND id <> $2`, c.id, op.called, s.now)
	}
	return nil
}

// GiveWay ends a running turn without an answer because a person has written to the customer meanwhile: the turn's texts wait again,
// for a turn that knows what the person wrote. It returns [ErrHandedOver] when the turn was discarded, [ErrEnded], [ErrLeaseLost], or
// a wrapped error of the store.
func (q *Queue) GiveWay(ctx context.Context, lease Lease, turnID string) error {
	return q.do(ctx, "give way to a person", &giveWayOp{turnOp{leased: leased{lease: lease}, turnID: turnID}})
}

type giveWayOp struct{ turnOp }

func (op *giveWayOp) run(_ context.Context, s *session) error {
	if op.asking(s) != nil {
		op.supersede(s)
	}
	return nil
}

// supersede ends a running turn; its texts wait again.
func (op *turnOp) supersede(s *session) {
	op.end(s, TurnSuperseded, "", sql.NullInt64{})
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id = $1`, op.turnID)
}

// personWrote is the condition on a conversation $1 that a person's message waits to be sent.
const personWrote = `EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND state IN ('pending', 'sending')
	AND state = 'pending' AND author = 'human')`

const selectInterrupted = `SELECT NOT EXISTS (SELECT 1 FROM turns WHERE id = $2 AND state = 'asking'), ` + personWrote

// Interruption is what has happened while a model was called.
type Interruption struct {
	Ended  bool // the turn isn't running any more: a person has the conversation, it was deleted, or the customer has blocked the channel
	Person bool // a person's message waits to be sent
}

// Interruption reads whether people have ended a running turn of a conversation, or have written to the customer meanwhile. It is a
// cheap read, without locks.
func (q *Queue) Interruption(ctx context.Context, conversationID, turnID string) (Interruption, error) {
	return store.ReadRow(ctx, q.db, "look for a person", func(row store.Row) (i Interruption, err error) {
		err = row.Scan(&i.Ended, &i.Person)
		return i, err
	}, selectInterrupted, conversationID, turnID)
}
