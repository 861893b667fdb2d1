package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Codes of discarded turns whose draft a person has sent, as it was or changed.
const (
	codeDraftSent    = "draft_sent"
	codeDraftChanged = "draft_changed"
)

// RequestWindow is how far back [Queue.RecentRequests] looks.
const RequestWindow = LoopWindow

// Draft is an answer of the assistant that waits for a person to send it.
type Draft struct {
	ID    string   // of its turn
	Parts []string // the messages that it is sent as
	// CreatedAt is when it was stored, in epoch milliseconds.
	CreatedAt int64
	// Unreadable: it doesn't open, so that Parts is [UnreadableText].
	Unreadable bool
}

// Text returns the whole draft as people read it.
func (d *Draft) Text() string { return strings.Join(d.Parts, "\n\n") }

// Propose ends a running turn with a draft in place of an answer: nothing is sent, the conversation's attention is [codes.Draft], and it
// stands like other turns until a person sends or discards it, or the customer's next text makes it stale. When newer texts wait
// already, the draft is stale at once: they wait together with those of the turn, for the next draft. Errors are those of
// [Queue.Answer].
func (q *Queue) Propose(ctx context.Context, lease Lease, turnID string, parts []string) error {
	if len(parts) == 0 {
		return fmt.Errorf("propose: %w: the draft has no parts", ErrInvalid)
	}
	text, err := json.Marshal(parts)
	if err != nil {
		return fmt.Errorf("propose: %w", err)
	}
	return q.do(ctx, "propose", &proposeOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: turnID}, draft: q.ring.Seal(text, vault.TurnDraft(lease.OrgID, turnID)),
	})
}

type proposeOp struct {
	turnOp

	draft []byte // sealed
	newer []string
}

// Size implements [store.Sized].
func (op *proposeOp) Size() int { return len(op.draft) }

func (op *proposeOp) read(s *session) {
	op.turnOp.read(s)
	queueOpenTexts(s.tx, op.conversation(), &op.newer)
}

func (op *proposeOp) run(_ context.Context, s *session) error {
	c := op.asking(s)
	if c == nil {
		return nil
	}
	c.touch(s.now)
	if len(op.newer) > 0 {
		op.supersede(s)
		return nil
	}
	op.end(s, TurnNeedsAttention, codes.Draft, sql.NullInt64{})
	s.tx.Queue(1, `UPDATE turns SET draft = $2 WHERE id = $1`, op.turnID, op.draft)
	c.attention = codes.Draft
	return nil
}

// RecentRequests counts the turns of the leased conversation that asked a model within [RequestWindow], at most all that were begun.
// Where answers become drafts it takes the place of [Work.RecentReplies].
func (q *Queue) RecentRequests(ctx context.Context, lease Lease) (turns int, err error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("count recent turns: %w", err)
	}
	return store.ReadRow(ctx, q.db, "count recent turns", store.ScanValue[int],
		`SELECT count(*) FROM turns WHERE conversation_id = $1 AND created_at >= $2
			AND (request IS NOT NULL OR state = 'superseded')`,
		lease.ConversationID, now-RequestWindow.Milliseconds())
}

const selectDraft = `SELECT id, org_id, draft, updated_at FROM turns
	WHERE conversation_id = $1 AND org_id = $2 AND state = 'needs_attention' AND code = '` + codes.Draft + `'`

// Drafts reads the draft that waits in an organization's conversation: one, or none. It returns [store.ErrNotFound] when the
// organization has no such conversation, or a wrapped error of the store.
func (q *Queue) Drafts(ctx context.Context, orgID, conversationID string) ([]Draft, error) {
	if _, err := q.Conversation(ctx, orgID, conversationID); err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, q.db, "read a draft", q.scanDraft, selectDraft, conversationID, orgID)
}

