package knowledge

import (
	"cmp"
	"slices"
)

// Constants of BM25, at their usual values. Chunks are cut to one size, which stands for the mean length.
const (
	saturation   = 1.2
	lengthShare  = 0.75
	meanWords    = 170
	accentShare  = 0.6 // factor of a word whose accents differ from the question's
	neighborhood = 0.5 // share of the weights of two words that are adjacent in question and chunk
)

// askedWord is a distinct word of a question.
type askedWord struct {
	word

	chunks int64   // how many chunks contain it, see [Library.weigh]
	common bool    // in so many chunks that it says little
	weight float64 // see [rarity]
}

// question is a parsed query.
type question struct {
	words []askedWord
	place map[string]int // index in words of a folded word
	// pairs are folded words that follow each other in the query, numbered; in Vietnamese, syllables of one word.
	pairs map[[2]string]int
}

// maxQueryBytes is how much of a query's end is used.
const maxQueryBytes = 16 << 10

// newQuestion parses the last words of a text.
func newQuestion(text string) *question {
	text = text[max(0, len(text)-maxQueryBytes):]
	var all []word
	eachWord(text, func(w word) bool {
		all = append(all, w)
		return true
	})
	q := &question{place: make(map[string]int), pairs: make(map[[2]string]int)}
	for i := len(all) - 1; i >= 0 && len(q.words) < maxQueryWords; i-- {
		w := all[i]
		if _, twice := q.place[w.folded]; !twice {
			q.place[w.folded] = len(q.words)
			q.words = append(q.words, askedWord{word: w})
		}
		if i > 0 && all[i-1].folded != w.folded {
			pair := [2]string{all[i-1].folded, w.folded}
			if _, twice := q.pairs[pair]; !twice {
				q.pairs[pair] = len(q.pairs)
			}
		}
	}
	return q
}

// known returns the words that some chunk contains, the rarest first; of equally rare ones the last in the question.
func (q *question) known() []*askedWord {
	var known []*askedWord
	for i := range q.words {
		if q.words[i].chunks > 0 {
			known = append(known, &q.words[i])
		}
	}
	slices.SortStableFunc(known, func(a, b *askedWord) int { return cmp.Compare(a.chunks, b.chunks) })
	return known
}

// score returns how well a text fits the question, by BM25, reduced for a word with other accents and raised for words that are
// adjacent in both.
func (q *question) score(text string) float64 {
	counts := make([]float64, len(q.words))
	met := make([]float64, len(q.pairs))
	length := 0
	var before string
	eachWord(text, func(w word) bool {
		length++
		if i, ok := q.place[w.folded]; ok {
			counts[i] += share(q.words[i].word, w)
			if pair, ok := q.pairs[[2]string{before, w.folded}]; ok {
				met[pair] = neighborhood * min(q.weightOf(before), q.words[i].weight)
			}
		}
		before = w.folded
		return true
	})
	var score float64
	norm := saturation * (1 - lengthShare + lengthShare*float64(length)/meanWords)
	for i, count := range counts {
		score += q.words[i].weight * count * (saturation + 1) / (count + norm)
	}
	for _, extra := range met {
		score += extra
	}
	return score
}

// weightOf returns a word's weight, 0 when the question has too many words to count this one.
func (q *question) weightOf(folded string) float64 {
	if i, ok := q.place[folded]; ok {
		return q.words[i].weight
	}
	return 0
}

// share returns the factor of a found word for an asked word with the same letters. A word asked without accents stands for all
// of its accented forms.
func share(asked, found word) float64 {
	if asked.accented() && asked.exact != found.exact {
		return accentShare
	}
	return 1
}
