package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// EventType is a sort of event that an organization's own systems are told of.
type EventType string

// All types of events but [EventTest].
const (
	EventHandover         EventType = "conversation.handover"  // a person has the conversation from now on; Reason says why
	EventAttention        EventType = "conversation.attention" // a message can't be answered or delivered; Code says why
	EventWaiting          EventType = "conversation.waiting"   // the customer has waited longer than the organization's bound since Since
	EventChannelReauth    EventType = "channel.needs_reauth"   // the platform refuses the channel's credentials
	EventChannelExpiring  EventType = "channel.expiring"       // the channel's token ends at ExpiresAt, and the platform doesn't renew it
	EventWalletLow        EventType = "wallet.low"             // the live wallet has less than the organization's bound
	EventTest             EventType = "endpoint.test"          // somebody tries the endpoint; it needs no subscription
	eventTimestampAsISO             = "2006-01-02T15:04:05.000Z07:00"
	insertEventDeliveries           = `INSERT INTO event_deliveries (event_id, endpoint_id, org_id, type, payload, state, attempts, run_at,
		outcome, status, created_at, updated_at)
		SELECT CAST($1 AS TEXT), id, org_id, CAST($3 AS TEXT), CAST($4 AS TEXT), 'pending', 0, CAST($5 AS BIGINT), '', 0,
			CAST($5 AS BIGINT), CAST($5 AS BIGINT)
		FROM event_endpoints WHERE org_id = $2 AND state = 'active' AND `
)

// EventTypes returns the types that an endpoint may ask for.
func EventTypes() []EventType {
	return []EventType{EventHandover, EventAttention, EventWaiting, EventChannelReauth, EventChannelExpiring, EventWalletLow}
}

// Event is what an organization's own systems are told. It has ids, codes, times and amounts only: no text of a message, no name and
// no secret.
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
}

// EventTime writes a time in epoch milliseconds as events have it.
func EventTime(epochMillis int64) string {
	return time.UnixMilli(epochMillis).UTC().Format(eventTimestampAsISO)
}

// QueueEvent writes an event in the transaction of what it tells of, so that neither exists without the other, for each of the
// organization's endpoints that ask for its type. Without one it leaves no trace.
func QueueEvent(tx Tx, event *Event) {
	tx.Queue(AnyRows, insertEventDeliveries+`events LIKE '% ' || CAST($3 AS TEXT) || ' %'`,
		NewID("evt"), event.OrgID, string(event.Type), event.payload(tx.Now()), tx.Now())
}

// payload returns the body that endpoints get.
func (e *Event) payload(now int64) string {
	text, err := json.Marshal(struct {
		Type      EventType `json:"type"`
		Timestamp string    `json:"timestamp"`
		OrgID     string    `json:"organizationId"`
		Data      *Event    `json:"data"`
	}{e.Type, EventTime(now), e.OrgID, e})
	if err != nil {
		panic(fmt.Sprintf("store: an event can't be written: %v", err)) // it consists of strings
	}
	return string(text)
}

// joinEventTypes writes types as the column has them.
func joinEventTypes(types []EventType) string {
	var text strings.Builder
	for _, t := range types {
		text.WriteString(" " + string(t))
	}
	return text.String() + " "
}

func splitEventTypes(text string) (types []EventType) {
	for word := range strings.FieldsSeq(text) {
		types = append(types, EventType(word))
	}
	return types
}
