// Package jsonscan reads JSON texts (RFC 8259) front to back and allocates nothing for them: a [Scanner] returns slices of the
// text. Callers choose the members that they read and skip the others, so that a hostile text costs no memory.
//
// Requests are read by the rules of RFC 7493 ([Strict]), answers of vendors and deliveries of platforms by the grammar of
// encoding/json ([Lenient]). The time is linear in the length of the text, the depth is bounded, and only names that are compared
// use memory, up to 2 MiB ([MaxNames]).
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// MaxNames limits the names of an object and of its enclosing objects that [Scanner.Object] compares, and so the memory for
// finding repeated names to 2 MiB.
const MaxNames = 100_000

// Scanner reads one JSON text. Its first fault stops it permanently: every method then returns false, nil or 0.
//
// An object or array is read by a loop, or by [Scanner.Object] and [Scanner.Array], which also work while a function reads each
// value:
//
//	for more := s.Enter('{'); more; more = s.More('{') {
//		name := s.Name()
//		value := s.Value()
//	}
//
// A value that the loop doesn't read is skipped.
type Scanner struct {
	// data ends at the first fault, so that nothing after it is found.
	data     []byte
	pos      int
	value    int // where the last value begins
	depth    int
	maxDepth int
	// names is the number of compared names of all objects around pos.
	names  int
	strict bool
	fault  string
	// word is the memory of Word.
	word [MaxWord]byte
}

// Strict returns a Scanner for a text in which arrays and objects are nested up to maxDepth deep. Strings must be UTF-8 without
// lone surrogates, and a name must not repeat in an object that Object or Skip reads. The text is shorter than 4 GiB.
func Strict(text []byte, maxDepth int) Scanner {
	return Scanner{data: text, maxDepth: maxDepth, strict: true}
}

// Lenient returns a Scanner for a text in which arrays and objects are nested up to maxDepth deep. Like encoding/json it accepts
// repeated names, and strings with lone surrogates or bytes that aren't UTF-8.
func Lenient(text []byte, maxDepth int) Scanner { return Scanner{data: text, maxDepth: maxDepth} }

// Fault returns the fault that stopped the scanner and its position in bytes, or "" if there is none.
func (s *Scanner) Fault() (what string, at int) { return s.fault, s.pos }

// Offset returns the position in bytes up to which the text was read.
func (s *Scanner) Offset() int { return s.pos }

func (s *Scanner) fail(what string) bool {
	if s.fault == "" {
		s.fault = what
		s.data = s.data[:s.pos]
	}
	return false
}

func (s *Scanner) unexpected() bool {
	if s.pos == len(s.data) {
		return s.fail("unexpected end")
	}
	return s.fail("unexpected character")
}

// Peek skips white space and returns the byte that follows it, or 0 at the end of the text.
func (s *Scanner) Peek() byte {
	if s.pos < len(s.data) && s.data[s.pos] > ' ' {
		return s.data[s.pos]
	}
	return s.skipSpace()
}

func (s *Scanner) skipSpace() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// End reports whether there was no fault and only white space follows.
func (s *Scanner) End() bool {
	s.Peek()
	if s.pos < len(s.data) {
		return s.fail("more data after the end of the object")
	}
	return s.fault == ""
}

// Enter steps into an object ('{') or an array ('[') and reports whether it has an element.
func (s *Scanner) Enter(open byte) bool {
	if s.Peek() != open {
		return s.unexpected()
	}
	if s.depth == s.maxDepth {
		return s.fail("nested too deeply")
	}
	s.pos++
	if s.Peek() == closing(open) {
		s.pos++
		return false
	}
	s.depth++
	s.value = s.pos
	return true
}

// More steps over the comma or the closing bracket after an element and reports whether another element follows.
func (s *Scanner) More(open byte) bool {
	if s.pos == s.value {
		s.Skip()
	}
	switch s.Peek() {
	case ',':
		s.pos++
		s.Peek()
		s.value = s.pos
		return true
	case closing(open):
		s.pos++
		s.depth--
		return false
	}
	if open == '{' {
		return s.fail("a comma or closing brace is missing")
	}
	return s.fail("a comma or closing bracket is missing")
}

// closing returns the bracket that closes open. In ASCII its code is greater by 2.
func closing(open byte) byte { return open + 2 }

// Key reads a member's name and the colon after it. It does not compare the name with others.
func (s *Scanner) Key() Literal {
	name := s.name()
	if !s.colon() {
		return nil
	}
	return name
}

