package console

import (
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

const organizationsPath = root + "/organizations"

var createForm = ui.FormOf(
	api.CreateOrganization, ui.Form{ID: "organization-create", Submit: "Create organization"},
	ui.Field{Name: "name", Label: "Name"}, ui.Field{Name: "plan", Kind: ui.SelectField, Label: "Plan"},
)

func organizationPages() []page {
	pages := []page{{
		Path: organizationsPath, Template: "organizations", Title: "Organizations", Show: showOrganizations,
		Actions: []action{{Form: "organization-create", Done: "The organization was created.", Do: func(req *request) (string, error) {
			in, err := createForm.Read(req.Sent, values{})
			if err != nil {
				return "", err
			}
			made, err := site.AskMade(req, api.CreateOrganization, in)
			if err != nil {
				return "", err
			}
			return organizationPath(made.ID), nil
		}}},
	}}
	for _, tab := range tabs {
		pages = append(pages, page{
			Path: organizationPath("{id}") + tab.path, Template: tab.template, Title: tab.label, Section: organizationsPath,
			Show: func(req *request) (any, error) { return req.organizationPage(tab.show) }, Actions: tab.actions,
		})
	}
	return pages
}

func organizationPath(id string) string { return organizationsPath + "/" + id }

type organizationsData struct {
	Search        ui.Form
	Organizations any
	Pager         ui.Pager
	Create        ui.Form
}

func showOrganizations(req *request) (any, error) {
	list := site.Read(req, api.ListOrganizations, req.listed("q", "suspended", "createdSince"))
	search := ui.Form{ID: "organization-search", Action: organizationsPath, Submit: "Search", Fields: []ui.Field{
		{Name: "q", Label: "Name, id or your own id"},
		{Name: "suspended", Kind: ui.SelectField, Label: "State", Options: []ui.Option{
			{Label: "All"}, {Value: "false", Label: "Active"}, {Value: "true", Label: "Suspended"},
		}},
	}}
	return organizationsData{
		Search: req.Filter(search), Organizations: list.Data, Pager: req.Pager(list.NextCursor),
		Create: req.Form(createForm.With("plan", req.plans(""))),
	}, nil
}

// plans reads the configured plans as options.
func (req *request) plans(chosen string) (options []ui.Option) {
	for _, plan := range site.Read(req, api.ListPlans, nil).Data {
		selected := plan.Name == chosen || chosen == "" && plan.Default
		options = append(options, ui.Option{Value: plan.Name, Label: text.Text(plan.Name), Named: true, Selected: selected})
	}
	return options
}

// tab is a page of one organization.
type tab struct {
	path, template string
	label          text.Text
	scope          identity.OperatorScope
	show           func(req *request, shown *organizationData)
	actions        []action
}

var tabs = []tab{
	{"", "organization", "Summary", "organizations:read", showSummary, append(moneyActions(moves),
		simple("plan", api.SetPlan, planForm, "The organization has another plan."),
		simple("suspend", api.SuspendOrganization, suspendForm, "The organization is suspended."),
		simple("resume", api.ResumeOrganization, resumeForm, "The organization is served again."),
	)},
	{"/ledger", "ledger", "Ledger", "wallet:read", showLedger, moneyActions(moves)},
	{"/calls", "calls", "Calls", "wallet:read", showCalls, moneyActions(moves)},
	{"/keys", "keys", "Keys", "api_keys:read", showKeys, []action{
		{Form: "key-create", Done: "The key was made.", Do: func(req *request) (string, error) {
			return req.Reveal(site.AskForm(req, api.CreateAPIKey, keyForm, values{}))
		}},
		simple("revoke", api.RevokeAPIKey, rowForm("key-revoke", api.RevokeAPIKey, "id"), "The key was revoked."),
	}},
	{"/models", "models", "Models", "models:read", showModels, []action{
		simple("enable", api.EnableModel, rowForm("model", api.EnableModel, "model"), "The model is enabled."),
		simple("disable", api.DisableModel, rowForm("model", api.DisableModel, "model"), "The model is switched off."),
	}},
	{"/people", "members", "People", "users:read", showMembers, []action{
		{Form: "member-invite", Do: func(req *request) (string, error) {
			return req.Reveal(site.AskForm(req, api.InviteMember, inviteForm, values{}))
		}},
	}},
	{"/channels", "channels", "Channels", "channels:read", showChannels, []action{
		simple("approve", api.ApproveChannel, rowForm("channel-approve", api.ApproveChannel, "id"), "The channel is active."),
	}},
}

// simple is an action that runs an operation with the input of a form, and shows the page again.
func simple(verb string, o api.Operation, f ui.Form, done text.Text) action {
	return action{Verb: verb, Form: f.ID, Done: done, Do: func(req *request) (string, error) { return req.Path(), req.Submit(o, f, values{}) }}
}

// rowForm reads the buttons of rows, which have one hidden field.
func rowForm(id string, o api.Operation, field string) ui.Form {
	return ui.FormOf(o, ui.Form{ID: id}, ui.Field{Name: field, Kind: ui.HiddenField})
}

// organizationData is the data of all pages of one organization.
type organizationData struct {
	// Organization is the answer of api.ReadOrganization, Title its name.
	Organization any
	Title, plan  string
	suspended    bool
	Tabs         []ui.Link
	// List holds the rows of the page.
	List  any
	Pager ui.Pager
	// File is the address of the list as CSV.
	File   string
	Wallet *api.WalletObject
	// Forms are the forms of the page by their ids.
	Forms map[string]*ui.Form
}

// PageTitle is the organization's name.
func (d *organizationData) PageTitle() string { return d.Title }

func (req *request) organizationPage(show func(*request, *organizationData)) (any, error) {
	organization := site.Read(req, api.ReadOrganization, nil)
	shown := &organizationData{
		Organization: organization, Title: organization.Name, plan: organization.Plan, suspended: organization.Suspended,
		Forms: map[string]*ui.Form{},
	}
	for _, tab := range tabs {
		if req.may(tab.scope) {
			shown.Tabs = append(shown.Tabs, ui.Link{Path: organizationPath(req.ID()) + tab.path, Label: req.Say.T(tab.label)})
		}
	}
	show(req, shown)
	return shown, nil
}

// may adds a form to the page if the operator has a scope.
func (d *organizationData) may(req *request, scope identity.OperatorScope, f ui.Form) {
	if req.may(scope) {
		d.Forms[f.ID] = new(req.Form(f))
	}
}

var (
	keyForm = ui.FormOf(api.CreateAPIKey, ui.Form{ID: "key-create", Submit: "Create key"},
		ui.Field{Name: "name", Label: "Name"},
		ui.Field{Name: "environment", Label: "Environment", Options: []ui.Option{{Value: "live", Label: "Live"}, {Value: "test", Label: "Test"}}},
		ui.Field{Name: "scopes", Kind: ui.ChecksField, Label: "Scopes", Missing: "Choose at least one scope.", Options: []ui.Option{
			{Value: string(identity.ModelsRead), Label: "models:read", Hint: "List the models", Selected: true},
			{Value: string(identity.ChatWrite), Label: "chat:write", Hint: "Ask models", Selected: true},
		}},
	)
	inviteForm = ui.FormOf(api.InviteMember, ui.Form{ID: "member-invite", Submit: "Invite"},
		ui.Field{Name: "email", Kind: ui.EmailField, Label: "E-mail address", Hint: "They sign in with it. No e-mail is sent."},
		ui.Field{Name: "role", Kind: ui.SelectField, Label: "Role", Options: []ui.Option{
			{Value: "member", Label: "Member"}, {Value: "administrator", Label: "Administrator"}, {Value: "owner", Label: "Owner", Selected: true},
		}},
	)
	planForm    = ui.FormOf(api.SetPlan, ui.Form{ID: "plan-set", Submit: "Change"}, ui.Field{Name: "plan", Kind: ui.SelectField, Label: "Plan"})
	suspendForm = ui.FormOf(api.SuspendOrganization, ui.Form{ID: "organization-suspend", Submit: "Suspend", Danger: true},
		ui.Field{Name: "reason", Label: "Reason, shown to the owner"})
	resumeForm = ui.FormOf(api.ResumeOrganization, ui.Form{ID: "organization-resume", Submit: "Resume"},
		ui.Field{Name: "reason", Label: "Reason, for the audit log"})
)

func showSummary(req *request, shown *organizationData) {
	here := organizationPath(req.ID())
	shown.may(req, "organizations:write", planForm.With("plan", req.plans(shown.plan)).Of(here+"/plan", nil))
	if shown.suspended {
		shown.may(req, "organizations:write", resumeForm.Of(here+"/resume", nil))
	} else {
		shown.may(req, "organizations:write", suspendForm.Of(here+"/suspend", nil))
	}
	for _, m := range moves[:2] {
		shown.may(req, "wallet:write", m.form.Of(here+"/"+m.form.ID, nil))
	}
	shown.Wallet = site.Read(req, api.GetWallet, nil)
}

func showLedger(req *request, shown *organizationData) {
	list := site.ReadTable[api.TransactionObject](req, api.ListTransactions, req.listed("environment"))
	shown.List, shown.Pager, shown.File = list.Data, req.Pager(list.NextCursor), req.fileAddress()
	for _, t := range list.Data {
		if t.Kind == "credit" && t.Reference != nil {
			shown.may(req, "wallet:write", ui.Button("undo-"+t.ID, req.Path()+"/undo", "Undo…", "", "amountMicros", ui.Credits(t.AmountMicros),
				"reference", "undo "+t.ID, "reason", "Undo of "+*t.Reference, "corrects", t.ID))
		}
	}
}

func showCalls(req *request, shown *organizationData) {
	filter := ui.Form{ID: "calls-filter", Action: req.Path(), Submit: "Filter", Fields: []ui.Field{
		{Name: "keyId", Label: "Id of the key"},
		{Name: "agentId", Label: "Id of the assistant"},
		{Name: "model", Label: "Model"},
		{Name: "outcome", Label: "Ended"},
		{Name: "from", Kind: ui.DateField, Label: "First day"},
		{Name: "to", Kind: ui.DateField, Label: "Last day"},
	}}
	list := site.ReadTable[api.CallObject](req, api.ListCalls, req.listed(callParameters...))
	shown.Forms[filter.ID] = new(req.Filter(filter))
	shown.List, shown.Pager, shown.File = list.Data, req.Pager(list.NextCursor), req.fileAddress()
	for _, call := range list.Data {
		if call.ChargedMicros != "0" {
			refund := ui.Button("refund-"+call.ID, req.Path()+"/refund", "Refund…", "", "id", call.ID, "charged", call.ChargedMicros)
			shown.may(req, "wallet:write", refund)
		}
	}
}

func showKeys(req *request, shown *organizationData) {
	list := site.Read(req, api.ListAPIKeys, req.listed())
	shown.List, shown.Pager = list.Data, req.Pager(list.NextCursor)
	if req.by.Scopes.Has(identity.ChatWrite) {
		shown.may(req, "api_keys:write", keyForm)
	}
	for _, key := range list.Data {
		if key.RevokedAt == nil {
			shown.may(req, "api_keys:write", ui.Button("key-revoke-"+key.ID, req.Path()+"/revoke", "Revoke",
				"Revoke this key? Programs with it are refused from now on.", "id", key.ID))
		}
	}
}

func showModels(req *request, shown *organizationData) {
	list := site.Read(req, api.ListOrganizationModels, nil)
	shown.List = list.Data
	for _, model := range list.Data {
		verb, label := "enable", text.Text("Enable")
		if model.Enabled {
			verb, label = "disable", "Switch off"
		}
		shown.may(req, "models:write", ui.Button("model-"+model.Model, req.Path()+"/"+verb, label, "", "model", model.Model))
	}
}

func showMembers(req *request, shown *organizationData) {
	list := site.Read(req, api.ListMembers, req.listed())
	shown.List, shown.Pager = list.Data, req.Pager(list.NextCursor)
	shown.may(req, "users:write", inviteForm)
}

func showChannels(req *request, shown *organizationData) {
	list := site.Read(req, api.ListChannelStates, req.listed())
	shown.List, shown.Pager = list.Data, req.Pager(list.NextCursor)
	for _, channel := range list.Data {
		if channel.State == "pending" {
			shown.may(req, "channels:write", ui.Button("channel-approve-"+channel.ID, req.Path()+"/approve", "Approve", "", "id", channel.ID))
		}
	}
}
