package dashboard

import (
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const eventsPath = root + "/events"

// eventEndpointRow is an address that receives the organization's events, with the buttons in its row.
type eventEndpointRow struct {
	api.EventEndpointObject

	Test, Activate, Delete form
}

type eventsData struct {
	Endpoints      []eventEndpointRow
	Pager          ui.Pager
	Create, Bounds form
}

var eventEndpointForm = ui.FormOf(
	api.CreateEventEndpoint, form{ID: "event-endpoint-create", Submit: "Create endpoint"},
	field{Name: "url", Label: "Address", Hint: "Of your own system, with https. It gets signed webhooks."},
	field{Name: "events", Label: "Events", Missing: "Choose at least one event.", Options: []option{
		{Value: "conversation.handover", Label: "conversation.handover", Hint: "A person has a conversation from now on", Selected: true},
		{Value: "conversation.attention", Label: "conversation.attention", Hint: "A message can't be answered or delivered", Selected: true},
		{Value: "conversation.waiting", Label: "conversation.waiting", Hint: "A customer waits for long", Selected: true},
		{Value: "channel.needs_reauth", Label: "channel.needs_reauth", Hint: "A channel must be connected again", Selected: true},
		{Value: "channel.expiring", Label: "channel.expiring", Hint: "A channel's token ends soon", Selected: true},
		{Value: "wallet.low", Label: "wallet.low", Hint: "The wallet runs low", Selected: true},
		{Value: "wallet.credited", Label: "wallet.credited", Hint: "A payment has become credits", Selected: true},
		{Value: "budget.threshold_reached", Label: "budget.threshold_reached", Hint: "A budget is spent to a part of its limit", Selected: true},
		{Value: "usage.recorded", Label: "usage.recorded", Hint: "All charges and refunds, for a billing system"},
	}},
)

// eventBoundsForm has the limits at which the events conversation.waiting and wallet.low are sent.
var eventBoundsForm = ui.FormOf(
	api.UpdateOrganization, form{ID: "event-bounds", Submit: "Save"},
	field{
		Name: "waitingMinutes", Label: "A customer waits for so many minutes", Required: true,
		Hint:    "Then conversation.waiting is sent. Up to 10,080, a week; with 0 it never is.",
		Missing: "Enter a number of minutes; with 0 nobody is told.",
	},
	field{
		Name: "lowBalanceMicros", Kind: ui.NumberField, Label: "The wallet has less than so many credits", Required: true, Micros: true,
		Hint: "Then wallet.low is sent. With 0 it never is.",
	},
)

var eventsPage = page{
	Path: eventsPath, Template: "events", Title: "Events", Show: showEvents,
	Actions: []action{
		{Form: "event-endpoint-create", Done: "The endpoint was made.", Do: reveal(api.CreateEventEndpoint, eventEndpointForm)},
		{Verb: "bounds", Form: "event-bounds", Done: "Saved.", Do: submit(eventsPath, api.UpdateOrganization, eventBoundsForm)},
		button("event-endpoint-test", eventsPath, api.TestEventEndpoint, "The event endpoint.test is on its way."),
		{Verb: "activate", Form: "event-endpoint-activate", Done: "The endpoint gets events again.", Do: func(req *pageRequest) (string, error) {
			return eventsPath, req.Run(api.UpdateEventEndpoint, values{"id": req.Text("id"), "state": "active"})
		}},
		button("event-endpoint-delete", eventsPath, api.DeleteEventEndpoint, "The endpoint was deleted."),
	},
}

func showEvents(req *pageRequest) (any, error) {
	endpoints, organization := site.Read(req, api.ListEventEndpoints, req.Cursor()), site.Read(req, api.GetOrganization, nil)
	shown := eventsData{
		Pager: req.Pager(endpoints.NextCursor), Create: req.Form(eventEndpointForm),
		Bounds: req.Form(eventBoundsForm.Of(eventsPath+"/bounds", organization)),
	}
	for _, endpoint := range endpoints.Data {
		id := endpoint.ID
		question := req.Phrase("Delete the endpoint %s with the log of its deliveries? It gets no events any more.", endpoint.URL)
		shown.Endpoints = append(shown.Endpoints, eventEndpointRow{
			EventEndpointObject: endpoint, Test: req.button("event-endpoint-test", id, "Send a test", "", "id", id),
			Activate: req.button("event-endpoint-activate", id, "Activate", "", "id", id),
			Delete:   req.button("event-endpoint-delete", id, "Delete", question, "id", id),
		})
	}
	return shown, nil
}
