// Package site serves the pages of a site: server-rendered HTML over operations of the API. The dashboard of organizations and the console of
// operators are sites. Each has a list of [Page] values, a request type that embeds a [Request], and templates for the design system of
// internal/ui.
//
// # How a page is made
//
// A [Page] is a value: its path, its title, its template and the function that reads its data. An [Action] handles a form of the page.
//
//		var thingForm = ui.FormOf(api.UpdateThing, ui.Form{ID: "thing-edit", Submit: "Save"}, ui.Field{Name: "name", Label: "Name"})
//
//		page{
//			Path: "/dashboard/things/{id}", Template: "thing", Title: "Thing", Section: "/dashboard/things",
//			Show: func(req *request) (any, error) {
//				thing := site.Read(req, api.GetThing, values{"id": req.ID()})
//				return thingPage{Thing: thing, Edit: req.Form(thingForm.Of(req.Path(), thing))}, nil
//			},
//			Actions: []action{{Form: "thing-edit", Done: "The thing has its new name.", Do: submit("", api.UpdateThing, thingForm)}},
//		}
//
//	  - templates/thing.html fills the main element of the frame. Its data is the [View]; .Data is the result of Show. The frame writes the h1
//	    (Title, or the PageTitle of data that has this method); a page begins with h2. Members of an answer that may be null are pointers.
//	  - An [Action] handles POST to the page's path, or to path/verb. It returns the address of the next page, which shows its Done text after a
//	    303. Without an address the page is shown again, with data that is shown once ([Request.Reveal]; .Once in the view). When an operation
//	    refuses, the page is shown again with the status of the error: [Request.Form] puts the message at the field that the error names and keeps
//	    the input, except fields of the kind [ui.SecretField].
//	  - A form is a table of names, labels and hints. [ui.FormOf] adds kind, length and whether a field is required from the operation's input.
//	    {{template "form" .Data.Edit}} writes the form with ids: the form's ID is <noun>-<verb>, an input's is form-name, its error's input-error. A
//	    form without fields is a button. A form in a row has an id for each row ("key-revoke-key_1") and names its action in Action. The page
//	    shows the errors of an action without a form on the page at its top.
//	  - A part that updates by itself is a template that Fragments names. In the page it is
//	    <div data-live="{{.Path}}?fragment=messages" aria-live="polite">{{template "messages" .}}</div>. The script requests it every 2 s while
//	    the page is visible. Without the script the page doesn't change.
//	  - A [Relay] writes its response itself: a stream, a download.
//	  - Every text goes through the catalogue of internal/ui/text: {{t "Save"}}, {{tf "%d calls" .Calls}}, and constants of the type
//	    [ui.Text] in Go.
//
// # Invariants
//
//   - No page contains script or style; the policy ([ui.SecurityPolicy]) forbids both. Nothing is loaded from other sites.
//   - Every change is a POST. A POST that another site caused is refused before its body is read.
//   - The memory of forms and pages is charged to a [handlers.ByteBudget] before it is used.
//   - Browsers and proxies never store pages. They keep static files permanently, because the path contains the hash.
//
// The package has no rules of the business, keeps no state between requests, and finds no person: that is [Visit.Enter] of the site.
package site

