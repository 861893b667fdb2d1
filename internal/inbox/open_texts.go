package inbox

import (
	"database/sql"
	"math"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// A customer's text is open until the business has really sent something younger. This file decides that, for all operations and arrivals.
// An open text has no turn and isn't handled; the assistant's turn follows when it may speak, so a pause, a handover and an outage keep it
// open.
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
