package inbox

import (
	"context"
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
	// retentionRows bounds what one transaction deletes of each sort of a conversation's rows; a turn counts with all its rows.
	retentionRows = 50
	// retentionDay is a day in milliseconds.
	retentionDay = 24 * 60 * 60 * 1000
)

// Swept counts what a sweep has deleted.
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

// SweepRetention deletes what organizations don't keep any longer ([store.Organizations.SetRetention]): turns that ended so
// many days ago, with the messages they answered and the answers; other messages of that age that need no answer or delivery;
// and conversations of which nothing is left and that are idle for so long. What still waits to be answered or delivered stays
// until it has ended, however old it is, and so does a leased conversation.
//
// It reads page by page and deletes in small transactions, each of one conversation under its lock, so that deliveries, workers
// and other sweeps don't wait long, and any number of processes may sweep at once. Time is the database's. The audit log has
// what was deleted of an organization. What is left of deleted conversations ends here, too. An error ends the sweep; what was
// deleted stays deleted.
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

// sweepOrganization sweeps an organization and writes what was deleted into the audit log.
func sweepOrganization(ctx context.Context, db *store.DB, retention store.Retention) (Swept, error) {
	all, err := sweepConversations(ctx, db, retention)
	if all == (Swept{}) {
		return all, err
	}
	return all, errors.Join(err, db.AuditLog.Add(context.WithoutCancel(ctx), store.AuditEntry{
		Actor: "retention", Action: "conversation.forget", Target: retention.OrgID, OrgID: retention.OrgID,
		Detail: fmt.Sprintf("%d conversations and %d messages older than %d days", all.Conversations, all.Messages, retention.Days),
	}))
}

func sweepConversations(ctx context.Context, db *store.DB, retention store.Retention) (all Swept, err error) {
	now, err := db.Now(ctx)
	if err != nil {
		return all, err
	}
	before := now - retention.Days*retentionDay
	for after, more := "", true; more; {
		var ids []string
		ids, after, more, err = sweepable(ctx, db, retention.OrgID, after, before)
		if err != nil {
			return all, err
		}
		for _, id := range ids {
			swept, err := sweepConversation(ctx, db, retention, id)
			all.add(swept)
			if err != nil {
				return all, err
			}
		}
	}
	return all, nil
}

// selectSweepable selects the conversations of a page that may have something old enough; a false positive costs a read of the
// conversation. PostgreSQL would compute EXISTS for all conversations at once, from whole tables.
const selectSweepable = `SELECT page.id,
		(SELECT 1 FROM messages WHERE conversation_id = page.id AND received_at < $3 AND turn_id IS NULL AND (handled OR page.run_at IS NULL)
			LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM turns WHERE conversation_id = page.id AND updated_at < $3 AND state <> 'awaiting' LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM outbound_messages WHERE conversation_id = page.id AND created_at < $3 AND turn_id IS NULL LIMIT 1) IS NOT NULL
		OR (page.updated_at < $3 AND (SELECT 1 FROM messages WHERE conversation_id = page.id LIMIT 1) IS NULL)
	FROM (SELECT id, updated_at, run_at FROM conversations WHERE ` + laterOfOrganization + ` ORDER BY id LIMIT $4) AS page ORDER BY page.id`

// sweepable returns the conversations of a page that are worth a transaction, the page's last one, and whether there are more.
func sweepable(ctx context.Context, db *store.DB, orgID, after string, before int64) (ids []string, last string, more bool, err error) {
	page, err := store.ReadRows(ctx, db, "look for old conversations", func(row store.Row) (struct{}, error) {
		var old bool
		err := row.Scan(&last, &old)
		if old {
			ids = append(ids, last)
		}
		return struct{}{}, err
	}, selectSweepable, orgID, after, before, retentionPage)
	return ids, last, len(page) == retentionPage, err
}

func sweepConversation(ctx context.Context, db *store.DB, retention store.Retention, id string) (all Swept, err error) {
	for more := true; more; {
		op := &sweepOp{id: id, orgID: retention.OrgID, days: retention.Days}
		if err := db.Do(ctx, Kind, op); err != nil {
			return all, err
		}
		all.add(op.swept)
		more = op.more
	}
	return all, nil
}

