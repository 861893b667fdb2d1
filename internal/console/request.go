package console

import (
	"cmp"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

type (
	page   = site.Page[*request]
	action = site.Action[*request]
	// values are the input of an operation.
	values = endpoint.Values
)

// request is the state of one request to a page. It implements [site.Visit].
type request struct {
	*site.Request

	c *Console
	// session is nil on public pages, by is its principal.
	session *identity.OperatorSession
	by      identity.Principal
	// orgID is the organization of operations. Empty means the organization in the path.
	orgID string
}

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
	orgID := cmp.Or(req.orgID, req.ID())
	if api.OfService(o) {
		orgID = ""
	}
	return req.c.config.Ask(req.W, req.R, &req.by, orgID, o, in)
}

// Frame adds the navigation and the operator.
func (req *request) Frame(view *site.View) {
	if c, ok := req.Once.(*confirmation); ok {
		c.Form = req.Form(c.Form)
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
	{paymentsPath, "Payments", "wallet", "wallet:read", false},
	{root + "/queue", "Queue", "list-restart", "queue:read", true},
	{root + "/vendors", "Vendors & health", "activity", "vendors:read", true},
	{root + "/audit-log", "Audit log", "scroll-text", "audit_log:read", false},
}
