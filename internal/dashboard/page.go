package dashboard

import (
	"net/http"
	"net/url"
)

// page is one address of the dashboard and what can be done there.
type page struct {
	// path is that of the browser; segments in braces are ids.
	path string
	// template is the file in templates/, without .html, that fills the layout.
	template string
	// title is the page's heading and, in the browser's tab, its name.
	title string
	// section is the path of the entry of the navigation that the page belongs to; "" for the page's own.
	section string
	// public pages need no session.
	public bool
	// scripts are the files in static/ that the page needs beside the layout's.
	scripts []string
	// fragments are the templates that ?fragment=NAME shows by themselves.
	fragments []string
	// show asks for what is on the page. Its error, a fault of the API, becomes the page; nil shows nothing.
	show func(v *visit) (any, error)
	// actions are what its forms do.
	actions []action
	// relays are answers of the API that go through as they come.
	relays []relay
}

// action is what a form does.
type action struct {
	// verb is the last segment of its address: POST path/verb; "" is the page's own.
	verb string
	// form is the id of the form that is sent here. For forms in rows, whose ids end in the row's, it is their beginning.
	form string
	// done is said on the page where it leads to.
	done string
	// secrets are the names of fields that are never written into a page again.
	secrets []string
	// maxBody bounds what is sent, in bytes; 0 is [maxForm].
	maxBody int64
	// do does it. After an error, a fault of the API, the page is shown again with what was typed.
	do func(v *visit) (outcome, error)
}

// outcome is where an action leads.
type outcome struct {
	to   string
	once any
}

// goTo sends the browser to another page, which says the action's done text.
func goTo(path string) outcome { return outcome{to: path} }

// reveal shows the page again with something that is shown this once: .Once in its template.
func reveal(once any) outcome { return outcome{once: once} }

// relay is an answer of the API that goes to the browser as it comes.
type relay struct {
	// method and name make its address: method path/name.
	method, name string
	// maxBody bounds what is sent, in bytes; 0 is [maxForm].
	maxBody int64
	// ask makes the request to the API.
	ask func(v *visit) (apiRequest, error)
}

// apiRequest is a request to the endpoint groups.
type apiRequest struct {
	method string
	// path is that of the API, escaped, without a query.
	path  string
	query url.Values
	// body is encoded as JSON; nil is none.
	body any
	// accept is the header Accept; "" is none.
	accept string
}

// titled is data that knows the page's title better.
type titled interface{ PageTitle() string }

// section is an entry of the navigation.
type section struct {
	Path, Label string
	// role is the least that sees it.
	role string
}

// sections are the entries, in order.
func sections() []section {
	return []section{
		{root, "Overview", roleMember},
		{root + "/agents", "Assistants", roleMember},
		{root + "/knowledge", "Knowledge", roleMember},
		{root + "/channels", "Channels", roleMember},
		{root + "/conversations", "Conversations", roleMember},
		{root + "/wallet", "Wallet", roleMember},
		{root + "/keys", "API keys", roleAdministrator},
		{root + "/provider-keys", "Provider keys", roleAdministrator},
		{root + "/members", "Members", roleAdministrator},
		{root + "/audit", "Audit log", roleAdministrator},
		{root + "/organization", "Organization", roleMember},
	}
}

// framePages are those of signing in, of money and of the organization.
func (*Dashboard) framePages() []page {
	return []page{
		forward(root+"/{$}", root), loginPage(), welcomePage(), signOutPage(),
		overviewPage(), walletPage(), callsPage(), keysPage(), providerKeysPage(), membersPage(), memberPage(), auditPage(),
		organizationPage(), accountPage(),
	}
}

// forward is an address that has nothing but another one.
func forward(path, to string) page {
	return page{path: path, public: true, show: func(v *visit) (any, error) {
		http.Redirect(v.w, v.r, to, http.StatusSeeOther)
		return nil, errAnswered
	}}
}
