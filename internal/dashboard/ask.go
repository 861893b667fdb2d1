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

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

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

// refuseField returns an error at a field whose input can't be sent to an operation.
func refuseField(name, message string) *handlers.Error {
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
		Message: "The service failed to handle the request. Try again. If it fails again, tell the operator.",
	}
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

// submit runs the operation of a form with the input that was entered and with in.
func (req *pageRequest) submit(o api.Operation, f form, in values) error {
	in, err := f.read(req, in)
	if err != nil {
		return err
	}
	return req.run(o, in)
}
