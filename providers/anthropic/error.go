package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
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
	if f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// fault is an error of the API, {"type":"error","error":{"type":…,"message":…,"details":{"error_code":…}}}, or of another vendor or
// relay at its address.
type fault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	// Code is OpenAI's word. Numbers are left out.
	Code    string `json:"code"`
	Details struct {
		Code string `json:"error_code"`
	} `json:"details"`
}

// maxFault limits the bytes of an error that are read.
const maxFault = 64 << 10

// readFault reads an error in any of the known forms: {"error":{…}}, {"error":"text"}, the object itself, a string, or a text that
// isn't JSON. Members of an unexpected type are left out.
func readFault(raw []byte) (f fault) {
	raw = bytes.TrimSpace(raw[:min(len(raw), maxFault)])
	var wrapped struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(raw, &wrapped) == nil && len(wrapped.Error) > 0 && string(wrapped.Error) != "null" {
		raw = wrapped.Error
	}
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		f.Message = text
	case !json.Valid(raw):
		f.Message = string(raw)
	default:
		_ = json.Unmarshal(raw, &f) // it reads all members with the right type
	}
	return f
}

// statuses are the HTTP statuses of the API's types of errors, https://platform.claude.com/docs/en/api/errors. An error in a stream
// has only its type.
var statuses = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "billing_error": 402, "permission_error": 403, "not_found_error": 404,
	"conflict_error": 409, "request_too_large": 413, "rate_limit_error": 429, "api_error": 500, "timeout_error": 504, "overloaded_error": 529,
}

// fundsCool is the time without calls to an account that has no money or has reached its spend limit. Only a person or the next month
// ends that, but a limit that was raised should have an effect soon.
const fundsCool = time.Hour

// classify returns the error for a fault. An error inside a successful answer has the status 0.
func classify(f fault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, statuses[f.Type])
	e := providers.StatusError(known, header)
	refused := known == http.StatusBadRequest || known == http.StatusUnprocessableEntity
	switch {
	case known == http.StatusPaymentRequired || f.outOfFunds():
		e.Failure, e.Permanent, e.Elsewhere, e.Cool = providers.FailureRefused, true, true, fundsCool
	case refused && f.mentions("assistant message prefill", "must end with a user message"):
		e = providers.Unwritable("messages", "The last message of a request to this model must have the role user, system or tool.")
	case refused && f.mentions(overflows...):
		e.Failure = providers.FailureContextTooLong
	case (known == 0 || known == http.StatusInternalServerError) && f.begins("overloaded"):
		e.Failure = providers.FailureOverloaded
	}
	if e.Failure != providers.FailureOverloaded {
		e.RetryAfter = 0
	}
	e.Status, e.Detail = status, f.detail()
	return e
}

// overflows are the words for a prompt that exceeds the window, of Anthropic, Bedrock, MiniMax, DeepSeek and Kimi.
var overflows = []string{
	"prompt is too long", "exceed context limit", "input is too long for requested model", "context window exceeds limit",
	"maximum context length", "exceeded model token limit",
}

// outOfFunds reports whether the operator's account can't be charged. The API also reports that with the statuses 400 and 429, and
// waiting doesn't help.
func (f *fault) outOfFunds() bool {
	words := []string{
		"enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold", "billing_error", "insufficient_quota",
	}
	return slices.Contains(words, f.Type) || slices.Contains(words, f.Code) || slices.Contains(words, f.Details.Code) ||
		f.begins("specified api usage limits", "credit balance is too low", "organization has been disabled")
}

// begins reports whether one of the texts is near the beginning of the message. Texts that make an endpoint rest count only there: a
// vendor might quote the prompt after it.
func (f *fault) begins(texts ...string) bool {
	head := fault{Message: f.Message[:min(len(f.Message), 100)]}
	return head.mentions(texts...)
}

func (f *fault) mentions(texts ...string) bool {
	message := strings.ToLower(f.Message)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}

// detail returns the words and the text of the error, for logs.
func (f *fault) detail() string {
	words := slices.DeleteFunc([]string{f.Type, f.Code, f.Details.Code, f.Message}, func(word string) bool { return word == "" })
	return strings.Join(words, ": ")
}
