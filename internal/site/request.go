package site

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	"github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// Request is the state of one request to a page.
type Request struct {
	Site *Site
	W    http.ResponseWriter
	R    *http.Request
	// Say writes texts and values in the language of the person, or of the browser on public pages.
	Say *ui.Printer
	// Account is the organization or the operator to which forms and pages are charged. Empty means the client's address.
	Account string
	// Verb is the action's, empty without an action.
	Verb string
	// Sent is the input of a form, nil until it is read.
	Sent ui.Sent
	// Refused is the reason why the action was not done.
	Refused *handlers.Error
	// Once is data that an action shows once.
	Once any

	// The page and, with form, the action, as in [Page] and [Action]. parent is the page's own section.
	template, parent, section, form string
	title, notice                   ui.Text
	public                          bool
	scripts, fragments, secrets     []string
	// scheme is the colours that the person has chosen.
	scheme string

	visit Visit
	show  func() (any, error)
	// unread is the first error of [Read].
	unread error
	// files are the form's files.
	files []upload
	// errorForm is the form that shows the error, if the page contains it.
	errorForm string
	// room is the memory of the page, nil until it is reserved. releaseBody returns the memory of the body.
	room        *handlers.Room
	releaseBody func()
}

func (s *Site) newRequest(w http.ResponseWriter, r *http.Request) *Request {
	return &Request{Site: s, W: w, R: r, Say: s.printers[text.Choose("", r.Header.Get("Accept-Language"))], releaseBody: func() {}}
}

// Base implements [Visit].
func (req *Request) Base() *Request { return req }

// Prefer sets the language and the colours that the person has chosen. Empty means the browser's.
func (req *Request) Prefer(language, scheme string) {
	req.scheme = scheme
	req.Say = req.Site.printers[text.Choose(language, req.R.Header.Get("Accept-Language"))]
}

// ID returns the id in the page's path. Its form was checked.
func (req *Request) ID() string { return req.R.PathValue("id") }

// Path returns the page's path, also when a form was sent to another address.
func (req *Request) Path() string {
	if req.Verb == "" {
		return req.R.URL.Path
	}
	return strings.TrimSuffix(req.R.URL.Path, "/"+req.Verb)
}

// Query returns a parameter of the page's address, empty when it is absent.
func (req *Request) Query(name string) string { return req.R.URL.Query().Get(name) }

// Cursor returns the input of a list for the shown page, to which the caller may add.
func (req *Request) Cursor() endpoint.Values { return endpoint.Values{"cursor": req.Query("cursor")} }

// Pager links to the next page of a list, and to the first; other parameters of the address stay.
func (req *Request) Pager(nextCursor *string) ui.Pager {
	return ui.NewPager(req.Path(), req.R.URL.Query(), nextCursor)
}

// Next returns the page that was requested before signing in. It is always one of the site's, whatever the address contains.
func (req *Request) Next() string {
	root := req.Site.Root
	next, err := url.Parse(req.Query("next"))
	if err != nil || next.Host != "" || next.Scheme != "" || next.Path != path.Clean(next.Path) {
		return root
	}
	if next.Path != root && !strings.HasPrefix(next.Path, root+"/") {
		return root
	}
	return next.RequestURI()
}

// Run runs an operation and drops the body that it returns.
func (req *Request) Run(o api.Operation, in endpoint.Values) error {
	_, err := req.visit.Ask(o, in)
	return err
}

// Submit is [Request.Run] with the input of a form and with in.
func (req *Request) Submit(o api.Operation, f ui.Form, in endpoint.Values) error {
	in, err := f.Read(req.Sent, in)
	if err != nil {
		return err
	}
	return req.Run(o, in)
}

// Reveal sets the data that the page shows only this time.
func (req *Request) Reveal(once any, err error) (to string, _ error) {
	if err == nil {
		req.Once = once
	}
	return "", err
}

// ErrAnswered is returned by functions of a page and by [Visit.Enter] when they have written the response themselves.
var ErrAnswered = errors.New("the answer is written")

// enter refuses malformed ids and finds the person, unless the page is public.
func (req *Request) enter() error {
	if id := req.ID(); id != "" && !handlers.WellFormedID(id) {
		return handlers.NotFound("%s", ui.Text("There is nothing at this address."))
	}
	if req.public {
		return nil
	}
	return req.visit.Enter()
}

