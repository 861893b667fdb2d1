package knowledge

import (
	"strings"
	"unicode"
)

// clean makes any bytes a text that every engine keeps: valid UTF-8, lines that end in \n, no NUL, and of the other
// control characters none but tab.
func clean(text string) string {
	text = strings.TrimPrefix(strings.ToValidUTF8(text, "\uFFFD"), "\uFEFF")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n\n").Replace(text)
	return strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c == 0:
			return -1
		case unicode.IsControl(c):
			return ' '
		default:
			return c
		}
	}, text)
}
