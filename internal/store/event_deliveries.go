package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
)

// States of an event on its way to an endpoint.
const (
	DeliveryPending   = "pending"
	DeliveryDelivered = "delivered"
	DeliveryFailed    = "failed" // given up
)

// EventDelivery is an event on its way to an endpoint.
type EventDelivery struct {
	EventID, EndpointID, OrgID string
	Type                       EventType
	Payload                    string
	State                      string
	Attempts                   int64
	RunAt                      int64 // of the next try, or when another process may try if this one dies; epoch milliseconds
	// Outcome and Status describe the last try, see package events. They are zero values before the first try.
	Outcome              string
	Status               int64
	CreatedAt, UpdatedAt int64
}

var eventDeliveries = newTable[EventDelivery]("event_deliveries", nil)

// EventDeliveries is the queue of events.
type EventDeliveries struct{ db *DB }

var pendingEvents = NewDueWork("look for events", "event_deliveries", "state = 'pending'")

// Due returns the organizations after cursor that have events to try now, as [DueWork.Due].
func (d EventDeliveries) Due(ctx context.Context, cursor string) (orgs []string, next string, empty bool, err error) {
	return pendingEvents.Due(ctx, d.db, cursor)
}

// OperatorDue is [EventDeliveries.Due] for the operator's own events. Their rows belong to no organization.
func (d EventDeliveries) OperatorDue(ctx context.Context, _ string) (orgs []string, next string, empty bool, err error) {
	now, err := d.db.Now(ctx)
	if err != nil {
		return nil, "", false, err
	}
	first, found, err := orAbsent(ReadRow(ctx, d.db, "look for the operator's events", ScanValue[int64],
		`SELECT run_at FROM event_deliveries WHERE org_id = '' AND state = 'pending' ORDER BY run_at LIMIT 1`))
	if found && first <= now {
		orgs = []string{""}
	}
	return orgs, "", !found, err
}

// Lease leases up to limit due events of an organization, longest due first. Other processes skip them for life milliseconds. Each try is
// counted, so that [EventDeliveries.Finish] of an older try changes nothing.
func (d EventDeliveries) Lease(ctx context.Context, orgID string, limit int, life int64) ([]EventDelivery, error) {
	return LeaseDue(ctx, d.db, pendingEvents, eventDeliveries.selected, orgID, limit, eventDeliveries.scan, func(tx Tx, one *EventDelivery) {
		one.Attempts++
		tx.Queue(1, `UPDATE event_deliveries SET attempts = $3, run_at = $4, updated_at = $5
			WHERE event_id = $1 AND endpoint_id = $2 AND org_id = $6`, one.EventID, one.EndpointID, one.Attempts, tx.Now()+life, tx.Now(), orgID)
	})
}

// EventTry is how a try to deliver an event ended.
type EventTry struct {
	State   string // [DeliveryPending]: it is tried again after Wait milliseconds
	Wait    int64
	Outcome string
	Status  int64
	// DisableFor is the reason to disable the endpoint: immediately for [EndpointGone], otherwise if the endpoint has been failing for
	// FailingFor milliseconds. Empty means that the endpoint stays active.
	DisableFor string
	FailingFor int64
}

// Finish stores the result of a leased try and its effect on the endpoint. disabled reports that the endpoint was disabled. A try that has
// been leased again changes nothing.
func (d EventDeliveries) Finish(ctx context.Context, actor string, leased *EventDelivery, try EventTry) (disabled bool, err error) {
	return Write(ctx, d.db, func(ctx context.Context, tx Tx) (disabled bool, err error) {
		current, err := Changed(ctx, tx, `UPDATE event_deliveries SET state = $4, run_at = $5, outcome = $6, status = $7, updated_at = $8
			WHERE event_id = $1 AND endpoint_id = $2 AND org_id = $9 AND attempts = $3 AND state = 'pending' RETURNING event_id`,
			leased.EventID, leased.EndpointID, leased.Attempts, try.State, tx.Now()+try.Wait, try.Outcome, try.Status, tx.Now(), leased.OrgID)
		if err != nil || !current {
			return false, err
		}
		if try.State == DeliveryDelivered {
			tx.Queue(AnyRows, `UPDATE event_endpoints SET failing_since = 0 WHERE id = $1 AND failing_since > 0`, leased.EndpointID)
			return false, nil
		}
		tx.Queue(AnyRows, `UPDATE event_endpoints SET failing_since = $2 WHERE id = $1 AND failing_since = 0`, leased.EndpointID, tx.Now())
		if try.DisableFor == "" {
			return false, nil
		}
		disabled, err = Changed(ctx, tx, `UPDATE event_endpoints SET state = 'disabled', reason = $2, updated_at = $4
			WHERE id = $1 AND state = 'active' AND failing_since <= $3 RETURNING id`,
			leased.EndpointID, try.DisableFor, tx.Now()-try.FailingFor, tx.Now())
		if err == nil && disabled {
			audit(tx, actor, "event_endpoint.disable", leased.EndpointID, leased.OrgID, try.DisableFor)
		}
		return disabled, err
	})
}

