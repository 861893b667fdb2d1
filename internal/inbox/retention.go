package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// retentionPage is how many conversations one read of a sweep looks at.
	retentionPage = 500
	// retentionRows bounds what one transaction deletes of each sort of a conversation's rows, turns with all that belongs to
	// them.
	retentionRows = 50
	// retentionDay is a day in milliseconds.
	retentionDay = 24 * 60 * 60 * 1000
)

// Forgotten is what a sweep has deleted.
type Forgotten struct {
	Conversations int64 // of which nothing is left
	Messages      int64 // of both directions
	Turns         int64
}

func (f *Forgotten) add(more Forgotten) {
	f.Conversations += more.Conversations
	f.Messages += more.Messages
	f.Turns += more.Turns
}

// Forget deletes what organizations don't keep any longer ([store.Organizations.SetRetention]): turns that ended so many days ago, with
// the messages they answered and the answers; other messages of that age that nobody has to answer or deliver any more; and
// conversations of which nothing is left and in which nothing happened for so long. What still waits to be answered or
// delivered stays until it has ended, however old it is, and so does a conversation that a worker has.
//
// It reads page by page and deletes in small transactions, one conversation in each, under its lock: no delivery, worker
// or other sweep waits for it for long, and any number of processes may sweep at once. Time is the database's. What was
// deleted of an organization is in the audit log. What is left of deleted conversations ends here, too. An error ends the
// sweep; what was deleted stays deleted.
func Forget(ctx context.Context, db *store.DB) (all Forgotten, err error) {
	if err := forgetTombstones(ctx, db); err != nil {
		return all, err
	}
	for page := (store.Page{}); ; {
		retentions, err := db.Organizations.Retentions(ctx, page)
		if err != nil {
			return all, fmt.Errorf("forget conversations: %w", err)
		}
		for _, retention := range retentions {
			forgotten, err := forgetOf(ctx, db, retention)
			all.add(forgotten)
			if err != nil {
				return all, fmt.Errorf("forget conversations: %w", err)
			}
		}
		if len(retentions) < page.Rows() {
			return all, nil
		}
		page.After = retentions[len(retentions)-1].OrgID
	}
}

// forgetOf sweeps an organization, and writes into the audit log what that has deleted.
func forgetOf(ctx context.Context, db *store.DB, retention store.Retention) (Forgotten, error) {
	all, err := forgetConversations(ctx, db, retention)
	if all == (Forgotten{}) {
		return all, err
	}
	return all, errors.Join(err, db.AuditLog.Add(context.WithoutCancel(ctx), store.AuditEntry{
		Actor: "retention", Action: "conversation.forget", Target: retention.OrgID, OrgID: retention.OrgID,
		Detail: fmt.Sprintf("%d conversations and %d messages older than %d days", all.Conversations, all.Messages, retention.Days),
	}))
}

