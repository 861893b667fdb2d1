package inbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// sendKeyLife is how long a [SendKey] counts.
const sendKeyLife = 24 * time.Hour

// ErrKeyReused means that the key was used with other content within the last 24 hours. The first request keeps it.
var ErrKeyReused = errors.New("inbox: the key was used with other content")

// SendKey makes the repetition of a person's message harmless: within an organization and 24 hours, messages with equal keys and
// fingerprints are one.
type SendKey struct {
	// Hash is the SHA-256 of the client's key, Fingerprint that of the content and its conversation.
	Hash, Fingerprint [sha256.Size]byte
}

// personMessage is a message that a member of an organization sends to a customer.
type personMessage struct {
	actor, orgID, conversationID string
	parts                        []outboundPart
	// draftID is the draft that the message was made of, and draftCode the code with which the draft's turn ends. Empty means no draft.
	draftID, draftCode string
}

// SendAsHuman queues the message that a member of the organization writes to a customer, part by part, and returns the messages as they are
// listed. It doesn't silence the assistant: see [Queue.HandOver]. The caller checks first whether the platform allows it now. It returns
// [store.ErrNotFound], [ErrConversationClosed], [ErrInvalid] without parts, or a wrapped error of the store.
func (q *Queue) SendAsHuman(ctx context.Context, actor, orgID, conversationID string, parts []string) ([]Message, error) {
	sent, _, err := q.sendTexts(ctx, actor, orgID, conversationID, parts, nil)
	return sent, err
}

// SendKeyed is [Queue.SendAsHuman] with a key. If the same was sent under the key before, it sends nothing and returns those messages
// in their current state; replayed says so. It also returns [ErrKeyReused].
func (q *Queue) SendKeyed(
	ctx context.Context, actor, orgID, conversationID string, parts []string, key SendKey,
) (sent []Message, replayed bool, err error) {
	return q.sendTexts(ctx, actor, orgID, conversationID, parts, &key)
}

func (q *Queue) sendTexts(
	ctx context.Context, actor, orgID, conversationID string, parts []string, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if len(parts) == 0 {
		return nil, false, fmt.Errorf("send a message: %w: it has no parts", ErrInvalid)
	}
	return q.send(ctx, &personMessage{actor: actor, orgID: orgID, conversationID: conversationID, parts: q.sealParts(orgID, parts)}, key)
}

// SendFile stores a file of 1 to [media.MaxBytes] bytes, queues it as a message that a member of the organization sends to a customer, and
// returns the message as it is listed. A repetition with the same key sends nothing; A nil key means none. Errors are as in
// [Queue.SendKeyed], also [media.ErrFull], [media.ErrBusy], and [ErrInvalid] for a file of another size.
func (q *Queue) SendFile(
	ctx context.Context, actor, orgID, conversationID string, file *media.Upload, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if len(file.Content) == 0 || len(file.Content) > media.MaxBytes {
		return nil, false, fmt.Errorf("send a file: %w: it has %d bytes", ErrInvalid, len(file.Content))
	}
	kept, err := q.files.Keep(ctx, orgID, file)
	if err != nil {
		return nil, false, err
	}
	parts := q.sealParts(orgID, []string{file.Kind})
	parts[0].fileID = kept.ID
	sent, replayed, err = q.send(ctx, &personMessage{actor: actor, orgID: orgID, conversationID: conversationID, parts: parts}, key)
	if err == nil && !replayed {
		sent[0].Files = []media.File{kept}
	}
	return sent, replayed, err
}

// SendTemplate queues a template that a member of the organization sends to a customer, and returns the message as it is listed: text is
// the template's with its variables filled in, template the form that the worker sends ([Outbound.Template]). It ends an attention that
// requires a template, or another one. A nil key means none. Errors are as in [Queue.SendKeyed], and [ErrInvalid] without a text or a
// template.
func (q *Queue) SendTemplate(
	ctx context.Context, actor, orgID, conversationID, text string, template []byte, key *SendKey,
) (sent []Message, replayed bool, err error) {
	if text == "" || len(template) == 0 {
		return nil, false, fmt.Errorf("send a template: %w: it has no text or no template", ErrInvalid)
	}
	parts := q.sealParts(orgID, []string{text})
	parts[0].template = q.ring.Seal(template, vault.OutboundTemplate(orgID, parts[0].id))
	return q.send(ctx, &personMessage{actor: actor, orgID: orgID, conversationID: conversationID, parts: parts}, key)
}

