package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestRateLimitCountsByOrganizationAndPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 18, 500_000_000, time.UTC)
	l := &handlers.RateLimit{
		Limiter: limit.NewMemory(func() time.Time { return now }),
		Plans:   handlertest.PlanLimits{"free": 2},
	}
	h := func(w http.ResponseWriter, r *http.Request) error {
		if err := counted(l)(w, r); err != nil {
			return err
		}
		handlers.WriteJSON(w, http.StatusOK, []byte(`{}`))
		return nil
	}
	for _, remaining := range []string{"1", "0"} {
		w := handlertest.Served(h, handlertest.As(handlertest.Get("/"), handlertest.Someone()))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "2", w.Header().Get("X-Ratelimit-Limit-Requests"))
		require.Equal(t, remaining, w.Header().Get("X-Ratelimit-Remaining-Requests"))
		require.Equal(t, "42s", w.Header().Get("X-Ratelimit-Reset-Requests"))
	}
	a := handlertest.RefusedWith(t, errcode.RateLimited, h, handlertest.As(handlertest.Get("/"), handlertest.Someone()))
	require.EqualValues(t, 42, a.Fields["retryAfter"])
	require.Equal(t, "41500", a.Header.Get("Retry-After-Ms"))
	require.Equal(t, "0", a.Header.Get("X-Ratelimit-Remaining-Requests"))

	other := handlertest.Someone()
	other.OrgID = "org_2"
	handlertest.OkText(t, h, handlertest.As(handlertest.Get("/"), other))
	unlimited := handlertest.Someone()
	unlimited.Plan = "enterprise"
	w := handlertest.Served(h, handlertest.As(handlertest.Get("/"), unlimited))
	require.Equal(t, http.StatusOK, w.Code)
	require.Empty(t, w.Header().Get("X-Ratelimit-Limit-Requests"))

	now = now.Add(42 * time.Second)
	handlertest.OkText(t, h, handlertest.As(handlertest.Get("/"), handlertest.Someone()))
}

// A key with a bound of its own has two limits. A request that the key's bound refuses doesn't count for the organization, nor does one that the
// organization's limit refuses count for the key. The headers show the nearer limit.
func TestRateLimitOfAKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 18, 0, time.UTC)
	l := &handlers.RateLimit{Limiter: limit.NewMemory(func() time.Time { return now }), Plans: handlertest.PlanLimits{"free": 5}}
	key := func(id string, perMinute int64) identity.Principal {
		principal := handlertest.Someone()
		principal.KeyID, principal.KeyPerMinute = id, perMinute
		return principal
	}
	admitted := func(principal identity.Principal, limit, remaining string) {
		t.Helper()
		w := httptest.NewRecorder()
		_, err := l.Serve(w, handlertest.As(handlertest.Get("/"), principal))
		require.NoError(t, err)
		require.Equal(t, []string{limit, remaining},
			[]string{w.Header().Get("X-Ratelimit-Limit-Requests"), w.Header().Get("X-Ratelimit-Remaining-Requests")})
	}
	refused := func(principal identity.Principal, message string) {
		t.Helper()
		a := handlertest.RefusedWith(t, errcode.RateLimited, counted(l), handlertest.As(handlertest.Get("/"), principal))
		require.Contains(t, a.Text, message)
		require.EqualValues(t, 42, a.Fields["retryAfter"])
		require.Equal(t, "0", a.Header.Get("X-Ratelimit-Remaining-Requests"))
	}
	small := key("key_1", 2)
	admitted(small, "2", "1")
	admitted(small, "2", "0")
	for range 9 {
		refused(small, "The API key's limit of 2 requests per minute is reached")
	}
	admitted(key("key_2", 0), "5", "2") // two and this one count
	admitted(key("key_3", 9), "5", "1")
	admitted(key("key_3", 9), "5", "0")
	for range 9 {
		refused(key("key_3", 9), "The limit of 5 requests per minute is reached")
	}
	rich := key("key_3", 9)
	rich.Plan = "enterprise"
	admitted(rich, "9", "6") // two and this one count
	busy := httptest.NewRecorder()
	permit, err := l.Serve(busy, handlertest.As(handlertest.Get("/"), rich))
	require.NoError(t, err)
	permit.Return(busy, handlertest.Get("/"), handlertest.ErrBusy)
	require.Equal(t, "6", busy.Header().Get("X-Ratelimit-Remaining-Requests"))
	admitted(rich, "9", "5")

	l.Counted = true // by the look-up of the key, in its own window
	rich.Permit = store.Permit{Before: 3, Window: 60_000, NowMS: 78_000}
	admitted(rich, "9", "5")
	rich.Permit.Before = 9
	refused(rich, "The API key's limit of 9 requests")
	small.Permit = store.Permit{Before: 0, Window: 60_000, NowMS: 78_000}
	refused(small, "The limit of 5 requests")
}

func TestRateLimitRetryAfterIsNeverBelowOneNorAboveSixty(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{
		1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 59_999 * time.Millisecond: 60, time.Minute: 60, 0: 1, -time.Second: 1,
	} {
		l := &handlers.RateLimit{Plans: handlertest.PlanLimits{"free": 1}, Limiter: handlertest.LimiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
			return limit.Decision{Limit: 1, ResetIn: wait}, nil
		})}
		a := handlertest.RefusedWith(t, errcode.RateLimited, counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone()))
		require.EqualValues(t, want, a.Fields["retryAfter"], wait)
	}
}