func forgetConversations(ctx context.Context, db *store.DB, retention store.Retention) (all Forgotten, err error) {
	now, err := db.Now(ctx)
	if err != nil {
		return all, err
	}
	before := now - retention.Days*retentionDay
	for after, more := "", true; more; {
		var ids []string
		ids, after, more, err = forgettable(ctx, db, retention.OrgID, after, before)
		if err != nil {
			return all, err
		}
		for _, id := range ids {
			forgotten, err := forgetConversation(ctx, db, retention, id)
			all.add(forgotten)
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// selectForgettable says of a page of conversations which may have something that is old enough; that it says yes too often
// costs a look at the conversation. PostgreSQL would answer EXISTS for all conversations at once, out of whole tables.
const selectForgettable = `SELECT page.id,
		(SELECT 1 FROM messages WHERE conversation_id = page.id AND received_at < $3 AND turn_id IS NULL AND handled LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM turns WHERE conversation_id = page.id AND updated_at < $3 AND state <> 'asking' LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM outbound_messages WHERE conversation_id = page.id AND created_at < $3 AND turn_id IS NULL LIMIT 1) IS NOT NULL
		OR (page.updated_at < $3 AND (SELECT 1 FROM messages WHERE conversation_id = page.id LIMIT 1) IS NULL)
	FROM (SELECT id, updated_at FROM conversations WHERE org_id = $1 AND id > $2 ORDER BY id LIMIT $4) AS page ORDER BY page.id`

// forgettable reads which conversations of a page are worth a transaction, the page's last one, and whether there are more.
func forgettable(ctx context.Context, db *store.DB, orgID, after string, before int64) (ids []string, last string, more bool, err error) {
	page, err := store.ReadRows(ctx, db, "look for old conversations", func(row store.Row) (struct{}, error) {
		var old bool
		err := row.Scan(&last, &old)
		if old {
			ids = append(ids, last)
		}
		return struct{}{}, err
	}, selectForgettable, orgID, after, before, retentionPage)
	return ids, last, len(page) == retentionPage, err
}

func forgetConversation(ctx context.Context, db *store.DB, retention store.Retention, id string) (all Forgotten, err error) {
	for more := true; more; {
		op := &forgetOp{id: id, orgID: retention.OrgID, days: retention.Days}
		if err := db.Do(ctx, Kind, op); err != nil {
			return all, err
		}
		all.add(op.forgotten)
		more = op.more
	}
	return all, nil
}

// forgetOp deletes a part of what is old in a conversation.
type forgetOp struct {
	id, orgID string
	days      int64

	forgotten Forgotten
	more      bool
}

func (op *forgetOp) conversation() string { return op.id }

const (
	selectOldTurns = `SELECT id FROM turns t WHERE conversation_id = $1 AND updated_at < $2 AND state <> 'asking'
		AND NOT EXISTS (SELECT 1 FROM outbound_messages WHERE turn_id = t.id AND state IN ('pending', 'sending'))
		ORDER BY id LIMIT $3`
	selectOldMessages = `SELECT id FROM messages WHERE conversation_id = $1 AND received_at < $2 AND turn_id IS NULL AND handled
		ORDER BY received_at, id LIMIT $3`
	selectOldParts = `SELECT id FROM outbound_messages WHERE conversation_id = $1 AND created_at < $2 AND turn_id IS NULL
		AND state NOT IN ('pending', 'sending') ORDER BY created_at, id LIMIT $3`
	selectRest = `SELECT
		EXISTS (SELECT 1 FROM messages WHERE conversation_id = $1) OR EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1)
			OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1),
		EXISTS (SELECT 1 FROM turns WHERE conversation_id = $1 AND state IN ('needs_attention', 'dead'))
			OR EXISTS (SELECT 1 FROM outbound_messages WHERE conversation_id = $1 AND state IN ('failed', 'delivery_unknown'))`
)

var (
	deletePartsOfTurns    = listStatement(`DELETE FROM outbound_messages WHERE turn_id IN {list} RETURNING id`, 1, 0)
	deleteMessagesOfTurns = listStatement(`DELETE FROM messages WHERE turn_id IN {list} RETURNING id`, 1, 0)
	deleteTurns           = listStatement(`DELETE FROM turns WHERE id IN {list} RETURNING id`, 1, 0)
	deleteMessages        = listStatement(`DELETE FROM messages WHERE id IN {list} RETURNING id`, 1, 0)
	deleteParts           = listStatement(`DELETE FROM outbound_messages WHERE id IN {list} RETURNING id`, 1, 0)
)

func (op *forgetOp) run(ctx context.Context, s *session) error {
	op.forgotten, op.more = Forgotten{}, false
	c := s.rows[op.id]
	if c == nil || c.deleted || c.orgID != op.orgID || c.leaseUntil >= s.now {
		return nil
	}
	before := s.now - op.days*retentionDay
	if err := op.forgetTurns(ctx, s, before); err != nil {
		return fmt.Errorf("forget turns: %w", err)
	}
	for _, sort := range []struct {
		find  string
		clear listTexts
	}{{selectOldMessages, deleteMessages}, {selectOldParts, deleteParts}} {
		ids, err := op.old(ctx, s, sort.find, before)
		if err == nil {
			err = deleted(ctx, s, sort.clear, ids, &op.forgotten.Messages)
		}
		if err != nil {
			return fmt.Errorf("forget messages: %w", err)
		}
	}
	return op.forgetRest(ctx, s, c, before)
}

// forgetTurns deletes turns that ended long ago. Messages and answers go with their turn and not before it: a turn that
// answers nothing, or has no answer, would be a fault of the queue ([Check]).
func (op *forgetOp) forgetTurns(ctx context.Context, s *session, before int64) error {
	ids, err := op.old(ctx, s, selectOldTurns, before)
	if err == nil {
		err = deleted(ctx, s, deletePartsOfTurns, ids, &op.forgotten.Messages)
	}
	if err == nil {
		err = deleted(ctx, s, deleteMessagesOfTurns, ids, &op.forgotten.Messages)
	}
	if err == nil {
		err = deleted(ctx, s, deleteTurns, ids, &op.forgotten.Turns)
	}
	return err
}

// forgetRest deletes the conversation itself when nothing is left of it, or takes back that somebody should look at what
// isn't there any more.
func (op *forgetOp) forgetRest(ctx context.Context, s *session, c *conversationRow, before int64) error {
	var filled, attention bool
	rest := func(row store.Row) error { return row.Scan(&filled, &attention) }
	if err := s.tx.Query(ctx, rest, selectRest, op.id); err != nil {
		return fmt.Errorf("look at what is left: %w", err)
	}
	switch {
	case !filled && !c.runAt.Valid && c.lastCustomerAt < before && c.updatedAt < before:
		s.tx.Queue(store.AnyRows, `DELETE FROM conversations WHERE id = $1`, c.id)
		c.deleted = true
		op.forgotten.Conversations = 1
	case !attention && c.attention != "":
		c.attention, c.changed = "", true
	}
	return nil
}

// old reads the ids of a sort of rows, the oldest first, and notes when there may be more of them.
func (op *forgetOp) old(ctx context.Context, s *session, text string, before int64) (ids []string, err error) {
	err = s.tx.Query(ctx, func(row store.Row) error {
		var id string
		err := row.Scan(&id)
		ids = append(ids, id)
		return err
	}, text, op.id, before, retentionRows)
	op.more = op.more || len(ids) == retentionRows
	return ids, err
}

// deleted runs a deletion and counts its rows.
func deleted(ctx context.Context, s *session, texts listTexts, ids []string, count *int64) error {
	return eachPadded(ids, func(size int, piece []string) error {
		return s.tx.Query(ctx, func(store.Row) error {
			*count++
			return nil
		}, texts[size], anys(piece)...)
	})
}
