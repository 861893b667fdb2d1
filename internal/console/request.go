package console

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// page is one address of the console with its actions.
type page struct {
	// path is the path in the browser; {id} is an organization's.
	path string
	// template is the file in templates/, without .html, that fills the frame.
	template string
	title    text.Text
	// section is the path of the page's entry in the navigation. Empty means path.
	section string
	// public pages need no session, and others a session with its second factor, unless halfway is set.
	public, halfway bool
	// show reads the page's data.
	show    func(req *request) (any, error)
	actions []action
}

// action handles a form.
type action struct {
	// verb is the last segment of its address, POST path/verb. Empty means the path of the page.
	verb string
	// form is the id of the form. The ids of forms in rows begin with it and end with the id of the row.
	form string
	// done is the notice on the next page.
	done text.Text
	// do returns the address of the next page. Without one the page is shown again, with req.once.
	do func(req *request) (to string, err error)
}

// request is the state of one request to a page.
type request struct {
	c       *Console
	page    *page
	w       http.ResponseWriter
	r       *http.Request
	printer *text.Printer
	// session is nil on public pages, by is its principal.
	session *identity.OperatorSession
	by      identity.Principal
	// sent is the input of a form.
	sent ui.Sent
	// action is the action of the form that was sent, refused the reason why it was not done.
	action  *action
	refused *handlers.Error
	// errorForm is the form that shows the error, if the page contains it.
	errorForm string
	// once is data that an action shows once.
	once any
}

func (c *Console) newRequest(p *page, w http.ResponseWriter, r *http.Request) *request {
	return &request{c: c, page: p, w: w, r: r, printer: c.printers[text.Choose("", r.Header.Get("Accept-Language"))]}
}

// id returns the id in the page's path.
func (req *request) id() string { return req.r.PathValue("id") }

// path returns the page's path, also when a form was sent to another address.
func (req *request) path() string {
	if req.action == nil || req.action.verb == "" {
		return req.r.URL.Path
	}
	return strings.TrimSuffix(req.r.URL.Path, "/"+req.action.verb)
}

// query returns a parameter of the page's address, empty when it is absent.
func (req *request) query(name string) string { return req.r.URL.Query().Get(name) }

// open serves GET.
func (req *request) open() {
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	req.render(http.StatusOK)
}

// errAnswered is returned by show when it has written the response itself.
var errAnswered = errors.New("the answer is written")

// errUnproven is the error of a session with a second factor that is missing or too old.
var errUnproven = errors.New("the second factor is missing")

// enter finds the session, unless the page is public.
func (req *request) enter() (err error) {
	if id := req.id(); id != "" && !handlers.WellFormedID(id) {
		return handlers.NotFound("There is nothing at this address.")
	}
	if req.page.public {
		return nil
	}
	session, err := req.c.config.Operators.Session(req.r)
	if err != nil {
		return err
	}
	req.session, req.by = &session, session.Principal()
	if !req.page.halfway && !session.Fresh(identity.SecondFactorLifetime) {
		return errUnproven
	}
	return nil
}

// turnAway responds to a request that may not see the page.
func (req *request) turnAway(err error) {
	to := root + "/sign-in"
	if errors.Is(err, errUnproven) {
		to = root + "/second-factor"
	} else if refused := req.refusalOf(err); refused.Code != errcode.Unauthenticated || req.page.public {
		req.fail(refused)
		return
	}
	next := req.r.URL.RequestURI()
	if req.r.Method != http.MethodGet {
		next = req.path() // the form is sent again by its sender
	}
	http.Redirect(req.w, req.r, to+"?next="+url.QueryEscape(next), http.StatusSeeOther)
}

// maxForm bounds a form, in bytes.
const maxForm = 16 << 10

