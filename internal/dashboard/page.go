package dashboard

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

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
			forward(root+"/{$}", root), loginPage, welcomePage, signOutPage(),
			{Path: root, Template: "overview", Title: "Overview", Show: showOverview},
			walletPage, callsPage, callPage, statementsPage, statementPage, keysPage, keyPage, providerKeysPage,
			eventsPage, auditPage,
			organizationPage, accountPage,
		},
		budgetPages, memberPages, agentPages, knowledgePages, channelPages(types), conversationPages,
	)
}

// forward returns an address that redirects to another.
func forward(path, to string) page {
	return page{Path: path, Public: true, Show: func(req *pageRequest) (any, error) {
		http.Redirect(req.W, req.R, to, http.StatusSeeOther)
		return nil, site.ErrAnswered
	}}
}

// listData is the data of a page that shows a list and the form of a new element.
type listData[T any] struct {
	List   []T
	Pager  ui.Pager
	Create form
}
