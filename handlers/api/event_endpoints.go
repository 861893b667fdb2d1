package api

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/events"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// EventEndpointObject is an endpoint of events as the API shows it: without its secrets. It is exported for huma, see
// [endpoint.PathID].
type EventEndpointObject struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Events         []store.EventType `json:"events"         nullable:"false"`
	State          string            `json:"state"          enum:"active,disabled"`
	DisabledReason *string           `json:"disabledReason" doc:"failing: every try of three days failed; gone: it answered 410; null: it is active, or a person disabled it"` //nolint:lll // a struct tag can't be broken
	FailingSince   *string           `json:"failingSince"   format:"date-time" doc:"The first failed try since the last delivery; null: none"`
	OldSecretUntil *string           `json:"oldSecretUntil" format:"date-time" doc:"Until then deliveries are signed by the old secret, too; null: by one secret"` //nolint:lll // a struct tag can't be broken
	CreatedAt      string            `json:"createdAt"      format:"date-time"`
	UpdatedAt      string            `json:"updatedAt"      format:"date-time"`
}

func (d *Deps) showEventEndpoint(e *store.EventEndpoint) EventEndpointObject {
	object := EventEndpointObject{
		ID: e.ID, URL: e.URL, Events: e.Events, State: e.State, DisabledReason: endpoint.OrNull(e.Reason),
		FailingSince: endpoint.TimestampOrNull(e.FailingSince),
		CreatedAt:    endpoint.Timestamp(e.CreatedAt), UpdatedAt: endpoint.Timestamp(e.UpdatedAt),
	}
	if e.OldSecret != nil && e.OldSecretUntil > d.Now().UnixMilli() {
		object.OldSecretUntil = endpoint.TimestampOrNull(e.OldSecretUntil)
	}
	return object
}

// eventEndpointSecret is an endpoint with its new secret, which is shown this once.
type eventEndpointSecret struct {
	EventEndpointObject

	Secret string `json:"secret" doc:"Signs deliveries; whsec_ and base64. It is stored encrypted and not shown again"`
}

// eventEndpointCreation is the body of POST /event-endpoints.
type eventEndpointCreation struct {
	URL    string            `json:"url" minLength:"1" maxLength:"2048" doc:"An https address that is reachable from the internet"`
	Events []store.EventType `json:"events,omitempty" maxItems:"10" enum:"conversation.handover,conversation.attention,conversation.waiting,channel.needs_reauth,channel.expiring,wallet.low,wallet.credited,budget.threshold_reached,usage.recorded" doc:"Absent: all but usage.recorded"` //nolint:lll // a struct tag can't be broken
}

// eventEndpointChange is the body of PATCH /event-endpoints/{id}.
type eventEndpointChange struct {
	URL    *string            `json:"url,omitempty" minLength:"1" maxLength:"2048"`
	Events *[]store.EventType `json:"events,omitempty" maxItems:"10" enum:"conversation.handover,conversation.attention,conversation.waiting,channel.needs_reauth,channel.expiring,wallet.low,wallet.credited,budget.threshold_reached,usage.recorded"` //nolint:lll // a struct tag can't be broken
	State  *string            `json:"state,omitempty" enum:"active,disabled" doc:"A disabled endpoint gets nothing, and what is due for it is given up"`                                                                                                //nolint:lll // a struct tag can't be broken
}

// eventObject is an event as endpoints get it.
type eventObject struct {
	Type           store.EventType   `json:"type"`
	Timestamp      string            `json:"timestamp" format:"date-time"`
	OrganizationID string            `json:"organizationId"`
	Data           map[string]string `json:"data" doc:"By type; see docs/events.md. Without the events of usage.recorded"`
}

// eventDeliveryObject is an event on its way to an endpoint.
type eventDeliveryObject struct {
	EventID   string          `json:"eventId"   doc:"The header webhook-id of every try"`
	Type      store.EventType `json:"type"`
	State     string          `json:"state"     enum:"pending,delivered,failed"`
	Attempts  int64           `json:"attempts"`
	Outcome   *string         `json:"outcome"   doc:"Of the last try: delivered, http_status, timeout, no_connection, unsigned, endpoint_disabled; null before the first"` //nolint:lll // a struct tag can't be broken
	Status    *int64          `json:"status"    doc:"The HTTP status of the last try; null: there was no answer"`
	NextTryAt *string         `json:"nextTryAt" format:"date-time" doc:"null: there is none"`
	Payload   eventObject     `json:"payload"   doc:"The body that is sent"`
	CreatedAt string          `json:"createdAt" format:"date-time"`
	UpdatedAt string          `json:"updatedAt" format:"date-time"`
}

