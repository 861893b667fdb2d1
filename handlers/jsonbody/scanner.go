// Package jsonbody scans the JSON bodies of requests: strictly, front to back, each byte once, without building a tree.
// Nesting and the number of names are bounded. It does not interpret members: its callers do, by callbacks.
package jsonbody

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/handlers"
)

const (
	// MaxDepth is how deep arrays and objects of a body may be nested.
	MaxDepth = 64
	// MaxNames bounds the names of an object and of those around it, and so what looking for repeated ones takes: 2 MiB.
	MaxNames = 100_000
)

// Scanner reads one JSON text (RFC 8259, with the restrictions of RFC 7493 on names, UTF-8 and surrogates) front to back,
// each byte once. It recurses no deeper than [MaxDepth], and what it returns are slices of the text. The first fault stops
// it for good: all methods then report false, and fault says what and where.
type Scanner struct {
	// Data is the text.
	Data []byte
	// Pos is the position in Data of the next byte to be read.
	Pos   int
	depth int
	// open counts the names of all objects that Pos is in.
	open  int
	fault *handlers.Error
}

// Literal is a string of the text.
type Literal struct {
	// Raw is what stands between the quotes: valid, escapes and all.
	Raw []byte
	// Start is the position of Raw in the text.
	Start int
	// Runes counts code points; an escape, also a surrogate pair of two, is one.
	Runes int
	// Escaped reports whether Raw contains escapes.
	Escaped bool
}

func (s *Scanner) fail(what string) bool {
	if s.fault == nil {
		s.fault = handlers.InvalidRequest("", "The request body is not valid JSON: %s at byte %d.", what, s.Pos)
	}
	return false
}

// Document reads the whole text, which must be one object; member and field are as in object. The result is nil when it
// is one.
func (s *Scanner) Document(member func(name Literal) bool, field func(name Literal) string) *handlers.Error {
	switch s.Space() {
	case '{':
		s.Object(member, field)
	case 0:
		if s.Pos == len(s.Data) {
			return handlers.InvalidRequest("", "The request body is empty. It must be a JSON object.")
		}
		s.Skip()
	default:
		if s.Skip() && s.end() {
			return handlers.InvalidRequest("", "The request body must be a JSON object.")
		}
	}
	if s.fault == nil {
		s.end()
	}
	return s.fault
}

// Space skips white space and returns the byte that follows it, or 0 at the end of the text.
func (s *Scanner) Space() byte {
	for s.Pos < len(s.Data) {
		c := s.Data[s.Pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
			return c
		}
		s.Pos++
	}
	return 0
}

// end checks that nothing but white space follows.
func (s *Scanner) end() bool {
	s.Space()
	if s.Pos < len(s.Data) {
		return s.fail("more data after the end of the object")
	}
	return true
}

// Skip reads one value of any sort and checks it.
func (s *Scanner) Skip() bool {
	switch c := s.Space(); {
	case c == '{':
		return s.Object(func(Literal) bool { return s.Skip() }, nil)
	case c == '[':
		return s.Array(func(int) bool { return s.Skip() })
	case c == '"':
		_, ok := s.ReadString()
		return ok
	case c == '-' || (c >= '0' && c <= '9'):
		_, ok := s.ReadNumber()
		return ok
	case c == 't':
		return s.Word("true")
	case c == 'f':
		return s.Word("false")
	case c == 'n':
		return s.Word("null")
	case s.Pos == len(s.Data):
		return s.fail("unexpected end")
	default:
		return s.fail("unexpected character")
	}
}

// Word reads the literal w (true, false or null) at the position.
func (s *Scanner) Word(w string) bool {
	if len(s.Data)-s.Pos < len(w) || string(s.Data[s.Pos:s.Pos+len(w)]) != w {
		return s.fail("unexpected character")
	}
	s.Pos += len(w)
	return true
}

// enter steps over an opening bracket.
func (s *Scanner) enter() bool {
	if s.depth == MaxDepth {
		return s.fail("nested too deeply")
	}
	s.depth++
	s.Pos++
	return true
}

// leave steps over a closing bracket.
func (s *Scanner) leave() bool {
	s.depth--
	s.Pos++
	return true
}

// Object reads the object that begins at pos. member is called for each member when pos is at its value, and must read
// it. A name that occurs twice is a fault; when field isn't nil, it says which field of the request that is.
func (s *Scanner) Object(member func(name Literal) bool, field func(name Literal) string) bool {
	if !s.enter() {
		return false
	}
	if s.Space() == '}' {
		return s.leave()
	}
	names := nameSet{}
	for {
		if s.Space() != '"' {
			return s.fail("a member name is missing")
		}
		name, ok := s.ReadString()
		if !ok {
			return false
		}
		if !names.add(s.Data, &name) {
			return s.repeated(name, field)
		}
		if s.open++; s.open > MaxNames {
			return s.fail("too many member names")
		}
		if s.Space() != ':' {
			return s.fail("a colon is missing")
		}
		s.Pos++
		s.Space()
		if !member(name) {
			return false
		}
		switch s.Space() {
		case ',':
			s.Pos++
		case '}':
			s.open -= names.count
			return s.leave()
		default:
			return s.fail("a comma or closing brace is missing")
		}
	}
}

