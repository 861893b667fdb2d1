package providers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// Failure is the class of a failed model call. The gateway maps each class to
// one public error code.
type Failure string

const (
	// FailureRefused means that the vendor answered with an error, or with something else than an answer. Code provider_error.
	FailureRefused Failure = "refused"
	// FailureUnreachable means that there was no connection, or that it broke. Code provider_error.
	FailureUnreachable Failure = "unreachable"
	// FailureOverloaded means 429, 503 or 529, or the same inside a stream. Code provider_overloaded.
	FailureOverloaded Failure = "overloaded"
	// FailureTimeout means 408, 504, or the end of one of our timers. Code provider_timeout.
	FailureTimeout Failure = "timeout"
	// FailureContextTooLong means that the prompt exceeds the model's window, as the vendor reports. Code context_too_long.
	FailureContextTooLong Failure = "context_too_long"
	// FailureRequestTooLarge means 413. Code invalid_request, field messages.
	FailureRequestTooLarge Failure = "request_too_large"
	// FailureInvalid means that the request can't be written in the vendor's dialect, so that nothing was sent, or that the vendor
	// refused it because of one field. Code invalid_request, with the field and the text of [Error.Invalid].
	FailureInvalid Failure = "invalid"
	// FailureCanceled means that the caller's context ended. Its cause is wrapped. The vendor is not at fault.
	FailureCanceled Failure = "canceled"
	// FailureBroken means that the adapter itself failed, for example with a panic. Code provider_error.
	FailureBroken Failure = "broken"
)

// Error is every error of a [Provider]. It is for logs only and never reaches a client.
type Error struct {
	Failure Failure
	// Status is the vendor's HTTP status. It is 0 if no response came.
	Status int
	// RetryAfter is the wait that the vendor demands, clamped to 1..60 s, or 0 if it stated none. Set with FailureOverloaded only.
	RetryAfter time.Duration
	// Permanent is set if the same request can't succeed later (wrong key, unknown model, no quota). The client is advised not to
	// retry.
	Permanent bool
	// Elsewhere is set if another vendor, or another account at the same one, may answer the same request: the fault is the
	// endpoint's (its key, its money, its load, its health), not the request's. A dialect decides, because a vendor's 400 may be its own
	// fault.
	Elsewhere bool
	// Cool is the time for which the endpoint should not be asked again, as the vendor said or as its kind of fault implies (a day's
	// quota, a spend limit). It is clamped to a day. 0 leaves it to the gateway.
	Cool time.Duration
	// Invalid is set with FailureInvalid. Its text reaches the client, so it quotes nothing of the vendor.
	Invalid *InvalidField
	// Detail is the vendor's error text: up to 512 bytes, valid UTF-8, without control characters and without anything that looks
	// like a key. It may quote the prompt, so it is for debug logs only.
	Detail string
	// Cause is the underlying error. It may be nil. With FailureCanceled it is the [context.Cause] of the caller's context.
	Cause error
}

// InvalidField names the field of a request that a dialect can't write, in the words of the public interface.
type InvalidField struct {
	// Field is the name, such as "messages" or "messages[3].role".
	Field string
	// Message is one sentence that names the allowed values.
	Message string
}

// Error describes the failure in one line for logs, without the vendor's own words. They may quote the prompt, which is not
// logged above debug level.
func (e *Error) Error() string {
	text := "model call failed (" + string(e.Failure)
	if e.Status != 0 {
		text += ", status " + strconv.Itoa(e.Status)
	}
	text += ")"
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// NotAnAnswer returns the error of a response that the protocol doesn't allow.
func NotAnAnswer(detail string) *Error {
	return &Error{Failure: FailureRefused, Detail: detail, Elsewhere: true}
}

// Unwritable returns the error of a request that the dialect can't write, with the texts of [InvalidField].
func Unwritable(field, message string) *Error {
	return &Error{Failure: FailureInvalid, Permanent: true, Invalid: &InvalidField{field, message}, Cause: errors.New(field + ": " + message)}
}

// StatusError returns the error of an answer with an error status: its class, whether the same request can succeed later, and the
// wait in the headers Retry-After-Ms and Retry-After, which is also the time to cool. Another endpoint may succeed, unless the
// status is 400, 413, 422 or another fault of the client. A redirect is an error, because it means a wrong address. 409 and 425 may
// succeed later. A dialect refines the error if its vendor says more in the body.
func StatusError(status int, header http.Header) *Error {
	e := &Error{Failure: FailureRefused, Status: status, Elsewhere: !clientFaults[status]}
	switch status {
	case http.StatusRequestEntityTooLarge:
		e.Failure, e.Permanent = FailureRequestTooLarge, true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		e.Failure = FailureOverloaded
		if wait, ok := retryAfter(header); ok {
			e.RetryAfter, e.Cool = ClampRetryAfter(wait), wait
		}
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		e.Failure = FailureTimeout
	case http.StatusConflict, http.StatusTooEarly:
	default:
		e.Permanent = status >= 300 && status < 500
	}
	return e
}

// clientFaults are the statuses with which a vendor refuses the request itself.
var clientFaults = map[int]bool{
	http.StatusBadRequest: true, http.StatusNotAcceptable: true, http.StatusRequestEntityTooLarge: true,
	http.StatusUnsupportedMediaType: true, http.StatusUnprocessableEntity: true, http.StatusRequestHeaderFieldsTooLarge: true,
}

// ClampRetryAfter returns the wait within the bounds of [Error.RetryAfter].
func ClampRetryAfter(wait time.Duration) time.Duration { return min(max(wait, minRetry), maxRetry) }

func retryAfter(h http.Header) (time.Duration, bool) {
	if wait, ok := parseWait(h.Get("Retry-After-Ms"), time.Millisecond); ok {
		return wait, true
	}
	text := h.Get("Retry-After")
	if wait, ok := parseWait(text, time.Second); ok {
		return wait, true
	}
	at, err := http.ParseTime(text)
	return time.Until(at), err == nil
}

func parseWait(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) {
		return 0, false
	}
	return time.Duration(min(max(n, 0), 1e6) * float64(unit)), true
}