func showEventDelivery(d *store.EventDelivery) eventDeliveryObject {
	object := eventDeliveryObject{
		EventID: d.EventID, Type: d.Type, State: d.State, Attempts: d.Attempts,
		Outcome: endpoint.OrNull(d.Outcome), Status: endpoint.OrNull(d.Status),
		CreatedAt: endpoint.Timestamp(d.CreatedAt), UpdatedAt: endpoint.Timestamp(d.UpdatedAt),
	}
	_ = json.Unmarshal([]byte(d.Payload), &object.Payload) // the store wrote it
	if d.State == store.DeliveryPending {
		object.NextTryAt = endpoint.TimestampOrNull(d.RunAt)
	}
	return object
}

// sentTest names the event of a test.
type sentTest struct {
	EventID string `json:"eventId" doc:"The header webhook-id of every try"`
}

// The operations on event endpoints.
var (
	CreateEventEndpoint = operation(administrators("createEventEndpoint", "POST /event-endpoints", identity.EventEndpointsWrite,
		"Create an event endpoint; its secret is shown this once"), (*Deps).createEventEndpoint)
	ListEventEndpoints = operation(administrators("listEventEndpoints", "GET /event-endpoints", identity.EventEndpointsRead,
		"List the event endpoints, oldest first"), (*Deps).listEventEndpoints)
	GetEventEndpoint = operation(administrators("getEventEndpoint", "GET /event-endpoints/{id}", identity.EventEndpointsRead,
		"Get an event endpoint"), (*Deps).getEventEndpoint)
	UpdateEventEndpoint = operation(administrators("updateEventEndpoint", "PATCH /event-endpoints/{id}", identity.EventEndpointsWrite,
		"Change an event endpoint, or make a disabled one active again"), (*Deps).updateEventEndpoint)
	DeleteEventEndpoint = operationOf(administrators("deleteEventEndpoint", "DELETE /event-endpoints/{id}", identity.EventEndpointsWrite,
		"Delete an event endpoint with its deliveries"), (*Deps).deleteEventEndpoint)
	RotateEventSecret = operation(administrators("rotateEventSecret", "POST /event-endpoints/{id}/rotate-secret", identity.EventEndpointsWrite,
		"Replace an event endpoint's secret; the old one signs for another 24 hours, too"), (*Deps).rotateEventSecret)
	TestEventEndpoint = operation(administrators("testEventEndpoint", "POST /event-endpoints/{id}/test", identity.EventEndpointsWrite,
		"Send the event endpoint.test to an event endpoint"), (*Deps).testEventEndpoint)
	ListEventDeliveries = operation(administrators("listEventDeliveries", "GET /event-endpoints/{id}/deliveries", identity.EventEndpointsRead,
		"List an event endpoint's deliveries of the last 30 days, newest first"), (*Deps).listEventDeliveries)
)

func (d *Deps) createEventEndpoint(
	ctx context.Context, principal *identity.Principal, in *struct{ Body eventEndpointCreation },
) (*eventEndpointSecret, error) {
	if err := d.checkEventURL(in.Body.URL); err != nil {
		return nil, err
	}
	wanted := in.Body.Events
	if wanted == nil {
		wanted = store.EventTypes()
	}
	id, secret := store.NewID("evep"), events.NewSecret()
	err := d.DB.EventEndpoints.Create(ctx, principal.Actor(), &store.EventEndpoint{
		ID: id, OrgID: principal.OrgID, URL: in.Body.URL, Events: wanted, Secret: events.SealSecret(d.Ring, principal.OrgID, id, secret),
	})
	if errors.Is(err, store.ErrLimit) {
		return nil, noRoom(store.MaxEventEndpoints, "event endpoints", err)
	}
	if err != nil {
		return nil, handlers.Internal(err)
	}
	return d.withEventSecret(ctx, principal, id, secret)
}