// LangChain takes a 429 for permanent when its text has one of these.
func TestRateLimitMessagesDoNotSoundPermanent(t *testing.T) {
	t.Parallel()
	l := &handlers.RateLimit{Plans: handlertest.PlanLimits{"free": 1}, Limiter: handlertest.LimiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
		return limit.Decision{Limit: 1, ResetIn: time.Second}, nil
	})}
	var streams v1.Streams
	_, err := streams.Open("org", 1)
	require.NoError(t, err)
	_, err = streams.Open("org", 1)
	for _, text := range []string{
		handlertest.RefusedWith(t, errcode.RateLimited, counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone())).Text,
		handlertest.Written(t, err, "").Text,
		handlertest.Written(t, handlers.FromStatus(http.StatusTooManyRequests, "", nil), "").Text,
	} {
		for _, words := range []string{"billing", "credit balance", "usage quota", "will reset at", "out of credits", "insufficient quota", "insufficient_quota", "quota"} {
			require.NotContains(t, strings.ToLower(text), words)
		}
	}
}

func TestRateLimitFailureIsOurs(t *testing.T) {
	t.Parallel()
	l := &handlers.RateLimit{Plans: handlertest.PlanLimits{"free": 1}, Limiter: handlertest.LimiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
		return limit.Decision{}, errors.New("connection refused")
	})}
	require.NotContains(t, handlertest.RefusedWith(t, errcode.InternalError, counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone())).Text, "refused")
}

// counted is the counting of a request that no later handler refuses.
func counted(l *handlers.RateLimit) handlers.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, err := l.Serve(w, r)
		return err
	}
}

// TestRefusedByTheStoreIsNotCounted guarantees that a request which the service refuses because its store is busy takes nothing
// from the window, and that every other outcome does.
func TestRefusedByTheStoreIsNotCounted(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, test := range map[string]struct {
		ctx       context.Context
		err       error
		remaining string
	}{
		"well": {t.Context(), nil, "0"}, "bad body": {t.Context(), handlers.InvalidRequest("", "bad"), "0"},
		"fault":       {t.Context(), handlers.Internal(errors.New("disk on fire")), "0"},
		"store busy":  {t.Context(), handlers.Internal(handlertest.ErrBusy), "1"},
		"client left": {gone, handlers.Internal(fmt.Errorf("%w: %w", handlertest.ErrBusy, context.Canceled)), "0"},
	} {
		now := time.Date(2026, 11, 20, 12, 0, 18, 0, time.UTC)
		l := &handlers.RateLimit{Limiter: limit.NewMemory(func() time.Time { return now }), Plans: handlertest.PlanLimits{"free": 1}}
		w := handlertest.Served(func(w http.ResponseWriter, r *http.Request) error {
			permit, err := l.Serve(w, r)
			permit.Return(w, r, test.err)
			return err
		}, handlertest.As(handlertest.Get("/").WithContext(test.ctx), handlertest.Someone()))
		require.Equal(t, test.remaining, w.Header().Get("X-Ratelimit-Remaining-Requests"), name)
		if test.remaining == "0" {
			handlertest.RefusedWith(t, errcode.RateLimited, counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone()))
			continue
		}
		require.Equal(t, http.StatusOK, handlertest.Served(counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone())).Code, name)
	}
	var none handlers.Permit
	none.Return(nil, handlertest.Get("/"), handlertest.ErrBusy)
}

// TestBusyStoreRefusesToCount guarantees that a request that could not be counted gets a Retry-After.
func TestBusyStoreRefusesToCount(t *testing.T) {
	t.Parallel()
	l := &handlers.RateLimit{Plans: handlertest.PlanLimits{"free": 1}, Limiter: handlertest.LimiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
		return limit.Decision{}, handlertest.ErrBusy
	})}
	handlertest.RequireBusy(t, handlertest.RefusedWith(t, errcode.InternalError, counted(l), handlertest.As(handlertest.Get("/"), handlertest.Someone())))
}

// A request that was counted with its key isn't counted again, but by a second limit.
func TestRateLimitOfARequestThatIsCounted(t *testing.T) {
	t.Parallel()
	counts := 0
	l := &handlers.RateLimit{Counted: true, Plans: handlertest.PlanLimits{"free": 2}, Limiter: handlertest.LimiterFunc(
		func(context.Context, string, int64) (limit.Decision, error) {
			counts++
			return limit.Decision{Allowed: true, Limit: 2}, nil
		})}
	principal := handlertest.Someone()
	principal.Permit = store.Permit{Before: 1, Window: 60_000, NowMS: 78_500}
	w := httptest.NewRecorder()
	_, err := l.Serve(w, handlertest.As(handlertest.Get("/"), principal))
	require.NoError(t, err)
	require.Equal(t, "0", w.Header().Get("X-Ratelimit-Remaining-Requests"))
	require.Equal(t, "42s", w.Header().Get("X-Ratelimit-Reset-Requests"))
	principal.Permit.Before = 2
	handlertest.RefusedWith(t, errcode.RateLimited, counted(l), handlertest.As(handlertest.Get("/"), principal))
	require.Zero(t, counts)
	l.Counted = false
	_, err = l.Serve(httptest.NewRecorder(), handlertest.As(handlertest.Get("/"), principal))
	require.NoError(t, err)
	require.Equal(t, 1, counts)
}