const (
	// maxDetail limits [Error.Detail] in bytes.
	maxDetail = 512
	// minRetry and maxRetry limit [Error.RetryAfter].
	minRetry = time.Second
	maxRetry = time.Minute
	// maxCool limits [Error.Cool].
	maxCool = 24 * time.Hour
)

// tidy clamps the fields of a dialect's error to the bounds that [Error] promises, and returns it.
func tidy(e *Error, status int, apiKey string) *Error {
	e.Status = status
	e.Detail = logLine(e.Detail, apiKey)
	e.Failure = cmp.Or(e.Failure, FailureRefused)
	e.Cool = min(max(e.Cool, 0), maxCool)
	if e.Failure != FailureOverloaded {
		e.RetryAfter = 0
	} else if e.RetryAfter != 0 {
		e.RetryAfter = ClampRetryAfter(e.RetryAfter)
	}
	return e
}

const masked = "[masked]"

// keyShapes matches texts that look like a key: the usual prefixes (even if the vendor starred a part out), a bearer token, or a
// long run of letters and digits.
var keyShapes = regexp.MustCompile(`(?i)\bbearer\s+[^\s"',;]+` +
	`|\b(?:sk|pk|rk|ck|gsk|xai|hf|pplx|nvapi|fw|tgp|whsec|ghp|api|key)[-_][-_a-z0-9*.]{6,}` +
	`|\bAIza[-_a-z0-9*]{6,}` +
	`|\beyJ[-_a-z0-9]{8,}[-_a-z0-9.]*` +
	`|[a-z0-9_]{32,}`)

// logLine returns a vendor's text as one line for logs. It masks the key and everything that looks like one, turns control
// characters and white space into single blanks, replaces invalid UTF-8 and cuts at maxDetail bytes.
func logLine(text, apiKey string) string {
	if text == "" {
		return ""
	}
	if len(apiKey) >= 4 {
		text = strings.ReplaceAll(text, apiKey, masked)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = keyShapes.ReplaceAllString(text, masked)
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }), " ")
	if len(text) <= maxDetail {
		return text
	}
	cut := maxDetail
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// VendorFault is an error in the body or in an event of a vendor, for [Dialect.Fault].
type VendorFault struct {
	// Number is an HTTP status in the error, or 0.
	Number int
	// Words are the error's code, type and status and the codes of its details, in lower case.
	Words   []string
	Message string
	// PerDay is set if the quota of a day is used up.
	PerDay bool
	quoted string // text of another vendor that this vendor relays
	retry  string // RetryInfo's delay
}

// ReadFault reads an error in any form that a vendor is known for: {"error":{…}}, {"error":"text"}, the object itself, one of these in
// an array, a string, or a text that isn't JSON. Members of an unexpected type are left out.
func ReadFault(raw []byte) VendorFault {
	raw = bytes.TrimSpace(raw[:min(len(raw), MaxFault)])
	if list, ok := firstElements(raw, 1); ok && len(list) > 0 {
		raw = list[0]
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return VendorFault{Message: text}
	}
	object, ok := faultMembers(raw)
	if !ok {
		return VendorFault{Message: string(raw)}
	}
	if inner := object["error"]; len(inner) > 0 && string(inner) != "null" {
		f := ReadFault(inner)
		f.addWords(object) // xAI sends {"code":…,"error":"text"}
		return f
	}
	return readFaultObject(object)
}

