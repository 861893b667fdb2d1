package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// codeDismissed is the code of a turn that a person has dismissed.
const codeDismissed = "dismissed"

// RetryStanding lets the standing turns of an organization's conversation run again, oldest first, as [Queue.Retry] does for one, but
// not those with a draft, which a person sends or discards.
// code selects those that stand for this reason; "" is all. It returns [store.ErrNotFound], [ErrEnded] when no turn stands,
// [ErrHandedOver] while the assistant may not answer there, or a wrapped error of the store.
func (q *Queue) RetryStanding(ctx context.Context, actor, orgID, id, code string) error {
	return q.do(ctx, "retry what stands", &retryStandingOp{standingOp{ownOp: ownOp{actor: actor, orgID: orgID, id: id}, code: code}})
}

// Dismiss ends the standing turns of an organization's conversation without an answer, and its attention: a person has seen that
// customers weren't answered or messages not delivered. What is running or waits to be sent goes on. code selects what stands for
// this reason; "" is all. It returns [store.ErrNotFound], [ErrEnded] when there is nothing to dismiss, or a wrapped error of the store.
func (q *Queue) Dismiss(ctx context.Context, actor, orgID, id, code string) error {
	return q.do(ctx, "dismiss what stands", &dismissOp{standingOp{ownOp: ownOp{actor: actor, orgID: orgID, id: id}, code: code}})
}

// ForEachStanding applies [Queue.RetryStanding] or [Queue.Dismiss] to a page of the conversations that [Queue.Conversations] lists
// with the filter and Attention, in order of id, each in a transaction of its own. It returns how many were changed and, when there
// may be more, the last conversation of the page; those that act refuses are passed over. After an error the conversations before
// it stay changed.
func (q *Queue) ForEachStanding(
	ctx context.Context, actor, orgID string, filter ConversationFilter, page store.Page,
	act func(ctx context.Context, actor, orgID, id, code string) error,
) (changed int, last string, err error) {
	filter.Attention, filter.Recent = true, false
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, "", fmt.Errorf("list standing conversations: %w", err)
	}
	text, args := filter.where(`SELECT id FROM conversations WHERE `+laterOfOrganization, []any{orgID, page.After, page.Rows()}, now)
	ids, err := store.ReadRows(ctx, q.db, "list standing conversations", store.ScanValue[string], text+` ORDER BY id LIMIT $3`, args...)
	if err != nil {
		return 0, "", err
	}
	for _, id := range ids {
		switch err := act(ctx, actor, orgID, id, filter.Code); {
		case err == nil:
			changed++
		case !errors.Is(err, ErrEnded) && !errors.Is(err, ErrHandedOver) && !errors.Is(err, store.ErrNotFound):
			return changed, "", err
		}
	}
	if len(ids) == page.Rows() {
		last = ids[len(ids)-1]
	}
	return changed, last, nil
}

// standingOp is an operation on the standing turns of a conversation.
type standingOp struct {
	ownOp

	code string // "" is any
}

type standingTurn struct {
	id, code string
	asks     bool // its request is stored
}

// turns reads the conversation's standing turns, oldest first: those that the operation is about, and the others.
func (op *standingOp) turns(ctx context.Context, s *session) (chosen, others []standingTurn, err error) {
	err = s.tx.Query(ctx, func(row store.Row) error {
		var turn standingTurn
		err := row.Scan(&turn.id, &turn.code, &turn.asks)
		if op.code == "" || op.code == turn.code {
			chosen = append(chosen, turn)
		} else {
			others = append(others, turn)
		}
		return err
	}, `SELECT id, code, request IS NOT NULL FROM turns WHERE conversation_id = $1 AND `+standing+` ORDER BY id`, op.id)
	if err != nil {
		return nil, nil, fmt.Errorf("read standing turns: %w", err)
	}
	return chosen, others, nil
}

type retryStandingOp struct{ standingOp }

func (op *retryStandingOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	if c == nil {
		return nil
	}
	turns, _, err := op.turns(ctx, s)
	turns = slices.DeleteFunc(turns, func(turn standingTurn) bool { return turn.code == codes.Draft })
	switch {
	case err != nil:
		return err
	case len(turns) == 0:
		op.refused = ErrEnded
		return nil
	case c.silent(s.now):
		op.refused = ErrHandedOver
		return nil
	}
	c.people.retriedAt = s.now
	for _, turn := range turns {
		if err := revive(ctx, s, c, turn, 0); err != nil {
			return err
		}
	}
	op.audit(s, "retry")
	return nil
}

type dismissOp struct{ standingOp }

func (op *dismissOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	if c == nil {
		return nil
	}
	turns, others, err := op.turns(ctx, s)
	if err != nil {
		return err
	}
	doubted := c.people.doubtSince != 0 && (op.code == "" || op.code == OutboundDeliveryUnknown)
	shown := doubted || c.attention != "" && (op.code == "" || op.code == c.attention)
	if len(turns) == 0 && !shown {
		op.refused = ErrEnded
		return nil
	}
	for _, turn := range turns {
		s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id = $1`, turn.id)
		s.tx.Queue(1, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3 WHERE id = $1`, turn.id, codeDismissed, s.now)
	}
	if doubted {
		c.people.doubtSince = 0
	}
	if op.code == "" || op.code == c.attention {
		c.attention = ""
		c.stands(newestCode(others))
	}
	c.touch(s.now)
	op.audit(s, "dismiss")
	if c.attention != "" {
		return nil
	}
	c.people.attentionTold = ""
	return s.countUnanswered(ctx, c) // a person has decided that what stood needs no answer
}

// newestCode returns the reason why the newest of the turns stands, "" without any.
func newestCode(turns []standingTurn) string {
	if len(turns) == 0 {
		return ""
	}
	return turns[len(turns)-1].code
}
