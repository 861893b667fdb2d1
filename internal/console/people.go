package console

import (
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

const searchPath = root + "/search"

// peopleData is the data of the page of people.
type peopleData struct {
	Search           ui.Form
	Users, Operators any
	Pager            ui.Pager
}

func peoplePages() []page {
	return []page{
		{path: root + "/people", template: "people", title: "People", show: showPeople},
		{path: searchPath, template: "search", title: "Search", show: showFound},
	}
}

func showPeople(req *request) (any, error) {
	users, err := ask(req, api.ListUsers, values{"email": strings.TrimSpace(req.query("email")), "cursor": req.query("cursor"), "limit": "100"})
	if err != nil {
		return nil, err
	}
	operators, err := ask(req, api.ListOperators, values{"limit": "100"})
	if err != nil {
		return nil, err
	}
	search := ui.Form{ID: "people-search", Action: root + "/people", Submit: "Search", Get: true, Fields: []ui.Field{
		{Name: "email", Label: "The beginning of an e-mail address", Value: req.query("email")},
	}}
	return peopleData{Search: req.form(search), Users: users.Data, Operators: operators.Data, Pager: req.pager(users.NextCursor)}, nil
}

// found is something that a search has found, with its address.
type found struct{ Name, Kind, ID, Path string }

// showFound lists the things that a text names. A single thing is opened.
func showFound(req *request) (any, error) {
	list, err := ask(req, api.FindOrganization, values{"q": strings.TrimSpace(req.query("q"))})
	if err != nil {
		return nil, err
	}
	tabs, all := map[string]string{"key": "/keys", "channel": "/channels", "call": "/calls"}, []found{}
	for _, f := range list.Data {
		all = append(all, found{f.Name, f.Kind, f.ID, organizationPath(f.OrgID) + tabs[f.Kind]})
	}
	if len(all) == 1 {
		http.Redirect(req.W, req.R, all[0].Path, http.StatusSeeOther)
		return nil, site.ErrAnswered
	}
	return all, nil
}