// readForm reads the form of the request.
func (req *request) readForm() error {
	body, err := io.ReadAll(http.MaxBytesReader(req.w, req.r.Body, maxForm))
	if err != nil {
		return handlers.InvalidRequest("", "The form did not arrive whole, or is too large. Send it again.")
	}
	fields, err := url.ParseQuery(string(body))
	if err != nil {
		return handlers.InvalidRequest("", "The form did not arrive whole. Send it again.")
	}
	req.sent = ui.Sent(fields)
	return nil
}

// act serves the POST of a form.
func (req *request) act(a *action) {
	req.action = a
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	to, err := "", req.readForm()
	if err == nil {
		to, err = a.do(req)
	}
	switch {
	case err != nil:
		req.refused = req.refusalOf(err)
		req.render(req.refused.Code.Status())
	case to == "":
		req.render(http.StatusOK)
	default:
		if a.done != "" {
			separator := "?"
			if strings.Contains(to, "?") {
				separator = "&"
			}
			to += separator + "done=" + a.form
		}
		http.Redirect(req.w, req.r, to, http.StatusSeeOther) //nolint:gosec // G710: to our own pages, see request.next
	}
}

// render writes the page, or its error.
func (req *request) render(status int) {
	var shown any
	if req.page.show != nil {
		var err error
		if shown, err = req.page.show(req); errors.Is(err, errAnswered) {
			return
		} else if err != nil && req.refused != nil {
			req.fail(req.refused) // says more than that the page is gone
			return
		} else if err != nil {
			req.turnAway(err)
			return
		}
	}
	req.write(status, req.page.template, req.view(shown))
}

// fail writes an error as a page.
func (req *request) fail(f *handlers.Error) {
	shown := req.view(f)
	shown.Title = req.printer.T(failed)
	switch f.Code.Status() {
	case http.StatusNotFound:
		shown.Title = req.printer.T(notFound)
	case http.StatusForbidden:
		shown.Title = req.printer.T(notAllowed)
	}
	req.write(f.Code.Status(), "failure", shown)
}

const (
	failed     text.Text = "That didn't work"
	notFound   text.Text = "Not found"
	notAllowed text.Text = "Not allowed"
)

// refusalOf returns the error of an operation with its public text. The text of any other error is only logged.
func (req *request) refusalOf(err error) *handlers.Error {
	if refused, ok := errors.AsType[*handlers.Error](err); ok {
		shown := *refused
		shown.Message = req.printer.Error(refused.Field, refused.PublicMessage())
		return &shown
	}
	req.c.config.Logger.Error("the console failed", "error", err)
	return &handlers.Error{Code: errcode.InternalError, Cause: err, Message: "The service failed to handle the request. Its log has the reason."}
}

// form returns f as the page shows it: after a refusal, with the input and the error at its field.
func (req *request) form(f ui.Form) ui.Form {
	if f.Action == "" && !f.Get && req.action != nil && req.action.verb != "" {
		f.Action = req.path() // the browser's address is that of another form
	}
	f = f.Shown(req.printer)
	if req.refused != nil && req.action != nil && (f.ID == req.action.form || strings.HasPrefix(f.ID, req.action.form+"-") && req.sentIn(f)) {
		req.errorForm = f.ID
		f.Keep(req.sent, req.refused)
	}
	return f
}

// sentIn reports whether f is the form in a row that was sent: its hidden fields distinguish it.
func (req *request) sentIn(f ui.Form) bool {
	for _, one := range f.Fields {
		if one.Kind == ui.HiddenField && one.Value != req.sent.Text(one.Name) {
			return false
		}
	}
	return true
}

type values = endpoint.Values

// ask runs an operation that returns a body, for the operator of the request.
func ask[I, T any](req *request, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], in values) (*T, error) {
	return bodyOf[T](req, o, in)
}

// askTable is [ask] for a list of T that is also served as a file.
func askTable[T, I any](req *request, o endpoint.Op[*api.Deps, I, endpoint.Stream], in values) (*endpoint.ListObject[T], error) {
	return bodyOf[endpoint.ListObject[T]](req, o, in)
}

