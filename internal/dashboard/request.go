package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/site"
	"github.com/caddy-svc/caddy-svc/internal/ui"
)

type (
	page   = site.Page[*pageRequest]
	action = site.Action[*pageRequest]
	relay  = site.Relay[*pageRequest]
	form   = ui.Form
	field  = ui.Field
	option = ui.Option
	// values are the input of an operation, object is a member of them that is a JSON object.
	values = endpoint.Values
	object = map[string]any
)

// pageRequest is the state of one request to a page. It implements [site.Visit].
type pageRequest struct {
	*site.Request

	d *Dashboard
	// person and session are nil on public pages.
	person  *identity.Principal
	session *session
}

// Enter finds the person and reads the session.
func (req *pageRequest) Enter() (err error) {
	if req.person, err = req.d.config.Person(req.R); err != nil {
		return err
	}
	shown, err := site.Ask(req, api.GetSession, nil)
	if err == nil {
		req.session, req.Account = &session{shown}, shown.Organization.ID
		req.Prefer(text(shown.User.Language), text(shown.User.Scheme))
	}
	return err
}

// Ask runs an operation for the person. Public operations have no person.
func (req *pageRequest) Ask(o api.Operation, in values) (any, error) {
	return req.d.config.Ask(req.W, req.R, req.person, o, in)
}

// Frame adds the navigation and the person.
func (req *pageRequest) Frame(view *site.View) {
	view.Session, view.Sections = req.session, req.session.sections(req.Say)
	view.SignOut = ui.Button("logout", logoutPath, "Sign out", "").Shown(req.Say)
	if s := req.session; s != nil {
		view.Owner, view.Person, view.PersonPath, view.Role = s.Organization.Name, s.User.Email, accountPath, req.Say.T(ui.Text(s.Role))
	}
}

// submit returns the function of an action that runs an operation with the input of a form, and leads to a page. Empty means the page itself.
// The ids in the operation's path come from the page's path, or from hidden fields.
func submit(to string, o api.Operation, f form) func(req *pageRequest) (string, error) {
	return func(req *pageRequest) (string, error) { return cmp.Or(to, req.Path()), req.Submit(o, f, req.ids(o)) }
}

// run is [submit] for buttons.
func run(to string, o api.Operation) func(req *pageRequest) (string, error) {
	return submit(to, o, form{})
}

// button returns the action of a button with an id. The id ends in the verb. The action runs an operation and leads to a page, as [run] does.
func button(id, to string, o api.Operation, done ui.Text) action {
	return action{Verb: verbOf(id), Form: id, Done: done, Do: run(to, o)}
}

func verbOf(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// button returns the form of an action of the page whose id ends in its verb. row is the id of the row with the button, empty for none.
func (req *pageRequest) button(id, row string, label, confirm ui.Text, hidden ...string) form {
	return req.Form(ui.Button(strings.TrimSuffix(id+"-"+row, "-"), req.Path()+"/"+verbOf(id), label, confirm, hidden...))
}

// named returns an option with the organization's own words.
func named(value, label string) option {
	return option{Value: value, Label: ui.Text(label), Named: true}
}

// reveal returns the function of an action that runs an operation with the input of a form, and shows its answer once.
func reveal[I, T any](o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], f form) func(req *pageRequest) (string, error) {
	return func(req *pageRequest) (string, error) { return req.Reveal(site.AskForm(req, o, f, req.ids(o))) }
}

// create returns the function of an action that creates a thing with the input of a form, and leads to the thing's page below path.
func create[I, T any](o endpoint.Op[*api.Deps, I, endpoint.JSON[T]], f form, path string, id func(*T) string) func(req *pageRequest) (string, error) {
	return func(req *pageRequest) (string, error) {
		created, err := site.AskForm(req, o, f, values{})
		if err != nil {
			return "", err
		}
		return path + "/" + id(created), nil
	}
}

// ids returns the ids in the path of an operation.
func (req *pageRequest) ids(o api.Operation) values {
	in := values{}
	for _, one := range o.Fields() {
		if one.In == "path" {
			in[one.Name] = cmp.Or(req.R.PathValue(one.Name), req.Text(one.Name))
		}
	}
	return in
}

// maxPages bounds the pages of a list that [everything] reads: 1,000 elements.
const maxPages = 10

// everything reads a list for the data of a page, up to [maxPages] pages.
func everything[I, T any](req *pageRequest, list endpoint.Op[*api.Deps, I, endpoint.JSON[endpoint.ListObject[T]]]) (all []T) {
	in := values{"limit": "100"}
	for range maxPages {
		part := site.Read(req, list, in)
		all = append(all, part.Data...)
		if part.NextCursor == nil {
			break
		}
		in["cursor"] = *part.NextCursor
	}
	return all
}

// pass lets the API respond to a request with the browser's context, cookie, address and origin.
func (req *pageRequest) pass(method, path, accept string, body []byte) error {
	r, err := http.NewRequestWithContext(req.R.Context(), method, path, bytes.NewReader(body)) //nolint:gosec // G704: it is served in this process
	if err != nil {
		return fmt.Errorf("asking the API: %w", err)
	}
	r.Host, r.RemoteAddr, r.TLS, r.RequestURI = req.R.Host, req.R.RemoteAddr, req.R.TLS, path
	r.Proto, r.ProtoMajor, r.ProtoMinor = req.R.Proto, req.R.ProtoMajor, req.R.ProtoMinor
	for _, name := range []string{"Cookie", "Origin", "Sec-Fetch-Site", "User-Agent"} {
		if values := req.R.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	req.d.config.API.ServeHTTP(req.W, r)
	return nil
}

// live returns the full address of a fragment of this page with the parameters on which it depends. It is in full, because a refused form is
// shown at the address to which it was sent.
func (req *pageRequest) live(fragment string, names ...string) string {
	query := url.Values{"fragment": {fragment}}
	for _, name := range names {
		if value := req.Query(name); value != "" {
			query.Set(name, value)
		}
	}
	return req.Path() + "?" + query.Encode()
}
