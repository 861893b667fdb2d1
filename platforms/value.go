package platforms

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// Value is a JSON value as it is written, inside of a text that [ParseObject] has checked. An absent value is nil. The methods
// read the value in place and allocate only their result.
type Value []byte

// ParseObject returns the JSON object that text consists of, without the white space around it. It returns [ErrMalformed] for any
// other text. Names may repeat; the last one counts. Texts may have broken characters, which become U+FFFD.
func ParseObject(text []byte) (Value, error) {
	s := jsonscan.Lenient(text, maxDepth)
	if s.Peek() != '{' {
		return nil, ErrMalformed
	}
	object := s.Value()
	if !s.End() {
		return nil, ErrMalformed
	}
	return object, nil
}

// maxDepth bounds the nesting of a delivery.
const maxDepth = 10_000

// Walk steps through the members of an object or the elements of an array. It allocates nothing for them, because a delivery may
// have a million that mean nothing.
type Walk struct {
	// Value is the current value.
	Value Value

	name    jsonscan.Literal
	scanner jsonscan.Scanner
	// open is '{' for an object and '[' for an array. Any other value has 0.
	open  byte
	begun bool
}

// Members walks through the members of an object; any other value has none.
func (v Value) Members() Walk { return begin(v, '{') }

// Elements walks through the elements of an array; any other value has none.
func (v Value) Elements() Walk { return begin(v, '[') }

func begin(text []byte, open byte) Walk {
	if len(text) == 0 || text[0] != open {
		return Walk{}
	}
	return Walk{scanner: jsonscan.Lenient(text, maxDepth), open: open}
}

// Next goes to the next value and reports whether there is one.
func (w *Walk) Next() bool {
	more := false
	if w.begun {
		more = w.scanner.More(w.open)
	} else if w.open != 0 {
		more, w.begun = w.scanner.Enter(w.open), true
	}
	if !more {
		*w = Walk{Value: w.Value, name: w.name}
		return false
	}
	if w.open == '{' {
		w.name = w.scanner.Key()
	}
	w.Value = w.scanner.Value()
	return w.Value != nil
}

// Key returns the name of the current member as it is written. Names that adapters look for have no escapes.
func (w *Walk) Key() string { return string(w.name.Inner()) }

// Field is a member of an object, with the place for its value in one of its forms. The place keeps its value if there is no such
// member.
type Field struct {
	Name string
	// Of is the name of the object in which the member is. It is empty for the object that is read.
	Of string

	ID     *string // see [Value.ID]
	Word   *string // see [Value.Word]
	Person *string // see [Value.Name]
	Text   *string // see [Value.Text], with [MaxText]
	Time   *time.Time
	Flag   *bool
	Value  *Value
}

// Read reads the fields of an object. Of repeated members the last one counts.
func (v Value) Read(fields []Field) {
	for w := v.Members(); w.Next(); {
		for i := range fields {
			if f := &fields[i]; w.Key() == cmp.Or(f.Of, f.Name) {
				f.read(w.Value)
			}
		}
	}
}

func (f *Field) read(v Value) {
	if f.Of != "" {
		v = v.Member(f.Name)
	}
	switch {
	case f.ID != nil:
		*f.ID = v.ID()
	case f.Word != nil:
		*f.Word = v.Word()
	case f.Person != nil:
		*f.Person = v.Name()
	case f.Text != nil:
		*f.Text = v.Text(MaxText)
	case f.Time != nil:
		*f.Time = v.Time()
	case f.Flag != nil:
		*f.Flag = v.Flag()
	case f.Value != nil:
		*f.Value = v
	}
}

// Text returns the content of a string. Any other value gives "". Text drops NUL, which PostgreSQL refuses, and cuts a text of
// more than limit bytes between two characters.
func (v Value) Text(limit int) string {
	text, _ := readText(v, limit)
	return text
}

