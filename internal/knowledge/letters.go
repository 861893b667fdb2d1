package knowledge

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// tabled is the first letter that isn't looked up in the table of [letters]: before it are the alphabets of Europe and the
// Near East, and Vietnamese with all its accents.
const tabled = 0x2000

// letter is what is known of a code point.
type letter struct {
	isLetter bool
	// folded is the small letter without accents, or dropped, or unknown: such a text is folded the long way.
	folded rune
}

const (
	dropped rune = -1
	unknown rune = 0
)

// letters is the table of letters before [tabled].
var letters = sync.OnceValue(func() *[tabled]letter {
	var table [tabled]letter
	for c := range rune(tabled) {
		entry := letter{isLetter: inWord(c)}
		folded := []rune(foldLong(string(c)))
		switch {
		case len(folded) == 1 && unicode.IsLower(c):
			entry.folded = folded[0]
		case unicode.IsMark(c) && len(folded) == 0:
			entry.folded = dropped
		}
		table[c] = entry
	}
	return &table
})

// isLetter reports whether a code point belongs to a word: letters, digits and their accents.
func isLetter(c rune) bool {
	if c >= 0 && c < tabled {
		return letters()[c].isLetter
	}
	return inWord(c)
}

func inWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) || unicode.IsMark(c) }

// fold takes the accents away from small letters, and keeps [maxWordRunes] of them.
func fold(lower string) string {
	if !isASCII(lower) {
		lower = foldAll(lower)
	}
	if len(lower) <= maxWordRunes {
		return lower
	}
	runes := 0
	for i := range lower {
		if runes == maxWordRunes {
			return lower[:i]
		}
		runes++
	}
	return lower
}

// foldAll folds a word letter by letter where the table has all of it.
func foldAll(lower string) string {
	table := letters()
	text := make([]byte, 0, len(lower))
	for _, c := range lower {
		switch {
		case c < utf8.RuneSelf:
			text = append(text, byte(c))
			continue
		case c >= tabled || table[c].folded == unknown:
			return foldLong(lower)
		case table[c].folded != dropped:
			text = utf8.AppendRune(text, table[c].folded)
		}
	}
	return string(text)
}

// foldLong folds any text by Unicode's compatibility decomposition.
func foldLong(lower string) string {
	folded := strings.Map(func(c rune) rune {
		switch {
		case unicode.IsMark(c):
			return -1
		case c == 'đ': // no accent by Unicode, and one to all who write Vietnamese
			return 'd'
		default:
			return unicode.ToLower(c) // what was taken apart may be large
		}
	}, norm.NFKD.String(lower))
	// Some signs come apart into letters with others between them: ½, ㏂.
	return strings.Map(func(c rune) rune {
		if !inWord(c) {
			return -1
		}
		return c
	}, folded)
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
