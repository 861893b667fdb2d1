package inbox

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// AnswerAndHandOver ends a running turn with the assistant's last words, and gives the conversation to people for a reason, such as
// [HandoverAssistant]; all in one commit. The last words are sent though a person has the conversation, until one writes in it. Without
// parts nothing is said, and the turn is discarded. The customer goes on waiting for an answer of a person; newer texts are open.
// sendFirst, the result and the errors are those of [Queue.Answer].
func (q *Queue) AnswerAndHandOver(
	ctx context.Context, lease Lease, turnID, reason string, parts []string, sendFirst bool,
) ([]Outbound, error) {
	if reason == "" {
		return nil, fmt.Errorf("answer and hand over: %w: it needs a reason", ErrInvalid)
	}
	op := &lastWordsOp{answerOp: q.answer(lease, turnID, parts, sendFirst), reason: reason}
	if err := q.do(ctx, "answer and hand over", op); err != nil {
		return nil, err
	}
	return op.outbound()
}

type lastWordsOp struct {
	answerOp

	reason string
}

func (op *lastWordsOp) run(_ context.Context, s *session) error {
	c := op.answering(s)
	if c == nil {
		return nil
	}
	if len(op.parts) > 0 {
		op.end(s, TurnAnswered, codeHandedOver, sql.NullInt64{})
	} else { // the assistant has given these texts away, and doesn't get them back
		op.end(s, TurnDiscarded, codeHandedOver, sql.NullInt64{})
		s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id = $1`, op.turnID)
	}
	s.discard(c, codeHandedOver) // before the parts are there, so that they stay
	op.at = s.queueParts(c, sql.NullString{String: op.turnID, Valid: true}, AuthorAssistant, op.parts)
	c.attempts, c.people.attentionTold = 0, ""
	c.handOver(op.reason)
	c.asked(s.now)
	return nil
}

// lastWords reports whether the part was written to be sent after its own turn gave the conversation to people.
func (op *partOp) lastWords(ctx context.Context, s *session, c *conversationRow) (last bool, err error) {
	if c.state != StateHuman || c.blockedAt != 0 || !op.turnID.Valid {
		return false, nil
	}
	err = s.tx.Query(ctx, func(store.Row) error {
		last = true
		return nil
	}, `SELECT 1 FROM turns WHERE id = $1 AND state = 'answered' AND code = $2`, op.turnID, codeHandedOver)
	if err != nil {
		return false, fmt.Errorf("read a part's turn: %w", err)
	}
	return last, nil
}

// silenced reports whether the part may not be sent any longer: it is the assistant's, who may not write now, and neither its last words nor
// what a person had sent again.
func (op *partOp) silenced(ctx context.Context, s *session, c *conversationRow) (bool, error) {
	if op.author != AuthorAssistant || !c.silent(s.now) || op.resends > 0 {
		return false, nil
	}
	last, err := op.lastWords(ctx, s, c)
	return !last, err
}

// dropLastWords discards what is unsent of the assistant's last words, because a person has written; but not what a person had sent again.
func (s *session) dropLastWords(c *conversationRow) {
	if c.state == StateHuman {
		s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'discarded', code = $2, updated_at = $3
			WHERE `+unsentOf+` AND state = 'pending' AND author = 'assistant' AND resends = 0`,
			c.id, codeHandedOver, s.now)
	}
}
