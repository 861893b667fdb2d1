package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Answer ends a running turn with its answer: the parts become outbound messages, in order, and the turn is answered. With
// sendFirst the first part is sending at once, which saves a commit, unless a person's message waits, which is sent before it, or the
// lease's paces don't let it: then Answer returns the parts with a [PacedError]. When a person has taken the conversation meanwhile, or
// the customer has blocked the channel, the turn is discarded instead, and Answer returns [ErrHandedOver]. When the channel's answers
// have become drafts meanwhile, nothing changes, and Answer returns [ErrDraftMode]. Other errors are [ErrEnded], [ErrLeaseLost],
// [ErrInvalid] without parts, or wrapped ones of the store, after which the answer may be stored: see [Queue.Unmark].
func (q *Queue) Answer(ctx context.Context, lease Lease, turnID string, parts []string, sendFirst bool) ([]Outbound, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("answer: %w: the answer has no parts", ErrInvalid)
	}
	op := q.answer(lease, turnID, parts, sendFirst)
	if err := q.do(ctx, "answer", &op); err != nil {
		return nil, err
	}
	return op.outbound()
}

func (q *Queue) answer(lease Lease, turnID string, parts []string, sendFirst bool) answerOp {
	return answerOp{
		turnOp: turnOp{leased: leased{lease: lease}, turnID: turnID},
		parts:  q.sealParts(lease.OrgID, parts), sendFirst: sendFirst,
	}
}

// outbound returns the parts as they were stored, with a [PacedError] when it is too early for the first.
func (op *answerOp) outbound() ([]Outbound, error) {
	outbound := assistantParts(op.turnID, op.parts, op.at)
	if op.early != nil {
		return outbound, op.early
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
	fileID          string // the file; "" for none
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
	at = c.place(s.now)
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

type answerOp struct {
	turnOp

	parts       []outboundPart
	sendFirst   bool
	personWrote bool // a person's message waits
	drafts      bool // the channel's answers are drafts
	newer       bool // texts wait for another turn
	early       *PacedError
	at          int64
}

func (op *answerOp) read(s *session) {
	op.turnOp.read(s)
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.personWrote, &op.drafts, &op.newer) },
		`SELECT `+personWrote+`, EXISTS (SELECT 1 FROM channels WHERE id = $2 AND drafts),
			EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)`, op.conversation(), op.lease.ChannelID)
}

// Size implements [store.Sized].
func (op *answerOp) Size() (bytes int) {
	for _, part := range op.parts {
		bytes += len(part.body)
	}
	return bytes
}

func (op *answerOp) run(_ context.Context, s *session) error {
	c := op.answering(s)
	if c == nil {
		return nil
	}
	op.end(s, TurnAnswered, "", sql.NullInt64{})
	op.at = s.queueParts(c, sql.NullString{String: op.turnID, Valid: true}, AuthorAssistant, op.parts)
	c.attempts, c.people.attentionTold = 0, ""
	c.stands("")
	return nil
}

// answering returns the conversation when the answer may be stored, and decides whether its first part is sending at once. Otherwise it
// refuses and returns nil.
func (op *answerOp) answering(s *session) *conversationRow {
	c := op.asking(s)
	if c == nil {
		return nil
	}
	if c.silent(s.now) {
		s.discard(c, codeHandedOver)
		op.refused = ErrHandedOver
		return nil
	}
	op.early = nil
	switch {
	case op.newer && op.lease.Call != nil && op.lease.Call.Supersede:
		op.supersede(s)
		op.refused = ErrSuperseded
		return nil
	case len(op.parts) == 0:
		return c
	case op.drafts:
		op.refused = ErrDraftMode
		return nil
	}
	if op.sendFirst && !op.personWrote {
		op.early = s.inTime(c, op.lease.Paces, true)
	}
	op.parts[0].state = OutboundPending
	if op.sendFirst && !op.personWrote && op.early == nil {
		op.parts[0].state = OutboundSending
	}
	return c
}

