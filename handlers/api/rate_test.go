package api

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// One key's changes end at the bound of its organization, with 429 and Retry-After before the body is read. Its reads, its people
// and other organizations go on.
func TestOneKeyCanNotFloodTheAPI(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Deps.Rates = endpoint.Rates{Windows: limit.NewMemory(apiNow)}
	o.Server = serve(o.Deps)
	for range endpoint.KeyChangesPerMinute {
		handlertest.RefusedWith(t, errcode.NotFound, o.Serve, keyed(http.MethodDelete, "/agents/agt_unknown", "owner"))
	}
	handlertest.RefusedWith(t, errcode.InsufficientScope, o.Serve, keyed(http.MethodPost, "/agents", "none"))
	a := handlertest.RefusedWith(t, errcode.RateLimited, o.Serve, request(http.MethodPost, "/agents", "owner", "{"))
	require.Equal(t, "60", a.Header.Get("Retry-After"))
	handlertest.RefusedWith(t, errcode.RateLimited, o.Serve, keyed(http.MethodDelete, "/api-keys/key_unknown", "test"))
	o.ask(t, http.StatusOK, http.MethodGet, "/agents", "owner", "")
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "user:owner", `{"name":"a","model":"echo/a"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "stranger", `{"name":"a","model":"echo/a"}`)
}

// An organization that has as many of a resource as it may gets 402, and 201 again when one is gone.
func TestMostOfEveryResource(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		for i := range store.MaxAgents {
			id, hash := fmt.Sprint("x_", i), [32]byte{1, byte(i), byte(i >> 8)}
			tx.Queue(1, `INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms, supersede,
				pause_ms, created_at, updated_at) VALUES ($1, 'org_1', $1, 'm', '', FALSE, 0, 0, 0, FALSE, 0, 1, 1)`, id)
			tx.Queue(1, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ($1, 'org_1', 'live', '', 's', $2, 'h', 1)`,
				id, hash[:])
			if i < store.MaxKnowledgeBases {
				tx.Queue(1, `INSERT INTO knowledge_bases (id, org_id, name, description, created_at, updated_at) VALUES ($1, 'org_1', $1, '', 1, 1)`, id)
			}
			if i < store.MaxMembers-3 { // and three people of the fixture
				tx.Queue(1, `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at) VALUES ($1, 'org_1', $1, 'member', 'p', 1, 1)`, id)
			}
		}
		return nil
	}))
	for path, body := range map[string]string{
		"/agents": `{"name":"new","model":"echo/a"}`, "/knowledge-bases": `{"name":"new"}`, "/api-keys": `{"name":"new"}`,
		"/members": `{"email":"new@example.com","role":"member"}`,
	} {
		a := o.refused(t, errcode.PlanLimitExceeded, "", http.MethodPost, path, "user:owner", body)
		require.Contains(t, a.Text, "the most it may have")
		o.ask(t, http.StatusNoContent, http.MethodDelete, path+"/x_7", "user:owner", "")
		o.ask(t, http.StatusCreated, http.MethodPost, path, "user:owner", body)
	}
}

// The playground counts in the window of /v1, by key and by session together, and says so in its headers. Neither is a reason
// to call the model.
func TestPlaygroundCountsWithV1(t *testing.T) {
	t.Parallel()
	o, path, calls := newPlayground(t)
	windows := limit.NewMemory(apiNow)
	o.Deps.Rates.Calls = handlers.RateLimit{Limiter: windows, Plans: handlertest.PlanLimits{"free": 3}}
	o.Server = serve(o.Deps)
	body := `{"messages":[{"role":"user","content":"hi"}]}`
	_, err := windows.Take(t.Context(), "org_1", 3) // a call to /v1
	require.NoError(t, err)
	for i, principal := range []string{"owner", "user:member"} {
		w := handlertest.Served(o.Serve, request(http.MethodPost, path, principal, body))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.Equal(t, string(rune('1'-i)), w.Header().Get("X-Ratelimit-Remaining-Requests"))
	}
	calls.Request = nil
	for _, principal := range []string{"owner", "test", "user:owner"} {
		a := handlertest.RefusedWith(t, errcode.RateLimited, o.Serve, request(http.MethodPost, path, principal, body))
		require.Equal(t, "60", a.Header.Get("Retry-After"))
	}
	require.Nil(t, calls.Request)
	d, err := windows.Take(t.Context(), "org_1", 3)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, time.Minute, d.ResetIn)
	o.ask(t, http.StatusOK, http.MethodGet, "/agents", "owner", "")
}
