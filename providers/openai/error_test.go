package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int
		body      string
		want      providers.Failure
		permanent bool
		retry     time.Duration
	}{
		// The prompt is too long, in the words of OpenAI, vLLM, Anthropic, Bedrock, Gemini, llama.cpp, TGI, xAI,
		// MiniMax, LM Studio, Groq, and of OpenRouter, which quotes.
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Your input exceeds the context window of this model.","code":null}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}`, providers.FailureContextTooLong, true, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`, providers.FailureContextTooLong, true, 0},
		{400, "{\"error\":{\"message\":\"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000\"}}", providers.FailureContextTooLong, true, 0},
		{400, `{"message":"Input is too long for requested model."}`, providers.FailureContextTooLong, true, 0},
		{400, `[{"error":{"code":400,"message":"The input token count (218152) exceeds the maximum number of tokens allowed (65536).","status":"INVALID_ARGUMENT"}}]`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, providers.FailureContextTooLong, true, 0},
		{422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096\",\"error_type\":\"validation\"}", providers.FailureContextTooLong, true, 0},
		{400, `{"code":"invalid","error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}`, providers.FailureContextTooLong, true, 0},
		{400, `{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)","http_code":"400"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":"The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length"}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long\"}}"}}}`, providers.FailureContextTooLong, true, 0},
		{0, `{"message":"maximum context length is 4096 tokens","code":400}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Input length (265330) exceeds model's maximum context length (262144).","type":"BadRequestError"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Input length 300000 exceeds the maximum allowed input length of 131072 tokens."}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"The input (66 tokens) is longer than the model's context length (64 tokens)."}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Your request exceeded model token limit: 262144 (requested: 300000)","type":"invalid_request_error"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_invalid_args","code":"3051"}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"prompt too long; exceeded max context length by 12 tokens","type":"api_error"}}`, providers.FailureContextTooLong, true, 0},
		{400, `{"error":{"code":"1261","message":"Prompt exceeds max length"}}`, providers.FailureContextTooLong, true, 0},
		// The same words where they can't mean it.
		{429, `{"message":"Too many tokens, please wait before trying again."}`, providers.FailureOverloaded, false, 0},
		{0, `{"type":"ThrottlingException","message":"Too many tokens, please wait before trying again."}`, providers.FailureOverloaded, false, 0},
		{401, `{"error":{"message":"maximum context length"}}`, providers.FailureRefused, true, 0},
		{413, `{"error":{"message":"prompt is too long"}}`, providers.FailureRequestTooLarge, true, 0},
		{429, `{"error":{"message":"Request too large: input exceeds the token limit per minute. Please try again in 1m6.5s."}}`, providers.FailureOverloaded, false, time.Minute},
		{400, `{"error":{"message":"max_tokens is too large: 99999. This model supports at most 4096 completion tokens"}}`, providers.FailureRefused, true, 0},
		// No money at the vendor's.
		{429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, providers.FailureRefused, true, 0},
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"Spend limit","details":{"error_code":"enforced_spend_limit_reached"}}}`, providers.FailureRefused, true, 0},
		{400, `{"error":{"message":"Your credit balance is too low to access the API"}}`, providers.FailureRefused, true, 0},
		{402, ``, providers.FailureRefused, true, 0},
		// Waiting helps.
		{429, `[{"error":{"code":429,"message":"You exceeded your current quota, check billing. Please retry in 34.6s.","status":"RESOURCE_EXHAUSTED"}}]`, providers.FailureOverloaded, false, 34600 * time.Millisecond},
		{429, `{"error":{"details":[{"@type":"x"},{"retryDelay":"12s"}]}}`, providers.FailureOverloaded, false, 12 * time.Second},
		{429, `{"error":{"message":"Please try again in 20ms."}}`, providers.FailureOverloaded, false, time.Second},
		{429, `{"error":{"message":"Retry after 20 seconds."}}`, providers.FailureOverloaded, false, 20 * time.Second},
		{429, `{"error":{"message":"Try again in 6m0s."}}`, providers.FailureOverloaded, false, time.Minute},
		{429, `<html>429</html>`, providers.FailureOverloaded, false, 0},
		{503, `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`, providers.FailureOverloaded, false, 0},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, providers.FailureOverloaded, false, 0},
		{500, `{"error":{"message":"The server is overloaded"}}`, providers.FailureOverloaded, false, 0},
		{500, `{"error":{"message":"boom"}}`, providers.FailureRefused, false, 0},
		{504, `{"error":{"status":"DEADLINE_EXCEEDED"}}`, providers.FailureTimeout, false, 0},
		{409, ``, providers.FailureRefused, false, 0},
		{302, ``, providers.FailureRefused, true, 0},
		// Inside a stream there is no status.
		{0, `{"message":"x","code":429}`, providers.FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"503"}`, providers.FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"rate_limit_exceeded"}`, providers.FailureOverloaded, false, 0},
		{0, `{"message":"x","status":"UNAVAILABLE"}`, providers.FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"overloaded"}`, providers.FailureOverloaded, false, 0},
		{0, `{"message":"x","type":"timeout_error"}`, providers.FailureTimeout, false, 0},
		{0, `{"message":"x","code":504}`, providers.FailureTimeout, false, 0},
		{0, `{"message":"x","code":502}`, providers.FailureRefused, false, 0},
		{0, `{"message":"x","type":"invalid_request_error"}`, providers.FailureRefused, true, 0},
		{0, `{"message":"x","type":"authentication_error"}`, providers.FailureRefused, true, 0},
		{0, `{"message":"x","code":"model_not_found"}`, providers.FailureRefused, true, 0},
		{0, `"just text"`, providers.FailureRefused, false, 0},
		{0, `"Overloaded"`, providers.FailureOverloaded, false, 0},
		{0, `{}`, providers.FailureRefused, false, 0},
		{0, `7`, providers.FailureRefused, false, 0},
		{0, `false`, providers.FailureRefused, false, 0},
	} {
		e := classify(providers.ReadFault([]byte(test.body)), test.status, nil)
		require.Equal(t, test.want, e.Failure, "%d %s", test.status, test.body)
		require.Equal(t, test.permanent, e.Permanent, "%d %s", test.status, test.body)
		require.Equal(t, test.retry, e.RetryAfter, "%d %s", test.status, test.body)
		require.Equal(t, test.status, e.Status)
	}
}

