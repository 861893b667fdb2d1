package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Why a person has a conversation.
const (
	HandoverPerson    = "person"    // one took it over
	HandoverAssistant = "assistant" // the assistant asked for one
	HandoverWords     = "words"     // the customer wrote a word that the agent leaves to people
	HandoverFailures  = "failures"  // the assistant failed to answer twice in a row
)

// peopleState is the part of a conversation's row from which events are made.
type peopleState struct {
	// unansweredSince is when the first of the customer's texts arrived to which neither the assistant nor a person has really sent an
	// answer, or 0; epoch milliseconds.
	unansweredSince int64
	// reportedAttention is the last attention for which an event was written since the last answer. The same attention again, such as with
	// each try in an outage, writes none.
	reportedAttention string
	handoverReason    string // why a person has the conversation, or had it last; "" if none ever had
	// retriedAt is when a person last had what stood answered again, or 0; epoch milliseconds.
	retriedAt int64
	// closedUntil is until when the customer has a notice that the business is closed; epoch milliseconds.
	closedUntil int64
	// unknownSince is when a message to the customer last became [OutboundDeliveryUnknown] that no person has acknowledged yet, or 0; epoch
	// milliseconds. Another attention may hide this one, which shows again when that ends.
	unknownSince int64
}

// startWait records that the customer waits for an answer, unless a person has blocked them.
func (c *conversationRow) startWait(now int64) {
	if c.people.unansweredSince == 0 && c.blockedAt == 0 {
		c.people.unansweredSince = now
	}
}

// answered records that the customer was answered. since is when the first text arrived that the answer was not for, or 0.
func (c *conversationRow) answered(since int64) {
	c.people.unansweredSince, c.people.reportedAttention = since, ""
}

// handOver gives the conversation to people.
func (c *conversationRow) handOver(reason string) {
	c.state, c.people.handoverReason = StateHuman, reason
}

// HandOver gives an organization's conversation to a person: unsent answers are discarded, and the customer waits for the person.
// The customer's texts, also later ones, are not answered until [Queue.HandBack]. It returns [store.ErrNotFound],
// [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandOver(ctx context.Context, actor, orgID, id string) error {
	var unsent bool // a part of an answer has not been sent
	return q.do(ctx, "hand over", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		switch c.state {
		case StateClosed:
			return refusal{ErrConversationClosed}
		case StateHuman:
			return nil
		}
		c.handOver(HandoverPerson)
		s.discard(c, codeHandedOver)
		if unsent {
			c.startWait(s.now)
		}
		s.audit(c, actor, "hand_over")
		return nil
	}, readInto([]any{&unsent}, `SELECT EXISTS (SELECT 1 FROM outbound_messages WHERE `+unsentOf+` AND author = 'assistant')`, id)))
}

// HandBack gives an organization's conversation back to the assistant, which answers in one reply the customer's texts since the
// last message of the business; older than 24 hours, they stand with [codes.TooOld]. HandBack also ends a pause. It returns
// [store.ErrNotFound], [ErrConversationClosed], or a wrapped error of the store.
func (q *Queue) HandBack(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "hand back", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.state == StateClosed {
			return refusal{ErrConversationClosed}
		}
		if !c.silent(s.now) {
			return nil
		}
		c.state, c.pausedUntil, c.people.reportedAttention = StateAssistant, 0, ""
		c.markUpdated(s.now)
		s.audit(c, actor, "hand_back")
		return s.giveBack(c)
	}))
}

// codeBlockedByPerson is the code of what ends because a person blocks a customer.
const codeBlockedByPerson = "blocked"

// Block makes the assistant silent for the customer of an organization's conversation until [Queue.Unblock], even if the conversation is given
// back: unsent answers are discarded, and later texts of the customer are stored and not answered, so that they cost nothing. A person may
// still write. It returns [store.ErrNotFound] or a wrapped error of the store.
func (q *Queue) Block(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "block a customer", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.blockedAt == 0 {
			c.blockedAt = s.now
			c.answered(0)
			s.silence(c, codeBlockedByPerson)
			s.audit(c, actor, "block")
		}
		return nil
	}))
}

