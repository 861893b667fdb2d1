package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// EventType is a sort of event that an organization's own systems are told of.
type EventType string

// All types of events.
const (
	EventHandover         EventType = "conversation.handover"    // a person has the conversation from now on; Reason says why
	EventAttention        EventType = "conversation.attention"   // a message can't be answered or delivered; Code says why
	EventWaiting          EventType = "conversation.waiting"     // the customer has waited longer than the organization's bound since Since
	EventChannelReauth    EventType = "channel.needs_reauth"     // the platform refuses the channel's credentials
	EventChannelExpiring  EventType = "channel.expiring"         // the channel's token ends at ExpiresAt, and the platform doesn't renew it
	EventWalletLow        EventType = "wallet.low"               // the live wallet has less than the organization's bound
	EventWalletCredited   EventType = "wallet.credited"          // a payment has become credits
	EventBudget           EventType = "budget.threshold_reached" // a budget's spending has reached Percent of its limit
	EventUsage            EventType = "usage.recorded"           // the charges and refunds of the live wallet after After, up to Through
	EventTest             EventType = "endpoint.test"            // somebody tries the endpoint; it needs no subscription
	eventTimestampAsISO             = "2006-01-02T15:04:05.000Z07:00"
	insertEventDeliveries           = `INSERT INTO event_deliveries (event_id, endpoint_id, org_id, type, payload, state, attempts, run_at,
		outcome, status, created_at, updated_at)
		SELECT CAST($1 AS TEXT), id, org_id, CAST($3 AS TEXT), CAST($4 AS TEXT), 'pending', 0, CAST($5 AS BIGINT), '', 0,
			CAST($5 AS BIGINT), CAST($5 AS BIGINT)
		FROM event_endpoints WHERE org_id = $2 AND state = 'active' AND `
)

// EventTypes returns the types of the events about which people should know: all but [EventTest] and [EventUsage].
func EventTypes() []EventType {
	return []EventType{
		EventHandover, EventAttention, EventWaiting, EventChannelReauth, EventChannelExpiring, EventWalletLow, EventWalletCredited, EventBudget,
	}
}

// Event is a message to an organization's own systems. It has only ids, codes, times and amounts: no text of a message, no name and no
// secret.
type Event struct {
	OrgID string    `json:"-"`
	Type  EventType `json:"-"`

	ConversationID string `json:"conversationId,omitempty"`
	ChannelID      string `json:"channelId,omitempty"`
	EndpointID     string `json:"endpointId,omitempty"`
	Reason         string `json:"reason,omitempty"`
	Code           string `json:"code,omitempty"`
	Since          string `json:"since,omitempty"`     // of [EventTime]
	ExpiresAt      string `json:"expiresAt,omitempty"` // of [EventTime]
	// BalanceMicros and BelowMicros are decimal numbers, as amounts are everywhere in the API.
	BalanceMicros string `json:"balanceMicros,omitempty"`
	BelowMicros   string `json:"belowMicros,omitempty"`

	TransactionID string `json:"transactionId,omitempty"`
	AmountMicros  string `json:"amountMicros,omitempty"`

	BudgetID    string `json:"budgetId,omitempty"`
	Percent     string `json:"percent,omitempty"` // a decimal number
	SpentMicros string `json:"spentMicros,omitempty"`
	LimitMicros string `json:"limitMicros,omitempty"`

	// After and Through are cursors of package billing.
	After   string `json:"after,omitempty"`
	Through string `json:"through,omitempty"`
}

// EventTime writes a time in epoch milliseconds as events have it.
func EventTime(epochMillis int64) string {
	return time.UnixMilli(epochMillis).UTC().Format(eventTimestampAsISO)
}

// QueueEvent writes an event for each of the organization's endpoints that ask for its type, in the transaction of its cause, so that
// neither exists without the other.
func QueueEvent(tx Tx, event *Event) {
	tx.Queue(AnyRows, insertEventDeliveries+`events LIKE '% ' || CAST($3 AS TEXT) || ' %'`,
		NewID("evt"), event.OrgID, string(event.Type), event.payload(tx.Now()), tx.Now())
}

// QueueOperatorEvent writes an event for each of the operator's own endpoints, in the transaction of its cause. Its rows belong to no organization.
func QueueOperatorEvent(tx Tx, endpoints []string, kind EventType, data any) {
	id, payload := NewID("evt"), payloadOf(kind, tx.Now(), "", data)
	for _, endpoint := range endpoints {
		tx.Queue(1, `INSERT INTO event_deliveries (event_id, endpoint_id, org_id, type, payload, state, attempts, run_at, outcome, status, created_at,
			updated_at) VALUES ($1, $2, '', $3, $4, 'pending', 0, $5, '', 0, $5, $5)`, id, endpoint, string(kind), payload, tx.Now())
	}
}