// OutcomeDisabled is the outcome of an event that was due after its endpoint was disabled or deleted.
const OutcomeDisabled = "endpoint_disabled"

// OfEndpoint reads a page of an endpoint's deliveries, newest first: After is the id of the oldest event that was seen.
func (d EventDeliveries) OfEndpoint(ctx context.Context, orgID, endpointID string, page Page) ([]EventDelivery, error) {
	return ReadRows(ctx, d.db, "list deliveries of events", eventDeliveries.scan,
		eventDeliveries.selected+` WHERE endpoint_id = $1 AND org_id = $2 AND ($3 = '' OR event_id < $3) ORDER BY event_id DESC LIMIT $4`,
		endpointID, orgID, page.After, page.Rows())
}

// Overdue counts the pending events that were due late milliseconds ago, of organizations of which none was tried since: where some
// were, the others wait for them.
func (d EventDeliveries) Overdue(ctx context.Context, late int64) (int, error) {
	now, err := d.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	return ReadRow(ctx, d.db, "count overdue events", ScanValue[int],
		`SELECT count(*) FROM event_deliveries d WHERE d.state = 'pending' AND d.run_at < $1 AND NOT EXISTS (
			SELECT 1 FROM event_deliveries t WHERE t.org_id = d.org_id AND t.state = 'pending' AND t.run_at >= $1
				AND t.attempts > 0 AND t.updated_at >= $1)`, now-late)
}

// pruneRows bounds the deletions of one transaction.
const pruneRows = 500

// Prune deletes events that are older than keep milliseconds and not pending, and pending events of twice that age. It returns their
// number.
func (d EventDeliveries) Prune(ctx context.Context, keep int64) (pruned int64, err error) {
	for {
		var keys [][3]string
		err := d.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
			keys = nil
			err := tx.Query(ctx, func(row Row) error {
				var key [3]string
				err := row.Scan(&key[0], &key[1], &key[2])
				keys = append(keys, key)
				return err
			}, `SELECT org_id, event_id, endpoint_id FROM event_deliveries WHERE created_at < $1 AND (state <> 'pending' OR created_at < $2)
				ORDER BY created_at LIMIT $3`, tx.Now()-keep, tx.Now()-2*keep, pruneRows)
			slices.SortFunc(keys, func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
			for _, key := range keys {
				tx.Queue(AnyRows, `DELETE FROM event_deliveries WHERE org_id = $1 AND event_id = $2 AND endpoint_id = $3`, key[0], key[1], key[2])
			}
			return err
		})
		if err != nil {
			return pruned, err
		}
		pruned += int64(len(keys))
		if len(keys) < pruneRows {
			return pruned, nil
		}
	}
}

// EventWatch emits the events of conditions that begin with the passing of time, or in tables of hot writes. Each method marks the
// condition and writes the event in one transaction, so that concurrent processes emit one event. Each method reports whether there may be
// more.
type EventWatch struct{ db *DB }