// Sending marks a pending part as sending, which must be durable before the platform is called. A part of the assistant's is
// discarded instead when a person has the conversation, unless a person had it sent again or it belongs to the assistant's last words
// ([Queue.AnswerAndHandOver]), or when the customer has blocked the channel, and Sending returns [ErrHandedOver]. Other errors are a
// [PacedError] when the lease's paces don't let it, [ErrEnded] for a part that isn't pending, [ErrLeaseLost], or wrapped ones of the
// store, after which the part may be sending, and must not be sent: see [Queue.Unmark].
func (q *Queue) Sending(ctx context.Context, lease Lease, outboundID string) error {
	return q.do(ctx, "mark a part as sending", &sendingOp{partOp: partOp{leased: leased{lease: lease}, id: outboundID}})
}

// partOp is an operation on an outbound message.
type partOp struct {
	leased

	id string

	found                           bool
	turnID                          sql.NullString
	turnCode                        string // "" without a turn
	state, code, author, platformID string
	part, resends                   int64
	createdAt, changedAt            int64 // changedAt is when it got its state
	// openSince is when the first open text arrived, of a person's part the first that is younger; 0 without any.
	openSince int64
}

const selectPart = `SELECT turn_id, coalesce((SELECT code FROM turns WHERE id = turn_id), ''), state, code, author, part, resends,
		platform_message_id, created_at, updated_at,
		coalesce((SELECT min(received_at) FROM messages WHERE conversation_id = $2 AND turn_id IS NULL AND NOT handled
			AND (o.author <> 'human' OR received_at > o.created_at)), 0)
	FROM outbound_messages o WHERE id = $1 AND conversation_id = $2`

func (op *partOp) read(s *session) {
	op.found = false
	s.tx.QueueQuery(func(row store.Row) error {
		op.found = true
		return row.Scan(&op.turnID, &op.turnCode, &op.state, &op.code, &op.author, &op.part, &op.resends, &op.platformID, &op.createdAt,
			&op.changedAt, &op.openSince)
	}, selectPart, op.id, op.conversation())
}

// holder returns the conversation, or refuses and returns nil when the part isn't there.
func (op *partOp) holder(s *session) *conversationRow {
	c := op.leased.holder(s)
	if c != nil && !op.found {
		op.refused = ErrEnded
		return nil
	}
	return c
}

const setPart = `UPDATE outbound_messages SET state = $2, code = $3, updated_at = $4 WHERE id = $1`

type sendingOp struct {
	partOp

	first bool // the part hasn't waited
}

func (op *sendingOp) run(ctx context.Context, s *session) error {
	c := op.holder(s)
	if c == nil {
		return nil
	}
	if op.state != OutboundPending {
		op.refused = ErrEnded
		if op.state == OutboundDiscarded {
			op.refused = ErrHandedOver
		}
		return nil
	}
	silenced, err := op.silenced(ctx, s, c)
	if err != nil {
		return err
	}
	if silenced {
		op.discard(s, c)
		op.refused = ErrHandedOver
		return nil
	}
	op.mark(s, c)
	return nil
}

// mark marks the part, if it isn't too early. The code of a part that people were told of stays until it is sent.
func (op *sendingOp) mark(s *session, c *conversationRow) {
	if early := s.inTime(c, op.lease.Paces, op.first); early != nil {
		op.refused = early
		return
	}
	s.tx.Queue(1, setPart, op.id, OutboundSending, op.toldCode(), s.now)
}

// toldCode returns the code of a part for whose wait people were told, "" for any other.
func (op *partOp) toldCode() string {
	if op.code == codes.SendFailed {
		return op.code
	}
	return ""
}

// Sent stores that the platform has accepted a part, and under which id. next, unless "", is a pending part to mark as sending
// in the same commit; when that may not be sent any more, the first part is stored all the same and Sent returns what
// [Queue.Sending] would. Errors are [ErrEnded] for a part that isn't sending, [ErrLeaseLost] (the part was sent, and is or
// becomes delivery_unknown), or wrapped ones of the store, after which it may be repeated.
func (q *Queue) Sent(ctx context.Context, lease Lease, outboundID, platformMessageID, next string) error {
	ids, err := q.loadIDs(ctx, true)
	if err != nil {
		return fmt.Errorf("mark a part as sent: %w", err)
	}
	op := newSentOp(ids, lease, outboundID, platformMessageID)
	if next != "" {
		op.next = &sendingOp{partOp: partOp{leased: leased{lease: lease}, id: next}, first: true}
	}
	return q.do(ctx, "mark a part as sent", op)
}

