package gemini

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := readFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.status() == 0 && f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// fault is an error of the API, https://ai.google.dev/gemini-api/docs/troubleshooting, in the form of google.rpc.Status.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason     string `json:"reason"`     // of an ErrorInfo
		RetryDelay string `json:"retryDelay"` // of a RetryInfo
		Violations []struct {
			QuotaID string `json:"quotaId"`
		} `json:"violations"` // of a QuotaFailure
	} `json:"details"`
}

// readFault reads {"error":{…}}, {"error":"text"}, the object itself, one of these in an array, or a text that isn't JSON. Members
// of other types, as in the errors of other vendors, are ignored.
func readFault(raw []byte) (f fault) {
	raw = bytes.TrimSpace(raw)
	if s := newScanner(raw); s.Peek() == '[' && s.Enter('[') {
		raw = s.Value()
	}
	if !json.Valid(raw) {
		return fault{Message: string(raw)}
	}
	var outer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(raw, &outer) == nil && len(outer.Error) > 0 {
		raw = outer.Error
	}
	if json.Unmarshal(raw, &f.Message) != nil {
		f.Message = ""
		_ = json.Unmarshal(raw, &f) // the members of other types are its only error
	}
	return f
}

// statusOf are the HTTP statuses of the words in an error's member status, for errors without a code.
var statusOf = map[string]int{
	"INVALID_ARGUMENT": 400, "FAILED_PRECONDITION": 400, "UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404,
	"RESOURCE_EXHAUSTED": 429, "INTERNAL": 500, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504,
}

// status returns the HTTP status that the error names, or 0.
func (f fault) status() int { return cmp.Or(f.Code, statusOf[f.Status]) }

// coolLong is the time to cool for an endpoint whose key, region, credit, model or daily quota is missing. A person has to act, and may
// have acted an hour later. The vendor states no wait, or one of seconds.
const coolLong = time.Hour

// classify returns the error for a fault. An error inside a successful answer has status 0.
func classify(f fault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.status())
	e := providers.StatusError(known, header)
	e.Status, e.Detail = status, strings.TrimPrefix(f.Status+": "+f.Message, ": ")
	switch {
	case known == http.StatusBadRequest && f.tooLong():
		e.Failure = providers.FailureContextTooLong
	case known == http.StatusBadRequest && (f.Status == "FAILED_PRECONDITION" || f.wrongKey()),
		known >= http.StatusUnauthorized && known <= http.StatusNotFound:
		e.Elsewhere, e.Cool = true, coolLong
	case e.Failure == providers.FailureOverloaded && f.dayIsSpent():
		e.Cool, e.RetryAfter = coolLong, providers.ClampRetryAfter(coolLong)
	case e.Failure == providers.FailureOverloaded && e.RetryAfter == 0:
		if wait := f.retryDelay(); wait > 0 {
			e.Cool, e.RetryAfter = wait, providers.ClampRetryAfter(wait)
		}
	}
	return e
}

// tooLong reports whether the prompt exceeds the model's window, as in "The input token count (218152) exceeds the maximum number of
// tokens allowed (65536)".
func (f fault) tooLong() bool {
	message := strings.ToLower(f.Message)
	return strings.Contains(message, "token count") && strings.Contains(message, "exceeds the maximum number of tokens")
}

// wrongKey reports whether the key is wrong or has expired. The API answers a wrong key with the status of a bad request.
func (f fault) wrongKey() bool {
	for _, detail := range f.Details {
		if detail.Reason == "API_KEY_INVALID" {
			return true
		}
	}
	return strings.HasPrefix(strings.ToLower(f.Message), "api key ")
}

// dayIsSpent reports whether a quota of a day is spent.
func (f fault) dayIsSpent() bool {
	for _, detail := range f.Details {
		for _, violation := range detail.Violations {
			if strings.Contains(violation.QuotaID, "PerDay") {
				return true
			}
		}
	}
	return false
}

// retryText matches the wait in a message such as "Please retry in 34.6s".
var retryText = regexp.MustCompile(`retry in ([0-9][0-9.hms]*[hms])`)

// retryDelay returns the wait of a RetryInfo or, if there is none, of the message, or 0.
func (f fault) retryDelay() time.Duration {
	for _, detail := range f.Details {
		if wait, err := time.ParseDuration(detail.RetryDelay); err == nil {
			return wait
		}
	}
	if match := retryText.FindStringSubmatch(f.Message); match != nil {
		if wait, err := time.ParseDuration(match[1]); err == nil {
			return wait
		}
	}
	return 0
}
