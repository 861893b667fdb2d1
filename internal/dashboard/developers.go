package dashboard

import (
	"cmp"
	"slices"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const keysPath = root + "/keys"

// keyRow is an API key with the button in its row.
type keyRow struct {
	api.APIKeyObject

	Budgets []budgetRow
	Revoke  form
}

// PerMinute and Concurrent are the bounds of the key; 0 means none.
func (k keyRow) PerMinute() int64  { return numberOf(k.RequestsPerMinute) }
func (k keyRow) Concurrent() int64 { return numberOf(k.MaxConcurrent) }

func numberOf(number *int64) int64 { return *cmp.Or(number, new(int64)) }

// keyName returns the name of a key, or its first characters.
func keyName(key *api.APIKeyObject) string { return cmp.Or(text(key.Name), key.Hint+"…") }

type keysData struct {
	Keys   []keyRow
	Pager  ui.Pager
	Create form
	// Address is the base URL for clients.
	Address string
}

var (
	keyPerMinute  = field{Name: "requestsPerMinute", Label: "Requests a minute", Hint: "Empty: only the organization's limit."}
	keyConcurrent = field{Name: "maxConcurrent", Label: "Calls at the same time", Hint: "On each server. Empty: any number."}
)

var keyForm = ui.FormOf(
	api.CreateAPIKey, form{ID: "key-create", Submit: "Create key"},
	field{Name: "name", Label: "Name", Hint: "What it is for, so that you know which one to revoke."},
	field{
		Name: "environment", Label: "Environment", Required: true,
		Hint:    "A live key spends the live wallet, a test key the test wallet.",
		Options: []option{{Value: "live", Label: "Live"}, {Value: "test", Label: "Test"}},
	},
	field{
		Name: "scopes", Kind: ui.ChecksField, Label: "Scopes", Hint: "What the key may do. Give it no more than it needs.",
		Options: ui.Choices(scopes(), "models:read", "chat:write"), Missing: "Choose at least one scope.",
	},
	keyPerMinute, keyConcurrent,
	field{Name: "expiresInDays", Label: "Expires in days", Hint: "1 to 3650. Empty: it never expires."},
)

// scopes returns all scopes as options.
func scopes() []option {
	all := []option{
		{Value: "models:read", Label: "models:read", Hint: "List the models"},
		{Value: "chat:write", Label: "chat:write", Hint: "Ask models"},
	}
	for _, group := range []struct {
		name        string
		see, change ui.Text
	}{
		{"agents", "See assistants", "Change assistants"},
		{"knowledge_bases", "See knowledge bases", "Change knowledge bases"},
		{"channels", "See channels", "Change channels"},
		{"conversations", "See conversations", "Change conversations"},
		{"wallet", "See the wallet", "Change the wallet"},
		{"event_endpoints", "See event endpoints", "Change event endpoints"},
		{"api_keys", "See API keys", "Change API keys"},
		{"provider_keys", "See provider keys", "Change provider keys"},
	} {
		all = append(all,
			option{Value: group.name + ":read", Label: ui.Text(group.name + ":read"), Hint: group.see},
			option{Value: group.name + ":write", Label: ui.Text(group.name + ":write"), Hint: group.change},
		)
	}
	return all
}

var keysPage = page{
	Path: keysPath, Template: "keys", Title: "API keys",
	Show: func(req *pageRequest) (any, error) {
		keys, budgets := site.Read(req, api.ListAPIKeys, req.Cursor()), req.keyBudgets()
		shown := keysData{Pager: req.Pager(keys.NextCursor), Create: req.Form(keyForm), Address: req.d.config.BaseURL + "/v1"}
		for _, key := range keys.Data {
			question := req.Phrase("Revoke the key %s…? Whoever uses it is refused from the next request on. This can't be undone.", key.Hint)
			revoke := req.button("key-revoke", key.ID, "Revoke", question, "id", key.ID)
			shown.Keys = append(shown.Keys, keyRow{key, budgets[key.ID], revoke})
		}
		return shown, nil
	},
	Actions: []action{
		{Form: "key-create", Done: "The key was made.", Do: reveal(api.CreateAPIKey, keyForm)},
		button("key-revoke", keysPath, api.RevokeAPIKey, "The key is revoked and can't be used any more."),
	},
}

type keyData struct {
	Key     *api.APIKeyObject
	Budgets []budgetRow
	// Budget are the forms of the budgets, and Create the form of another one.
	Budget         []form
	Create, Bounds form
}

func (d *keyData) PageTitle() string { return keyName(d.Key) }

// everyModel is the choice that lets a key use all models.
const everyModel = "*"

var keyBoundsForm = ui.FormOf(
	api.UpdateAPIKey, form{ID: "key-edit", Submit: "Save"},
	field{Name: "models", Kind: ui.ChecksField, Label: "Models", Hint: "Calls to others get 400 unsupported_model. Nothing chosen: no model."},
	keyPerMinute, keyConcurrent,
)

// keyPage is the page of one key with its budgets, its models and its bounds.
var keyPage = page{
	Path: keysPath + "/{id}", Template: "key", Title: "API key", Section: keysPath,
	Show: func(req *pageRequest) (any, error) {
		key := site.Read(req, api.GetAPIKey, values{"id": req.ID()})
		shown := &keyData{Key: key, Budgets: req.keyBudgets()[key.ID]}
		for _, budget := range shown.Budgets {
			shown.Budget = append(shown.Budget, req.editBudget("budget-edit-"+budget.ID, &budget.BudgetObject))
		}
		create := budgetForm.With("keyId", []option{named(key.ID, keyName(key))}).Without("agentId")
		shown.Create = req.Form(create.Of(budgetsPath, struct {
			Environment string `json:"environment"`
		}{string(key.Environment)}))
		models := append([]option{{Value: everyModel, Label: "All models"}}, req.modelOptions("")...)
		chosen := []string{everyModel}
		if key.Models != nil {
			chosen = *key.Models
		}
		for _, model := range chosen {
			if labelOf(models, model) == "" {
				models = append(models, option{Value: model, Label: req.Phrase("%s (no longer available)", model), Named: true})
			}
		}
		shown.Bounds = req.Form(keyBoundsForm.Of("", key).With("models", ui.Choices(models, chosen...)))
		return shown, nil
	},
	Actions: []action{{
		Form: "key-edit", Done: "Saved. It holds from the next request on.",
		Do: func(req *pageRequest) (string, error) {
			in, err := keyBoundsForm.Read(req.Sent, values{"id": req.ID()})
			if err == nil && slices.Contains(req.Sent["models"], everyModel) {
				in["models"] = nil
			}
			if err != nil {
				return "", err
			}
			return req.Path(), req.Run(api.UpdateAPIKey, in)
		},
	}},
}

const providerKeysPath = root + "/provider-keys"

// providerKeyRow is the organization's own key at a provider, with the button in its row.
type providerKeyRow struct {
	api.ProviderKeyObject

	Delete form
}

type providerKeysData struct {
	Keys []providerKeyRow
	// Set is the form for a key. It has no fields when no provider is configured.
	Set form
}

var providerKeyForm = ui.FormOf(
	api.PutProviderKey, form{ID: "provider-key-set", Submit: "Store key"},
	field{Name: "provider", Kind: ui.SelectField, Label: "Provider"},
	field{
		Name: "key", Label: "Key", Autocomplete: "off",
		Hint: "It replaces the current one. It is stored encrypted and never shown again.",
	},
)

var providerKeysPage = page{
	Path: providerKeysPath, Template: "provider-keys", Title: "Provider keys", Show: showProviderKeys,
	Actions: []action{
		{
			Form: "provider-key-set", Done: "The key is stored, encrypted.", Secrets: []string{"key"},
			Do: submit(providerKeysPath, api.PutProviderKey, providerKeyForm),
		},
		button("provider-key-delete", providerKeysPath, api.DeleteProviderKey, "The key was deleted."),
	},
}

func showProviderKeys(req *pageRequest) (any, error) {
	var shown providerKeysData
	for _, key := range site.Read(req, api.ListProviderKeys, nil).Data {
		question := req.Phrase("Delete your own key at %s? Calls that ask for it are refused then.", key.Provider)
		remove := req.button("provider-key-delete", key.Provider, "Delete", question, "provider", key.Provider)
		shown.Keys = append(shown.Keys, providerKeyRow{key, remove})
	}
	var providers []option
	for _, name := range req.d.config.Providers {
		providers = append(providers, named(name, name))
	}
	if len(providers) > 0 {
		shown.Set = req.Form(providerKeyForm.With("provider", providers))
	}
	return shown, nil
}

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