// TestWhoseFault has an error of each vendor and kind: another endpoint may answer unless the client's request is at fault, and an
// endpoint without money or quota rests for long. How long one with a wrong key or model rests is the gateway's choice.
func TestWhoseFault(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int
		body      string
		elsewhere bool
		cool      time.Duration
	}{
		// A wrong key, account or model.
		{401, `{"error":{"message":"Incorrect API key provided: sk-x.","code":"invalid_api_key"}}`, true, 0},
		{401, ``, true, 0},
		{403, `{"error":{"message":"Project does not have access to model","code":"model_not_found"}}`, true, 0},
		{404, `{"error":{"message":"The model does not exist","code":"model_not_found"}}`, true, 0},
		{404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, true, 0},
		{404, `{"error":"model 'x' not found"}`, true, 0},
		{404, `{"code":"Some requested entity was not found","error":"The model grok-x does not exist"}`, true, 0},
		{400, `{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***x. You can obtain an API key from https://console.x.ai."}`, true, 0},
		{400, `[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`, true, 0},
		{400, `{"error":{"code":400,"message":"Bad","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`, true, 0},
		{400, `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`, true, 0},
		{400, `{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}`, true, 0},
		{400, `{"object":"error","message":"Invalid model: mistral-x","type":"invalid_model","code":"1500"}`, true, 0},
		{400, `{"error":{"message":"acme/x is not a valid model ID","code":400}}`, true, 0},
		{400, `{"error":{"message":"Organization has been restricted.","type":"invalid_request_error","code":"organization_restricted"}}`, true, 0},
		{0, `{"type":"authentication_error","message":"no"}`, true, 0},
		// No money, or a limit of the operator's.
		{402, `{"error":{"message":"Insufficient Balance"}}`, true, coolLong},
		{402, `{"error":{"code":402,"message":"This request requires more credits"}}`, true, coolLong},
		{429, `{"error":{"code":"insufficient_quota"}}`, true, coolLong},
		{429, `{"error":{"type":"exceeded_current_quota_error","message":"Your account is suspended"}}`, true, coolLong},
		{429, `{"code":"Some resource has been exhausted","error":"Your team 00000000-0000-0000-0000-000000000000 has either used all available credits or reached its monthly spending limit."}`, true, coolLong},
		{429, `{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}`, true, coolLong},
		{429, `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"contract_spend_limit_reached"}}}`, true, coolLong},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`, true, coolLong},
		{400, `{"type":"error","error":{"type":"invalid_request_error","details":{"error_code":"organization_on_hold"}}}`, true, coolLong},
		// A quota of a day, whatever wait is stated.
		{429, `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Please retry in 58s.","details":[{"@type":"QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"58s"}]}}]`, true, coolLong},
		{429, `{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}`, true, coolLong},
		{429, `{"error":{"message":"Rate limit reached on tokens per day (TPD): Limit 100000. Please try again in 12m3s.","code":"rate_limit_exceeded"}}`, true, 12*time.Minute + 3*time.Second},
		// A rate, as told.
		{429, `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProject"}]},{"retryDelay":"34s"}]}}]`, true, 34 * time.Second},
		{429, `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"ramp_limit_exceeded"}}}`, true, 0},
		{429, `{"error":{"message":"Please try again in 350ms."}}`, true, 350 * time.Millisecond},
		{429, `{"error":{"message":"Please try again in 0s."}}`, true, time.Millisecond},
		{429, ``, true, 0},
		{503, ``, true, 0},
		{0, `{"code":"The service is currently unavailable","error":"Try later."}`, true, 0},
		{0, `{"message":"Rate limited","code":429}`, true, 0},
		// The endpoint's health, or a switch of the model that is missing.
		{500, `{"error":{"message":"boom"}}`, true, 0},
		{500, `{"error":{"message":"boom","type":"invalid_request_error"}}`, true, 0},
		{0, `{"message":"boom"}`, true, 0},
		{408, ``, true, 0},
		{302, ``, true, 0},
		{400, `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","code":"unsupported_parameter"}}`, true, 0},
		{400, `{"error":{"message":"Unsupported value: 'temperature'","code":"unsupported_value"}}`, true, 0},
		{400, `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: stop"}`, true, 0},
		{400, `{"code":"invalid-argument","error":"Model grok-4 does not support parameter stop."}`, true, 0},
		{400, "{\"error\":{\"message\":\"`reasoning_format` is not supported with this model\",\"type\":\"invalid_request_error\"}}", true, 0},
		{400, `{"error":{"message":"invalid temperature: only 1 is allowed for this model","type":"invalid_request_error"}}`, true, 0},
		{422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`, true, 0},
		// The client's request.
		{400, `{"error":{"message":"Invalid 'messages'","type":"invalid_request_error"}}`, false, 0},
		{422, `{"detail":[{"type":"missing","loc":["body","messages"]}]}`, false, 0},
		{400, ``, false, 0},
		{413, ``, false, 0},
		{0, `{"message":"no","type":"invalid_request_error"}`, false, 0},
		{0, `{"message":"no","code":400}`, false, 0},
		{400, `{"error":{"message":"prompt is too long"}}`, false, 0},
		{500, `{"error":{"message":"prompt is too long"}}`, false, 0},
		{0, `{"code":"context_length_exceeded"}`, false, 0},
		// The client's prompt, as moderation says.
		{400, `{"error":{"code":"content_filter","message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, false, 0},
		{403, `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged for: hate","metadata":{"reasons":["hate"],"flagged_input":"API key not valid"}}}`, false, 0},
		{403, `{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}`, false, 0},
		{400, `{"error":{"message":"Content Exists Risk","type":"invalid_request_error"}}`, false, 0},
		// A quoted prompt makes no endpoint rest.
		{400, `{"error":{"message":"` + strings.Repeat("Your request is invalid. ", 5) + `You sent: API key not valid, Insufficient Balance, per day"}}`, false, 0},
		{400, `{"error":{"message":"no","metadata":{"raw":"{\"message\":\"Invalid API key\"}"}}}`, false, 0},
	} {
		e := classify(providers.ReadFault([]byte(test.body)), test.status, nil)
		require.Equal(t, []any{test.elsewhere, test.cool}, []any{e.Elsewhere, e.Cool}, "%d %s", test.status, test.body)
		require.False(t, e.Cool >= coolLong && !e.Permanent && e.Failure != providers.FailureOverloaded, test.body)
	}
}

// TestCoolOfHeader: the wait of the header is clamped for clients and not for the endpoint.
func TestCoolOfHeader(t *testing.T) {
	t.Parallel()
	e := classify(providers.VendorFault{Message: "Please retry in 34s"}, 429, http.Header{"Retry-After": {"900"}})
	require.Equal(t, []time.Duration{time.Minute, 15 * time.Minute}, []time.Duration{e.RetryAfter, e.Cool})
	e = classify(providers.VendorFault{Words: []string{"insufficient_quota"}}, 429, http.Header{"Retry-After": {"7200"}})
	require.Equal(t, []time.Duration{0, 2 * time.Hour}, []time.Duration{e.RetryAfter, e.Cool})
}

func TestRetryAfterHeaderWinsOverTheText(t *testing.T) {
	t.Parallel()
	f := providers.ReadFault([]byte(`{"error":{"message":"Please retry in 34s"}}`))
	require.Equal(t, 3*time.Second, classify(f, 429, http.Header{"Retry-After": {"3"}}).RetryAfter)
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"Please retry in 34.6s","code":"429","details":[{"retryDelay":"1s"}]}}`), 429, "9")
	f.Add([]byte(`[{"error":"x"}]`), 400, "Fri, 31 Dec 2049 23:59:59 GMT")
	f.Add([]byte("<html>\xff"), 0, "1e99")
	f.Fuzz(func(t *testing.T, body []byte, status int, retry string) {
		fault := providers.ReadFault(body)
		e := classify(fault, status, http.Header{"Retry-After": {retry}})
		require.NotEmpty(t, e.Failure)
		if e.RetryAfter != 0 {
			require.Equal(t, providers.FailureOverloaded, e.Failure)
			require.GreaterOrEqual(t, e.RetryAfter, time.Second)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
		}
	})
}
