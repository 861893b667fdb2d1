// Package dashboard serves the pages for people at /dashboard: server-rendered HTML over the operations of the organization API
// (docs/contract.md#organization-api).
//
// Pages run operations as functions, for the person of the request's session. So the operations alone decide rights, bounds and the names
// of faulty fields. The dashboard reads, shows, and keeps the input of refused forms.
//
// # How a page is made
//
// A [page] is a value in the list of page.go: its path, its title, its template and the function that reads its data.
//
//		var thingForm = ui.FormOf(api.UpdateThing, form{ID: "thing-edit", Submit: "Save"}, field{Name: "name", Label: "Name"})
//
//		page{
//			path: "/dashboard/things/{id}", template: "thing", title: "Thing", section: "/dashboard/things",
//			show: func(req *pageRequest) (any, error) {
//				thing, err := ask(req, api.GetThing, values{"id": req.id()})
//				if err != nil {
//					return nil, err
//				}
//				return thingPage{Thing: thing, Edit: req.form(thingForm.Of(req.path(), thing))}, nil
//			},
//			actions: []action{{
//				form: "thing-edit", done: "The thing has its new name.",
//				do: func(req *pageRequest) (outcome, error) {
//					return goTo("/dashboard/things"), req.submit(api.UpdateThing, thingForm, values{"id": req.id()})
//				},
//			}},
//		}
//
//	  - templates/thing.html fills the layout's main element. Its data is the [view]; .Data is the result of show.
//	    The layout writes the h1 (title, or the Title of data that is [titled]); a page begins with h2. Members of an answer that may be
//	    null are pointers: use with, or the function text.
//	  - An [action] handles POST to the page's path, or to path/verb. It goes to another page ([goTo], a 303 with the
//	    action's done text there) or shows the page again with data that is shown once ([reveal]; .Once in the view).
//	    When an operation refuses, the page is shown again with the status of the error: req.form puts the message at the field that
//	    the error names and keeps the input, except fields of the kind [ui.SecretField].
//	  - A [form] is a table of names, labels and hints. [formOf] adds kind, length and whether a field is required from the operation's
//	    input, and panics if the operation has no such field; [form.of] adds first values from an answer. {{template "form" .Data.Edit}}
//	    writes the form with ids: the form's ID is <noun>-<verb>, an input's is form-name, its error's input-error. A form without fields is
//	    a [button]. A form in a row has an id for each row ("key-revoke-key_1") and names its action in Action.
//	    The page shows the errors of an action without a form on the page at its top.
//	  - A part that updates by itself is a template that page.fragments names. In the page it is
//	    <div data-live="{{.Path}}?fragment=messages" aria-live="polite">{{template "messages" .}}</div>. The script requests it every
//	    2 s while the page is visible. Without the script the page doesn't change.
//	  - A [relay] passes a response of the API's handler through as it arrives: a stream, a download.
//	  - Every text goes through the catalogue of internal/ui/text: {{t "Save"}}, {{tf "%d calls" .Calls}}, and constants of the type
//	    [ui.Text] in Go. Templates also have the functions of [parseTemplates], such as amount (micros as money), moment, day and asset
//	    (the address of a file in static/), and the templates of parts.html: form, moment (a time element), pager ([pageRequest.pager]) and
//	    copy (a button that copies the text of the element with a selector). Data attributes control the script: data-copy="#id",
//	    data-confirm (a form's Confirm), data-live. The script of one page is a file in static/ that page.scripts names.
//
// # Invariants
//
//   - No page contains script or style; the policy ([ui.SecurityPolicy]) forbids both. Nothing is loaded from other sites. Everything
//     except the playground works without the script.
//   - Every change is a POST. A POST that another site caused is refused before its body is read.
//   - Only the session's cookie authenticates a person; a key in a header doesn't.
//   - Browsers and proxies never store pages. They keep files of static/ permanently, because the path contains the hash.
//
// It has no rules of the business, keeps no state between requests and sends no e-mail.
package dashboard

import (
	"cmp"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	words "github.com/caddy-svc/caddy-svc/internal/ui/text"
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
	Bodies Bodies
	// Logger logs failures. Nil discards them.
	Logger *slog.Logger
}

// Dashboard serves the pages. It keeps no state between requests and is safe for concurrent use.
type Dashboard struct {
	config    Config
	mux       *http.ServeMux
	templates map[words.Language]map[string]*template.Template
	printers  map[words.Language]*words.Printer
	assets    *ui.Assets
	// channelTypes are the types of the configuration.
	channelTypes []channelType
	// done are the notices after actions, by the id of their forms.
	done map[string]ui.Text
}

// New returns a dashboard.
func New(config Config) *Dashboard {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.SignInRefusal == nil {
		config.SignInRefusal = func(*http.Request) string { return "" }
	}
	d := &Dashboard{config: config, mux: http.NewServeMux(), assets: ui.NewAssets(root+"/static/", staticFiles), done: make(map[string]ui.Text)}
	for _, t := range config.ChannelTypes {
		d.channelTypes = append(d.channelTypes, channelTypeFrom(t))
	}
	pages := pages(d.channelTypes)
	d.templates, d.printers = make(map[words.Language]map[string]*template.Template), make(map[words.Language]*words.Printer)
	for _, language := range words.Languages() {
		d.printers[language] = words.New(language, config.Currency)
		d.templates[language] = parseTemplates(pages, d.assets, d.printers[language])
	}
	d.assets.Register(d.mux)
	for i := range pages {
		d.register(&pages[i])
	}
	return d
}

// register adds the routes of the page, its actions and its relays.
func (d *Dashboard) register(p *page) {
	d.mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) { d.newPageRequest(p, w, r).open() })
	for i := range p.actions {
		a := &p.actions[i]
		d.done[a.form] = a.done
		d.mux.HandleFunc("POST "+below(p.path, a.verb), func(w http.ResponseWriter, r *http.Request) { d.newPageRequest(p, w, r).act(a) })
	}
	for i := range p.relays {
		l := &p.relays[i]
		d.mux.HandleFunc(l.method+" "+below(p.path, l.name), func(w http.ResponseWriter, r *http.Request) { d.newPageRequest(p, w, r).relay(l) })
	}
}

// below returns the address of a page's action or relay.
func below(path, name string) string {
	if name == "" {
		return path
	}
	return path + "/" + name
}

// ServeHTTP serves /dashboard and the paths below it.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, _ = handlers.EnsureRequestID(w, r)
	h := w.Header()
	h.Set("Content-Security-Policy", ui.SecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	// "no-referrer" would take the Origin away from our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		d.newPageRequest(&page{public: true}, w, r).fail(&handlers.Error{
			Code: errcode.Forbidden, Message: string(ui.Text("The request comes from another site. Nothing was changed.")),
		})
		return
	}
	if _, pattern := d.mux.Handler(r); pattern == "" {
		d.newPageRequest(&page{public: true}, w, r).fail(handlers.NotFound("%s", ui.Text("There is no page at this address.")))
		return
	}
	d.mux.ServeHTTP(w, r)
}
