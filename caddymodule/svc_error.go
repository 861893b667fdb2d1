package caddymodule

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-svc/caddy-svc/handlers"
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

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Error) CaddyModule() caddy.ModuleInfo { return moduleInfo[Error]("svc_error") }

// Provision finds the app, if it is configured: the handler also works without it.
func (h *Error) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
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
	r, id := handlers.EnsureRequestID(w, r)
	h.log(r, id, answer)
	countFailure(answer)
	handlers.WriteError(w, r, answer, h.app.docsURL())
	return nil
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

// log leaves the query out: it may hold a secret, like a webhook's verify token.
func (h *Error) log(r *http.Request, id string, answer *handlers.Error) {
	caller := callerOf(r, answer)
	level := zapcore.Level(failureLevel(r, answer, caller) / slog.LevelWarn) // zap's levels are 1 apart, slog's 4
	if entry := h.logger.Check(level, "request failed"); entry != nil {
		fields := []zap.Field{
			zap.String("request_id", id),
			zap.String("code", string(answer.Code)),
			zap.Int("status", answer.Code.Status()),
			zap.String("method", r.Method),
			zap.String("path", r.URL.Path),
			zap.Error(answer),
		}
		for _, who := range callerFields(caller) {
			fields = append(fields, zap.String(who.Key, who.Value.String()))
		}
		entry.Write(fields...)
	}
}

var _ caddy.Provisioner = (*Error)(nil)
