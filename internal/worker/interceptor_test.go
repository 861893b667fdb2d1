package worker

import (
	"context"
	"sync"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// interceptor lets a test act between the worker and the platforms.
type interceptor struct {
	Platforms
	// before runs before the nth send, from 1.
	before func(n int)

	mu    sync.Mutex
	sends int
}

func (i *interceptor) Send(ctx context.Context, out platforms.Outgoing) (string, error) {
	i.mu.Lock()
	i.sends++
	n := i.sends
	i.mu.Unlock()
	if i.before != nil {
		i.before(n)
	}
	return i.Platforms.Send(ctx, out)
}

// panicker is a gateway that panics in every call.
type panicker struct {
	Gateway

	calls int
}

func (p *panicker) Call(context.Context, *gateway.Request, gateway.Sink) (*gateway.Result, error) {
	p.calls++
	panic("a poisonous message")
}
