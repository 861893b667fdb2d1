package openai

import (
	"cmp"
	"net/http"
	"regexp"
	"time"

	"github.com/caddy-svc/caddy-svc/providers"
)

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	f := providers.ReadFault(body)
	if status != http.StatusOK {
		return classify(f, status, header)
	}
	if f.Message == "" && len(f.Words) == 0 && f.Number == 0 {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, nil)
}

// coolLong is the time to rest for an endpoint without money or without a rest of its daily quota. A person has to act, and may have
// acted an hour later.
const coolLong = time.Hour

// classify returns the error for a vendor's fault. An error inside a successful answer has status 0; a number in the error
// replaces it.
func classify(f providers.VendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.Number)
	e := providers.StatusError(known, header)
	e.Status, e.Detail = status, f.Detail()
	switch {
	case e.Failure == providers.FailureRequestTooLarge:
	case known != 401 && known != 403 && known != 429 && contextTooLong(&f):
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureContextTooLong, true, false
	case known != 401 && known != 429 && flagged(&f):
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureRefused, true, false
	case outOfFunds(&f, known):
		e.Failure, e.Permanent, e.Elsewhere, e.Cool = providers.FailureRefused, true, true, max(e.Cool, coolLong)
	case misconfigured(&f, known):
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureRefused, true, true
	case e.Failure == providers.FailureRefused && (known == 0 || known >= 500):
		e.Failure, e.Permanent = judgeByWords(&f)
		e.Elsewhere = known != 0 || !e.Permanent
	default:
		e.Elsewhere = e.Elsewhere || unsupported(&f)
	}
	if e.Failure != providers.FailureOverloaded {
		e.RetryAfter = 0
		return e
	}
	if e.RetryAfter == 0 {
		if wait := f.RetryAfter(); wait != 0 {
			e.RetryAfter, e.Cool = providers.ClampRetryAfter(wait), wait
		}
	}
	if f.PerDay || e.Cool == 0 && f.Mentions("per day", "per-day") { // Gemini states a wait of a minute, too
		e.Cool = max(e.Cool, coolLong)
	}
	return e
}

// judgeByWords classifies an error without a meaningful status.
func judgeByWords(f *providers.VendorFault) (failure providers.Failure, permanent bool) {
	switch {
	case f.HasWord("overloaded", "overloaded_error", "server_overloaded", "engine_overloaded", "engine_overloaded_error", "unavailable",
		"service_unavailable", "unavailable_error", "the service is currently unavailable", "resource_exhausted",
		"some resource has been exhausted", "rate_limit", "rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error",
		"rate_limited", "too_many_requests", "throttlingexception", "capacity_exceeded"),
		f.Mentions("overloaded", "over capacity"):
		return providers.FailureOverloaded, false
	case f.HasWord("timeout", "timeout_error", "deadline_exceeded", "request_timeout", "gateway_timeout"):
		return providers.FailureTimeout, false
	}
	return providers.FailureRefused, f.HasWord("invalid_request_error", "invalid_argument", "client specified an invalid argument")
}

// outOfFunds reports whether the operator's account at the vendor has no money, so that waiting doesn't help. Gemini uses
// OpenAI's text of this error for its limit per minute and adds a time to retry, so the text alone proves nothing.
func outOfFunds(f *providers.VendorFault, status int) bool {
	return status == http.StatusPaymentRequired ||
		f.HasWord("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error", "exceeded_current_quota_error",
			"enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold", "insufficient_credits",
			"insufficient_balance") ||
		noFundsText.MatchString(f.Message)
}

// misconfigured reports whether the operator's key, account or model is wrong at the vendor. Several vendors answer 400 to a wrong
// key (Gemini, xAI) or to an unknown model (DeepSeek, Mistral, OpenRouter).
func misconfigured(f *providers.VendorFault, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	case 0, http.StatusBadRequest:
		return f.HasWord("invalid_api_key", "api_key_invalid", "authentication_error", "invalid_authentication_error", "permission_error",
			"permission_denied", "failed_precondition", "not_found_error", "model_not_found", "invalid_model", "deploymentnotfound",
			"organization_restricted") || misconfiguredText.MatchString(f.Message)
	}
	return false
}

// flagged reports whether the vendor's moderation refused the prompt. 403 is OpenRouter's and xAI's status for it.
func flagged(f *providers.VendorFault) bool {
	return f.HasWord("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed") ||
		f.Mentions("input was flagged", "violates usage guidelines", "content exists risk", "content management policy", "new_sensitive")
}

// unsupported reports whether the model refuses a field that other models accept.
func unsupported(f *providers.VendorFault) bool {
	return f.HasWord("unsupported_parameter", "unsupported_value", "extra_forbidden") || unsupportedText.MatchString(f.Message)
}

// These texts make an endpoint rest, so they count only near the beginning of a message: a vendor might quote the prompt after it.
// The runes are GLM's words for a balance that is too low.
var (
	noFundsText = regexp.MustCompile(`(?i)^.{0,100}(credit balance is too low|insufficient (balance|credits|funds)|` +
		`used all available credits|reached your specified api usage limits|\x{4F59}\x{989D}\x{4E0D}\x{8DB3})`)
	misconfiguredText = regexp.MustCompile(`(?i)^.{0,100}((incorrect|invalid) api key|api key (not valid|expired)|model not exist|` +
		`not a valid model|(invalid|unknown) model\b|model \S+ does not exist|location is not supported)`)
	unsupportedText = regexp.MustCompile(`(?i)^.{0,100}(argument not supported|does not support parameter|unsupported parameter|` +
		`not supported with this model|only \S+ is allowed for this model)`)
)

var tokenLimitText = regexp.MustCompile(`(?i)(input|prompt|context|request)[^.]{0,80}` +
	`(exceeds?|exceeded|longer than|too long)[^.]{0,80}(token|context|maximum|limit)`)

// contextTooLong recognizes the texts of OpenAI, vLLM, Anthropic, Gemini, Bedrock, llama.cpp, TGI, xAI, MiniMax, LM Studio, Groq,
// Kimi, Mistral, Together, Poolside, Ollama and GLM.
func contextTooLong(f *providers.VendorFault) bool {
	return f.HasWord("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "string_above_max_length") ||
		f.Mentions("maximum context length", "context_length_exceeded", "prompt is too long", "exceed context limit",
			"exceeds the context window", "exceeds the available context size", "input is too long for requested model",
			"maximum prompt length", "exceeds the maximum number of tokens", "`inputs` tokens + `max_new_tokens` must be",
			"context window exceeds limit", "greater than the context length", "reduce the length of the messages",
			"prompt exceeds max length") ||
		(f.Number == 0 || f.Number == 400) && tokenLimitText.MatchString(f.Message) && f.Mentions("token")
}
