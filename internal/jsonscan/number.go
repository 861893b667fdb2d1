package jsonscan

import (
	"math"
	"strconv"
)

// IsNumber reports whether c can begin a number.
func IsNumber(c byte) bool { return c == '-' || isDigit(c) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// Number reads a number and returns it as it is written. It returns nil after a fault.
func (s *Scanner) Number() []byte {
	s.Peek()
	start := s.pos
	s.accept('-', '-')
	valid := s.accept('0', '0') || s.digits()
	if valid && s.accept('.', '.') {
		valid = s.digits()
	}
	if valid && s.accept('e', 'E') {
		s.accept('+', '-')
		valid = s.digits()
	}
	if !valid {
		s.fail("an invalid number")
		return nil
	}
	return s.data[start:s.pos:s.pos]
}

const (
	// NoCount is the result of [Scanner.Count] for null.
	NoCount = -1
	// InvalidCount is the result of [Scanner.Count] for anything but a count.
	InvalidCount = -2
)

// Count reads a number of things: a whole number from 0 to 2^53 in any notation (10, 10.0, 1e1).
func (s *Scanner) Count() int64 {
	if s.Null() {
		return NoCount
	}
	if !IsNumber(s.Peek()) {
		s.Skip()
		return InvalidCount
	}
	f, err := strconv.ParseFloat(string(s.Number()), 64)
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return InvalidCount
	}
	return int64(f)
}

// accept skips the next byte if it is a or b, and reports whether it was.
func (s *Scanner) accept(a, b byte) bool {
	if s.pos < len(s.data) && (s.data[s.pos] == a || s.data[s.pos] == b) {
		s.pos++
		return true
	}
	return false
}

// digits skips digits and reports whether there was one.
func (s *Scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	return s.pos > start
}