// send queues a person's message unless its key was used.
func (q *Queue) send(ctx context.Context, m *personMessage, key *SendKey) (sent []Message, replayed bool, err error) {
	var before []string // the ids of the messages that were sent under the key
	var at int64
	op := onOwn(m.orgID, m.conversationID, func(s *session, c *conversationRow) (err error) {
		before = nil
		if key != nil {
			if before, err = key.find(s, m.orgID); err != nil || before != nil {
				return err
			}
		}
		if at, err = s.send(c, m); err == nil && key != nil {
			key.store(s, m)
		}
		return err
	})
	for range enqueueTries { // another process may use the key at this moment
		if err = q.do(ctx, "send a message", op); key == nil || !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	switch {
	case err != nil:
		return nil, false, err
	case before != nil:
		sent, err = q.sentMessages(ctx, m.orgID, before)
		return sent, true, err
	}
	for _, part := range m.parts {
		kind := KindText
		if part.template != nil {
			kind = KindTemplate
		} else if part.fileID != "" {
			kind = KindEvent
		}
		sent = append(sent, Message{ID: part.id, Author: AuthorHuman, Kind: kind, Text: part.text, State: part.state, At: at, placedAt: at})
	}
	return sent, false, nil
}

// codesOfTemplates are the attentions that a template resolves.
var codesOfTemplates = []string{string(errcode.TemplateRequired), codes.TemplatePaused, codes.TemplateRefused}

// send stores a person's message and returns its time.
func (s *session) send(c *conversationRow, m *personMessage) (at int64, err error) {
	if c.state == StateClosed {
		return 0, refusal{ErrConversationClosed}
	}
	if m.draftID != "" {
		if err := s.endDraft(c, m.draftID, m.draftCode); err != nil {
			return 0, err
		}
	}
	if m.parts[0].template != nil && slices.Contains(codesOfTemplates, c.attention) {
		turns, err := s.standingTurns(c)
		if err != nil {
			return 0, err
		}
		c.setAttention(newestCode(turns))
	}
	c.people.reportedAttention = ""
	s.endMedia(c)
	if c.state == StateHuman { // unsent last words of the assistant are discarded, but not a part that a person had sent again
		s.tx.Queue(store.AnyRows, discardParts+` AND resends = 0`, c.id, codeHandedOver, s.now)
	}
	at = s.queueParts(c, sql.NullString{}, AuthorHuman, m.parts)
	s.audit(c, m.actor, "send")
	c.runBy(s.now)
	return at, nil
}

// endMedia ends the attention and the standing turn of messages without text, because a person has answered.
func (s *session) endMedia(c *conversationRow) {
	if c.attention != codes.Media {
		return
	}
	c.setAttention("")
	s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state = 'needs_attention' AND code = $2)`, c.id, codes.Media)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3
		WHERE conversation_id = $1 AND state = 'needs_attention' AND code = $4`, c.id, codeHandedOver, s.now, codes.Media)
}

// keyUse is the use of a key.
type keyUse struct {
	Fingerprint []byte
	MessageIDs  string
}

const selectKey = `SELECT fingerprint, message_ids FROM message_keys WHERE org_id = $1 AND key_hash = $2 AND created_at > $3`

// messageIDs returns the ids of the messages that were sent under the key, nil if it wasn't used. It returns [ErrKeyReused] for other
// content.
func (k *SendKey) messageIDs(uses []keyUse) ([]string, error) {
	switch {
	case len(uses) == 0:
		return nil, nil
	case !bytes.Equal(uses[0].Fingerprint, k.Fingerprint[:]):
		return nil, ErrKeyReused
	}
	return strings.Fields(uses[0].MessageIDs), nil
}

// find looks for an earlier use of the key in a transaction.
func (k *SendKey) find(s *session, orgID string) ([]string, error) {
	uses, err := store.QueryRows(s.ctx, s.tx, store.ScanFields[keyUse](), selectKey, orgID, k.Hash[:], s.now-sendKeyLife.Milliseconds())
	if err != nil {
		return nil, err
	}
	ids, err := k.messageIDs(uses)
	if err != nil {
		return nil, refusal{err}
	}
	return ids, nil
}

