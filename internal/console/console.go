// Package console serves the pages of the service's operators at /console: server-rendered HTML over the operations of the operator.
//
// It is made like the dashboard of organizations: a [page] is a value in the list of [pages], with a template, the function that reads its data,
// and its actions. Pages run operations with the principal of the operator's session, so the operations alone decide rights and bounds; a page
// only hides the buttons that an operation would refuse.
//
// Invariants:
//   - The console has no rights, no SQL and no state of its own, and shows no text of a customer.
//   - An operator's session has its own cookie and is worth nothing on any other page. It needs a second factor, which is asked for again after
//     [identity.SecondFactorLifetime], and before money moves after [identity.MoneyFactorLifetime].
//   - Every change is a POST, and is refused before its body is read if another site caused it.
//   - Everything works without the script.
package console

import (
	"bytes"
	"cmp"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
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
	// Logger logs failures. Nil discards them.
	Logger *slog.Logger
}

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	config    Config
	mux       *http.ServeMux
	printers  map[text.Language]*text.Printer
	templates map[text.Language]map[string]*template.Template
	// done are the notices after actions, by the id of their forms.
	done map[string]text.Text
}

//go:embed templates/*.html
var templateFiles embed.FS

// New returns a console.
func New(config Config) *Console {
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	c := &Console{
		config: config, mux: http.NewServeMux(), printers: map[text.Language]*text.Printer{},
		templates: map[text.Language]map[string]*template.Template{}, done: map[string]text.Text{},
	}
	assets, pages := ui.NewAssets(root+"/static/"), pages()
	assets.Register(c.mux)
	for _, language := range text.Languages() {
		printer := text.New(language, config.Currency)
		c.printers[language], c.templates[language] = printer, parse(ui.Parse(assets, printer.Functions()))
	}
	for i := range pages {
		p := &pages[i]
		c.mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) { c.newRequest(p, w, r).open() })
		for j := range p.actions {
			a := &p.actions[j]
			c.done[a.form] = a.done
			c.mux.HandleFunc("POST "+strings.TrimSuffix(p.path+"/"+a.verb, "/"), func(w http.ResponseWriter, r *http.Request) {
				c.newRequest(p, w, r).act(a)
			})
		}
	}
	return c
}

// parse returns the templates of the pages, each of which is the frame around the page's file.
func parse(parts *template.Template) map[string]*template.Template {
	template.Must(parts.ParseFS(templateFiles, "templates/parts.html"))
	made := map[string]*template.Template{}
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic("console: " + err.Error())
	}
	for _, file := range files {
		content, err := templateFiles.ReadFile("templates/" + file.Name())
		if err != nil {
			panic("console: " + err.Error())
		}
		page := template.Must(parts.Clone())
		template.Must(page.New("content").Parse(string(content)))
		made[strings.TrimSuffix(file.Name(), ".html")] = page
	}
	return made
}

// ServeHTTP serves /console and the paths below it.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		c.newRequest(&page{public: true}, w, r).fail(&handlers.Error{
			Code: errcode.Forbidden, Message: "The request comes from another site. Nothing was changed.",
		})
		return
	}
	if _, pattern := c.mux.Handler(r); pattern == "" {
		c.newRequest(&page{public: true}, w, r).fail(handlers.NotFound("There is no page at this address."))
		return
	}
	c.mux.ServeHTTP(w, r)
}

// write sends a page, which is rendered wholly before its first byte is sent.
func (req *request) write(status int, name string, shown *view) {
	page := req.c.templates[req.printer.Language][name]
	var made bytes.Buffer
	err := page.ExecuteTemplate(&made, ui.ShellTemplate, shown)
	if err == nil && req.refused != nil && !bytes.Contains(made.Bytes(), []byte(`id="`+req.errorForm+`-error"`)) {
		shown.Alert = req.refused.Message // the page no longer contains the form
		made.Reset()
		err = page.ExecuteTemplate(&made, ui.ShellTemplate, shown)
	}
	if err != nil {
		req.c.config.Logger.Error("the console failed to write a page", "page", req.page.path, "error", err)
		http.Error(req.w, "The service failed to show this page.", http.StatusInternalServerError) //nolint:forbidigo // a page is what failed
		return
	}
	req.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	req.w.WriteHeader(status)
	_, _ = req.w.Write(made.Bytes()) // the browser may be gone
}
