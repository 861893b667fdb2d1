package openai

import (
	"net/http"
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
		// The same words where they can't mean it.
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
		{0, `"just text"`, providers.FailureRefused, false, 0},
		{0, `"Overloaded"`, providers.FailureOverloaded, false, 0},
		{0, `{}`, providers.FailureRefused, false, 0},
		{0, `7`, providers.FailureRefused, false, 0},
		{0, `false`, providers.FailureRefused, false, 0},
	} {
		e := classify(readVendorFault([]byte(test.body)), test.status, nil)
		require.Equal(t, test.want, e.Failure, "%d %s", test.status, test.body)
		require.Equal(t, test.permanent, e.Permanent, "%d %s", test.status, test.body)
		require.Equal(t, test.retry, e.RetryAfter, "%d %s", test.status, test.body)
		require.Equal(t, test.status, e.Status)
	}
}

func TestRetryAfterHeaderWinsOverTheText(t *testing.T) {
	t.Parallel()
	f := readVendorFault([]byte(`{"error":{"message":"Please retry in 34s"}}`))
	require.Equal(t, 3*time.Second, classify(f, 429, http.Header{"Retry-After": {"3"}}).RetryAfter)
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"Please retry in 34.6s","code":"429","details":[{"retryDelay":"1s"}]}}`), 429, "9")
	f.Add([]byte(`[{"error":"x"}]`), 400, "Fri, 31 Dec 2049 23:59:59 GMT")
	f.Add([]byte("<html>\xff"), 0, "1e99")
	f.Fuzz(func(t *testing.T, body []byte, status int, retry string) {
		fault := readVendorFault(body)
		e := classify(fault, status, http.Header{"Retry-After": {retry}})
		require.NotEmpty(t, e.Failure)
		if e.RetryAfter != 0 {
			require.Equal(t, providers.FailureOverloaded, e.Failure)
			require.GreaterOrEqual(t, e.RetryAfter, time.Second)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
		}
	})
}
