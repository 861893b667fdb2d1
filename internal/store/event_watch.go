package store

import (
	"context"
	"strconv"
)

// EventWatch finds what becomes true by the passing of time, or in tables whose writers must not pay for events, and tells of it: each
// method marks what it tells of and writes the event in one transaction, so that several processes may call it at once and none tells
// twice. Each reports whether there may be more.
type EventWatch struct{ db *DB }

const (
	watchPage = 200

	selectWalletsCrossed = `SELECT o.id FROM organizations o LEFT JOIN wallets w ON w.org_id = o.id AND w.env = 'live'
		WHERE o.low_balance_micros > 0 AND (coalesce(w.balance_micros, 0) < o.low_balance_micros) <> (o.low_balance_since > 0)
		ORDER BY o.id LIMIT $1`
	// walkWaitingOrganizations visits the organizations with customers outside of the queue whose wait people weren't told of, and returns
	// those of which the oldest waits longer than their bound. Each costs three look-ups, however many wait.
	walkWaitingOrganizations = `WITH RECURSIVE walk (org_id) AS (
			SELECT org_id FROM (SELECT (SELECT org_id FROM conversations WHERE ` + untold + `
				ORDER BY org_id LIMIT 1) AS org_id) AS beginning
		UNION ALL
			SELECT (SELECT c.org_id FROM conversations c WHERE ` + untold + `
				AND c.org_id > walk.org_id ORDER BY c.org_id LIMIT 1)
			FROM walk WHERE org_id IS NOT NULL
		)
		SELECT o.id FROM walk JOIN organizations o ON o.id = walk.org_id
		WHERE o.waiting_minutes > 0 AND (SELECT c.unanswered_since FROM conversations c WHERE c.org_id = walk.org_id
			AND ` + untold + `
			ORDER BY c.unanswered_since LIMIT 1) < $1 - o.waiting_minutes * 60000`
	selectWaitingUntold = `SELECT c.id FROM conversations c WHERE c.org_id = $1 AND ` + untold + ` AND c.unanswered_since < $2
		ORDER BY c.unanswered_since LIMIT $3`
	// selectQueuedUntold reads the queue from a due time on. A conversation in the usual course of an answer is in no index of its wait: the
	// queue's own index has all that this read needs.
	selectQueuedUntold = `SELECT c.id, c.run_at FROM conversations c CROSS JOIN organizations o WHERE c.run_at >= $2 AND c.unanswered_since > 0
			AND c.unanswered_since <> c.waiting_told AND o.id = c.org_id AND o.waiting_minutes > 0
			AND c.unanswered_since < $1 - o.waiting_minutes * 60000
		ORDER BY c.run_at LIMIT $3`
	// untold is the condition of the index conversations_untold.
	untold = `run_at IS NULL AND unanswered_since > 0 AND unanswered_since <> waiting_told`
)

// Wallets tells of live wallets that fell below their organization's bound, once for each time that they do.
func (w EventWatch) Wallets(ctx context.Context) (more bool, err error) {
	orgs, err := ReadRows(ctx, w.db, "look for low wallets", ScanValue[string], selectWalletsCrossed, watchPage)
	if err != nil {
		return false, err
	}
	for _, org := range orgs {
		if err := w.db.Exec(ctx, func(ctx context.Context, tx Tx) error { return tellWallet(ctx, tx, org) }); err != nil {
			return false, err
		}
	}
	return len(orgs) == watchPage, nil
}

func tellWallet(ctx context.Context, tx Tx, orgID string) error {
	var below, since, balance int64
	err := queryRow(ctx, tx, []any{&below, &since},
		`SELECT low_balance_micros, low_balance_since FROM organizations WHERE id = $1`+tx.LockRows(), orgID)
	if err != nil {
		return err
	}
	err = tx.Query(ctx, func(row Row) error { return row.Scan(&balance) },
		`SELECT balance_micros FROM wallets WHERE org_id = $1 AND env = 'live'`, orgID)
	if err != nil {
		return err
	}
	low := below > 0 && balance < below
	if low == (since > 0) {
		return nil
	}
	since = 0
	if low {
		since = tx.Now()
		QueueEvent(tx, &Event{
			OrgID: orgID, Type: EventWalletLow,
			BalanceMicros: strconv.FormatInt(balance, 10), BelowMicros: strconv.FormatInt(below, 10),
		})
	}
	tx.Queue(1, `UPDATE organizations SET low_balance_since = $2 WHERE id = $1`, orgID, since)
	return nil
}

