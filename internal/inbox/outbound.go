package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Answer ends a running turn with its answer: the parts become outbound messages, in order, and the turn is answered. With
// sendFirst the first part is immediately sending, which saves a commit, unless a person's message waits, which is sent before it, the
// lease ran out, or its paces don't allow it: then Answer returns the parts with a [PacedError]. If a person has taken the conversation
// since, or the customer has blocked the channel, the turn is discarded instead, and Answer returns [ErrHandedOver]. If the channel's
// answers have become drafts since, nothing changes, and Answer returns [ErrDraftMode]. Other errors are [ErrEnded], [ErrLeaseLost],
// [ErrInvalid] without parts, or wrapped ones of the store, after which the answer may be stored: see [Queue.Unmark].
func (q *Queue) Answer(ctx context.Context, lease Lease, turnID string, parts []string, sendFirst bool) ([]Outbound, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("answer: %w: the answer has no parts", ErrInvalid)
	}
	return q.answer(ctx, "answer", lease, turnID, parts, sendFirst, "")
}

// AnswerAndHandOver ends a running turn with the assistant's last words, and gives the conversation to people for a reason, such as
// [HandoverAssistant]; all in one commit. The last words are sent though a person has the conversation, until that person writes in it.
// Without parts nothing is sent, and the turn is discarded. The customer continues to wait for an answer of a person; newer texts are open.
// sendFirst, the result and the errors are as in [Queue.Answer].
func (q *Queue) AnswerAndHandOver(ctx context.Context, lease Lease, turnID, reason string, parts []string, sendFirst bool) ([]Outbound, error) {
	if reason == "" {
		return nil, fmt.Errorf("answer and hand over: %w: it needs a reason", ErrInvalid)
	}
	return q.answer(ctx, "answer and hand over", lease, turnID, parts, sendFirst, reason)
}

// answer ends a running turn with an answer, or with last words if handover isn't empty.
func (q *Queue) answer(
	ctx context.Context, doing string, lease Lease, turnID string, texts []string, sendFirst bool, handover string,
) ([]Outbound, error) {
	parts := q.sealParts(lease.OrgID, texts)
	var personWrote, drafts, newer bool // a person's message waits, the channel's answers are drafts, texts wait for another turn
	var early *PacedError
	var at int64
	op := onTurn(lease, turnID, func(s *session, c *conversationRow, _ *turnRow) error {
		early = nil
		switch {
		case c.silent(s.now):
			s.discard(c, codeHandedOver)
			return refusal{ErrHandedOver}
		case newer && lease.Call != nil && lease.Call.Supersede:
			s.endTurn(c, turnID, turnEnd{state: TurnSuperseded})
			return refusal{ErrSuperseded}
		case drafts && len(parts) > 0:
			return refusal{ErrDraftMode}
		}
		end := turnEnd{state: TurnAnswered, parts: parts, handover: handover}
		if handover != "" {
			end.code = codeHandedOver
		}
		if len(parts) == 0 {
			end.state = TurnDiscarded
		} else {
			parts[0].state = OutboundPending
			if sendFirst && !personWrote && !c.ranOut(s.now) {
				if early = s.takePlace(c, lease.Paces, true); early == nil {
					parts[0].state = OutboundSending
				}
			}
		}
		at = s.endTurn(c, turnID, end)
		return nil
	}, readInto([]any{&personWrote, &drafts, &newer}, `SELECT `+wroteIn+`$1), EXISTS (SELECT 1 FROM channels WHERE id = $2 AND drafts),
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)`, lease.ConversationID, lease.ChannelID))
	for _, part := range parts {
		op.size += len(part.body)
	}
	op.pace = lease.pace(sendFirst)
	if err := q.do(ctx, doing, op); err != nil {
		return nil, err
	}
	outbound := assistantParts(turnID, parts, at)
	if early != nil {
		return outbound, early
	}
	return outbound, nil
}

// assistantParts returns the parts of an answer as they were stored at a time.
func assistantParts(turnID string, parts []outboundPart, at int64) []Outbound {
	outbound := make([]Outbound, len(parts))
	for i, part := range parts {
		outbound[i] = Outbound{
			ID: part.id, TurnID: turnID, Author: AuthorAssistant, Text: part.text, State: part.state, Part: int64(i), CreatedAt: at,
		}
	}
	return outbound
}

// outboundPart is a part as it is written.
type outboundPart struct {
	id, text, state string
	body            []byte // text, sealed
	template        []byte // the template, sealed; nil for a text
	fileID          string // empty means no file
}

