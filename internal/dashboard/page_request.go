package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	words "github.com/caddy-svc/caddy-svc/internal/ui/text"
)

// pageRequest is the state of one request to a page.
type pageRequest struct {
	d    *Dashboard
	page *page
	w    http.ResponseWriter
	r    *http.Request
	// say writes texts and values in the language of the person, or of the browser on public pages.
	say *words.Printer
	// person and session are nil on public pages.
	person  *identity.Principal
	session *session
	// releaseBody and releasePage return the memory of the body and of the page. Nil means that there is none.
	releaseBody, releasePage func()
	// sendPage writes the page in the room that was reserved for it. Nil means that no room was reserved.
	sendPage SendPage
	// sent is the form's input, nil until it is read.
	sent url.Values
	// files are the form's files.
	files []namedUpload
	// action is the form's action, refused the reason why it was not done.
	action  *action
	refused *handlers.Error
	// errorForm is the form that shows the error, if the page contains it.
	errorForm string
	once      any
}

func (d *Dashboard) newPageRequest(p *page, w http.ResponseWriter, r *http.Request) *pageRequest {
	return &pageRequest{d: d, page: p, w: w, r: r, say: d.printers[words.Choose("", r.Header.Get("Accept-Language"))]}
}

// id returns the id in the page's path. [pageRequest.enter] has checked its form.
func (req *pageRequest) id() string { return req.r.PathValue("id") }

// path returns the page's path, also when a form was sent to another address.
func (req *pageRequest) path() string {
	if req.action == nil || req.action.verb == "" {
		return req.r.URL.Path
	}
	return strings.TrimSuffix(req.r.URL.Path, "/"+req.action.verb)
}

// query returns a parameter of the page's address, empty when it is absent.
func (req *pageRequest) query(name string) string { return req.r.URL.Query().Get(name) }

// enter finds the person and reads the session, unless the page is public, and refuses malformed ids.
func (req *pageRequest) enter() (err error) {
	if id := req.r.PathValue("id"); id != "" && !handlers.WellFormedID(id) {
		return handlers.NotFound("%s", ui.Text("There is nothing at this address."))
	}
	if req.page.public {
		return nil
	}
	if req.person, err = req.d.config.Person(req.r); err != nil {
		return err
	}
	shown, err := ask(req, api.GetSession, nil)
	if err == nil {
		req.session = &session{shown}
		req.say = req.d.printers[words.Choose(text(shown.User.Language), req.r.Header.Get("Accept-Language"))]
	}
	return err
}

// open serves GET.
func (req *pageRequest) open() {
	defer req.release()
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	req.render(http.StatusOK)
}

// act serves the POST of a form.
func (req *pageRequest) act(a *action) {
	defer req.release()
	req.action = a
	if err := req.enter(); err != nil {
		req.turnAway(err)
		return
	}
	if err := req.reserve(usualPage); err != nil {
		req.fail(req.d.refusalOf(err))
		return
	}
	result, err := outcome{}, req.readForm(a.maxBody)
	if err == nil {
		result, err = a.do(req)
	}
	switch {
	case errors.Is(err, errAnswered):
	case err != nil:
		req.refused = req.d.refusalOf(err)
		if req.refused.Code.Status() == http.StatusUnauthorized && !req.page.public {
			req.turnAway(err)
			return
		}
		req.render(req.refused.Code.Status())
	case result.to != "":
		http.Redirect(req.w, req.r, req.afterwards(result.to), http.StatusSeeOther) //nolint:gosec // G710: to our own pages, see pageRequest.next
	default:
		req.once = result.once
		req.render(http.StatusOK)
	}
}

