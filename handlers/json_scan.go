package handlers

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	// maxDepth is how deep arrays and objects of a body may be nested (design §6).
	maxDepth = 64
	// maxNames bounds the names of an object and of those around it, and so what looking for repeated ones takes: 2 MiB.
	maxNames = 100_000
)

// scanner reads one JSON text (RFC 8259, with the restrictions of RFC 7493 on names, UTF-8 and surrogates) front to back,
// each byte once. It recurses no deeper than maxDepth, and what it returns are slices of the text. The first fault stops
// it for good: all methods then report false, and fault says what and where.
type scanner struct {
	text  []byte
	pos   int
	depth int
	// open counts the names of all objects that pos is in.
	open  int
	fault *Error
}

// literal is a string of the text.
type literal struct {
	// raw is what stands between the quotes: valid, escapes and all.
	raw []byte
	// start is the position of raw in the text.
	start int
	// runes counts code points; an escape, also a surrogate pair of two, is one.
	runes int
	// escaped: raw has escapes.
	escaped bool
}

func (s *scanner) fail(what string) bool {
	if s.fault == nil {
		s.fault = InvalidRequest("", "The request body is not valid JSON: %s at byte %d.", what, s.pos)
	}
	return false
}

// document reads the whole text, which must be one object; member and field are as in object. The result is nil when it
// is one.
func (s *scanner) document(member func(name literal) bool, field func(name literal) string) *Error {
	switch s.space() {
	case '{':
		s.object(member, field)
	case 0:
		if s.pos == len(s.text) {
			return InvalidRequest("", "The request body is empty. It must be a JSON object.")
		}
		s.skip()
	default:
		if s.skip() && s.end() {
			return InvalidRequest("", "The request body must be a JSON object.")
		}
	}
	if s.fault == nil {
		s.end()
	}
	return s.fault
}

// space skips white space and returns the byte that follows it, or 0 at the end of the text.
func (s *scanner) space() byte {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
			return c
		}
		s.pos++
	}
	return 0
}

// end checks that nothing but white space follows.
func (s *scanner) end() bool {
	s.space()
	if s.pos < len(s.text) {
		return s.fail("more data after the end of the object")
	}
	return true
}

// skip reads one value of any sort and checks it.
func (s *scanner) skip() bool {
	switch c := s.space(); {
	case c == '{':
		return s.object(func(literal) bool { return s.skip() }, nil)
	case c == '[':
		return s.array(func(int) bool { return s.skip() })
	case c == '"':
		_, ok := s.string()
		return ok
	case c == '-' || (c >= '0' && c <= '9'):
		_, ok := s.number()
		return ok
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case s.pos == len(s.text):
		return s.fail("unexpected end")
	default:
		return s.fail("unexpected character")
	}
}

func (s *scanner) word(w string) bool {
	if len(s.text)-s.pos < len(w) || string(s.text[s.pos:s.pos+len(w)]) != w {
		return s.fail("unexpected character")
	}
	s.pos += len(w)
	return true
}

// enter steps over an opening bracket.
func (s *scanner) enter() bool {
	if s.depth == maxDepth {
		return s.fail("nested too deeply")
	}
	s.depth++
	s.pos++
	return true
}

// leave steps over a closing bracket.
func (s *scanner) leave() bool {
	s.depth--
	s.pos++
	return true
}

// object reads the object that begins at pos. member is called for each member when pos is at its value, and must read
// it. A name that occurs twice is a fault; when field isn't nil, it says which field of the request that is.
func (s *scanner) object(member func(name literal) bool, field func(name literal) string) bool {
	if !s.enter() {
		return false
	}
	if s.space() == '}' {
		return s.leave()
	}
	names := nameSet{}
	for {
		if s.space() != '"' {
			return s.fail("a member name is missing")
		}
		name, ok := s.string()
		if !ok {
			return false
		}
		if !names.add(s.text, &name) {
			return s.repeated(name, field)
		}
		if s.open++; s.open > maxNames {
			return s.fail("too many member names")
		}
		if s.space() != ':' {
			return s.fail("a colon is missing")
		}
		s.pos++
		s.space()
		if !member(name) {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			s.open -= names.count
			return s.leave()
		default:
			return s.fail("a comma or closing brace is missing")
		}
	}
}

func (s *scanner) repeated(name literal, field func(literal) string) bool {
	s.pos = name.start - 1
	s.fail("a name is used twice in one object")
	if field != nil {
		s.fault.Field = field(name)
	}
	return false
}

// array reads the array that begins at pos. element is called for each element when pos is at its value, and must read it.
func (s *scanner) array(element func(index int) bool) bool {
	if !s.enter() {
		return false
	}
	if s.space() == ']' {
		return s.leave()
	}
	for i := 0; ; i++ {
		s.space()
		if !element(i) {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case ']':
			return s.leave()
		default:
			return s.fail("a comma or closing bracket is missing")
		}
	}
}

// string reads the string that begins at pos.
func (s *scanner) string() (literal, bool) {
	s.pos++
	lit := literal{start: s.pos}
	for {
		n, runes, ascii := run(s.text[s.pos:])
		if !ascii && !utf8.Valid(s.text[s.pos:s.pos+n]) {
			return lit, s.fail("a string with invalid UTF-8")
		}
		s.pos += n
		lit.runes += runes
		if s.pos == len(s.text) {
			return lit, s.fail("a string does not end")
		}
		switch s.text[s.pos] {
		case '"':
			lit.raw = s.text[lit.start:s.pos:s.pos]
			s.pos++
			return lit, true
		case '\\':
			size := escapeSize(s.text[s.pos:])
			if size == 0 {
				return lit, s.fail("an invalid escape or a lone surrogate")
			}
			s.pos += size
			lit.runes++
			lit.escaped = true
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

// number reads the number that begins at pos and returns its text.
func (s *scanner) number() ([]byte, bool) {
	start := s.pos
	if s.text[s.pos] == '-' {
		s.pos++
	}
	switch {
	case s.pos < len(s.text) && s.text[s.pos] == '0':
		s.pos++
	case !s.digits():
		return nil, s.fail("an invalid number")
	}
	if s.pos < len(s.text) && s.text[s.pos] == '.' {
		s.pos++
		if !s.digits() {
			return nil, s.fail("an invalid number")
		}
	}
	if s.pos < len(s.text) && s.text[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.text) && (s.text[s.pos] == '+' || s.text[s.pos] == '-') {
			s.pos++
		}
		if !s.digits() {
			return nil, s.fail("an invalid number")
		}
	}
	return s.text[start:s.pos:s.pos], true
}

// digits steps over one or more digits.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}
