package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/limit"
)

func TestRateLimitCountsByOrganizationAndPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 18, 500_000_000, time.UTC)
	l := &RateLimit{
		Limiter: limit.NewMemory(func() time.Time { return now }),
		Plans:   planLimits{"free": 2},
	}
	h := func(w http.ResponseWriter, r *http.Request) error {
		if err := counted(l)(w, r); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, []byte(`{}`))
		return nil
	}
	for _, remaining := range []string{"1", "0"} {
		w := served(h, as(get("/"), someone()))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "2", w.Header().Get("X-Ratelimit-Limit-Requests"))
		require.Equal(t, remaining, w.Header().Get("X-Ratelimit-Remaining-Requests"))
		require.Equal(t, "42s", w.Header().Get("X-Ratelimit-Reset-Requests"))
	}
	a := refusedWith(t, errcode.RateLimited, h, as(get("/"), someone()))
	require.EqualValues(t, 42, a.fields["retryAfter"])
	require.Equal(t, "41500", a.header.Get("Retry-After-Ms"))
	require.Equal(t, "0", a.header.Get("X-Ratelimit-Remaining-Requests"))

	other := someone()
	other.OrgID = "org_2"
	okText(t, h, as(get("/"), other))
	unlimited := someone()
	unlimited.Plan = "enterprise"
	w := served(h, as(get("/"), unlimited))
	require.Equal(t, http.StatusOK, w.Code)
	require.Empty(t, w.Header().Get("X-Ratelimit-Limit-Requests"))

	now = now.Add(42 * time.Second)
	okText(t, h, as(get("/"), someone()))
}

func TestRateLimitRetryAfterIsNeverBelowOneNorAboveSixty(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{
		1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 59_999 * time.Millisecond: 60, time.Minute: 60, 0: 1, -time.Second: 1,
	} {
		l := &RateLimit{Plans: planLimits{"free": 1}, Limiter: limiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
			return limit.Decision{Limit: 1, ResetIn: wait}, nil
		})}
		a := refusedWith(t, errcode.RateLimited, counted(l), as(get("/"), someone()))
		require.EqualValues(t, want, a.fields["retryAfter"], wait)
	}
}

// LangChain takes a 429 for permanent when its text has one of these (notes/clients.md §2 item 20).
func TestRateLimitMessagesDoNotSoundPermanent(t *testing.T) {
	t.Parallel()
	l := &RateLimit{Plans: planLimits{"free": 1}, Limiter: limiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
		return limit.Decision{Limit: 1, ResetIn: time.Second}, nil
	})}
	var streams Streams
	_, err := streams.Open("org", 1)
	require.NoError(t, err)
	_, err = streams.Open("org", 1)
	for _, text := range []string{
		refusedWith(t, errcode.RateLimited, counted(l), as(get("/"), someone())).text,
		written(t, err, "").text,
		written(t, FromStatus(http.StatusTooManyRequests, "", nil), "").text,
	} {
		for _, words := range []string{"billing", "credit balance", "usage quota", "will reset at", "out of credits", "insufficient quota", "insufficient_quota", "quota"} {
			require.NotContains(t, strings.ToLower(text), words)
		}
	}
}

func TestRateLimitFailureIsOurs(t *testing.T) {
	t.Parallel()
	l := &RateLimit{Plans: planLimits{"free": 1}, Limiter: limiterFunc(func(context.Context, string, int64) (limit.Decision, error) {
		return limit.Decision{}, errors.New("connection refused")
	})}
	require.NotContains(t, refusedWith(t, errcode.InternalError, counted(l), as(get("/"), someone())).text, "refused")
}

// counted is the counting of a request that no later handler refuses.
func counted(l *RateLimit) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		_, err := l.Serve(w, r)
		return err
	}
}

// TestRefusedByTheStoreIsNotCounted guarantees that a request which the service refuses because its store has too much to do
// uses up nothing of the window, and that any other end does.
func TestRefusedByTheStoreIsNotCounted(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, test := range map[string]struct {
		ctx       context.Context
		err       error
		remaining string
	}{
		"well": {t.Context(), nil, "0"}, "bad body": {t.Context(), InvalidRequest("", "bad"), "0"},
		"fault":       {t.Context(), Internal(errors.New("disk on fire")), "0"},
		"store busy":  {t.Context(), Internal(errBusy), "1"},
		"client left": {gone, Internal(fmt.Errorf("%w: %w", errBusy, context.Canceled)), "0"},
	} {
		now := time.Date(2026, 11, 20, 12, 0, 18, 0, time.UTC)
		l := &RateLimit{Limiter: limit.NewMemory(func() time.Time { return now }), Plans: planLimits{"free": 1}}
		w := served(func(w http.ResponseWriter, r *http.Request) error {
			permit, err := l.Serve(w, r)
			permit.Return(w, r, test.err)
			return err
		}, as(get("/").WithContext(test.ctx), someone()))
		require.Equal(t, test.remaining, w.Header().Get("X-Ratelimit-Remaining-Requests"), name)
		if test.remaining == "0" {
			refusedWith(t, errcode.RateLimited, counted(l), as(get("/"), someone()))
			continue
		}
		require.Equal(t, http.StatusOK, served(counted(l), as(get("/"), someone())).Code, name)
	}
	var none Permit
	none.Return(nil, get("/"), errBusy)
}
