package providers

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// JSONString is a text as a JSON string literal with its quotes (RFC 8259 §7). Prompts keep this form from the
// client's body to the vendor's, so that a long text is neither unescaped nor escaped again.
//
// The methods expect a valid literal. On anything else they return some text without a panic.
type JSONString []byte

// Quote returns s as a literal. Bytes that are no UTF-8 become U+FFFD.
func Quote(s string) JSONString {
	return AppendQuoted(make([]byte, 0, len(s)+2), s)
}

// AppendQuoted appends s as a JSON string literal with its quotes to dst. It escapes only what JSON demands;
// bytes that are no UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if b >= ' ' && b != '"' && b != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			dst = appendEscaped(dst, b)
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			start = i + 1
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, b byte) []byte {
	switch b {
	case '"', '\\':
		return append(dst, '\\', b)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
}

// Text returns the decoded text. Lone surrogates and bytes that are no UTF-8 become U+FFFD.
func (s JSONString) Text() string {
	in := s.inner()
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return string(in)
	}
	return string(s.AppendText(make([]byte, 0, len(in))))
}

// AppendText appends the decoded text, as [JSONString.Text] returns it, to dst.
func (s JSONString) AppendText(dst []byte) []byte { return appendDecoded(dst, s.inner()) }

// textAfter decodes a piece of a text that comes in several literals. before is the high surrogate with which the pieces so
// far ended, 0 for none: it makes one character with a low surrogate at the start of this piece, else U+FFFD. A high
// surrogate at the end of this piece is not decoded but returned, for the next one.
func (s JSONString) textAfter(before rune) (text string, half rune) {
	in := s.inner()
	switch {
	case len(in) == 0:
		return "", before
	case before == 0 && bytes.IndexByte(in, '\\') < 0:
		return s.Text(), 0
	}
	dst := make([]byte, 0, len(in)+utf8.UTFMax)
	if before != 0 {
		r, n := utf8.RuneError, 0
		if low, ok := hexUnit(in); ok {
			if pair := utf16.DecodeRune(before, low); pair != utf8.RuneError {
				r, n = pair, unitLen
			}
		}
		dst = utf8.AppendRune(dst, r)
		in = in[n:]
	}
	if half = highAtEnd(in); half != 0 {
		in = in[:len(in)-unitLen]
	}
	return string(appendDecoded(dst, in)), half
}

// highAtEnd returns the high surrogate whose escape ends in, 0 if it ends otherwise.
func highAtEnd(in []byte) rune {
	start := len(in) - unitLen
	if start < 0 {
		return 0
	}
	r, ok := hexUnit(in[start:])
	if !ok || r < 0xD800 || r > 0xDBFF {
		return 0
	}
	backslashes := 0
	for start > backslashes && in[start-backslashes-1] == '\\' {
		backslashes++
	}
	if backslashes%2 == 1 { // the last of them escapes the backslash of this one
		return 0
	}
	return r
}

// appendDecoded appends the text of in, the inner part of a literal.
func appendDecoded(dst, in []byte) []byte {
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

// ByteLen returns the length of the decoded text in bytes, without decoding it into memory.
func (s JSONString) ByteLen() int {
	in := s.inner()
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

// inner returns what is between the quotes.
func (s JSONString) inner() []byte {
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

// unescape decodes the escape at the start of in and says how many bytes it took, at least 1.
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
	r, ok := hexUnit(in)
	if !ok {
		return utf8.RuneError, 2
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	low, ok := hexUnit(in[6:])
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// unitLen is the length of \uXXXX.
const unitLen = 6

// hexUnit reads \uXXXX at the start of in.
func hexUnit(in []byte) (rune, bool) {
	if len(in) < unitLen || in[0] != '\\' || in[1] != 'u' {
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
