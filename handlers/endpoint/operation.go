package endpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

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

// operationKey is where the description of an operation keeps the [Operation].
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

// responses returns the responses that can't be derived from the output's type, by status.
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

// describe adds the operation to a description and returns it.
func (o Operation) describe(input, output reflect.Type, to *huma.OpenAPI) *huma.Operation {
	schemas := to.Components.Schemas
	described := &huma.Operation{
		OperationID: o.ID, Method: o.Method, Path: o.Path, Summary: o.Summary, MaxBodyBytes: o.bodyBytes(), Metadata: map[string]any{operationKey: o},
		Parameters: slices.Clone(o.Parameters), Responses: o.responses(schemas),
	}
	eachField(input, nil, func(_ []int, f reflect.StructField, in string) {
		if in == "body" {
			schema := huma.SchemaFromField(schemas, f, o.ID+"Request")
			described.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
			return
		}
		param := &huma.Param{Name: f.Tag.Get(in), In: in, Required: in == "path" || f.Tag.Get("required") == "true"}
		if indexOfParam(described.Parameters, in, param.Name) >= 0 {
			return // every operation of the server has it
		}
		param.Schema = huma.SchemaFromField(schemas, f, "")
		param.Description = param.Schema.Description
		if in == "query" {
			param.Explode = new(bool)
		}
		described.Parameters = append(described.Parameters, param)
	})
	o.describeAnswer(output, described.Responses, schemas)
	to.AddOperation(described)
	return described
}

func indexOfParam(parameters []*huma.Param, in, name string) int {
	return slices.IndexFunc(parameters, func(p *huma.Param) bool { return p.In == in && p.Name == name })
}

// describeAnswer adds the operation's usual answer, from the output's type.
func (o Operation) describeAnswer(output reflect.Type, responses map[string]*huma.Response, schemas huma.Registry) {
	status := strconv.Itoa(o.answers())
	if responses[status] == nil {
		responses[status] = &huma.Response{Description: http.StatusText(o.answers())}
	}
	response := responses[status]
	if field, ok := output.FieldByName("Replayed"); ok {
		response.Headers = map[string]*huma.Header{field.Tag.Get("header"): {Schema: huma.SchemaFromField(schemas, field, "")}}
	}
	if field, ok := output.FieldByName("Body"); ok {
		schema := huma.SchemaFromField(schemas, field, o.ID+"Response")
		if response.Content == nil {
			response.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
		}
		if _, made := output.FieldByName("Status"); made {
			responses["200"] = &huma.Response{Description: "It was made before", Content: response.Content}
		}
	}
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

func (m *Made[T]) state() int { return m.Status }

// operation is an operation of a server.
type operation struct {
	Operation

	input, output reflect.Type
	do            func(ctx context.Context, principal *identity.Principal, in any) (any, error)
	// decoder makes the decoder on first use, because the schemas of all operations would be most of an idle process's memory, which each
	// garbage collection reads.
	decoder func() *decoder
}

// Register adds an operation, as [Op] describes it.
func Register[I, O any](s *Server, o Operation, do func(ctx context.Context, principal *identity.Principal, in *I) (*O, error)) {
	s.register(&operation{
		Operation: o, input: reflect.TypeFor[I](), output: reflect.TypeFor[O](),
		do: func(ctx context.Context, principal *identity.Principal, in any) (any, error) {
			input, _ := in.(*I)
			return do(ctx, principal, input)
		},
	})
}

func (s *Server) register(o *operation) {
	o.decoder = sync.OnceValue(func() *decoder { return o.Operation.decoder(o.input, o.output, s.Describe) })
	s.operations = append(s.operations, o)
	s.mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) {
		if answer, ok := w.(*answer); ok && r.Method == o.Method { // the mux serves HEAD with what GET has
			answer.admitted = true
			answer.err = s.serve(answer, r, o)
		}
	})
}

// serve checks the rights to an operation, reads its input, and runs it.
func (s *Server) serve(answer *answer, r *http.Request, o *operation) (err error) {
	if o.Scope == "" && o.Role == "" && !o.Public {
		return handlers.Internal(errors.New("an operation has no scope and no role"))
	}
	r, permit, err := s.letIn(answer, r, o.Route)
	if err != nil {
		return err
	}
	answer.request = r
	defer func() { permit.Return(answer.to, r, err) }()
	if id := r.PathValue("id"); id != "" && !handlers.WellFormedID(id) {
		return handlers.NotFound("There is nothing with this id.")
	}
	if o.Check != nil {
		if err := o.Check(r.Context()); err != nil {
			return err
		}
	}
	body, release, err := s.readBody(answer.to, r, o)
	defer release()
	if err != nil {
		return err
	}
	if answer.leave, err = s.takeTurn(r); err != nil {
		return err
	}
	defer answer.leave()
	in, err := s.input(r, o, body)
	if err != nil {
		return err
	}
	if bytes := o.reserved(); bytes > 0 {
		answer.room = handlers.NewRoom(s.bodies, handlers.AccountOf(r))
		if !answer.room.Grow(bytes) {
			return handlers.NoRoom()
		}
	}
	return s.once(answer, r, body, func() error {
		release() // nothing refers to the body, and an answer may be a stream
		return o.run(answer, r, in)
	})
}