import (
	"cmp"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// Page is one address of a site with its actions. R is the site's own request type.
type Page[R Visit] struct {
	// Path is the path in the browser; segments in braces are ids.
	Path string
	// Template is the file in templates/, without .html, that fills the frame.
	Template string
	// Title is the page's heading and, in the browser's tab, its name.
	Title ui.Text
	// Section is the path of the page's entry in the navigation. Empty means Path.
	Section string
	// Public pages need no session.
	Public bool
	// Scripts are the static files that the page needs beside the frame's.
	Scripts []string
	// Fragments are the templates that ?fragment=NAME renders alone.
	Fragments []string
	// Show reads the page's data. Its error, a [handlers.Error], becomes the page, and so does the first error of [Read].
	Show func(req R) (any, error)
	// Actions are the page's forms.
	Actions []Action[R]
	// Relays are the addresses below the page with responses of their own.
	Relays []Relay[R]
}

// Action handles a form.
type Action[R Visit] struct {
	// Verb is the last segment of its address, POST path/verb. Empty means the path of the page.
	Verb string
	// Form is the id of the form. The ids of forms in rows begin with it and end with the id of the row.
	Form string
	// Done is the notice on the next page.
	Done ui.Text
	// Secrets are the names of fields that no page shows again.
	Secrets []string
	// MaxBody bounds the form, in bytes. Zero means [maxForm].
	MaxBody int64
	// Do does the action and returns the address of the next page. Empty means that the page is shown again. After a [handlers.Error] the page
	// is shown again with the input.
	Do func(req R) (to string, err error)
}

// Relay writes its response itself.
type Relay[R Visit] struct {
	// Method and Name make its address: method path/name.
	Method, Name string
	// Do writes the response, unless it returns an error.
	Do func(req R) error
}

// Visit is a request to a page of one site. It embeds a [Request].
type Visit interface {
	// Enter finds the person of a request to a page that isn't public.
	Enter() error
	// Ask runs an operation for the person. Its error is a [handlers.Error].
	Ask(o api.Operation, in endpoint.Values) (answer any, err error)
	// Frame adds the navigation and the person to the frame of the page.
	Frame(view *View)

	// Base returns the embedded request.
	Base() *Request
}

// Config configures a site.
type Config struct {
	// Root is the path of the first page; all other paths are below it. SignIn is the path of the page for people without a session.
	Root, SignIn string
	// Cookies are the names of the cookies of sessions. After a session has ended, the template "ended" keeps the input of a form. Requests
	// without a cookie are sent to SignIn.
	Cookies []string
	// Operator: the site is the operator's.
	Operator bool
	// Failed is the message of an error that only the log explains.
	Failed ui.Text
	// Templates has the folder templates: parts.html, a file for each page, and failure.html for errors.
	Templates fs.FS
	// Static has static files of the site's own.
	Static []fs.FS
	// Functions returns functions of the templates beside the printer's. It may be nil.
	Functions func(say *ui.Printer) template.FuncMap
	// Currency is the ISO 4217 code of the currency of all amounts. Empty means that amounts are credits.
	Currency string
	// Bodies bounds the memory of forms and pages together with all other requests. Nil means unlimited.
	Bodies *handlers.ByteBudget
	// Logger logs failures. Nil discards them.
	Logger *slog.Logger
}

// Site serves pages. It keeps no state between requests and is safe for concurrent use.
type Site struct {
	Config

	// Mux has the routes. Assets are the static files.
	Mux    *http.ServeMux
	Assets *ui.Assets

	templates map[text.Language]*template.Template
	printers  map[text.Language]*text.Printer
	// done are the notices after actions, by the id of their forms.
	done map[string]ui.Text
}

// New returns a site without pages, see [Add].
func New(config Config) *Site {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	s := &Site{
		Config: config, Mux: http.NewServeMux(), Assets: ui.NewAssets(config.Root+"/static/", config.Static...), done: make(map[string]ui.Text),
		templates: make(map[text.Language]*template.Template), printers: make(map[text.Language]*text.Printer),
	}
	s.Assets.Register(s.Mux)
	for _, language := range text.Languages() {
		s.printers[language] = text.New(language, config.Currency)
		s.templates[language] = s.parse(s.printers[language])
	}
	return s
}

// parse returns the templates of all pages. The files are part of the binary, so a faulty file panics in every test.
func (s *Site) parse(say *text.Printer) *template.Template {
	all := ui.Parse(s.Assets, say.Functions())
	if s.Functions != nil {
		all.Funcs(s.Functions(say))
	}
	names, err := fs.Glob(s.Templates, "templates/*.html")
	for _, name := range names {
		var content []byte
		if content, err = fs.ReadFile(s.Templates, name); err != nil {
			break
		}
		template.Must(all.New(ui.PageTemplate(strings.TrimSuffix(path.Base(name), ".html"))).Parse(string(content)))
	}
	if err != nil {
		panic(fmt.Sprintf("site: the templates of %s: %v", s.Root, err))
	}
	return all
}

// Add adds pages with their routes. visit returns the site's own request.
func Add[R Visit](s *Site, pages []Page[R], visit func(*Request) R) {
	for i := range pages {
		p := &pages[i]
		begin := func(w http.ResponseWriter, r *http.Request, a Action[R]) (*Request, R) {
			req := s.newRequest(w, r)
			req.template, req.title, req.parent, req.section = p.Template, p.Title, p.Section, cmp.Or(p.Section, p.Path)
			req.public, req.scripts, req.fragments = p.Public, p.Scripts, p.Fragments
			req.Verb, req.form, req.notice, req.secrets = a.Verb, a.Form, a.Done, a.Secrets
			made := visit(req)
			req.visit, req.show = made, func() (any, error) {
				shown, err := p.Show(made)
				return shown, cmp.Or(req.unread, err)
			}
			return req, made
		}
		s.Mux.HandleFunc("GET "+p.Path, func(w http.ResponseWriter, r *http.Request) {
			req, _ := begin(w, r, Action[R]{})
			req.open()
		})
		for _, a := range p.Actions {
			s.done[a.Form] = a.Done
			s.Mux.HandleFunc("POST "+Below(p.Path, a.Verb), func(w http.ResponseWriter, r *http.Request) {
				req, made := begin(w, r, a)
				req.act(a.MaxBody, func() (string, error) { return a.Do(made) })
			})
		}
		for _, l := range p.Relays {
			s.Mux.HandleFunc(l.Method+" "+Below(p.Path, l.Name), func(w http.ResponseWriter, r *http.Request) {
				req, made := begin(w, r, Action[R]{})
				req.relay(func() error { return l.Do(made) })
			})
		}
	}
}

// Forward returns an address that redirects to another.
func Forward[R Visit](path, to string) Page[R] {
	return Page[R]{Path: path, Public: true, Show: func(req R) (any, error) {
		http.Redirect(req.Base().W, req.Base().R, to, http.StatusSeeOther)
		return nil, ErrAnswered
	}}
}

// Below returns the address of a page's action or relay.
func Below(path, name string) string { return strings.TrimSuffix(path+"/"+name, "/") }

// ServeHTTP serves Root and the paths below it.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, _ = handlers.EnsureRequestID(w, r)
	h := w.Header()
	h.Set("Content-Security-Policy", ui.SecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // "no-referrer" would take the Origin away from our own forms
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		s.newRequest(w, r).fail(&handlers.Error{
			Code: errcode.Forbidden, Message: string(ui.Text("The request comes from another site. Nothing was changed.")),
		})
		return
	}
	if _, pattern := s.Mux.Handler(r); pattern == "" {
		s.newRequest(w, r).fail(handlers.NotFound("%s", ui.Text("There is no page at this address.")))
		return
	}
	s.Mux.ServeHTTP(w, r)
}

