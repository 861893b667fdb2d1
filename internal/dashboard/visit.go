package dashboard

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// visit is one request of a person to a page.
type visit struct {
	d    *Dashboard
	page *page
	w    http.ResponseWriter
	r    *http.Request
	// session is nil on public pages.
	session *session
	// releaseBody gives back what the body takes of the memory; nil when it takes nothing.
	releaseBody func()
	// sent is what a form sent; nil before it was read.
	sent url.Values
	// files are those that it sent.
	files []namedUpload
	// action is what the form asked for, refused why it was not done.
	action  *action
	refused *fault
	// told is the form that says why, if the page has it.
	told string
	once any
}

func (d *Dashboard) newVisit(p *page, w http.ResponseWriter, r *http.Request) *visit {
	return &visit{d: d, page: p, w: w, r: r}
}

// id is the id in the page's path. [visit.enter] has refused what can't be one.
func (v *visit) id() string { return v.r.PathValue("id") }

// path is the page's own, wherever its form was sent to.
func (v *visit) path() string {
	if v.action == nil || v.action.verb == "" {
		return v.r.URL.Path
	}
	return strings.TrimSuffix(v.r.URL.Path, "/"+v.action.verb)
}

// query is a parameter of the page's address, "" when it is absent.
func (v *visit) query(name string) string { return v.r.URL.Query().Get(name) }

// enter finds out who it is, where the page wants to know, and refuses ids that can't be one.
func (v *visit) enter() error {
	if id := v.r.PathValue("id"); id != "" && !wellFormedID(id) {
		return &fault{Status: http.StatusNotFound, Code: codeNotFound, Message: "There is nothing at this address."}
	}
	if v.page.public {
		return nil
	}
	var who session
	if err := v.get("/session", nil, &who); err != nil {
		return err
	}
	v.session = &who
	return nil
}

// wellFormedID keeps what would change an address of the API out of it.
func wellFormedID(text string) bool {
	const longest = 64
	return len(text) <= longest && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_'
	})
}

// open shows the page.
func (v *visit) open() {
	if err := v.enter(); err != nil {
		v.turnAway(err)
		return
	}
	v.render(http.StatusOK)
}

// act does what a form asks for.
func (v *visit) act(a *action) {
	defer v.release()
	v.action = a
	if err := v.enter(); err != nil {
		v.turnAway(err)
		return
	}
	result, err := outcome{}, v.readForm(a.maxBody)
	if err == nil {
		result, err = a.do(v)
	}
	switch {
	case errors.Is(err, errAnswered):
	case err != nil:
		v.refused = v.d.faultOf(err)
		if v.refused.Status == http.StatusUnauthorized && !v.page.public {
			v.turnAway(err)
			return
		}
		v.render(v.refused.Status)
	case result.to != "":
		http.Redirect(v.w, v.r, v.afterwards(result.to), http.StatusSeeOther) //nolint:gosec // G710: to pages of ours only, see visit.next
	default:
		v.once = result.once
		v.render(http.StatusOK)
	}
}

// afterwards is the address with what was done.
func (v *visit) afterwards(to string) string {
	if v.action.done == "" {
		return to
	}
	separator := "?"
	if strings.Contains(to, "?") {
		separator = "&"
	}
	return to + separator + "done=" + url.QueryEscape(v.action.form)
}

// turnAway answers a request whose sender may not see the page. Who isn't signed in is sent to do so; a form of somebody whose
// session ended meanwhile keeps what was typed.
func (v *visit) turnAway(err error) {
	f := v.d.faultOf(err)
	switch {
	case f.Status != http.StatusUnauthorized || v.page.public:
		v.fail(f)
	case v.query("fragment") != "":
		http.Error(v.w, "signed out", http.StatusUnauthorized) //nolint:forbidigo // the script reads the status only
	case v.r.Method == http.MethodGet || v.r.Method == http.MethodHead:
		http.Redirect(v.w, v.r, loginPath+"?next="+url.QueryEscape(v.r.URL.RequestURI()), http.StatusSeeOther)
	case !v.hadSession():
		http.Redirect(v.w, v.r, loginPath+"?next="+url.QueryEscape(v.path()), http.StatusSeeOther)
	default:
		v.keepTyped()
	}
}

// hadSession reports whether the browser has a session's cookie, ended or not. Who has none typed into no form of ours, and
// what they send isn't read.
func (v *visit) hadSession() bool {
	return slices.ContainsFunc(v.r.Cookies(), func(c *http.Cookie) bool {
		return c.Name == "__Host-svc_session" || c.Name == "svc_session" // by https, and on this machine by http
	})
}

// render shows the page, or one of its fragments, or what kept it from being shown.
func (v *visit) render(status int) {
	var shown any
	if v.page.show != nil {
		var err error
		shown, err = v.page.show(v)
		if errors.Is(err, errAnswered) {
			return
		}
		if err != nil && v.refused != nil { // what was refused says more than that the page is gone too
			v.fail(v.refused)
			return
		}
		if err != nil {
			v.turnAway(err)
			return
		}
	}
	v.write(status, v.page.template, v.view(shown))
}

// fail shows an error as a page.
func (v *visit) fail(f *fault) {
	if v.query("fragment") != "" {
		http.Error(v.w, f.Message, f.Status) //nolint:forbidigo // the script reads the status only
		return
	}
	shown := v.view(f)
	shown.Title = failureTitle(f)
	v.write(f.Status, failureTemplate, shown)
}

func failureTitle(f *fault) string {
	switch f.Status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	}
	if f.Code == codeSuspended {
		return "The organization is suspended"
	}
	return "That didn't work"
}

// write sends a page, which is made wholly before its first byte is sent.
func (v *visit) write(status int, name string, shown *view) {
	part := layoutTemplate
	if fragment := v.query("fragment"); fragment != "" && v.r.Method == http.MethodGet && name == v.page.template {
		if !slices.Contains(v.page.fragments, fragment) {
			http.Error(v.w, "no such part", http.StatusNotFound) //nolint:forbidigo // the script reads the status only
			return
		}
		part = fragment
	}
	var text bytes.Buffer
	err := v.d.templates[name].ExecuteTemplate(&text, part, shown)
	if err == nil && v.refused != nil && !bytes.Contains(text.Bytes(), []byte(`id="`+v.told+`-error"`)) {
		shown.Alert = v.refused // the page doesn't have the form any more
		text.Reset()
		err = v.d.templates[name].ExecuteTemplate(&text, part, shown)
	}
	if err != nil {
		v.d.config.Logger.Error("the dashboard failed to write a page", "page", v.page.path, "error", err)
		http.Error(v.w, "The service failed to show this page.", http.StatusInternalServerError) //nolint:forbidigo // a page is what failed
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(text.Len()))
	if v.refused != nil && v.refused.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(v.refused.RetryAfter, 10))
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(text.Bytes()) // the browser may be gone
}
