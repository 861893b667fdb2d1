package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// SendAsHuman queues what a member of the organization writes to a customer, part by part, and returns the messages as they are
// listed. It doesn't silence the assistant: see [Queue.HandOver]. The caller checks first whether the platform allows it now.
// It returns [store.ErrNotFound], [ErrConversationClosed], [ErrInvalid] without parts, or a wrapped error of the store.
func (q *Queue) SendAsHuman(ctx context.Context, actor, orgID, conversationID string, parts []string) ([]Message, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("send a message: %w: it has no parts", ErrInvalid)
	}
	sent, _, err := q.sendAsHuman(ctx, humanOp{
		ownOp: ownOp{actor: actor, orgID: orgID, id: conversationID}, parts: q.sealParts(orgID, parts),
	}, nil)
	return sent, err
}

// ownOp is an operation of an organization on one of its conversations.
type ownOp struct {
	actor, orgID, id string

	refused error
}

func (op *ownOp) refusal() error { return op.refused }

func (op *ownOp) conversation() string { return op.id }

// own returns the conversation, or refuses.
func (op *ownOp) own(s *session) *conversationRow {
	op.refused = nil
	c := s.rows[op.id]
	if c == nil || c.deleted || c.orgID != op.orgID {
		op.refused = store.ErrNotFound
		return nil
	}
	return c
}

// open is own for operations that need a customer who hasn't blocked the channel.
func (op *ownOp) open(s *session) *conversationRow {
	c := op.own(s)
	if c != nil && c.state == StateClosed {
		op.refused = ErrConversationClosed
		return nil
	}
	return c
}

func (op *ownOp) audit(s *session, action string) {
	store.QueueAudit(s.tx, store.AuditEntry{
		At: s.now, Actor: op.actor, Action: "conversation." + action, Target: op.id, OrgID: op.orgID,
	})
}

type humanOp struct {
	ownOp

	parts []outboundPart
	// draftID is the draft that the message was made of, "" for none, and draftCode how that ends.
	draftID, draftCode string
	at                 int64
}

func (op *humanOp) run(ctx context.Context, s *session) error {
	c := op.open(s)
	if c == nil {
		return nil
	}
	if op.draftID != "" {
		if ended, err := op.endDraft(ctx, s, c); err != nil || !ended {
			return err
		}
	}
	if op.parts[0].template != nil {
		if err := op.resolveByTemplate(ctx, s, c); err != nil {
			return err
		}
	}
	c.people.attentionTold = ""
	s.endMedia(c)
	s.dropLastWords(c)
	op.at = s.queueParts(c, sql.NullString{}, AuthorHuman, op.parts)
	op.audit(s, "send")
	c.runBy(s.now)
	return nil
}

// messages returns the parts as they are listed.
func (op *humanOp) messages() []Message {
	sent := make([]Message, len(op.parts))
	for i, part := range op.parts {
		sent[i] = Message{
			ID: part.id, Author: AuthorHuman, Kind: KindText, Text: part.text, State: part.state, At: op.at,
		}
		switch {
		case part.template != nil:
			sent[i].Kind = KindTemplate
		case part.fileID != "":
			sent[i].Kind = KindEvent
		}
	}
	return sent
}

// HandOver gives an organization's conversation to a person: unsent answers are discarded, and the customer waits for the person.
// What the customer has written and writes is not answered until [Queue.HandBack]. It returns [store.ErrNotFound],
// [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandOver(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "hand over", &handOverOp{ownOp: ownOp{actor: actor, orgID: orgID, id: id}})
}

type handOverOp struct {
	ownOp

	unsent bool // a part of an answer has not been sent
}

func (op *handOverOp) read(s *session) {
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.unsent) }, `SELECT EXISTS (SELECT 1 FROM outbound_messages
		WHERE `+unsentOf+` AND author = 'assistant')`, op.id)
}

func (op *handOverOp) run(_ context.Context, s *session) error {
	c := op.open(s)
	if c == nil || c.state == StateHuman {
		return nil
	}
	c.handOver(HandoverPerson)
	s.discard(c, codeHandedOver)
	if op.unsent {
		c.asked(s.now)
	}
	op.audit(s, "hand_over")
	return nil
}

// HandBack gives an organization's conversation back to the assistant, which answers in one reply what the customer has written since the
// last message of the business; older than 24 hours, it stands with [codes.TooOld]. HandBack also ends a pause. It returns
// [store.ErrNotFound], [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandBack(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "hand back", &handBackOp{ownOp{actor: actor, orgID: orgID, id: id}})
}

type handBackOp struct{ ownOp }

func (op *handBackOp) run(ctx context.Context, s *session) error {
	c := op.open(s)
	if c == nil || !c.silent(s.now) {
		return nil
	}
	c.state, c.pausedUntil, c.people.attentionTold = StateAssistant, 0, ""
	c.touch(s.now)
	op.audit(s, "hand_back")
	return s.giveBack(ctx, c)
}

// DeleteConversation deletes an organization's conversation with all its messages, which is everything that is stored about the customer.
// Hashes of the messages' ids stay for 7 days, so that a platform that repeats one of them doesn't bring it back. A worker that has the
// conversation stores nothing more. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) DeleteConversation(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "delete a conversation", &deleteOp{ownOp{actor: actor, orgID: orgID, id: id}})
}

type deleteOp struct{ ownOp }

func (op *deleteOp) run(ctx context.Context, s *session) error {
	c := op.own(s)
	if c == nil {
		return nil
	}
	if err := bury(ctx, s, c, math.MaxInt64); err != nil {
		return err
	}
	keepSpend(s, c)
	for _, text := range []string{
		`DELETE FROM outbound_messages WHERE conversation_id = $1`,
		`DELETE FROM messages WHERE conversation_id = $1`,
		`DELETE FROM turns WHERE conversation_id = $1`,
		`DELETE FROM conversations WHERE id = $1`,
	} {
		s.tx.Queue(store.AnyRows, text, c.id)
	}
	c.deleted = true
	op.audit(s, "delete")
	return nil
}
