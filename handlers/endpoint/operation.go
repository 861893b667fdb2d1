package endpoint

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// MaxAPIBody is the largest body that the endpoint groups read: room for instructions of 100,000 characters that are
// escaped to 6 bytes each.
const MaxAPIBody = 1 << 20

// MaxPublicBody is the largest body that public routes read: a login, a one-time link, a visitor's earlier token.
const MaxPublicBody = 16 << 10

// operationKey is where the framework's description of an operation keeps the [Operation].
const operationKey = "operation"

// Operation describes a route to the checks and to the interface description.
type Operation struct {
	handlers.Route

	// ID names the operation in the interface description.
	ID string
	// Status of the answer; 0 means 201 for POST, 204 for DELETE, else 200.
	Status int
	// MaxBody is the largest body in bytes. Zero means [MaxAPIBody], and [MaxPublicBody] on public routes.
	MaxBody int64
	// UsualAnswer is the size in bytes of a large answer to a change; 0 means 16 KiB. The room for it is reserved before the operation
	// runs, because a change that is made must be answered. An answer to GET is charged when it is there, and may be refused.
	UsualAnswer int64
	// Stream: the answer is a stream of chunks in the form of POST /v1/chat/completions.
	Stream bool
	// Check runs after the rights were checked and before the body is read; nil checks nothing.
	Check func(ctx context.Context) error
	// Content describes the answer by media type; nil derives it from the operation's type.
	Content map[string]*huma.MediaType
	// Parameters describe parameters and headers that every operation of a server has ([Server.Mount]).
	Parameters []*huma.Param
	// Table is the type of an answer that is a page of a list, or the whole list as CSV. Other answers have none.
	Table reflect.Type
	// Responses describes further responses by their statuses, with schemas of the registry. Nil means none.
	Responses func(schemas huma.Registry) map[string]*huma.Response
}

func (o Operation) answers() int {
	switch {
	case o.Status != 0:
		return o.Status
	case o.Method == http.MethodPost:
		return http.StatusCreated
	case o.Method == http.MethodDelete:
		return http.StatusNoContent
	default:
		return http.StatusOK
	}
}

// reserved returns the bytes to reserve for the answer. Zero means none.
func (o Operation) reserved() int64 {
	if o.Method == http.MethodGet || o.answers() == http.StatusNoContent {
		return 0
	}
	return cmp.Or(o.UsualAnswer, 16<<10)
}

func (o Operation) bodyBytes() int64 {
	if o.Public {
		return cmp.Or(o.MaxBody, MaxPublicBody)
	}
	return cmp.Or(o.MaxBody, MaxAPIBody)
}

// responses returns the descriptions that the framework can't derive from the types, and drops that of its own error body.
func (o Operation) responses(schemas huma.Registry) map[string]*huma.Response {
	responses := map[string]*huma.Response{"default": {Description: "Error"}}
	if o.Table != nil {
		o.Content = map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(o.Table, true, "")},
			"text/csv":         {Schema: &huma.Schema{Type: huma.TypeString}},
		}
	}
	if o.Content != nil {
		responses["200"] = &huma.Response{Description: "OK", Content: o.Content}
	}
	if o.Stream {
		responses["200"] = &huma.Response{
			Description: "OK",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	if o.Responses != nil {
		maps.Copy(responses, o.Responses(schemas))
	}
	return responses
}

// Empty is the answer of a DELETE.
type Empty struct{}

// JSON is an answer with a body.
type JSON[T any] struct{ Body T }

func (j *JSON[T]) content() any { return &j.Body }

// Answer returns the answer with the body.
func Answer[T any](body T) *JSON[T] { return &JSON[T]{body} }

// Made is the answer of an operation that makes something once: 201, or 200 if the same was made before.
type Made[T any] struct {
	Status int
	Body   T
}

func (m *Made[T]) content() any { return &m.Body }

func (*Made[T]) made() reflect.Type { return reflect.TypeFor[T]() }

// Register adds an operation, as [Op] describes it. The framework registers it on a private API on its first request, because the schemas of
// all operations would be most of an idle process's memory, which each garbage collection reads.
func Register[I, O any](s *Server, o Operation, serve func(ctx context.Context, principal *identity.Principal, in *I) (*O, error)) {
	register := func(to huma.API) { register(to, o, serve) }
	s.routes, s.registrations = append(s.routes, o.Route), append(s.registrations, register)
	served := sync.OnceValue(func() *single {
		adapter := new(single)
		framework := huma.NewAPI(frameworkConfig(), adapter)
		framework.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
			s.admit(framework.OpenAPI().Components.Schemas, ctx, next)
		})
		register(framework)
		s.Describe(framework.OpenAPI())
		return adapter
	})
	s.mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) { served().ServeHTTP(w, r) })
}

// single is the framework's adapter for one operation.
type single struct {
	operation *huma.Operation
	serve     func(huma.Context)
}

// Handle implements [huma.Adapter].
func (a *single) Handle(operation *huma.Operation, serve func(huma.Context)) {
	a.operation, a.serve = operation, serve
}

// ServeHTTP implements [huma.Adapter].
func (a *single) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.serve(humago.NewContext(a.operation, r, w))
}