func (s *Scanner) name() Literal {
	if s.Peek() != '"' {
		s.fail("a member name is missing")
		return nil
	}
	return s.text()
}

func (s *Scanner) colon() bool {
	if s.Peek() != ':' {
		return s.fail("a colon is missing")
	}
	s.pos++
	s.Peek()
	s.value = s.pos
	return true
}

// Object reads an object. It calls member for each member, which must read the value and report whether to continue. A repeated
// name is a fault, for which repeated is called unless it is nil. Object reports whether the whole object was read.
func (s *Scanner) Object(member func(name Literal) bool, repeated func(name Literal)) bool {
	names := nameSet{}
	for more := s.Enter('{'); more; more = s.More('{') {
		name := s.name()
		if name == nil {
			return false
		}
		start := s.pos - len(name)
		if !names.add(s.data, start, name) {
			s.pos = start
			if repeated != nil {
				repeated(name)
			}
			return s.fail("a name is used twice in one object")
		}
		if s.names++; s.names > MaxNames {
			return s.fail("too many member names")
		}
		if !s.colon() || !member(name) {
			return false
		}
	}
	s.names -= names.count
	return s.fault == ""
}

// Array reads an array. It calls element for each element, which must read the value and report whether to continue. Array
// reports whether the whole array was read.
func (s *Scanner) Array(element func(index int) bool) bool {
	index := 0
	for more := s.Enter('['); more; more = s.More('[') {
		if !element(index) {
			return false
		}
		index++
	}
	return s.fault == ""
}

// Null skips a null and reports whether there was one. It doesn't move for other values.
func (s *Scanner) Null() bool { return s.Peek() == 'n' && s.expect("null") }

// StringOrSkip reads a string. It skips any other value and returns nil.
func (s *Scanner) StringOrSkip() Literal {
	if s.Peek() == '"' {
		return s.String()
	}
	s.Skip()
	return nil
}

// EnterOrSkip is like [Scanner.Enter], but skips a value of another kind.
func (s *Scanner) EnterOrSkip(open byte) bool {
	if s.Peek() == open {
		return s.Enter(open)
	}
	s.Skip()
	return false
}

// UnlessNull reads a value. For null it returns nil.
func (s *Scanner) UnlessNull() []byte {
	if s.Null() {
		return nil
	}
	return s.Value()
}

// Name is [Scanner.Key] and returns the name as [Scanner.Word] does.
func (s *Scanner) Name() []byte { return s.Word(s.Key()) }

// Word is [Literal.Word] with memory of the scanner. The text is valid until the next call.
func (s *Scanner) Word(text Literal) []byte { return text.Word(&s.word) }

// Value reads one value of any kind and returns it as it is written. It returns nil after a fault.
func (s *Scanner) Value() []byte {
	s.Peek()
	start := s.pos
	if !s.Skip() {
		return nil
	}
	return s.data[start:s.pos:s.pos]
}

// Skip reads one value of any kind and reports whether it is valid.
func (s *Scanner) Skip() bool {
	switch c := s.Peek(); {
	case c == '"':
		return s.text() != nil
	case c == '{' && s.strict:
		return s.Object(func(Literal) bool { return s.Skip() }, nil)
	case c == '[' && s.strict:
		return s.Array(func(int) bool { return s.Skip() })
	case c == '{' || c == '[':
		return s.skipNested()
	case c == 't':
		return s.expect("true")
	case c == 'f':
		return s.expect("false")
	case c == 'n':
		return s.expect("null")
	case IsNumber(c):
		return s.Number() != nil
	}
	return s.unexpected()
}

// skipNested reads an object or array without comparing names. It recurses only once in 64 levels, because a stack that
// grows with the depth would be many times as large as the text.
func (s *Scanner) skipNested() bool {
	const levels = 64
	var objects uint64 // the kinds of the open brackets, the innermost in the lowest bit
	depth := 0
	for {
		switch open := s.Peek(); {
		case open != '{' && open != '[':
			s.Skip()
		case depth == levels:
			s.skipNested()
		case s.Enter(open):
			depth++
			objects <<= 1
			if open == '{' {
				objects |= 1
				s.Key()
			}
			continue
		}
		for depth > 0 && !s.More('['|byte(objects&1)<<5) && s.fault == "" {
			depth--
			objects >>= 1
		}
		if depth == 0 || s.fault != "" {
			return s.fault == ""
		}
		if objects&1 != 0 {
			s.Key()
		}
	}
}

