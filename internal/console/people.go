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

func showPeople(req *request) (any, error) {
	users := site.Read(req, api.ListUsers, values{"email": strings.TrimSpace(req.Query("email")), "cursor": req.Query("cursor"), "limit": "100"})
	operators := site.Read(req, api.ListOperators, values{"limit": "100"})
	search := ui.Form{ID: "people-search", Action: root + "/people", Submit: "Search", Get: true, Fields: []ui.Field{
		{Name: "email", Label: "The beginning of an e-mail address", Value: req.Query("email")},
	}}
	return peopleData{Search: req.Form(search), Users: users.Data, Operators: operators.Data, Pager: req.Pager(users.NextCursor)}, nil
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