const (
	watchPage = 200

	selectWalletsCrossed = `SELECT o.id FROM organizations o LEFT JOIN wallets w ON w.org_id = o.id AND w.env = 'live'
		WHERE o.low_balance_micros > 0 AND (coalesce(w.balance_micros, 0) < o.low_balance_micros) <> (o.low_balance_since > 0)
		ORDER BY o.id LIMIT $1`
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

// selectWaiting visits the organizations with customers outside of the queue who have waited without an event, and returns the organizations
// in which the oldest wait exceeds the bound. Each costs three look-ups, however many customers wait.
var selectWaiting = WalkOrganizations("conversations", untold, "", "") + `SELECT o.id FROM walk JOIN organizations o ON o.id = walk.org_id
	WHERE o.waiting_minutes > 0 AND (SELECT c.unanswered_since FROM conversations c WHERE c.org_id = walk.org_id
		AND ` + untold + ` ORDER BY c.unanswered_since LIMIT 1) < $1 - o.waiting_minutes * 60000`

// Wallets emits an event for each live wallet that has fallen below its organization's bound.
func (w EventWatch) Wallets(ctx context.Context) (more bool, err error) {
	orgs, err := ReadRows(ctx, w.db, "look for low wallets", ScanValue[string], selectWalletsCrossed, watchPage)
	if err != nil {
		return false, err
	}
	return len(orgs) == watchPage, w.each(ctx, orgs, tellWallet)
}

// each runs a function for each id, in a transaction of its own.
func (w EventWatch) each(ctx context.Context, ids []string, tell func(ctx context.Context, tx Tx, id string) error) error {
	for _, id := range ids {
		if err := w.db.Exec(ctx, func(ctx context.Context, tx Tx) error { return tell(ctx, tx, id) }); err != nil {
			return err
		}
	}
	return nil
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

// UsagePage is how many numbers of a wallet one [EventUsage] has, and usagePages how many of these events may wait for an endpoint. The ledger
// has all others: a slow endpoint fills no table.
const (
	UsagePage  = 200
	usagePages = 20

	selectUsageEndpoints = `SELECT e.org_id, e.id FROM event_endpoints e JOIN wallets w ON w.org_id = e.org_id AND w.env = 'live'
		WHERE e.usage_next > 0 AND e.state = 'active' AND w.seq >= e.usage_next AND e.id > $1 ORDER BY e.id LIMIT $2`
	selectUsageOfEndpoint = `SELECT seq, (SELECT count(*) FROM event_deliveries WHERE org_id = $1 AND state = 'pending' AND endpoint_id = $2
		AND type = $3) FROM wallets WHERE org_id = $1 AND env = 'live'`
)

// Usage emits an event for each page of charges and refunds of an endpoint with that type.
func (w EventWatch) Usage(ctx context.Context) (more bool, err error) {
	after := ""
	return false, ReadPages(ctx, watchPage, func(rows int) (more bool, err error) {
		endpoints, err := ReadRows(ctx, w.db, "look for usage to send", Into(func(e *EventEndpoint) []any { return []any{&e.OrgID, &e.ID} }),
			selectUsageEndpoints, after, rows)
		for i := 0; i < len(endpoints) && err == nil; i++ {
			after = endpoints[i].ID
			err = w.db.Exec(ctx, func(ctx context.Context, tx Tx) error { return queueUsage(ctx, tx, endpoints[i].OrgID, after) })
		}
		return len(endpoints) == rows, err
	})
}

func queueUsage(ctx context.Context, tx Tx, orgID, id string) error {
	e, found, err := orAbsent(eventEndpoints.lock(ctx, tx, orgID, id))
	if err != nil || !found || e.UsageNext == 0 || e.State != EndpointActive {
		return err
	}
	var seq, waiting int64
	if err := queryRow(ctx, tx, []any{&seq, &waiting}, selectUsageOfEndpoint, orgID, id, string(EventUsage)); err != nil {
		return err
	}
	next := e.UsageNext
	for ; next <= seq && waiting < usagePages; waiting++ {
		event := Event{OrgID: orgID, Type: EventUsage, After: fmt.Sprintf("0_%d", next-1)}
		next = min(next+UsagePage, seq+1)
		event.Through = fmt.Sprintf("0_%d", next-1)
		tx.Queue(1, insertEventDeliveries+`id = $6`, NewID("evt"), orgID, string(EventUsage), event.payload(tx.Now()), tx.Now(), id)
	}
	tx.Queue(1, `UPDATE event_endpoints SET usage_next = $3 WHERE id = $1 AND org_id = $2`, id, orgID, next)
	return nil
}

// Waits emits an event for each customer who has waited for an answer longer than the organization's bound.
func (w EventWatch) Waits(ctx context.Context) (more bool, err error) {
	now, err := w.db.Now(ctx)
	if err != nil {
		return false, err
	}
	orgs, err := ReadRows(ctx, w.db, "look for waiting customers", ScanValue[string], selectWaiting, now)
	if err != nil {
		return false, err
	}
	for _, org := range orgs {
		organization, err := w.db.Organizations.ByID(ctx, org)
		if err != nil {
			return false, err
		}
		if organization.WaitingMinutes == 0 {
			continue
		}
		ids, err := ReadRows(ctx, w.db, "look for waiting customers", ScanValue[string], selectWaitingUntold,
			org, now-organization.WaitingMinutes*60_000, watchPage)
		if err = cmp.Or(err, w.each(ctx, ids, tellWait)); err != nil {
			return false, err
		}
		more = more || len(ids) == watchPage
	}
	from := int64(0) // of the customers in the queue
	return more, ReadPages(ctx, watchPage, func(rows int) (more bool, err error) {
		due := from
		ids, err := ReadRows(ctx, w.db, "look for waiting customers",
			Into(func(id *string) []any { return []any{id, &due} }), selectQueuedUntold, now, from, rows)
		if err != nil {
			return false, err
		}
		from = due
		return len(ids) == rows, w.each(ctx, ids, tellWait)
	})
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

// Expiry emits an event for a channel's token that ends at a time, in epoch milliseconds, and isn't renewed; one for each end.
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
