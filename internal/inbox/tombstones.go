package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// tombstoneDays is how long the ids of deleted messages are kept: platforms repeat a delivery for less time.
	tombstoneDays = store.MinRetentionDays
	// tombstoneRows bounds the tombstones that one transaction of a sweep deletes.
	tombstoneRows = 1000
)

// tombstone returns the hash that is kept of a deleted conversation's message, or of one that was taken back before it arrived, to
// recognize its delivery. It reveals
// nothing.
func tombstone(key messageKey) [sha256.Size]byte {
	return sha256.Sum256([]byte(key.channelID + "\n" + key.platformID))
}

var (
	selectTombstones = listSizes.Statement(`SELECT hash FROM message_tombstones WHERE hash IN {list}`, 1, 0)
	insertTombstones = listSizes.Statement(`INSERT INTO message_tombstones (hash, org_id, expires_at) {list}
		ON CONFLICT (hash) DO NOTHING`, 3, 0)
	// selectSeen finds messages and, in the same statement, tombstones, of which it has only the hash.
	selectSeen = seenStatement(`SELECT org_id, channel_id, platform_message_id, NULL FROM messages
		WHERE (org_id, channel_id, platform_message_id) IN ({list})
		UNION ALL SELECT '', '', '', hash FROM message_tombstones WHERE hash IN {hashes}`)
)

// seenStatement is a statement with a list of message keys whose "{hashes}" stands for as many tombstones behind them.
func seenStatement(text string) store.ListStatement {
	return listSizes.Build(func(rows int) string {
		return strings.NewReplacer("{list}", store.ParameterRows(rows, 3, 0), "{hashes}", store.ParameterRows(rows, 1, 3*rows)).Replace(text)
	})
}

// queueSeen records which of the messages exist, or were deleted recently.
func (d *decisions) queueSeen(tx store.Tx, keys []messageKey) {
	for size, piece := range store.Padded(listSizes, keys) {
		args := messageKeyArgs(piece)
		hashed := make(map[[sha256.Size]byte]messageKey, len(piece))
		for _, key := range piece {
			hash := tombstone(key)
			hashed[hash] = key
			args = append(args, hash[:])
		}
		tx.QueueQuery(func(row store.Row) error {
			var key messageKey
			var hash []byte
			err := row.Scan(&key.orgID, &key.channelID, &key.platformID, &hash)
			if len(hash) == sha256.Size {
				key = hashed[[sha256.Size]byte(hash)]
			}
			d.seen[key] = true
			return err
		}, selectSeen[size], args...)
	}
}

// bury writes tombstones for the customer's messages until a time by the platform's clock, and for all that we sent.
func bury(ctx context.Context, s *session, c *conversationRow, until int64) error {
	ids, err := store.QueryValues[string](ctx, s.tx, `SELECT platform_message_id FROM messages
			WHERE conversation_id = $1 AND received_at > $2 AND sent_at <= $3
		UNION SELECT platform_message_id FROM outbound_messages
			WHERE conversation_id = $1 AND updated_at > $2 AND platform_message_id <> ''`,
		c.id, s.now-tombstoneDays*retentionDay, until)
	if err != nil {
		return fmt.Errorf("read the ids of messages: %w", err)
	}
	rows := make([]tombstoneRow, len(ids))
	for i, id := range ids {
		rows[i] = tombstoneRow{c.orgID, tombstone(messageKey{c.orgID, c.key.channelID, id})}
	}
	s.queueTombstones(rows, tombstoneDays)
	return nil
}

// tombstoneRow is a hash that an organization keeps.
type tombstoneRow struct {
	orgID string
	hash  [sha256.Size]byte
}

// queueTombstones keeps hashes for so many days.
func (s *session) queueTombstones(rows []tombstoneRow, days int64) {
	store.EachExact(listSizes, rows, func(size int, piece []tombstoneRow) {
		args := make([]any, 0, 3*len(piece))
		for i := range piece {
			args = append(args, piece[i].hash[:], piece[i].orgID, s.now+days*retentionDay)
		}
		s.tx.Queue(store.AnyRows, insertTombstones[size], args...)
	})
}

// spendDays is how long the turns of deleted conversations are kept: a widget's spend is bounded by the day.
const spendDays = 2

// keepSpend records the recent turns of a widget's conversation, whose cost stays in the sum of the widget's day.
func keepSpend(s *session, c *conversationRow) {
	s.tx.Queue(store.AnyRows, `INSERT INTO deleted_turns (id, org_id, channel_id, created_at, call_id)
		SELECT t.id, t.org_id, t.channel_id, t.created_at, t.call_id FROM turns t JOIN channels c ON c.id = t.channel_id
		WHERE t.conversation_id = $1 AND t.created_at > $2 AND c.type = 'widget'`, c.id, s.now-spendDays*retentionDay)
}

// sweepTombstones deletes expired tombstones, turns that count for no day any more, and keys of messages, in small transactions.
func sweepTombstones(ctx context.Context, db *store.DB) error {
	return errors.Join(
		deleteRows(ctx, db, 0, `DELETE FROM message_tombstones WHERE hash IN
			(SELECT hash FROM message_tombstones WHERE expires_at <= $1 LIMIT $2) RETURNING hash`),
		deleteRows(ctx, db, spendDays*retentionDay, `DELETE FROM deleted_turns WHERE id IN
			(SELECT id FROM deleted_turns WHERE created_at <= $1 LIMIT $2) RETURNING id`),
		deleteRows(ctx, db, sendKeyLife.Milliseconds(), `DELETE FROM message_keys WHERE (org_id, key_hash) IN
			(SELECT org_id, key_hash FROM message_keys WHERE created_at <= $1 LIMIT $2) RETURNING org_id`),
	)
}

// deleteRows repeats a statement that deletes rows older than age milliseconds until it deletes none.
func deleteRows(ctx context.Context, db *store.DB, age int64, text string) error {
	for deleted := tombstoneRows; deleted == tombstoneRows; {
		err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			deleted = 0
			return tx.Query(ctx, func(store.Row) error {
				deleted++
				return nil
			}, text, tx.Now()-age, tombstoneRows)
		})
		if err != nil {
			return fmt.Errorf("delete what is left of deleted conversations: %w", err)
		}
	}
	return nil
}