// register registers an operation on an API of the framework.
func register[I, O any](to huma.API, o Operation, serve func(ctx context.Context, principal *identity.Principal, in *I) (*O, error)) {
	schemas := to.OpenAPI().Components.Schemas
	registered := huma.Operation{
		OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, DefaultStatus: o.answers(),
		Metadata:     map[string]any{operationKey: o},
		MaxBodyBytes: o.bodyBytes() + 1, // admit checks; the framework refuses a body of exactly this size
		Responses:    o.responses(schemas), Parameters: o.Parameters,
	}
	if made, ok := any(new(O)).(interface{ made() reflect.Type }); ok {
		registered.Responses["200"] = &huma.Response{
			Description: "It was made before",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(made.made(), true, "")}},
		}
	}
	huma.Register(to, registered, func(ctx context.Context, in *I) (*O, error) {
		if decoded, ok := ctx.Value(decodedKey{}).(func()); ok {
			decoded()
		}
		principal, ok := handlers.PrincipalFrom(ctx)
		if !ok && !o.Public {
			return nil, &refusal{handlers.Internal(errors.New("an operation runs without a principal"))}
		}
		out, err := serve(ctx, &principal, in)
		if err != nil {
			return nil, &refusal{err}
		}
		return out, nil
	})
}

// admit checks the rights to an operation and reads its body. It runs before the framework reads anything.
func (s *Server) admit(schemas huma.Registry, ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	answer, ok := w.(*answer)
	if !ok || r.Method != ctx.Operation().Method {
		return // The mux serves HEAD with what GET has.
	}
	answer.admitted = true
	o, ok := ctx.Operation().Metadata[operationKey].(Operation)
	if !ok || o.Scope == "" && o.Role == "" && !o.Public {
		answer.err = handlers.Internal(errors.New("an operation has no scope and no role"))
		return
	}
	r, permit, err := s.letIn(answer, r, o.Route)
	if err != nil {
		answer.err = err
		return
	}
	answer.request = r
	defer func() { permit.Return(answer.to, r, answer.err) }()
	if id := r.PathValue("id"); id != "" && !handlers.WellFormedID(id) {
		answer.err = handlers.NotFound("There is nothing with this id.")
		return
	}
	if o.Check != nil {
		if answer.err = o.Check(r.Context()); answer.err != nil {
			return
		}
	}
	var (
		body    []byte
		release = func() {}
	)
	if operation := ctx.Operation(); operation.RequestBody != nil {
		body, release, err = handlers.ReadBody(answer.to, r, operation.MaxBodyBytes-1, s.bodies, handlers.AccountOf(r))
	}
	defer release()
	if err != nil {
		answer.err = err
		return
	}
	if answer.leave, answer.err = s.takeTurn(r); answer.err != nil {
		return
	}
	defer answer.leave()
	r, decoded, err := s.decode(schemas, ctx.Operation(), r, body, release)
	defer decoded()
	if err != nil {
		answer.err = err
		return
	}
	if bytes := o.reserved(); bytes > 0 {
		answer.room = handlers.NewRoom(s.bodies, handlers.AccountOf(r))
		if !answer.room.Grow(bytes) {
			answer.err = handlers.NoRoom()
			return
		}
	}
	answer.err = s.once(answer, r, body, func() { next(humago.NewContext(ctx.Operation(), r, answer)) })
}

// decode returns the request with its body in the form that the framework accepts. decoded ends the decoding and releases the body.
func (s *Server) decode(
	schemas huma.Registry, operation *huma.Operation, r *http.Request, body []byte, release func(),
) (_ *http.Request, decoded func(), err error) {
	if operation.RequestBody == nil {
		return r, func() {}, nil
	}
	done, err := s.bodies.Decoding(r.Context(), len(body))
	if err != nil {
		return nil, func() {}, err
	}
	decoded = sync.OnceFunc(func() { done(); release() })
	schema := operation.RequestBody.Content["application/json"].Schema
	if body, err = readObject(body, schema, schemas); err != nil {
		return nil, decoded, err
	}
	// The framework decodes the body before it serves, and nothing refers to it from then on: an answer may be a stream. The framework
	// requires the Content-Type; clients may send any.
	replaced := r.WithContext(context.WithValue(r.Context(), decodedKey{}, decoded))
	replaced.Header = r.Header.Clone()
	replaced.Header.Set("Content-Type", "application/json")
	replaced.Body = io.NopCloser(bytes.NewReader(body))
	replaced.ContentLength = int64(len(body))
	return replaced, decoded, nil
}

// decodedKey is the context key of the function that ends the decoding of the request.
type decodedKey struct{}

// Streamed returns an answer that write sends itself, without a place among the operations that run, because it may go on for minutes. An
// error of write is answered like any other, so write must return nil once it has written.
func Streamed(write func(w http.ResponseWriter, r *http.Request) error) *Stream {
	return prepared(func(w http.ResponseWriter, r *http.Request) (func() error, error) {
		return func() error { return write(w, r) }, nil
	})
}

