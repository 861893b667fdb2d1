package store

import (
	"context"
	"fmt"
	"time"
)

// What one transaction of [Channels.Delete] takes away at most: so many conversations, and of each so many messages,
// turns and outbound messages. Others wait for the writer no longer than that takes.
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

// Delete removes an organization's channel with its conversations and all their messages, or returns
// [ErrNotFound]. A large channel takes many small transactions. The first makes the channel pending, so that nothing
// new comes in; the last removes it, and sees that nothing came in meanwhile. Once the first is done it goes on when
// ctx ends. When it fails later, or with [ErrBusy] after 20 s in which others had locked what was left, the channel
// stays, pending, until it is deleted again.
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
		step := channelDeletion{actor: actor, orgID: orgID, id: id, conversations: 1}
		for step.conversations > 0 {
			if err := c.db.Exec(ctx, step.run); err != nil {
				return err
			}
		}
		if step.done {
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

// channelDeletion is one transaction of a deletion. It never waits for a lock: the transaction it waited for could be waiting
// for what others have locked in this transaction.
type channelDeletion struct {
	actor, orgID, id string

	conversations int  // result: how many it found
	done          bool // result: there were none left, and the channel is gone
}

func (d *channelDeletion) run(ctx context.Context, tx Tx) (err error) {
	d.done = false
	ids, err := d.lockConversations(ctx, tx)
	d.conversations = len(ids)
	if err != nil || len(ids) > 0 {
		queueDeletions(tx, ids)
		return err
	}
	d.done, err = d.deleteEmptyChannel(ctx, tx)
	return err
}

// lockConversations locks a few conversations, so that nothing is written into them any more: the queue locks a
// conversation before it does.
func (d *channelDeletion) lockConversations(ctx context.Context, tx Tx) ([]string, error) {
	return QueryValues[string](ctx, tx, `SELECT id FROM conversations WHERE channel_id = $1 AND org_id = $2 LIMIT $3`+lockFreeRows(tx),
		d.id, d.orgID, deletedConversations)
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

// deleteEmptyChannel removes the channel, unless another transaction has it locked, or it has conversations. Beginning one locks
// the channel by its foreign key, so it is either seen here or fails. [ErrNotFound]: it was removed meanwhile.
func (d *channelDeletion) deleteEmptyChannel(ctx context.Context, tx Tx) (deleted bool, err error) {
	locked, err := Changed(ctx, tx, `SELECT id FROM channels WHERE id = $1 AND org_id = $2`+lockFreeRows(tx), d.id, d.orgID)
	if err == nil && !locked {
		err = change(ctx, tx, `SELECT id FROM channels WHERE id = $1 AND org_id = $2`, d.id, d.orgID)
	}
	if err != nil || !locked {
		return false, err
	}
	filled, err := Changed(ctx, tx, `SELECT id FROM conversations WHERE channel_id = $1 AND org_id = $2 LIMIT 1`, d.id, d.orgID)
	if err != nil || filled {
		return false, err
	}
	tx.Queue(AnyRows, `DELETE FROM channel_paces WHERE channel_id = $1 AND org_id = $2`, d.id, d.orgID)
	tx.Queue(AnyRows, `DELETE FROM channels WHERE id = $1 AND org_id = $2`, d.id, d.orgID)
	QueueAudit(tx, AuditEntry{Actor: d.actor, Action: "channel.delete", Target: d.id, OrgID: d.orgID})
	return true, nil
}

// lockFreeRows is [Tx.LockRows] for a SELECT that leaves out rows which others have locked.
func lockFreeRows(tx Tx) string {
	lock := tx.LockRows()
	if lock != "" {
		lock += " SKIP LOCKED"
	}
	return lock
}
