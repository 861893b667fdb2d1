package errcode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// contractCodes is the table of docs/contract.md, written out again.
func contractCodes() map[string]int {
	return map[string]int{
		"invalid_request": 400, "unsupported_model": 400, "context_too_long": 400,
		"unauthenticated": 401, "invalid_api_key": 401, "api_key_revoked": 401,
		"insufficient_credits": 402, "organization_suspended": 402, "plan_limit_exceeded": 402,
		"insufficient_scope": 403, "forbidden": 403,
		"not_found": 404,
		"conflict":  409, "idempotency_key_reused": 409,
		"channel_needs_reauth": 422, "service_window_expired": 422, "template_required": 422,
		"rate_limited":   429,
		"internal_error": 500,
		"provider_error": 502, "provider_overloaded": 503, "provider_timeout": 504,
	}
}

func TestCodesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	got := make(map[string]int)
	for _, code := range All() {
		got[string(code)] = code.Status()
	}
	require.Len(t, got, 22)
	require.Equal(t, contractCodes(), got)
	require.Zero(t, Code("made_up").Status())
}
