package providers

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxErrorWait bounds the reading of an error body.
	maxErrorWait = 5 * time.Second
	minRetry     = time.Second
	maxRetry     = 60 * time.Second
)

// vendorFault is what a vendor said about an error, from a body or an event. Words are in lower case.
type vendorFault struct {
	header  http.Header // nil inside a stream
	number  int         // a numeric code, 0 if none
	words   []string    // code, type, status, detail codes
	message string
	quoted  string // what a vendor behind the vendor said
	retry   string // RetryInfo's delay
}

// readVendorFault reads an error in any of the known forms: {"error":{…}}, {"error":"text"}, the object itself,
// one of those in an array, a string, or no JSON at all.
func readVendorFault(raw []byte) vendorFault {
	raw = bytes.TrimSpace(raw[:min(len(raw), maxErrorBytes)])
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
		return readVendorFault(inner)
	}
	return readFaultObject(object)
}

func readFaultObject(object map[string]json.RawMessage) vendorFault {
	f := vendorFault{message: firstString(object, "message", "detail", "error_description")}
	for _, name := range []string{"code", "type", "status"} {
		f.addWord(object[name])
	}
	details, ok := firstElements(object["details"], maxDetails)
	if !ok {
		details = []json.RawMessage{object["details"]}
	}
	for _, detail := range details {
		d, _ := faultMembers(detail)
		f.addWord(d["error_code"])
		if delay := firstString(d, "retryDelay"); delay != "" {
			f.retry = delay
		}
	}
	if metadata, ok := faultMembers(object["metadata"]); ok {
		f.quoted = firstString(metadata, "raw")
	}
	return f
}

// maxDetails bounds the details of an error that are looked at; vendors send three.
const maxDetails = 16

// faultNames are the members of errors that say something. Nothing is made of the others: a vendor may be hostile.
var faultNames = []string{
	"error", "message", "detail", "error_description", "code", "type", "status", "details", "error_code", "retryDelay", "metadata", "raw",
}

// faultMembers returns the known members of an object, the last one of each name; ok is false for anything else.
func faultMembers(raw []byte) (object map[string]json.RawMessage, ok bool) {
	s := jsonScan{data: raw}
	if s.peek() != '{' {
		return nil, false
	}
	object = make(map[string]json.RawMessage, len(faultNames))
	for more := s.enter('{'); more; more = s.more('{') {
		name := s.key()
		value := s.skip()
		for _, known := range faultNames {
			if is(name, known) {
				object[known] = value
			}
		}
	}
	return object, s.end()
}

