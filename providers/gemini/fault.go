package gemini

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := providers.ReadFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.Status(statuses) == 0 && f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// statuses are the HTTP statuses of the words in an error's member status, for errors without a code:
// https://ai.google.dev/gemini-api/docs/troubleshooting.
var statuses = map[string]int{
	"invalid_argument": 400, "failed_precondition": 400, "unauthenticated": 401, "permission_denied": 403, "not_found": 404,
	"resource_exhausted": 429, "internal": 500, "unavailable": 503, "deadline_exceeded": 504,
}

// coolLong is the time to cool for an endpoint whose key, region, credit, model or daily quota is missing. A person has to act, and may
// have acted an hour later. The vendor states no wait, or one of seconds.
const coolLong = time.Hour

// classify returns the error for a fault. An error inside a successful answer has status 0.
func classify(f providers.VendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.Status(statuses))
	e := providers.StatusError(known, header)
	e.Status, e.Detail = status, f.Detail()
	switch {
	case known == http.StatusBadRequest && f.Mentions("token count") && f.Mentions("exceeds the maximum number of tokens"):
		e.Failure = providers.FailureContextTooLong
	case known == http.StatusBadRequest && f.HasWord("failed_precondition", "api_key_invalid"),
		known == http.StatusBadRequest && strings.HasPrefix(strings.ToLower(f.Message), "api key "), // a wrong or expired one
		known >= http.StatusUnauthorized && known <= http.StatusNotFound:
		e.Elsewhere, e.Cool = true, coolLong
	case e.Failure == providers.FailureOverloaded && f.PerDay:
		e.Cool, e.RetryAfter = coolLong, providers.ClampRetryAfter(coolLong)
	case e.Failure == providers.FailureOverloaded && e.RetryAfter == 0:
		if wait := f.RetryAfter(); wait > 0 {
			e.Cool, e.RetryAfter = wait, providers.ClampRetryAfter(wait)
		}
	}
	return e
}