// sealParts assigns ids, in order, and seals the texts.
func (q *Queue) sealParts(orgID string, texts []string) []outboundPart {
	parts := make([]outboundPart, len(texts))
	last := ""
	for i, text := range texts {
		last = idAfter("msg", last)
		parts[i] = outboundPart{
			id: last, text: text, state: OutboundPending, body: q.ring.Seal([]byte(text), vault.OutboundBody(orgID, last)),
		}
	}
	return parts
}

const insertOutbound = `INSERT INTO outbound_messages (id, org_id, channel_id, conversation_id, turn_id, part, author, body,
	state, code, platform_message_id, attempts, created_at, updated_at, template, file_id)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, '', '', 0, $10, $11, $12, $13)`

// unsentOf is the condition on the parts of a conversation $1 that aren't sent yet.
const unsentOf = `conversation_id = $1 AND created_at >= (SELECT unsent_since FROM conversations WHERE id = $1)
	AND state IN ('pending', 'sending')`

// queueParts stores new parts and returns their time.
func (s *session) queueParts(c *conversationRow, turnID sql.NullString, author string, parts []outboundPart) (at int64) {
	at = c.position(s.now)
	c.unsentSince = min(c.unsentSince, at)
	for i, part := range parts {
		s.tx.Queue(store.AnyRows, insertOutbound, part.id, c.orgID, c.key.channelID, c.id, turnID, i, author, part.body,
			part.state, at, at, part.template, sql.NullString{String: part.fileID, Valid: part.fileID != ""})
		if part.fileID != "" {
			media.Attach(s.tx, c.orgID, part.fileID, part.id)
		}
	}
	return at
}

// partRow is the outbound message of an operation as it is stored.
type partRow struct {
	id, conversationID              string
	found                           bool
	turnID                          sql.NullString
	turnCode                        string // empty without a turn
	state, code, author, platformID string
	part, resends                   int64
	createdAt, changedAt            int64 // changedAt is when it got its state
	// openSince is when the first open text arrived, of a person's part the first that is younger. 0 means none.
	openSince int64
}

// read reads the row.
func (p *partRow) read(s *session) {
	p.found = false
	s.tx.QueueQuery(func(row store.Row) error {
		p.found = true
		return row.Scan(&p.turnID, &p.turnCode, &p.state, &p.code, &p.author, &p.part, &p.resends, &p.platformID, &p.createdAt,
			&p.changedAt, &p.openSince)
	}, `SELECT turn_id, coalesce((SELECT code FROM turns WHERE id = turn_id), ''), state, code, author, part, resends,
			platform_message_id, created_at, updated_at,
			coalesce((SELECT min(received_at) FROM messages WHERE conversation_id = $2 AND turn_id IS NULL AND NOT handled
				AND (o.author <> 'human' OR received_at > o.created_at)), 0)
		FROM outbound_messages o WHERE id = $1 AND conversation_id = $2`, p.id, p.conversationID)
}

// onPart returns an operation on an outbound message of a leased conversation.
func onPart(lease Lease, id string, run func(s *session, c *conversationRow, p *partRow) error, reads ...func(*session)) *operation {
	p := &partRow{id: id, conversationID: lease.ConversationID}
	return onLease(lease, func(s *session, c *conversationRow) error {
		if !p.found {
			return refusal{ErrEnded}
		}
		return run(s, c, p)
	}, append(reads, p.read)...)
}

const setPart = `UPDATE outbound_messages SET state = $2, code = $3, updated_at = $4 WHERE id = $1`

// Sending marks a pending part as sending, which must be durable before the platform is called. A part of the assistant's is
// discarded instead when a person has the conversation, unless a person had it sent again or it belongs to the assistant's last words
// ([Queue.AnswerAndHandOver]), or when the customer has blocked the channel, and Sending returns [ErrHandedOver]. Other errors are a
// [PacedError] when the lease's paces don't allow it, [ErrEnded] for a part that isn't pending, [ErrLeaseLost], also for a lease that ran
// out, or wrapped ones of the store, after which the part may be sending, and must not be sent: see [Queue.Unmark].
func (q *Queue) Sending(ctx context.Context, lease Lease, outboundID string) error {
	op := onPart(lease, outboundID, func(s *session, c *conversationRow, p *partRow) error { return s.markSending(c, p, lease.Paces, false) })
	op.pace = lease.pace(true)
	return q.do(ctx, "mark a part as sending", op)
}