func (s *Scanner) expect(w string) bool {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return s.fail("unexpected character")
	}
	s.pos += len(w)
	return true
}

// String reads a string. It returns nil after a fault.
func (s *Scanner) String() Literal {
	if s.Peek() != '"' {
		s.unexpected()
		return nil
	}
	return s.text()
}

// shortText is the length up to which a string is read byte by byte, which is faster for names and words. Most strings are that
// short.
const shortText = 24

// text reads the string that begins at pos.
func (s *Scanner) text() Literal {
	rest := s.data[s.pos:]
	for i := 1; i < len(rest) && i <= shortText; i++ {
		switch c := rest[i]; {
		case c == '"':
			s.pos += i + 1
			return rest[: i+1 : i+1]
		case !plain[c]:
			return s.longText()
		}
	}
	return s.longText()
}

// plain marks the bytes that need no escape in any string.
var plain = func() (set [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		set[c] = c != '"' && c != '\\'
	}
	return set
}()

// longText reads a string of any length. It searches quotes and backslashes with the processor's vectors, because most of the
// input is long texts. It searches no byte twice for the same thing.
func (s *Scanner) longText() Literal {
	data, i := s.data, s.pos+1
	var seen uint64
	for quote := s.pos; ; {
		if quote < i { // at first, and if the last quote was escaped
			if quote = bytes.IndexByte(data[i:], '"'); quote < 0 {
				quote = len(data) - i
			}
			quote += i
		}
		run, _ := plainRun(data[i:quote])
		plain, bits := plainBytes(run)
		seen |= bits
		i += plain
		switch {
		case i == len(data):
			return s.failText(i, "a string does not end")
		case i == quote:
			if s.strict && seen&highs != 0 && !utf8.Valid(data[s.pos:i]) {
				return s.failText(i, "")
			}
			literal := data[s.pos : i+1 : i+1]
			s.pos = i + 1
			return literal
		case data[i] != '\\':
			return s.failText(i, "a control character in a string")
		}
		size := escapeSize(data[i:], s.strict)
		if size == 0 {
			return s.failText(i, "an invalid escape or a lone surrogate")
		}
		i += size
	}
}

const ones, highs = 0x0101010101010101, 0x8080808080808080

// plainBytes returns the number of bytes of run before its first control character, and the bits that are set in any of them.
func plainBytes(run []byte) (n int, seen uint64) {
	// In each term, the high bit of a byte is set if the byte is a control character. A borrow can set wrong bits, but only above
	// a right one.
	for ; len(run)-n >= 32; n += 32 {
		block := run[n : n+32 : n+32]
		a, b := binary.LittleEndian.Uint64(block), binary.LittleEndian.Uint64(block[8:])
		c, d := binary.LittleEndian.Uint64(block[16:]), binary.LittleEndian.Uint64(block[24:])
		if ((a-ones*' ')&^a|(b-ones*' ')&^b|(c-ones*' ')&^c|(d-ones*' ')&^d)&highs != 0 {
			break
		}
		seen |= a | b | c | d
	}
	for ; len(run)-n >= 8; n += 8 {
		x := binary.LittleEndian.Uint64(run[n:])
		if (x-ones*' ')&^x&highs != 0 {
			break
		}
		seen |= x
	}
	for ; n < len(run) && run[n] >= ' '; n++ {
		seen |= uint64(run[n])
	}
	return n, seen
}

// failText fails because of the string that begins at pos. It is valid up to end, except that in a strict text its UTF-8 isn't
// checked yet. A fault of UTF-8 comes first, and is reported after the last escape before it.
func (s *Scanner) failText(end int, what string) Literal {
	for s.pos++; s.strict; {
		run, rest := plainRun(s.data[s.pos:end])
		if !utf8.Valid(run) {
			s.fail("a string with invalid UTF-8")
		}
		if s.fault != "" || len(rest) == 0 {
			break
		}
		s.pos += len(run) + escapeSize(rest, true)
	}
	if s.fault == "" {
		s.pos = end
		s.fail(what)
	}
	return nil
}

// escapeSize returns the length of the escape at the start of b: 2, 6, or 12 for a surrogate pair in a strict text. It returns 0
// if the escape is invalid.
func escapeSize(b []byte, strict bool) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r, ok := Unit(b)
		if !ok || strict && isLow(r) {
			return 0
		}
		if !strict || !isHigh(r) {
			return UnitLen
		}
		if low, ok := Unit(b[UnitLen:]); ok && isLow(low) {
			return 2 * UnitLen
		}
	}
	return 0
}