// store records that a message was sent under the key, which may have been used long ago.
func (k *SendKey) store(s *session, m *personMessage) {
	ids := store.Column(m.parts, func(part outboundPart) string { return part.id })
	s.tx.Queue(store.AnyRows, `DELETE FROM message_keys WHERE org_id = $1 AND key_hash = $2 AND created_at <= $3`,
		m.orgID, k.Hash[:], s.now-sendKeyLife.Milliseconds())
	s.tx.Queue(store.AnyRows, `INSERT INTO message_keys (org_id, key_hash, fingerprint, message_ids, created_at)
		VALUES ($1, $2, $3, $4, $5)`, m.orgID, k.Hash[:], k.Fingerprint[:], strings.Join(ids, " "), s.now)
}

// SentUnder returns the messages that [Queue.SendKeyed] would return without sending anything, none if the key wasn't used. It
// returns [ErrKeyReused] or a wrapped error of the store.
func (q *Queue) SentUnder(ctx context.Context, orgID string, key SendKey) ([]Message, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for a message's key: %w", err)
	}
	uses, err := store.ReadRows(ctx, q.db, "look for a message's key", store.ScanFields[keyUse](),
		selectKey, orgID, key.Hash[:], now-sendKeyLife.Milliseconds())
	if err != nil {
		return nil, err
	}
	ids, err := key.messageIDs(uses)
	if err != nil || ids == nil {
		return nil, err
	}
	return q.sentMessages(ctx, orgID, ids)
}

var selectSentMessages = listSizes.Statement(`SELECT `+outboundColumns+` WHERE org_id = $1 AND id IN {list}`, 1, 1)

// sentMessages reads outgoing messages in the order of their ids.
func (q *Queue) sentMessages(ctx context.Context, orgID string, ids []string) ([]Message, error) {
	if _, err := q.loadIDs(ctx, false); err != nil {
		return nil, err
	}
	var sent []Message
	err := store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		read, err := store.ReadRows(ctx, q.db, "read sent messages", q.scanMessage(vault.OutboundBody),
			selectSentMessages[size], store.Arguments(piece, any(orgID))...)
		sent = append(sent, read...)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(sent, Message.before)
	return q.withFiles(ctx, orgID, sent)
}

// Codes of discarded turns after a person has sent the draft, unchanged or changed.
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
// stands like other turns until a person sends or discards it, or the customer's next text makes it stale. When newer texts wait already,
// the draft is immediately stale: they wait together with the turn's texts, for the next draft. Errors are as in [Queue.Answer].
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

// RecentRequests counts the turns of the leased conversation that called a model within [RequestWindow]. It replaces [Work.RecentReplies]
// where answers become drafts.
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

const selectDraft = `SELECT id, draft, updated_at FROM turns
	WHERE conversation_id = $1 AND org_id = $2 AND state = 'needs_attention' AND code = '` + codes.Draft + `'`

// Drafts reads the draft that waits in an organization's conversation: one, or none. It returns [store.ErrNotFound] when the
// organization has no such conversation, or a wrapped error of the store.
func (q *Queue) Drafts(ctx context.Context, orgID, conversationID string) ([]Draft, error) {
	if _, err := q.Conversation(ctx, orgID, conversationID); err != nil {
		return nil, err
	}
	return store.ReadRows(ctx, q.db, "read a draft", func(row store.Row) (Draft, error) {
		var id string
		var sealed []byte
		var createdAt int64
		if err := row.Scan(&id, &sealed, &createdAt); err != nil {
			return Draft{}, err
		}
		draft := q.openedDraft(sealed, orgID, id)
		draft.CreatedAt = createdAt
		return draft, nil
	}, selectDraft, conversationID, orgID)
}

// openedDraft opens a draft. One that doesn't open has [UnreadableText].
func (q *Queue) openedDraft(sealed []byte, orgID, turnID string) Draft {
	draft := Draft{ID: turnID}
	text, err := q.ring.Open(sealed, vault.TurnDraft(orgID, turnID))
	if err == nil {
		err = json.Unmarshal(text, &draft.Parts)
	}
	if err != nil {
		q.unreadable("the draft of turn "+turnID, err)
		draft.Parts, draft.Unreadable = []string{UnreadableText}, true
	}
	return draft
}

// SendDraft queues the parts of a draft, as they were proposed or as a person has changed them, as that person's message, and ends its
// turn. A nil key means none. Errors are as in [Queue.SendKeyed], and [ErrEnded] for a draft that was sent, discarded or replaced.
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
	if !slices.ContainsFunc(drafts, func(turn standingTurn) bool { return turn.ID == draftID }) {
		return refusal{ErrEnded}
	}
	s.dismissTurn(draftID, code)
	c.setAttention(newestCode(others))
	c.markUpdated(s.now)
	return nil
}