// Ask runs an operation that returns a body, for the person of the request. Empty values of parameters count as absent. The error is a
// [handlers.Error].
func Ask[I, T any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], in endpoint.Values) (*T, error) {
	return bodyOf[T](req, o, in)
}

// AskTable is [Ask] for a list of T that the API also serves as a file.
func AskTable[T, I any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.Stream], in endpoint.Values) (*endpoint.ListObject[T], error) {
	return bodyOf[endpoint.ListObject[T]](req, o, in)
}

// Read is [Ask] for the data of a page ([Page].Show). The first error becomes the page. From then on Read returns empty answers.
func Read[I, T any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], in endpoint.Values) *T {
	return read[T](req, o, in)
}

// ReadFile is [Read] for a T that the API also serves as a file.
func ReadFile[T, I any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.Stream], in endpoint.Values) *T {
	return read[T](req, o, in)
}

// ReadTable is [ReadFile] for a list of T.
func ReadTable[T, I any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.Stream], in endpoint.Values) *endpoint.ListObject[T] {
	return read[endpoint.ListObject[T]](req, o, in)
}

func read[T any](req Visit, o api.Operation, in endpoint.Values) *T {
	base := req.Base()
	if base.unread != nil {
		return new(T)
	}
	answer, err := bodyOf[T](req, o, in)
	if err != nil {
		base.unread = err
		return new(T)
	}
	return answer
}

// AskMade is [Ask] for an operation that makes a thing once for each reference.
func AskMade[I, T any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.Made[T]], in endpoint.Values) (*T, error) {
	return bodyOf[T](req, o, in)
}

// AskForm is [Ask] with the input of a form and with in.
func AskForm[I, T any](req Visit, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], f ui.Form, in endpoint.Values) (*T, error) {
	in, err := f.Read(req.Base().Sent, in)
	if err != nil {
		return nil, err
	}
	return bodyOf[T](req, o, in)
}

func bodyOf[T any](req Visit, o api.Operation, in endpoint.Values) (*T, error) {
	answer, err := req.Ask(o, in)
	if err != nil {
		return nil, err
	}
	switch typed := answer.(type) {
	case *endpoint.JSON[T]:
		return &typed.Body, nil
	case *endpoint.Made[T]:
		return &typed.Body, nil
	}
	return nil, fmt.Errorf("operation %s returned a %T", o.Spec().ID, answer)
}
