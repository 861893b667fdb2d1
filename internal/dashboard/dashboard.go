// Package dashboard serves the pages for people at /dashboard: server-rendered HTML over the operations of the organization API
// (docs/contract.md#organization-api).
//
// Pages run operations as functions, for the person of the request's session. So the operations alone decide rights, bounds and the names
// of faulty fields. The dashboard reads, shows, and keeps the input of refused forms. It is a [site.Site]; the comment of package site says how a
// page is made.
//
// # Invariants
//
//   - Everything except the playground works without the script.
//   - Only the session's cookie authenticates a person; a key in a header doesn't.
//
// It has no rules of the business, keeps no state between requests and sends no e-mail.
package dashboard

import (
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// root is the path of the overview; all other paths are below it.
const root = "/dashboard"

// Config configures a dashboard.
type Config struct {
	// Person returns the person of a request, and Ask runs an operation for the person. Public operations have no person. endpoint.Server has both
	// methods. Their errors are [handlers.Error]s, and were logged.
	Person func(r *http.Request) (*identity.Principal, error)
	Ask    func(w http.ResponseWriter, r *http.Request, person *identity.Principal, o api.Operation, in endpoint.Values) (answer any, err error)
	// API serves the operations over HTTP, for streams and files, which relays pass on.
	API http.Handler
	// BaseURL is the service's own address, without a trailing slash.
	BaseURL string
	// Currency is the ISO 4217 code of the currency of all amounts. Empty means that amounts are credits.
	Currency string
	// Providers are the names of the configured providers, for the organization's own keys.
	Providers []string
	// ChannelTypes are the types of channels that can be connected, in the order of the list.
	ChannelTypes []*platforms.ChannelType
	// SignInRefusal returns the reason why a request like this can't sign in, empty when it can. Nil means that all can.
	SignInRefusal func(r *http.Request) string
	// Bodies bounds the memory of forms together with all other requests. Nil means unlimited.
	Bodies *handlers.ByteBudget
	// Logger logs failures. Nil discards them.
	Logger *slog.Logger
}

// Dashboard serves the pages. It keeps no state between requests and is safe for concurrent use.
type Dashboard struct {
	*site.Site

	config Config
	// channelTypes are the types of the configuration.
	channelTypes []channelType
}

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// New returns a dashboard.
func New(config Config) *Dashboard {
	if config.SignInRefusal == nil {
		config.SignInRefusal = func(*http.Request) string { return "" }
	}
	d := &Dashboard{config: config, Site: site.New(site.Config{
		Root: root, SignIn: loginPath, Cookies: []string{handlers.SessionCookie, handlers.LocalSessionCookie},
		Failed:    "The service failed to handle the request. Try again. If it fails again, tell the operator.",
		Templates: templateFiles, Static: []fs.FS{staticFiles}, Functions: functions,
		Currency: config.Currency, Bodies: config.Bodies, Logger: config.Logger,
	})}
	for _, t := range config.ChannelTypes {
		d.channelTypes = append(d.channelTypes, channelTypeFrom(t))
	}
	site.Add(d.Site, pages(d.channelTypes), func(req *site.Request) *pageRequest { return &pageRequest{Request: req, d: d} })
	return d
}

// functions returns the functions of the templates.
func functions(say *ui.Printer) template.FuncMap {
	return template.FuncMap{
		"text": text, "words": func(text string) string { return say.T(ui.Text(text)) }, "next": func(position int64) int64 { return position + 1 },
		"word": func(word any) string {
			text := fmt.Sprint(word)
			if slices.Contains(names, ui.Text(text)) {
				return say.T(ui.Text(text))
			}
			return text
		},
		"size":         func(bytes int64) string { return size(say, bytes) },
		"mediaType":    func(mediaType string) ui.Text { return ui.Text(cmp.Or(labelOf(mediaTypes, mediaType), mediaType)) },
		"channelState": channelStateLabel, "works": channelWorks,
		"customer": customer, "conversationState": conversationState, "paused": paused, "waits": waits, "attention": attention,
		"need":     func(c *api.ConversationObject) string { return need(say, c) },
		"handover": func(reason *string) ui.Text { return handoverReasons[text(reason)] },
		"author":   author, "undelivered": undelivered,
		"delivery":    func(state string) ui.Text { return cmp.Or(deliveryTexts[state], ui.Text(state)) },
		"fileLabel":   func(f *api.FileObject) string { return fileLabel(say, f) },
		"fileSize":    func(bytes *int64) string { return fileSize(say, bytes) },
		"missingFile": func(f *api.FileObject) string { return missingFile(say, f) },
		"picture":     func(mediaType *string) bool { return strings.HasPrefix(text(mediaType), "image/") },
	}
}

// text returns the text of an operation's answer that may be null.
func text(nullable *string) string { return *cmp.Or(nullable, new(string)) }

// mostWaiting is the number at which the count of waiting conversations stops.
const mostWaiting = 100

// waitingLabel returns the number to show, empty for none.
func waitingLabel(waiting int) string {
	switch {
	case waiting <= 0:
		return ""
	case waiting >= mostWaiting:
		return strconv.Itoa(mostWaiting-1) + "+"
	default:
		return strconv.Itoa(waiting)
	}
}

// entry is a page of the navigation. Pages with the same section are its tabs; the first is the section's own page.
type entry struct {
	section    ui.Text
	icon, path string
	label      ui.Text
	// role is the lowest role that has the entry.
	role handlers.Role
	// bar is the section's label in the bar of phones, see [ui.Section].
	bar ui.Text
}

var entries = []entry{
	{"Overview", "layout-dashboard", root, "Overview", handlers.RoleMember, "Overview"},
	{"Inbox", "inbox", conversationsPath, "Inbox", handlers.RoleMember, "Inbox"},
	{"Assistants", "bot", agentsPath, "Assistants", handlers.RoleMember, "Assistants"},
	{"Assistants", "bot", knowledgePath, "Knowledge", handlers.RoleMember, ""},
	{"Channels", "plug", channelsPath, "Channels", handlers.RoleMember, ""},
	{"Wallet & usage", "wallet", walletPath, "Overview", handlers.RoleMember, "Wallet"},
	{"Wallet & usage", "wallet", walletPath + "/calls", "Calls", handlers.RoleMember, ""},
	{"Wallet & usage", "wallet", statementsPath, "Statements", handlers.RoleMember, ""},
	{"Wallet & usage", "wallet", budgetsPath, "Budgets", handlers.RoleMember, ""},
	{"Developers", "code-xml", keysPath, "API keys", handlers.RoleAdministrator, ""},
	{"Developers", "code-xml", providerKeysPath, "Provider keys", handlers.RoleAdministrator, ""},
	{"Developers", "code-xml", eventsPath, "Events", handlers.RoleAdministrator, ""},
	{"Settings", "settings", organizationPath, "Organization", handlers.RoleMember, ""},
	{"Settings", "settings", membersPath, "Members", handlers.RoleAdministrator, ""},
	{"Settings", "settings", auditPath, "Audit log", handlers.RoleAdministrator, ""},
	{"Settings", "settings", accountPath, "Your account", handlers.RoleMember, ""},
}

// sections returns the navigation of the person. Without a person there is none.
func (s *session) sections(say *ui.Printer) (made []ui.Section) {
	for _, e := range entries {
		if !s.has(e.role) {
			continue
		}
		if last := len(made) - 1; last < 0 || made[last].Label != say.T(e.section) {
			made = append(made, ui.Section{Link: ui.Link{Path: e.path, Label: say.T(e.section)}, Icon: e.icon, Bar: say.T(e.bar)})
		}
		at := &made[len(made)-1]
		at.Tabs = append(at.Tabs, ui.Link{Path: e.path, Label: say.T(e.label)})
		if e.path == conversationsPath {
			at.Count, at.CountID, at.CountLabel = waitingLabel(s.Organization.Waiting), "waiting", say.T("wait for a person")
		}
	}
	return made
}

// names are words of the API that pages show.
var names = []ui.Text{
	"member", "administrator", "owner", "live", "test", "completed", "credit", "charge", "adjustment", "refund",
	"reversal", "operator", "credited", "unmatched", "held", "duplicate", "ignored",
	"day", "week", "month", "total",
}

func pages(types []channelType) []page {
	return slices.Concat(
		[]page{
			site.Forward[*pageRequest](root+"/{$}", root), loginPage, welcomePage, signOutPage(),
			{Path: root, Template: "overview", Title: "Overview", Show: showOverview},
			walletPage, callsPage, callPage, statementsPage, statementPage, keysPage, keyPage, providerKeysPage,
			eventsPage, auditPage,
			organizationPage, accountPage,
		},
		budgetPages, memberPages, agentPages, knowledgePages, channelPages(types), conversationPages,
	)
}

// listData is the data of a page that shows a list and the form of a new element.
type listData[T any] struct {
	List   []T
	Pager  ui.Pager
	Create form
}
