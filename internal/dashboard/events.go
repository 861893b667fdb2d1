package dashboard

import (
	"net/http"
	"strconv"
	"strings"
)

const eventsPath = root + "/events"

// eventEndpoint is an address that receives the organization's events. Secret is set only in the answer that creates it.
type eventEndpoint struct {
	ID             string   `json:"id"`
	URL            string   `json:"url"`
	Events         []string `json:"events"`
	State          string   `json:"state"`
	DisabledReason string   `json:"disabledReason"`
	FailingSince   string   `json:"failingSince"`
	Secret         string   `json:"secret"`

	// Test, Activate and Delete are the buttons in its row; Activate only of one that is disabled, Test only of another.
	Test, Activate, Delete form `json:"-"`
}

// Active reports whether events are sent to it.
func (e eventEndpoint) Active() bool { return e.State == "active" }

// eventBounds are the limits at which the events conversation.waiting and wallet.low are sent.
type eventBounds struct {
	LowBalanceMicros string `json:"lowBalanceMicros"`
	WaitingMinutes   int    `json:"waitingMinutes"`
}

type eventsData struct {
	Endpoints      []eventEndpoint
	Pager          pager
	Create, Bounds form
}

func eventsPage() page {
	return page{
		path: eventsPath, template: "events", title: "Events",
		show: showEvents,
		actions: []action{
			{form: "event-endpoint-create", done: "The endpoint was made.", do: createEventEndpoint},
			{verb: "bounds", form: "event-bounds", done: "Saved.", do: changeEventBounds},
			{verb: "test", form: "event-endpoint-test", done: "The event endpoint.test is on its way.", do: func(req *pageRequest) (outcome, error) {
				return goTo(eventsPath), req.send(http.MethodPost, req.eventEndpoint()+"/test", nil, nil)
			}},
			{verb: "activate", form: "event-endpoint-activate", done: "The endpoint gets events again.", do: func(req *pageRequest) (outcome, error) {
				return goTo(eventsPath), req.send(http.MethodPatch, req.eventEndpoint(), object{"state": "active"}, nil)
			}},
			{verb: "delete", form: "event-endpoint-delete", done: "The endpoint was deleted.", do: func(req *pageRequest) (outcome, error) {
				return goTo(eventsPath), req.send(http.MethodDelete, req.eventEndpoint(), nil, nil)
			}},
		},
	}
}

// eventEndpoint returns the API's address of the endpoint that a form names.
func (req *pageRequest) eventEndpoint() string { return "/event-endpoints/" + segment(req.text("id")) }

func showEvents(req *pageRequest) (any, error) {
	var endpoints list[eventEndpoint]
	if err := req.get("/event-endpoints", req.cursor(), &endpoints); err != nil {
		return nil, err
	}
	for i := range endpoints.Data {
		endpoint := &endpoints.Data[i]
		row := func(verb, text, confirm string) form {
			f := button("event-endpoint-"+verb+"-"+endpoint.ID, eventsPath+"/"+verb, text, confirm)
			f.Fields = []field{{Name: "id", Kind: hiddenField, Value: endpoint.ID}}
			return req.form(f)
		}
		endpoint.Test, endpoint.Activate = row("test", "Send a test", ""), row("activate", "Activate", "")
		endpoint.Delete = row("delete", "Delete", "Delete the endpoint "+endpoint.URL+" with the log of its deliveries? It gets no events any more.")
	}
	var bounds eventBounds
	if err := req.get("/organization", nil, &bounds); err != nil {
		return nil, err
	}
	return eventsData{
		Endpoints: endpoints.Data, Pager: req.pager(endpoints.NextCursor),
		Create: req.form(eventEndpointForm()), Bounds: req.form(bounds.form()),
	}, nil
}

func (b eventBounds) form() form {
	return form{ID: "event-bounds", Action: eventsPath + "/bounds", Submit: "Save", Fields: []field{
		{
			Name: "waitingMinutes", Kind: numberField, Label: "A customer waits for so many minutes", Required: true,
			Value: strconv.Itoa(b.WaitingMinutes), Hint: "Then conversation.waiting is sent. Up to 10,080, a week; with 0 it never is.",
		},
		{
			Name: "lowBalanceMicros", Kind: numberField, Label: "The wallet has less than so many credits", Required: true,
			Value: credits(b.LowBalanceMicros), Hint: "Then wallet.low is sent. With 0 it never is.",
		},
	}}
}

func changeEventBounds(req *pageRequest) (outcome, error) {
	micros, ok := microsOf(strings.TrimSpace(req.text("lowBalanceMicros")))
	if !ok {
		return outcome{}, refuseField("lowBalanceMicros", "Enter an amount of credits, such as 2.50.")
	}
	if req.number("waitingMinutes") == nil { // null would change nothing
		return outcome{}, refuseField("waitingMinutes", "Enter a number of minutes; with 0 nobody is told.")
	}
	body := object{"waitingMinutes": req.number("waitingMinutes"), "lowBalanceMicros": micros}
	return goTo(eventsPath), req.send(http.MethodPatch, "/organization", body, nil)
}

func eventEndpointForm() form {
	types := []option{
		{Value: "conversation.handover", Label: "conversation.handover", Hint: "A person has a conversation from now on"},
		{Value: "conversation.attention", Label: "conversation.attention", Hint: "A message can't be answered or delivered"},
		{Value: "conversation.waiting", Label: "conversation.waiting", Hint: "A customer waits for long"},
		{Value: "channel.needs_reauth", Label: "channel.needs_reauth", Hint: "A channel must be connected again"},
		{Value: "channel.expiring", Label: "channel.expiring", Hint: "A channel's token ends soon"},
		{Value: "wallet.low", Label: "wallet.low", Hint: "The wallet runs low"},
	}
	var all []string
	for _, one := range types {
		all = append(all, one.Value)
	}
	return form{ID: "event-endpoint-create", Submit: "Create endpoint", Fields: []field{
		{
			Name: "url", Kind: textField, Label: "Address", Required: true, MaxLength: 2048,
			Hint: "Of your own system, with https. It gets signed webhooks.",
		},
		{Name: "events", Kind: checksField, Label: "Events", Options: choices(types, all...)},
	}}
}

func createEventEndpoint(req *pageRequest) (outcome, error) {
	chosen := req.texts("events")
	if len(chosen) == 0 { // the API would make an endpoint that gets nothing
		return outcome{}, refuseField("events", "Choose at least one event.")
	}
	var made eventEndpoint
	if err := req.send(http.MethodPost, "/event-endpoints", object{"url": req.text("url"), "events": chosen}, &made); err != nil {
		return outcome{}, err
	}
	return reveal(made), nil
}
