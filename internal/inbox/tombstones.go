package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

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
	selectSeen = listSizes.Rows(selectSeenText, "text", "text", "text", "bytea")
)

// selectSeenText returns the keys of messages that are there, or whose tombstone is. The limits make it look each up in an index.
const selectSeenText = `WITH asked (org_id, channel_id, platform_message_id, hash) AS ({list})
	SELECT org_id, channel_id, platform_message_id FROM asked WHERE coalesce(
		(SELECT 1 FROM messages m WHERE m.org_id = asked.org_id AND m.channel_id = asked.channel_id
			AND m.platform_message_id = asked.platform_message_id LIMIT 1),
		(SELECT 1 FROM message_tombstones t WHERE t.hash = asked.hash LIMIT 1)) = 1`

// queueSeen records which of the messages exist, or were deleted recently.
func (d *decisions) queueSeen(tx store.Tx, keys []messageKey) {
	hashes := store.Column(keys, func(key messageKey) []byte {
		hash := tombstone(key)
		return hash[:]
	})
	selectSeen.QueueLookup(tx, func(row store.Row) error {
		var key messageKey
		err := row.Scan(&key.orgID, &key.channelID, &key.platformID)
		d.seen[key] = true
		return err
	}, append(messageKeyColumns(keys), hashes)...)
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
		SELECT id, org_id, channel_id, created_at, call_id FROM turns
		WHERE conversation_id = $1 AND created_at > $2 AND widget_id IS NOT NULL`, c.id, s.now-spendDays*retentionDay)
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
