package tokens

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// class is the sets of the pattern of o200k_base that a character is in.
type class uint8

const (
	upper   class = 1 << iota // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	letter                    // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // [\r\n]
)

// splitter splits texts as the pattern of o200k_base does. It has the class of each character.
type splitter [unicode.MaxRune + 1]class

func newSplitter() *splitter {
	var s splitter
	for table, is := range map[*unicode.RangeTable]class{
		unicode.Lu: upper | letter, unicode.Lt: upper | letter, unicode.Ll: lower | letter,
		unicode.Lm: upper | lower | letter, unicode.Lo: upper | lower | letter, unicode.M: upper | lower,
		unicode.N: number, unicode.White_Space: space,
	} {
		rangetable.Visit(table, func(r rune) { s[r] |= is })
	}
	s['\r'] |= newline
	s['\n'] |= newline
	return &s
}

// first decodes the first character of a text.
func (s *splitter) first(text string) (is class, size int) {
	r, size := utf8.DecodeRuneInString(text)
	return s[r], size
}

// split returns the length of the pattern's first match in a text, which must not be empty. The pattern's alternatives are, in
// this order:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func (s *splitter) split(text string) int {
	if end := s.word(text); end > 0 {
		return end + contraction(text[end:])
	}
	if end := s.digits(text); end > 0 {
		return end
	}
	if end := s.symbols(text); end > 0 {
		return end
	}
	return s.blank(text)
}

// word returns the end of the match of the first two alternatives, without the contraction, or 0.
func (s *splitter) word(text string) int {
	is, start := s.first(text)
	if is&(letter|number|newline) != 0 {
		start = 0
	}
	end, capitals := s.letters(text, start)
	if end == 0 && start > 0 && is&lower != 0 { // the mark at the beginning is part of the word
		end, _ = s.letters(text, 0)
	}
	if end == 0 && capitals > start {
		end = capitals
	}
	return end
}

// letters returns the end of the match of [upper]*[lower]+ from start on, or 0, and the end of the match of [upper]*.
func (s *splitter) letters(text string, start int) (end, capitals int) {
	for at := start; at < len(text); {
		is, size := s.first(text[at:])
		if is&upper == 0 {
			if is&lower != 0 {
				return at + s.lowers(text[at:]), at
			}
			return end, at
		}
		at += size
		if is&lower != 0 { // [upper]* gives back the characters up to here
			end = at
		}
	}
	return end, len(text)
}

// lowers returns the end of the match of [lower]*.
func (s *splitter) lowers(text string) int {
	for at := 0; at < len(text); {
		is, size := s.first(text[at:])
		if is&lower == 0 {
			return at
		}
		at += size
	}
	return len(text)
}

// contraction returns the end of the match of (?i:'s|'t|'re|'ve|'m|'ll|'d)?.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch r, size := utf8.DecodeRuneInString(text[1:]); r {
	case 's', 'S', 'ſ', 't', 'T', 'm', 'M', 'd', 'D':
		return 1 + size
	}
	if len(text) < 3 {
		return 0
	}
	if two := text[1:3]; strings.EqualFold(two, "re") || strings.EqualFold(two, "ve") || strings.EqualFold(two, "ll") {
		return 3
	}
	return 0
}

// digits returns the end of the match of the third alternative, or 0.
func (s *splitter) digits(text string) int {
	at := 0
	for range 3 {
		is, size := s.first(text[at:])
		if is&number == 0 {
			break
		}
		at += size
	}
	return at
}

// symbols returns the end of the match of the fourth alternative, or 0.
func (s *splitter) symbols(text string) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	at := start
	for at < len(text) {
		is, size := s.first(text[at:])
		if is&(letter|number|space) != 0 {
			break
		}
		at += size
	}
	if at == start {
		return 0
	}
	for at < len(text) && strings.IndexByte("\r\n/", text[at]) >= 0 {
		at++
	}
	return at
}

// blank returns the end of the match of the last three alternatives: behind the last newline, else before the last character if
// something follows the white space.
func (s *splitter) blank(text string) int {
	at, last, line := 0, 0, 0
	for at < len(text) {
		is, size := s.first(text[at:])
		if is&space == 0 {
			break
		}
		last, at = at, at+size
		if is&newline != 0 {
			line = at
		}
	}
	switch {
	case line > 0:
		return line
	case last > 0 && at < len(text):
		return last
	default:
		return at
	}
}
