package endpoint

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
)

// Exactly the bound is admitted in each window, and no window takes from another one: of keys, of a person, of all people of an
// organization, each for reads and changes, and each for every organization.
func TestWindowsOfTheAPI(t *testing.T) {
	t.Parallel()
	clock := newClock()
	rates := &Rates{Windows: limit.NewMemory(clock.now)}
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	take := func(p identity.Principal, method string) error {
		_, err := rates.take(w, r, &p, handlers.Route{Method: method, Scope: identity.AgentsWrite})
		return err
	}
	admits := func(p identity.Principal, method string, most int) {
		t.Helper()
		for i := range most {
			require.NoError(t, take(p, method), i)
		}
		refused := handlers.AsError(take(p, method))
		require.Equal(t, errcode.RateLimited, refused.Code)
		require.Equal(t, 48*time.Second, refused.RetryAfter)
		require.Contains(t, refused.Message, "48 seconds")
	}
	person := func(org, id string) identity.Principal {
		return identity.Principal{OrgID: org, UserID: id, Role: identity.Owner}
	}
	for _, org := range []string{"org_1", "org_2"} {
		key := identity.Principal{OrgID: org, KeyID: "key_" + org}
		admits(key, http.MethodPost, KeyChangesPerMinute)
		key.KeyID = "key_other"
		require.Error(t, take(key, http.MethodDelete), "all keys of an organization together")
		admits(key, http.MethodGet, KeyReadsPerMinute)
		for i := range PeopleChangesPerMinute / PersonChangesPerMinute {
			admits(person(org, org+string(rune('a'+i))), http.MethodPatch, PersonChangesPerMinute)
		}
		require.Error(t, take(person(org, org+"new"), http.MethodPut), "all people of an organization together")
		for i := range PeopleReadsPerMinute / PersonReadsPerMinute {
			admits(person(org, org+string(rune('a'+i))), http.MethodGet, PersonReadsPerMinute)
		}
		require.Error(t, take(person(org, org+"new"), http.MethodGet))
	}
	clock.at = clock.at.Add(48 * time.Second) // the next window
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		require.NoError(t, take(identity.Principal{OrgID: "org_1", KeyID: "key_1"}, method))
		require.NoError(t, take(person("org_1", "org_1a"), method))
	}
}

// A model call also counts in the requests per minute of the plan, in the same window as /v1, and is given back when the store is
// too busy for it.
func TestModelCallsCountWithThoseOfV1(t *testing.T) {
	t.Parallel()
	var counted []string
	rates := &Rates{Calls: handlers.RateLimit{
		Limiter: handlertest.LimiterFunc(func(_ context.Context, orgID string, perMinute int64) (limit.Decision, error) {
			counted = append(counted, orgID)
			return limit.Decision{Allowed: len(counted) < 2, Limit: perMinute, ResetIn: time.Second}, nil
		}),
		Plans: handlertest.PlanLimits{"free": 1},
	}}
	p := handlertest.Someone(identity.AllScopes()...)
	r := handlertest.As(httptest.NewRequest(http.MethodPost, "/", nil), p)
	w := httptest.NewRecorder()
	_, err := rates.take(w, r, &p, handlers.Route{Scope: identity.ChatWrite})
	require.NoError(t, err)
	require.Equal(t, "1", w.Header().Get("X-Ratelimit-Limit-Requests"))
	_, err = rates.take(w, r, &p, handlers.Route{Scope: identity.ChatWrite})
	require.Equal(t, errcode.RateLimited, handlers.AsError(err).Code)
	_, err = rates.take(w, r, &p, handlers.Route{Scope: identity.AgentsWrite})
	require.NoError(t, err, "it is no model call")
	require.Equal(t, []string{"org_1", "org_1"}, counted)
}

// clock stands 12 seconds after the beginning of a minute.
type clock struct{ at time.Time }

func newClock() *clock { return &clock{time.Date(2026, 11, 25, 10, 0, 12, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.at }
