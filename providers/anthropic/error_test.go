package anthropic

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

// fails returns the body of an error of the API.
func fails(kind, message string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, kind, message)
}

// coded returns the body of an error of the API with a code.
func coded(kind, code string) string {
	return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"No.","details":{"error_code":%q}}}`, kind, code)
}

// The errors of https://platform.claude.com/docs/en/api/errors, and those that users met.
func TestFaults(t *testing.T) {
	t.Parallel()
	const (
		overloaded, refused, timeout = providers.FailureOverloaded, providers.FailureRefused, providers.FailureTimeout
		tooLong, tooLarge, invalid   = providers.FailureContextTooLong, providers.FailureRequestTooLarge, providers.FailureInvalid
	)
	for _, test := range []struct {
		status               int
		body                 string
		want                 providers.Failure
		permanent, elsewhere bool
		cool                 time.Duration
	}{
		{400, fails("invalid_request_error", "messages.0.content: Field required"), refused, true, false, 0},
		{422, `{"detail":"no"}`, refused, true, false, 0},
		{401, fails("authentication_error", "invalid x-api-key"), refused, true, true, 0},
		{403, fails("permission_error", "Your API key does not have permission"), refused, true, true, 0},
		{404, fails("not_found_error", "model: claude-0"), refused, true, true, 0},
		{409, fails("conflict_error", "no"), refused, false, true, 0},
		{429, fails("rate_limit_error", "This request would exceed your account's rate limit."), overloaded, false, true, 7 * time.Second},
		{429, coded("rate_limit_error", "ramp_limit_exceeded"), overloaded, false, true, 7 * time.Second},
		{500, fails("api_error", "Internal server error"), refused, false, true, 0},
		{500, fails("api_error", "Overloaded"), overloaded, false, true, 0},
		{504, fails("timeout_error", "Request timed out"), timeout, false, true, 0},
		{529, fails("overloaded_error", "Overloaded"), overloaded, false, true, 7 * time.Second},
		{503, `upstream connect error`, overloaded, false, true, 7 * time.Second},
		// The prompt is too long, in the words of Anthropic, Bedrock, MiniMax, DeepSeek and Kimi.
		{400, fails("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"), tooLong, true, false, 0},
		{400, fails("invalid_request_error", "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease"), tooLong, true, false, 0},
		{400, `{"message":"Input is too long for requested model."}`, tooLong, true, false, 0},
		{400, fails("invalid_request_error", "invalid params, context window exceeds limit (2013)"), tooLong, true, false, 0},
		{400, `{"error":{"message":"This model's maximum context length is 131072 tokens.","type":"invalid_request_error"}}`, tooLong, true, false, 0},
		{400, fails("invalid_request_error", "Your request exceeded model token limit: 262144"), tooLong, true, false, 0},
		{413, fails("request_too_large", "Request exceeds the maximum size"), tooLarge, true, false, 0},
		{413, fails("request_too_large", "prompt is too long"), tooLarge, true, false, 0},
		// The same words where they can't mean it.
		{429, fails("rate_limit_error", "prompt is too long for the limit per minute"), overloaded, false, true, 7 * time.Second},
		{400, fails("invalid_request_error", "max_tokens: 99999 > 64000, which is the maximum allowed number of output tokens"), refused, true, false, 0},
		// The operator's account can't pay, whatever the status.
		{400, fails("invalid_request_error", "You have reached your specified API usage limits. You will regain access on 2026-04-01 at 00:00 UTC."), refused, true, true, time.Hour},
		{400, fails("invalid_request_error", "Your credit balance is too low to access the Anthropic API."), refused, true, true, time.Hour},
		{400, coded("invalid_request_error", "organization_on_hold"), refused, true, true, time.Hour},
		{400, fails("invalid_request_error", "This organization has been disabled."), refused, true, true, time.Hour},
		{400, fails("invalid_request_error", "messages.0.content: the text that follows is not allowed here, because of its length and of other things: your credit balance is too low"), refused, true, false, 0},
		{402, fails("billing_error", "no"), refused, true, true, time.Hour},
		{402, ``, refused, true, true, time.Hour},
		{403, fails("billing_error", "no"), refused, true, true, time.Hour},
		{429, coded("rate_limit_error", "enforced_spend_limit_reached"), refused, true, true, time.Hour},
		{429, coded("rate_limit_error", "contract_spend_limit_reached"), refused, true, true, time.Hour},
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, refused, true, true, time.Hour},
		// The client's request ends with the assistant, which models since 2026 refuse.
		{400, fails("invalid_request_error", "This model does not support assistant message prefill. The conversation must end with a user message."), invalid, true, false, 0},
		// Other vendors and relays at the address.
		{404, `{"error":{"message":"Invalid URL (POST /v1/messages)","type":"invalid_request_error","param":null,"code":null}}`, refused, true, true, 0},
		{400, `{"error":"no"}`, refused, true, false, 0},
		{400, `<html>400</html>`, refused, true, false, 0},
		{302, ``, refused, true, true, 0},
		// In a stream there is only a type.
		{200, fails("overloaded_error", "Overloaded"), overloaded, false, true, 0},
		{200, fails("rate_limit_error", "no"), overloaded, false, true, 0},
		{200, fails("api_error", "Overloaded"), overloaded, false, true, 0},
		{200, fails("api_error", "Internal server error"), refused, false, true, 0},
		{200, fails("timeout_error", "no"), timeout, false, true, 0},
		{200, fails("invalid_request_error", "prompt is too long"), tooLong, true, false, 0},
		{200, fails("invalid_request_error", "no"), refused, true, false, 0},
		{200, fails("authentication_error", "no"), refused, true, true, 0},
		{200, fails("request_too_large", "no"), tooLarge, true, false, 0},
		{200, coded("rate_limit_error", "enforced_spend_limit_reached"), refused, true, true, time.Hour},
		{200, fails("an_unknown_error", "no"), refused, false, true, 0},
		{200, fails("an_unknown_error", "The model is overloaded"), overloaded, false, true, 0},
		{200, `{"error":"Overloaded"}`, overloaded, false, true, 0},
		{200, `{"type":"message","content":[]}`, refused, false, true, 0},
	} {
		name := fmt.Sprintf("%d %s", test.status, test.body)
		var header http.Header
		if test.status != http.StatusOK {
			header = http.Header{"Retry-After": {"7"}}
		}
		e := (&dialect{}).Fault(test.status, header, []byte(test.body))
		require.Equal(t, test.want, e.Failure, name)
		require.Equal(t, test.permanent, e.Permanent, name)
		require.Equal(t, test.elsewhere, e.Elsewhere, name)
		require.Equal(t, test.cool, e.Cool, name)
		require.Equal(t, test.want == invalid, e.Invalid != nil, name)
		require.Equal(t, min(test.cool, 7*time.Second)*time.Duration(len(header)) > 0 && test.want == overloaded, e.RetryAfter > 0, name)
	}
}

// An error carries its type, code and text for the log.
func TestFaultDetail(t *testing.T) {
	t.Parallel()
	p := vendor(t, nil, func(*http.Request) (int, string) {
		return 429, coded("rate_limit_error", "contract_spend_limit_reached")
	})
	err := providertest.Ask(t, p, &providers.Request{Model: "m", MaxTokens: 9, Messages: []providers.Message{message("user", "Hi")}}).Err
	e := providertest.RequireFailure(t, err, providers.FailureRefused)
	require.Equal(t, 429, e.Status)
	require.Equal(t, "rate_limit_error: contract_spend_limit_reached: No.", e.Detail)
}

func FuzzFaults(f *testing.F) {
	f.Add([]byte(coded("rate_limit_error", "enforced_spend_limit_reached")), 429, "9")
	f.Add([]byte(`{"error":[{"type":7}]}`), 400, "Fri, 31 Dec 2049 23:59:59 GMT")
	f.Add([]byte("<html>\xff"), 200, "1e99")
	f.Fuzz(func(t *testing.T, body []byte, status int, retry string) {
		e := (&dialect{}).Fault(status, http.Header{"Retry-After": {retry}}, body)
		require.NotEmpty(t, e.Failure)
		if e.RetryAfter != 0 {
			require.Equal(t, providers.FailureOverloaded, e.Failure)
		}
		require.Equal(t, e.Failure == providers.FailureInvalid, e.Invalid != nil)
	})
}
