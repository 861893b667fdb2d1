package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// retentionPage is how many conversations one read of a sweep covers.
	retentionPage = 500
	// retentionRows bounds the rows of each sort that one transaction deletes of a conversation; a turn counts with all its rows.
	retentionRows = 50
	// retentionDay is a day in milliseconds.
	retentionDay = 24 * 60 * 60 * 1000
)

// Swept counts the rows that a sweep has deleted.
type Swept struct {
	Conversations int64 // of which nothing is left
	Messages      int64 // of both directions
	Turns         int64
}

func (s *Swept) add(more Swept) {
	s.Conversations += more.Conversations
	s.Messages += more.Messages
	s.Turns += more.Turns
}

// SweepRetention deletes the conversations that organizations no longer keep ([store.Organizations.SetRetention]): turns that ended before
// the organization's number of days, with the messages they answered and the answers; other messages of that age that need no answer or
// delivery; and empty conversations that are idle since then. Texts that wait for an answer and messages that wait for their delivery stay
// until that has ended, however old it is, and so does a leased conversation.
//
// It reads page by page and deletes in small transactions, each of one conversation under its lock, so that deliveries, workers and other
// sweeps don't wait long, and any number of processes may sweep at the same time. Time is the database's. The audit log has the numbers of
// an organization. Tombstones of deleted conversations also end here. An error ends the sweep; deleted rows stay deleted.
func SweepRetention(ctx context.Context, db *store.DB) (all Swept, err error) {
	if err := sweepTombstones(ctx, db); err != nil {
		return all, err
	}
	for page := (store.Page{}); ; {
		retentions, err := db.Organizations.Retentions(ctx, page)
		if err != nil {
			return all, fmt.Errorf("delete conversations: %w", err)
		}
		for _, retention := range retentions {
			swept, err := sweepOrganization(ctx, db, retention)
			all.add(swept)
			if err != nil {
				return all, fmt.Errorf("delete conversations: %w", err)
			}
		}
		if len(retentions) < page.Rows() {
			return all, nil
		}
		page.After = retentions[len(retentions)-1].OrgID
	}
}

// sweepOrganization sweeps an organization and writes the numbers into the audit log.
func sweepOrganization(ctx context.Context, db *store.DB, retention store.Retention) (all Swept, err error) {
	now, err := db.Now(ctx)
	before := now - retention.Days*retentionDay
	type sweepable struct {
		ID  string
		Old bool // it is worth a transaction
	}
	var page []sweepable
	for after, more := "", true; more && err == nil; more = len(page) == retentionPage {
		page, err = store.ReadRows(ctx, db, "look for old conversations", store.ScanFields[sweepable](),
			selectSweepable, retention.OrgID, after, before, retentionPage)
		for _, c := range page {
			if after = c.ID; c.Old && err == nil {
				err = sweepConversation(ctx, db, retention, c.ID, &all)
			}
		}
	}
	if all == (Swept{}) {
		return all, err
	}
	return all, errors.Join(err, db.AuditLog.Add(context.WithoutCancel(ctx), store.AuditEntry{
		Actor: "retention", Action: "conversation.forget", Target: retention.OrgID, OrgID: retention.OrgID,
		Detail: fmt.Sprintf("%d conversations and %d messages older than %d days", all.Conversations, all.Messages, retention.Days),
	}))
}

// selectSweepable selects the conversations of a page that may have something old enough; a false positive costs a read of the
// conversation. PostgreSQL would compute EXISTS for all conversations together, from whole tables.
const selectSweepable = `SELECT page.id,
		(SELECT 1 FROM messages WHERE conversation_id = page.id AND received_at < $3 AND turn_id IS NULL AND (handled OR page.run_at IS NULL)
			LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM turns WHERE conversation_id = page.id AND updated_at < $3 AND state <> 'awaiting' LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM outbound_messages WHERE conversation_id = page.id AND created_at < $3 AND turn_id IS NULL LIMIT 1) IS NOT NULL
		OR (page.updated_at < $3 AND (SELECT 1 FROM messages WHERE conversation_id = page.id LIMIT 1) IS NULL)
	FROM (SELECT id, updated_at, run_at FROM conversations WHERE ` + laterOfOrganization + ` ORDER BY id LIMIT $4) AS page ORDER BY page.id`

// sweepConversation sweeps a conversation and adds the numbers to all.
func sweepConversation(ctx context.Context, db *store.DB, retention store.Retention, id string, all *Swept) error {
	for sweep := (rowSweep{more: true}); sweep.more; {
		err := db.Do(ctx, Kind, &operation{conversation: id, run: func(s *session, c *conversationRow) error {
			sweep = rowSweep{}
			if c == nil || c.orgID != retention.OrgID || c.leaseUntil >= s.now {
				return nil
			}
			return sweep.run(s, c, s.now-retention.Days*retentionDay)
		}})
		if err != nil {
			return err
		}
		all.add(sweep.swept)
	}
	return nil
}

