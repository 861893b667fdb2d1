package inbox

import (
	"cmp"
	"crypto/sha256"
	"database/sql"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
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
func (d *delivery) decide(item *arrivedItem) {
	c := d.byKey[item.key]
	key := item.messageKey()
	if item.stored() {
		if c == nil || d.seen[key] {
			return
		}
		d.seen[key] = true
	}
	sentAt := item.SentAt
	if sentAt <= 0 || sentAt > d.s.now {
		sentAt = d.s.now
	}
	switch item.Kind {
	case platforms.Text:
		d.message(c, item, KindText, sentAt)
	case platforms.Media:
		d.message(c, item, KindEvent, sentAt)
	case platforms.Event:
		d.meet(c, item, sentAt)
		d.add(c, item, AuthorCustomer, KindEvent, true, sentAt)
	case platforms.HumanEcho, platforms.UnmarkedEcho, platforms.AutomaticEcho:
		d.echo(c, item, key, sentAt)
	case platforms.FailedDelivery:
		marked := messageKey{key.orgID, key.channelID, item.otherIDs().Mark}
		d.fail(cmp.Or(d.sent[key], d.sent[marked]), cmp.Or(item.Code, OutboundFailed))
	case platforms.Blocked:
		if c != nil && c.state != StateClosed && (item.SentAt <= 0 || sentAt >= c.lastCustomerAt) {
			d.s.close(c, codes.CustomerBlocked)
		}
	case platforms.TokenExpiring, platforms.AccessRefused, platforms.Unsent, platforms.ErasureWanted, platforms.Edited:
		// [Queue.Enqueue] has left them out.
	}
}

// meet updates the customer's address, name and last time from their own message.
func (d *delivery) meet(c *conversationRow, item *arrivedItem, sentAt int64) {
	c.markUpdated(d.s.now)
	c.lastCustomerAt = max(c.lastCustomerAt, sentAt)
	if item.Address != "" {
		c.address = item.Address
	}
	if c.name == nil && item.CustomerName != "" {
		c.name = item.ring.Seal([]byte(item.CustomerName), vault.CustomerName(c.orgID, c.id))
	}
}

// message stores a message that waits for an answer: of the assistant, or of a person while one has the conversation.
func (d *delivery) message(c *conversationRow, item *arrivedItem, kind string, sentAt int64) {
	d.meet(c, item, sentAt)
	if c.state == StateClosed {
		c.state = StateAssistant
	}
	c.startWait(d.s.now)
	blocked := c.blockedAt != 0
	d.add(c, item, AuthorCustomer, kind, blocked, sentAt)
	if blocked || c.state == StateHuman {
		return
	}
	if c.attention != "" {
		// Messages that could not be answered are answered together with this one, so that the order stays.
		d.s.reopenStanding(c)
	}
	d.schedule(c, item)
}

// schedule makes the conversation due after its quiet window, and not before its pause is over. A message moves the end of the window it
// falls into; it delays no retry, and nothing that is due already. While a worker has the conversation the pause doesn't count: if the
// worker dies, another one continues immediately. [conversationRow.reschedule] adds the pause when the conversation is given back.
func (d *delivery) schedule(c *conversationRow, item *arrivedItem) {
	window := item.route.DebounceMS
	if item.Kind == platforms.Media {
		window = max(window, mediaWindow.Milliseconds())
	}
	longest := item.route.DebounceMaxMS
	if longest <= 0 {
		longest = max(window, defaultDebounceMax.Milliseconds())
	}
	inWindow := c.waitingSince.Valid && c.attempts == 0 && c.runAt.Valid && c.runAt.Int64 > d.s.now
	if !c.waitingSince.Valid {
		c.waitingSince = sql.NullInt64{Int64: d.s.now, Valid: true}
	}
	due := d.s.now
	if window > 0 {
		due = max(d.s.now, min(d.s.now+window, c.waitingSince.Int64+longest))
	}
	if c.leaseUntil == 0 {
		due = max(due, c.pausedUntil)
	}
	switch leased := c.leaseUntil > d.s.now; {
	case inWindow || leased && c.runAt.Valid && c.attempts == 0:
		c.runAt = sql.NullInt64{Int64: due, Valid: true}
		c.wake = c.wake || due <= d.s.now
	case c.attempts > 0 && c.runAt.Valid:
	default:
		c.runBy(due)
	}
}

func (d *delivery) echo(c *conversationRow, item *arrivedItem, key messageKey, sentAt int64) {
	if c == nil || d.sent[key] != nil || d.ours(c, item) || item.Kind == platforms.AutomaticEcho {
		return
	}
	c.markUpdated(d.s.now)
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
// writing: the assistant continues with younger messages.
func (d *delivery) personWrote(c *conversationRow, item *arrivedItem, sentAt int64) {
	pause := item.route.PauseMS
	if pause <= 0 && pause != store.NoPause {
		pause = defaultPause.Milliseconds()
	}
	pauses := pause != store.NoPause
	d.s.endMedia(c)
	if until := sentAt + pause; pauses && until > d.s.now {
		c.pausedUntil = max(c.pausedUntil, until)
		d.s.discard(c, codeHandedOver)
	} else if pauses {
		d.s.retract(c, codeHandedOver)
	}
	d.answeredBy(c, item, sentAt, pauses)
}

// fail records that the platform has not delivered a message that it had accepted. The report may be here before the answer to the send is
// stored, and also come for a message that the answer itself refused, which changes nothing.
func (d *delivery) fail(sent *sentRow, code string) {
	if sent == nil || d.s.rows[sent.conversationID] == nil {
		return
	}
	if sent.state != OutboundSent && sent.state != OutboundSending && sent.state != OutboundDeliveryUnknown {
		return
	}
	sent.state, sent.code, sent.changed = OutboundFailed, code, true
	c := d.s.rows[sent.conversationID]
	wroteAfter := sent.wroteAt > sent.at || slices.ContainsFunc(d.s.arrived, func(m *messageRow) bool { // so the channel isn't blocked
		return m.conversationID == sent.conversationID && m.author == AuthorCustomer && m.at > sent.at
	})
	if code == codes.CustomerBlocked && c.state != StateClosed && !wroteAfter {
		d.s.close(c, code)
	}
	c.attention = code
	c.markUpdated(d.s.now)
}

func (d *delivery) add(c *conversationRow, item *arrivedItem, author, kind string, handled bool, sentAt int64) {
	d.s.arrived = append(d.s.arrived, &messageRow{
		arrivedItem: item, conversationID: c.id, author: author, kind: kind, handled: handled, sentAt: sentAt, at: c.position(d.s.now),
	})
}

const (
	// automaticWithin is how soon after the customer's message, in milliseconds by the platform's clock, no person has answered it.
	automaticWithin = 2000
	// automaticLength is the least length, in letters and digits, of an automatic reply that is recognized by its text later: a person
	// may write "Hello" at any time.
	automaticLength = 20
	// automaticDays is how long the digest of an automatic reply is kept.
	automaticDays = 90
	// ownWithin is how long, in milliseconds, a part that was sent is recognized by the text of its echo. After that its id is
	// known.
	ownWithin = 10 * 60 * 1000
	// writtenParts bounds the parts that are compared with an echo.
	writtenParts = 20
)

// writtenPart is a part as an echo is compared with it.
type writtenPart struct {
	id, state string
	text      string // "" if it doesn't open
	createdAt int64
	settledAs string // the platform's id that its echo has shown
}

const selectWritten = `SELECT id, state, body, created_at FROM outbound_messages WHERE conversation_id = $1
	ORDER BY created_at DESC, id DESC LIMIT CAST($2 AS BIGINT)`

// readEchoes reads the parts that an echo without a part's id may repeat: mostly a person wrote, and the read is rare.
func (d *delivery) readEchoes() error {
	unknown := false
	var hashes [][sha256.Size]byte
	for item := range d.items() {
		c := d.byKey[item.key]
		if c == nil || !item.isEcho() || d.sent[item.messageKey()] != nil {
			continue
		}
		unknown = true
		if item.Kind == platforms.UnmarkedEcho {
			hashes = append(hashes, automaticDigest(item))
		}
		if _, read := d.written[c.id]; !read {
			d.written[c.id] = nil
			d.s.tx.QueueQuery(d.collectWritten(c, item.ring), selectWritten, c.id, writtenParts)
		}
	}
	if !unknown {
		return nil
	}
	d.queueKnown(hashes)
	return store.Wrap("read what echoes may repeat", d.s.tx.Flush(d.s.ctx))
}

func (d *delivery) collectWritten(c *conversationRow, ring *vault.Ring) func(store.Row) error {
	return func(row store.Row) error {
		part := &writtenPart{}
		var body []byte
		if err := row.Scan(&part.id, &part.state, &body, &part.createdAt); err != nil {
			return err
		}
		if text, err := ring.Open(body, vault.OutboundBody(c.orgID, part.id)); err == nil {
			part.text = string(text)
		}
		d.written[c.id] = append(d.written[c.id], part)
		return nil
	}
}

// ours reports whether an echo repeats one of our parts, by its text. A part of unknown delivery has arrived, so that it is sent.
func (d *delivery) ours(c *conversationRow, item *arrivedItem) bool {
	letters := lettersOf(item.Text)
	for _, part := range d.written[c.id] {
		if letters == "" || part.settledAs != "" || lettersOf(part.text) != letters {
			continue
		}
		switch part.state {
		case OutboundDeliveryUnknown:
			part.settledAs = item.MessageID
			d.settle(c)
			return true
		case OutboundSending:
			return true
		case OutboundSent:
			if d.s.now-part.createdAt <= ownWithin {
				return true
			}
		}
	}
	return false
}

// settle ends the conversation's attention when no part of unknown delivery is left.
func (d *delivery) settle(c *conversationRow) {
	c.markUpdated(d.s.now)
	for _, part := range d.written[c.id] {
		if part.state == OutboundDeliveryUnknown && part.settledAs == "" {
			return
		}
	}
	c.people.unknownSince = 0
	if c.attention == OutboundDeliveryUnknown {
		c.attention = ""
	}
}

// automaticReply reports whether an echo is an automatic reply that its platform doesn't mark: it came sooner than a person could have
// answered the customer, or repeats the text of an earlier automatic reply.
func (d *delivery) automaticReply(c *conversationRow, item *arrivedItem) bool {
	if item.Kind != platforms.UnmarkedEcho {
		return false
	}
	hash := automaticDigest(item)
	if d.known[hash] {
		return true
	}
	after := item.SentAt - c.lastCustomerAt
	if item.SentAt <= 0 || c.lastCustomerAt == 0 || after < 0 || after > automaticWithin {
		return false
	}
	if utf8.RuneCountInString(lettersOf(item.Text)) >= automaticLength {
		d.known[hash] = true
		d.learned = append(d.learned, tombstoneRow{item.key.orgID, hash})
	}
	return true
}

// automaticDigest is the hash that is kept of an automatic reply of a channel, among the hashes of deleted messages. It reveals nothing.
func automaticDigest(item *arrivedItem) [sha256.Size]byte {
	return sha256.Sum256([]byte("automatic\n" + item.key.channelID + "\n" + strings.TrimSpace(item.Text)))
}

// lettersOf returns the letters and digits of a text in lower case, because platforms change white space and marks of formatting. A text
// without any is taken as it is.
func lettersOf(text string) string {
	kept := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, text)
	if kept == "" {
		return strings.TrimSpace(text)
	}
	return kept
}
