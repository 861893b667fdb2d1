package providers

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
)

// JSONString is a text as a JSON string literal with its quotes (RFC 8259 §7). Prompts keep this form from the client's body to
// the vendor's, so that a long text is neither unescaped nor escaped again.
//
// The methods expect a valid literal. For any other input they return some text and don't panic.
type JSONString []byte

// Quote returns s as a literal. Bytes that aren't UTF-8 become U+FFFD.
func Quote(s string) JSONString {
	return AppendQuoted(make([]byte, 0, len(s)+2), s)
}

// AppendQuoted appends s as a JSON string literal with its quotes to dst. It escapes only characters that JSON requires to be
// escaped. Bytes that aren't UTF-8 become U+FFFD.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b < utf8.RuneSelf {
			if !escaped(b) {
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

// canonical reports whether s is valid and equals the output of [AppendQuoted] for its text.
func (s JSONString) canonical() bool {
	in := s.inner()
	if len(in) == 0 {
		return string(s) == `""`
	}
	ascii := true
	for i := 0; i < len(in); {
		switch b := in[i]; {
		case b >= utf8.RuneSelf:
			ascii = false
			i++
		case b == '\\':
			var buf [jsonscan.UnitLen]byte
			r, size := jsonscan.DecodeRune(in[i:])
			if r >= utf8.RuneSelf || !escaped(byte(r)) || !bytes.HasPrefix(in[i:], appendEscaped(buf[:0], byte(r))) {
				return false
			}
			i += size
		case escaped(b):
			return false
		default:
			i++
		}
	}
	return ascii || utf8.Valid(in)
}

// escaped reports whether [AppendQuoted] escapes the ASCII character b.
func escaped(b byte) bool { return b < ' ' || b == '"' || b == '\\' }

// Text returns the decoded text. Lone surrogates and bytes that aren't UTF-8 become U+FFFD.
func (s JSONString) Text() string { return jsonscan.Literal(s).Text() }

// AppendText appends the decoded text, as [JSONString.Text] returns it, to dst.
func (s JSONString) AppendText(dst []byte) []byte { return jsonscan.AppendText(dst, s.inner()) }

// textAfter decodes a piece of a text that comes in several literals. before is the high surrogate at the end of the previous
// pieces, or 0. It forms one character with a low surrogate at the start of this piece, else it becomes U+FFFD. A high surrogate
// at the end of this piece is returned for the next one instead of being decoded.
func (s JSONString) textAfter(before rune) (text string, half rune) {
	in := s.inner()
	if len(in) == 0 {
		return "", before
	}
	if before == 0 && bytes.IndexByte(in, '\\') < 0 {
		return s.Text(), 0
	}
	dst := make([]byte, 0, len(in)+utf8.UTFMax)
	if before != 0 {
		r, n := utf8.RuneError, 0
		if low, ok := jsonscan.Unit(in); ok {
			if pair := utf16.DecodeRune(before, low); pair != utf8.RuneError {
				r, n = pair, jsonscan.UnitLen
			}
		}
		dst = utf8.AppendRune(dst, r)
		in = in[n:]
	}
	if half = highAtEnd(in); half != 0 {
		in = in[:len(in)-jsonscan.UnitLen]
	}
	return string(jsonscan.AppendText(dst, in)), half
}

// highAtEnd returns the high surrogate if its escape ends the text, else 0.
func highAtEnd(in []byte) rune {
	start := len(in) - jsonscan.UnitLen
	if start < 0 {
		return 0
	}
	r, ok := jsonscan.Unit(in[start:])
	if !ok || r < 0xD800 || r > 0xDBFF {
		return 0
	}
	backslashes := 0
	for start > backslashes && in[start-backslashes-1] == '\\' {
		backslashes++
	}
	if backslashes%2 == 1 { // the last of them escapes the backslash of this escape
		return 0
	}
	return r
}

// ByteLen returns the length of the decoded text in bytes, without decoding it.
func (s JSONString) ByteLen() int { return jsonscan.Literal(s).Len() }

func (s JSONString) inner() []byte { return jsonscan.Literal(s).Inner() }