// Unblock ends a [Queue.Block]: the assistant may answer the customer's later texts. It returns [store.ErrNotFound] or a wrapped error of
// the store.
func (q *Queue) Unblock(ctx context.Context, actor, orgID, id string) error {
	return q.do(ctx, "unblock a customer", onOwn(orgID, id, func(s *session, c *conversationRow) error {
		if c.blockedAt != 0 {
			c.blockedAt = 0
			c.markUpdated(s.now)
			s.audit(c, actor, "unblock")
		}
		return nil
	}))
}

// queueEvents writes the events that follow from the row's changes.
func (c *conversationRow) queueEvents(tx store.Tx) {
	event := store.Event{OrgID: c.orgID, ConversationID: c.id, ChannelID: c.key.channelID}
	if c.state == StateHuman && c.stored.state != StateHuman {
		event.Type, event.Reason = store.EventHandover, c.people.handoverReason
		store.QueueEvent(tx, &event)
	}
	shown := c.attention == OutboundDeliveryUnknown && c.people.unknownSince == c.storedPeople.unknownSince // not for the first time
	if c.attention != "" && c.attention != c.stored.attention && c.attention != c.people.reportedAttention && !shown {
		c.people.reportedAttention = c.attention
		event.Type, event.Reason, event.Code = store.EventAttention, "", c.attention
		store.QueueEvent(tx, &event)
	}
}

// waitsForPeople is the condition of the index conversations_unanswered, and behind it, because an index has no clock, that a pause lasts
// at the time {now}.
const waitsForPeople = `(attention <> '' OR (unanswered_since > 0 AND (state = 'human' OR paused_until > 0)))
	AND (attention <> '' OR state = 'human' OR paused_until > {now})`

var countWaiting = `SELECT count(*) FROM (SELECT 1 FROM conversations WHERE org_id = $1 AND ` +
	strings.ReplaceAll(waitsForPeople, "{now}", "$3") + ` LIMIT $2) AS waiting`

// MaxWaiting is the most that [Queue.WaitingForPeople] counts to.
const MaxWaiting = 100

// WaitingForPeople counts an organization's conversations that wait for a person: because something in them needs attention, or because
// the customer has no answer and the assistant is silent, as a person has the conversation or has written in it. It counts to [MaxWaiting].
func (q *Queue) WaitingForPeople(ctx context.Context, orgID string) (int, error) {
	now, err := q.db.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("count waiting conversations: %w", err)
	}
	return store.ReadRow(ctx, q.db, "count waiting conversations", store.ScanValue[int],
		countWaiting, orgID, MaxWaiting, now)
}

// MaxLongWaits is the most that [Queue.LongWaits] counts to, of customers in the queue and of customers who wait for people.
const MaxLongWaits = 10_000

// LongWait is an organization with the number of its customers who have waited for long.
type LongWait struct {
	OrgID, Name string
	Customers   int64
}

// LongWaits counts the customers who have had no answer since before a moment, by organization, the most customers first. It counts to
// [MaxLongWaits].
func (q *Queue) LongWaits(ctx context.Context, before int64) ([]LongWait, error) {
	return store.ReadRows(ctx, q.db, "count long waits", store.ScanFields[LongWait](), countLongWaits, before, MaxLongWaits)
}

const countLongWaits = `SELECT o.id, o.name, count(*) FROM (
		SELECT id, org_id FROM (SELECT id, org_id FROM conversations WHERE run_at IS NOT NULL AND unanswered_since > 0 AND unanswered_since < $1
			LIMIT $2) AS queued
		UNION SELECT id, org_id FROM (SELECT id, org_id FROM conversations WHERE (attention <> '' OR (unanswered_since > 0 AND
			(state = 'human' OR paused_until > 0))) AND unanswered_since > 0 AND unanswered_since < $1 LIMIT $2) AS unanswered
	) AS waiting JOIN organizations o ON o.id = waiting.org_id GROUP BY o.id, o.name ORDER BY 3 DESC, 1`

// A customer's text is open until the business has really sent something younger. The functions from here on decide that, for all operations
// and arrivals. An open text has no turn and isn't handled; the assistant's turn follows when it may speak, so a pause, a handover and an
// outage keep it open.
//
//   - The assistant's answer binds its texts to its turn. [session.discard] opens them again if the answer is discarded before any of it was
//     sent.
//   - A person's message from the platform's app closes the texts that the customer had sent before it, by the platform's clock
//     ([delivery.answeredBy]).
//   - A person's message from here closes the texts that had arrived before it was written, once it is sent ([session.recordDelivery]), if
//     a person has the conversation or the assistant was paused when the message was written. Otherwise the assistant still replies, with
//     the message in its prompt. The assistant's last words close as a person's do.
//   - Where nothing can or may be answered, [session.silence] closes all texts.
//
// unanswered_since is the arrival of the first text to which nothing was sent.

