package inbox

import (
	"cmp"
	"database/sql"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The columns of a message of either direction, read alike.
const (
	inboundColumns = `id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
		sent_at AS at, received_at AS placed_at, handled, edited FROM messages`
	outboundColumns = `id, org_id, author,
		CASE WHEN template IS NOT NULL THEN 'template' WHEN file_id IS NOT NULL THEN 'event' ELSE 'text' END AS kind, body, state, code, turn_id,
		platform_message_id, created_at AS at, created_at AS placed_at, FALSE AS handled, FALSE AS edited FROM outbound_messages`
)

// placedMessage is a message and its position in the conversation, the moment when it was stored.
type placedMessage struct {
	Message

	placedAt int64
}

func (m placedMessage) before(other placedMessage) int {
	return cmp.Or(cmp.Compare(m.placedAt, other.placedAt), cmp.Compare(m.ID, other.ID))
}

// saidBefore orders waiting texts as [Work.Waiting].
func (m placedMessage) saidBefore(other placedMessage) int {
	return cmp.Or(cmp.Compare(m.At, other.At), m.before(other))
}

// UnreadableText replaces a message that doesn't open: it is damaged, or its key is not in the vault's ring.
const UnreadableText = "[This message can't be decrypted.]"

// scanMessage reads and opens a message. One that doesn't open has [UnreadableText].
func (q *Queue) scanMessage(aad func(orgID, messageID string) vault.AAD) func(store.Row) (placedMessage, error) {
	return func(row store.Row) (placedMessage, error) {
		m, unopened, err := q.openMessage(row, aad)
		if err == nil && unopened != nil {
			m.Text, m.Unreadable = UnreadableText, true
			q.unreadable("message "+m.ID, unopened)
		}
		return m, err
	}
}

// openMessage reads a message; unopened is the reason why it has no text. [Queue.loadIDs] must have run.
func (q *Queue) openMessage(row store.Row, aad func(orgID, messageID string) vault.AAD) (m placedMessage, unopened, err error) {
	var orgID string
	var body []byte
	var turnID sql.NullString
	err = row.Scan(&m.ID, &orgID, &m.Author, &m.Kind, &body, &m.State, &m.Code, &turnID, &m.PlatformMessageID,
		&m.At, &m.placedAt, &m.Handled, &m.Edited)
	if err != nil {
		return m, nil, err
	}
	m.TurnID = turnID.String
	m.PlatformMessageID = q.openID("the platform's id of message "+m.ID, m.PlatformMessageID, vault.PlatformMessageID(orgID))
	text, unopened := q.ring.Open(body, aad(orgID, m.ID))
	m.Text = string(text)
	return m, unopened, nil
}

// complaintPause is the shortest time between two warnings of unreadable: a page of a list may have a hundred such values, and
// a dashboard reads it every two seconds.
const complaintPause = time.Minute

// unreadable logs a warning about a value that doesn't open.
func (q *Queue) unreadable(what string, err error) {
	q.mu.Lock()
	due := q.Log != nil && time.Since(q.complaint) >= complaintPause
	if due {
		q.complaint = time.Now()
	}
	q.mu.Unlock()
	if due {
		q.Log.Warn("a sealed value can't be opened and is skipped; further ones of this minute are not logged",
			"value", what, "error", err)
	}
}
