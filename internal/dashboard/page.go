package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

// page is one address of the dashboard with its actions.
type page struct {
	// path is the path in the browser; segments in braces are ids.
	path string
	// template is the file in templates/, without .html, that fills the layout.
	template string
	// title is the page's heading and, in the browser's tab, its name.
	title ui.Text
	// section is the path of the page's entry in the navigation. Empty means path.
	section string
	// public pages need no session.
	public bool
	// scripts are the files in static/ that the page needs beside the layout's.
	scripts []string
	// fragments are the templates that ?fragment=NAME renders alone.
	fragments []string
	// show reads the page's data. Its error, a [handlers.Error], becomes the page. Nil data means that the page has none.
	show func(req *pageRequest) (any, error)
	// actions are the page's forms.
	actions []action
	// relays are responses of the API that are passed through.
	relays []relay
}

// action handles a form.
type action struct {
	// verb is the last segment of its address, POST path/verb. Empty means the path of the page.
	verb string
	// form is the id of the form. The ids of forms in rows begin with it and end with the id of the row.
	form string
	// done is the notice on the next page.
	done ui.Text
	// secrets are the names of fields that no page shows again.
	secrets []string
	// maxBody bounds the form, in bytes. Zero means [maxForm].
	maxBody int64
	// do does the action. After a [handlers.Error] the page is shown again with the input.
	do func(req *pageRequest) (outcome, error)
}

// outcome is the page that follows an action, with the data that the page shows once.
type outcome struct {
	to   string
	once any
}

// goTo redirects to another page, which shows the action's done text.
func goTo(path string) outcome { return outcome{to: path} }

// reveal shows the page again with once, shown only this time: .Once in its template.
func reveal(once any) outcome { return outcome{once: once} }

// relay is a response of the API that is passed to the browser as it arrives.
type relay struct {
	// method and name make its address: method path/name.
	method, name string
	// maxBody bounds the request, in bytes. Zero means [maxForm].
	maxBody int64
	// ask returns the request to the API.
	ask func(req *pageRequest) (*http.Request, error)
}

// titled is implemented by data with a title of its own.
type titled interface{ PageTitle() string }

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

func entries() []entry {
	return []entry{
		{"Overview", "layout-dashboard", root, "Overview", handlers.RoleMember, "Overview"},
		{"Inbox", "inbox", conversationsPath, "Inbox", handlers.RoleMember, "Inbox"},
		{"Assistants", "bot", agentsPath, "Assistants", handlers.RoleMember, "Assistants"},
		{"Assistants", "bot", knowledgePath, "Knowledge", handlers.RoleMember, ""},
		{"Channels", "plug", channelsPath, "Channels", handlers.RoleMember, ""},
		{"Wallet & usage", "wallet", walletPath, "Overview", handlers.RoleMember, "Wallet"},
		{"Wallet & usage", "wallet", walletPath + "/calls", "Calls", handlers.RoleMember, ""},
		{"Developers", "code-xml", keysPath, "API keys", handlers.RoleAdministrator, ""},
		{"Developers", "code-xml", providerKeysPath, "Provider keys", handlers.RoleAdministrator, ""},
		{"Developers", "code-xml", eventsPath, "Events", handlers.RoleAdministrator, ""},
		{"Settings", "settings", organizationPath, "Organization", handlers.RoleMember, ""},
		{"Settings", "settings", membersPath, "Members", handlers.RoleAdministrator, ""},
		{"Settings", "settings", auditPath, "Audit log", handlers.RoleAdministrator, ""},
		{"Settings", "settings", accountPath, "Your account", handlers.RoleMember, ""},
	}
}

// sections returns the navigation of the person. Without a person there is none.
func (s *session) sections(say *ui.Printer) (made []ui.Section) {
	for _, e := range entries() {
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
	"member", "administrator", "owner", "live", "test", "completed", "credit", "charge", "adjustment", "refund", "operator",
}

func pages(types []channelType) []page {
	return slices.Concat(
		[]page{
			forward(root+"/{$}", root), loginPage(), welcomePage(), signOutPage(),
			{path: root, template: "overview", title: "Overview", show: showOverview},
			walletPage(), callsPage(), keysPage(), providerKeysPage(), eventsPage(), auditPage(), organizationPage(), accountPage(),
		},
		memberPages(), agentPages(), knowledgePages(), channelPages(types), conversationPages(),
	)
}

// forward returns an address that redirects to another.
func forward(path, to string) page {
	return page{path: path, public: true, show: func(req *pageRequest) (any, error) {
		http.Redirect(req.w, req.r, to, http.StatusSeeOther)
		return nil, errAnswered
	}}
}

// view is the data of a template.
type view struct {
	ui.Shell

	// Path is the page's path, also when a form was sent to another address.
	Path string
	// Session is nil on public pages.
	Session *session
	// RequestID is the id of the request, for people who report a failure.
	RequestID string
	// Data is the result of show, Once the data that an action revealed.
	Data any
	Once any
}

// view returns the data of the frame around the data of show.
func (req *pageRequest) view(shown any) *view {
	made := &view{
		Shell: ui.Shell{
			Lang: string(req.say.Language), Title: req.say.T(req.page.title), Product: "caddy-svc", Home: root,
			Sections: req.session.sections(req.say),
			Section:  cmp.Or(req.page.section, req.page.path), SignOut: ui.Button("logout", logoutPath, "Sign out", "").Shown(req.say),
		},
		Path: req.path(), Session: req.session, Data: shown, Once: req.once, RequestID: handlers.RequestIDFrom(req.r.Context()),
	}
	if named, ok := shown.(titled); ok {
		made.Title = named.PageTitle()
	}
	if s := req.session; s != nil {
		made.Owner, made.Person, made.PersonPath, made.Role = s.Organization.Name, s.User.Email, accountPath, req.say.T(ui.Text(s.Role))
		made.Trail = req.trail(made.Sections)
	}
	for _, name := range req.page.scripts {
		made.Scripts = append(made.Scripts, req.d.assets.Address(name))
	}
	switch {
	case req.refused == nil && req.action != nil:
		made.Notice = req.say.T(req.action.done)
	case req.refused == nil:
		made.Notice = req.say.T(req.d.done[req.query("done")])
	}
	return made
}

// trail leads to a page that isn't in the navigation itself.
func (req *pageRequest) trail(sections []ui.Section) []ui.Link {
	for i := range sections {
		for _, tab := range sections[i].Tabs {
			if tab.Path == req.page.section {
				return []ui.Link{tab}
			}
		}
	}
	return nil
}

// listData is the data of a page that shows a list and the form of a new element.
type listData[T any] struct {
	List   []T
	Pager  ui.Pager
	Create form
}

// pager links to the next page of a list, and to the first; other parameters of the address stay. [pageRequest.cursor] passes
// the parameter cursor to the operation.
func (req *pageRequest) pager(nextCursor *string) ui.Pager {
	return ui.NewPager(req.path(), req.r.URL.Query(), nextCursor)
}

// cursor returns the input of a list for the shown page, to which the caller may add.
func (req *pageRequest) cursor() values { return values{"cursor": req.query("cursor")} }
