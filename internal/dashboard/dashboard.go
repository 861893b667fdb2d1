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
	"github.com/caddy-svc/caddy-svc/platforms"
)

// root is the path of the overview; all other paths are below it.
const root = "/dashboard"

// contentSecurityPolicy is every page's: only our own files, in no frame.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Config configures a dashboard.
type Config struct {
	// Person returns the person of a request, and Ask runs an operation for the person, nil for public operations: endpoint.Server's methods.
	// Their errors are [handlers.Error]s, and were logged.
	Person func(r *http.Request) (*identity.Principal, error)
	Ask    func(w http.ResponseWriter, r *http.Request, person *identity.Principal, o api.Operation, in endpoint.Values) (answer any, err error)
	// API serves the operations over HTTP, for answers that are passed on as they arrive: streams and files.
	API http.Handler
	// BaseURL is the service's own address, without a trailing slash.
	BaseURL string
	// Providers are the configured providers' names, for the organization's own keys.
	Providers []string
	// ChannelTypes are what can be connected, in the order of the list.
	ChannelTypes []*platforms.ChannelType
	// SignInRefusal returns why a request like this can't sign in, "" when it can; nil is always "".
	SignInRefusal func(r *http.Request) string
	// Bodies bounds the memory of forms together with all other requests; nil is no bound.
	Bodies Bodies
	// Logger gets failures; nil discards them.
	Logger *slog.Logger
}

// Dashboard serves the pages. It keeps no state between requests and is safe for concurrent use.
type Dashboard struct {
	config    Config
	mux       *http.ServeMux
	templates map[string]*template.Template
	assets    *assets
	// channelTypes are those of the configuration.
	channelTypes []channelType
	// done are the notices after actions, by the id of their forms.
	done map[string]string
}

// New returns a dashboard that shares nothing with another one.
func New(config Config) *Dashboard {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.SignInRefusal == nil {
		config.SignInRefusal = func(*http.Request) string { return "" }
	}
	d := &Dashboard{config: config, mux: http.NewServeMux(), assets: newAssets(), done: make(map[string]string)}
	for _, t := range config.ChannelTypes {
		d.channelTypes = append(d.channelTypes, channelTypeFrom(t))
	}
	pages := pages(d.channelTypes)
	d.templates = parseTemplates(pages)
	d.mux.Handle("GET "+assetsPath+"{hash}/{file}", d.assets)
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
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	// "no-referrer" would take the Origin away from our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		d.newPageRequest(&page{public: true}, w, r).fail(&handlers.Error{
			Code: errcode.Forbidden, Message: "The request comes from another site. Nothing was changed.",
		})
		return
	}
	if _, pattern := d.mux.Handler(r); pattern == "" {
		d.newPageRequest(&page{public: true}, w, r).fail(handlers.NotFound("There is no page at this address."))
		return
	}
	d.mux.ServeHTTP(w, r)
}
