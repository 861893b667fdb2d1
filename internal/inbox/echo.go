package inbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// automaticWithin is how soon after the customer's message, in milliseconds by the platform's clock, no person has answered it.
	automaticWithin = 2000
	// automaticLength is the least length, in letters and digits, of an automatic reply that is recognized by its text later: a person
	// may write "Hello" at any time.
	automaticLength = 20
	// automaticDays is how long the digest of an automatic reply is kept.
	automaticDays = 90
	// ownWithin is how long, in milliseconds, a part that was sent is recognized by the text of its echo; its id is known by then.
	ownWithin = 10 * 60 * 1000
	// writtenParts bounds the parts whose texts are compared with an echo's.
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

// readEchoes reads what decides about echoes whose ids aren't those of parts: mostly a person wrote, and the read is rare.
func (d *delivery) readEchoes(ctx context.Context, s *session) error {
	unknown := false
	for _, op := range d.ops {
		for _, item := range op.items {
			c := d.decided.rows[item.key]
			if c == nil || !item.isEcho() || d.decided.sent[item.messageKey()] != nil {
				continue
			}
			unknown = true
			if hash := automaticDigest(item); item.Unmarked {
				s.tx.QueueQuery(func(store.Row) error {
					d.decided.automatic[hash] = true
					return nil
				}, selectTombstones[len(selectTombstones)-1], hash[:])
			}
			if _, read := d.decided.written[c.id]; !read {
				d.decided.written[c.id] = nil
				s.tx.QueueQuery(d.decided.collectWritten(c, item.ring), selectWritten, c.id, writtenParts)
			}
		}
	}
	if !unknown {
		return nil
	}
	if err := s.tx.Flush(ctx); err != nil {
		return fmt.Errorf("read what echoes may repeat: %w", err)
	}
	return nil
}

func (d *decisions) collectWritten(c *conversationRow, ring *vault.Ring) func(store.Row) error {
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

// ours reports whether an echo repeats one of our parts, by its text. One whose delivery was unknown has arrived, so that it is sent.
func (d *decisions) ours(c *conversationRow, item *arrivedItem) bool {
	said := lettersOf(item.Text)
	for _, part := range d.written[c.id] {
		if said == "" || part.settledAs != "" || lettersOf(part.text) != said {
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
			if d.now-part.createdAt <= ownWithin {
				return true
			}
		}
	}
	return false
}

// settle ends the conversation's attention when no part of unknown delivery is left.
func (d *decisions) settle(c *conversationRow) {
	c.touch(d.now)
	for _, part := range d.written[c.id] {
		if part.state == OutboundDeliveryUnknown && part.settledAs == "" {
			return
		}
	}
	c.people.doubtSince = 0
	if c.attention == OutboundDeliveryUnknown {
		c.attention = ""
	}
}

// automaticReply reports whether an echo is an automatic reply that its platform doesn't mark: it came sooner than a person could have
// answered the customer, or repeats the text of such a one.
func (d *decisions) automaticReply(c *conversationRow, item *arrivedItem) bool {
	if !item.Unmarked {
		return false
	}
	hash := automaticDigest(item)
	if d.automatic[hash] {
		return true
	}
	after := item.SentAt - c.lastCustomerAt
	if item.SentAt <= 0 || c.lastCustomerAt == 0 || after < 0 || after > automaticWithin {
		return false
	}
	if utf8.RuneCountInString(lettersOf(item.Text)) >= automaticLength {
		d.automatic[hash] = true
		d.learned = append(d.learned, tombstoneRow{item.key.orgID, hash})
	}
	return true
}

// automaticDigest is the hash that is kept of an automatic reply of a channel, among those of deleted messages. It reveals nothing.
func automaticDigest(item *arrivedItem) [sha256.Size]byte {
	return sha256.Sum256([]byte("automatic\n" + item.key.channelID + "\n" + strings.TrimSpace(item.Text)))
}

// writeEchoes queues what echoes have settled and taught.
func (d *decisions) writeEchoes(s *session) {
	for _, parts := range d.written {
		for _, part := range parts {
			if part.settledAs != "" {
				s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'sent', code = '', platform_message_id = $2, updated_at = $3
					WHERE id = $1 AND state = 'delivery_unknown'`, part.id, part.settledAs, s.now)
			}
		}
	}
	s.queueTombstones(d.learned, automaticDays)
}

// lettersOf returns the letters and digits of a text in lower case, because platforms change the rest of what they are sent: white
// space, marks of formatting. A text without any is taken as it is.
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
