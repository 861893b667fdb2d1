package segment

import (
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// near and far are how many bytes are looked at for one character: near does for all but characters with dozens of
// accents, and what is longer than far is cut.
const near, far = 128, 4096

// Step takes the first character (extended grapheme cluster) of a text, which must not be empty. sentence reports that a
// sentence may end behind it. state is -1 at the beginning of a text, and from then on what Step answered last.
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

// start is the place at or before at where a code point begins.
func start(text string, at int) int {
	for end := at; end > at-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return end
		}
	}
	return at // not UTF-8
}
