package knowledge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Bounds of a search.
const (
	// MaxBases is how many knowledge bases one search covers.
	MaxBases = 20
	// MaxSnippets bounds the results of a search.
	MaxSnippets = 50
	// searchWait bounds a search: on SQLite a read keeps the write-ahead log from being truncated.
	searchWait = 2 * time.Second
	// maxQueryWords is how many distinct words of a query count, from its end, which is the newest text.
	maxQueryWords = 32
	// A word is common when more than commonChunks chunks contain it, or more than half of them from fewChunks on.
	commonChunks = 1000
	fewChunks    = 20
	// rareWords is how many words, the rarest, are used to look for chunks.
	rareWords = 12
	// maxCandidates is how many chunks are read and ranked.
	maxCandidates = 64
)

var errSearchSlow = fmt.Errorf("%w: the search took longer than 2 s", ErrBusy)

// Snippet is a chunk that fits a query.
type Snippet struct {
	store.FoundChunk

	// Score is above 0; scores of different queries don't compare.
	Score float64
}

// SearchInTurn is [Library.Search] for a request of an organization. A few searches of all organizations run at a time, and two of one
// organization. It returns [ErrBusy] if too many wait, or after searchWait. Workers' searches need no turns, because the number of their
// turns bounds them.
func (l *Library) SearchInTurn(ctx context.Context, orgID string, baseIDs []string, query string, n int) ([]Snippet, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, searchWait, ErrBusy)
	defer cancel()
	if err := l.searchers.Enter(waiting, orgID); err != nil {
		return nil, busy(err)
	}
	defer l.searchers.Leave(orgID)
	return l.Search(ctx, orgID, baseIDs, query, n)
}

// Search returns up to n chunks, and no more than [MaxSnippets], of an organization's knowledge bases that fit a query best, the best
// first. A query is any text: every word of it counts, and no sign has a meaning. Bases of other organizations are skipped; of more than
// [MaxBases] the first count. No result is no error. Search returns [ErrBusy] after searchWait.
func (l *Library) Search(ctx context.Context, orgID string, baseIDs []string, query string, n int) ([]Snippet, error) {
	n = min(n, MaxSnippets)
	baseIDs = baseIDs[:min(len(baseIDs), MaxBases)]
	asked := newQuestion(query)
	if n <= 0 || len(baseIDs) == 0 || len(asked.words) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, searchWait, errSearchSlow)
	defer cancel()
	snippets, err := l.search(ctx, orgID, baseIDs, asked, n)
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return snippets, store.Wrap("searching knowledge bases", err)
}

func (l *Library) search(ctx context.Context, orgID string, baseIDs []string, asked *question, n int) ([]Snippet, error) {
	chunks, err := l.db.Documents.ReadyChunks(ctx, orgID, baseIDs)
	if err != nil || chunks == 0 {
		return nil, err
	}
	if err := l.weigh(ctx, baseIDs, asked, chunks); err != nil {
		return nil, err
	}
	candidates, err := l.candidates(ctx, baseIDs, asked)
	if err != nil {
		return nil, err
	}
	found, err := l.db.Chunks.Read(ctx, orgID, baseIDs, candidates)
	if err != nil {
		return nil, err
	}
	var snippets []Snippet
	for _, chunk := range found {
		if score := asked.score(chunk.Text); score > 0 {
			snippets = append(snippets, Snippet{chunk, score})
		}
	}
	slices.SortStableFunc(snippets, func(a, b Snippet) int { return cmp.Compare(b.Score, a.Score) })
	return snippets[:min(n, len(snippets))], nil
}

// weigh counts how many chunks of all the bases contain each word of a question, up to where the word is common.
func (l *Library) weigh(ctx context.Context, baseIDs []string, asked *question, chunks int64) error {
	queries := store.Column(asked.words, func(w askedWord) store.WordQuery { return inAnyBase(baseIDs, w.folded) })
	counts, err := l.db.Chunks.Count(ctx, queries, commonChunks+1)
	if err != nil {
		return err
	}
	for i := range asked.words {
		w := &asked.words[i]
		w.chunks = counts[i]
		w.common = w.chunks > commonChunks || chunks >= fewChunks && 2*w.chunks > chunks
		// The weight is that of BM25: above 0, and higher for a rarer word.
		with, all := float64(w.chunks), float64(max(w.chunks, chunks))
		w.weight = math.Log(1 + (all-with+0.5)/(with+0.5))
	}
	return nil
}

// candidates returns the chunks worth reading: the chunks with the most weight of rare words. When all words are common, it returns the
// chunks with all of them, or, if there are none, some with the rarest.
func (l *Library) candidates(ctx context.Context, baseIDs []string, asked *question) ([]int64, error) {
	known := asked.known()
	if len(known) == 0 {
		return nil, nil
	}
	rare := known // known is ordered by rarity, so the common words are at its end
	if i := slices.IndexFunc(known, func(w *askedWord) bool { return w.common }); i >= 0 {
		rare = known[:i]
	}
	if len(rare) == 0 {
		return l.withAll(ctx, baseIDs, known)
	}
	rare = rare[:min(len(rare), rareWords)]
	queries := store.Column(rare, func(w *askedWord) store.WordQuery { return inAnyBase(baseIDs, w.folded) })
	found, err := l.db.Chunks.Find(ctx, queries, commonChunks)
	if err != nil {
		return nil, err
	}
	weights := make(map[int64]float64)
	for i, seqs := range found {
		for _, seq := range seqs {
			weights[seq] += rare[i].weight
		}
	}
	// The heaviest first, and of equal ones those written first.
	seqs := slices.SortedFunc(maps.Keys(weights), func(a, b int64) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
	})
	return seqs[:min(maxCandidates, len(seqs))], nil
}

// withAll finds chunks by words that are all common, the rarest first.
func (l *Library) withAll(ctx context.Context, baseIDs []string, words []*askedWord) ([]int64, error) {
	folded := store.Column(words[:min(len(words), rareWords)], func(w *askedWord) string { return w.folded })
	queries := []store.WordQuery{inAnyBase(baseIDs, folded...), inAnyBase(baseIDs, folded[0])}
	for _, query := range queries {
		found, err := l.db.Chunks.Find(ctx, []store.WordQuery{query}, maxCandidates)
		if err != nil || len(found[0]) > 0 {
			return found[0], err
		}
	}
	return nil, nil
}

// inAnyBase selects the chunks that have all the words, in any of the bases.
func inAnyBase(baseIDs []string, folded ...string) store.WordQuery {
	query := make(store.WordQuery, len(baseIDs))
	for i, id := range baseIDs {
		mark := markOf(id)
		for _, word := range folded {
			query[i] = append(query[i], indexed(mark, word))
		}
	}
	return query
}

// Constants of BM25, at their usual values. Chunks are cut to one size, which serves as the mean length.
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
	all := slices.Collect(wordsIn(text))
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
	for w := range wordsIn(text) {
		length++
		if i, ok := q.place[w.folded]; ok {
			share := 1.0 // a word without accents matches all of its accented forms
			if asked := q.words[i].word; asked.accented() && asked.exact != w.exact {
				share = accentShare
			}
			counts[i] += share
			if pair, ok := q.pairs[[2]string{before, w.folded}]; ok {
				weight := 0.0 // if the question has too many words to count the one before
				if j, ok := q.place[before]; ok {
					weight = q.words[j].weight
				}
				met[pair] = neighborhood * min(weight, q.words[i].weight)
			}
		}
		before = w.folded
	}
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