// firstElements returns up to n elements of an array; ok is false for anything else.
func firstElements(raw []byte, n int) (list []json.RawMessage, ok bool) {
	s := jsonScan{data: raw}
	if s.peek() != '[' {
		return nil, false
	}
	for more := s.enter('['); more; more = s.more('[') {
		if value := s.skip(); len(list) < n {
			list = append(list, value)
		}
	}
	return list, s.end()
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

// addWord takes a code, which is a word, a number, or a number in quotes.
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

func (f *vendorFault) says(words ...string) bool {
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

// classify is the table of design §6 and gateways §5. status is 0 for an error inside a successful answer; then a
// number in the error counts as one.
func classify(f vendorFault, status int, apiKey string) *Error {
	e := &Error{Status: status, Detail: logDetail(f, apiKey)}
	if status == 0 {
		status = f.number
	}
	e.Failure, e.Permanent = f.judge(status)
	if e.Failure == FailureOverloaded {
		e.RetryAfter = f.retryAfter()
	}
	return e
}

func (f *vendorFault) judge(status int) (failure Failure, permanent bool) {
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return FailureRequestTooLarge, true
	case status != 401 && status != 403 && status != 429 && f.contextTooLong():
		return FailureContextTooLong, true
	case f.outOfFunds(status):
		return FailureRefused, true
	case status == 429, status == 503, status == 529:
		return FailureOverloaded, false
	case status == 408, status == 504:
		return FailureTimeout, false
	case status == 0, status >= 500:
		return f.judgeByWords()
	}
	// A redirect is a wrong address. 409 and 425 may pass.
	return FailureRefused, status >= 300 && status != 409 && status != 425
}

// judgeByWords is for errors without a telling status.
func (f *vendorFault) judgeByWords() (failure Failure, permanent bool) {
	switch {
	case f.says("overloaded", "overloaded_error", "server_overloaded", "engine_overloaded", "unavailable",
		"service_unavailable", "resource_exhausted", "rate_limit", "rate_limit_exceeded", "rate_limit_error",
		"rate_limited", "too_many_requests", "capacity_exceeded"),
		f.mentions("overloaded", "over capacity"):
		return FailureOverloaded, false
	case f.says("timeout", "timeout_error", "deadline_exceeded", "request_timeout", "gateway_timeout"):
		return FailureTimeout, false
	}
	return FailureRefused, f.says("invalid_request_error", "authentication_error", "permission_error",
		"not_found_error", "invalid_api_key", "model_not_found")
}

// outOfFunds: the operator's account at the vendor has no money; waiting doesn't help. Gemini uses OpenAI's text of
// this for its limit per minute and then says when to retry, so the text alone tells nothing.
func (f *vendorFault) outOfFunds(status int) bool {
	return status == http.StatusPaymentRequired ||
		f.says("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error",
			"enforced_spend_limit_reached", "insufficient_credits", "insufficient_balance") ||
		f.mentions("credit balance is too low", "insufficient balance")
}

var (
	tokenLimitText = regexp.MustCompile(`(?i)(input|prompt|context|request)[^.]{0,80}` +
		`(exceeds?|exceeded|longer than|too long)[^.]{0,80}(token|context|maximum|limit)`)
	retryText = regexp.MustCompile(`(?i)(?:retry|again) (?:in|after) (?:about )?([0-9][0-9.]*(?:ms|s|m|h)?(?:[0-9.]+s)?)`)
)

// contextTooLong recognises the texts of OpenAI, vLLM, Anthropic, Gemini, Bedrock, llama.cpp, TGI and xAI.
func (f *vendorFault) contextTooLong() bool {
	return f.says("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error", "string_above_max_length") ||
		f.mentions("maximum context length", "context_length_exceeded", "prompt is too long", "exceed context limit",
			"exceeds the context window", "exceeds the available context size", "input is too long for requested model",
			"maximum prompt length", "exceeds the maximum number of tokens", "`inputs` tokens + `max_new_tokens` must be") ||
		(f.number == 0 || f.number == 400) && tokenLimitText.MatchString(f.message) && f.mentions("token")
}

// retryAfter returns the vendor's wish: the headers, else RetryInfo, else its prose.
func (f *vendorFault) retryAfter() time.Duration {
	for _, wish := range []func() (time.Duration, bool){
		func() (time.Duration, bool) { return parseNumber(f.header.Get("Retry-After-Ms"), time.Millisecond) },
		func() (time.Duration, bool) { return parseNumber(f.header.Get("Retry-After"), time.Second) },
		func() (time.Duration, bool) { return parseDate(f.header.Get("Retry-After")) },
		func() (time.Duration, bool) { return parseSpan(f.retry) },
		func() (time.Duration, bool) { return parseProse(f.message) },
		func() (time.Duration, bool) { return parseProse(f.quoted) },
	} {
		if d, ok := wish(); ok {
			return min(max(d, minRetry), maxRetry)
		}
	}
	return 0
}

func parseNumber(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(min(max(n, 0), 1e6) * float64(unit)), true
}

func parseDate(s string) (time.Duration, bool) {
	at, err := http.ParseTime(s)
	if err != nil {
		return 0, false
	}
	return time.Until(at), true
}

func parseSpan(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// parseProse finds "Please retry in 34.6s", "try again in 350ms", "retry after 20 seconds".
func parseProse(s string) (time.Duration, bool) {
	m := retryText.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	if d, ok := parseSpan(m[1]); ok {
		return d, true
	}
	return parseNumber(strings.TrimRight(m[1], "."), time.Second)
}

// bareFault judges bare JSON in a stream.
func bareFault(data []byte, apiKey string) *Error {
	if !json.Valid(data) {
		return notAnAnswer("the stream holds bytes that are no event")
	}
	f := readVendorFault(data)
	if f.message == "" && len(f.words) == 0 && f.number == 0 {
		return notAnAnswer("the stream holds JSON that is no event")
	}
	return classify(f, 0, apiKey)
}