func (q *Queue) scanDraft(row store.Row) (Draft, error) {
	var id, orgID string
	var sealed []byte
	var createdAt int64
	if err := row.Scan(&id, &orgID, &sealed, &createdAt); err != nil {
		return Draft{}, err
	}
	draft := q.openedDraft(sealed, orgID, id)
	draft.CreatedAt = createdAt
	return draft, nil
}

// openedDraft opens a draft. One that doesn't open has [UnreadableText].
func (q *Queue) openedDraft(sealed []byte, orgID, turnID string) Draft {
	parts, err := q.openDraft(sealed, orgID, turnID)
	if err != nil {
		q.unreadable("the draft of turn "+turnID, err)
		return Draft{ID: turnID, Parts: []string{UnreadableText}, Unreadable: true}
	}
	return Draft{ID: turnID, Parts: parts}
}

func (q *Queue) openDraft(sealed []byte, orgID, turnID string) (parts []string, err error) {
	text, err := q.ring.Open(sealed, vault.TurnDraft(orgID, turnID))
	if err != nil {
		return nil, fmt.Errorf("open a draft: %w", err)
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, fmt.Errorf("read a draft: %w", err)
	}
	return parts, nil
}

// SendDraft queues the parts of a draft, as they were proposed or as a person has changed them, as that person's message, and ends its
// turn. key is that of [Queue.SendKeyed], nil for none. Errors are those of [Queue.SendKeyed], and [ErrEnded] for a draft that doesn't
// wait any more: it was sent, discarded, or replaced.
func (q *Queue) SendDraft(
	ctx context.Context, actor, orgID, conversationID, draftID string, parts []string, changed bool, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if len(parts) == 0 {
		return nil, false, fmt.Errorf("send a draft: %w: it has no parts", ErrInvalid)
	}
	code := codeDraftSent
	if changed {
		code = codeDraftChanged
	}
	return q.sendAsHuman(ctx, humanOp{
		ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, parts: q.sealParts(orgID, parts),
		draftID: draftID, draftCode: code,
	}, key)
}

// endDraft ends the turn of the draft that the message was made of, or refuses and reports false.
func (op *humanOp) endDraft(ctx context.Context, s *session, c *conversationRow) (ended bool, err error) {
	if ended, err = endDraft(ctx, s, c, op.draftID, op.draftCode); err == nil && !ended {
		op.refused = ErrEnded
	}
	return ended, err
}

// DiscardDraft ends a draft without sending it; the customer gets no answer to what it was about. It returns [store.ErrNotFound],
// [ErrEnded] as [Queue.SendDraft] does, or a wrapped error of the store.
func (q *Queue) DiscardDraft(ctx context.Context, actor, orgID, conversationID, draftID string) error {
	return q.do(ctx, "discard a draft", &discardDraftOp{ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, draftID: draftID})
}

type discardDraftOp struct {
	ownOp

	draftID string
}

func (op *discardDraftOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	if c == nil {
		return nil
	}
	if waited, err := endDraft(ctx, s, c, op.draftID, codeDismissed); err != nil || !waited {
		op.refused = ErrEnded
		return err
	}
	op.audit(s, "discard_draft")
	if c.attention != "" {
		return nil
	}
	c.people.attentionTold = ""
	return s.countUnanswered(ctx, c)
}

// endDraft ends the turn of a draft that waits, and reports whether there was one. The conversation shows what else stands.
func endDraft(ctx context.Context, s *session, c *conversationRow, draftID, code string) (waited bool, err error) {
	standing := standingOp{ownOp: ownOp{id: c.id}, code: codes.Draft}
	drafts, others, err := standing.turns(ctx, s)
	if err != nil {
		return false, err
	}
	for _, turn := range drafts {
		waited = waited || turn.id == draftID
	}
	if !waited {
		return false, nil
	}
	s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id = $1`, draftID)
	s.tx.Queue(1, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3 WHERE id = $1`, draftID, code, s.now)
	c.stands(newestCode(others))
	c.touch(s.now)
	return true, nil
}