// markSending marks a part, if that isn't too early. first is set for a part that hasn't waited. The code of a part that was reported to
// people stays until it is sent.
func (s *session) markSending(c *conversationRow, p *partRow, paces Paces, first bool) error {
	switch p.state {
	case OutboundPending:
	case OutboundDiscarded:
		return refusal{ErrHandedOver}
	default:
		return refusal{ErrEnded}
	}
	silenced, err := s.silenced(c, p)
	if err != nil {
		return err
	}
	if silenced {
		s.discardPart(c, p)
		return refusal{ErrHandedOver}
	}
	if c.ranOut(s.now) {
		return refusal{ErrLeaseLost}
	}
	if early := s.takePlace(c, paces, first); early != nil {
		return refusal{early}
	}
	s.tx.Queue(1, setPart, p.id, OutboundSending, p.reportedCode(), s.now)
	return nil
}

// silenced reports whether the part may not be sent any longer: it is the assistant's, who may not write now, and neither its last words nor
// a part that a person had sent again.
func (s *session) silenced(c *conversationRow, p *partRow) (bool, error) {
	if p.author != AuthorAssistant || !c.silent(s.now) || p.resends > 0 {
		return false, nil
	}
	if c.state != StateHuman || c.blockedAt != 0 || !p.turnID.Valid {
		return true, nil
	}
	lastWords := false
	err := s.value("read a part's turn", &lastWords,
		`SELECT EXISTS (SELECT 1 FROM turns WHERE id = $1 AND state = 'answered' AND code = $2)`, p.turnID, codeHandedOver)
	return !lastWords, err
}

// reportedCode returns the code of a part that people know to be late, and otherwise an empty one.
func (p *partRow) reportedCode() string {
	if p.code == codes.SendFailed {
		return p.code
	}
	return ""
}

// Sent stores that the platform has accepted a part, and under which id. next, unless empty, is a pending part to mark as sending
// in the same commit; if that may not be sent any longer, the first part is stored all the same and Sent returns the error of
// [Queue.Sending]. Errors are [ErrEnded] for a part that isn't sending, [ErrLeaseLost] (the part was sent, and is or
// becomes delivery_unknown), or wrapped ones of the store, after which it may be repeated.
func (q *Queue) Sent(ctx context.Context, lease Lease, outboundID, platformMessageID, next string) error {
	ids, err := q.loadIDs(ctx, true)
	if err != nil {
		return fmt.Errorf("mark a part as sent: %w", err)
	}
	platformID := ids.seal(platformMessageID, vault.PlatformMessageID(lease.OrgID))
	following := &partRow{id: next, conversationID: lease.ConversationID}
	var reads []func(*session)
	if next != "" {
		reads = append(reads, following.read)
	}
	op := onPart(lease, outboundID, func(s *session, c *conversationRow, p *partRow) error {
		repeated, err := s.markSent(c, p, platformID)
		switch {
		case err != nil, next == "", repeated && following.state == OutboundSending:
			return err
		case !following.found:
			return refusal{ErrEnded}
		}
		return s.markSending(c, following, lease.Paces, true)
	}, reads...)
	op.pace = lease.pace(next != "")
	return q.do(ctx, "mark a part as sent", op)
}

// markSent marks a part that is sending as sent, under the platform's sealed id. repeated reports that it was before: the first commit wasn't
// confirmed.
func (s *session) markSent(c *conversationRow, p *partRow, platformID string) (repeated bool, err error) {
	if p.state != OutboundSending {
		if p.state == OutboundSent && p.platformID == platformID {
			return true, nil
		}
		return false, refusal{ErrEnded}
	}
	s.tx.Queue(1, `UPDATE outbound_messages SET state = 'sent', code = '', platform_message_id = $1, updated_at = $2
		WHERE id = $3`, platformID, s.now, p.id)
	c.attempts = 0
	if p.resends > 0 && c.state == StateClosed {
		c.state = StateAssistant
	}
	c.markUpdated(s.now)
	s.recordDelivery(c, p)
	if c.attention != string(errcode.ChannelNeedsReauth) && (c.attention != codes.SendFailed || p.code != codes.SendFailed) {
		return false, nil
	}
	stands := false // otherwise this ends the attention of parts that waited for their channel or their platform
	err = s.value("look for standing turns", &stands,
		`SELECT EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state = 'needs_attention')`, c.id)
	if err == nil && !stands {
		c.setAttention("")
	}
	return false, err
}

