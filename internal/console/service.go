package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

func pages() []page {
	return slices.Concat(signInPages(), organizationPages(), []page{
		{
			Path: root, Template: "overview", Title: "Overview", Show: showOverview, Fragments: []string{"overview-now"},
			Actions: []action{simple("doctor", api.RunDoctor, doctorForm, "The doctor runs. Its result is here in a while.")},
		},
		{Path: root + "/people", Template: "people", Title: "People", Show: showPeople},
		{Path: searchPath, Template: "search", Title: "Search", Show: showFound},
		paymentsPage,
		{Path: usagePath, Template: "usage", Title: "Usage & margin", Show: showUsage},
		filePage(usagePath, api.ListUsage, usageParameters...),
		filePage(organizationPath("{id}")+"/ledger", api.ListTransactions, "environment"),
		filePage(organizationPath("{id}")+"/calls", api.ListCalls, callParameters...),
		{
			Path: root + "/queue", Template: "queue", Title: "Queue", Show: showQueue,
			Actions: []action{simple("retry", api.RetryTurn, rowForm("turn-retry", api.RetryTurn, "id"), "The turn runs again.")},
		},
		{Path: root + "/vendors", Template: "vendors", Title: "Vendors & health", Show: func(req *request) (any, error) {
			return site.Read(req, api.ListVendors, nil).Data, nil
		}},
		{Path: root + "/audit-log", Template: "audit-log", Title: "Audit log", Show: showActions},
	})
}

type queueData struct {
	Figures []ui.Figure
	Dead    any
	Forms   map[string]*ui.Form
}

func showQueue(req *request) (any, error) {
	dead := site.Read(req, api.ListDeadTurns, values{"limit": "100"})
	shown := queueData{Figures: req.queueFigures(), Dead: dead.Data, Forms: map[string]*ui.Form{}}
	for _, turn := range dead.Data {
		f := ui.Button("turn-retry-"+turn.ID, req.Path()+"/retry", "Run again", "", "id", turn.ID)
		if req.may("queue:write") {
			shown.Forms[f.ID] = new(req.Form(f))
		}
	}
	return shown, nil
}

type actionsData struct {
	Filter  ui.Form
	Entries any
	Pager   ui.Pager
}

func showActions(req *request) (any, error) {
	list := site.Read(req, api.ListActions, req.listed("orgId"))
	filter := ui.Form{ID: "audit-filter", Submit: "Show", Fields: []ui.Field{{Name: "orgId", Label: "Only of the organization with this id"}}}
	return actionsData{Filter: req.Filter(filter), Entries: list.Data, Pager: req.Pager(list.NextCursor)}, nil
}

// queueFigures reads the numbers of the queue.
func (req *request) queueFigures() []ui.Figure {
	queue := site.Read(req, api.GetQueue, nil)
	const path = root + "/queue"
	figures := []ui.Figure{
		req.figure("waiting", "Conversations wait for an answer", queue.Waiting, path),
		req.figure("answering", "Are being answered", queue.Answering, path),
		req.figure("standing", "Turns wait for a change, such as credits", queue.Standing, path),
		req.figure("given-up", "Turns were given up", queue.Dead, path+"#dead"),
	}
	figures[0].Note = req.Say.Tf("the oldest for %d s", queue.OldestSeconds)
	return figures
}

// money is a card with an amount.
func (req *request) money(id string, label text.Text, micros, path string) ui.Figure {
	return ui.Figure{ID: id, Label: req.Say.T(label), Value: req.Say.Amount(micros), Micros: micros, Path: path}
}

// figure is a card with a number.
func (req *request) figure(id string, label text.Text, number int64, path string) ui.Figure {
	return ui.Figure{ID: id, Label: req.Say.T(label), Value: req.Say.Number(number), Path: path}
}

const searchPath = root + "/search"

// peopleData is the data of the page of people.
type peopleData struct {
	Search           ui.Form
	Users, Operators any
	Pager            ui.Pager
}

func showPeople(req *request) (any, error) {
	in := req.listed()
	in["email"] = strings.TrimSpace(req.Query("email"))
	users, operators := site.Read(req, api.ListUsers, in), site.Read(req, api.ListOperators, values{"limit": "100"})
	search := ui.Form{ID: "people-search", Action: root + "/people", Submit: "Search", Fields: []ui.Field{
		{Name: "email", Label: "The beginning of an e-mail address"},
	}}
	return peopleData{Search: req.Filter(search), Users: users.Data, Operators: operators.Data, Pager: req.Pager(users.NextCursor)}, nil
}

// found is something that a search has found, with its address.
type found struct{ Name, Kind, ID, Path string }

// showFound lists the things that a text names. A single thing is opened.
func showFound(req *request) (any, error) {
	tabs, all := map[string]string{"key": "/keys", "channel": "/channels", "call": "/calls"}, []found{}
	for _, f := range site.Read(req, api.FindOrganization, values{"q": strings.TrimSpace(req.Query("q"))}).Data {
		all = append(all, found{f.Name, f.Kind, f.ID, organizationPath(f.OrgID) + tabs[f.Kind]})
	}
	if len(all) == 1 {
		http.Redirect(req.W, req.R, all[0].Path, http.StatusSeeOther)
		return nil, site.ErrAnswered
	}
	return all, nil
}