// payload returns the body that endpoints get.
func (e *Event) payload(now int64) string { return payloadOf(e.Type, now, e.OrgID, e) }

func payloadOf(kind EventType, now int64, orgID string, data any) string {
	text, err := json.Marshal(struct {
		Type      EventType `json:"type"`
		Timestamp string    `json:"timestamp"`
		OrgID     string    `json:"organizationId,omitempty"`
		Data      any       `json:"data"`
	}{kind, EventTime(now), orgID, data})
	if err != nil {
		panic(fmt.Sprintf("store: an event can't be written: %v", err)) // it consists of strings
	}
	return string(text)
}

// States of an endpoint of events.
const (
	EndpointActive   = "active"
	EndpointDisabled = "disabled" // it gets nothing until a person makes it active again
)

// Reasons why the worker disabled an endpoint of events; a person gives none.
const (
	EndpointFailing = "failing" // every try of the last days failed
	EndpointGone    = "gone"    // it answered 410
)

const (
	// MaxEventEndpoints is how many endpoints of events an organization may have.
	MaxEventEndpoints = 10
	// TestPause is the time from one test of an organization's endpoints to the next. Each test is up to a dozen requests to an address
	// that the organization has chosen.
	TestPause = time.Second
)

// EventEndpoint is the address of an organization's own system that is told of events. Its secrets are sealed by its owner.
type EventEndpoint struct {
	ID, OrgID string
	URL       string
	Events    []EventType `db:"-"` // in a column with a space before and after each
	Secret    []byte
	// OldSecret also signs, until OldSecretUntil. nil means none.
	OldSecret      []byte
	OldSecretUntil int64
	State          string
	Reason         string // why it was disabled, "" for a person's wish
	FailingSince   int64  // the first failed try since the last delivery, 0 without one
	UsageNext      int64  // the first number in the live wallet of which no [EventUsage] was made, 0 for an endpoint without that type
	CreatedAt      int64  // epoch milliseconds; 0 when it is written: the transaction's clock
	UpdatedAt      int64
}

var eventEndpoints = newTable("event_endpoints", func(e *EventEndpoint) []field {
	return []field{{"events", convert(func() string {
		var text strings.Builder
		for _, t := range e.Events {
			text.WriteString(" " + string(t))
		}
		return text.String() + " "
	}, func(column string) {
		e.Events = nil
		for word := range strings.FieldsSeq(column) {
			e.Events = append(e.Events, EventType(word))
		}
	})}}
})

// EventEndpoints reads and writes endpoints of events.
type EventEndpoints struct{ db *DB }

// Create adds an endpoint. It returns [ErrLimit] if the organization has [MaxEventEndpoints], and [ErrNotFound] for an unknown
// organization.
func (e EventEndpoints) Create(ctx context.Context, actor string, endpoint *EventEndpoint) error {
	return e.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := checkRoom(ctx, tx, endpoint.OrgID, MaxEventEndpoints, `SELECT count(*) FROM event_endpoints WHERE org_id = $1`)
		if err != nil {
			return err
		}
		created := EventEndpoint{
			ID: endpoint.ID, OrgID: endpoint.OrgID, URL: endpoint.URL, Events: endpoint.Events, Secret: endpoint.Secret, State: EndpointActive,
			CreatedAt: orNow(tx, endpoint.CreatedAt),
		}
		created.UpdatedAt = created.CreatedAt
		if err := created.beginUsage(ctx, tx); err != nil {
			return err
		}
		eventEndpoints.queueInsert(tx, &created)
		audit(tx, actor, "event_endpoint.create", endpoint.ID, endpoint.OrgID, "")
		return nil
	})
}

// beginUsage sets where the usage of an endpoint begins: with the first charge after the endpoint was given the type.
func (e *EventEndpoint) beginUsage(ctx context.Context, tx Tx) error {
	if !slices.Contains(e.Events, EventUsage) {
		e.UsageNext = 0
		return nil
	}
	if e.UsageNext > 0 {
		return nil
	}
	var seq int64 // without a wallet there was no charge
	err := tx.Query(ctx, func(row Row) error { return row.Scan(&seq) }, `SELECT seq FROM wallets WHERE org_id = $1 AND env = 'live'`, e.OrgID)
	e.UsageNext = seq + 1
	return err
}