// readBody reads the body of a request, nil if the operation has none. release is never nil.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, o *operation) (body []byte, release func(), err error) {
	if _, has := o.input.FieldByName("Body"); !has {
		return nil, func() {}, nil
	}
	return handlers.ReadBody(w, r, o.bodyBytes(), s.bodies, handlers.AccountOf(r))
}

// input decodes the input of a request. Without a body it needs no slot.
func (s *Server) input(r *http.Request, o *operation, body []byte) (any, error) {
	if len(body) == 0 {
		return o.decoder().request(r, nil)
	}
	done, err := s.bodies.Decoding(r.Context(), len(body))
	if err != nil {
		return nil, err
	}
	defer done()
	return o.decoder().request(r, body)
}

// run runs an operation and keeps its answer.
func (o *operation) run(answer *answer, r *http.Request, in any) error {
	principal, ok := handlers.PrincipalFrom(r.Context())
	if !ok && !o.Public {
		return handlers.Internal(errors.New("an operation runs without a principal"))
	}
	out, err := o.do(r.Context(), &principal, in)
	if err != nil {
		return err
	}
	if stream, ok := out.(*Stream); ok {
		return stream.write(answer, r)
	}
	answer.status = o.answers()
	if made, ok := out.(interface{ state() int }); ok {
		answer.status = made.state()
	}
	if replayable, ok := out.(interface{ replayed() bool }); ok {
		answer.replayed = replayable.replayed()
	}
	if full, ok := out.(interface{ content() any }); ok {
		answer.body = handlers.Marshal(full.content())
	}
	return nil
}

// Streamed returns an answer that write sends itself, without a place among the operations that run, because it may go on for minutes. An
// error of write is answered like any other, so write must return nil once it has written.
func Streamed(write func(w http.ResponseWriter, r *http.Request) error) *Stream {
	return &Stream{prepare: func(w http.ResponseWriter, r *http.Request) (func() error, error) {
		return func() error { return write(w, r) }, nil
	}}
}

// Whole returns an answer that read reads in the operation's turn: one with a body, or a [File]. accept is the header Accept. It is empty where
// the operation runs as a function ([Server.Ask]).
func Whole(bodies *handlers.ByteBudget, read func(ctx context.Context, accept string) (answer any, err error)) *Stream {
	prepare := func(w http.ResponseWriter, r *http.Request) (send func() error, err error) {
		answer, err := read(r.Context(), strings.Join(r.Header.Values("Accept"), ","))
		switch answer := answer.(type) {
		case File:
			return func() error { answer(w, r); return nil }, err
		case interface{ content() any }:
			body := handlers.Marshal(answer.content())
			return func() error { return bodies.Send(w, r, http.StatusOK, "application/json", body) }, err
		}
		return nil, err
	}
	return &Stream{prepare: prepare, whole: func(ctx context.Context) (any, error) { return read(ctx, "") }}
}

// Stream is an answer that is written piece by piece.
type Stream struct {
	// prepare reads the first data of the store, in the operation's turn, and writes nothing. send writes the answer.
	prepare func(w http.ResponseWriter, r *http.Request) (send func() error, err error)
	// whole returns the answer of an operation that runs as a function ([Server.Ask]), where nothing is written. Nil means none.
	whole func(ctx context.Context) (any, error)
}

func (s *Stream) write(answer *answer, r *http.Request) error {
	answer.streamed = true
	answer.room.Close()
	send, err := s.prepare(answer.to, r)
	answer.leave()
	if err != nil {
		return err
	}
	return send()
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
func (s *Server) once(answer *answer, r *http.Request, body []byte, serve func() error) error {
	key := ""
	if s.Repeats != nil && r.Method == http.MethodPost {
		var err error
		if key, err = handlers.IdempotencyKey(r.Header); err != nil {
			return err
		}
	}
	if key == "" {
		return serve()
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
	err = serve()
	if err == nil {
		request.Status, request.Answer = int64(answer.status), s.Repeats.Ring.Seal(answer.body, vault.OperatorAnswer(request.Hash))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepWait)
	defer cancel()
	if fault := s.Repeats.DB.OperatorRequests.End(ctx, request); fault != nil && err != nil {
		return handlers.Internal(errors.Join(err, fmt.Errorf("freeing an Idempotency-Key: %w", fault)))
	}
	return err // a client with its answer needs no kept one
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
	answer.replayed = true
	return nil
}
