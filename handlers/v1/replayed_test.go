package v1

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// TestReplaysAreMarked in both response forms and on a failure that was charged.
func TestReplaysAreMarked(t *testing.T) {
	t.Parallel()
	for _, body := range []string{plain, stream} {
		for _, replayed := range []bool{true, false} {
			result := handlertest.Completed()
			result.Replayed = replayed
			g := &handlertest.ScriptedCall{Result: result, Pieces: []string{"one"}}
			w, err := post(t, g, body, func(r *http.Request, _ *Chat) { r.Header.Set("Idempotency-Key", "k") })
			require.NoError(t, err)
			require.Equal(t, "k", g.Request.IdempotencyKey)
			require.Equal(t, map[bool]string{true: "true", false: ""}[replayed], w.Header().Get("Idempotent-Replayed"))
		}
	}
	w, err := post(t, &handlertest.ScriptedCall{Fail: &gateway.Failure{Outcome: gateway.OutcomeProviderError, Replayed: true}}, plain)
	require.Error(t, err)
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
}

// TestKeyOutcomes: the three ways a key can be refused.
func TestKeyOutcomes(t *testing.T) {
	t.Parallel()
	for outcome, code := range map[gateway.Outcome]errcode.Code{
		gateway.OutcomeKeyReused: errcode.IdempotencyKeyReused, gateway.OutcomeInFlight: errcode.Conflict, gateway.OutcomeNotKept: errcode.Conflict,
	} {
		_, err := post(t, &handlertest.ScriptedCall{Fail: handlertest.Failed(outcome)}, plain)
		answer, ok := errors.AsType[*handlers.Error](err)
		require.True(t, ok)
		require.Equal(t, code, answer.Code)
	}
}
