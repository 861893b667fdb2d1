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
	"embed"
	"log/slog"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
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