type sentOp struct {
	partOp

	platformMessageID string // sealed
	next              *sendingOp
}

func newSentOp(ids *idKeys, lease Lease, outboundID, platformMessageID string) *sentOp {
	return &sentOp{
		partOp:            partOp{leased: leased{lease: lease}, id: outboundID},
		platformMessageID: ids.seal(platformMessageID, vault.PlatformMessageID(lease.OrgID)),
	}
}

func (op *sentOp) read(s *session) {
	op.partOp.read(s)
	if op.next != nil {
		op.next.read(s)
	}
}

func (op *sentOp) run(ctx context.Context, s *session) error {
	c := op.holder(s)
	if c == nil {
		return nil
	}
	if op.state == OutboundSent && op.platformID == op.platformMessageID { // a repetition: the first commit wasn't confirmed
		if op.next != nil && op.next.state != OutboundSending {
			return op.markNext(ctx, s)
		}
		return nil
	}
	if op.state != OutboundSending {
		op.refused = ErrEnded
		return nil
	}
	s.tx.Queue(1, `UPDATE outbound_messages SET state = 'sent', code = '', platform_message_id = $1, updated_at = $2
		WHERE id = $3`, op.platformMessageID, s.now, op.id)
	c.attempts = 0
	if op.resends > 0 && c.state == StateClosed {
		c.state = StateAssistant
	}
	c.touch(s.now)
	op.reached(s, c)
	if err := op.endWait(ctx, s, c); err != nil {
		return err
	}
	if op.next == nil {
		return nil
	}
	return op.markNext(ctx, s)
}

func (op *sentOp) markNext(ctx context.Context, s *session) error {
	if err := op.next.run(ctx, s); err != nil {
		return err
	}
	op.refused = op.next.refused
	return nil
}

// SentAndRelease is [Queue.Sent] for the last part of an answer, and [Queue.Release], in one commit: after it the lease has ended.
// Errors are [ErrEnded] for a part that isn't sending, and [ErrLeaseLost]; both leave the lease as it is. After a wrapped error of
// the store it may be repeated.
func (q *Queue) SentAndRelease(ctx context.Context, lease Lease, outboundID, platformMessageID string) error {
	ids, err := q.loadIDs(ctx, true)
	if err != nil {
		return fmt.Errorf("mark the last part as sent: %w", err)
	}
	return q.do(ctx, "mark the last part as sent", &lastSentOp{sentOp: *newSentOp(ids, lease, outboundID, platformMessageID)})
}

type lastSentOp struct {
	sentOp

	left workLeft
}

func (op *lastSentOp) read(s *session) {
	op.sentOp.read(s)
	op.left.read(s.tx, op.conversation(), op.id)
}

func (op *lastSentOp) run(ctx context.Context, s *session) error {
	if c := s.rows[op.lease.ConversationID]; c != nil && !c.deleted && c.orgID == op.lease.OrgID && c.leaseUntil == 0 {
		if done, err := op.done(ctx, s, c.leaseToken); done || err != nil {
			return err
		}
	}
	if err := op.sentOp.run(ctx, s); err != nil || op.refused != nil {
		return err
	}
	release := releaseOp{leased: op.leased, left: op.left}
	return release.run(ctx, s)
}

// done reports whether this is a repetition whose first commit wasn't confirmed: the part is sent and the lease given back.
func (op *lastSentOp) done(ctx context.Context, s *session, token int64) (done bool, err error) {
	if token != op.lease.Token {
		return false, nil
	}
	op.refused = nil
	err = s.tx.Query(ctx, func(store.Row) error {
		done = true
		return nil
	}, `SELECT 1 FROM outbound_messages WHERE id = $1 AND conversation_id = $2 AND state = 'sent' AND platform_message_id = $3`,
		op.id, op.lease.ConversationID, op.platformMessageID)
	return done, err
}

// SendFailure selects what else ends with a failed send.
type SendFailure struct {
	// CloseConversation: the customer has blocked the channel, unless they have written since the part was marked as sending. The
	// assistant's unsent parts are discarded, and the customer's open texts closed.
	CloseConversation bool
	// Uncounted: the try doesn't count, because the platform takes no messages now, whatever they are.
	Uncounted bool
	// RestOfTurn: the later parts of the same answer fail with the same code.
	RestOfTurn bool
	// HoldChannel and HoldCustomer are for how long the platform takes nothing more on the channel, or for this customer. Until then
	// no part is marked as sending, in any process.
	HoldChannel, HoldCustomer time.Duration
}