// afterwards returns the address with the notice of the action.
func (req *pageRequest) afterwards(to string) string {
	if req.action.done == "" {
		return to
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + "done=" + url.QueryEscape(req.action.form)
}

// turnAway responds to a request that may not see the page. It redirects to the sign-in page, or keeps the input of a form
// if the session has ended.
func (req *pageRequest) turnAway(err error) {
	f := req.d.refusalOf(err)
	switch {
	case f.Code.Status() != http.StatusUnauthorized || req.page.public:
		req.fail(f)
	case req.query("fragment") != "":
		http.Error(req.w, "signed out", http.StatusUnauthorized) //nolint:forbidigo // the script reads the status only
	case req.r.Method == http.MethodGet || req.r.Method == http.MethodHead:
		http.Redirect(req.w, req.r, loginPath+"?next="+url.QueryEscape(req.r.URL.RequestURI()), http.StatusSeeOther)
	case !req.hadSession():
		http.Redirect(req.w, req.r, loginPath+"?next="+url.QueryEscape(req.path()), http.StatusSeeOther)
	default:
		req.keepInput()
	}
}

// hadSession reports whether the browser has a session's cookie, ended or not. Requests without one cannot carry a form of the
// dashboard, and their bodies aren't read.
func (req *pageRequest) hadSession() bool {
	return slices.ContainsFunc(req.r.Cookies(), func(c *http.Cookie) bool {
		return c.Name == handlers.SessionCookie || c.Name == handlers.LocalSessionCookie
	})
}

// render writes the page, one of its fragments, or its error.
func (req *pageRequest) render(status int) {
	var shown any
	if req.page.show != nil {
		var err error
		shown, err = req.page.show(req)
		if errors.Is(err, errAnswered) {
			return
		}
		if err != nil && req.refused != nil { // the refusal says more than that the page is gone
			req.fail(req.refused)
			return
		}
		if err != nil {
			req.turnAway(err)
			return
		}
	}
	req.write(status, req.page.template, req.view(shown))
}

// fail writes an error as a page.
func (req *pageRequest) fail(f *handlers.Error) {
	if req.query("fragment") != "" {
		http.Error(req.w, f.Message, f.Code.Status()) //nolint:forbidigo // the script reads the status only
		return
	}
	shown := req.view(req.translated(f))
	shown.Title = req.say.T(failureTitle(f.Code))
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

// write sends a page, which is rendered wholly before its first byte is sent.
func (req *pageRequest) write(status int, name string, shown *view) {
	part := ui.ShellTemplate
	if fragment := req.query("fragment"); fragment != "" && req.r.Method == http.MethodGet && name == req.page.template {
		if !slices.Contains(req.page.fragments, fragment) {
			http.Error(req.w, "no such part", http.StatusNotFound) //nolint:forbidigo // the script reads the status only
			return
		}
		part = fragment
	}
	var text bytes.Buffer
	err := req.d.templates[req.say.Language][name].ExecuteTemplate(&text, part, shown)
	if err == nil && req.refused != nil && !bytes.Contains(text.Bytes(), []byte(`id="`+req.errorForm+`-error"`)) {
		shown.Alert = req.translated(req.refused).Message // the page no longer contains the form
		text.Reset()
		err = req.d.templates[req.say.Language][name].ExecuteTemplate(&text, part, shown)
	}
	if err != nil {
		req.d.config.Logger.Error("the dashboard failed to write a page", "page", req.page.path, "error", err)
		http.Error(req.w, "The service failed to show this page.", http.StatusInternalServerError) //nolint:forbidigo // a page is what failed
		return
	}
	if req.refused != nil {
		if wait := req.refused.WaitSeconds(); wait > 0 {
			req.w.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
		}
	}
	req.writePage(status, text.Bytes())
}

// values are the input of an operation.
type values = endpoint.Values

// object is a member of [values] that is a JSON object.
type object = map[string]any

// ask runs an operation that returns a body, for the person of the request. Empty values of parameters count as absent. The error is a
// [handlers.Error].
func ask[I, T any](req *pageRequest, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], in values) (*T, error) {
	return bodyOf[T](req, o, in)
}

// askTable is [ask] for a list of T that the API also serves as a file.
func askTable[T, I any](
	req *pageRequest, o endpoint.Op[*api.Deps, I, endpoint.Stream], in values,
) (*endpoint.ListObject[T], error) {
	return bodyOf[endpoint.ListObject[T]](req, o, in)
}

func bodyOf[T any](req *pageRequest, o api.Operation, in values) (*T, error) {
	answer, err := req.d.config.Ask(req.w, req.r, req.person, o, in)
	if err != nil {
		return nil, err
	}
	typed, ok := answer.(*endpoint.JSON[T])
	if !ok {
		return nil, fmt.Errorf("operation %s returned a %T", o.Spec().ID, answer)
	}
	return &typed.Body, nil
}

// run runs an operation and drops the body that it returns.
func (req *pageRequest) run(o api.Operation, in values) error {
	_, err := req.d.config.Ask(req.w, req.r, req.person, o, in)
	return err
}

// maxPages bounds the pages of a list that [everything] reads: 1,000 elements.
const maxPages = 10

// everything reads a list, up to [maxPages] pages.
func everything[I, T any](
	req *pageRequest, list endpoint.Op[*api.Deps, I, endpoint.JSON[endpoint.ListObject[T]]],
) (all []T, err error) {
	in := values{"limit": "100"}
	for range maxPages {
		part, err := ask(req, list, in)
		if err != nil {
			return nil, err
		}
		all = append(all, part.Data...)
		if part.NextCursor == nil {
			break
		}
		in["cursor"] = *part.NextCursor
	}
	return all, nil
}

// errAnswered is returned by show and do when they have written the response themselves.
var errAnswered = errors.New("the answer is written")

// refuseField returns an error at a field with input that can't be sent to an operation.
func refuseField(name string, message ui.Text) *handlers.Error {
	return handlers.InvalidRequest(name, "%s", message)
}

// refusalOf returns the error of an operation with its public text. The text of any other error is only logged.
func (d *Dashboard) refusalOf(err error) *handlers.Error {
	if refused, ok := errors.AsType[*handlers.Error](err); ok {
		shown := *refused
		shown.Message = refused.PublicMessage()
		return &shown
	}
	d.config.Logger.Error("the dashboard failed", "error", err)
	return &handlers.Error{
		Code: errcode.InternalError, Cause: err,
		Message: string(ui.Text("The service failed to handle the request. Try again. If it fails again, tell the operator.")),
	}
}

// translated returns the error in the reader's language.
func (req *pageRequest) translated(refused *handlers.Error) *handlers.Error {
	shown := *refused
	shown.Message = req.say.Error(refused.Field, refused.Message)
	return &shown
}

// relay passes the response of the API's handler to the browser as it arrives.
func (req *pageRequest) relay(l *relay) {
	defer req.release()
	err := req.enter()
	var r *http.Request
	if err == nil {
		req.bound(cmp.Or(l.maxBody, maxForm))
		r, err = l.ask(req)
	}
	switch {
	case err == nil:
		req.d.config.API.ServeHTTP(req.w, r)
	case l.method == http.MethodGet:
		req.turnAway(err)
	default: // a script asks
		handlers.WriteError(req.w, req.r, req.d.refusalOf(err), "")
	}
}

// apiRequest returns a request to the API with the browser's context, cookie, address and origin. A nil body means none.
func (req *pageRequest) apiRequest(method, path string, query url.Values, body json.RawMessage) (*http.Request, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var content io.Reader = http.NoBody
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(req.r.Context(), method, path, content) //nolint:gosec // G704: it is served in this process
	if err != nil {
		return nil, fmt.Errorf("asking the API: %w", err)
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = req.r.Host, req.r.RemoteAddr, req.r.TLS, path
	r.Proto, r.ProtoMajor, r.ProtoMinor = req.r.Proto, req.r.ProtoMajor, req.r.ProtoMinor
	for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "User-Agent"} {
		if values := req.r.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	return r, nil
}

// askForm runs the operation of a form with the form's input and with in, and returns the body of the answer.
func askForm[I, T any](req *pageRequest, o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], f form, in values) (*T, error) {
	in, err := f.Read(ui.Sent(req.sent), in)
	if err != nil {
		return nil, err
	}
	return bodyOf[T](req, o, in)
}

// submit is [askForm] for operations without a body in their answer, or with a body that isn't needed.
func (req *pageRequest) submit(o api.Operation, f form, in values) error {
	in, err := f.Read(ui.Sent(req.sent), in)
	if err != nil {
		return err
	}
	return req.run(o, in)
}
