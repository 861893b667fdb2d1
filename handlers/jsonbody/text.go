package jsonbody

import (
	"bytes"
	"unicode/utf8"
)

// decodeRune is the first character of a scanned string's raw text and the bytes it takes there.
func decodeRune(raw []byte) (rune, int) {
	if raw[0] != '\\' {
		return utf8.DecodeRune(raw)
	}
	switch raw[1] {
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
		r, _ := hex4(raw)
		if !isHigh(r) {
			return r, 6
		}
		low, _ := hex4(raw[6:])
		return ((r-0xd800)<<10 | (low - 0xdc00)) + 0x10000, 12
	default:
		return rune(raw[1]), 2
	}
}

// appendText appends the characters that the literal stands for.
func (l *Literal) appendText(dst []byte) []byte {
	raw := l.Raw
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		r, size := decodeRune(raw[i:])
		dst = utf8.AppendRune(dst, r)
		raw = raw[i+size:]
	}
}

// Text is the string that the literal stands for.
func (l *Literal) Text() string {
	if !l.Escaped {
		return string(l.Raw)
	}
	return string(l.appendText(make([]byte, 0, len(l.Raw))))
}

// Word is the literal's text if that is ASCII and at most as long as buf, else nil or the raw text: a way to compare it
// with known words without an allocation.
func (l *Literal) Word(buf *[32]byte) []byte {
	if !l.Escaped {
		if len(l.Raw) > len(buf) {
			return nil
		}
		return l.Raw
	}
	if l.Runes > len(buf) {
		return nil
	}
	dst := buf[:0]
	for raw := l.Raw; len(raw) > 0; {
		r, size := decodeRune(raw)
		if r >= utf8.RuneSelf {
			return nil
		}
		dst = append(dst, byte(r))
		raw = raw[size:]
	}
	return dst
}

// HasNUL reports whether the text has the character U+0000, which can only be escaped.
func (l *Literal) HasNUL() bool {
	if !l.Escaped || !bytes.Contains(l.Raw, []byte(`u0000`)) {
		return false
	}
	for raw := l.Raw; len(raw) > 0; {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		r, size := decodeRune(raw[i:])
		if r == 0 {
			return true
		}
		raw = raw[i+size:]
	}
	return false
}