// Conditions on the turns of a conversation $1. The first has turns without an answer, which may still get one, the second turns with an
// answer of which nothing was sent.
const (
	withoutAnswer = `SELECT id FROM turns WHERE conversation_id = $1 AND state IN ('awaiting', 'needs_attention', 'dead')`
	withoutPart   = `SELECT t.id FROM outbound_messages o JOIN turns t ON t.id = o.turn_id WHERE o.conversation_id = $1
		AND o.created_at >= (SELECT unsent_since FROM conversations WHERE id = $1) AND o.state = 'pending'
		AND o.author = 'assistant' AND o.part = 0 AND o.resends = 0 AND t.code IN ('', '` + codeNotice + `')`
	unanswered = withoutAnswer + ` UNION ALL ` + withoutPart
)

// retract ends with a code all of the assistant's work of which nothing was sent: turns without an answer, and answers with their parts. Their
// texts are open again.
func (s *session) retract(c *conversationRow, code string) {
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (`+unanswered+`)`, c.id)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2 WHERE id IN (`+withoutPart+`)`, c.id, s.now)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3 WHERE id IN (`+withoutAnswer+`)`, c.id, code, s.now)
	s.tx.Queue(store.AnyRows, discardParts+` AND turn_id IN (SELECT id FROM turns WHERE conversation_id = $1 AND state = 'superseded')`,
		c.id, code, s.now)
	c.waitingSince = sql.NullInt64{}
	c.acknowledge("")
	c.markUpdated(s.now)
}

// discard is retract where the assistant may not write: the rest of an answer isn't sent either.
func (s *session) discard(c *conversationRow, code string) {
	s.retract(c, code)
	s.tx.Queue(store.AnyRows, discardParts, c.id, code, s.now)
}

// discardParts discards the assistant's unsent parts in a conversation; conditions may follow.
const discardParts = `UPDATE outbound_messages SET state = 'discarded', code = $2, updated_at = $3
	WHERE ` + unsentOf + ` AND state = 'pending' AND author = 'assistant'`

// discardPart discards a part. If it is the first of an answer, nothing of that was sent, and its texts are open again; or closed, if no
// reply may follow.
func (s *session) discardPart(c *conversationRow, p *partRow) {
	s.tx.Queue(1, setPart, p.id, OutboundDiscarded, codeHandedOver, s.now)
	if p.part > 0 || p.resends > 0 || p.turnCode != "" && p.turnCode != codeNotice {
		return
	}
	s.tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL, handled = handled OR $2 WHERE turn_id = $1`, p.turnID,
		c.state == StateClosed || c.blockedAt != 0)
	s.tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2 WHERE id = $1`, p.turnID, s.now)
	s.tx.Queue(store.AnyRows, discardParts+` AND turn_id = $4`, c.id, codeHandedOver, s.now, p.turnID)
}

// silence discards the assistant's work and closes the open texts, because no reply may follow.
func (s *session) silence(c *conversationRow, code string) {
	s.discard(c, code)
	s.closeTexts(c, math.MaxInt64, math.MaxInt64)
}

// close ends the conversation with a code until the customer writes again.
func (s *session) close(c *conversationRow, code string) {
	c.state = StateClosed
	c.answered(0)
	s.silence(c, code)
}

// closeTexts closes the open texts that were sent before a time by the platform's clock and had arrived at another by ours, also texts with
// an answer that is being sent: they stay closed if it isn't sent after all.
func (s *session) closeTexts(c *conversationRow, sentBefore, arrivedUntil int64) {
	for _, m := range s.arrived {
		if m.conversationID == c.id && m.sentAt < sentBefore && m.at <= arrivedUntil {
			m.handled = true
		}
	}
	for _, open := range [...]string{`turn_id IS NULL`, `turn_id IN (SELECT turn_id FROM outbound_messages
		WHERE ` + unsentOf + ` AND state = 'sending' AND author = 'assistant' AND part = 0 AND resends = 0)`} {
		s.tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE conversation_id = $1 AND NOT handled AND `+open+
			` AND sent_at < $2 AND received_at <= $3`, c.id, sentBefore, arrivedUntil)
	}
}

