// Package segment splits a text into characters as people see them (with github.com/rivo/uniseg), and reports where sentences may
// end (both by Unicode annex 29).
//
// Invariant: the time is linear in the length of the text. The library's own sentences break it: to decide whether a sentence has ended
// (rule SB8), the library scans to the next letter at each character, which needs hours for a dot and a hundred thousand brackets.
package segment

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// longest is the greatest length of a character in bytes, which is enough for hundreds of accents. A longer character is cut.
const longest = 4096

// Characters returns the characters (extended grapheme clusters) of a text, in order. sentence reports that a sentence may end
// after the character. If the caller stops early, only the characters so far and the text up to the next letter have been read.
func Characters(text string) iter.Seq2[string, bool] {
	return func(yield func(character string, sentence bool) bool) {
		s := sentences{text: text}
		for state, pos := -1, 0; pos < len(text); {
			var character string
			character, state = first(text[pos:], state)
			s.add(character)
			pos += len(character)
			if !yield(character, s.endsAt(pos)) {
				return
			}
		}
	}
}

// first returns the first character of a text. state is -1 at the beginning of a text, and the previous call's next after that.
func first(text string, state int) (character string, next int) {
	seen := text
	if len(seen) > longest {
		seen = text[:start(text, longest)]
	}
	character, _, _, next = uniseg.FirstGraphemeClusterInString(seen, state)
	if len(character) == len(seen) && len(seen) < len(text) { // the character was cut
		next = -1
	}
	return character, next
}

// start returns the offset of the last code point that begins at or before at.
func start(text string, at int) int {
	for end := at; end > at-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return at // not UTF-8
}

// class is the class of a character in the rules for sentences (Unicode annex 29, table 4).
type class uint8

const (
	other     class = iota
	separator       // Sep, CR and LF: of lines and paragraphs
	space           // Sp
	lower           // Lower
	upper           // Upper
	letter          // OLetter: without case
	digit           // Numeric
	dot             // ATerm: a full stop, which may also end an abbreviation
	terminal        // STerm
	comma           // SContinue
	closing         // Close: quotation marks and brackets
	mark            // Extend and Format: accents without a letter, invisible characters
)

// ascii has the classes of the characters of ASCII.
var ascii = func() (classes [utf8.RuneSelf]class) {
	for r := range classes {
		classes[r] = find(rune(r))
	}
	return classes
}()

// classOf returns the class of a character that begins with r.
func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return ascii[r]
	}
	return find(r)
}

func find(r rune) class {
	switch {
	case r == '\n', r == '\r', r == '\u0085', r == '\u2028', r == '\u2029':
		return separator
	case unicode.IsSpace(r):
		return space
	case unicode.IsLower(r), unicode.Is(unicode.Other_Lowercase, r):
		return lower
	case unicode.IsUpper(r), unicode.IsTitle(r), unicode.Is(unicode.Other_Uppercase, r):
		return upper
	case unicode.IsLetter(r):
		return letter
	case unicode.IsDigit(r):
		return digit
	case strings.ContainsRune(".\u2024\ufe52\uff0e", r):
		return dot
	case unicode.Is(unicode.STerm, r):
		return terminal
	case strings.ContainsRune(",-:;\u037e\u055d\u060c\u060d\u07f8\u1802\u1808–—、︐︑︓︱︲﹐﹑﹕﹘﹣，－：､", r):
		return comma
	case unicode.In(r, unicode.Ps, unicode.Pe, unicode.Pi, unicode.Pf, unicode.Quotation_Mark):
		return closing
	case unicode.In(r, unicode.M, unicode.Cf):
		return mark
	}
	return other
}

// sentences finds where the sentences of a text may end.
type sentences struct {
	text string

	// last is the class of the last character.
	last class
	// ended means that only closing characters and spaces followed a terminator, spaced that there was a space.
	ended, spaced bool
	// term is the terminator's class. initial means that a letter with a case preceded the terminator.
	term    class
	initial bool
}

// add reads the next character.
func (s *sentences) add(character string) {
	r, _ := utf8.DecodeRuneInString(character)
	before, now := s.last, classOf(r)
	if now == mark && before != separator { // SB5
		return
	}
	s.last = now
	switch now {
	case dot, terminal:
		s.ended, s.spaced, s.term = true, false, now
		s.initial = before == lower || before == upper
	case closing:
		s.ended = s.ended && !s.spaced
	case space:
		s.spaced = true
	default:
		s.ended = false
	}
}

// endsAt reports whether a sentence may end before the character at an offset, which is the end of the last added character.
func (s *sentences) endsAt(pos int) bool {
	if pos == len(s.text) || s.last == separator { // SB2, SB4
		return true
	}
	if !s.ended {
		return false
	}
	r, _ := utf8.DecodeRuneInString(s.text[pos:])
	switch classOf(r) {
	case separator, space, dot, terminal, comma, mark: // SB5 and SB8a to SB10
		return false
	case closing: // SB9
		if !s.spaced {
			return false
		}
	case digit: // SB6
		if s.last == dot {
			return false
		}
	case upper: // SB7
		if s.last == dot && s.initial {
			return false
		}
	default:
	}
	// SB8 and SB11. The text after each terminator is read only once, up to the next terminator, where the sentence has ended or
	// goes on.
	s.ended = false
	return s.term != dot || !beginsLower(s.text[pos:])
}

// beginsLower reports whether a small letter is the first character that is a letter or that ends a sentence or line.
func beginsLower(text string) bool {
	for _, r := range text {
		switch classOf(r) {
		case lower:
			return true
		case upper, letter, separator, dot, terminal:
			return false
		default:
		}
	}
	return false
}
