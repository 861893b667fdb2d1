package jsonscan

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Literal is a string as it is written, with its quotes and escapes. Its methods expect a valid literal. For any other input they
// return some text and don't panic. Lone surrogates and bytes that aren't UTF-8 mean U+FFFD.
type Literal []byte

// Inner returns the text between the quotes, or nil if there are no quotes.
func (l Literal) Inner() []byte {
	if len(l) < 2 || l[0] != '"' || l[len(l)-1] != '"' {
		return nil
	}
	return l[1 : len(l)-1]
}

// Text returns the decoded text.
func (l Literal) Text() string {
	in := l.Inner()
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in)
	}
	return string(AppendText(make([]byte, 0, len(in)), in))
}

// MaxWord is the length in bytes of the longest word that [Literal.Word] returns.
const MaxWord = 32

// Word returns the text if it is ASCII of up to [MaxWord] bytes. Otherwise it returns nil or a text that isn't ASCII. It compares
// a literal with known words without an allocation. buf is used for a text with escapes.
func (l Literal) Word(buf *[MaxWord]byte) []byte {
	in := l.Inner()
	if bytes.IndexByte(in, '\\') < 0 {
		if len(in) > len(buf) {
			return nil
		}
		return in
	}
	n := 0
	for ; len(in) > 0; n++ {
		r, size := DecodeRune(in)
		if r >= utf8.RuneSelf || n == len(buf) {
			return nil
		}
		buf[n] = byte(r)
		in = in[size:]
	}
	return buf[:n]
}

// HasNUL reports whether the text contains the character U+0000, which must be escaped.
func (l Literal) HasNUL() bool {
	if !bytes.Contains(l, []byte(`u0000`)) {
		return false
	}
	for in := l.Inner(); ; {
		_, in = plainRun(in)
		if len(in) == 0 {
			return false
		}
		r, size := DecodeRune(in)
		if r == 0 {
			return true
		}
		in = in[size:]
	}
}

// LongerThan reports whether a literal in UTF-8 has more than limit code points. An escape counts as one, and so does a surrogate
// pair of two escapes.
func (l Literal) LongerThan(limit int) bool {
	in := l.Inner()
	count := len(in)
	if count <= limit {
		return false
	}
	i := 0
	for ; len(in)-i >= 8; i += 8 {
		count -= continuations(binary.LittleEndian.Uint64(in[i:]))
	}
	for ; i < len(in); i++ {
		count -= continuations(uint64(in[i]))
	}
	for count > limit {
		if _, in = plainRun(in); len(in) == 0 {
			return true
		}
		_, size := DecodeRune(in)
		count -= size - 1
		in = in[size:]
	}
	return false
}

// continuations counts the bytes 10xxxxxx of x, which are all bytes of UTF-8 but the first of each code point.
func continuations(x uint64) int { return bits.OnesCount64(x & ^(x << 1) & highs) }

// AppendText appends the text of in, the inner part of a literal, to dst.
func AppendText(dst, in []byte) []byte {
	for len(in) > 0 {
		var run []byte
		if run, in = plainRun(in); utf8.Valid(run) {
			dst = append(dst, run...)
			run = nil
		}
		for len(run) > 0 {
			r, n := utf8.DecodeRune(run)
			dst = utf8.AppendRune(dst, r)
			run = run[n:]
		}
		if len(in) > 0 {
			r, n := DecodeRune(in)
			dst = utf8.AppendRune(dst, r)
			in = in[n:]
		}
	}
	return dst
}

// Len returns the length of the decoded text in bytes, without decoding it.
func (l Literal) Len() (total int) {
	for in := l.Inner(); len(in) > 0; {
		var run []byte
		if run, in = plainRun(in); utf8.Valid(run) {
			total += len(run)
			run = nil
		}
		for len(run) > 0 {
			r, n := utf8.DecodeRune(run)
			total += utf8.RuneLen(r)
			run = run[n:]
		}
		if len(in) > 0 {
			r, n := DecodeRune(in)
			total += utf8.RuneLen(r)
			in = in[n:]
		}
	}
	return total
}

// plainRun splits in before its first escape.
func plainRun(in []byte) (run, rest []byte) {
	if i := bytes.IndexByte(in, '\\'); i >= 0 {
		return in[:i], in[i:]
	}
	return in, nil
}

// DecodeRune returns the first character of in, the inner part of a literal, and the number of bytes of its escape or its UTF-8.
// The number is 0 only if in is empty. It returns U+FFFD and 6 for a lone surrogate, and U+FFFD and 1 for a byte that isn't
// UTF-8.
func DecodeRune(in []byte) (r rune, size int) {
	if len(in) == 0 || in[0] != '\\' {
		return utf8.DecodeRune(in)
	}
	if len(in) == 1 {
		return utf8.RuneError, 1
	}
	switch in[1] {
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case '"', '\\', '/':
		return rune(in[1]), 2
	case 'u':
		return decodeUnits(in)
	}
	return utf8.RuneError, 2
}

// decodeUnits decodes \uXXXX, or a surrogate pair of two such escapes.
func decodeUnits(in []byte) (rune, int) {
	r, ok := Unit(in)
	if !ok {
		return utf8.RuneError, 2
	}
	if !utf16.IsSurrogate(r) {
		return r, UnitLen
	}
	if low, ok := Unit(in[UnitLen:]); ok && isHigh(r) && isLow(low) {
		return utf16.DecodeRune(r, low), 2 * UnitLen
	}
	return utf8.RuneError, UnitLen
}