// ByID reads an organization's endpoint. It returns [ErrNotFound] if there is none.
func (e EventEndpoints) ByID(ctx context.Context, orgID, id string) (EventEndpoint, error) {
	return ReadRow(ctx, e.db, "read an event endpoint", eventEndpoints.scan, eventEndpoints.selected+` WHERE id = $1 AND org_id = $2`, id, orgID)
}

// List reads a page of an organization's endpoints, oldest first.
func (e EventEndpoints) List(ctx context.Context, orgID string, page Page) ([]EventEndpoint, error) {
	return readPage(ctx, e.db, "list event endpoints", eventEndpoints.scan, eventEndpoints.selected+` WHERE org_id = $1`, "id", page, orgID)
}

// Update changes an endpoint. edit changes the endpoint as the transaction has read it; it may run more than once and must not wait. A new
// state resets Reason and FailingSince. Update returns [ErrNotFound] if the organization has no such endpoint.
func (e EventEndpoints) Update(ctx context.Context, actor, action, orgID, id string, edit func(*EventEndpoint)) error {
	return e.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		endpoint, err := eventEndpoints.lock(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		was := endpoint.State
		edit(&endpoint)
		if err := endpoint.beginUsage(ctx, tx); err != nil {
			return err
		}
		if endpoint.State != was {
			endpoint.Reason, endpoint.FailingSince = "", 0
		}
		endpoint.UpdatedAt = tx.Now()
		eventEndpoints.queueUpdate(tx, &endpoint, orgID, id)
		audit(tx, actor, "event_endpoint."+action, id, orgID, "")
		return nil
	})
}

// Delete removes an organization's endpoint, or returns [ErrNotFound]. Its deliveries, which may be many, are given up when they are due
// and pruned by their age.
func (e EventEndpoints) Delete(ctx context.Context, actor, orgID, id string) error {
	return execAudited(ctx, e.db, AuditEntry{Actor: actor, Action: "event_endpoint.delete", Target: id, OrgID: orgID},
		`DELETE FROM event_endpoints WHERE id = $1 AND org_id = $2 RETURNING id`, id, orgID)
}

// Test writes an [EventTest] for one active endpoint and returns its id. It returns [ErrNotFound] for an endpoint that isn't the
// organization's, [ErrConflict] for a disabled one, and [ErrTooSoon] within [TestPause] of the organization's last test.
func (e EventEndpoints) Test(ctx context.Context, orgID, id string) (eventID string, err error) {
	return Write(ctx, e.db, func(ctx context.Context, tx Tx) (string, error) {
		if err := lockOrganization(ctx, tx, orgID); err != nil {
			return "", err
		}
		var state string
		err := queryRow(ctx, tx, []any{&state}, `SELECT state FROM event_endpoints WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
		if err != nil {
			return "", err
		}
		if state != EndpointActive {
			return "", fmt.Errorf("%w: the endpoint is disabled", ErrConflict)
		}
		// The organization is locked. Its last test may have been of another endpoint, or of a deleted one.
		tested, err := Changed(ctx, tx, `SELECT event_id FROM event_deliveries WHERE created_at > $1 AND org_id = $2 AND type = $3 LIMIT 1`,
			tx.Now()-TestPause.Milliseconds(), orgID, string(EventTest))
		if err != nil {
			return "", err
		}
		if tested {
			return "", ErrTooSoon
		}
		eventID := NewID("evt")
		event := Event{OrgID: orgID, Type: EventTest, EndpointID: id}
		tx.Queue(1, insertEventDeliveries+`id = $6`, eventID, orgID, string(EventTest), event.payload(tx.Now()), tx.Now(), id)
		return eventID, nil
	})
}

// Each calls each with every endpoint of every organization, in order of id. An endpoint that is written during the call is read before or
// after the change. The first error of each ends it.
func (e EventEndpoints) Each(ctx context.Context, each func(EventEndpoint) error) error {
	return eachRow(ctx, e.db, "list event endpoints", eventEndpoints.scan,
		eventEndpoints.selected+` WHERE id > $1 ORDER BY id LIMIT $2`,
		func(endpoint *EventEndpoint) []any { return []any{endpoint.ID} }, each)
}

// Reseal replaces the sealed secrets of an endpoint with the same secrets under another master key. It reports false if they have changed
// or the endpoint is gone.
func (e EventEndpoints) Reseal(ctx context.Context, was *EventEndpoint, secret, oldSecret []byte) (replaced bool, err error) {
	return execChanged(ctx, e.db, `UPDATE event_endpoints SET secret = $4, old_secret = $5
		WHERE id = $1 AND org_id = $2 AND secret = $3 RETURNING id`, was.ID, was.OrgID, was.Secret, secret, oldSecret)
}
