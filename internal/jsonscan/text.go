package jsonscan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// AppendText appends the text of in, the inner part of a literal, to dst. Lone surrogates and bytes that are no UTF-8 become
// U+FFFD.
func AppendText(dst, in []byte) []byte {
	for len(in) > 0 {
		if in[0] == '\\' {
			r, n := unescape(in)
			dst = utf8.AppendRune(dst, r)
			in = in[n:]
			continue
		}
		var run []byte
		run, in = plainRun(in)
		if utf8.Valid(run) {
			dst = append(dst, run...)
			continue
		}
		for len(run) > 0 {
			r, n := utf8.DecodeRune(run)
			dst = utf8.AppendRune(dst, r)
			run = run[n:]
		}
	}
	return dst
}

// TextLen returns the length in bytes of what AppendText appends, without decoding it into memory.
func TextLen(in []byte) int {
	total := 0
	for len(in) > 0 {
		if in[0] == '\\' {
			r, n := unescape(in)
			total += utf8.RuneLen(r)
			in = in[n:]
			continue
		}
		var run []byte
		run, in = plainRun(in)
		if utf8.Valid(run) {
			total += len(run)
			continue
		}
		for len(run) > 0 {
			r, n := utf8.DecodeRune(run)
			total += utf8.RuneLen(r)
			run = run[n:]
		}
	}
	return total
}

// Inner returns what is between the quotes of a literal, nil if it has none.
func Inner(s []byte) []byte {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return nil
	}
	return s[1 : len(s)-1]
}

// plainRun splits in before its first escape.
func plainRun(in []byte) (run, rest []byte) {
	if i := bytes.IndexByte(in, '\\'); i >= 0 {
		return in[:i], in[i:]
	}
	return in, nil
}

// unescape decodes the escape at the start of in and returns how many bytes it took, at least 1.
func unescape(in []byte) (rune, int) {
	if len(in) < 2 {
		return utf8.RuneError, len(in)
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
		return unescapeUnit(in)
	}
	return utf8.RuneError, 2
}

// unescapeUnit decodes \uXXXX, or a surrogate pair of two of them.
func unescapeUnit(in []byte) (rune, int) {
	r, ok := Unit(in)
	if !ok {
		return utf8.RuneError, 2
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := Unit(in[6:])
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// UnitLen is the length of \uXXXX.
const UnitLen = 6

// Unit reads \uXXXX at the start of in.
func Unit(in []byte) (rune, bool) {
	if len(in) < UnitLen || in[0] != '\\' || in[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, b := range in[2:6] {
		d, ok := hexDigit(b)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
