package dashboard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The dashboard's own refusals have the contract's error body (docs/contract.md#error-body).
func TestRefusedRelayHasTheErrorBody(t *testing.T) {
	t.Parallel()
	const (
		path = "/dashboard/agents/agt_1/playground/stream"
		id   = "req_00000000000000000000000000"
	)
	for _, c := range []struct {
		name       string
		status     int
		answer     string
		retryAfter string
		want       map[string]any
	}{
		{
			name: "ours", status: http.StatusOK, answer: `{"role":"owner"}`,
			want: map[string]any{"code": "invalid_request", "message": "What was sent can't be read.", "requestId": id},
		},
		{
			name: "signed out", status: http.StatusUnauthorized, answer: `{"error":{"code":"unauthenticated","message":"No.","requestId":"req_api"}}`,
			want: map[string]any{"code": "unauthenticated", "message": "No.", "requestId": id},
		},
		{
			name: "too often", status: http.StatusTooManyRequests, retryAfter: "7",
			answer: `{"error":{"code":"rate_limited","message":"Wait.","requestId":"req_api","retryAfter":7}}`,
			want: map[string]any{
				"code": "rate_limited", "message": "Wait.", "requestId": id, "retryAfter": 7.0,
			},
		},
		{
			name: "a wait that is told in the header only", status: http.StatusBadGateway, retryAfter: "7",
			answer: `{"error":{"code":"provider_error","message":"No.","field":"model","requestId":"req_api"}}`,
			want:   map[string]any{"code": "provider_error", "message": "No.", "field": "model", "requestId": id},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newBareFixture(t)
			header := make(http.Header)
			if c.retryAfter != "" {
				header.Set("Retry-After", c.retryAfter)
			}
			r.answers["GET /session"] = scriptedAnswer{status: c.status, body: c.answer, header: header}
			w := httptest.NewRecorder()
			w.Header().Set("X-Request-Id", id)
			r.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{")))
			var got struct{ Error map[string]any }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, c.want, got.Error)
			require.Equal(t, c.want["requestId"], w.Header().Get("X-Request-Id"))
			require.Equal(t, c.retryAfter, w.Header().Get("Retry-After"))
		})
	}
	w := httptest.NewRecorder()
	newBareFixture(t).dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader("{")))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Regexp(t, `"requestId":"req_[a-z0-9]{26}"`, w.Body.String())
}
