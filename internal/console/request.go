package console

import (
	"time"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// page is one address of the console with its actions.
type page struct {
	// path is the path in the browser; {id} is an organization's.
	path string
	// template is the file in templates/, without .html, that fills the frame.
	template string
	title    text.Text
	// section is the path of the page's entry in the navigation. Empty means path.
	section string
	// public pages need no session.
	public bool
	// fragments are the templates that ?fragment=NAME renders alone.
	fragments []string
	// show reads the page's data.
	show    func(req *request) (any, error)
	actions []action
}

// action handles a form.
type action struct {
	// verb is the last segment of its address, POST path/verb. Empty means the path of the page.
	verb string
	// form is the id of the form. The ids of forms in rows begin with it and end with the id of the row.
	form string
	// done is the notice on the next page.
	done text.Text
	// do returns the address of the next page. Without one the page is shown again, with req.once.
	do func(req *request) (to string, err error)
}

// shared returns the page as the site serves it.
func (p *page) shared() site.Page[*request] {
	made := site.Page[*request]{
		Path: p.path, Template: p.template, Title: p.title, Section: p.section, Public: p.public, Fragments: p.fragments, Show: p.show,
	}
	for _, a := range p.actions {
		made.Actions = append(made.Actions, site.Action[*request]{Verb: a.verb, Form: a.form, Done: a.done, Do: func(req *request) (string, error) {
			req.sent = req.Sent
			return a.do(req)
		}})
	}
	return made
}

// request is the state of one request to a page. It implements [site.Visit].
type request struct {
	*site.Request

	c       *Console
	printer *text.Printer
	// session is nil on public pages, by is its principal.
	session *identity.OperatorSession
	by      identity.Principal
	// sent is the input of a form.
	sent ui.Sent
	// once is data that an action shows once.
	once any
}

func (req *request) id() string                        { return req.ID() }
func (req *request) path() string                      { return req.Path() }
func (req *request) query(name string) string          { return req.Query(name) }
func (req *request) form(f ui.Form) ui.Form            { return req.Form(f) }
func (req *request) pager(nextCursor *string) ui.Pager { return req.Pager(nextCursor) }

const factorPath = root + "/second-factor"

// Enter finds the session. Without its second factor the session has only the page of the second factor.
func (req *request) Enter() error {
	session, err := req.c.config.Operators.Session(req.R)
	if err != nil {
		return err
	}
	req.session, req.by = &session, session.Principal()
	req.Account = req.by.OperatorID
	req.Prefer("", session.Scheme)
	if req.Path() != factorPath && !session.Fresh(identity.SecondFactorLifetime) {
		req.Detour(factorPath)
		return site.ErrAnswered
	}
	return nil
}

// Ask runs an operation on the organization in the path, or on the whole service.
func (req *request) Ask(o api.Operation, in values) (any, error) {
	orgID := req.ID()
	if api.OfService(o) {
		orgID = ""
	}
	return req.c.config.Ask(req.W, req.R, &req.by, orgID, o, in)
}

// Frame adds the navigation and the operator.
func (req *request) Frame(view *site.View) {
	view.Once = req.once
	if c, ok := req.once.(*confirmation); ok {
		c.Form = req.form(c.Form)
	}
	s := req.session
	if s == nil {
		return
	}
	view.Person, view.PersonPath, view.SignOut = s.Email, factorPath, ui.Button("sign-out", root+"/sign-out", "Sign out", "").Shown(req.Say)
	if !s.Fresh(identity.SecondFactorLifetime) {
		return
	}
	until := time.UnixMilli(s.SecondFactorAt).Add(identity.SecondFactorLifetime)
	view.Role = req.Say.Tf("Second factor until %s", until.UTC().Format("15:04"))
	for _, entry := range sections {
		if !req.may(entry.scope) {
			continue
		}
		section := ui.Section{Link: ui.Link{Path: entry.path, Label: req.Say.T(entry.label)}, Icon: entry.icon}
		if entry.bar {
			section.Bar = section.Label
		}
		view.Sections = append(view.Sections, section)
	}
}

type values = endpoint.Values

// ask is [site.Ask].
func ask[I, T any](req *request, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], in values) (*T, error) {
	return site.Ask(req, o, in)
}

// askTable is [site.AskTable].
func askTable[T, I any](req *request, o endpoint.Op[*api.Deps, I, endpoint.Stream], in values) (*endpoint.ListObject[T], error) {
	return site.AskTable[T](req, o, in)
}

// askMade is [site.AskMade].
func askMade[I, T any](req *request, o endpoint.Op[*api.Deps, I, endpoint.Made[T]], in values) (*T, error) {
	return site.AskMade(req, o, in)
}

// run is [request.Ask].
func (req *request) run(o api.Operation, in values) (any, error) { return req.Ask(o, in) }

// change is [site.Request.Submit].
func (req *request) change(o api.Operation, f ui.Form, in values) error { return req.Submit(o, f, in) }

// may reports whether the operator has a scope. Pages hide forms that would be refused.
func (req *request) may(scope identity.OperatorScope) bool {
	return scope == "" || req.by.OperatorScopes.Has(scope)
}

var sections = []struct {
	path  string
	label text.Text
	icon  string
	scope identity.OperatorScope
	bar   bool
}{
	{root, "Overview", "layout-dashboard", "", true},
	{root + "/organizations", "Organizations", "building-2", "organizations:read", true},
	{root + "/people", "People", "users", "users:read", false},
	{usagePath, "Usage & margin", "trending-up", "usage:read", false},
	{root + "/queue", "Queue", "list-restart", "queue:read", true},
	{root + "/vendors", "Vendors & health", "activity", "vendors:read", true},
	{root + "/audit-log", "Audit log", "scroll-text", "audit_log:read", false},
}