// SentAndRelease is [Queue.Sent] for the last part of an answer, and [Queue.Release], in one commit: after it the lease has ended.
// Errors are [ErrEnded] for a part that isn't sending, and [ErrLeaseLost]; both leave the lease as it is. After a wrapped error of
// the store it may be repeated.
func (q *Queue) SentAndRelease(ctx context.Context, lease Lease, outboundID, platformMessageID string) error {
	ids, err := q.loadIDs(ctx, true)
	if err != nil {
		return fmt.Errorf("mark the last part as sent: %w", err)
	}
	platformID := ids.seal(platformMessageID, vault.PlatformMessageID(lease.OrgID))
	var left workLeft
	op := onPart(lease, outboundID, func(s *session, c *conversationRow, p *partRow) error {
		_, err := s.markSent(c, p, platformID)
		if err == nil {
			s.release(c, left)
		}
		return err
	}, left.read(lease.ConversationID, outboundID))
	underLease := op.run
	op.run = func(s *session, c *conversationRow) error {
		if c != nil && c.orgID == lease.OrgID && c.leaseUntil == 0 && c.leaseToken == lease.Token {
			done := false // a repetition whose first commit wasn't confirmed: the part is sent and the lease given back
			err := s.value("read a part", &done, `SELECT EXISTS (SELECT 1 FROM outbound_messages
				WHERE id = $1 AND conversation_id = $2 AND state = 'sent' AND platform_message_id = $3)`, outboundID, c.id, platformID)
			if done || err != nil {
				return err
			}
		}
		return underLease(s, c)
	}
	return q.do(ctx, "mark the last part as sent", op)
}

// SendFailure selects the other consequences of a failed send.
type SendFailure struct {
	// CloseConversation: the customer has blocked the channel, unless they have written since the part was marked as sending. The
	// assistant's unsent parts are discarded, and the customer's open texts closed.
	CloseConversation bool
	// Uncounted: the try doesn't count, because the platform accepts no messages now.
	Uncounted bool
	// RestOfTurn: the later parts of the same answer fail with the same code.
	RestOfTurn bool
	// HoldChannel and HoldCustomer are for how long the platform accepts nothing more on the channel, or for this customer. Until then
	// no part is marked as sending, in any process.
	HoldChannel, HoldCustomer time.Duration
}

// SendFailed stores that a part was not sent, or may not have been: state is pending (to be tried again: give the conversation
// back with [Queue.Backoff] or [Queue.Postpone]), failed or delivery_unknown. code is the reason, of a pending part the reason for its wait,
// which may be empty. A part that is still pending after 15 minutes, without a pause by the platform, gets the code
// [codes.SendFailed] until it is sent. A part that would be pending is discarded instead where [Queue.Sending] would discard it: given back
// later, the conversation would continue with half of an old answer. SendFailed returns [ErrEnded] for a part that is neither pending nor
// sending, [ErrLeaseLost], [ErrInvalid] for another state, or a wrapped error of the store.
func (q *Queue) SendFailed(ctx context.Context, lease Lease, outboundID, state, code string, o SendFailure) error {
	if state != OutboundPending && state != OutboundFailed && state != OutboundDeliveryUnknown {
		return fmt.Errorf("mark a part as %s: %w: not a state of a failed send", state, ErrInvalid)
	}
	// When the customer's last message arrived, and when the last pause of the channel ends that the platform has demanded.
	var wroteLast, heldUntil int64
	op := onPart(lease, outboundID, func(s *session, c *conversationRow, p *partRow) error {
		s.hold(c, lease.Paces, o)
		if p.state != OutboundPending && p.state != OutboundSending {
			return refusal{ErrEnded}
		}
		if state == OutboundPending {
			silenced, err := s.silenced(c, p)
			if err != nil {
				return err
			}
			if silenced {
				s.discardPart(c, p)
				c.markUpdated(s.now)
				return nil
			}
		}
		stored := code
		if stored == "" && state == OutboundPending {
			stored = p.reportedCode()
			demanded := o.HoldChannel > 0 || o.HoldCustomer > 0 || o.Uncounted
			if !demanded && s.now-max(p.createdAt, heldUntil) >= alarmAfter.Milliseconds() {
				stored = codes.SendFailed
			}
		}
		ends := o
		ends.CloseConversation = o.CloseConversation && wroteLast <= p.changedAt
		s.failPart(c, p, state, stored, ends)
		return nil
	}, readInto([]any{&wroteLast, &heldUntil}, `SELECT `+wroteAt+`,
		coalesce((SELECT closed_until FROM channel_paces WHERE org_id = outbound_messages.org_id AND channel_id = $2), 0)
		FROM outbound_messages WHERE id = $1`, outboundID, lease.ChannelID))
	op.pace = lease.pace(o.HoldChannel > 0)
	return q.do(ctx, "mark a part as "+state, op)
}