func isHigh(r rune) bool { return r >= 0xD800 && r <= 0xDBFF }
func isLow(r rune) bool  { return r >= 0xDC00 && r <= 0xDFFF }

// UnitLen is the length of \uXXXX.
const UnitLen = 6

// Unit reads \uXXXX at the start of in.
func Unit(in []byte) (r rune, ok bool) {
	if len(in) < UnitLen || in[0] != '\\' || in[1] != 'u' {
		return 0, false
	}
	for _, c := range in[2:UnitLen] {
		switch {
		case isDigit(c):
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

// Integer returns the value of a number of [Scanner.Number] if it is whole and its absolute value is below 10^18. Every notation
// is accepted: 10, 10.0, 1e1 and 100e-1 are the same. Integer computes with digits instead of floats, so that nothing is rounded.
func Integer(number []byte) (value int64, ok bool) {
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	exponent := 0
	if at := bytes.IndexAny(number, "eE"); at >= 0 {
		exponent = parseExponent(number[at+1:])
		number = number[:at]
	}
	whole, fraction, _ := bytes.Cut(number, []byte("."))
	exponent -= len(fraction)
	// Trailing zeros are moved into the exponent, leading zeros are dropped, so that the shortest digits remain.
	digits := fraction
	if fraction = bytes.TrimRight(fraction, "0"); len(fraction) == 0 {
		exponent += len(digits)
		trimmed := bytes.TrimRight(whole, "0")
		exponent += len(whole) - len(trimmed)
		whole = trimmed
	} else {
		exponent += len(digits) - len(fraction)
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	length := len(whole) + len(fraction)
	if length == 0 {
		return 0, true
	}
	if exponent < 0 || length+exponent > 18 {
		return 0, false
	}
	for _, part := range [2][]byte{whole, fraction} {
		for _, c := range part {
			value = 10*value + int64(c-'0')
		}
	}
	for range exponent {
		value *= 10
	}
	if negative {
		value = -value
	}
	return value, true
}

// parseExponent reads an exponent with its sign. It limits the exponent to a value that no text is long enough to balance.
func parseExponent(text []byte) int {
	const far = 1 << 40
	negative := text[0] == '-'
	value := 0
	for _, c := range bytes.TrimLeft(text, "+-") {
		if value = 10*value + int(c-'0'); value > far {
			value = far
		}
	}
	if negative {
		return -value
	}
	return value
}

// nameSeed differs in every process, so that an attacker can't prepare names that collide.
var nameSeed = maphash.MakeSeed()

// nameSet contains the names of one object, to find repeated ones. Up to fewNames it allocates nothing. For more names it uses a
// table with open addressing, which keeps the time linear.
type nameSet struct {
	count int
	few   [fewNames]nameSlot
	// table has a power of two as its length. Up to three quarters of it are used.
	table []nameSlot
}

const fewNames = 12

// nameSlot is a name, by its offset in the text. No name begins at offset 0, which marks an empty slot.
type nameSlot struct {
	hash  uint32
	start uint32
}

// add adds the name that begins at start, and reports whether it is new.
func (n *nameSet) add(text []byte, start int, name Literal) bool {
	inner := name.Inner()
	decoded := inner
	if bytes.IndexByte(inner, '\\') >= 0 {
		decoded = AppendText(nil, inner) // so that escapes don't matter
	}
	slot := nameSlot{hash: uint32(maphash.Bytes(nameSeed, decoded)), start: uint32(start)}
	if n.table == nil && n.count < fewNames {
		for i := range n.count {
			if n.few[i].hash == slot.hash && sameName(text[n.few[i].start+1:], inner) {
				return false
			}
		}
		n.few[n.count] = slot
		n.count++
		return true
	}
	if n.table == nil {
		n.resize(2*fewNames, n.few[:])
	} else if 4*n.count >= 3*len(n.table) {
		n.resize(2*len(n.table), n.table)
	}
	at := n.find(slot.hash, func(start uint32) bool { return sameName(text[start+1:], inner) })
	if n.table[at].start != 0 {
		return false
	}
	n.table[at] = slot
	n.count++
	return true
}

// find returns the index of the slot of an equal name, or of the empty slot for it.
func (n *nameSet) find(hash uint32, same func(start uint32) bool) int {
	mask := len(n.table) - 1
	at := int(hash) & mask
	for n.table[at].start != 0 && (n.table[at].hash != hash || !same(n.table[at].start)) {
		at = (at + 1) & mask
	}
	return at
}

// resize moves the names to a table of size slots or more.
func (n *nameSet) resize(size int, from []nameSlot) {
	slots := 1
	for slots < size {
		slots *= 2
	}
	n.table = make([]nameSlot, slots)
	for _, slot := range from {
		if slot.start != 0 {
			n.table[n.find(slot.hash, func(uint32) bool { return false })] = slot
		}
	}
}

// sameName reports whether two names have the same decoded text. The first name is at the beginning of text and ends with the
// next quote that isn't escaped.
func sameName(text, inner []byte) bool {
	for len(inner) > 0 {
		if text[0] == '"' {
			return false
		}
		x, n := DecodeRune(text)
		y, m := DecodeRune(inner)
		if x != y {
			return false
		}
		text, inner = text[n:], inner[m:]
	}
	return text[0] == '"'
}

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
