package platforms

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"
)

// decode reads a delivery into the fields that we know of it. What has another form than expected stays empty, and the
// rest is read all the same: one odd message must not cost its neighbours. ErrMalformed if the body is no JSON object.
func decode(body []byte, into any) error {
	if start := bytes.TrimLeft(body, " \t\r\n"); len(start) == 0 || start[0] != '{' {
		return ErrMalformed
	}
	err := json.Unmarshal(body, into)
	if _, unexpected := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !unexpected {
		return ErrMalformed
	}
	return nil
}

// identifier is an id that platforms write as a string or as a whole number. The digits stay as they are written: many
// are above 2^53. What can't be an id becomes empty, and so does one with NUL, broken characters or more than MaxID
// bytes: mended, it could be another's.
type identifier string

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (id *identifier) UnmarshalJSON(raw []byte) error {
	*id = ""
	if written, ok := unquote(raw); ok {
		if len(written) <= MaxID && !strings.ContainsAny(written, "\x00\uFFFD") {
			*id = identifier(written)
		}
		return nil
	}
	if digits := bytes.TrimPrefix(raw, []byte("-")); len(digits) > 0 && len(raw) <= MaxID && len(bytes.Trim(digits, "0123456789")) == 0 {
		*id = identifier(raw)
	}
	return nil
}

// moment is a time since 1970 in seconds or milliseconds, as a number or a string. Platforms mix all four.
type moment int64

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (m *moment) UnmarshalJSON(raw []byte) error {
	*m = 0
	written, quoted := unquote(raw)
	if !quoted {
		written = string(raw)
	}
	if n, err := strconv.ParseInt(written, 10, 64); err == nil {
		*m = moment(n)
	}
	return nil
}

// Bounds of a plausible moment: no platform had a webhook before 2010, and 10^11 seconds lie in the year 5138, 10^11
// milliseconds in 1973.
const (
	earliestMoment = 1_262_304_000 // 2010-01-01 in seconds
	secondsBelow   = 100_000_000_000
	millisBelow    = 100_000_000_000_000
)

// time is the zero time for a moment that can't be right: test deliveries say 1, and a message of 1970 would be out of
// every service window.
func (m moment) time() time.Time {
	var at time.Time
	switch {
	case m < secondsBelow:
		at = time.Unix(int64(m), 0)
	case m < millisBelow:
		at = time.UnixMilli(int64(m))
	}
	if at.Unix() < earliestMoment {
		return time.Time{}
	}
	return at.UTC()
}

// flag is a truth that may be written true, "true", 1 or "1".
type flag bool

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (f *flag) UnmarshalJSON(raw []byte) error {
	switch strings.Trim(string(raw), `"`) {
	case "true", "1":
		*f = true
	default:
		*f = false
	}
	return nil
}

// present tells whether a field is there and not null, whatever it holds.
type present bool

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (p *present) UnmarshalJSON(raw []byte) error {
	*p = string(raw) != "null"
	return nil
}

// nested is an object that some platforms write as JSON inside a string.
type nested[T any] struct{ value T }

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (n *nested[T]) UnmarshalJSON(raw []byte) error {
	var value T
	if inner, ok := unquote(raw); ok {
		raw = []byte(inner)
	}
	if decode(raw, &value) == nil {
		n.value = value
	}
	return nil
}

// list is an array of objects. One whose elements are so short that none can hold a message, but that would take many times
// the delivery's size, stays empty.
type list[T any] []T

// UnmarshalJSON never fails, for an error would end the reading of the whole delivery.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	*l = nil
	n := elements(raw)
	if size := int(unsafe.Sizeof(*new(T))); n == 0 || n > 1 && n*size > 6*len(raw) {
		return nil
	}
	all := make([]T, 0, n) // one that grows would take several times as much
	_ = json.Unmarshal(raw, &all)
	*l = all
	return nil
}

// elements counts the elements of a JSON array, 0 for another value.
func elements(raw []byte) (n int) {
	if len(raw) == 0 || raw[0] != '[' || len(bytes.TrimSpace(raw[1:])) == 1 {
		return 0
	}
	depth, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n + 1
}

// unquote returns what a JSON string holds, broken UTF-8 perhaps included; ok is false for other values.
func unquote(raw []byte) (value string, ok bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 {
		return string(plain), true
	}
	err := json.Unmarshal(raw, &value)
	return value, err == nil
}

// clean strips NUL, which PostgreSQL refuses (the platform would send the delivery again for hours), and cuts what is
// longer than limit bytes between two code points. Broken UTF-8 was replaced when the JSON was read.
func clean(text string, limit int) string {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit]) // not a window that keeps the whole text in memory
}

// mediaName is the platform's name of a kind of message if it looks like one, so that nothing else gets into the
// conversation; otherwise attachment.
func mediaName(name string) string {
	if name == "" || len(name) > 32 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "attachment"
	}
	return name
}

// oneOf returns the first text that is more than blanks.
func oneOf(texts ...string) string {
	for _, text := range texts {
		if strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}
