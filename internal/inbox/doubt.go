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
			WHERE `+unsentOf+` AND state = 'sending' AND id <> $2`, c.id, op.called, s.now)
	}
	return nil
}

// GiveWay ends a running turn without an answer because a person has written to the customer meanwhile, or the turn's request is
// forgotten ([Turn.Forgotten]): the turn's texts wait again, for a turn that knows what is there now. It returns [ErrHandedOver] when the
// turn was discarded, [ErrEnded], [ErrLeaseLost], or a wrapped error of the store.
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

// wroteIn is the condition that a person's message waits to be sent in a conversation, whose id comes behind it.
const wroteIn = `EXISTS (SELECT 1 FROM conversations v JOIN outbound_messages o ON o.conversation_id = v.id AND o.created_at >= v.unsent_since
	WHERE o.state = 'pending' AND o.author = 'human' AND v.id = `

// personWrote is the condition on a conversation $1 that a person's message waits to be sent.
const personWrote = wroteIn + `$1)`

var selectInterrupted = listSizes.Statement(`WITH asked (conversation_id, turn_id) AS ({list}) SELECT turn_id,
	NOT EXISTS (SELECT 1 FROM turns WHERE id = asked.turn_id AND state = 'awaiting'), `+wroteIn+`asked.conversation_id) FROM asked`, 2, 0)

// Interruption is what has happened while a model was called.
type Interruption struct {
	Ended  bool // the turn isn't running any more: a person has the conversation, it was deleted, or the customer has blocked the channel
	Person bool // a person's message waits to be sent
}

// RunningTurn names a running turn.
type RunningTurn struct{ ConversationID, TurnID string }

// Interruptions reads which of some running turns people have ended, or in whose conversations they have written to the customer
// meanwhile; by the turn's id. It is a cheap read, without locks.
func (q *Queue) Interruptions(ctx context.Context, turns []RunningTurn) (map[string]Interruption, error) {
	seen := make(map[string]Interruption, len(turns))
	err := store.EachPadded(listSizes, turns, func(size int, piece []RunningTurn) error {
		args := make([]any, 0, 2*len(piece))
		for _, turn := range piece {
			args = append(args, turn.ConversationID, turn.TurnID)
		}
		_, err := store.ReadRows(ctx, q.db, "look for people", func(row store.Row) (struct{}, error) {
			var id string
			var i Interruption
			err := row.Scan(&id, &i.Ended, &i.Person)
			if i.Ended || i.Person {
				seen[id] = i
			}
			return struct{}{}, err
		}, selectInterrupted[size], args...)
		return err
	})
	return seen, err
}
