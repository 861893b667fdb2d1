package inbox

import (
	"context"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// codeBlockedByPerson is the code of what ends because a person blocks a customer.
const codeBlockedByPerson = "blocked"

// Block makes the assistant silent for the customer of an organization's conversation, whoever gives it back, until [Queue.Unblock]:
// unsent answers are discarded, and what the customer writes is stored and not answered, so that it costs nothing. A person may still
// write. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Block(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "block a customer", &blockOp{ownOp{actor: actor, orgID: orgID, id: id}})
}

type blockOp struct{ ownOp }

func (op *blockOp) run(_ context.Context, s *session) error {
	c := op.own(s)
	if c == nil || c.blockedAt != 0 {
		return nil
	}
	c.blockedAt = s.now
	c.replied(0)
	s.silence(c, codeBlockedByPerson)
	op.audit(s, "block")
	return nil
}

// Unblock ends what [Queue.Block] began: the assistant may answer what the customer writes from then on. It returns
// [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Unblock(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "unblock a customer", &unblockOp{ownOp{actor: actor, orgID: orgID, id: id}})
}

type unblockOp struct{ ownOp }

func (op *unblockOp) run(_ context.Context, s *session) error {
	c := op.own(s)
	if c == nil || c.blockedAt == 0 {
		return nil
	}
	c.blockedAt = 0
	c.touch(s.now)
	op.audit(s, "unblock")
	return nil
}

// eraseOp deletes what is stored about a customer who wants that. Platforms repeat the request for an hour: what the customer has written
// after it, by the platform's clock, stays, with the answers to it.
type eraseOp struct {
	deleteOp

	until int64 // when the customer asked for it, 0 if the platform doesn't say
}

func (op *eraseOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	switch {
	case c == nil:
		return nil
	case op.until <= 0 || c.lastCustomerAt <= op.until:
		return op.deleteOp.run(ctx, s)
	}
	var older, filled, attention bool
	err := s.tx.Query(ctx, func(row store.Row) error { return row.Scan(&older) }, `SELECT EXISTS (`+selectOlder+`)`, c.id, op.until)
	switch {
	case err != nil:
		return fmt.Errorf("look for what is older: %w", err)
	case !older:
		return nil
	}
	if err := bury(ctx, s, c, op.until); err != nil {
		return err
	}
	op.askAnew(s, c)
	const answersNothing = `conversation_id = $1 AND NOT EXISTS (SELECT 1 FROM messages WHERE turn_id = t.id)`
	for _, text := range []string{
		`DELETE FROM messages WHERE conversation_id = $1 AND sent_at <= $2`,
		`DELETE FROM outbound_messages WHERE conversation_id = $1 AND (turn_id IS NULL AND created_at <= $2
			OR turn_id IN (SELECT id FROM turns t WHERE ` + answersNothing + `))`,
	} {
		s.tx.Queue(store.AnyRows, text, c.id, op.until)
	}
	s.tx.Queue(store.AnyRows, `DELETE FROM turns AS t WHERE `+answersNothing, c.id)
	rest := func(row store.Row) error { return row.Scan(&filled, &attention) }
	if err := s.tx.Query(ctx, rest, selectRest, c.id); err != nil {
		return fmt.Errorf("look at what is left: %w", err)
	}
	if !attention {
		c.looked("")
	}
	c.touch(s.now)
	op.audit(s, "erase")
	return nil
}

// selectOlder selects what is older than a time in a conversation.
const selectOlder = `SELECT 1 FROM messages WHERE conversation_id = $1 AND sent_at <= $2
	UNION ALL SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND created_at <= $2`

// askAnew lets every text that isn't answered wait again: prompts that were made for it may repeat what is deleted.
func (op *eraseOp) askAnew(s *session, c *conversationRow) {
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention'))`, c.id)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2
		WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention')`, c.id, s.now)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET request = NULL, draft = NULL WHERE conversation_id = $1
		AND (request IS NOT NULL OR draft IS NOT NULL)`, c.id)
	c.runBy(s.now)
}