// selectUnansweredSince reads when the first text arrived that the customer sent at $2 or later and to which nothing was sent.
const selectUnansweredSince = `SELECT coalesce(min(received_at), 0) FROM (
	SELECT received_at FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled AND sent_at >= $2
	UNION ALL SELECT received_at FROM messages WHERE turn_id IN (` + unanswered + `) AND NOT handled AND sent_at >= $2) AS texts`

// countUnanswered sets the beginning of the customer's wait to the first unanswered text, after texts were closed.
func (s *session) countUnanswered(c *conversationRow) error {
	var since int64
	err := s.value("look for unanswered texts", &since, selectUnansweredSince, c.id, 0)
	c.shortenWait(since)
	return err
}

// shortenWait moves the beginning of the customer's wait to the arrival of a text; 0 ends the wait. It begins no wait, and keeps a wait
// that begins later, when the business opens.
func (c *conversationRow) shortenWait(since int64) {
	waits := &c.people.unansweredSince
	if *waits > 0 && (since == 0 || since > *waits) {
		*waits, c.changed = since, true
	}
}

// answeredBy closes the customer's texts, stored ones and new ones, from before a person's message that the platform reports, if the
// assistant leaves them to the person. The customer continues to wait only for an answer to younger texts. A platform that gives no time
// reports in order.
func (d *delivery) answeredBy(c *conversationRow, item *arrivedItem, sentAt int64, closes bool) {
	s := d.s
	timed := item.SentAt > 0 && item.SentAt <= s.now
	waited := c.people.unansweredSince
	c.answered(0)
	if !timed {
		sentAt = math.MaxInt64
	}
	if closes {
		s.closeTexts(c, sentAt, math.MaxInt64)
	}
	if !timed {
		return
	}
	for _, m := range s.arrived {
		if m.conversationID == c.id && m.author == AuthorCustomer && !m.handled && m.sentAt >= sentAt {
			c.startWait(m.at)
		}
	}
	d.reads = true
	s.tx.QueueQuery(func(row store.Row) error {
		since, err := store.ScanValue[int64](row)
		if since == 0 {
			return err
		}
		if waited > 0 {
			c.people.unansweredSince = max(since, waited)
		}
		c.runBy(max(c.pausedUntil, s.now))
		return err
	}, selectUnansweredSince, c.id, sentAt)
}

// recordDelivery records that a part has reached the customer, or may have.
func (s *session) recordDelivery(c *conversationRow, p *partRow) {
	lastWords := p.turnCode == codeHandedOver
	if lastWords || p.author == AuthorHuman && (c.state == StateHuman || p.createdAt < c.pausedUntil) {
		s.closeTexts(c, math.MaxInt64, p.createdAt)
	}
	waitsOn := lastWords || p.turnCode == codeClosed || p.author == AuthorAssistant && c.state == StateHuman // for the opening, or a person
	if !waitsOn {
		c.shortenWait(p.openSince)
	}
}

// giveBackLife is the age of the customer's last message after which the assistant doesn't answer by itself when a person gives the
// conversation back.
const giveBackLife = codes.Life

// giveBack lets the assistant answer the open texts of a conversation that a person has given back, in one reply. The person's messages
// that are still being sent answer the texts that had arrived before them. If the customer wrote last too long ago, the texts stand
// instead.
func (s *session) giveBack(c *conversationRow) error {
	var answers int64 // the place of the last of a person's messages on their way
	var open bool
	err := s.value("look for a person's messages", &answers, `SELECT coalesce(max(created_at), 0) FROM outbound_messages
		WHERE `+unsentOf+` AND author = 'human'`, c.id)
	if err != nil {
		return err
	}
	if answers > 0 { // until they are sent the customer waits
		s.closeTexts(c, math.MaxInt64, answers)
	} else if err := s.countUnanswered(c); err != nil {
		return err
	}
	err = s.value("look for open texts", &open,
		`SELECT EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled)`, c.id)
	switch {
	case err != nil:
		return err
	case !open:
	case s.now-c.lastCustomerAt > giveBackLife.Milliseconds():
		s.standOpen(c, store.NewID("trn"), codes.TooOld)
	default:
		c.runBy(s.now)
	}
	return nil
}
