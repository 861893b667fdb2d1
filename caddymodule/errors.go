package caddymodule

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/openapi"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

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
	configured, err := ctx.AppIfConfigured(appName)
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("svc_error: %w", err)
	}
	h.app, _ = configured.(*App)
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