// rowSweep deletes a part of the old rows of a conversation.
type rowSweep struct {
	swept Swept
	more  bool // there may be more
}

const (
	selectOldTurns = `SELECT id FROM turns t WHERE conversation_id = $1 AND updated_at < $2 AND state <> 'awaiting'
		AND NOT EXISTS (SELECT 1 FROM outbound_messages WHERE turn_id = t.id AND state IN ('pending', 'sending'))
		ORDER BY id LIMIT $3`
	// An open text of a conversation that is due gets its answer first; while a person has the conversation, it is due for none.
	selectOldMessages = `SELECT id FROM messages WHERE conversation_id = $1 AND received_at < $2 AND turn_id IS NULL
		AND (handled OR EXISTS (SELECT 1 FROM conversations WHERE id = $1 AND run_at IS NULL)) ORDER BY received_at, id LIMIT $3`
	selectOldParts = `SELECT id FROM outbound_messages WHERE conversation_id = $1 AND created_at < $2 AND turn_id IS NULL
		AND state NOT IN ('pending', 'sending') ORDER BY created_at, id LIMIT $3`
	selectRest = `SELECT
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1) OR EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1)
			OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1),
		EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state IN ('needs_attention', 'dead'))
			OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND state IN ('failed', 'delivery_unknown'))`
)

var (
	deletePartsOfTurns    = listSizes.Statement(`DELETE FROM outbound_messages WHERE turn_id IN {list} RETURNING id`, 1, 0)
	deleteMessagesOfTurns = listSizes.Statement(`DELETE FROM messages WHERE turn_id IN {list} RETURNING id`, 1, 0)
	deleteTurns           = listSizes.Statement(`DELETE FROM turns WHERE id IN {list} RETURNING id`, 1, 0)
	deleteMessages        = listSizes.Statement(`DELETE FROM messages WHERE id IN {list} RETURNING id`, 1, 0)
	deleteParts           = listSizes.Statement(`DELETE FROM outbound_messages WHERE id IN {list} RETURNING id`, 1, 0)
)

func (w *rowSweep) run(s *session, c *conversationRow, before int64) error {
	// Messages and answers are deleted with their turn and not before it: a turn without texts or without an answer would break an
	// invariant ([Check]).
	messages, turns := &w.swept.Messages, &w.swept.Turns
	err := w.delete(s, c, before, selectOldTurns,
		deletion{deletePartsOfTurns, messages}, deletion{deleteMessagesOfTurns, messages}, deletion{deleteTurns, turns})
	if err == nil {
		err = w.delete(s, c, before, selectOldMessages, deletion{deleteMessages, messages})
	}
	if err == nil {
		err = w.delete(s, c, before, selectOldParts, deletion{deleteParts, messages})
	}
	if since := c.people.unansweredSince; err == nil && since > 0 && since < before {
		err = s.countUnanswered(c)
	}
	if err != nil {
		return fmt.Errorf("delete old messages: %w", err)
	}
	filled, attention, err := s.rest(c)
	switch {
	case err != nil:
		return err
	case !filled && !c.runAt.Valid && c.lastCustomerAt < before && c.updatedAt < before:
		s.tx.Queue(store.AnyRows, `DELETE FROM conversations WHERE id = $1`, c.id)
		c.deleted = true
		w.swept.Conversations = 1
	case !attention && (c.attention != "" || c.people.unknownSince != 0): // its cause was deleted
		c.acknowledge("")
		c.changed = true
	}
	return nil
}

// rest reads whether a conversation has any rows, and whether one of them needs attention.
func (s *session) rest(c *conversationRow) (filled, attention bool, err error) {
	err = s.query("read what is left", func(row store.Row) error { return row.Scan(&filled, &attention) }, selectRest, c.id)
	return filled, attention, err
}

// deletion deletes the rows of a list of ids and adds their number to count.
type deletion struct {
	texts store.ListStatement
	count *int64
}

// delete reads the ids of some rows, the oldest first, makes deletions by them, and records whether there may be more.
func (w *rowSweep) delete(s *session, c *conversationRow, before int64, find string, deletions ...deletion) error {
	ids, err := store.QueryValues[string](s.ctx, s.tx, find, c.id, before, retentionRows)
	w.more = w.more || len(ids) == retentionRows
	for _, d := range deletions {
		if err == nil {
			err = store.EachPadded(listSizes, ids, func(size int, piece []string) error {
				deleted, err := store.QueryValues[string](s.ctx, s.tx, d.texts[size], store.Arguments(piece)...)
				*d.count += int64(len(deleted))
				return err
			})
		}
	}
	return err
}

// SweepInterval is the pause between two sweeps of [StartRetention], and the longest that one may take: retention counts days.
const SweepInterval = time.Hour