// alarmAfter is the time after which a part that waits to be sent is reported to people.
const alarmAfter = 15 * time.Minute

// failPart stores a part's new state and what ends with it.
func (s *session) failPart(c *conversationRow, p *partRow, state, code string, o SendFailure) {
	counted := 1
	if o.Uncounted {
		counted = 0
	}
	s.tx.Queue(1, `UPDATE outbound_messages SET state = $2, code = $3, attempts = attempts + $5, updated_at = $4
		WHERE id = $1`, p.id, state, code, s.now, counted)
	if o.RestOfTurn && p.turnID.Valid {
		s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'failed', code = $3, updated_at = $4
			WHERE turn_id = $1 AND part > $2 AND state = 'pending'`, p.turnID, p.part, code, s.now)
	}
	if o.CloseConversation {
		s.close(c, cmp.Or(code, codes.CustomerBlocked))
	}
	if state != OutboundPending || code != "" {
		c.attention = cmp.Or(code, state)
	}
	if state == OutboundDeliveryUnknown {
		c.people.unknownSince = s.now
		s.recordDelivery(c, p)
	}
	c.markUpdated(s.now)
}

// Unmark makes the part of a leased conversation that is sending pending again. The caller must not have called the platform for it,
// because the commit that marked it wasn't confirmed. called is a part for which the platform was called, and which stays as it is; empty
// means none. It may be repeated. It returns [ErrLeaseLost] or a wrapped error of the store.
func (q *Queue) Unmark(ctx context.Context, lease Lease, called string) error {
	return q.do(ctx, "make a part pending again", onLease(lease, func(s *session, c *conversationRow) error {
		s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'pending', updated_at = $3
			WHERE `+unsentOf+` AND state = 'sending' AND id <> $2`, c.id, called, s.now)
		return nil
	}))
}

// ErrMayArriveTwice means that the customer may already have the message, and the caller hasn't accepted that it arrives twice.
var ErrMayArriveTwice = errors.New("inbox: the message may arrive twice")

// resend makes a part pending as if it were new, except for its mark ([Outbound.Mark]). With the platform's id of the last try, late reports
// of that try would count for the next one.
const resend = `UPDATE outbound_messages SET state = 'pending', code = '', platform_message_id = '', attempts = 0,
	resends = resends + 1, updated_at = $2`

// Resend queues a part that failed, or of unknown delivery, on a person's request, with the later parts of the same answer that failed
// without having been tried. They are sent even while a person has the conversation. mayArriveTwice says that the person accepts that the
// customer may get a part twice, which only one of unknown delivery needs. The caller checks first whether the platform accepts the message
// now. In a closed conversation they are also sent: customers unblock a channel silently, and if the platform accepts a part, the
// conversation is open again.
//
// It returns [store.ErrNotFound], [ErrEnded] for a part in another state, [ErrMayArriveTwice], or a wrapped error of the store.
func (q *Queue) Resend(ctx context.Context, actor, orgID, conversationID, messageID string, mayArriveTwice bool) error {
	return q.do(ctx, "send a message again", onOwn(orgID, conversationID, func(s *session, c *conversationRow) error {
		var state string
		var turnID sql.NullString
		var number, createdAt int64
		err := s.query("read a message", func(row store.Row) error { return row.Scan(&state, &turnID, &number, &createdAt) },
			`SELECT state, turn_id, part, created_at FROM outbound_messages WHERE id = $1 AND conversation_id = $2`, messageID, c.id)
		switch {
		case err != nil:
			return err
		case state == "":
			return refusal{store.ErrNotFound}
		case state != OutboundFailed && state != OutboundDeliveryUnknown:
			return refusal{ErrEnded}
		case state == OutboundDeliveryUnknown && !mayArriveTwice:
			return refusal{ErrMayArriveTwice}
		}
		c.unsentSince = min(c.unsentSince, createdAt) // that of all parts of an answer
		s.tx.Queue(1, resend+` WHERE id = $1`, messageID, s.now)
		if turnID.Valid {
			s.tx.Queue(store.AnyRows, resend+` WHERE turn_id = $1 AND part > $3 AND state = 'failed' AND attempts = 0`, turnID, s.now, number)
		}
		turns, err := s.standingTurns(c)
		if err != nil {
			return err
		}
		c.acknowledge(newestCode(turns))
		c.runBy(s.now)
		c.markUpdated(s.now)
		store.QueueAudit(s.tx, store.AuditEntry{
			At: s.now, Actor: actor, Action: "message.resend", Target: messageID, OrgID: orgID, Detail: c.id,
		})
		return nil
	}))
}
