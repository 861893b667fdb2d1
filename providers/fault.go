package providers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

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
