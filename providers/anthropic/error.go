package anthropic

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := providers.ReadFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.Message == "" {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
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
func classify(f providers.VendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.Status(statuses))
	e := providers.StatusError(known, header)
	refused := known == http.StatusBadRequest || known == http.StatusUnprocessableEntity
	switch {
	case known == http.StatusPaymentRequired, // the API also reports that with 400 and 429, and waiting doesn't help
		f.HasWord("enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold", "billing_error", "insufficient_quota"),
		f.Begins("specified api usage limits", "credit balance is too low", "organization has been disabled"):
		e.Failure, e.Permanent, e.Elsewhere, e.Cool = providers.FailureRefused, true, true, fundsCool
	case refused && f.Mentions("assistant message prefill", "must end with a user message"):
		e = providers.Unwritable("messages", "The last message of a request to this model must have the role user, system or tool.")
	case refused && f.Mentions(overflows...):
		e.Failure = providers.FailureContextTooLong
	case (known == 0 || known == http.StatusInternalServerError) && f.Begins("overloaded"):
		e.Failure = providers.FailureOverloaded
	}
	if e.Failure != providers.FailureOverloaded {
		e.RetryAfter = 0
	}
	e.Status, e.Detail = status, f.Detail()
	return e
}

// overflows are the words for a prompt that exceeds the window, of Anthropic, Bedrock, MiniMax, DeepSeek and Kimi.
var overflows = []string{
	"prompt is too long", "exceed context limit", "input is too long for requested model", "context window exceeds limit",
	"maximum context length", "exceeded model token limit",
}
