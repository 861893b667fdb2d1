package endpoint

import (
	"context"

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
}

// Spec implements [Any].
func (o Op[D, I, O]) Spec() Operation { return o.Operation }

// Fields implements [Any].
func (o Op[D, I, O]) Fields() []Field { return fieldsOf[I]() }

// Run implements [Any].
func (o Op[D, I, O]) Run(ctx context.Context, d D, principal *identity.Principal, values Values) (body any, err error) {
	in, err := decodeValues[I](values)
	if err != nil {
		return nil, err
	}
	out, err := o.Ask(ctx, d, principal, in)
	if err != nil {
		return nil, err
	}
	if answer, ok := any(out).(interface{ content() any }); ok {
		return answer.content(), nil
	}
	return nil, nil
}

// Ask runs the operation for a principal, whose rights it checks. The caller has checked the input. Its errors are the same as for a request.
func (o Op[D, I, O]) Ask(ctx context.Context, d D, principal *identity.Principal, in *I) (*O, error) {
	if err := checkRights(principal, o.Route); err != nil {
		return nil, err
	}
	if o.Check != nil {
		if err := o.Check(ctx); err != nil {
			return nil, err
		}
	}
	return o.Do(d, handlers.WithPrincipal(ctx, *principal), principal, in)
}
