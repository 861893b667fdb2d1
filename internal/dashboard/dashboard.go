package dashboard

import (
	"html/template"
	"log/slog"
	"net/http"
	"slices"
)

// root is the path of the overview; all other paths are below it.
const root = "/dashboard"

// contentSecurityPolicy is that of every page: nothing but our own files, in nobody's frame (S33).
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Config is what a dashboard works with.
type Config struct {
	// API serves the endpoint groups; needed. It writes its errors itself.
	API http.Handler
	// BaseURL is the service's own address, without a trailing slash (design §4 `base_url`).
	BaseURL string
	// Providers are the names of those in the configuration: an organization may have a key of its own for each.
	Providers []string
	// SignInRefusal says why nobody can sign in with a request like this, "" when one can; nil is always "".
	SignInRefusal func(r *http.Request) string
	// Bodies bounds what forms take of the memory, together with all other requests; nil is no bound.
	Bodies Bodies
	// Logger gets what failed; nil discards it.
	Logger *slog.Logger
}

// Dashboard serves the pages. It keeps no state between requests and is safe for concurrent use.
type Dashboard struct {
	config    Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	assets    *assets
	// done is what is said after an action, by the id of its form.
	done map[string]string
}

// New makes the dashboard. Nothing of it is shared with another one.
func New(config Config) *Dashboard {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.SignInRefusal == nil {
		config.SignInRefusal = func(*http.Request) string { return "" }
	}
	d := &Dashboard{config: config, mux: http.NewServeMux(), assets: newAssets(), done: make(map[string]string)}
	pages := d.pages()
	d.templates = parseTemplates(pages)
	d.mux.Handle("GET "+assetsPath+"{hash}/{file}", d.assets)
	for i := range pages {
		d.register(&pages[i])
	}
	return d
}

// pages are all there are.
func (d *Dashboard) pages() []page {
	return slices.Concat(d.framePages(), d.roomPages())
}

// register gives the page, its actions and its relays their addresses.
func (d *Dashboard) register(p *page) {
	d.mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) { d.newVisit(p, w, r).open() })
	for i := range p.actions {
		a := &p.actions[i]
		d.done[a.form] = a.done
		d.mux.HandleFunc("POST "+below(p.path, a.verb), func(w http.ResponseWriter, r *http.Request) { d.newVisit(p, w, r).act(a) })
	}
	for i := range p.relays {
		l := &p.relays[i]
		d.mux.HandleFunc(l.method+" "+below(p.path, l.name), func(w http.ResponseWriter, r *http.Request) { d.newVisit(p, w, r).relay(l) })
	}
}

// below is the address of what a page has beside itself.
func below(path, name string) string {
	if name == "" {
		return path
	}
	return path + "/" + name
}

// ServeHTTP answers a request for a path at or below /dashboard.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	// "no-referrer" would take the Origin away from our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		d.newVisit(&page{public: true}, w, r).fail(&fault{
			Status: http.StatusForbidden, Code: codeForbidden, Message: "The request comes from another site. Nothing was changed.",
		})
		return
	}
	if _, pattern := d.mux.Handler(r); pattern == "" {
		d.newVisit(&page{public: true}, w, r).fail(&fault{
			Status: http.StatusNotFound, Code: codeNotFound, Message: "There is no page at this address.",
		})
		return
	}
	d.mux.ServeHTTP(w, r)
}
