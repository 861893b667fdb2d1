package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

// Fault implements [providers.Dialect].
func (d *dialect) Fault(status int, header http.Header, body []byte) *providers.Error {
	fault := readVendorFault(body)
	if status != http.StatusOK {
		return classify(fault, status, header)
	}
	if fault.message == "" && len(fault.words) == 0 && fault.number == 0 {
		return providers.NotAnAnswer("the stream holds JSON that is no event")
	}
	return classify(fault, 0, nil)
}

// vendorFault is an error in the body or an event of a vendor. Words are in lower case.
type vendorFault struct {
	number  int      // a numeric code, or 0
	words   []string // code, type, status, detail codes
	message string
	quoted  string // text of another vendor that this vendor relays
	retry   string // RetryInfo's delay
	perDay  bool   // the quota of a day is used up
}

// readVendorFault reads an error in any of the known forms: {"error":{…}}, {"error":"text"}, the object itself, one of these in
// an array, a string, or a text that isn't JSON.
func readVendorFault(raw []byte) vendorFault {
	raw = bytes.TrimSpace(raw[:min(len(raw), maxFault)])
	if list, ok := firstElements(raw, 1); ok && len(list) > 0 {
		raw = list[0]
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return vendorFault{message: text}
	}
	object, ok := faultMembers(raw)
	if !ok {
		return vendorFault{message: string(raw)}
	}
	if inner := object["error"]; len(inner) > 0 && string(inner) != "null" {
		f := readVendorFault(inner)
		f.addWords(object) // xAI sends {"code":…,"error":"text"}
		return f
	}
	return readFaultObject(object)
}

func readFaultObject(object map[string]json.RawMessage) vendorFault {
	f := vendorFault{message: firstString(object, "message", "detail", "error_description")}
	f.addWords(object)
	details, ok := firstElements(object["details"], maxDetails)
	if !ok {
		details = []json.RawMessage{object["details"]}
	}
	forbidden, _ := firstElements(object["detail"], maxDetails) // Mistral's name of them
	for _, detail := range append(details, forbidden...) {
		d, _ := faultMembers(detail)
		f.addWords(d)
		if delay := firstString(d, "retryDelay"); delay != "" {
			f.retry = delay
		}
		f.perDay = f.perDay || bytes.Contains(d["violations"], []byte("PerDay"))
	}
	if metadata, ok := faultMembers(object["metadata"]); ok {
		f.quoted = firstString(metadata, "raw")
	}
	return f
}

const (
	// maxFault limits the bytes of an error that are read.
	maxFault = 64 << 10
	// maxDetails limits the details of an error that are read. Vendors send three.
	maxDetails = 16
)

// faultNames are the members of errors that have a meaning. All others are skipped, because a vendor may be hostile.
var faultNames = []string{
	"error", "message", "detail", "error_description", "code", "type", "status", "details", "error_code", "reason", "retryDelay", "violations",
	"metadata", "raw",
}

// faultMembers returns the known members of an object. The last member of a name counts. ok is false if raw isn't an object.
func faultMembers(raw []byte) (object map[string]json.RawMessage, ok bool) {
	s := newScanner(raw)
	if s.Peek() != '{' {
		return nil, false
	}
	object = make(map[string]json.RawMessage, len(faultNames))
	var buf [jsonscan.MaxWord]byte
	for more := s.Enter('{'); more; more = s.More('{') {
		name := s.Key().Word(&buf)
		value := s.Value()
		if i := slices.Index(faultNames, string(name)); i >= 0 {
			object[faultNames[i]] = value
		}
	}
	return object, s.End()
}

// firstElements returns up to n elements of an array. ok is false if raw isn't an array.
func firstElements(raw []byte, n int) (list []json.RawMessage, ok bool) {
	s := newScanner(raw)
	if s.Peek() != '[' {
		return nil, false
	}
	for more := s.Enter('['); more; more = s.More('[') {
		if value := s.Value(); len(list) < n {
			list = append(list, value)
		}
	}
	return list, s.End()
}

