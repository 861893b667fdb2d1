package endpoint

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Op is an operation as a value: its description and what does it. HTTP serves it ([Op.Register]), and a function runs it ([Op.Run]) for pages
// and commands. D holds the dependencies of its group. I holds the parameters and the body by the framework's rules; O is [JSON],
// [Replayable], [Stream] or [Empty].
type Op[D, I, O any] struct {
	Operation

	Do func(d D, ctx context.Context, principal *identity.Principal, in *I) (*O, error)
}

// Any is an [Op] of any input and output.
type Any[D any] interface {
	// Register adds the operation to a server.
	Register(s *Server, d D)
	// Spec describes the operation.
	Spec() Operation
	// Fields are the members of its input.
	Fields() []Field
	// Run runs the operation for a principal, as a request with the values would be, and returns the body of the answer, nil if it has none.
	// Its errors are the same as for a request.
	Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error)
}

// Register implements [Any].
func (o Op[D, I, O]) Register(s *Server, d D) {
	Register(s, o.Operation, func(ctx context.Context, principal *identity.Principal, in *I) (*O, error) {
		return o.Do(d, ctx, principal, in)
	})
	decoder := sync.OnceValue(newDecoder[I])
	s.functions[o.ID] = function{o.Operation, func(ctx context.Context, principal *identity.Principal, values Values) (func() (any, error), error) {
		in, err := decoder().decode(values)
		return func() (any, error) { return o.Do(d, ctx, principal, in) }, err
	}}
}

// Spec implements [Any].
func (o Op[D, I, O]) Spec() Operation { return o.Operation }

// Fields implements [Any].
func (o Op[D, I, O]) Fields() []Field { return fieldsOf[I]() }

// Run implements [Any].
func (o Op[D, I, O]) Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error) {
	in, err := newDecoder[I]().decode(values)
	if err != nil {
		return nil, err
	}
	if err := checkRights(principal, o.Route); err != nil {
		return nil, err
	}
	if o.Check != nil {
		if err := o.Check(ctx); err != nil {
			return nil, err
		}
	}
	out, err := o.Do(d, handlers.WithPrincipal(ctx, *principal), principal, in)
	if err != nil {
		return nil, err
	}
	if answer, ok := any(out).(interface{ content() any }); ok {
		return answer.content(), nil
	}
	return nil, nil
}

// function is an operation of a server that [Server.Ask] runs.
type function struct {
	Operation

	// prepare decodes the values and returns what runs the operation.
	prepare func(ctx context.Context, principal *identity.Principal, values Values) (run func() (any, error), err error)
}

// Person returns the principal of the session of a page's request. A key in a header doesn't count. The error is unauthenticated without a
// session, and forbidden for a change that another site caused.
func (s *Server) Person(r *http.Request) (*identity.Principal, error) {
	principal, err := s.sessions.Principal(r)
	return &principal, err
}

// Ask runs an operation for a page as a request with the values would: with the same checks, rates and turns, and the same errors. The answer
// is the output of the operation's Do. principal is the person of the page's request r ([Server.Person]); public operations need none. A
// request to read a page runs only operations that read. Cookies go to w.
func (s *Server) Ask(
	w http.ResponseWriter, r *http.Request, principal *identity.Principal, id string, values Values,
) (answer any, err error) {
	asked, known := s.functions[id]
	if !known || asked.Method != http.MethodGet && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return nil, handlers.Internal(errors.New("a page can't ask " + id + " in a request with " + r.Method))
	}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &Exchange{w, r}))
	if principal == nil {
		principal = new(identity.Principal)
	}
	if !asked.Public {
		if err := checkRights(principal, asked.Route); err != nil {
			return nil, handlers.CallerOf(principal).Refused(err)
		}
		r = r.WithContext(handlers.WithPrincipal(r.Context(), *principal))
	}
	answer, err = s.run(w, r, principal, asked, values)
	if err != nil {
		return nil, handlers.CallerOf(principal).Refused(err)
	}
	return answer, nil
}

// run counts and runs an operation. The caller has checked the rights.
func (s *Server) run(w http.ResponseWriter, r *http.Request, principal *identity.Principal, asked function, values Values) (answer any, err error) {
	if !asked.Public {
		permit, refused := s.Rates.take(w, r, principal, asked.Route)
		if refused != nil {
			return nil, refused
		}
		defer func() { permit.Return(w, r, err) }()
	}
	if asked.Check != nil {
		if err := asked.Check(r.Context()); err != nil {
			return nil, err
		}
	}
	leave, err := s.takeTurn(r)
	if err != nil {
		return nil, err
	}
	defer leave()
	decoded, err := s.bodies.Decoding(r.Context(), values.size())
	if err != nil {
		return nil, err
	}
	do, err := asked.prepare(r.Context(), principal, values)
	decoded()
	if err != nil {
		return nil, err
	}
	answer, err = do()
	if stream, ok := answer.(*Stream); ok && err == nil {
		if stream.whole == nil {
			return nil, handlers.Internal(errors.New("the answer of " + asked.ID + " is a stream"))
		}
		return stream.whole(r.Context())
	}
	return answer, err
}

// size returns the number of bytes of the values' texts, nearly.
func (v Values) size() (bytes int) {
	for _, value := range v {
		switch value := value.(type) {
		case string:
			bytes += len(value)
		case map[string]any:
			bytes += Values(value).size()
		}
	}
	return bytes
}
