// Package console serves the pages of the service's operators at /console: server-rendered HTML over the operations of the operator.
//
// It is a [site.Site] like the dashboard of organizations; the comment of package site says how a page is made. Pages run operations with the
// principal of the operator's session, so the operations alone decide rights and bounds; a page only hides the buttons that an operation would
// refuse.
//
// Invariants:
//   - The console has no rights, no SQL and no state of its own, and shows no text of a customer.
//   - An operator's session has its own cookie and is worth nothing on any other page. It needs a second factor, which is asked for again after
//     [identity.SecondFactorLifetime], and before money moves after [identity.MoneyFactorLifetime].
//   - Everything works without the script.
package console

import (
	"cmp"
	"embed"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// root is the path of the overview; all other paths are below it.
const root = "/console"

// Config configures a console.
type Config struct {
	// Operators are the accounts and sessions of operators.
	Operators *handlers.OperatorSessions
	// Ask runs an operation for an operator, on an organization unless orgID is empty. Its errors are [handlers.Error]s, and were logged.
	Ask func(w http.ResponseWriter, r *http.Request, by *identity.Principal, orgID string, o api.Operation, in endpoint.Values) (any, error)
	// Currency is the ISO 4217 code of amounts. Empty means credits.
	Currency string
	// Bodies bounds the memory of forms and pages together with all other requests. Nil means unlimited.
	Bodies *handlers.ByteBudget
	// Logger logs failures. Nil discards them.
	Logger *slog.Logger
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	*site.Site

	config Config
}

//go:embed templates/*.html
var templateFiles embed.FS

// New returns a console.
func New(config Config) *Console {
	c := &Console{config: config, Site: site.New(site.Config{
		Root: root, SignIn: root + "/sign-in", Operator: true,
		Failed:    "The service failed to handle the request. Its log has the reason.",
		Templates: templateFiles, Currency: config.Currency, Bodies: config.Bodies, Logger: config.Logger,
	})}
	site.Add(c.Site, pages(), func(req *site.Request) *request { return &request{Request: req, c: c} })
	return c
}

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
