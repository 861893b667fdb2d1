package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/caddy-svc/caddy-svc/providers"
)

// errNoEvents is the cause of a call whose adapter returned neither events nor an error.
var errNoEvents = errors.New("the adapter returned nothing")

// open calls the provider's adapter. Here and below, a panic of the adapter fails the call and no other.
func (c *call) open(ctx context.Context) (events providers.Events, err error) {
	defer c.contain(&err)
	events, err = c.provider.Provider.Open(ctx, &c.upstream)
	if events == nil && err == nil {
		err = &providers.Error{Failure: providers.FailureBroken, Cause: errNoEvents}
	}
	return events, err //nolint:wrapcheck // failure wants the provider's own
}

func (c *call) next(events providers.Events) (event providers.Event, err error) {
	defer c.contain(&err)
	return events.Next() //nolint:wrapcheck // failure wants the provider's own
}

func (c *call) buffered(events providers.Events) (more bool, err error) {
	defer c.contain(&err)
	return events.Buffered(), nil
}

func (c *call) closeEvents(events providers.Events) {
	var err error // it is logged, and the call has ended anyway
	defer c.contain(&err)
	events.Close()
}

// contain is deferred around calls of an adapter and turns a panic into an error. The log gets the panic's text only if it is
// the runtime's, because any other may hold a prompt or a key.
func (c *call) contain(err *error) {
	p := recover()
	if p == nil {
		return
	}
	text := fmt.Sprintf("%T", p)
	if fault, ok := p.(runtime.Error); ok {
		text = fault.Error()
	}
	c.Logger.Error("the adapter of a provider panicked", "provider", c.provider.Name, "call", c.id,
		"request_id", c.req.RequestID, "panic", text, "stack", string(debug.Stack()))
	*err = &providers.Error{Failure: providers.FailureBroken, Cause: errors.New("the adapter panicked: " + text)}
}
