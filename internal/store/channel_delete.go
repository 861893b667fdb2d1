package store

import (
	"context"
	"fmt"
	"time"
)

// Limits per transaction of [Channels.Delete]: conversations, and rows per conversation and table. They keep a deletion from blocking other
// writes for long.
const (
	deletedConversations = 10
	deletedRows          = 50
)

// How often Delete looks again for rows that other transactions have locked, and how long it waits in between. It adds up
// to more than a transaction may last.
const (
	deleteLooks = 1000
	deletePause = 20 * time.Millisecond
)

// Delete removes an organization's channel with its conversations and all their messages. It returns [ErrNotFound] if there is no such
// channel. A large channel needs many small transactions. The first makes the channel pending, so that nothing new comes in; after it,
// Delete ignores the end of ctx. The last removes the channel if nothing new has come in. Delete returns [ErrBusy] after 20 s in which
// other transactions kept rows locked. After an error the channel stays pending until Delete is called again.
func (c Channels) Delete(ctx context.Context, actor, orgID, id string) error {
	err := c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		return change(ctx, tx, `UPDATE channels SET state = $3, updated_at = $4 WHERE id = $1 AND org_id = $2 RETURNING id`,
			id, orgID, ChannelPending, tx.Now())
	})
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for range deleteLooks {
		deleted := false
		for left := 1; left > 0; {
			err := c.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
				deleted = false
				// The queue locks a conversation before it writes to it, so nothing is added to a locked one. The deletion never waits for a lock,
				// because the holder of the lock could be waiting for a row that this transaction has locked.
				ids, err := QueryValues[string](ctx, tx, `SELECT id FROM conversations WHERE channel_id = $1 AND org_id = $2 LIMIT $3`+
					SkipLocked(tx), id, orgID, deletedConversations)
				if left = len(ids); err != nil || left > 0 {
					queueDeletions(tx, ids)
					return err
				}
				deleted, err = deleteEmptyChannel(ctx, tx, actor, orgID, id)
				return err
			})
			if err != nil {
				return err
			}
		}
		if deleted {
			return nil
		}
		select {
		case <-time.After(deletePause):
		case <-c.db.writer.Closed():
			return ErrClosed
		}
	}
	return fmt.Errorf("store: delete a channel: %w: its conversations stayed locked", ErrBusy)
}

// queueDeletions deletes conversations, or at first a part of their messages.
func queueDeletions(tx Tx, conversationIDs []string) {
	for _, id := range conversationIDs {
		for _, text := range [...]string{
			`DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE conversation_id = $1 LIMIT $2)`,
			`DELETE FROM turns WHERE id IN (SELECT id FROM turns WHERE conversation_id = $1 LIMIT $2)`,
			`DELETE FROM outbound_messages WHERE id IN (SELECT id FROM outbound_messages WHERE conversation_id = $1 LIMIT $2)`,
		} {
			tx.Queue(AnyRows, text, id, deletedRows)
		}
		tx.Queue(AnyRows, `DELETE FROM conversations WHERE id = $1
			AND NOT EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1)
			AND NOT EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1)
			AND NOT EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1)`, id)
	}
}

// deleteEmptyChannel removes the channel, unless another transaction has locked it or it has conversations. Beginning a conversation locks
// the channel by its foreign key, so a new conversation is either found here or fails. It returns [ErrNotFound] if the channel has been
// removed.
func deleteEmptyChannel(ctx context.Context, tx Tx, actor, orgID, id string) (deleted bool, err error) {
	locked, err := Changed(ctx, tx, `SELECT id FROM channels WHERE id = $1 AND org_id = $2`+SkipLocked(tx), id, orgID)
	if err == nil && !locked {
		err = change(ctx, tx, `SELECT id FROM channels WHERE id = $1 AND org_id = $2`, id, orgID)
	}
	if err != nil || !locked {
		return false, err
	}
	filled, err := Changed(ctx, tx, `SELECT id FROM conversations WHERE channel_id = $1 AND org_id = $2 LIMIT 1`, id, orgID)
	if err != nil || filled {
		return false, err
	}
	tx.Queue(AnyRows, `DELETE FROM channel_paces WHERE channel_id = $1 AND org_id = $2`, id, orgID)
	tx.Queue(AnyRows, `DELETE FROM channels WHERE id = $1 AND org_id = $2`, id, orgID)
	audit(tx, actor, "channel.delete", id, orgID, "")
	return true, nil
}
