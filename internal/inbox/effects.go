package inbox

import (
	"database/sql"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// unanswered are the turns that have no answer yet and could still get one.
const unanswered = `SELECT id FROM turns WHERE conversation_id = $1 AND state IN ('asking', 'needs_attention', 'dead')`

// silence discards what the assistant was about to say in a conversation: nobody has to answer what waits, turns without
// an answer end with a code, and parts that were not sent never are.
func silence(tx store.Tx, conversationID, code string, now int64) {
	tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE
		WHERE conversation_id = $1 AND turn_id IS NULL AND NOT handled`, conversationID)
	tx.Queue(store.AnyRows, `UPDATE messages SET handled = TRUE WHERE turn_id IN (`+unanswered+`)`, conversationID)
	tx.Queue(store.AnyRows, `UPDATE turns SET state = 'discarded', code = $2, updated_at = $3
		WHERE conversation_id = $1 AND state IN ('asking', 'needs_attention', 'dead')`, conversationID, code, now)
	tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'discarded', code = $2, updated_at = $3
		WHERE conversation_id = $1 AND state IN ('pending', 'sending') AND state = 'pending' AND author = 'assistant'`, conversationID, code, now)
}

// silence is the function of the same name for an operation on a locked conversation.
func (s *session) silence(c *conversationRow, code string) {
	silence(s.tx, c.id, code, s.now)
	c.waitingSince, c.attention = sql.NullInt64{}, ""
	c.touch(s.now)
}

// takeUp makes the texts of turns that need attention wait again. There are such turns only while the conversation's
// attention says something.
func takeUp(tx store.Tx, conversationID string, now int64) {
	tx.Queue(store.AnyRows, `UPDATE messages SET turn_id = NULL WHERE turn_id IN (
		SELECT id FROM turns WHERE conversation_id = $1 AND state = 'needs_attention')`, conversationID)
	tx.Queue(store.AnyRows, `UPDATE turns SET state = 'superseded', updated_at = $2
		WHERE conversation_id = $1 AND state = 'needs_attention'`, conversationID, now)
}
