package caddymodule

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

// TestRewrittenDeliveries guarantees that the operator is told, once, of a configuration that gives svc_webhook another path than the
// platform's, since all deliveries then are lost; and of nothing else.
func TestRewrittenDeliveries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		platform, came, is string
		told               bool
	}{
		"as it came":           {"social", "/webhooks/social", "/webhooks/social", false},
		"to something else":    {"social", "/webhooks/social", "/social", true},
		"a channel's":          {"bot", "/webhooks/bot/chn_1", "/bot/chn_1", true},
		"one channel's for us": {"bot", "/webhooks/bot/chn_1", "/webhooks/bot/chn_2", false},
		"into ours":            {"social", "/hooks/social", "/webhooks/social", false},
		"a longer path":        {"social", "/webhooks/social/more", "/social/more", false},
		"somebody's":           {"social", "/hooks/social", "/social", false},
	} {
		var log bytes.Buffer
		handler := &Webhook{Platform: test.platform, inApp: inApp{app: filled(&App{lifecycle: lifecycle{log: slog.New(slog.NewTextHandler(&log, nil)), ctx: t.Context(), ready: make(chan struct{})}})}}
		came := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.came, nil)
		gone, leave := context.WithCancel(context.WithValue(t.Context(), caddyhttp.OriginalRequestCtxKey, *came))
		leave() // the app isn't running
		for range 2 {
			r := httptest.NewRequestWithContext(gone, http.MethodPost, test.is, nil)
			require.Error(t, handler.ServeHTTP(httptest.NewRecorder(), r, nil))
		}
		told := 0
		if test.told {
			told = 1
		}
		require.Equal(t, told, strings.Count(log.String(), "before svc_webhook changes the path of deliveries"), name)
	}
}
