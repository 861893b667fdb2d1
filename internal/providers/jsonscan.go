package providers

import (
	"math"
	"slices"
	"strconv"
)

// maxJSONDepth bounds the nesting of what a vendor sends; deeper is not an answer of any model.
const maxJSONDepth = 512

// jsonScan walks over one JSON text (RFC 8259) in a single pass without building anything. Its grammar is the one
// of encoding/json: bytes that are no UTF-8 are tolerated inside strings. The first fault sets bad, after which
// every method returns at once with nothing.
type jsonScan struct {
	data  []byte
	pos   int
	depth int
	bad   bool
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *jsonScan) peek() byte {
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

// enter steps into an object ('{') or an array ('[') and says whether it has an element.
func (s *jsonScan) enter(open byte) bool {
	if s.bad || s.peek() != open || s.depth >= maxJSONDepth {
		return s.fault()
	}
	s.pos++
	s.depth++
	if s.peek() == closing(open) {
		s.pos++
		s.depth--
		return false
	}
	return true
}

// more steps over what follows an element and says whether another one comes.
func (s *jsonScan) more(open byte) bool {
	if s.bad {
		return false
	}
	switch s.peek() {
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

// key reads a member's name and the colon.
func (s *jsonScan) key() JSONString {
	name := s.text()
	if s.bad || s.peek() != ':' {
		s.fault()
		return nil
	}
	s.pos++
	return name
}

// is says whether a member's name is want, which is plain ASCII.
func is(name JSONString, want string) bool {
	in := name.inner()
	if len(in) == len(want) {
		return string(in) == want
	}
	if len(in) < len(want) {
		return false
	}
	if slices.Contains(in, '\\') {
		return name.Text() == want
	}
	return false
}

// text reads a string.
func (s *jsonScan) text() JSONString {
	if s.bad || s.peek() != '"' {
		s.fault()
		return nil
	}
	start := s.pos
	for i := start + 1; i < len(s.data); i++ {
		switch b := s.data[i]; {
		case b == '"':
			s.pos = i + 1
			return JSONString(s.data[start:s.pos])
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

// textOrSkip reads a string and returns nil for any other value.
func (s *jsonScan) textOrSkip() JSONString {
	if s.peek() == '"' {
		return s.text()
	}
	s.skip()
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
		if _, ok := hexUnit(in); ok {
			return 6
		}
	}
	return 0
}

// null steps over a null, if there is one.
func (s *jsonScan) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return true
}

// skip steps over one value of any kind and returns it.
func (s *jsonScan) skip() []byte {
	first := s.peek()
	start := s.pos
	switch first {
	case '{':
		for more := s.enter('{'); more; more = s.more('{') {
			s.key()
			s.skip()
		}
	case '[':
		for more := s.enter('['); more; more = s.more('[') {
			s.skip()
		}
	case '"':
		s.text()
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

// count reads a token count: a whole number from 0 to 2^53, however it is written (10, 10.0, 1e1).
// It returns absent for null and invalid for anything else; negative counts are invalid.
func (s *jsonScan) count() int64 {
	if s.null() {
		return absent
	}
	b := s.peek()
	raw := s.skip()
	if s.bad || (b != '-' && (b < '0' || b > '9')) {
		return invalid
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return invalid
	}
	return int64(f)
}

const (
	absent  = -1
	invalid = -2
)

func (s *jsonScan) literal(want string) {
	if s.bad || len(s.data)-s.pos < len(want) || string(s.data[s.pos:s.pos+len(want)]) != want {
		s.fault()
		return
	}
	s.pos += len(want)
}

func (s *jsonScan) number() {
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

func (s *jsonScan) at(b byte) bool { return s.pos < len(s.data) && s.data[s.pos] == b }

func (s *jsonScan) digits() int {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// end says whether the text was valid and nothing follows the value.
func (s *jsonScan) end() bool { return !s.bad && s.peek() == 0 && s.pos == len(s.data) }

func (s *jsonScan) fault() bool {
	s.bad = true
	return false
}
