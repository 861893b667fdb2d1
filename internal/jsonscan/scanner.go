// Package jsonscan reads JSON in a single pass without building anything of it, in bounded depth.
package jsonscan

import (
	"math"
	"slices"
	"strconv"
)

// MaxDepth bounds the nesting of what is read.
const MaxDepth = 512

// Scanner walks over one JSON text (RFC 8259) in a single pass without building anything. Its grammar is the one
// of encoding/json: bytes that are no UTF-8 are tolerated inside strings. The first fault sets bad, after which
// every method returns at once with nothing.
type Scanner struct {
	data  []byte
	pos   int
	depth int
	bad   bool
}

// New returns a Scanner at the beginning of data.
func New(data []byte) Scanner { return Scanner{data: data} }

// Peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) Peek() byte {
	for s.pos < len(s.data) {
		switch b := s.data[s.pos]; b {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return b
		}
	}
	return 0
}

// Enter steps into an object ('{') or an array ('[') and reports whether it has an element.
func (s *Scanner) Enter(open byte) bool {
	if s.bad || s.Peek() != open || s.depth >= MaxDepth {
		return s.fault()
	}
	s.pos++
	s.depth++
	if s.Peek() == closing(open) {
		s.pos++
		s.depth--
		return false
	}
	return true
}

// More steps over what follows an element and reports whether another one comes.
func (s *Scanner) More(open byte) bool {
	if s.bad {
		return false
	}
	switch s.Peek() {
	case ',':
		s.pos++
		return true
	case closing(open):
		s.pos++
		s.depth--
		return false
	}
	return s.fault()
}

func closing(open byte) byte {
	if open == '{' {
		return '}'
	}
	return ']'
}

// Key reads a member's name and the colon.
func (s *Scanner) Key() []byte {
	name := s.Text()
	if s.bad || s.Peek() != ':' {
		s.fault()
		return nil
	}
	s.pos++
	return name
}

// Is reports whether a member's name is want, which is plain ASCII.
func Is(name []byte, want string) bool {
	in := Inner(name)
	if len(in) == len(want) {
		return string(in) == want
	}
	if len(in) < len(want) {
		return false
	}
	if slices.Contains(in, '\\') {
		return string(AppendText(nil, in)) == want
	}
	return false
}

// Text reads a string.
func (s *Scanner) Text() []byte {
	if s.bad || s.Peek() != '"' {
		s.fault()
		return nil
	}
	start := s.pos
	for i := start + 1; i < len(s.data); i++ {
		switch b := s.data[i]; {
		case b == '"':
			s.pos = i + 1
			return s.data[start:s.pos]
		case b < ' ':
			s.fault()
			return nil
		case b == '\\':
			n := escapeLen(s.data[i:])
			if n == 0 {
				s.fault()
				return nil
			}
			i += n - 1
		}
	}
	s.fault()
	return nil
}

// TextOrSkip reads a string and returns nil for any other value.
func (s *Scanner) TextOrSkip() []byte {
	if s.Peek() == '"' {
		return s.Text()
	}
	s.Skip()
	return nil
}

// escapeLen returns the length of the valid escape at the start of in, 0 if it isn't one.
func escapeLen(in []byte) int {
	if len(in) < 2 {
		return 0
	}
	switch in[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := Unit(in); ok {
			return 6
		}
	}
	return 0
}

// Null steps over a null, if there is one.
func (s *Scanner) Null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.literal("null")
	return true
}

// Skip steps over one value of any kind and returns it.
func (s *Scanner) Skip() []byte {
	first := s.Peek()
	start := s.pos
	switch first {
	case '{':
		for more := s.Enter('{'); more; more = s.More('{') {
			s.Key()
			s.Skip()
		}
	case '[':
		for more := s.Enter('['); more; more = s.More('[') {
			s.Skip()
		}
	case '"':
		s.Text()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number()
	}
	if s.bad {
		return nil
	}
	return s.data[start:s.pos]
}

// Count reads a token count: a whole number from 0 to 2^53, however it is written (10, 10.0, 1e1).
// It returns Absent for null and Invalid for anything else; negative counts are invalid.
func (s *Scanner) Count() int64 {
	if s.Null() {
		return Absent
	}
	b := s.Peek()
	raw := s.Skip()
	if s.bad || (b != '-' && (b < '0' || b > '9')) {
		return Invalid
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return Invalid
	}
	return int64(f)
}

const (
	// Absent is what [Scanner.Count] returns for null.
	Absent = -1
	// Invalid is what [Scanner.Count] returns for anything but a count.
	Invalid = -2
)

func (s *Scanner) literal(want string) {
	if s.bad || len(s.data)-s.pos < len(want) || string(s.data[s.pos:s.pos+len(want)]) != want {
		s.fault()
		return
	}
	s.pos += len(want)
}

func (s *Scanner) number() {
	if s.bad {
		return
	}
	if s.at('-') {
		s.pos++
	}
	if s.at('0') {
		s.pos++
	} else if s.digits() == 0 {
		s.fault()
		return
	}
	if s.at('.') {
		s.pos++
		if s.digits() == 0 {
			s.fault()
			return
		}
	}
	if s.at('e') || s.at('E') {
		s.pos++
		if s.at('+') || s.at('-') {
			s.pos++
		}
		if s.digits() == 0 {
			s.fault()
		}
	}
}

func (s *Scanner) at(b byte) bool { return s.pos < len(s.data) && s.data[s.pos] == b }

func (s *Scanner) digits() int {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// End reports whether the text was valid and nothing follows the value.
func (s *Scanner) End() bool { return !s.bad && s.Peek() == 0 && s.pos == len(s.data) }

func (s *Scanner) fault() bool {
	s.bad = true
	return false
}