// Whole returns an answer that read reads in the operation's turn: one with a body, or a [File]. accept is the header Accept. It is empty where
// the operation runs as a function ([Server.Ask]).
func Whole(bodies *handlers.ByteBudget, read func(ctx context.Context, accept string) (answer any, err error)) *Stream {
	stream := prepared(func(w http.ResponseWriter, r *http.Request) (send func() error, err error) {
		answer, err := read(r.Context(), strings.Join(r.Header.Values("Accept"), ","))
		switch answer := answer.(type) {
		case File:
			return func() error { answer(w, r); return nil }, err
		case interface{ content() any }:
			body := handlers.Marshal(answer.content())
			return func() error { return bodies.Send(w, r, http.StatusOK, "application/json", body) }, err
		}
		return nil, err
	})
	stream.whole = func(ctx context.Context) (any, error) { return read(ctx, "") }
	return stream
}

// prepared is [Streamed] for an answer that begins with data of the store: prepare reads that part in the operation's turn and writes nothing,
// and send writes the answer.
func prepared(prepare func(w http.ResponseWriter, r *http.Request) (send func() error, err error)) *Stream {
	return &Stream{Body: func(ctx huma.Context) {
		answer, err := answerOf(ctx)
		if err != nil {
			return // Serve gave no such request to the framework
		}
		r, _ := humago.Unwrap(ctx)
		answer.streamed = true
		answer.room.Close()
		send, err := prepare(answer.to, r)
		answer.leave()
		if err == nil {
			err = send()
		}
		answer.err = err
	}}
}

// Stream is an answer that is written piece by piece.
type Stream struct {
	Body func(huma.Context)

	// whole returns the answer of an operation that runs as a function ([Server.Ask]), where nothing is written. Nil means none.
	whole func(ctx context.Context) (any, error)
}

// File is an answer that writes itself, such as a list with the format csv.
type File func(w http.ResponseWriter, r *http.Request)

// RouteOf returns the route of an operation that was registered here; ok is false for another one.
func RouteOf(o *huma.Operation) (route handlers.Route, ok bool) {
	described, ok := o.Metadata[operationKey].(Operation)
	return described.Route, ok
}

// Repeats lets operators repeat a POST with an Idempotency-Key: it runs once, and a repetition gets the same answer for 24 hours. It is safe
// for use by several processes.
type Repeats struct {
	DB *store.DB
	// Ring seals the kept texts, because they may have a new key.
	Ring *vault.Ring
}

// keepWait bounds the storing of an answer. The client may have gone.
const keepWait = 10 * time.Second

// once serves a request, or repeats the answer to an earlier one with the same Idempotency-Key. A request that failed leaves its key free. If
// the process ends before the answer is stored, a repetition is refused for five minutes and then runs. Each change is one transaction, so an
// earlier request without an answer has done everything or nothing; names, references and external ids show a repetition which of both.
func (s *Server) once(answer *answer, r *http.Request, body []byte, serve func()) error {
	key := ""
	if s.Repeats != nil && r.Method == http.MethodPost {
		var err error
		if key, err = handlers.IdempotencyKey(r.Header); err != nil {
			return err
		}
	}
	if key == "" {
		serve()
		return answer.err
	}
	principal, _ := handlers.PrincipalFrom(r.Context())
	request := store.OperatorRequest{
		Hash:        sha256.Sum256([]byte(principal.OperatorID + " " + key)),
		Fingerprint: sha256.Sum256(fmt.Appendf(nil, "%s\n%s", r.URL.RequestURI(), body)),
	}
	stored, repeated, err := s.Repeats.DB.OperatorRequests.Begin(r.Context(), request)
	switch {
	case errors.Is(err, store.ErrConflict):
		return Refusal(errcode.IdempotencyKeyReused, err, "This Idempotency-Key was used with another request within 24 hours.")
	case err != nil:
		return handlers.Internal(fmt.Errorf("storing an Idempotency-Key: %w", err))
	case repeated:
		return s.Repeats.replay(answer, stored)
	}
	serve()
	if answer.err == nil {
		request.Status, request.Answer = int64(answer.status), s.Repeats.Ring.Seal(answer.body, vault.OperatorAnswer(request.Hash))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepWait)
	defer cancel()
	if err := s.Repeats.DB.OperatorRequests.End(ctx, request); err != nil && answer.err != nil {
		return handlers.Internal(errors.Join(answer.err, fmt.Errorf("freeing an Idempotency-Key: %w", err)))
	}
	return answer.err // a client with its answer needs no kept one
}

// replay gives the answer of a stored request again.
func (k *Repeats) replay(answer *answer, stored store.OperatorRequest) (err error) {
	if stored.Status == 0 {
		return Refusal(errcode.Conflict, nil,
			"A request with this Idempotency-Key runs, or its process has ended. Repeat it for its answer, for up to 5 minutes.")
	}
	if answer.body, err = k.Ring.Open(stored.Answer, vault.OperatorAnswer(stored.Hash)); err != nil {
		return handlers.Internal(fmt.Errorf("opening the answer to an Idempotency-Key: %w", err))
	}
	answer.status = int(stored.Status)
	handlers.MarkReplayed(answer.header)
	return nil
}
