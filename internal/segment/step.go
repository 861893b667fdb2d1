package segment

import (
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// near and far are how many bytes are examined for one character: near is enough for all but characters with dozens of accents,
// and a longer one than far is cut.
const near, far = 128, 4096

// Step returns the first character (extended grapheme cluster) of a non-empty text and the rest. sentence reports that a
// sentence may end after it. state is -1 at the beginning of a text, then the last returned next.
func Step(text string, state int) (character, rest string, sentence bool, next int) {
	for _, window := range [...]int{near, far} {
		if len(text) <= window {
			break
		}
		seen := text[:start(text, window)]
		cluster, _, boundaries, after := uniseg.StepString(seen, state)
		if len(cluster) < len(seen) {
			return cluster, text[len(cluster):], boundaries&uniseg.MaskSentence != 0, after
		}
	}
	if len(text) > far {
		end := start(text, far)
		return text[:end], text[end:], false, -1
	}
	cluster, rest, boundaries, after := uniseg.StepString(text, state)
	return cluster, rest, boundaries&uniseg.MaskSentence != 0, after
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
