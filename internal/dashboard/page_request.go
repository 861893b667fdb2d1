package dashboard

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// pageRequest is one request to a page, with what it has read and decided so far.
type pageRequest struct {
	d    *Dashboard
	page *page
	w    http.ResponseWriter
	r    *http.Request
	// person and session are nil on public pages.
	person  *identity.Principal
	session *session
	// releaseBody and releasePage return the memory of the body and of the page; nil without any.
	releaseBody, releasePage func()
	// sendPage writes the page in the room that was reserved for it; nil without any.
	sendPage SendPage
	// sent is the form's input; nil before it was read.
	sent url.Values
	// files are the form's files.
	files []namedUpload
	// action is the form's action, refused why it was not done.
	action  *action
	refused *handlers.Error
	// errorForm is the form that shows the error, if the page contains it.
	errorForm string
	once      any
}

func (d *Dashboard) newPageRequest(p *page, w http.ResponseWriter, r *http.Request) *pageRequest {
	return &pageRequest{d: d, page: p, w: w, r: r}
}

// id returns the id in the page's path. [pageRequest.enter] has checked its form.
func (req *pageRequest) id() string { return req.r.PathValue("id") }

// path returns the page's path, whichever address its form was sent to.
func (req *pageRequest) path() string {
	if req.action == nil || req.action.verb == "" {
		return req.r.URL.Path
	}
	return strings.TrimSuffix(req.r.URL.Path, "/"+req.action.verb)
}

// query returns a parameter of the page's address, "" when it is absent.
func (req *pageRequest) query(name string) string { return req.r.URL.Query().Get(name) }

// enter finds the person and reads the session, unless the page is public, and refuses malformed ids.
func (req *pageRequest) enter() (err error) {
	if id := req.r.PathValue("id"); id != "" && !handlers.WellFormedID(id) {
		return handlers.NotFound("There is nothing at this address.")
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

// act serves a form's POST.
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

// turnAway answers a request that may not see the page: it redirects to the sign-in page, or keeps the input of a form whose
// session has ended.
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
		if err != nil && req.refused != nil { // the refusal says more than that the page is gone too
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
	shown := req.view(f)
	shown.Title = failureTitle(f.Code)
	req.write(f.Code.Status(), failureTemplate, shown)
}

func failureTitle(code errcode.Code) string {
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
	part := layoutTemplate
	if fragment := req.query("fragment"); fragment != "" && req.r.Method == http.MethodGet && name == req.page.template {
		if !slices.Contains(req.page.fragments, fragment) {
			http.Error(req.w, "no such part", http.StatusNotFound) //nolint:forbidigo // the script reads the status only
			return
		}
		part = fragment
	}
	var text bytes.Buffer
	err := req.d.templates[name].ExecuteTemplate(&text, part, shown)
	if err == nil && req.refused != nil && !bytes.Contains(text.Bytes(), []byte(`id="`+req.errorForm+`-error"`)) {
		shown.Alert = req.refused // the page doesn't contain the form any more
		text.Reset()
		err = req.d.templates[name].ExecuteTemplate(&text, part, shown)
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
