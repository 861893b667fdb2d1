package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// room is a bound on bodies as the service's.
type room struct {
	limit      int64
	used, most atomic.Int64
}

func (r *room) Take(n int64) bool {
	if now := r.used.Add(n); now > r.limit {
		r.used.Add(-n)
		return false
	} else if now > r.most.Load() {
		r.most.Store(now)
	}
	return true
}

func (r *room) Give(n int64) { r.used.Add(-n) }

// Forms and what scripts send count against the memory of all requests (S10, design §4 `limits`), and are refused, and not
// half done, when there is no room.
func TestBodiesHaveABound(t *testing.T) {
	t.Parallel()
	const large = 100_000
	text := strings.Repeat("a", large)
	for name, send := range map[string]func(*testing.T, *rooms) *httptest.ResponseRecorder{
		"a form": func(t *testing.T, r *rooms) *httptest.ResponseRecorder {
			return r.submit(t, "/dashboard/agents", url.Values{"name": {"Lan"}, "model": {"echo/a"}, "instructions": {text}})
		},
		"a file": func(t *testing.T, r *rooms) *httptest.ResponseRecorder {
			return r.upload(t, "prices.txt", text, nil)
		},
		"a script": func(t *testing.T, r *rooms) *httptest.ResponseRecorder {
			return r.serve(t, httptest.NewRequest(http.MethodPost, "/dashboard/agents/agt_1/playground/stream",
				strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}]}`)))
		},
		"a form without a session": func(t *testing.T, r *rooms) *httptest.ResponseRecorder {
			r.refuse("GET /session", http.StatusUnauthorized, "unauthenticated", "", "No.")
			return r.submit(t, "/dashboard/agents", url.Values{"instructions": {text}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, limit := range []int64{10 * large, large - 1} {
				r := newRooms(t)
				r.answer("POST /agents", http.StatusCreated, agentJSON)
				r.answer("POST /knowledge-bases/kb_1/documents", http.StatusCreated, `{"id":"doc_2"}`)
				r.answer("POST /agents/agt_1/playground", http.StatusOK, "data: [DONE]\n\n")
				all := &room{limit: limit}
				r.dashboard.config.Bodies = all
				w := send(t, r)
				require.Zero(t, all.used.Load(), "given back")
				if limit > large {
					require.Less(t, w.Code, 500, w.Body.String())
					require.Greater(t, all.most.Load(), int64(large))
					continue
				}
				require.Zero(t, r.count(http.MethodPost), "nothing was asked for")
				if name == "a form without a session" { // keeps nothing of it
					require.Equal(t, http.StatusUnauthorized, w.Code)
					require.NotContains(t, w.Body.String(), text)
					continue
				}
				require.Equal(t, http.StatusInternalServerError, w.Code)
				require.Contains(t, w.Body.String(), "The service has too much to do at the moment. Try again shortly.")
			}
		})
	}
}
