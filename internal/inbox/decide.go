package inbox

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// defaultPause is how long the assistant is silent after a person wrote from the platform's app, unless the agent sets it.
	defaultPause = 30 * time.Minute
	// defaultDebounceMax bounds how long the first of several messages waits for an answer, unless the agent sets it or its
	// quiet window is longer.
	defaultDebounceMax = 30 * time.Second
	// mediaWindow is for how long a message without text waits at least for the text that often follows.
	mediaWindow = 5 * time.Second
)

// Codes of discarded turns.
const (
	codeHandedOver = "handed_over"
)

// decisions is the part of the database that a batch of arrivals touches, and the messages that it adds. What arrivals change in stored rows
// is queued in the session, in their order and before the messages are inserted.
type decisions struct {
	s    *session
	now  int64
	rows map[conversationKey]*conversationRow
	byID map[string]*conversationRow // also of messages that were not delivered
	seen map[messageKey]bool         // stored before, or by this batch
	sent map[messageKey]*sentRow
	// marked are the outbound messages of the marks of failed deliveries.
	marked map[messageKey]*sentRow
	// written are the last parts of conversations with an echo whose id isn't known, automatic the digests of automatic replies.
	written   map[string][]*writtenPart
	automatic map[[sha256.Size]byte]bool
	// businesses are the digests of ids that are known to be the business's.
	businesses map[[sha256.Size]byte]bool
	// learned are new automatic replies and businesses.
	learned []tombstoneRow

	messages []*messageRow
	// reads is set when queries were queued whose results change conversations.
	reads bool
}

// messageKey identifies a message in its channel: an incoming one by its task id, an outgoing one by the platform's id.
type messageKey struct{ orgID, channelID, platformID string }

func (i *arrivedItem) messageKey() messageKey {
	return messageKey{i.key.orgID, i.key.channelID, i.MessageID}
}

// messageRow is a message as it is written.
type messageRow struct {
	*arrivedItem
	conversationID string
	author, kind   string
	handled        bool
	sentAt, at     int64 // by the platform's clock and by ours
}

// sentRow is an outbound message that the platform has reported on.
type sentRow struct {
	id, conversationID, state, code string
	at                              int64 // when it got its state
	wroteAt                         int64 // when the customer's last message arrived, 0 without any
	changed                         bool
}

// decide applies one item. Without a conversation, because there never was one or its channel was deleted, only one of our own
// messages can be found.
func (d *decisions) decide(item *arrivedItem) {
	c := d.rows[item.key]
	key := item.messageKey()
	if item.stored() {
		if c == nil || d.seen[key] {
			return
		}
		d.seen[key] = true
	}
	sentAt := item.SentAt
	if sentAt <= 0 || sentAt > d.now {
		sentAt = d.now
	}
	switch item.Kind {
	case Text:
		d.message(c, item, KindText, sentAt)
	case Media:
		d.message(c, item, KindEvent, sentAt)
	case Event:
		d.meet(c, item, sentAt)
		d.add(c, item, AuthorCustomer, KindEvent, true, sentAt)
	case HumanEcho, AutomaticEcho:
		d.echo(c, item, key, sentAt)
	case FailedDelivery:
		code := cmp.Or(item.Code, OutboundFailed)
		if sent := d.sent[key]; sent != nil {
			d.failed(sent, code)
		} else if item.Mark != "" {
			d.failed(d.marked[messageKey{key.orgID, key.channelID, item.Mark}], code)
		}
	case Blocked:
		if c != nil && c.state != StateClosed && (item.SentAt <= 0 || sentAt >= c.lastCustomerAt) {
			d.close(c, codes.CustomerBlocked)
		}
	case AccessRefused, Unsent, ErasureWanted, Edited: // see [Queue.Enqueue], which has left them out
	}
}

// meet updates what the customer's own message shows: address, name, time.
func (d *decisions) meet(c *conversationRow, item *arrivedItem, sentAt int64) {
	c.touch(d.now)
	c.lastCustomerAt = max(c.lastCustomerAt, sentAt)
	if item.Address != "" {
		c.address = item.Address
	}
	if c.name == nil && item.CustomerName != "" {
		c.name = item.ring.Seal([]byte(item.CustomerName), vault.CustomerName(c.orgID, c.id))
	}
}

// message stores a message that waits for an answer: of the assistant, or of a person while one has the conversation.
func (d *decisions) message(c *conversationRow, item *arrivedItem, kind string, sentAt int64) {
	d.meet(c, item, sentAt)
	if c.state == StateClosed {
		c.state = StateAssistant
	}
	c.asked(d.now)
	blocked := c.blockedAt != 0
	d.add(c, item, AuthorCustomer, kind, blocked, sentAt)
	if blocked || c.state == StateHuman {
		return
	}
	if c.attention != "" {
		// Messages that could not be answered are answered together with this one, so that the order stays.
		takeUp(d.s.tx, c.id, d.now)
	}
	d.schedule(c, item)
}

