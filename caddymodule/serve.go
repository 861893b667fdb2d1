package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
)

// startingRetryAfter is the Retry-After of requests that came while the app was starting.
const startingRetryAfter = time.Second

// responder responds to a request with the parts of its configuration, unless it returns an error.
type responder = func(*runtime, http.ResponseWriter, *http.Request) error

// serve is [inApp.handle] for a handler that responds to all its requests.
func (h *inApp) serve(w http.ResponseWriter, r *http.Request, with responder) error {
	handlers.BoundUnread(w, r, h.app.bodyGrace())
	return h.handle(w, r, with)
}

// bodyGrace is how long the server waits for a body that no handler reads; the app may be nil.
func (a *App) bodyGrace() time.Duration {
	if a == nil {
		return handlers.DefaultPace.Grace
	}
	return a.Limits.bodyPace().Grace
}

// handle counts a request and runs with, the handler without Caddy, when the app is ready. It returns the error of with,
// or internal_error if with panicked, in the form in which Caddy passes errors to `handle_errors`.
//
// Without a handle_errors route that has svc_error Caddy responds with the right status and an empty body. That is the
// price of letting operators route errors; Caddyfile.example has the route, and docs/failure-modes.md says so.
func (h *inApp) handle(w http.ResponseWriter, r *http.Request, with responder) (err error) {
	requestsTotal.WithLabelValues(h.name).Inc()
	rt, err := h.app.whenReady(r.Context())
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
	answer := &responseWriter{ResponseWriter: w, r: r}
	defer func() {
		if cause := recover(); cause != nil {
			err = h.app.panicked(answer, r, cause)
		}
	}()
	return routable(with(rt, answer, r))
}

// panicked turns a handler's panic into internal_error. If the response has begun, it ends the connection instead, so that
// the client doesn't take the response for complete.
func (a *App) panicked(answer *responseWriter, r *http.Request, cause any) error {
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

// errPanicked is the cause in the error; the log has the panic itself.
var errPanicked = errors.New("the handler panicked")

// responseWriter records whether the response has begun.
type responseWriter struct {
	http.ResponseWriter

	r     *http.Request
	begun bool
}

// connKey is the context key of a request's connection.
type connKey struct{}

// rememberConn lets requests to the server that is provisioned find their connection.
func rememberConn(ctx caddy.Context) {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok {
		return // outside of a site
	}
	server.RegisterConnContext(func(ctx context.Context, conn net.Conn) context.Context {
		if ctx.Value(connKey{}) != nil { // another handler of the server has registered this
			return ctx
		}
		return context.WithValue(ctx, connKey{}, conn)
	})
}

// HangUp implements [handlers.HangUpper]: the deadline of an HTTP/2 stream ends nothing if the connection can't be written to.
func (w *responseWriter) HangUp() func() {
	conn, ok := w.r.Context().Value(connKey{}).(net.Conn)
	if !ok || w.r.ProtoMajor != 2 {
		return nil
	}
	return func() { _ = conn.Close() }
}

var _ handlers.HangUpper = (*responseWriter)(nil)

func (w *responseWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets an [http.ResponseController] find the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// routable wraps a handler's error in Caddy's, which carries the status to access logs and matchers of error routes.
// caddyhttp.Error would add an id, which our request id replaces, and a stack position, which would cost every 401 and
// 429 some time.
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

// errNotWorking makes a worker's process unready.
var errNotWorking = errors.New("the worker is not running")

// isReady reports whether the store is ready and a has a runtime.
func (a *App) isReady() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// readiness checks the store and, in a worker's process, its loop. While the app starts it waits, as requests do, as long
// as the probe has time: Caddy starts apps in random order, so on a reload a probe can come before its configuration has
// the store, and must not take the node out of its load balancer.
type readiness struct{ app *App }

func (p readiness) Ping(ctx context.Context) error {
	rt, err := p.app.whenReady(ctx)
	if err != nil {
		return err
	}
	if p.app.worker != nil && !p.app.worker.running.Load() {
		return errNotWorking
	}
	return rt.shared.db.Ping(ctx)
}

// The probes of [Health].
const (
	probeLive  = "live"
	probeReady = "ready"
)

// Health serves the probes of an orchestrator or load balancer. It belongs on a private listener, because it needs no key,
// and its bodies don't have the form of the public interface.
//
// Syntax:
//
//	svc_health [<matcher>] [live|ready]
type Health struct {
	// The probe that this handler serves: `live` responds with 200 as long as the process responds at all, `ready` with 200
	// when requests should be sent here, and 503 while the store is not ready or the process is about to end. Default:
	// the last part of the request's path; other paths end with 404.
	Probe string `json:"probe,omitempty"`

	inApp

	health *handlers.Health
}

// CaddyModule returns the Caddy module information.
func (*Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_health", New: func() caddy.Module { return new(Health) }}
}

// UnmarshalCaddyfile reads the directive.
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Probe = d.Val()
		if h.Probe == "" {
			return d.Errf("svc_health: the probe is empty; allowed: %s, %s", probeLive, probeReady)
		}
	}
	if err := h.probeFault(); err != nil {
		return d.WrapErr(err)
	}
	if d.NextArg() {
		return d.Errf("svc_health takes at most one probe, found %s", config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		return d.Errf("svc_health takes no block, found %s", config.Quoted(d.Val()))
	}
	return nil
}

func (h *Health) probeFault() error {
	if !slices.Contains([]string{"", probeLive, probeReady}, h.Probe) {
		return fmt.Errorf("svc_health: %s is not a probe; allowed: %s, %s", config.Quoted(h.Probe), probeLive, probeReady)
	}
	return nil
}

// Provision finds the app.
func (h *Health) Provision(ctx caddy.Context) error {
	if err := h.probeFault(); err != nil {
		return err
	}
	if err := h.inApp.Provision(ctx); err != nil {
		return err
	}
	h.health = &handlers.Health{Store: readiness{h.app}, ShuttingDown: exiting, Version: Version()}
	return nil
}

// ServeHTTP responds to the probe. No handler after it runs.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	switch h.Probe {
	case probeLive:
		return routable(h.health.Live(w, r))
	case probeReady:
		return routable(h.health.Ready(w, r))
	default:
		return routable(h.health.Serve(w, r))
	}
}

// withClientAddress passes the client's address, as Caddy determines it by `trusted_proxies`, to a handler without Caddy.
func withClientAddress(r *http.Request) *http.Request {
	address, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if !ok {
		return r
	}
	return handlers.WithClientAddress(r, address)
}
