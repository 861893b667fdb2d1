package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
)

// startingRetryAfter is told to clients whose request waited for the start in vain.
const startingRetryAfter = time.Second

// serve is [App.check] for a handler that answers all its requests.
func (a *App) serve(
	handler string, w http.ResponseWriter, r *http.Request, h func(*runtime, http.ResponseWriter, *http.Request) error,
) error {
	handlers.BoundUnread(w, r, a.bodyGrace())
	return a.check(handler, w, r, h)
}

// bodyGrace is how long a body that no handler reads is waited for; the app may be nil.
func (a *App) bodyGrace() time.Duration {
	if a == nil {
		return handlers.DefaultPace.Grace
	}
	return a.Limits.bodyPace().Grace
}

// check counts a request to a handler and runs its plain form with the runtime of its app, once that is ready. It returns
// the handler's error, or the fault of one that panicked, in the form in which Caddy passes errors to `handle_errors`.
//
// Without a handle_errors route that has svc_error Caddy answers with the right status and an empty body. That is the
// price of letting operators route errors; Caddyfile.example has the route, and docs/failure-modes.md says so.
func (a *App) check(
	handler string, w http.ResponseWriter, r *http.Request, h func(*runtime, http.ResponseWriter, *http.Request) error,
) (err error) {
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
	answer := &answerWriter{ResponseWriter: w}
	defer func() {
		if cause := recover(); cause != nil {
			err = a.panicked(answer, r, cause)
		}
	}()
	return routable(h(rt, answer, r))
}

// panicked turns a handler's panic into a fault of the service. When the answer has begun, only the end of the connection
// can say that it is not whole.
func (a *App) panicked(answer *answerWriter, r *http.Request, cause any) error {
	if cause == http.ErrAbortHandler { //nolint:errorlint // a panic's value is never wrapped
		panic(cause)
	}
	_, id := handlers.EnsureRequestID(answer, r)
	a.log.Error("a handler panicked", "request_id", id, "panic", cause, "stack", string(debug.Stack()))
	if answer.begun {
		panic(http.ErrAbortHandler)
	}
	return routable(handlers.Internal(errPanicked))
}

// errPanicked is the cause of an answer; the log has the panic itself.
var errPanicked = errors.New("the handler panicked")

// answerWriter notes whether an answer has begun.
type answerWriter struct {
	http.ResponseWriter

	begun bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *answerWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (w *answerWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b) //nolint:wrapcheck // the caller's own writer
}

// Unwrap lets an [http.ResponseController] find the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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

// withClientAddress tells the plain handlers whom Caddy takes for the client, by its `trusted_proxies`.
func withClientAddress(r *http.Request) *http.Request {
	address, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if !ok {
		return r
	}
	return handlers.WithClientAddress(r, address)
}
