package caddymodule

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
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
		handler := Error{log: slog.New(zapslog.NewHandler(core))}
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

// TestRefusedRequestsCanBeFound guarantees that the log names organization, key and person of a refused request, wherever it was
// refused, at info level, and only the first 60 of a code in a minute; a stranger's stays at debug level.
func TestRefusedRequestsCanBeFound(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	handler := Error{log: slog.New(zapslog.NewHandler(core))}
	fail := func(err error, placeholders ...string) observer.LoggedEntry {
		t.Helper()
		repl := caddy.NewReplacer()
		for i := 0; i < len(placeholders); i += 2 {
			repl.Set(placeholders[i], placeholders[i+1])
		}
		ctx := context.WithValue(context.WithValue(t.Context(), caddy.ReplacerCtxKey, repl), caddyhttp.ErrorCtxKey, err)
		require.NoError(t, handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/wallet", http.NoBody), nil))
		all := logs.TakeAll()
		require.Len(t, all, 1)
		return all[0]
	}
	broke := routable(&handlers.Error{Code: errcode.InsufficientCredits})
	entry := fail(broke, orgPlaceholder, "org_a", keyPlaceholder, "key_a")
	require.Equal(t, zapcore.InfoLevel, entry.Level)
	require.Equal(t, "org_a", entry.ContextMap()["org_id"])
	require.Equal(t, "key_a", entry.ContextMap()["key_id"])
	require.NotContains(t, entry.ContextMap(), "user_id")
	require.Contains(t, entry.ContextMap()["request_id"], "req_")

	person := handlers.CallerOf(&identity.Principal{OrgID: "org_b", UserID: "usr_b"})
	entry = fail(routable(person.Refused(broke)))
	require.Equal(t, zapcore.InfoLevel, entry.Level)
	require.Equal(t, "org_b", entry.ContextMap()["org_id"])
	require.Equal(t, "usr_b", entry.ContextMap()["user_id"])
	entry = fail(routable(person.Refused(handlers.Internal(nil))))
	require.Equal(t, zapcore.ErrorLevel, entry.Level)
	require.Equal(t, "org_b", entry.ContextMap()["org_id"])

	entry = fail(routable(&handlers.Error{Code: errcode.InvalidAPIKey}))
	require.Equal(t, zapcore.DebugLevel, entry.Level)
	require.NotContains(t, entry.ContextMap(), "org_id")

	logged := 0
	for range 3 * refusalsPerMinute {
		if fail(broke, orgPlaceholder, "org_flood").Level == zapcore.InfoLevel {
			logged++
		}
	}
	require.Contains(t, []int{refusalsPerMinute, 2 * refusalsPerMinute}, logged, "twice as many if a minute began meanwhile")

	var count refusalCount
	now := time.Unix(1_800_000_000, 0)
	of := refusal{"org_a", errcode.RateLimited}
	for range refusalsPerMinute {
		require.True(t, count.few(of, now))
	}
	require.False(t, count.few(of, now.Add(59*time.Second)))
	require.True(t, count.few(refusal{"org_a", errcode.InsufficientCredits}, now), "another code")
	require.True(t, count.few(refusal{"org_b", errcode.RateLimited}, now), "another organization")
	require.True(t, count.few(of, now.Add(time.Minute)))
}
