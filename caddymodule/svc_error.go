package caddymodule

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Error answers with the error body of the contract (spec §7.1). In `handle_errors` it says what went wrong: an error of
// our own handlers as it is, one of Caddy's by its status, anything else as 500 `internal_error`. As an ordinary handler
// it answers 404 `not_found`, and so belongs into the last `handle` of a site.
//
// It also logs the cause with the request id, because Caddy logs handled errors at debug level only: faults of the
// service at error level, refused requests at debug level. What is refused because too much waits for the store is one
// condition and not a fault for each request: the store logs when it begins and ends, and the requests are logged at debug
// level. The cause never reaches the client. Where the configuration has
// svc_docs, the body says where the error's code is explained.
//
// Syntax:
//
//	svc_error [<matcher>]
type Error struct {
	bare

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (*Error) CaddyModule() caddy.ModuleInfo { return moduleInfo[Error]("svc_error") }

// Provision sets the handler up. It takes the app if there is one, which knows whether the description is mounted: the
// error body is due also where nothing else of ours is configured.
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

// publicError finds what the client may know about an error.
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
	level := zapcore.DebugLevel
	// A client that has left gets no answer, so whatever happened to its request after that is no fault.
	fault := answer.Code.Status() >= http.StatusInternalServerError && !errors.Is(answer, store.ErrOverloaded)
	if fault && r.Context().Err() == nil {
		level = zapcore.ErrorLevel
	}
	if entry := h.logger.Check(level, "request failed"); entry != nil {
		entry.Write(
			zap.String("request_id", id),
			zap.String("code", string(answer.Code)),
			zap.Int("status", answer.Code.Status()),
			zap.String("method", r.Method),
			zap.String("path", r.URL.Path),
			zap.Error(answer),
		)
	}
}

var _ caddy.Provisioner = (*Error)(nil)
