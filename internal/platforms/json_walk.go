package platforms

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// object returns the JSON object that is all of text, without the white space around it, or [ErrMalformed]. Names may
// repeat, of which the last one counts, and texts may have broken characters, which become U+FFFD.
func object(text []byte) ([]byte, error) {
	text = bytes.Trim(text, " \t\r\n")
	if len(text) == 0 || text[0] != '{' ||
		!jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return nil, ErrMalformed
	}
	return text, nil
}

// walk steps through the members of an object, or the elements of an array, of valid JSON, and builds nothing of them: a
// delivery may have a million that mean nothing. A value of another type has no members.
type walk struct {
	// value is the current one as it is written.
	value []byte

	name   []byte
	rest   []byte
	object bool
}

func members(text []byte) walk { return begin(text, '{') }

func elements(text []byte) walk { return begin(text, '[') }

func begin(text []byte, opening byte) walk {
	if len(text) == 0 || text[0] != opening {
		return walk{}
	}
	return walk{rest: text[1:], object: opening == '{'}
}

// next goes to the next value and reports whether there is one.
func (w *walk) next() bool {
	w.between()
	if len(w.rest) == 0 || w.rest[0] == '}' || w.rest[0] == ']' {
		return false
	}
	if w.object {
		name := w.take()
		w.name = name[1 : len(name)-1]
		w.between()
	}
	w.value = w.take()
	return true
}

// key is the name of the current member. Names that we look for have no escapes.
func (w *walk) key() string { return string(w.name) }

// between steps over what stands between values.
func (w *walk) between() {
	for i, c := range w.rest {
		if c > ',' && c != ':' || c == '"' {
			w.rest = w.rest[i:]
			return
		}
	}
	w.rest = nil
}

// take returns the value at the beginning of the rest.
func (w *walk) take() []byte {
	var n int
	switch w.rest[0] {
	case '"':
		n = textEnd(w.rest)
	case '{', '[':
		n = closingEnd(w.rest)
	default:
		n = bytes.IndexAny(w.rest, ",]} \t\r\n")
	}
	value := w.rest[:n]
	w.rest = w.rest[n:]
	return value
}

// textEnd is the length of the string that the JSON begins with.
func textEnd(text []byte) int {
	quote := 0
	for at := 1; ; {
		if at > quote {
			quote = at + bytes.IndexByte(text[at:], '"')
		}
		slash := bytes.IndexByte(text[at:quote], '\\')
		if slash < 0 {
			return quote + 1
		}
		at += slash + 2
	}
}

// closingEnd is the length of the object or array that the JSON begins with.
func closingEnd(text []byte) int {
	depth := 0
	for i := 0; ; i++ {
		switch text[i] {
		case '"':
			i += textEnd(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// textOf returns what a JSON string holds, and "" for other values. NUL is left out, which PostgreSQL refuses (the platform
// would send the delivery again for hours); what is longer than limit bytes is cut between two characters.
func textOf(value []byte, limit int) string {
	text, _ := readText(value, limit)
	return text
}

// readText is [textOf] and reports whether there was a NUL.
func readText(value []byte, limit int) (text string, hasNUL bool) {
	inner, ok := inside(value)
	if !ok {
		return "", false
	}
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		if len(inner) > limit {
			for !utf8.RuneStart(inner[limit]) {
				limit--
			}
			inner = inner[:limit]
		}
		return string(inner), false
	}
	size, end := 0, 0
	for end < len(inner) {
		r, n := character(inner[end:])
		if r == 0 {
			hasNUL = true
		} else if size += utf8.RuneLen(r); size > limit {
			break
		}
		end += n
	}
	var b strings.Builder
	b.Grow(min(size, limit))
	for inner = inner[:end]; len(inner) > 0; {
		r, n := character(inner)
		if r != 0 {
			b.WriteRune(r)
		}
		inner = inner[n:]
	}
	return b.String(), hasNUL
}

// inside is what stands between the quotes of a JSON string.
func inside(value []byte) (inner []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	return value[1 : len(value)-1], true
}

// character reads the first character of what stands in a JSON string.
func character(text []byte) (r rune, size int) {
	if text[0] != '\\' {
		return utf8.DecodeRune(text)
	}
	switch text[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		return escaped(text)
	default:
		return rune(text[1]), 2
	}
}

// escaped reads an escape of four hexadecimal digits, or two that are a pair.
func escaped(text []byte) (r rune, size int) {
	r = unit(text)
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
		if pair := utf16.DecodeRune(r, unit(text[6:])); pair != utf8.RuneError {
			return pair, 12
		}
	}
	return utf8.RuneError, 6
}

func unit(text []byte) (r rune) {
	for _, c := range text[2:6] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c&^0x20 - 'A' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// nested returns an object that some platforms write as JSON inside a string, as it is or unpacked. For a string
// that holds no object it returns nil, and other values as they are.
func nested(value []byte) []byte {
	if inner, ok := inside(value); ok {
		plain := make([]byte, 0, len(inner))
		for len(inner) > 0 {
			r, n := character(inner)
			if r == utf8.RuneError && n == 1 {
				plain = append(plain, inner[0]) // a broken character; what reads the text inside replaces it
			} else {
				plain = utf8.AppendRune(plain, r)
			}
			inner = inner[n:]
		}
		value, _ = object(plain)
	}
	return value
}

// idOf reads an id that platforms write as a string or as a whole number. The digits stay as they are written: many are
// above 2^53. What can't be an id is "", and so is one with NUL, broken characters or more than MaxID bytes: mended, it
// could be another's.
func idOf(value []byte) string {
	if _, quoted := inside(value); quoted {
		id, hasNUL := readText(value, MaxID+utf8.UTFMax)
		if hasNUL || len(id) > MaxID || strings.ContainsRune(id, utf8.RuneError) {
			return ""
		}
		return id
	}
	if digits := bytes.TrimPrefix(value, []byte("-")); len(digits) > 0 && len(value) <= MaxID && onlyDigits(digits) {
		return string(value)
	}
	return ""
}

func onlyDigits(text []byte) bool { return len(bytes.Trim(text, "0123456789")) == 0 }

// memberOf is the member of that name of an object, nil without one.
func memberOf(value []byte, name string) (member []byte) {
	for w := members(value); w.next(); {
		if w.key() == name {
			member = w.value
		}
	}
	return member
}

func idIn(value []byte, name string) string { return idOf(memberOf(value, name)) }

func textIn(value []byte, name string) string { return textOf(memberOf(value, name), MaxText) }

func nameIn(value []byte, name string) string { return textOf(memberOf(value, name), MaxName) }

// wordOf reads one of the platform's own words, like a kind.
func wordOf(value []byte) string { return textOf(value, MaxID) }

func wordIn(value []byte, name string) string { return wordOf(memberOf(value, name)) }

// momentOf reads a time since 1970 in seconds or milliseconds, as a number or a string, 0 for anything else. Platforms mix
// all four.
func momentOf(value []byte) moment {
	if inner, quoted := inside(value); quoted {
		value = inner
	}
	const most = 18 // digits; more are no moment
	if len(value) == 0 || len(value) > most || !onlyDigits(value) {
		return 0
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return moment(n)
}

// flagOf reads a truth that may be written true, "true", 1 or "1".
func flagOf(value []byte) bool {
	switch string(bytes.Trim(value, `"`)) {
	case "true", "1":
		return true
	default:
		return false
	}
}

// given reports whether a field is there and not null, whatever it holds.
func given(value []byte) bool { return len(value) > 0 && string(value) != "null" }