func (s *Scanner) repeated(name Literal, field func(Literal) string) bool {
	s.Pos = name.Start - 1
	s.fail("a name is used twice in one object")
	if field != nil {
		s.fault.Field = field(name)
	}
	return false
}

// Array reads the array that begins at pos. element is called for each element when pos is at its value, and must read it.
func (s *Scanner) Array(element func(index int) bool) bool {
	if !s.enter() {
		return false
	}
	if s.Space() == ']' {
		return s.leave()
	}
	for i := 0; ; i++ {
		s.Space()
		if !element(i) {
			return false
		}
		switch s.Space() {
		case ',':
			s.Pos++
		case ']':
			return s.leave()
		default:
			return s.fail("a comma or closing bracket is missing")
		}
	}
}

// ReadString reads the string that begins at pos.
func (s *Scanner) ReadString() (Literal, bool) {
	s.Pos++
	lit := Literal{Start: s.Pos}
	for {
		n, runes, ascii := run(s.Data[s.Pos:])
		if !ascii && !utf8.Valid(s.Data[s.Pos:s.Pos+n]) {
			return lit, s.fail("a string with invalid UTF-8")
		}
		s.Pos += n
		lit.Runes += runes
		if s.Pos == len(s.Data) {
			return lit, s.fail("a string does not end")
		}
		switch s.Data[s.Pos] {
		case '"':
			lit.Raw = s.Data[lit.Start:s.Pos:s.Pos]
			s.Pos++
			return lit, true
		case '\\':
			size := escapeSize(s.Data[s.Pos:])
			if size == 0 {
				return lit, s.fail("an invalid escape or a lone surrogate")
			}
			s.Pos += size
			lit.Runes++
			lit.Escaped = true
		default:
			return lit, s.fail("a control character in a string")
		}
	}
}

// run measures what stands before the first quote, backslash or control character of b: its bytes, its code points if
// it is valid UTF-8, and whether it is ASCII. It looks at eight bytes at a time, for long prompts are most of what this
// package reads.
func run(b []byte) (n, runes int, ascii bool) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	var seen uint64
	for ; len(b)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(b[n:])
		quote := x ^ ones*'"'
		backslash := x ^ ones*'\\'
		// Each term has a high bit where its byte is special. A borrow can set wrong bits, but only above a right one.
		special := ((quote-ones)&^quote | (backslash-ones)&^backslash | (x-ones*' ')&^x) & highs
		if special != 0 {
			before := bits.TrailingZeros64(special) >> 3
			x &= 1<<(8*before) - 1
			return n + before, runes + n + before - continuations(x), (seen|x)&highs == 0
		}
		if x&highs != 0 {
			seen |= x
			runes -= continuations(x)
		}
	}
	for ; n < len(b) && b[n] != '"' && b[n] != '\\' && b[n] >= ' '; n++ {
		seen |= uint64(b[n])
		runes -= continuations(uint64(b[n]))
	}
	return n, runes + n, seen&highs == 0
}

// continuations counts the bytes 10xxxxxx of x: all bytes of UTF-8 but the first of each code point.
func continuations(x uint64) int {
	return bits.OnesCount64(x & ^(x << 1) & 0x8080808080808080)
}

// escapeSize is the length of the escape at the beginning of b: 2, 6, or 12 for a surrogate pair; 0 if it is invalid.
func escapeSize(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := hex4(b)
		switch {
		case !ok || isLow(r):
			return 0
		case !isHigh(r):
			return 6
		}
		if low, ok := hex4(b[6:]); ok && isLow(low) {
			return 12
		}
	}
	return 0
}

func isHigh(r rune) bool { return r >= 0xd800 && r < 0xdc00 }
func isLow(r rune) bool  { return r >= 0xdc00 && r < 0xe000 }

// hex4 reads the escape \uXXXX at the beginning of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// ReadNumber reads the number that begins at pos and returns its text.
func (s *Scanner) ReadNumber() ([]byte, bool) {
	start := s.Pos
	if s.Data[s.Pos] == '-' {
		s.Pos++
	}
	switch {
	case s.Pos < len(s.Data) && s.Data[s.Pos] == '0':
		s.Pos++
	case !s.digits():
		return nil, s.fail("an invalid number")
	}
	if s.Pos < len(s.Data) && s.Data[s.Pos] == '.' {
		s.Pos++
		if !s.digits() {
			return nil, s.fail("an invalid number")
		}
	}
	if s.Pos < len(s.Data) && s.Data[s.Pos]|0x20 == 'e' {
		s.Pos++
		if s.Pos < len(s.Data) && (s.Data[s.Pos] == '+' || s.Data[s.Pos] == '-') {
			s.Pos++
		}
		if !s.digits() {
			return nil, s.fail("an invalid number")
		}
	}
	return s.Data[start:s.Pos:s.Pos], true
}

// digits steps over one or more digits.
func (s *Scanner) digits() bool {
	start := s.Pos
	for s.Pos < len(s.Data) && s.Data[s.Pos] >= '0' && s.Data[s.Pos] <= '9' {
		s.Pos++
	}
	return s.Pos > start
}
