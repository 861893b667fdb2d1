package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
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
	draft := q.ring.Seal(text, vault.TurnDraft(lease.OrgID, turnID))
	var newer []string
	op := onTurn(lease, turnID, func(s *session, c *conversationRow, t *turnRow) error {
		c.markUpdated(s.now)
		if len(newer) > 0 {
			s.endTurn(c, t.id, turnEnd{state: TurnSuperseded})
		} else {
			s.endTurn(c, t.id, turnEnd{state: TurnNeedsAttention, code: codes.Draft, draft: draft})
		}
		return nil
	}, openTexts(lease.ConversationID, &newer))
	op.size, op.before, op.after = len(draft), failpoint.BeforeDraftCommit, failpoint.AfterDraftCommit
	return q.do(ctx, "propose", op)
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
	return q.send(ctx, &personMessage{
		actor: actor, orgID: orgID, conversationID: conversationID, parts: q.sealParts(orgID, parts), draftID: draftID, draftCode: code,
	}, key)
}

// DiscardDraft ends a draft without sending it; the customer gets no answer to the texts it was for. It returns [store.ErrNotFound],
// [ErrEnded] as [Queue.SendDraft] does, or a wrapped error of the store.
func (q *Queue) DiscardDraft(ctx context.Context, actor, orgID, conversationID, draftID string) error {
	return q.do(ctx, "discard a draft", onOwn(orgID, conversationID, func(s *session, c *conversationRow) error {
		if err := s.endDraft(c, draftID, codeDismissed); err != nil {
			return err
		}
		s.audit(c, actor, "discard_draft")
		if c.attention != "" {
			return nil
		}
		c.people.reportedAttention = ""
		return s.countUnanswered(c)
	}))
}

// endDraft ends the turn of a pending draft, or refuses with [ErrEnded]. The conversation shows the other standing turns.
func (s *session) endDraft(c *conversationRow, draftID, code string) error {
	turns, err := s.standingTurns(c)
	if err != nil {
		return err
	}
	drafts, others := partition(turns, codes.Draft)
	if !slices.ContainsFunc(drafts, func(turn standingTurn) bool { return turn.id == draftID }) {
		return refusal{ErrEnded}
	}
	s.dismissTurn(draftID, code)
	c.setAttention(newestCode(others))
	c.markUpdated(s.now)
	return nil
}
