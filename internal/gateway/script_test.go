package gateway_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// script is a provider that plays steps and keeps the requests it saw.
type script struct {
	// open is what Open fails with, nil to answer.
	open error
	// hangOpen is called by Open, which then waits for begin, if there is one, or the end of its context.
	hangOpen func()
	begin    <-chan struct{}
	// openAfter is waited for by Open.
	openAfter <-chan struct{}
	steps     []step
	// forgetful: requests aren't kept.
	forgetful bool

	mu       sync.Mutex
	requests []providers.Request
	closed   int
}

// step is an event, an error, or a wait for the end of the call's context.
type step struct {
	event providers.Event
	err   error
	hang  bool
	// until is waited for before the next step.
	until <-chan struct{}
	// do is called before the next step.
	do func()
	// panics: the adapter is broken.
	panics bool
}

func text(s string) step   { return step{event: providers.Event{Text: s}} }
func finish(s string) step { return step{event: providers.Event{FinishReason: s}} }
func usage(prompt, completion, cached int64) step {
	return step{event: providers.Event{Usage: &providers.Usage{
		PromptTokens: prompt, CompletionTokens: completion, CachedPromptTokens: cached,
	}}}
}

func broken(f providers.Failure) step {
	return step{err: &providers.Error{Failure: f, Cause: errors.New("vendor text sk-secret")}}
}

func (s *script) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	s.mu.Lock()
	if !s.forgetful {
		s.requests = append(s.requests, *req)
	}
	s.mu.Unlock()
	if s.hangOpen != nil {
		s.hangOpen()
		select {
		case <-s.begin:
		case <-ctx.Done():
			return nil, &providers.Error{Failure: providers.FailureCanceled, Cause: context.Cause(ctx)}
		}
	}
	if s.openAfter != nil {
		<-s.openAfter
	}
	if s.open != nil {
		return nil, s.open
	}
	return &playing{ctx: ctx, script: s, left: s.steps}, nil
}

func (s *script) seen() []providers.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *script) closings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

type playing struct {
	ctx    context.Context //nolint:containedctx // a running answer
	script *script
	left   []step
}

func (p *playing) Next() (providers.Event, error) {
	if len(p.left) == 0 {
		return providers.Event{}, io.EOF
	}
	next := p.left[0]
	if next.hang {
		<-p.ctx.Done()
		return providers.Event{}, &providers.Error{Failure: providers.FailureCanceled, Cause: context.Cause(p.ctx)}
	}
	if next.until != nil {
		<-next.until
		p.left = p.left[1:]
		return p.Next()
	}
	if next.do != nil {
		next.do()
		p.left = p.left[1:]
		return p.Next()
	}
	if next.panics {
		panic("the adapter is broken")
	}
	p.left = p.left[1:]
	return next.event, next.err
}

func (p *playing) Buffered() bool {
	return len(p.left) > 0 && !p.left[0].hang && p.left[0].until == nil
}

func (p *playing) Close() {
	p.script.mu.Lock()
	defer p.script.mu.Unlock()
	p.script.closed++
}

// client is a sink that keeps what it got, and can leave.
type client struct {
	text    []string
	flushes int
	begun   bool
	head    gateway.Head
	// leaveAfter makes the write after so many pieces fail; negative never.
	leaveAfter int
	// onText runs after each piece.
	onText func(pieces int)
	// onFlush runs in each flush.
	onFlush func()
}

func newClient() *client { return &client{leaveAfter: -1} }

func (c *client) Begin(head gateway.Head) error {
	c.head = head
	c.begun = true
	return nil
}

func (c *client) Text(piece string) error {
	if c.leaveAfter >= 0 && len(c.text) >= c.leaveAfter {
		return errors.New("broken pipe")
	}
	c.text = append(c.text, piece)
	if c.onText != nil {
		c.onText(len(c.text))
	}
	return nil
}

func (c *client) Flush() error {
	c.flushes++
	if c.onFlush != nil {
		c.onFlush()
	}
	return nil
}

// quotingClient is a client that takes pieces as they are written.
type quotingClient struct {
	*client

	quoted []string
}

func (c *quotingClient) Quoted(piece providers.JSONString) error {
	c.quoted = append(c.quoted, string(piece))
	return nil
}

func requireFailure(t *testing.T, err error, outcome any) *failure {
	t.Helper()
	f, ok := errors.AsType[*failure](err)
	require.True(t, ok, "want a *Failure, got %T: %v", err, err)
	require.EqualValues(t, outcome, f.Outcome, "%v", err)
	require.NotContains(t, f.Message, "sk-secret", "vendor text reached the public message")
	return f
}
