package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
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

// ping checks the store and, in a worker's process, its loop. While the app starts it waits, as requests do, as long
// as the probe has time: Caddy starts apps in random order, so on a reload a probe can come before its configuration has
// the store, and must not take the node out of its load balancer.
func (a *App) ping(ctx context.Context) error {
	rt, err := a.whenReady(ctx)
	if err != nil {
		return err
	}
	if a.worker != nil && !a.worker.running.Load() {
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
	return noBlock(d, "svc_health", "")
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
	h.health = &handlers.Health{Ping: h.app.ping, ShuttingDown: exiting, Version: Version()}
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

// Error writes the error body that clients expect. In `handle_errors` it writes the error of the request: one of our handlers
// unchanged, one of Caddy's by its status, any other as 500 `internal_error`. As an ordinary handler it writes 404
// `not_found`, so it belongs in the last `handle` of a site. If the configuration has svc_docs, the body links to the
// explanation of its code.
//
// It also logs the cause, which the body doesn't have, with the request id, because Caddy logs handled errors at debug level
// only: faults of the service at error level, refused requests of an organization at info level with the ids of organization and
// key, of each code the first 60 in a minute, and all other refused requests at debug level. Requests that are refused because the
// store is overloaded are logged at debug level, too: the store logs when the overload begins and ends.
//
// Syntax:
//
//	svc_error [<matcher>]
type Error struct {
	noOptions

	log *slog.Logger
}

// CaddyModule returns the Caddy module information.
func (*Error) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.svc_error", New: func() caddy.Module { return new(Error) }}
}

func (*Error) needsApp() bool { return false }

// Provision finds the app if it is configured.
func (h *Error) Provision(ctx caddy.Context) error {
	h.log = plainLogger(ctx, ctx.Logger().Name())
	app, err := configured[App](ctx, appName)
	if err != nil {
		return fmt.Errorf("svc_error: %w", err)
	}
	h.app = app
	return nil
}

// ServeHTTP writes the error body; no handler after it runs.
func (h *Error) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	cause, routed := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if !routed {
		cause = handlers.ServeNotFound(w, r)
	}
	handlers.BoundUnread(w, r, h.app.bodyGrace())
	answer := publicError(cause)
	r, _ = handlers.EnsureRequestID(w, r)
	reportFailure(h.log, r, answer, callerOf(r, answer))
	docs := "" // the address of the page that explains errors
	if h.app != nil && h.app.docsMounted.Load() {
		docs = openapi.URL(h.app.BaseURL)
	}
	handlers.WriteError(w, r, answer, docs)
	return nil
}

// Parts of paths. Our paths match plainPath, and no part of them is as long as longPart.
var (
	plainPath = regexp.MustCompile(`^[\w./~-]{0,200}`)
	longPart  = regexp.MustCompile(`[\w.~-]{41,}`)
)

// loggedPath returns the part of a path that a log may show: a client may have put a key into it, or a query with wrong signs.
// Caddyfile.example does the same for Caddy's own lines. Redaction comes first, since a cut could leave a short part of a key.
func loggedPath(path string) string {
	return plainPath.FindString(longPart.ReplaceAllString(path, "REDACTED"))
}

// publicError returns the error that the client gets for cause.
func publicError(cause error) *handlers.Error {
	if answer, ok := errors.AsType[*handlers.Error](cause); ok && answer.Code.Status() != 0 {
		return answer
	}
	if failed, ok := errors.AsType[caddyhttp.HandlerError](cause); ok && failed.StatusCode != 0 {
		return handlers.FromStatus(failed.StatusCode, "", cause)
	}
	return handlers.Internal(cause)
}

// reportFailure counts and logs a request that ended with an error body. The log leaves the query out: it may hold a secret, like a webhook's
// verify token.
func reportFailure(log *slog.Logger, r *http.Request, answer *handlers.Error, caller handlers.Caller) {
	failuresTotal.WithLabelValues(string(answer.Code)).Inc()
	level := failureLevel(r, answer, caller)
	if !log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", handlers.RequestIDFrom(r.Context())), slog.String("code", string(answer.Code)),
		slog.Int("status", answer.Code.Status()), slog.String("method", r.Method), slog.String("path", loggedPath(r.URL.Path)),
		slog.Any("error", answer),
	}
	for _, who := range []slog.Attr{
		slog.String("org_id", caller.OrgID), slog.String("key_id", caller.KeyID), slog.String("user_id", caller.UserID),
	} {
		if who.Value.String() != "" {
			attrs = append(attrs, who)
		}
	}
	log.LogAttrs(r.Context(), level, "request failed", attrs...)
}

// refusalsPerMinute bounds the lines at info level about refused requests of one organization with one code. It keeps an
// organization that repeats a refused request from filling the disk.
const refusalsPerMinute = 60

// refusals counts the lines of this minute, for all configurations of the process.
var refusals refusalCount

// refusalCount counts refused requests by organization and code in the present minute.
type refusalCount struct {
	mu     sync.Mutex
	minute int64
	counts map[refusal]int
}

type refusal struct {
	orgID string
	code  errcode.Code
}

// few counts a refused request, and reports whether it is among the first of its minute.
func (c *refusalCount) few(of refusal, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if minute := now.Unix() / 60; c.counts == nil || minute != c.minute {
		c.minute, c.counts = minute, make(map[refusal]int)
	}
	c.counts[of]++
	return c.counts[of] <= refusalsPerMinute
}

// failureLevel returns the level at which a failed request is logged: error for a fault of the service, info for a refused request of
// an organization, of which an operator may be asked, and debug for everything else, such as requests of strangers.
func failureLevel(r *http.Request, answer *handlers.Error, caller handlers.Caller) slog.Level {
	// A client that has left gets no answer, so whatever happened to its request after that is no fault.
	gone := r.Context().Err() != nil
	switch {
	case gone || errors.Is(answer, store.ErrOverloaded):
		return slog.LevelDebug
	case answer.Code.Status() >= http.StatusInternalServerError:
		return slog.LevelError
	case caller.OrgID != "" && refusals.few(refusal{caller.OrgID, answer.Code}, time.Now()):
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// callerOf returns who sent a failed request: the error has it for endpoint groups and requests that svc_auth refused, the placeholders
// of svc_auth for all others.
func callerOf(r *http.Request, answer *handlers.Error) handlers.Caller {
	if answer.Caller.OrgID != "" {
		return answer.Caller
	}
	var caller handlers.Caller
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		caller.OrgID, _ = repl.GetString(orgPlaceholder)
		caller.KeyID, _ = repl.GetString(keyPlaceholder)
	}
	return caller
}
