// Package endpoint serves JSON operations that describe themselves: each declares its route, scope, role and the types of its
// body and answer, and [Server] checks the credentials, the rights and the body before the operation runs.
//
// Invariants:
//   - Before the credentials and rights are checked nothing of the request's body is read.
//   - An operation gets a body that fits its schema: bounded in bytes, depth and names, valid UTF-8, without repeated names.
//     Members that no schema has are ignored, and null is the same as absent unless a member may be cleared.
//   - Every error is written by [handlers.WriteError]; errors that the framework writes by itself are dropped.
//
// It contains no operation of its own.
package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Server serves operations that were registered with [Register]. Every operation has its own scope and role, so Server checks
// the credentials itself and needs no [handlers.Auth] before it. After registration it is immutable and safe for concurrent use.
type Server struct {
	authenticator handlers.Authenticator
	sessions      *handlers.Sessions
	bodies        *handlers.ByteBudget
	turns         *dispatch.Turns
	// Rates bounds how often the operations are used. It is set before the first request.
	Rates Rates
	// Mount returns an operation with its place on this server. It is set before operations are registered; that of [New] changes nothing.
	Mount func(Operation) Operation
	// Complete returns the principal of a request that passed the checks of its rights, with the organization that the path names. Nil changes
	// nothing.
	Complete func(r *http.Request, principal *identity.Principal) (*identity.Principal, error)
	// Repeats keeps the responses to requests with an Idempotency-Key. Nil means that only operations with a [KeyHeader] accept one.
	Repeats *Repeats

	// Describe completes the framework's description of some operations or of all, such as with enumerations of the configuration. It is set
	// before the first request; that of [New] changes nothing.
	Describe func(*huma.OpenAPI)

	mux    *http.ServeMux
	routes []handlers.Route
	// registrations register each operation on an API of the framework.
	registrations []func(huma.API)
	// functions are the operations that were registered as [Op], by their ids.
	functions map[string]function
}

// New returns a server without operations. sessions are the login sessions of people; nil means keys only. bodies is the budget of all request
// bodies and answers in memory; nil means unlimited.
func New(authenticator handlers.Authenticator, sessions *handlers.Sessions, bodies *handlers.ByteBudget) *Server {
	return &Server{
		authenticator: authenticator, sessions: sessions, bodies: bodies, mux: http.NewServeMux(), functions: map[string]function{},
		Mount: func(o Operation) Operation { return o }, Describe: func(*huma.OpenAPI) {},
		turns: dispatch.NewTurns(dispatch.Bounds{Places: 1 << 20, Each: OperationsAtATime, Line: OperationsWaiting, Lines: 1 << 20}),
	}
}

// Description builds the description of all operations by the framework, with the schemas of their bodies.
func (s *Server) Description() *huma.OpenAPI {
	framework := huma.NewAPI(frameworkConfig(), new(single))
	for _, register := range s.registrations {
		register(framework)
	}
	s.Describe(framework.OpenAPI())
	return framework.OpenAPI()
}

// Routes lists the operations in the order in which they were registered.
func (s *Server) Routes() []handlers.Route { return s.routes }

// Known returns an error for a request without a valid key, for handlers beside the operations.
func (s *Server) Known(w http.ResponseWriter, r *http.Request) error {
	r, _ = handlers.EnsureRequestID(w, r)
	_, err := s.principal(r)
	return handlers.Challenge(w, err)
}

// Serve responds to a request. A path or method that no operation has is not_found, with or without a key; HEAD is no GET
// here. For the others the order is: key 401, suspended 402, scope 403, then the request itself.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) error {
	r, _ = handlers.EnsureRequestID(w, r)
	answer := &answer{to: w, request: r, header: make(http.Header)}
	s.mux.ServeHTTP(answer, r)
	defer answer.room.Close()
	switch {
	case !answer.admitted:
		// Drop the mux's own answer: a 404, a 405, or a redirect to a cleaner path.
		return handlers.RouteNotFound(r)
	case answer.err != nil:
		return handlers.Challenge(w, answer.caller.Refused(answer.err))
	case answer.streamed:
	case answer.status == http.StatusNoContent:
		w.WriteHeader(http.StatusNoContent)
	default:
		return answer.send(s.bodies)
	}
	return nil
}

// answer keeps the answer that the framework writes until it is known whether it is an error. [handlers.WriteError] writes errors.
type answer struct {
	// to is the client's response writer.
	to http.ResponseWriter
	// request has the principal once the request is admitted: the answer is charged to its organization.
	request *http.Request
	header  http.Header
	status  int
	body    []byte
	// room is the memory that is reserved for the answer to a change. Other operations have none.
	room *handlers.Room
	// leave gives the operation's place back; it may be called again.
	leave func()
	// admitted: an operation has the path and the method.
	admitted bool
	// streamed: the operation has written its answer to the client itself.
	streamed bool
	err      error
	// caller is set as soon as the key or the session is known.
	caller handlers.Caller
}

