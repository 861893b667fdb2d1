package messaging_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	const unstated = 2 * time.Second
	for value, want := range map[string]time.Duration{
		"1": time.Second, "30": 30 * time.Second, "3600": time.Hour, "86400": 24 * time.Hour, "86401": 24 * time.Hour,
		"9223372036854775807": 24 * time.Hour, "99999999999999999999": unstated, "0": unstated, "-5": unstated, "soon": unstated, "": unstated,
	} {
		v := &vendor{status: 429, header: map[string]string{"Retry-After": value}}
		_, err := v.client(t).Send(t.Context(), outgoing(social.ChatApp))
		require.Equal(t, want, requireFailure(t, err).RetryAfter, value)
	}
	for value, want := range map[string]time.Duration{"5": 5 * time.Second, `"7"`: 7 * time.Second, "null": unstated, "{}": unstated} {
		v := &vendor{status: 429, body: `{"ok":false,"error_code":429,"parameters":{"retry_after":` + value + `}}`}
		_, err := v.client(t).Send(t.Context(), outgoing(bot.Type))
		require.Equal(t, want, requireFailure(t, err).RetryAfter, value)
	}
}

// Codes that could hold a secret or an id are not repeated.
func TestCausesShowHarmlessCodesOnly(t *testing.T) {
	t.Parallel()
	for code, shown := range map[string]bool{
		"error_param": true, "common.error_x": true, "-201": true, "131026": true,
		secretToken: false, "165105353": false, "0901234567": false, "Chào": false, "a b": false,
		strings.Repeat("x", 41): false,
	} {
		v := &vendor{status: 400, body: `{"error":"` + code + `","message":"Chào ` + secretToken + `"}`}
		_, err := v.client(t).Send(t.Context(), outgoing(marketa.Type))
		failure := requireFailure(t, err)
		require.Equal(t, shown, strings.Contains(failure.Error(), code), failure.Error())
	}
}

func TestSendErrorSaysWhatHappened(t *testing.T) {
	t.Parallel()
	cause := errors.New("market_a answered with status 403")
	err := error(&platforms.Error{Class: platforms.NeedsReauth, Cause: cause})
	require.EqualError(t, err, "platform call failed (needs_reauth): market_a answered with status 403")
	require.ErrorIs(t, err, cause)
	require.EqualError(t, &platforms.Error{Class: platforms.Retry}, "platform call failed (retry)")
}

// A message whose id can't be stored fails as Unknown: the customer has it, and must not get it twice.
func TestAnUnusableIDIsUnknown(t *testing.T) {
	t.Parallel()
	for _, id := range []string{strings.Repeat("x", platforms.MaxID+1), `a\u0000b`} {
		v := &vendor{status: 200, body: `{"message_id":"` + id + `"}`}
		_, err := v.client(t).Send(t.Context(), outgoing(social.Messenger))
		require.Equal(t, platforms.Unknown, requireFailure(t, err).Class)
	}
}
