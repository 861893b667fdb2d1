package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestErrorLogsTheCause looks at both sides of an error: the log has the cause and the request id, the client only the
// request id.
func TestErrorLogsTheCause(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	cause := errors.New("disk on fire")
	for name, test := range map[string]struct {
		ctx   context.Context //nolint:containedctx // a request's
		err   error
		code  string
		level zapcore.Level
	}{
		"ours":              {t.Context(), routable(handlers.Internal(cause)), "internal_error", zapcore.ErrorLevel},
		"unknown":           {t.Context(), cause, "internal_error", zapcore.ErrorLevel},
		"made routable":     {t.Context(), routable(cause), "internal_error", zapcore.ErrorLevel},
		"Caddy's 5xx":       {t.Context(), caddyhttp.Error(http.StatusBadGateway, cause), "internal_error", zapcore.ErrorLevel},
		"Caddy's 4xx":       {t.Context(), caddyhttp.Error(http.StatusForbidden, cause), "forbidden", zapcore.DebugLevel},
		"refused":           {t.Context(), routable(&handlers.Error{Code: errcode.RateLimited, Cause: cause}), "rate_limited", zapcore.DebugLevel},
		"client is gone":    {gone, routable(handlers.Internal(cause)), "internal_error", zapcore.DebugLevel},
		"store overloaded":  {t.Context(), routable(handlers.Internal(errors.Join(cause, store.ErrOverloaded))), "internal_error", zapcore.DebugLevel},
		"file locked":       {t.Context(), routable(handlers.Internal(errors.Join(cause, store.ErrBusy))), "internal_error", zapcore.ErrorLevel},
		"a code of nowhere": {t.Context(), &handlers.Error{Code: "made_up", Cause: cause}, "internal_error", zapcore.ErrorLevel},
	} {
		core, logs := observer.New(zapcore.DebugLevel)
		handler := Error{logger: zap.New(core)}
		ctx := context.WithValue(test.ctx, caddyhttp.ErrorCtxKey, test.err)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/webhooks/social?hub.verify_token="+planted, nil)
		w := httptest.NewRecorder()
		require.NoError(t, handler.ServeHTTP(w, r, nil), name)

		require.Len(t, logs.All(), 1, name)
		entry := logs.All()[0]
		fields := entry.ContextMap()
		require.Equal(t, test.level, entry.Level, name)
		require.Equal(t, test.code, fields["code"], name)
		require.Equal(t, w.Header().Get("X-Request-ID"), fields["request_id"], name)
		require.Contains(t, fields["error"], "disk on fire", name)
		require.NotContains(t, fields["path"], planted, name)
		require.NotContains(t, w.Body.String(), "disk on fire", name)
	}
}
