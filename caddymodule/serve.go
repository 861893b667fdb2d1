package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// startingRetryAfter is told to clients whose request waited for the start in vain.
const startingRetryAfter = time.Second

// serve counts a request to a handler and runs its plain form with the runtime of its app, once that is ready, and returns its error in the form in
// which Caddy passes errors to `handle_errors` (design §3).
//
// Without a handle_errors route that has svc_error Caddy answers with the right status and an empty body. That is the
// price of letting operators route errors; Caddyfile.example has the route, and docs/failure-modes.md says so.
func (a *App) serve(
	handler string, w http.ResponseWriter, r *http.Request, h func(*runtime, http.ResponseWriter, *http.Request) error,
) error {
	requestsTotal.WithLabelValues(handler).Inc()
	rt, err := a.whenReady(r.Context())
	if err != nil {
		handlers.EnsureRequestID(w, r)
		return routable(handlers.Busy(startingRetryAfter, err))
	}
	_, leave, err := rt.shared.calls.Enter()
	if err != nil {
		handlers.EnsureRequestID(w, r)
		return routable(handlers.Busy(startingRetryAfter, err))
	}
	defer leave()
	return routable(h(rt, w, r))
}

// routable wraps a plain handler's error into Caddy's, which carries the status to access logs and to matchers of error
// routes. caddyhttp.Error would do the same but for an id and a stack position, which nobody needs beside our request
// id and which every 401 and 429 would pay for.
func routable(err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[*handlers.Error](err)
	if !ok {
		answer = handlers.Internal(err)
	}
	return caddyhttp.HandlerError{StatusCode: answer.Code.Status(), Err: answer}
}

// errNotWorking: the process is there to work, and doesn't.
var errNotWorking = errors.New("the worker is not running")

// storePing is the readiness of the store and, in a worker's process, of its loop. It waits for a start that is under
// way, as requests do, as long as the probe has time: Caddy starts apps in random order, so that on a reload a probe can
// come before its configuration has the store, which must not take the node out of its balancer.
type storePing struct{ app *App }

// Ping implements handlers.Pinger.
func (p storePing) Ping(ctx context.Context) error {
	rt, err := p.app.whenReady(ctx)
	if err != nil {
		return err
	}
	if p.app.worker != nil && !p.app.worker.running.Load() {
		return errNotWorking
	}
	return rt.shared.db.Ping(ctx)
}