// open serves GET.
func (req *Request) open() {
	defer req.release()
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	req.render(http.StatusOK)
}

// act serves the POST of a form.
func (req *Request) act(maxBody int64, do func() (string, error)) {
	defer req.release()
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	if err := req.reserve(usualPage); err != nil {
		req.fail(req.RefusalOf(err))
		return
	}
	to, err := "", req.readForm(maxBody)
	if err == nil {
		to, err = do()
	}
	switch {
	case errors.Is(err, ErrAnswered):
	case err != nil:
		req.Refused = req.RefusalOf(err)
		if req.Refused.Code.Status() == http.StatusUnauthorized && !req.public {
			req.turnAway(err)
			return
		}
		req.render(req.Refused.Code.Status())
	case to == "":
		req.render(http.StatusOK)
	default:
		http.Redirect(req.W, req.R, req.afterwards(to), http.StatusSeeOther) //nolint:gosec // G710: to our own pages, see Request.Next
	}
}

// afterwards returns the address with the notice of the action.
func (req *Request) afterwards(to string) string {
	if req.notice == "" {
		return to
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + "done=" + url.QueryEscape(req.form)
}

// relay lets do write the response.
func (req *Request) relay(do func() error) {
	defer req.release()
	err := req.enter()
	if err == nil {
		err = do()
	}
	switch {
	case err == nil:
	case req.R.Method == http.MethodGet:
		req.turnAway(err)
	default: // a script's request
		handlers.WriteError(req.W, req.R, req.RefusalOf(err), "")
	}
}

// turnAway responds to a request that may not see the page. It redirects to the sign-in page, or keeps the input of a form
// if the session has ended.
func (req *Request) turnAway(err error) {
	if errors.Is(err, ErrAnswered) {
		return
	}
	f := req.RefusalOf(err)
	switch {
	case f.Code.Status() != http.StatusUnauthorized || req.public:
		req.fail(f)
	case req.Query("fragment") != "":
		http.Error(req.W, "signed out", http.StatusUnauthorized) //nolint:forbidigo // the script reads the status only
	case req.R.Method == http.MethodGet || req.R.Method == http.MethodHead || !req.hadSession():
		req.Detour(req.Site.SignIn)
	default:
		req.keepInput()
	}
}

// Detour redirects to a page that leads back to this one.
func (req *Request) Detour(to string) {
	back := req.Path()
	if req.R.Method == http.MethodGet || req.R.Method == http.MethodHead {
		back = req.R.URL.RequestURI()
	}
	http.Redirect(req.W, req.R, to+"?next="+url.QueryEscape(back), http.StatusSeeOther)
}

// hadSession reports whether the browser has a session's cookie, ended or not. Requests without one cannot carry a form of the
// site, and their bodies aren't read.
func (req *Request) hadSession() bool {
	return slices.ContainsFunc(req.R.Cookies(), func(c *http.Cookie) bool { return slices.Contains(req.Site.Cookies, c.Name) })
}

// render writes the page, one of its fragments, or its error.
func (req *Request) render(status int) {
	shown, err := req.show()
	switch {
	case err == nil:
		req.write(status, req.template, req.view(shown))
	case req.Refused != nil && !errors.Is(err, ErrAnswered): // the refusal says more than that the page is gone
		req.fail(req.Refused)
	default:
		req.turnAway(err)
	}
}

// fail writes an error as a page.
func (req *Request) fail(f *handlers.Error) {
	if req.Query("fragment") != "" {
		http.Error(req.W, f.Message, f.Code.Status()) //nolint:forbidigo // the script reads the status only
		return
	}
	shown := req.view(req.Translated(f))
	shown.Title = req.Say.T(failureTitle(f.Code))
	req.write(f.Code.Status(), failureTemplate, shown)
}

func failureTitle(code errcode.Code) ui.Text {
	switch {
	case code == errcode.OrganizationSuspended:
		return "The organization is suspended"
	case code.Status() == http.StatusNotFound:
		return "Not found"
	case code.Status() == http.StatusForbidden:
		return "Not allowed"
	}
	return "That didn't work"
}

// The templates that belong to no page.
const (
	failureTemplate = "failure"
	endedTemplate   = "ended"
)

// View is the data of a template.
type View struct {
	ui.Shell

	// Path is the page's path, also when a form was sent to another address.
	Path string
	// Session is the site's own, for its templates.
	Session any
	// RequestID is the id of the request, for people who report a failure.
	RequestID string
	// Data is the result of show, Once the data that an action revealed.
	Data any
	Once any
}

// titled is implemented by data with a title of its own.
type titled interface{ PageTitle() string }

// view returns the data of the frame around the data of show.
func (req *Request) view(shown any) *View {
	made := &View{
		Shell: ui.Shell{
			Lang: string(req.Say.Language), Scheme: req.scheme, Title: req.Say.T(req.title), Product: "caddy-svc", Operator: req.Site.Operator,
			Home: req.Site.Root, Section: req.section,
		},
		Path: req.Path(), Data: shown, Once: req.Once, RequestID: handlers.RequestIDFrom(req.R.Context()),
	}
	if named, ok := shown.(titled); ok {
		made.Title = named.PageTitle()
	}
	for _, name := range req.scripts {
		made.Scripts = append(made.Scripts, req.Site.Assets.Address(name))
	}
	if req.visit != nil {
		req.visit.Frame(made)
	}
	for i := range made.Sections {
		for _, link := range slices.Concat(made.Sections[i].Tabs, []ui.Link{made.Sections[i].Link}) {
			if link.Path == req.parent && made.Trail == nil {
				made.Trail = []ui.Link{link} // to a page that isn't in the navigation itself
			}
		}
	}
	switch {
	case req.Refused == nil && req.form != "":
		made.Notice = req.Say.T(req.notice)
	case req.Refused == nil:
		made.Notice = req.Say.T(req.Site.done[req.Query("done")])
	}
	return made
}

// write sends a page, which is rendered wholly before its first byte is sent.
func (req *Request) write(status int, name string, shown *View) {
	var page bytes.Buffer
	templates := req.Site.templates[req.Say.Language]
	render := func() error { return ui.WritePage(&page, templates, name, shown) }
	if fragment := req.Query("fragment"); fragment != "" && req.R.Method == http.MethodGet && name == req.template {
		if !slices.Contains(req.fragments, fragment) {
			http.Error(req.W, "no such part", http.StatusNotFound) //nolint:forbidigo // the script reads the status only
			return
		}
		render = func() error { return templates.ExecuteTemplate(&page, fragment, shown) }
	}
	err := render()
	if err == nil && req.Refused != nil && !bytes.Contains(page.Bytes(), []byte(`id="`+req.errorForm+`-error"`)) {
		shown.Alert = req.Translated(req.Refused).Message // the page no longer contains the form
		page.Reset()
		err = render()
	}
	if err != nil {
		req.Site.Logger.Error("a page could not be written", "page", req.R.Pattern, "error", err)
		http.Error(req.W, "The service failed to show this page.", http.StatusInternalServerError) //nolint:forbidigo // a page is what failed
		return
	}
	if req.Refused != nil {
		if wait := req.Refused.WaitSeconds(); wait > 0 {
			req.W.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
		}
	}
	if req.room == nil && req.reserve(page.Len()) != nil {
		req.W.Header().Set("Retry-After", "1")
		const full = "The pages that you have not read yet are too large together. Try again."
		http.Error(req.W, full, http.StatusTooManyRequests) //nolint:forbidigo // a page is what has no room
		return
	}
	req.room.Send(req.W, status, "text/html; charset=utf-8", page.Bytes())
}

// RefuseField returns an error at a field with input that can't be sent to an operation.
func RefuseField(name string, message ui.Text) *handlers.Error {
	return handlers.InvalidRequest(name, "%s", message)
}

// RefusalOf returns the error of an operation with its public text. The text of any other error is only logged.
func (req *Request) RefusalOf(err error) *handlers.Error {
	if refused, ok := errors.AsType[*handlers.Error](err); ok {
		shown := *refused
		shown.Message = refused.PublicMessage()
		return &shown
	}
	req.Site.Logger.Error("a page failed", "page", req.R.Pattern, "error", err)
	return &handlers.Error{Code: errcode.InternalError, Cause: err, Message: string(req.Site.Failed)}
}

// Translated returns the error in the reader's language.
func (req *Request) Translated(refused *handlers.Error) *handlers.Error {
	shown := *refused
	shown.Message = req.Say.Error(refused.Field, refused.Message)
	return &shown
}