// sweepOp deletes a part of the old rows of a conversation.
type sweepOp struct {
	id, orgID string
	days      int64

	swept Swept
	more  bool
}

func (op *sweepOp) conversation() string { return op.id }

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

func (op *sweepOp) run(ctx context.Context, s *session) error {
	op.swept, op.more = Swept{}, false
	c := s.rows[op.id]
	if c == nil || c.deleted || c.orgID != op.orgID || c.leaseUntil >= s.now {
		return nil
	}
	before := s.now - op.days*retentionDay
	if err := op.sweepTurns(ctx, s, before); err != nil {
		return fmt.Errorf("delete turns: %w", err)
	}
	for _, sort := range []struct {
		find  string
		clear store.ListStatement
	}{{selectOldMessages, deleteMessages}, {selectOldParts, deleteParts}} {
		ids, err := op.old(ctx, s, sort.find, before)
		if err == nil {
			err = deleted(ctx, s, sort.clear, ids, &op.swept.Messages)
		}
		if err != nil {
			return fmt.Errorf("delete messages: %w", err)
		}
	}
	if since := c.people.unansweredSince; since > 0 && since < before {
		if err := s.countUnanswered(ctx, c); err != nil {
			return err
		}
	}
	return op.sweepRest(ctx, s, c, before)
}

// sweepTurns deletes turns that ended long ago. Messages and answers go with their turn and not before it: a turn that answers
// nothing, or has no answer, would break an invariant ([Check]).
func (op *sweepOp) sweepTurns(ctx context.Context, s *session, before int64) error {
	ids, err := op.old(ctx, s, selectOldTurns, before)
	if err == nil {
		err = deleted(ctx, s, deletePartsOfTurns, ids, &op.swept.Messages)
	}
	if err == nil {
		err = deleted(ctx, s, deleteMessagesOfTurns, ids, &op.swept.Messages)
	}
	if err == nil {
		err = deleted(ctx, s, deleteTurns, ids, &op.swept.Turns)
	}
	return err
}

// sweepRest deletes the conversation itself when nothing is left of it, or clears an attention whose cause was deleted.
func (op *sweepOp) sweepRest(ctx context.Context, s *session, c *conversationRow, before int64) error {
	var filled, attention bool
	rest := func(row store.Row) error { return row.Scan(&filled, &attention) }
	if err := s.tx.Query(ctx, rest, selectRest, op.id); err != nil {
		return fmt.Errorf("look at what is left: %w", err)
	}
	switch {
	case !filled && !c.runAt.Valid && c.lastCustomerAt < before && c.updatedAt < before:
		s.tx.Queue(store.AnyRows, `DELETE FROM conversations WHERE id = $1`, c.id)
		c.deleted = true
		op.swept.Conversations = 1
	case !attention && (c.attention != "" || c.people.doubtSince != 0):
		c.looked("")
		c.changed = true
	}
	return nil
}

// old reads the ids of a sort of rows, the oldest first, and records whether there may be more.
func (op *sweepOp) old(ctx context.Context, s *session, text string, before int64) (ids []string, err error) {
	ids, err = store.QueryValues[string](ctx, s.tx, text, op.id, before, retentionRows)
	op.more = op.more || len(ids) == retentionRows
	return ids, err
}

// deleted runs a deletion and counts its rows.
func deleted(ctx context.Context, s *session, texts store.ListStatement, ids []string, count *int64) error {
	return store.EachPadded(listSizes, ids, func(size int, piece []string) error {
		return s.tx.Query(ctx, func(store.Row) error {
			*count++
			return nil
		}, texts[size], store.Arguments(piece)...)
	})
}

// SweepInterval is the pause between two sweeps of [StartRetention], and the longest that one may take: retention counts days.
const SweepInterval = time.Hour

// StartRetention runs [SweepRetention] and [media.Sweep] at once and about every [SweepInterval], until the task is
// stopped, which finishes a transaction that runs. The database was opened with [Kind] among its kinds.
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