// readText implements [Value.Text]. It also reports whether there was a NUL.
func readText(value []byte, limit int) (text string, hasNUL bool) {
	inner, ok := inside(value)
	if !ok {
		return "", false
	}
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(cut(inner, limit)), false
	}
	size, end := 0, 0
	for end < len(inner) {
		r, n := jsonscan.DecodeRune(inner[end:])
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
		r, n := jsonscan.DecodeRune(inner)
		if r != 0 {
			b.WriteRune(r)
		}
		inner = inner[n:]
	}
	return b.String(), hasNUL
}

// inside returns the text between the quotes of a JSON string.
func inside(value []byte) (inner []byte, ok bool) {
	inner = jsonscan.Literal(value).Inner()
	return inner, inner != nil
}

// Nested returns an object that some platforms write as JSON inside a string, as it is or unpacked. A string that contains no
// object gives nil. Other values are returned unchanged.
func (v Value) Nested() Value {
	inner, ok := inside(v)
	if !ok {
		return v
	}
	plain := make([]byte, 0, len(inner))
	for len(inner) > 0 {
		r, n := jsonscan.DecodeRune(inner)
		if r == utf8.RuneError && n == 1 {
			plain = append(plain, inner[0]) // a broken character, which the reader of the nested text replaces
		} else {
			plain = utf8.AppendRune(plain, r)
		}
		inner = inner[n:]
	}
	object, _ := ParseObject(plain)
	return object
}

// ID reads an id that platforms write as a string or as a whole number. It returns the digits as they are written, because many
// ids are above 2^53. It returns "" if the value can't be an id, or contains NUL, broken characters or more than [MaxID] bytes: a
// repaired id could be another item's.
func (v Value) ID() string {
	if _, quoted := inside(v); quoted {
		id, hasNUL := readText(v, MaxID+utf8.UTFMax)
		if hasNUL || len(id) > MaxID || strings.ContainsRune(id, utf8.RuneError) {
			return ""
		}
		return id
	}
	if digits := bytes.TrimPrefix(v, []byte("-")); len(digits) > 0 && len(v) <= MaxID && onlyDigits(digits) {
		return string(v)
	}
	return ""
}

func onlyDigits(text []byte) bool { return len(bytes.Trim(text, "0123456789")) == 0 }

// Member returns the last member of that name of an object, or nil.
func (v Value) Member(name string) (member Value) {
	for w := v.Members(); w.Next(); {
		if w.Key() == name {
			member = w.Value
		}
	}
	return member
}

// Word reads one of the platform's own words, like a kind.
func (v Value) Word() string { return v.Text(MaxID) }

// Name reads a name of a person, cut at [MaxName] bytes.
func (v Value) Name() string { return v.Text(MaxName) }

// Bounds of a plausible time. No platform had a webhook before 2010. 10^11 seconds are in the year 5138, 10^11 milliseconds in
// 1973.
const (
	earliestTime = 1_262_304_000 // 2010-01-01 in seconds
	secondsBelow = 100_000_000_000
	millisBelow  = 100_000_000_000_000
)

// Time reads a time since 1970 in seconds or milliseconds, as a number or a string; platforms mix all four. It returns the zero
// time for an implausible value: test deliveries contain 1, and a message of 1970 would be out of every service window.
func (v Value) Time() time.Time {
	if inner, quoted := inside(v); quoted {
		v = inner
	}
	const most = 18 // digits of a time
	if len(v) == 0 || len(v) > most || !onlyDigits(v) {
		return time.Time{}
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	var at time.Time
	switch {
	case err != nil:
	case n < secondsBelow:
		at = time.Unix(n, 0)
	case n < millisBelow:
		at = time.UnixMilli(n)
	}
	if at.Unix() < earliestTime {
		return time.Time{}
	}
	return at.UTC()
}

// Flag reads a truth value that may be written true, "true", 1 or "1".
func (v Value) Flag() bool {
	text := string(bytes.Trim(v, `"`))
	return text == "true" || text == "1"
}

// Given reports whether a value is present and not null.
func (v Value) Given() bool { return len(v) > 0 && string(v) != "null" }