func bodyOf[T any](req *request, o api.Operation, in values) (*T, error) {
	answer, err := req.run(o, in)
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

// run runs an operation on the organization in the path, or on the whole service.
func (req *request) run(o api.Operation, in values) (answer any, err error) {
	orgID := req.id()
	if api.OfService(o) {
		orgID = ""
	}
	return req.c.config.Ask(req.w, req.r, &req.by, orgID, o, in)
}

// change runs an operation with the input of a form and with in, and drops its answer.
func (req *request) change(o api.Operation, f ui.Form, in values) error {
	in, err := f.Read(req.sent, in)
	if err == nil {
		_, err = req.run(o, in)
	}
	return err
}

// askMade is [ask] for an operation that makes something once.
func askMade[I, T any](req *request, o endpoint.Op[*api.Deps, I, endpoint.Made[T]], in values) (*T, error) {
	return bodyOf[T](req, o, in)
}

// may reports whether the operator has a scope. Pages hide forms that would be refused.
func (req *request) may(scope identity.OperatorScope) bool {
	return scope == "" || req.by.OperatorScopes.Has(scope)
}

// view is the data of a template.
type view struct {
	ui.Shell

	Path string
	// RequestID is the id of the request, for people who report a failure.
	RequestID string
	// Data is the result of show, Once the data that an action revealed.
	Data any
	Once any
}

// titled is implemented by data with a title of its own.
type titled interface{ PageTitle() string }

var sections = []struct {
	path  string
	label text.Text
	icon  string
	scope identity.OperatorScope
	bar   bool
}{
	{root, "Overview", "layout-dashboard", "", true},
	{root + "/organizations", "Organizations", "building-2", "organizations:read", true},
	{root + "/queue", "Queue", "list-restart", "queue:read", true},
	{root + "/vendors", "Vendors & health", "activity", "vendors:read", true},
	{root + "/audit-log", "Audit log", "scroll-text", "audit_log:read", false},
}

// view returns the data of the frame around the data of show.
func (req *request) view(shown any) *view {
	v := &view{
		Shell: ui.Shell{
			Lang: string(req.printer.Language), Title: req.printer.T(req.page.title), Product: "caddy-svc", Operator: true, Home: root,
			Section: cmp.Or(req.page.section, req.page.path),
		},
		Path: req.path(), RequestID: handlers.RequestIDFrom(req.r.Context()), Data: shown, Once: req.once,
	}
	if named, ok := shown.(titled); ok {
		v.Title = named.PageTitle()
	}
	if c, ok := req.once.(*confirmation); ok {
		c.Form = req.form(c.Form)
	}
	if s := req.session; s != nil {
		v.Person, v.PersonPath, v.SignOut = s.Email, root+"/second-factor", ui.Button("sign-out", root+"/sign-out", "Sign out", "").Shown(req.printer)
		if s.Fresh(identity.SecondFactorLifetime) {
			until := time.UnixMilli(s.SecondFactorAt).Add(identity.SecondFactorLifetime)
			v.Role = req.printer.Tf("Second factor until %s", until.UTC().Format("15:04"))
		}
		for _, entry := range sections {
			if !s.Fresh(identity.SecondFactorLifetime) || !req.may(entry.scope) {
				continue
			}
			link := ui.Link{Path: entry.path, Label: req.printer.T(entry.label)}
			section := ui.Section{Link: link, Icon: entry.icon}
			if entry.bar {
				section.Bar = link.Label
			}
			v.Sections = append(v.Sections, section)
			if entry.path == req.page.section && req.page.path != entry.path {
				v.Trail = []ui.Link{link}
			}
		}
	}
	if req.refused == nil && req.action != nil {
		v.Notice = req.printer.T(req.action.done)
	} else if done := req.c.done[req.query("done")]; req.refused == nil && done != "" {
		v.Notice = req.printer.T(done)
	}
	return v
}

// pager returns the links of a list at the page.
func (req *request) pager(nextCursor *string) ui.Pager {
	return ui.NewPager(req.path(), req.r.URL.Query(), nextCursor)
}
