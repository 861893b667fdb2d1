package segment

import (
	"iter"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// longest is how many bytes a character may have, which is enough for one with hundreds of accents. A longer one is cut.
const longest = 4096

// Characters returns the characters (extended grapheme clusters) of a text, in order. sentence reports that a sentence may end after the
// character. A caller may stop early: the time is that of the characters it has seen, and of the text up to the letter after them.
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

// first returns the first character of a text. state is -1 at the beginning of a text, then the last returned next.
func first(text string, state int) (character string, next int) {
	seen := text
	if len(seen) > longest {
		seen = text[:start(text, longest)]
	}
	character, _, _, next = uniseg.FirstGraphemeClusterInString(seen, state)
	if len(character) == len(seen) && len(seen) < len(text) { // it was cut
		next = -1
	}
	return character, next
}

// start returns the offset, at or before at, where a code point begins.
func start(text string, at int) int {
	for end := at; end > at-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return at // not UTF-8
}
