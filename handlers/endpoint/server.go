// Package endpoint serves JSON operations that describe themselves: each declares its route, scope, role and the types of its
// body and answer, and [Server] checks the credentials, the rights and the body before the operation runs.
//
// Invariants:
//   - Before the credentials and rights are checked nothing of the request's body is read.
//   - An operation gets a body that fits its schema: bounded in bytes, depth and names, valid UTF-8, without repeated names.
//     Members that no schema has are ignored, and null is the same as absent unless a member may be cleared.
//   - Every error is written by [handlers.WriteError].
//
// It contains no operation of its own.
package endpoint

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

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

	// Describe completes the description of one operation or of all, such as with enumerations of the configuration. It is set
	// before the first request; that of [New] changes nothing.
	Describe func(*huma.OpenAPI)

	mux        *http.ServeMux
	operations []*operation
}

// New returns a server without operations. sessions are the login sessions of people; nil means keys only. bodies is the budget of all request
// bodies and answers in memory; nil means unlimited.
func New(authenticator handlers.Authenticator, sessions *handlers.Sessions, bodies *handlers.ByteBudget) *Server {
	return &Server{
		authenticator: authenticator, sessions: sessions, bodies: bodies, mux: http.NewServeMux(),
		Mount: func(o Operation) Operation { return o }, Describe: func(*huma.OpenAPI) {},
		turns: dispatch.NewTurns(dispatch.Bounds{Places: 1 << 20, Each: OperationsAtATime, Line: OperationsWaiting, Lines: 1 << 20}),
	}
}

// Description describes all operations, with the schemas of their bodies.
func (s *Server) Description() *huma.OpenAPI {
	description := newDescription()
	for _, o := range s.operations {
		o.describe(o.input, o.output, description)
	}
	s.Describe(description)
	return description
}

// Routes lists the operations in the order in which they were registered.
func (s *Server) Routes() []handlers.Route {
	routes := make([]handlers.Route, 0, len(s.operations))
	for _, o := range s.operations {
		routes = append(routes, o.Route)
	}
	return routes
}

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
	answer := &answer{to: w, request: r}
	s.mux.ServeHTTP(answer, r)
	defer answer.room.Close()
	switch {
	case !answer.admitted:
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

// answer keeps the answer of an operation until it is known whether it is an error. [handlers.WriteError] writes errors.
type answer struct {
	// to is the client's response writer.
	to http.ResponseWriter
	// request has the principal once the request is admitted: the answer is charged to its organization.
	request *http.Request
	status  int
	// replayed: the answer was given before.
	replayed bool
	body     []byte
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

// Header implements [http.ResponseWriter], for the mux. Its own responses (404, 405, a redirect to a cleaner path) are dropped.
func (*answer) Header() http.Header { return http.Header{} }

func (*answer) WriteHeader(int) {}

func (*answer) Write(text []byte) (int, error) { return len(text), nil }

// send writes the answer to the client.
func (a *answer) send(bodies *handlers.ByteBudget) error {
	if a.replayed {
		handlers.MarkReplayed(a.to.Header())
	}
	if a.room == nil {
		return bodies.Send(a.to, a.request, a.status, "application/json", a.body)
	}
	a.room.Send(a.to, a.status, "application/json", a.body)
	return nil
}

// newDescription returns a description without operations.
func newDescription() *huma.OpenAPI {
	config := huma.DefaultConfig("caddy-svc", "1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // they would add $schema to every answer's schema
	config.AllowAdditionalPropertiesByDefault = true
	config.Components.Schemas = huma.NewMapRegistry(SchemaPrefix, SchemaName)
	return huma.NewAPI(config, nil).OpenAPI()
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