func (d *Deps) checkEventURL(address string) error {
	if _, err := d.EventTargets.Check(address); err != nil {
		return handlers.InvalidRequest("url", "url %s.", err)
	}
	return nil
}

// withEventSecret returns the current state of an endpoint, with a secret that was made for it.
func (d *Deps) withEventSecret(ctx context.Context, principal *identity.Principal, id, secret string) (*eventEndpointSecret, error) {
	row, err := d.DB.EventEndpoints.ByID(ctx, principal.OrgID, id)
	return &eventEndpointSecret{d.showEventEndpoint(&row), secret}, d.refuse(ctx, principal, store.OwnedEventEndpoints, id, err)
}

func (d *Deps) listEventEndpoints(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[EventEndpointObject], error) {
	id := func(row *store.EventEndpoint) string { return row.ID }
	return listRows(ctx, principal, in.PageQuery, d.DB.EventEndpoints.List, id, d.showEventEndpoint)
}

func (d *Deps) getEventEndpoint(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*EventEndpointObject, error) {
	return getRow(ctx, d, principal, store.OwnedEventEndpoints, in.ID, d.DB.EventEndpoints.ByID, d.showEventEndpoint)
}

func (d *Deps) updateEventEndpoint(
	ctx context.Context, principal *identity.Principal, in *idAndBody[eventEndpointChange],
) (*EventEndpointObject, error) {
	if in.Body.URL != nil {
		if err := d.checkEventURL(*in.Body.URL); err != nil {
			return nil, err
		}
	}
	err := d.DB.EventEndpoints.Update(ctx, principal.Actor(), "update", principal.OrgID, in.ID, func(e *store.EventEndpoint) {
		set(&e.URL, in.Body.URL)
		set(&e.Events, in.Body.Events)
		set(&e.State, in.Body.State)
	})
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedEventEndpoints, in.ID, err)
	}
	return d.getEventEndpoint(ctx, principal, &in.PathID)
}

func (d *Deps) deleteEventEndpoint(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedEventEndpoints, in.ID, d.DB.EventEndpoints.Delete)
}

func (d *Deps) rotateEventSecret(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*eventEndpointSecret, error) {
	secret := events.NewSecret()
	sealed := events.SealSecret(d.Ring, principal.OrgID, in.ID, secret)
	until := d.Now().Add(events.RotationTime).UnixMilli() / time.Second.Milliseconds() * time.Second.Milliseconds()
	err := d.DB.EventEndpoints.Update(ctx, principal.Actor(), "rotate_secret", principal.OrgID, in.ID, func(e *store.EventEndpoint) {
		e.OldSecret, e.OldSecretUntil, e.Secret = e.Secret, until, sealed
	})
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedEventEndpoints, in.ID, err)
	}
	return d.withEventSecret(ctx, principal, in.ID, secret)
}

func (d *Deps) testEventEndpoint(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*sentTest, error) {
	eventID, err := d.DB.EventEndpoints.Test(ctx, principal.OrgID, in.ID)
	if errors.Is(err, store.ErrConflict) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "The endpoint is disabled. Set its state to active first.")
	}
	if errors.Is(err, store.ErrTooSoon) {
		return nil, endpoint.RateLimited(store.TestPause, err, "An endpoint was tested a moment ago. Wait a second.")
	}
	return &sentTest{eventID}, d.refuse(ctx, principal, store.OwnedEventEndpoints, in.ID, err)
}

// pathIDAndPage is the input of a list below a row.
type pathIDAndPage struct {
	endpoint.PathID
	endpoint.PageQuery
}

func (d *Deps) listEventDeliveries(ctx context.Context, principal *identity.Principal, in *pathIDAndPage) (*pageOf[eventDeliveryObject], error) {
	list := func(ctx context.Context, orgID string, page store.Page) ([]store.EventDelivery, error) {
		if _, err := d.DB.EventEndpoints.ByID(ctx, orgID, in.ID); err != nil {
			return nil, d.refuse(ctx, principal, store.OwnedEventEndpoints, in.ID, err)
		}
		return d.DB.EventDeliveries.OfEndpoint(ctx, orgID, in.ID, page)
	}
	return listRows(ctx, principal, in.PageQuery, list, func(row *store.EventDelivery) string { return row.EventID }, showEventDelivery)
}
