package knowledge

import (
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWordRunes bounds a word: no language has longer ones.
const maxWordRunes = 40

// word is a word of a text.
type word struct {
	// folded is the word in small letters without accents, so that texts written without them match ("ha noi", "dong" for
	// "đồng").
	folded string
	// exact is the word in small letters with its accents.
	exact string
}

// accented reports whether the word has accents that folded lacks.
func (w word) accented() bool { return w.folded != w.exact }

// unspaced are scripts without spaces between words: two adjacent letters count as a word.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// isUnspaced reports whether a letter belongs to a script without spaces. None is before Thai.
func isUnspaced(c rune) bool { return c >= 0x0E00 && unicode.In(c, unspaced...) }

// wordsIn yields the words of a text, in order.
func wordsIn(text string) iter.Seq[word] {
	return func(yield func(word) bool) {
		for run := range strings.FieldsFuncSeq(norm.NFC.String(text), func(c rune) bool { return !isLetter(c) }) {
			if !eachPart(run, yield) {
				return
			}
		}
	}
}

// eachPart yields the words of adjacent letters: words, and runs of scripts without spaces. It returns false if no more are wanted.
func eachPart(run string, yield func(word) bool) bool {
	if isASCII(run) {
		return give(run, yield)
	}
	for run != "" {
		start := strings.IndexFunc(run, isUnspaced)
		if start < 0 {
			return give(run, yield)
		}
		if start > 0 && !give(run[:start], yield) {
			return false
		}
		run = run[start:]
		end := strings.IndexFunc(run, func(c rune) bool { return !isUnspaced(c) && !unicode.IsMark(c) })
		if end < 0 {
			end = len(run)
		}
		letters := []rune(run[:end])
		for i := range max(1, len(letters)-1) {
			if !give(string(letters[i:min(i+2, len(letters))]), yield) {
				return false
			}
		}
		run = run[end:]
	}
	return true
}

// give yields a word, unless nothing is left of it when it is folded.
func give(text string, yield func(word) bool) bool {
	exact := strings.ToLower(text)
	w := word{folded: fold(exact), exact: exact}
	return w.folded == "" || yield(w)
}

// markLength is the length of a knowledge base's mark, in base 36: short, because every word in the index has it. Two bases may
// share a mark, because results are read by the base's id.
const markLength = 5

// markOf returns the prefix of a knowledge base's words in the index.
func markOf(baseID string) string {
	sum := fnv.New64a()
	sum.Write([]byte(baseID)) //nolint:errcheck // a hash takes everything
	const marks = 36 * 36 * 36 * 36 * 36
	mark := strconv.FormatUint(sum.Sum64()%marks, 36)
	return strings.Repeat("0", markLength-len(mark)) + mark
}

// indexed returns a folded word of a base in the form of the index: [a-z0-9]+, whatever its letters.
func indexed(mark, folded string) string {
	if isASCII(folded) {
		return mark + folded
	}
	var text strings.Builder
	text.WriteString(mark)
	for _, c := range folded {
		if c < 0x80 {
			text.WriteRune(c)
		} else {
			text.WriteByte('u')
			text.WriteString(strconv.FormatInt(int64(c), 16))
		}
	}
	return text.String()
}

// indexWords returns the distinct words of a text in the form of the index.
func indexWords(mark, text string) []string {
	var words []string
	seen := make(map[string]bool)
	for w := range wordsIn(text) {
		if !seen[w.folded] {
			seen[w.folded] = true
			words = append(words, indexed(mark, w.folded))
		}
	}
	return words
}

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

// Says reports whether a text contains one of some phrases, word by word and in order. Case doesn't matter, and a text without accents
// matches a phrase with them. A phrase without letters never matches. The time grows with the text and with the words of the phrases.
func Says(text string, phrases []string) bool {
	wanted := make([]*spoken, 0, len(phrases))
	for _, phrase := range phrases {
		if p := (&spoken{words: slices.Collect(wordsIn(phrase))}); len(p.words) > 0 {
			wanted = append(wanted, p)
		}
	}
	for w := range wordsIn(text) {
		if slices.ContainsFunc(wanted, func(p *spoken) bool { return p.hears(w) }) {
			return true
		}
	}
	return false
}

// spoken is a phrase that is looked for in a text.
type spoken struct {
	words []word
	// begun are the numbers of words by which the text so far may have begun the phrase.
	begun []int
}

// hears adds the next word of the text, and reports whether the phrase is complete.
func (p *spoken) hears(w word) bool {
	going := p.begun[:0]
	for _, heard := range append(p.begun, 0) {
		word := p.words[heard]
		if w.folded != word.folded || w.exact != word.exact && w.accented() { // other accents, rather than none
			continue
		}
		if heard+1 == len(p.words) {
			return true
		}
		going = append(going, heard+1)
	}
	p.begun = going
	return false
}
