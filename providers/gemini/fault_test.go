package gemini

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
)

// rpcError is an error of the API.
func rpcError(code int, status, message, details string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"status":%q,"details":[%s]}}`, code, message, status, details)
}

const (
	badKey     = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}`
	retryInfo  = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"58.4s"}`
	perMinute  = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerMinutePerProjectPerModel","quotaValue":"15"}]}`
	perDay     = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier","quotaValue":"250"}]}`
	help       = `{"@type":"type.googleapis.com/google.rpc.Help","links":[{"description":"Learn more","url":"https://ai.google.dev"}]}`
	tooLong    = "The input token count (218152) exceeds the maximum number of tokens allowed (65536)."
	delayOfRPC = 58400 * time.Millisecond
)

// TestFaults has the errors of the notes' tables. Status 0 means an error inside a successful answer.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status               int
		body                 string
		want                 providers.Failure
		permanent, elsewhere bool
		retry, cool          time.Duration
	}{
		"too long":             {400, rpcError(400, "INVALID_ARGUMENT", tooLong, ""), providers.FailureContextTooLong, true, false, 0, 0},
		"too long, newer":      {400, rpcError(400, "INVALID_ARGUMENT", "The input token count exceeds the maximum number of tokens allowed 1048576.", ""), providers.FailureContextTooLong, true, false, 0, 0},
		"too long in an array": {400, "[" + rpcError(400, "INVALID_ARGUMENT", tooLong, "") + "\n]", providers.FailureContextTooLong, true, false, 0, 0},
		"too long of a relay":  {400, `{"error":{"message":"` + tooLong + `","type":"upstream_error","code":"400"}}`, providers.FailureContextTooLong, true, false, 0, 0},
		"too long, within":     {0, rpcError(400, "INVALID_ARGUMENT", tooLong, ""), providers.FailureContextTooLong, true, false, 0, 0},
		"too many stops":       {400, rpcError(400, "INVALID_ARGUMENT", "The number of stop sequences must not exceed 5.", ""), providers.FailureRefused, true, false, 0, 0},
		"too large output":     {400, rpcError(400, "INVALID_ARGUMENT", "The maximum output token count must be at most 65536.", ""), providers.FailureRefused, true, false, 0, 0},
		"wrong key":            {400, rpcError(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", badKey+","+help), providers.FailureRefused, true, true, 0, coolLong},
		"key, no details":      {400, rpcError(400, "INVALID_ARGUMENT", "API Key not found. Please pass a valid API key.", ""), providers.FailureRefused, true, true, 0, coolLong},
		"expired key":          {400, rpcError(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", ""), providers.FailureRefused, true, true, 0, coolLong},
		"wrong key, within":    {0, rpcError(400, "INVALID_ARGUMENT", "", badKey), providers.FailureRefused, true, true, 0, coolLong},
		"region":               {400, rpcError(400, "FAILED_PRECONDITION", "User location is not supported for the API use.", ""), providers.FailureRefused, true, true, 0, coolLong},
		"missing key":          {403, rpcError(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers.", ""), providers.FailureRefused, true, true, 0, coolLong},
		"unauthenticated":      {401, rpcError(401, "UNAUTHENTICATED", "no", ""), providers.FailureRefused, true, true, 0, coolLong},
		"unknown model":        {404, rpcError(404, "NOT_FOUND", "models/x is not found for API version v1beta", ""), providers.FailureRefused, true, true, 0, coolLong},
		"no credit":            {402, rpcError(402, "RESOURCE_EXHAUSTED", "Your prepaid credit is used up.", retryInfo), providers.FailureRefused, true, true, 0, coolLong},
		"no credit, within":    {0, rpcError(402, "RESOURCE_EXHAUSTED", "Your prepaid credit is used up.", ""), providers.FailureRefused, true, true, 0, coolLong},
		"rate":                 {429, rpcError(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, check billing.", perMinute+","+help+","+retryInfo), providers.FailureOverloaded, false, true, delayOfRPC, delayOfRPC},
		"rate, long":           {429, rpcError(429, "RESOURCE_EXHAUSTED", "no", `{"retryDelay":"600s"}`), providers.FailureOverloaded, false, true, time.Minute, 10 * time.Minute},
		"rate in prose":        {429, "[" + rpcError(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota. Please retry in 34.6s.", "") + "]", providers.FailureOverloaded, false, true, 34600 * time.Millisecond, 34600 * time.Millisecond},
		"rate in long prose":   {429, rpcError(429, "RESOURCE_EXHAUSTED", "Please retry in 1h2m3.5s.", ""), providers.FailureOverloaded, false, true, time.Minute, 3723500 * time.Millisecond},
		"rate without a time":  {429, rpcError(429, "RESOURCE_EXHAUSTED", "Resource exhausted, please try again later.", ""), providers.FailureOverloaded, false, true, 0, 0},
		"day":                  {429, rpcError(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", perDay+","+retryInfo), providers.FailureOverloaded, false, true, time.Minute, coolLong},
		"day, within":          {0, rpcError(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", retryInfo+","+perDay), providers.FailureOverloaded, false, true, time.Minute, coolLong},
		"a word alone":         {0, `{"error":{"status":"RESOURCE_EXHAUSTED","message":"no"}}`, providers.FailureOverloaded, false, true, 0, 0},
		"internal":             {500, rpcError(500, "INTERNAL", "An internal error has occurred.", ""), providers.FailureRefused, false, true, 0, 0},
		"internal, within":     {0, rpcError(500, "INTERNAL", "An internal error has occurred.", ""), providers.FailureRefused, false, true, 0, 0},
		"overloaded":           {503, rpcError(503, "UNAVAILABLE", "The model is overloaded. Please try again later.", ""), providers.FailureOverloaded, false, true, 0, 0},
		"deadline":             {504, rpcError(504, "DEADLINE_EXCEEDED", "Deadline expired.", ""), providers.FailureTimeout, false, true, 0, 0},
		"deadline, within":     {0, `{"error":{"status":"DEADLINE_EXCEEDED"}}`, providers.FailureTimeout, false, true, 0, 0},
		"HTML":                 {502, "<html>502</html>", providers.FailureRefused, false, true, 0, 0},
		"HTML of a wrong path": {404, "<!DOCTYPE html><html>", providers.FailureRefused, true, true, 0, coolLong},
		"OpenAI's page":        {404, `{"error":{"message":"Invalid URL (POST /v1/models/x:generateContent)","type":"invalid_request_error","param":null,"code":null}}`, providers.FailureRefused, true, true, 0, coolLong},
		"OpenAI's key page":    {401, `{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}`, providers.FailureRefused, true, true, 0, coolLong},
		"a text":               {0, `{"error":"down"}`, providers.FailureRefused, false, true, 0, 0},
		"nothing":              {429, ``, providers.FailureOverloaded, false, true, 0, 0},
		"other types":          {429, `{"error":{"code":"429","message":7,"details":{"retryDelay":"9s"}}}`, providers.FailureOverloaded, false, true, 9 * time.Second, 9 * time.Second},
		"a broken delay":       {429, rpcError(429, "RESOURCE_EXHAUSTED", "Please retry in 5hhs.", `{"retryDelay":"soon"}`), providers.FailureOverloaded, false, true, 0, 0},
		"a negative delay":     {429, rpcError(429, "RESOURCE_EXHAUSTED", "no", `{"retryDelay":"-5s"}`), providers.FailureOverloaded, false, true, 0, 0},
	} {
		e := classify(providers.ReadFault([]byte(test.body)), test.status, nil)
		require.Equal(t, test.want, e.Failure, name)
		require.Equal(t, test.permanent, e.Permanent, "%s: permanent", name)
		require.Equal(t, test.elsewhere, e.Elsewhere, "%s: elsewhere", name)
		require.Equal(t, test.retry, e.RetryAfter, name)
		require.Equal(t, test.cool, e.Cool, name)
	}
}

// TestRetryAfterOfTheHeader: a relay's header wins over the body.
func TestRetryAfterOfTheHeader(t *testing.T) {
	t.Parallel()
	e := classify(providers.ReadFault([]byte(rpcError(429, "RESOURCE_EXHAUSTED", "no", retryInfo))), 429, http.Header{"Retry-After": {"3"}})
	require.Equal(t, 3*time.Second, e.RetryAfter)
	require.Equal(t, 3*time.Second, e.Cool)
}

func FuzzFault(f *testing.F) {
	f.Add([]byte(rpcError(429, "RESOURCE_EXHAUSTED", "Please retry in 34.6s.", perDay+","+retryInfo)), 429)
	f.Add([]byte("["+rpcError(400, "INVALID_ARGUMENT", tooLong, badKey)+"]"), 400)
	f.Add([]byte("<html>\xff"), 200)
	f.Add([]byte(`["x",{"error":null}]`), 0)
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		e := (&dialect{}).Fault(status, http.Header{}, body)
		require.NotEmpty(t, e.Failure)
		if e.RetryAfter != 0 {
			require.Equal(t, providers.FailureOverloaded, e.Failure)
			require.GreaterOrEqual(t, e.RetryAfter, time.Second)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
		}
	})
}