// SendFailed stores that a part was not sent, or may not have been: state is pending (to be tried again: give the conversation
// back with [Queue.Backoff] or [Queue.Postpone]), failed or delivery_unknown. code is the reason; for a pending part it is what
// the part waits for, or "". A part that is still pending after 15 minutes, without a pause by the platform, gets the code
// [codes.SendFailed] until it is sent. One that would be pending is discarded instead where [Queue.Sending] would discard it: given back
// later, the conversation would go on with half of an old answer. SendFailed returns [ErrEnded] for a part that is neither pending nor sending,
// [ErrLeaseLost], [ErrInvalid] for another state, or a wrapped error of the store.
func (q *Queue) SendFailed(ctx context.Context, lease Lease, outboundID, state, code string, o SendFailure) error {
	if state != OutboundPending && state != OutboundFailed && state != OutboundDeliveryUnknown {
		return fmt.Errorf("mark a part as %s: %w: not a state of a failed send", state, ErrInvalid)
	}
	op := &failedOp{partOp: partOp{leased: leased{lease: lease}, id: outboundID}, to: state, failure: code, SendFailure: o}
	return q.do(ctx, "mark a part as "+state, op)
}

type failedOp struct {
	partOp
	SendFailure

	to, failure string // the new state and code
	wroteAt     int64  // when the customer's last message arrived
	heldUntil   int64  // when the last pause of the channel ends that the platform has asked for
}

func (op *failedOp) read(s *session) {
	op.partOp.read(s)
	op.wroteAt, op.heldUntil = 0, 0
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.wroteAt, &op.heldUntil) }, `SELECT `+wroteAt+`,
		coalesce((SELECT closed_until FROM channel_paces WHERE org_id = outbound_messages.org_id AND channel_id = $2), 0)
		FROM outbound_messages WHERE id = $1`, op.id, op.lease.ChannelID)
}

// waitsLong reports whether the part has waited so long that people are told, for no pause that the platform has asked for.
func (op *failedOp) waitsLong(now int64) bool {
	asked := op.HoldChannel > 0 || op.HoldCustomer > 0 || op.Uncounted
	return op.to == OutboundPending && !asked && now-max(op.createdAt, op.heldUntil) >= alarmAfter.Milliseconds()
}

func (op *failedOp) run(ctx context.Context, s *session) error {
	c := op.holder(s)
	if c == nil {
		return nil
	}
	s.hold(c, op.lease.Paces, op.SendFailure)
	if op.state != OutboundPending && op.state != OutboundSending {
		op.refused = ErrEnded
		return nil
	}
	if op.to == OutboundPending {
		silenced, err := op.silenced(ctx, s, c)
		if err != nil {
			return err
		}
		if silenced {
			op.discard(s, c)
			c.touch(s.now)
			return nil
		}
	}
	op.store(s, c)
	return nil
}

// store stores the part's new state and what ends with it.
func (op *failedOp) store(s *session, c *conversationRow) {
	var code string
	switch {
	case op.failure != "" || op.to != OutboundPending:
		code = op.failure
	case op.waitsLong(s.now):
		code = codes.SendFailed
	default:
		code = op.toldCode()
	}
	counted := 1
	if op.Uncounted {
		counted = 0
	}
	s.tx.Queue(1, `UPDATE outbound_messages SET state = $2, code = $3, attempts = attempts + $5, updated_at = $4
		WHERE id = $1`, op.id, op.to, code, s.now, counted)
	if op.RestOfTurn && op.turnID.Valid {
		s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'failed', code = $3, updated_at = $4
			WHERE turn_id = $1 AND part > $2 AND state = 'pending'`, op.turnID, op.part, code, s.now)
	}
	if op.CloseConversation && op.wroteAt <= op.changedAt {
		c.close()
		s.silence(c, cmp.Or(code, codes.CustomerBlocked))
	}
	if op.to != OutboundPending || code != "" {
		c.attention = cmp.Or(code, op.to)
	}
	if op.to == OutboundDeliveryUnknown {
		c.people.doubtSince = s.now
		op.reached(s, c)
	}
	c.touch(s.now)
}
