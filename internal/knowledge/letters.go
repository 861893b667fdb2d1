package knowledge

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// foldTableSize is the first code point beyond foldTable, which has the alphabets of Europe and the Near East, and Vietnamese
// with all its accents.
const foldTableSize = 0x2000

// letter describes a code point.
type letter struct {
	isLetter bool
	// folded is the small letter without accents, or dropped, or unknown; a text with unknown letters is folded by [foldLong].
	folded rune
}

const (
	dropped rune = -1
	unknown rune = 0
)

// foldTable describes the letters before [foldTableSize].
var foldTable = sync.OnceValue(func() *[foldTableSize]letter {
	var table [foldTableSize]letter
	for c := range rune(foldTableSize) {
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

// isLetter reports whether a code point belongs to a word: letters, digits and combining accents.
func isLetter(c rune) bool {
	if c >= 0 && c < foldTableSize {
		return foldTable()[c].isLetter
	}
	return inWord(c)
}

func inWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) || unicode.IsMark(c) }

// fold removes the accents of small letters, and keeps the first [maxWordRunes] of them.
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

// foldAll folds a word letter by letter if the table has all of them.
func foldAll(lower string) string {
	table := foldTable()
	text := make([]byte, 0, len(lower))
	for _, c := range lower {
		switch {
		case c < utf8.RuneSelf:
			text = append(text, byte(c))
			continue
		case c >= foldTableSize || table[c].folded == unknown:
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
		case c == 'đ': // Unicode doesn't decompose it; Vietnamese readers take it for an accented d
			return 'd'
		default:
			return unicode.ToLower(c) // a decomposition may contain capital letters
		}
	}, norm.NFKD.String(lower))
	// Some signs decompose into letters with other signs between them: ½, ㏂.
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
