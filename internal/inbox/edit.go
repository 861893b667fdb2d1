package inbox

import (
	"context"
	"database/sql"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// editOp replaces the text of a message that its sender has changed. A text that waits is answered as it reads now; a turn that answers the
// old text gives way to one that answers the new text. An answer that was made stays.
type editOp struct {
	ring *vault.Ring
	key  messageKey
	text string

	conversationID string
	id             string // "" without such a message
	body           []byte
	turnID         sql.NullString
	turn, code     sql.NullString // the turn's state and code
}

func (op *editOp) refusal() error { return nil }

func (op *editOp) conversation() string { return op.conversationID }

// find reads the conversation of the message, which never changes.
func (op *editOp) find(ctx context.Context, tx store.Tx) error {
	op.conversationID = ""
	return tx.Query(ctx, func(row store.Row) error { return row.Scan(&op.conversationID) },
		`SELECT conversation_id FROM messages WHERE org_id = $1 AND channel_id = $2 AND platform_message_id = $3`,
		op.key.orgID, op.key.channelID, op.key.platformID)
}

func (op *editOp) read(s *session) {
	op.id = ""
	s.tx.QueueQuery(func(row store.Row) error { return row.Scan(&op.id, &op.body, &op.turnID, &op.turn, &op.code) },
		`SELECT m.id, m.body, m.turn_id, t.state, t.code FROM messages m LEFT JOIN turns t ON t.id = m.turn_id
			WHERE m.org_id = $1 AND m.channel_id = $2 AND m.platform_message_id = $3`, op.key.orgID, op.key.channelID, op.key.platformID)
}

func (op *editOp) run(_ context.Context, s *session) error {
	c := s.rows[op.conversationID]
	if c == nil || c.deleted || op.id == "" {
		return nil
	}
	aad := vault.InboundBody(op.key.orgID, op.id)
	if old, err := op.ring.Open(op.body, aad); err == nil && (string(old) == op.text || string(old) == WithdrawnText) {
		return nil // platforms report the preview of a link as a change, and a change that comes late brings nothing back
	}
	s.tx.Queue(1, `UPDATE messages SET body = $2, kind = 'text', edited = TRUE WHERE id = $1`, op.id, op.ring.Seal([]byte(op.text), aad))
	switch {
	case op.turn.String == TurnAwaiting:
		(&turnOp{turnID: op.turnID.String}).supersede(s)
		c.runBy(s.now)
	case op.turn.String == TurnNeedsAttention && op.code.String == codes.Draft: // as with a new text, the next draft is about the new one
		takeUp(s.tx, c.id, s.now)
		c.stands("")
		c.runBy(s.now)
	case op.turn.String == TurnNeedsAttention, op.turn.String == TurnDead: // it is asked anew, if it is
		s.tx.Queue(1, `UPDATE turns SET request = NULL WHERE id = $1`, op.turnID.String)
	}
	c.touch(s.now)
	return nil
}

var (
	_ finder = (*editOp)(nil)
	_ reader = (*editOp)(nil)
)
