package providers

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status    int
		body      string
		want      Failure
		permanent bool
		retry     time.Duration
	}{
		// The prompt is too long, in the words of OpenAI, vLLM, Anthropic, Bedrock, Gemini, llama.cpp, TGI, xAI,
		// and of OpenRouter, which quotes.
		{400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`, FailureContextTooLong, true, 0},
		{400, `{"error":{"message":"Your input exceeds the context window of this model.","code":null}}`, FailureContextTooLong, true, 0},
		{400, `{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}`, FailureContextTooLong, true, 0},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`, FailureContextTooLong, true, 0},
		{400, "{\"error\":{\"message\":\"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000\"}}", FailureContextTooLong, true, 0},
		{400, `{"message":"Input is too long for requested model."}`, FailureContextTooLong, true, 0},
		{400, `[{"error":{"code":400,"message":"The input token count (218152) exceeds the maximum number of tokens allowed (65536).","status":"INVALID_ARGUMENT"}}]`, FailureContextTooLong, true, 0},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, FailureContextTooLong, true, 0},
		{422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096\",\"error_type\":\"validation\"}", FailureContextTooLong, true, 0},
		{400, `{"code":"invalid","error":"This model's maximum prompt length is 131072 but the request contains 200000 tokens."}`, FailureContextTooLong, true, 0},
		{400, `{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long\"}}"}}}`, FailureContextTooLong, true, 0},
		{0, `{"message":"maximum context length is 4096 tokens","code":400}`, FailureContextTooLong, true, 0},
		// The same words where they can't mean it.
		{401, `{"error":{"message":"maximum context length"}}`, FailureRefused, true, 0},
		{413, `{"error":{"message":"prompt is too long"}}`, FailureRequestTooLarge, true, 0},
		{429, `{"error":{"message":"Request too large: input exceeds the token limit per minute. Please try again in 1m6.5s."}}`, FailureOverloaded, false, time.Minute},
		{400, `{"error":{"message":"max_tokens is too large: 99999. This model supports at most 4096 completion tokens"}}`, FailureRefused, true, 0},
		// No money at the vendor's.
		{429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, FailureRefused, true, 0},
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"Spend limit","details":{"error_code":"enforced_spend_limit_reached"}}}`, FailureRefused, true, 0},
		{400, `{"error":{"message":"Your credit balance is too low to access the API"}}`, FailureRefused, true, 0},
		{402, ``, FailureRefused, true, 0},
		// Waiting helps.
		{429, `[{"error":{"code":429,"message":"You exceeded your current quota, check billing. Please retry in 34.6s.","status":"RESOURCE_EXHAUSTED"}}]`, FailureOverloaded, false, 34600 * time.Millisecond},
		{429, `{"error":{"details":[{"@type":"x"},{"retryDelay":"12s"}]}}`, FailureOverloaded, false, 12 * time.Second},
		{429, `{"error":{"message":"Please try again in 20ms."}}`, FailureOverloaded, false, time.Second},
		{429, `{"error":{"message":"Retry after 20 seconds."}}`, FailureOverloaded, false, 20 * time.Second},
		{429, `{"error":{"message":"Try again in 6m0s."}}`, FailureOverloaded, false, time.Minute},
		{429, `<html>429</html>`, FailureOverloaded, false, 0},
		{503, `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`, FailureOverloaded, false, 0},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, FailureOverloaded, false, 0},
		{500, `{"error":{"message":"The server is overloaded"}}`, FailureOverloaded, false, 0},
		{500, `{"error":{"message":"boom"}}`, FailureRefused, false, 0},
		{504, `{"error":{"status":"DEADLINE_EXCEEDED"}}`, FailureTimeout, false, 0},
		{409, ``, FailureRefused, false, 0},
		{302, ``, FailureRefused, true, 0},
		// Inside a stream there is no status.
		{0, `{"message":"x","code":429}`, FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"503"}`, FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"rate_limit_exceeded"}`, FailureOverloaded, false, 0},
		{0, `{"message":"x","status":"UNAVAILABLE"}`, FailureOverloaded, false, 0},
		{0, `{"message":"x","code":"overloaded"}`, FailureOverloaded, false, 0},
		{0, `{"message":"x","type":"timeout_error"}`, FailureTimeout, false, 0},
		{0, `{"message":"x","code":504}`, FailureTimeout, false, 0},
		{0, `{"message":"x","code":502}`, FailureRefused, false, 0},
		{0, `{"message":"x","type":"invalid_request_error"}`, FailureRefused, true, 0},
		{0, `"just text"`, FailureRefused, false, 0},
		{0, `"Overloaded"`, FailureOverloaded, false, 0},
		{0, `{}`, FailureRefused, false, 0},
		{0, `7`, FailureRefused, false, 0},
		{0, `false`, FailureRefused, false, 0},
	} {
		e := classify(readVendorFault([]byte(test.body)), test.status, "")
		require.Equal(t, test.want, e.Failure, "%d %s", test.status, test.body)
		require.Equal(t, test.permanent, e.Permanent, "%d %s", test.status, test.body)
		require.Equal(t, test.retry, e.RetryAfter, "%d %s", test.status, test.body)
		require.Equal(t, test.status, e.Status)
	}
}

func TestRetryAfterHeaderWinsOverTheText(t *testing.T) {
	t.Parallel()
	f := readVendorFault([]byte(`{"error":{"message":"Please retry in 34s"}}`))
	f.header = http.Header{"Retry-After": {"3"}}
	require.Equal(t, 3*time.Second, classify(f, 429, "").RetryAfter)
}

func TestLogLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Incorrect API key provided: sk-upstream-secret-1234.":              "Incorrect API key provided: [masked]",
		"Incorrect API key provided: sk-proj-********************abcd, see": "Incorrect API key provided: [masked], see",
		"header was Authorization: Bearer abc.def-ghi, no":                  "header was Authorization: [masked], no",
		"key gsk_0123456789 and AIzaSyD-0123 and ck_live_abcdef":            "key [masked] and [masked] and [masked]",
		"jwt eyJhbGciOiJIUzI1NiJ9.e30.sig":                                  "jwt [masked]",
		"hex 0123456789abcdef0123456789abcdef end":                          "hex [masked] end",
		"your own key operators-word was wrong":                             "your own key [masked] was wrong",
		"model gpt-4o-mini-2024-07-18 not found in org-x":                   "model gpt-4o-mini-2024-07-18 not found in org-x",
		"two\r\nlines\tand\x00\x1b[31m nul\u0085":                           "two lines and [31m nul",
		"bad \xff utf-8": "bad \uFFFD utf-8",
	} {
		require.Equal(t, want, logLine(text, "operators-word"))
	}
	// Masked before it is cut, cut between characters.
	require.NotContains(t, logLine(strings.Repeat("é ", 167)+"x sk-upstream-secret-1234", ""), "sk-")
	cut := logLine(strings.Repeat("é!", 500), "")
	require.LessOrEqual(t, len(cut), maxDetail)
	require.Greater(t, len(cut), maxDetail-4)
	require.True(t, utf8.ValidString(cut))
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := http.ErrAbortHandler
	e := &Error{Failure: FailureRefused, Status: 401, Detail: "no", Cause: cause}
	require.Equal(t, "model call failed (refused, status 401): "+cause.Error(), e.Error())
	require.ErrorIs(t, e, cause)
	require.Equal(t, "model call failed (timeout)", (&Error{Failure: FailureTimeout}).Error())
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"Please retry in 34.6s","code":"429","details":[{"retryDelay":"1s"}]}}`), 429, "9")
	f.Add([]byte(`[{"error":"x"}]`), 400, "Fri, 31 Dec 2049 23:59:59 GMT")
	f.Add([]byte("<html>\xff"), 0, "1e99")
	f.Fuzz(func(t *testing.T, body []byte, status int, retry string) {
		fault := readVendorFault(body)
		fault.header = http.Header{"Retry-After": {retry}}
		e := classify(fault, status, "")
		require.NotEmpty(t, e.Failure)
		require.LessOrEqual(t, len(e.Detail), maxDetail)
		require.True(t, utf8.ValidString(e.Detail))
		require.False(t, strings.ContainsAny(e.Detail, "\r\n\x00\x1b"))
		if e.RetryAfter != 0 {
			require.Equal(t, FailureOverloaded, e.Failure)
			require.GreaterOrEqual(t, e.RetryAfter, time.Second)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
		}
	})
}
