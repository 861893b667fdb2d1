package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeak: a gateway that checks its budget and charges later leaks, one that reserves doesn't, and both are told apart.
func TestLeak(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reserves bool
		format   string
		above    int64
	}{
		"reserves":              {true, `{"usage":{"prompt_tokens":4,"completion_tokens":3},"svc":{"charged_micros":"10"}}`, 0},
		"reserves, usage alone": {true, `{"usage":{"prompt_tokens":4,"completion_tokens":3}}`, 0},
		"charges later":         {false, `{"usage":{"prompt_tokens":4,"completion_tokens":3}}`, 5},
	} {
		var mu sync.Mutex
		var spent int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer key" {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			if c.reserves && spent+10 > 95 || spent >= 95 {
				w.WriteHeader(http.StatusPaymentRequired)
				return
			}
			spent += 10
			fmt.Fprint(w, c.format)
		}))
		l := leak{url: server.URL + "/v1/", key: "key", model: "m", calls: 200, parallel: 20, budget: 95, input: 1_000_000, output: 2_000_000}
		result, err := l.run(t.Context())
		server.Close()
		require.NoError(t, err, name)
		require.Equal(t, spent, result.spent, name)
		require.Equal(t, 200, int(result.answered+result.refused[http.StatusPaymentRequired]), name)
		require.Equal(t, c.above, result.above(95), name)
		var text strings.Builder
		l.report(&text, result)
		require.Contains(t, text.String(), fmt.Sprintf("leak = %d\n", c.above), name)
		l.key = "unknown"
		_, err = l.run(t.Context())
		require.ErrorContains(t, err, "no call was answered", name)
	}
}