// StartRetention runs [SweepRetention] and [media.Sweep] immediately and about every [SweepInterval], until the task is stopped, which
// finishes a transaction that runs. The database was opened with [Kind] among its kinds.
func StartRetention(db *store.DB, logger *slog.Logger) *repeat.Task {
	return repeat.Start(SweepInterval, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, SweepInterval)
		defer cancel()
		swept, err := SweepRetention(bounded, db)
		_, unswept := media.Sweep(bounded, db)
		err = errors.Join(err, unswept)
		if swept != (Swept{}) {
			logger.InfoContext(ctx, "deleted conversations that organizations don't keep any longer",
				"conversations", swept.Conversations, "messages", swept.Messages, "turns", swept.Turns)
		}
		if err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "deleting old conversations failed", "error", err)
		}
	})
}

const (
	// tombstoneDays is how long the ids of deleted messages are kept: platforms repeat a delivery for less time.
	tombstoneDays = store.MinRetentionDays
	// tombstoneRows bounds the tombstones that one transaction of a sweep deletes.
	tombstoneRows = 1000
)

// tombstone returns the hash that is kept of a deleted conversation's message, or of a message that was taken back before it arrived, to
// recognize its delivery. It reveals nothing.
func tombstone(key messageKey) [sha256.Size]byte {
	return sha256.Sum256([]byte(key.channelID + "\n" + key.platformID))
}

var (
	selectTombstones = listSizes.Statement(`SELECT hash FROM message_tombstones WHERE hash IN {list}`, 1, 0)
	insertTombstones = listSizes.Statement(`INSERT INTO message_tombstones (hash, org_id, expires_at) {list}
		ON CONFLICT (hash) DO NOTHING`, 3, 0)
	selectSeen = listSizes.Rows(selectSeenText, "text", "text", "text", "bytea")
)

// selectSeenText returns the keys of messages that are stored or have a tombstone. The limits make it look each up in an index.
const selectSeenText = `WITH wanted (org_id, channel_id, platform_message_id, hash) AS ({list})
	SELECT org_id, channel_id, platform_message_id FROM wanted WHERE coalesce(
		(SELECT 1 FROM messages m WHERE m.org_id = wanted.org_id AND m.channel_id = wanted.channel_id
			AND m.platform_message_id = wanted.platform_message_id LIMIT 1),
		(SELECT 1 FROM message_tombstones t WHERE t.hash = wanted.hash LIMIT 1)) = 1`

// queueSeen records which of the messages exist, or were deleted recently.
func (d *delivery) queueSeen(keys []messageKey) {
	hashes := store.Column(keys, func(key messageKey) []byte {
		hash := tombstone(key)
		return hash[:]
	})
	selectSeen.QueueLookup(d.s.tx, func(row store.Row) error {
		var key messageKey
		err := row.Scan(&key.orgID, &key.channelID, &key.platformID)
		d.seen[key] = true
		return err
	}, store.Column(keys, func(k messageKey) string { return k.orgID }), store.Column(keys, func(k messageKey) string { return k.channelID }),
		store.Column(keys, func(k messageKey) string { return k.platformID }), hashes)
}

// bury writes tombstones for the customer's messages until a time by the platform's clock, and for all that we sent.
func (s *session) bury(c *conversationRow, until int64) error {
	ids, err := store.QueryValues[string](s.ctx, s.tx, `SELECT platform_message_id FROM messages
			WHERE conversation_id = $1 AND received_at > $2 AND sent_at <= $3
		UNION SELECT platform_message_id FROM outbound_messages
			WHERE conversation_id = $1 AND updated_at > $2 AND platform_message_id <> ''`,
		c.id, s.now-tombstoneDays*retentionDay, until)
	if err != nil {
		return fmt.Errorf("read the ids of messages: %w", err)
	}
	s.queueTombstones(store.Column(ids, func(id string) tombstoneRow {
		return tombstoneRow{c.orgID, tombstone(messageKey{c.orgID, c.key.channelID, id})}
	}), tombstoneDays)
	return nil
}

// tombstoneRow is a hash that an organization keeps.
type tombstoneRow struct {
	orgID string
	hash  [sha256.Size]byte
}

// queueTombstones stores hashes for a number of days.
func (s *session) queueTombstones(rows []tombstoneRow, days int64) {
	store.QueueList(s.tx, listSizes, insertTombstones, false, rows, func(values []any, row tombstoneRow) []any {
		return append(values, row.hash[:], row.orgID, s.now+days*retentionDay)
	})
}

// spendDays is how long the turns of deleted conversations are kept: a widget's spend is bounded by the day.
const spendDays = 2

// sweepTombstones deletes expired tombstones, turns of past days, and keys of messages, in small transactions.
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
	for {
		deleted, err := store.Write(ctx, db, func(ctx context.Context, tx store.Tx) (deleted int, err error) {
			err = tx.Query(ctx, func(store.Row) error {
				deleted++
				return nil
			}, text, tx.Now()-age, tombstoneRows)
			return deleted, err
		})
		if err != nil || deleted < tombstoneRows {
			return store.Wrap("delete what is left of deleted conversations", err)
		}
	}
}
