package knowledge

import (
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxWordRunes is how much of a word counts; what is longer is no word of a language.
const maxWordRunes = 40

// word is a word of a text.
type word struct {
	// folded is the word in small letters without accents, so that who writes without them is understood ("ha noi",
	// "dong" for "đồng").
	folded string
	// exact is the word in small letters with its accents.
	exact string
}

// accented reports whether the word has accents that folded hasn't.
func (w word) accented() bool { return w.folded != w.exact }

// unspaced are scripts that write words without spaces between them: two letters side by side count as a word.
var unspaced = []*unicode.RangeTable{
	unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar,
}

// isUnspaced reports whether a letter is of such a script. None is before Thai.
func isUnspaced(c rune) bool { return c >= 0x0E00 && unicode.In(c, unspaced...) }

// eachWord hands the words of a text to each, in order, until it returns false.
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

// eachPart is eachWord for letters without anything between them: words, and runs of scripts without spaces.
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

// give hands one word over, unless nothing is left of it when it is folded.
func give(text string, each func(word) bool) bool {
	exact := strings.ToLower(text)
	w := word{folded: fold(exact), exact: exact}
	if w.folded == "" {
		return true
	}
	return each(w)
}

// markLength is how long the mark of a knowledge base is, in base 36: short, because every word in the index has it. Two
// bases may have the same one, for what is found is read by the base's id.
const markLength = 5

// markOf is what the words of a knowledge base begin with in the index.
func markOf(baseID string) string {
	sum := fnv.New64a()
	sum.Write([]byte(baseID)) //nolint:errcheck // a hash takes everything
	const marks = 36 * 36 * 36 * 36 * 36
	mark := strconv.FormatUint(sum.Sum64()%marks, 36)
	return strings.Repeat("0", markLength-len(mark)) + mark
}

// indexed is a folded word of a base as it stands in the index: [a-z0-9]+, whatever letters it has.
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

// indexWords are the distinct words of a text as they stand in the index.
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