// schedule makes the conversation due after its quiet window, and not before its pause is over. A message moves the end of the window it
// falls into; it delays no retry, and nothing that is due already. While a worker has the conversation the pause doesn't count: if the worker
// dies, another one goes on at once. [conversationRow.reschedule] adds the pause when the conversation is given back.
func (d *decisions) schedule(c *conversationRow, item *arrivedItem) {
	window := item.route.DebounceMS
	if item.Kind == Media {
		window = max(window, mediaWindow.Milliseconds())
	}
	longest := item.route.DebounceMaxMS
	if longest <= 0 {
		longest = max(window, defaultDebounceMax.Milliseconds())
	}
	inWindow := c.waitingSince.Valid && c.attempts == 0 && c.runAt.Valid && c.runAt.Int64 > d.now
	if !c.waitingSince.Valid {
		c.waitingSince = sql.NullInt64{Int64: d.now, Valid: true}
	}
	due := d.now
	if window > 0 {
		due = max(d.now, min(d.now+window, c.waitingSince.Int64+longest))
	}
	if c.leaseUntil == 0 {
		due = max(due, c.pausedUntil)
	}
	switch leased := c.leaseUntil > d.now; {
	case inWindow || leased && c.runAt.Valid && c.attempts == 0:
		c.runAt = sql.NullInt64{Int64: due, Valid: true}
		c.wake = c.wake || due <= d.now
	case c.attempts > 0 && c.runAt.Valid:
	default:
		c.runBy(due)
	}
}

func (d *decisions) echo(c *conversationRow, item *arrivedItem, key messageKey, sentAt int64) {
	if c == nil || d.sent[key] != nil || d.ours(c, item) || item.Kind == AutomaticEcho {
		return
	}
	c.touch(d.now)
	if c.address == "" {
		c.address = item.Address
	}
	kind := KindText
	if item.Text == "" {
		kind = KindEvent
	}
	if !d.automaticReply(c, item) {
		d.personWrote(c, item, sentAt)
	}
	d.add(c, item, AuthorHuman, kind, true, sentAt)
}

// personWrote silences the assistant after a person's message, unless its agent never pauses. A late echo reports a person who is no longer
// writing: the assistant goes on with what is younger.
func (d *decisions) personWrote(c *conversationRow, item *arrivedItem, sentAt int64) {
	pause := item.route.PauseMS
	if pause <= 0 && pause != store.NoPause {
		pause = defaultPause.Milliseconds()
	}
	pauses := pause != store.NoPause
	d.s.endMedia(c)
	if until := sentAt + pause; pauses && until > d.now {
		c.pausedUntil = max(c.pausedUntil, until)
		d.s.discard(c, codeHandedOver)
	} else if pauses {
		d.s.retract(c, codeHandedOver)
	}
	d.answeredBy(c, item, sentAt, pauses)
}

// failed records that the platform has not delivered a message that it had accepted. The report may be here before the answer to
// the send is stored, and also come for a message that the answer itself refused, which changes nothing any more.
func (d *decisions) failed(sent *sentRow, code string) {
	if sent == nil || d.byID[sent.conversationID] == nil {
		return
	}
	if sent.state != OutboundSent && sent.state != OutboundSending && sent.state != OutboundDeliveryUnknown {
		return
	}
	sent.state, sent.code, sent.changed = OutboundFailed, code, true
	c := d.byID[sent.conversationID]
	if code == codes.CustomerBlocked && c.state != StateClosed && !d.wroteAfter(sent) {
		d.close(c, code)
	}
	c.attention = code
	c.touch(d.now)
}

// wroteAfter reports whether the customer has written after the message was sent: then they haven't blocked the channel, or no longer.
func (d *decisions) wroteAfter(sent *sentRow) bool {
	return sent.wroteAt > sent.at || slices.ContainsFunc(d.messages, func(m *messageRow) bool {
		return m.conversationID == sent.conversationID && m.author == AuthorCustomer && m.at > sent.at
	})
}

// close ends the conversation until the customer writes again, with what waits in it and in this batch.
func (d *decisions) close(c *conversationRow, code string) {
	for _, message := range d.messages {
		if message.conversationID == c.id {
			message.handled = true
		}
	}
	c.close()
	d.s.silence(c, code)
}

func (d *decisions) add(c *conversationRow, item *arrivedItem, author, kind string, handled bool, sentAt int64) {
	d.messages = append(d.messages, &messageRow{
		arrivedItem: item, conversationID: c.id, author: author, kind: kind, handled: handled, sentAt: sentAt, at: c.place(d.now),
	})
}

// takeUp makes the texts of turns that need attention wait again. There are such turns only while the conversation's attention
// is set.
func takeUp(tx store.Tx, conversationID string, now int64) {
	tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state = 'needs_attention')`, conversationID)
	tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2
		WHERE conversation_id = $1 AND state = 'needs_attention'`, conversationID, now)
}
