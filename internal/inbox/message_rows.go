package inbox

import (
	"database/sql"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The columns of a message of either direction, read alike.
const (
	inboundColumns = `id, org_id, author, kind, body, '' AS state, '' AS code, turn_id, platform_message_id,
		sent_at AS at, received_at AS placed_at, handled FROM messages`
	outboundColumns = `id, org_id, author, 'text' AS kind, body, state, code, turn_id, platform_message_id,
		created_at AS at, created_at AS placed_at, FALSE AS handled FROM outbound_messages`
)

// placedMessage is a message and its place in the conversation, which is when it was stored.
type placedMessage struct {
	Message

	placedAt int64
}

func (m placedMessage) before(other placedMessage) int {
	switch {
	case m.placedAt != other.placedAt:
		return sign(m.placedAt < other.placedAt)
	case m.ID != other.ID:
		return sign(m.ID < other.ID)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

// scanMessage reads and opens a message.
func (q *Queue) scanMessage(place func(orgID, messageID string) vault.Where) func(store.Row) (placedMessage, error) {
	return func(row store.Row) (m placedMessage, err error) {
		var orgID string
		var body []byte
		var turnID sql.NullString
		err = row.Scan(&m.ID, &orgID, &m.Author, &m.Kind, &body, &m.State, &m.Code, &turnID, &m.PlatformMessageID,
			&m.At, &m.placedAt, &m.Handled)
		if err != nil {
			return m, err
		}
		text, err := q.ring.Open(body, place(orgID, m.ID))
		if err != nil {
			return m, fmt.Errorf("open message %s: %w", m.ID, err)
		}
		m.Text, m.TurnID = string(text), turnID.String
		return m, nil
	}
}
