package knowledge

import (
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"

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

// isUnspaced reports whether a letter belongs to such a script. None is before Thai.
func isUnspaced(c rune) bool { return c >= 0x0E00 && unicode.In(c, unspaced...) }

// eachWord calls each for the words of a text, in order, until it returns false.
func eachWord(text string, each func(word) bool) {
	text = norm.NFC.String(text)
	for text != "" {
		start := strings.IndexFunc(text, isLetter)
		if start < 0 {
			return
		}
		text = text[start:]
		end := strings.IndexFunc(text, func(c rune) bool { return !isLetter(c) })
		if end < 0 {
			end = len(text)
		}
		if !eachPart(text[:end], each) {
			return
		}
		text = text[end:]
	}
}

// eachPart is eachWord for adjacent letters: words, and runs of scripts without spaces.
func eachPart(run string, each func(word) bool) bool {
	if isASCII(run) {
		return give(run, each)
	}
	for run != "" {
		start := strings.IndexFunc(run, isUnspaced)
		if start < 0 {
			return give(run, each)
		}
		if start > 0 && !give(run[:start], each) {
			return false
		}
		run = run[start:]
		end := strings.IndexFunc(run, func(c rune) bool { return !isUnspaced(c) && !unicode.IsMark(c) })
		if end < 0 {
			end = len(run)
		}
		letters := []rune(run[:end])
		for i := range max(1, len(letters)-1) {
			if !give(string(letters[i:min(i+2, len(letters))]), each) {
				return false
			}
		}
		run = run[end:]
	}
	return true
}

// give calls each for a word, unless nothing is left of it when it is folded.
func give(text string, each func(word) bool) bool {
	exact := strings.ToLower(text)
	w := word{folded: fold(exact), exact: exact}
	if w.folded == "" {
		return true
	}
	return each(w)
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
	eachWord(text, func(w word) bool {
		if !seen[w.folded] {
			seen[w.folded] = true
			words = append(words, indexed(mark, w.folded))
		}
		return true
	})
	return words
}