func readFaultObject(object map[string]json.RawMessage) VendorFault {
	f := VendorFault{Message: firstString(object, "message", "detail", "error_description")}
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
		f.PerDay = f.PerDay || bytes.Contains(d["violations"], []byte("PerDay"))
	}
	if metadata, ok := faultMembers(object["metadata"]); ok {
		f.quoted = firstString(metadata, "raw")
	}
	return f
}

const (
	// MaxFault limits the bytes of an error that are read.
	MaxFault = 64 << 10
	// maxDetails limits the details of an error that are read. Vendors send three.
	maxDetails = 16
)

// MaxDepth limits the nesting of a vendor's JSON. No answer of a model is deeper.
const MaxDepth = 512

// faultNames are the members of errors that have a meaning. All others are skipped, because a vendor may be hostile.
var faultNames = []string{
	"error", "message", "detail", "error_description", "code", "type", "status", "details", "error_code", "reason", "retryDelay", "violations",
	"metadata", "raw",
}

// faultMembers returns the known members of an object. The last member of a name counts. ok is false if raw isn't an object.
func faultMembers(raw []byte) (object map[string]json.RawMessage, ok bool) {
	s := jsonscan.Lenient(raw, MaxDepth)
	if s.Peek() != '{' {
		return nil, false
	}
	object = make(map[string]json.RawMessage, len(faultNames))
	for more := s.Enter('{'); more; more = s.More('{') {
		name := s.Name()
		value := s.Value()
		if i := slices.Index(faultNames, string(name)); i >= 0 {
			object[faultNames[i]] = value
		}
	}
	return object, s.End()
}

// firstElements returns up to n elements of an array. ok is false if raw isn't an array.
func firstElements(raw []byte, n int) (list []json.RawMessage, ok bool) {
	s := jsonscan.Lenient(raw, MaxDepth)
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
func (f *VendorFault) addWords(object map[string]json.RawMessage) {
	for _, name := range []string{"code", "type", "status", "error_code", "reason"} {
		f.addWord(object[name])
	}
}

// addWord adds a code, which is a word, a number, or a number in quotes.
func (f *VendorFault) addWord(raw json.RawMessage) {
	var word string
	var number float64
	if json.Unmarshal(raw, &word) == nil {
		if n, err := strconv.Atoi(word); err == nil {
			number = float64(n)
		} else if word != "" && word != "error" { // Anthropic's type of all errors
			f.Words = append(f.Words, strings.ToLower(word))
		}
	} else if json.Unmarshal(raw, &number) != nil {
		return
	}
	if number >= 300 && number <= 599 && f.Number == 0 {
		f.Number = int(number)
	}
}

// Status returns the HTTP status that the error names by its number or by a word, or 0.
func (f *VendorFault) Status(ofWords map[string]int) int {
	status := f.Number
	for _, word := range f.Words {
		status = cmp.Or(status, ofWords[word])
	}
	return status
}

// HasWord reports whether the error has one of the words, which are in lower case.
func (f *VendorFault) HasWord(words ...string) bool {
	return slices.ContainsFunc(f.Words, func(word string) bool { return slices.Contains(words, word) })
}

// Mentions reports whether the message contains one of the texts, which are in lower case.
func (f *VendorFault) Mentions(texts ...string) bool {
	message := strings.ToLower(f.Message + "\n" + f.quoted)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
}

// Begins is like [VendorFault.Mentions] for the beginning of the message. Texts that make an endpoint rest should count only there: a vendor
// might quote the prompt after it.
func (f *VendorFault) Begins(texts ...string) bool {
	head := VendorFault{Message: f.Message[:min(len(f.Message), 100)]}
	return head.Mentions(texts...)
}

// Detail returns the text for [Error.Detail].
func (f *VendorFault) Detail() string {
	text := strings.Join(append(slices.Clone(f.Words), f.Message), ": ")
	if f.quoted != "" {
		text += " / " + f.quoted
	}
	return text
}

// retryText matches the wait in a message. It may end with a point.
var retryText = regexp.MustCompile(`(?i)(?:retry|again) (?:in|after) (?:about )?([0-9][0-9.hms]*)`)

// RetryAfter returns the wait that the vendor states in RetryInfo or in its prose, as in "Please retry in 34.6s", "try again in
// 350ms", "retry after 20 seconds". It returns 0 if there is none.
func (f *VendorFault) RetryAfter() time.Duration {
	spans := []string{f.retry}
	for _, text := range []string{f.Message, f.quoted} {
		if m := retryText.FindStringSubmatch(text); m != nil {
			span := strings.TrimRight(m[1], ".")
			spans = append(spans, span, span+"s")
		}
	}
	for _, span := range spans {
		if wait, err := time.ParseDuration(span); err == nil && wait >= 0 {
			return max(wait, time.Millisecond)
		}
	}
	return 0
}