// Waits tells of customers who have waited for an answer longer than their organization's bound, once for each wait.
func (w EventWatch) Waits(ctx context.Context) (more bool, err error) {
	now, err := w.db.Now(ctx)
	if err != nil {
		return false, err
	}
	orgs, err := ReadRows(ctx, w.db, "look for waiting customers", ScanValue[string], walkWaitingOrganizations, now)
	for _, org := range orgs {
		told, err := w.waitsOf(ctx, org, now)
		if err != nil {
			return false, err
		}
		more = more || told == watchPage
	}
	if err != nil {
		return false, err
	}
	return more, w.queuedWaits(ctx, now)
}

// queuedWaits emits the events of all customers in the queue who have waited too long.
func (w EventWatch) queuedWaits(ctx context.Context, now int64) error {
	from := int64(0)
	return ReadPages(ctx, watchPage, func(rows int) (more bool, err error) {
		due := from
		ids, err := ReadRows(ctx, w.db, "look for waiting customers", func(row Row) (id string, err error) {
			err = row.Scan(&id, &due)
			return id, err
		}, selectQueuedUntold, now, from, rows)
		if err != nil {
			return false, err
		}
		from = due
		return len(ids) == rows, w.tellWaits(ctx, ids)
	})
}

func (w EventWatch) tellWaits(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := w.db.Exec(ctx, func(ctx context.Context, tx Tx) error { return tellWait(ctx, tx, id) }); err != nil {
			return err
		}
	}
	return nil
}

// waitsOf tells of an organization's customers who have waited too long now, of a page at most, and returns how many.
func (w EventWatch) waitsOf(ctx context.Context, orgID string, now int64) (told int, err error) {
	organization, err := w.db.Organizations.ByID(ctx, orgID)
	if err != nil || organization.WaitingMinutes == 0 {
		return 0, err
	}
	ids, err := ReadRows(ctx, w.db, "look for waiting customers", ScanValue[string], selectWaitingUntold,
		orgID, now-organization.WaitingMinutes*60_000, watchPage)
	if err != nil {
		return 0, err
	}
	return len(ids), w.tellWaits(ctx, ids)
}

func tellWait(ctx context.Context, tx Tx, conversationID string) error {
	var event Event
	var since int64
	found := false
	err := tx.Query(ctx, func(row Row) error {
		found = true
		return row.Scan(&event.OrgID, &event.ChannelID, &since)
	}, `UPDATE conversations SET waiting_told = unanswered_since WHERE id = $1 AND unanswered_since > 0
		AND unanswered_since <> waiting_told RETURNING org_id, channel_id, unanswered_since`, conversationID)
	if err != nil || !found {
		return err // it was answered meanwhile, or another process has told of it
	}
	event.Type, event.ConversationID, event.Since = EventWaiting, conversationID, EventTime(since)
	QueueEvent(tx, &event)
	return nil
}

// Expiry tells that a channel's token ends at a time, in epoch milliseconds, and isn't renewed; once for each end.
func (w EventWatch) Expiry(ctx context.Context, orgID, channelID string, end int64) error {
	return w.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		told, err := Changed(ctx, tx, `UPDATE channels SET expiry_told = $3 WHERE id = $1 AND org_id = $2 AND expiry_told <> $3 RETURNING id`,
			channelID, orgID, end)
		if err == nil && told {
			QueueEvent(tx, &Event{OrgID: orgID, Type: EventChannelExpiring, ChannelID: channelID, ExpiresAt: EventTime(end)})
		}
		return err
	})
}