// Header returns headers that are not sent. An answer has the headers of [handlers.WriteJSON], and [handlers.HeaderReplayed].
func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) Write(text []byte) (int, error) {
	a.body = append(a.body, text...)
	return len(text), nil
}

// send writes the answer to the client.
func (a *answer) send(bodies *handlers.ByteBudget) error {
	if a.header.Get(handlers.HeaderReplayed) != "" {
		handlers.MarkReplayed(a.to.Header())
	}
	if a.room == nil {
		return bodies.Send(a.to, a.request, a.status, "application/json", a.body)
	}
	a.room.Send(a.to, a.status, "application/json", a.body)
	return nil
}

// frameworkConfig makes the framework leave errors, the description's address and the spelling of JSON to the service. It changes none of the
// framework's package variables.
func frameworkConfig() huma.Config {
	config := huma.DefaultConfig("caddy-svc", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	// The default hook adds $schema members and Link headers to every answer.
	config.CreateHooks = nil
	config.AllowAdditionalPropertiesByDefault = true
	config.Components.Schemas = huma.NewMapRegistry(SchemaPrefix, SchemaName)
	format := huma.Format{
		Marshal: func(w io.Writer, v any) error {
			text := handlers.Marshal(v)
			if answer, whole := w.(*answer); whole && answer.body == nil {
				answer.body = text // nobody else has it, so it need not be copied
				return nil
			}
			_, err := w.Write(text)
			return err
		},
		Unmarshal: func(text []byte, v any) error { return json.Unmarshal(text, v) },
	}
	// The framework looks up "json" for application/problem+json, the type of its own errors.
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Transformers = []huma.Transformer{keepRefusal}
	return config
}

// refusal carries an operation's error through the framework, which requires errors with a status.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// GetStatus is never sent: the error's code decides.
func (*refusal) GetStatus() int { return http.StatusInternalServerError }

// keepRefusal removes errors from the answers that the framework writes. The framework calls it for every answer before encoding it.
func keepRefusal(ctx huma.Context, _ string, v any) (any, error) {
	answer, err := answerOf(ctx)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *refusal:
		answer.err = v.err
	case *huma.ErrorModel:
		answer.err = refusedByFramework(v)
	default:
		return v, nil
	}
	return struct{}{}, nil
}

// answerOf returns the answer that the framework writes to.
func answerOf(ctx huma.Context) (*answer, error) {
	_, w := humago.Unwrap(ctx)
	answer, ok := w.(*answer)
	if !ok {
		return nil, errors.New("the request did not come through API.Serve")
	}
	return answer, nil
}

// refusedByFramework returns the public form of the framework's own errors: of the first parameter or member that breaks its
// rule. The text never quotes the value, which may be a secret.
func refusedByFramework(fault *huma.ErrorModel) *handlers.Error {
	if fault.Status >= http.StatusInternalServerError {
		return handlers.Internal(fmt.Errorf("huma: %w", fault))
	}
	if len(fault.Errors) == 0 {
		return handlers.InvalidRequest("", "The request is not valid: %s.", fault.Detail)
	}
	first := fault.Errors[0]
	in, field, _ := strings.Cut(first.Location, ".")
	if name, missing := requiredMember(first.Message); missing {
		field = strings.TrimPrefix(field+"."+name, ".")
		return handlers.InvalidRequest(field, "%s is required.", field)
	}
	if field == "" {
		return handlers.InvalidRequest("", "The %s is not valid.", in)
	}
	return handlers.InvalidRequest(field, "%s is not valid: %s.", field, first.Message)
}

// requiredMember reads the name out of the framework's words for a member that is missing; the location of that fault is
// the object around it.
func requiredMember(message string) (name string, missing bool) {
	before, after, _ := strings.Cut(validation.MsgExpectedRequiredProperty, "%s")
	name, missing = strings.CutPrefix(message, before)
	if !missing {
		return "", false
	}
	return strings.CutSuffix(name, after)
}

// SchemaPrefix is where the description keeps its schemas.
const SchemaPrefix = "#/components/schemas/"

// SchemaName returns a type's name in the description: Agent for AgentObject, AgentList for a page of them.
func SchemaName(t reflect.Type, hint string) string {
	name := strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Object")
	if element, isList := strings.CutPrefix(name, "ListObject"); isList {
		return element + "List"
	}
	return name
}