func firstString(object map[string]json.RawMessage, names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(object[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// addWords adds the codes of an error or of a detail of it.
func (f *vendorFault) addWords(object map[string]json.RawMessage) {
	for _, name := range []string{"code", "type", "status", "error_code", "reason"} {
		f.addWord(object[name])
	}
}

// addWord adds a code, which is a word, a number, or a number in quotes.
func (f *vendorFault) addWord(raw json.RawMessage) {
	var word string
	var number float64
	if json.Unmarshal(raw, &word) == nil {
		if n, err := strconv.Atoi(word); err == nil {
			number = float64(n)
		} else if word != "" {
			f.words = append(f.words, strings.ToLower(word))
		}
	} else if json.Unmarshal(raw, &number) != nil {
		return
	}
	if number >= 300 && number <= 599 && f.number == 0 {
		f.number = int(number)
	}
}

func (f *vendorFault) hasWord(words ...string) bool {
	for _, have := range f.words {
		if slices.Contains(words, have) {
			return true
		}
	}
	return false
}

func (f *vendorFault) mentions(texts ...string) bool {
	for _, where := range []string{f.message, f.quoted} {
		where = strings.ToLower(where)
		for _, text := range texts {
			if strings.Contains(where, text) {
				return true
			}
		}
	}
	return false
}

// coolLong is the time to rest for an endpoint without money or without a rest of its daily quota. A person has to act, and may have
// acted an hour later.
const coolLong = time.Hour

// classify returns the error for a vendor's fault. An error inside a successful answer has status 0; a number in the error
// replaces it.
func classify(f vendorFault, status int, header http.Header) *providers.Error {
	known := cmp.Or(status, f.number)
	e := providers.StatusError(known, header)
	e.Status, e.Detail = status, f.detail()
	switch {
	case e.Failure == providers.FailureRequestTooLarge:
	case known != 401 && known != 403 && known != 429 && f.contextTooLong():
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureContextTooLong, true, false
	case known != 401 && known != 429 && f.flagged():
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureRefused, true, false
	case f.outOfFunds(known):
		e.Failure, e.Permanent, e.Elsewhere, e.Cool = providers.FailureRefused, true, true, max(e.Cool, coolLong)
	case f.misconfigured(known):
		e.Failure, e.Permanent, e.Elsewhere = providers.FailureRefused, true, true
	case e.Failure == providers.FailureRefused && (known == 0 || known >= 500):
		e.Failure, e.Permanent = f.judgeByWords()
		e.Elsewhere = known != 0 || !e.Permanent
	default:
		e.Elsewhere = e.Elsewhere || f.unsupported()
	}
	if e.Failure != providers.FailureOverloaded {
		e.RetryAfter = 0
		return e
	}
	if e.RetryAfter == 0 {
		if wait := f.retryAfter(); wait != 0 {
			e.RetryAfter, e.Cool = providers.ClampRetryAfter(wait), wait
		}
	}
	if f.perDay || e.Cool == 0 && f.mentions("per day", "per-day") { // Gemini states a wait of a minute, too
		e.Cool = max(e.Cool, coolLong)
	}
	return e
}

// judgeByWords classifies an error without a meaningful status.
func (f *vendorFault) judgeByWords() (failure providers.Failure, permanent bool) {
	switch {
	case f.hasWord("overloaded", "overloaded_error", "server_overloaded", "engine_overloaded", "engine_overloaded_error", "unavailable",
		"service_unavailable", "unavailable_error", "the service is currently unavailable", "resource_exhausted",
		"some resource has been exhausted", "rate_limit", "rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error",
		"rate_limited", "too_many_requests", "throttlingexception", "capacity_exceeded"),
		f.mentions("overloaded", "over capacity"):
		return providers.FailureOverloaded, false
	case f.hasWord("timeout", "timeout_error", "deadline_exceeded", "request_timeout", "gateway_timeout"):
		return providers.FailureTimeout, false
	}
	return providers.FailureRefused, f.hasWord("invalid_request_error", "invalid_argument", "client specified an invalid argument")
}

// outOfFunds reports whether the operator's account at the vendor has no money, so that waiting doesn't help. Gemini uses
// OpenAI's text of this error for its limit per minute and adds a time to retry, so the text alone proves nothing.
func (f *vendorFault) outOfFunds(status int) bool {
	return status == http.StatusPaymentRequired ||
		f.hasWord("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error", "exceeded_current_quota_error",
			"enforced_spend_limit_reached", "contract_spend_limit_reached", "organization_on_hold", "insufficient_credits",
			"insufficient_balance") ||
		noFundsText.MatchString(f.message)
}

// misconfigured reports whether the operator's key, account or model is wrong at the vendor. Several vendors answer 400 to a wrong
// key (Gemini, xAI) or to an unknown model (DeepSeek, Mistral, OpenRouter).
func (f *vendorFault) misconfigured(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	case 0, http.StatusBadRequest:
		return f.hasWord("invalid_api_key", "api_key_invalid", "authentication_error", "invalid_authentication_error", "permission_error",
			"permission_denied", "failed_precondition", "not_found_error", "model_not_found", "invalid_model", "deploymentnotfound",
			"organization_restricted") || misconfiguredText.MatchString(f.message)
	}
	return false
}

// flagged reports whether the vendor's moderation refused the prompt. 403 is OpenRouter's and xAI's status for it.
func (f *vendorFault) flagged() bool {
	return f.hasWord("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed") ||
		f.mentions("input was flagged", "violates usage guidelines", "content exists risk", "content management policy", "new_sensitive")
}

// unsupported reports whether the model refuses a field that other models accept.
func (f *vendorFault) unsupported() bool {
	return f.hasWord("unsupported_parameter", "unsupported_value", "extra_forbidden") || unsupportedText.MatchString(f.message)
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

var (
	tokenLimitText = regexp.MustCompile(`(?i)(input|prompt|context|request)[^.]{0,80}` +
		`(exceeds?|exceeded|longer than|too long)[^.]{0,80}(token|context|maximum|limit)`)
	retryText = regexp.MustCompile(`(?i)(?:retry|again) (?:in|after) (?:about )?([0-9][0-9.]*(?:ms|s|m|h)?(?:[0-9.]+s)?)`)
)

// contextTooLong recognizes the texts of OpenAI, vLLM, Anthropic, Gemini, Bedrock, llama.cpp, TGI, xAI, MiniMax, LM Studio, Groq,
// Kimi, Mistral, Together, Poolside, Ollama and GLM.
func (f *vendorFault) contextTooLong() bool {
	return f.hasWord("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "string_above_max_length") ||
		f.mentions("maximum context length", "context_length_exceeded", "prompt is too long", "exceed context limit",
			"exceeds the context window", "exceeds the available context size", "input is too long for requested model",
			"maximum prompt length", "exceeds the maximum number of tokens", "`inputs` tokens + `max_new_tokens` must be",
			"context window exceeds limit", "greater than the context length", "reduce the length of the messages",
			"prompt exceeds max length") ||
		(f.number == 0 || f.number == 400) && tokenLimitText.MatchString(f.message) && f.mentions("token")
}

// detail returns the words and texts of the error, for logs.
func (f *vendorFault) detail() string {
	text := f.message
	if len(f.words) > 0 {
		text = strings.Join(f.words, ", ") + ": " + text
	}
	if f.quoted != "" {
		text += " / " + f.quoted
	}
	return text
}

// retryAfter returns the wait that the vendor states in RetryInfo or in its prose, as in "Please retry in 34.6s", "try again in
// 350ms", "retry after 20 seconds". It returns 0 if there is none.
func (f *vendorFault) retryAfter() time.Duration {
	spans := []string{f.retry}
	for _, text := range []string{f.message, f.quoted} {
		if m := retryText.FindStringSubmatch(text); m != nil {
			spans = append(spans, m[1], strings.TrimRight(m[1], ".")+"s")
		}
	}
	for _, span := range spans {
		if wait, err := time.ParseDuration(span); err == nil {
			return max(wait, time.Millisecond)
		}
	}
	return 0
}
