package endpoint

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// slow has operations that run until they are let go.
type slow struct {
	*Server

	goOn    chan struct{}
	answers sync.WaitGroup
}

// newSlow serves GET /list, POST /list, which has a body, and GET /stream and GET /prepared, which wait when they send.
func newSlow() *slow {
	s := &slow{goOn: make(chan struct{})}
	s.Server = New(handlertest.AuthenticatorFunc(func(_ context.Context, raw string) (identity.Principal, error) {
		p := handlertest.Someone(identity.AgentsRead)
		p.OrgID = raw
		return p, nil
	}), nil, nil)
	wait := func() error { <-s.goOn; return nil }
	operation := func(method, path string) Operation {
		return Operation{ID: method + path, Status: http.StatusOK, Route: handlers.Route{Method: method, Path: path, Scope: identity.AgentsRead}}
	}
	Register(s.Server, operation(http.MethodGet, "/list"), func(context.Context, *identity.Principal, *struct{}) (*JSON[string], error) {
		return Answer("done"), wait()
	})
	Register(s.Server, operation(http.MethodPost, "/list"), func(
		context.Context, *identity.Principal, *struct{ Body struct{} },
	) (*JSON[string], error) {
		return Answer("done"), wait()
	})
	Register(s.Server, operation(http.MethodGet, "/stream"), func(context.Context, *identity.Principal, *struct{}) (*Stream, error) {
		return Streamed(func(http.ResponseWriter, *http.Request) error { return wait() }), nil
	})
	Register(s.Server, operation(http.MethodGet, "/prepared"), func(context.Context, *identity.Principal, *struct{}) (*Stream, error) {
		return &Stream{prepare: func(http.ResponseWriter, *http.Request) (func() error, error) { return wait, nil }}, nil
	})
	return s
}

// begin sends n requests of an organization. Each begins when those before it are answered or wait, since even a stream has a turn until it
// begins. begin returns the answers so far.
func (s *slow) begin(ctx context.Context, n int, r func() *http.Request, orgID string) *outcomes {
	o := &outcomes{}
	for range n {
		s.answers.Go(func() {
			r := r().WithContext(ctx)
			r.Header.Set("X-Api-Key", orgID)
			o.add(s.Serve(httptest.NewRecorder(), r))
		})
		synctest.Wait()
	}
	return o
}

// end lets everything go and waits for the answers.
func (s *slow) end() {
	close(s.goOn)
	s.answers.Wait()
}

// outcomes are the errors of requests; nil is an answer.
type outcomes struct {
	mu   sync.Mutex
	errs []error
}

func (o *outcomes) add(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

// all requires that each of the n outcomes is an answer, or has the code.
func (o *outcomes) all(t *testing.T, n int, code errcode.Code) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.errs, n)
	for _, err := range o.errs {
		if code == "" {
			require.NoError(t, err)
			continue
		}
		refused := handlers.AsError(err)
		require.Equal(t, code, refused.Code)
		require.Equal(t, time.Second, refused.RetryAfter)
	}
}

func list() *http.Request { return handlertest.Get("/list") }

// An organization has so many operations running and so many waiting, on whatever path; one more is refused at once, and another
// organization is served as if nobody else asked.
func TestOperationsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		running := s.begin(t.Context(), OperationsAtATime, list, "org_1")
		waiting := s.begin(t.Context(), OperationsWaiting, func() *http.Request {
			return httptest.NewRequest(http.MethodPost, "/list", strings.NewReader("{}"))
		}, "org_1")
		waiting.all(t, 0, "")
		s.begin(t.Context(), 2, list, "org_1").all(t, 2, errcode.RateLimited)
		other := s.begin(t.Context(), OperationsAtATime, list, "org_2")
		other.all(t, 0, "")
		s.end()
		running.all(t, OperationsAtATime, "")
		other.all(t, OperationsAtATime, "")
		s.begin(t.Context(), 1, list, "org_1").all(t, 1, "")
	})
}

// Who waits gives up after TurnWait, or when its client has gone, and leaves its place in the line to others.
func TestOperationsGiveUpWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		running := s.begin(t.Context(), OperationsAtATime, list, "org_1")
		ctx, leave := context.WithCancel(t.Context())
		gone := s.begin(ctx, OperationsWaiting, list, "org_1")
		leave()
		synctest.Wait()
		require.Len(t, gone.errs, OperationsWaiting)
		require.Equal(t, errcode.InternalError, handlers.AsError(gone.errs[0]).Code)
		waiting := s.begin(t.Context(), OperationsWaiting, list, "org_1")
		time.Sleep(TurnWait) //nolint:forbidigo // the fake clock
		synctest.Wait()
		waiting.all(t, OperationsWaiting, errcode.RateLimited)
		s.end()
		running.all(t, OperationsAtATime, "")
	})
}

// An answer that is sent piece by piece has no place while it is sent, in which a client may take as long as it likes.
func TestStreamsHoldNoTurn(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/stream", "/prepared"} {
		synctest.Test(t, func(t *testing.T) {
			s := newSlow()
			const many = 2 * (OperationsAtATime + OperationsWaiting)
			streams := s.begin(t.Context(), many, func() *http.Request { return handlertest.Get(path) }, "org_1")
			streams.all(t, 0, "")
			s.end()
			streams.all(t, many, "")
		})
	}
}
