package handlers

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// MaxAPIBody is the largest body that the endpoint groups read: room for instructions of 100,000 characters that are
// escaped to 6 bytes each.
const MaxAPIBody = 1 << 20

// maxPublicBody is the largest body that public routes read: a login, a one-time link, a visitor's earlier token.
const maxPublicBody = 16 << 10

// routeKey is where an operation keeps its [Route].
const routeKey = "route"

// operation is what the interface description and the checks need to know about a route.
type operation struct {
	Route

	// id names the operation in the interface description.
	id string
	// status of the answer; 0 means 201 for POST, 204 for DELETE, else 200 (design §6 "groups' conventions").
	status int
	// maxBody is the largest body in bytes, 0 for [MaxAPIBody], or for 16 KiB on public routes.
	maxBody int64
	// stream: the answer is the stream of spec §2.6.
	stream bool
	// content describes the answer, by media type, where the framework can't see it; nil lets it look.
	content map[string]*huma.MediaType
}

func (o operation) answers() int {
	switch {
	case o.status != 0:
		return o.status
	case o.Method == http.MethodPost:
		return http.StatusCreated
	case o.Method == http.MethodDelete:
		return http.StatusNoContent
	default:
		return http.StatusOK
	}
}

func (o operation) bodyBytes() int64 {
	switch {
	case o.maxBody != 0:
		return o.maxBody
	case o.Public:
		return maxPublicBody
	default:
		return MaxAPIBody
	}
}

// responses describe what the framework would describe wrongly, its own error body, or not at all.
func (o operation) responses() map[string]*huma.Response {
	responses := map[string]*huma.Response{"default": {Description: "Error"}}
	if o.content != nil {
		responses["200"] = &huma.Response{Description: "OK", Content: o.content}
	}
	if o.stream {
		responses["200"] = &huma.Response{
			Description: "OK",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	return responses
}

// noBody is the answer of a DELETE.
type noBody struct{}

// jsonBody is an answer with a body.
type jsonBody[T any] struct{ Body T }

// register adds an operation. I holds the parameters and the body by the framework's rules; O is [jsonBody] or [noBody].
func register[I, O any](
	a *API, o operation, serve func(ctx context.Context, caller *identity.Principal, in *I) (*O, error),
) {
	a.routes = append(a.routes, o.Route)
	registered := huma.Operation{
		OperationID: o.id, Method: o.Method, Path: o.Path, Summary: o.Summary, DefaultStatus: o.answers(),
		Metadata:     map[string]any{routeKey: o.Route},
		MaxBodyBytes: o.bodyBytes() + 1, // admit checks; the framework refuses a body of exactly this size
		Responses:    o.responses(),
	}
	huma.Register(a.huma, registered, func(ctx context.Context, in *I) (*O, error) {
		if decoded, ok := ctx.Value(decodedKey{}).(func()); ok {
			decoded()
		}
		caller, ok := PrincipalFrom(ctx)
		if !ok && !o.Public {
			return nil, &refusal{Internal(errors.New("an operation runs without a principal"))}
		}
		out, err := serve(ctx, &caller, in)
		if err != nil {
			return nil, &refusal{err}
		}
		return out, nil
	})
}

// admit is the one place where the rights to an operation are checked, and its body is read. It runs before the framework
// looks at anything.
func (a *API) admit(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	answer, ok := w.(*apiAnswer)
	if !ok || r.Method != ctx.Operation().Method {
		return // The mux serves HEAD with what GET has.
	}
	answer.admitted = true
	route, ok := ctx.Operation().Metadata[routeKey].(Route)
	if !ok || route.Scope == "" && route.Role == "" && !route.Public {
		answer.err = Internal(errors.New("an operation has no scope and no role"))
		return
	}
	r, err := a.letIn(answer.to, r, route)
	if err != nil {
		answer.err = err
		return
	}
	if id := r.PathValue("id"); id != "" && !wellFormedID(id) {
		answer.err = NotFound("There is nothing with this id.")
		return
	}
	if strings.HasPrefix(route.Path, widgetPath) {
		if _, answer.err = visitFrom(r.Context()); answer.err != nil {
			return // what a visitor sends is read when their token was checked
		}
	}
	if ctx.Operation().RequestBody != nil {
		body, release, err := ReadBody(answer.to, r, ctx.Operation().MaxBodyBytes-1, a.Bodies)
		defer release()
		if err != nil {
			answer.err = err
			return
		}
		done, err := a.Bodies.Decoding(r.Context(), len(body))
		if err != nil {
			answer.err = err
			return
		}
		// The framework decodes the body before it serves, and nothing refers to it from then on: an answer may be a stream.
		decoded := sync.OnceFunc(func() { done(); release() })
		defer decoded()
		schema := ctx.Operation().RequestBody.Content["application/json"].Schema
		if body, err = readObject(body, schema, a.huma.OpenAPI().Components.Schemas); err != nil {
			answer.err = err
			return
		}
		r = withJSON(r.WithContext(context.WithValue(r.Context(), decodedKey{}, decoded)), body)
	}
	next(humago.NewContext(ctx.Operation(), r, answer))
}

// decodedKey is where a request has the function that ends its decoding.
type decodedKey struct{}

// withJSON is the request with another body. Any Content-Type is accepted (design §6), so the framework sees the right one.
func withJSON(r *http.Request, body []byte) *http.Request {
	replaced := *r
	replaced.Header = r.Header.Clone()
	replaced.Header.Set("Content-Type", "application/json")
	replaced.Body = io.NopCloser(bytes.NewReader(body))
	replaced.ContentLength = int64(len(body))
	return &replaced
}
