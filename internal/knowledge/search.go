package knowledge

import (
	"cmp"
	"context"
	"fmt"
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
	DocumentID      string
	Document        string // the document's name
	KnowledgeBaseID string
	Position        int64 // the chunk's index in the document, from 0
	Text            string
	// Score is above 0; scores of different queries don't compare.
	Score float64
}

// SearchInTurn is [Library.Search] for a request of an organization. A few of all organizations' run at a time, and two of one organization's.
// It returns [ErrBusy] if too many wait, or if it has waited for searchWait. Workers' searches don't wait for turns: they are as many as their
// answers at most.
func (l *Library) SearchInTurn(ctx context.Context, orgID string, baseIDs []string, query string, n int) ([]Snippet, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, searchWait, ErrBusy)
	defer cancel()
	if err := l.searchers.Enter(waiting, orgID); err != nil {
		return nil, busy(err)
	}
	defer l.searchers.Leave(orgID)
	return l.Search(ctx, orgID, baseIDs, query, n)
}

// Search returns the n chunks, at most [MaxSnippets], of an organization's knowledge bases that fit a query best, the best
// first. A query is any text: every word of it counts, and no sign has a meaning. Bases of other organizations are skipped; of
// more than [MaxBases] the first count. No result is no error. The error is one of the store, or [ErrBusy] after searchWait.
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
	if err != nil {
		return nil, fmt.Errorf("searching knowledge bases: %w", err)
	}
	return snippets, nil
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
	for i := range found {
		chunk := &found[i]
		score := asked.score(chunk.Text)
		if score <= 0 {
			continue
		}
		snippets = append(snippets, Snippet{
			DocumentID: chunk.DocumentID, Document: chunk.Document, KnowledgeBaseID: chunk.KnowledgeBaseID,
			Position: chunk.Position, Text: chunk.Text, Score: score,
		})
	}
	slices.SortStableFunc(snippets, func(a, b Snippet) int { return cmp.Compare(b.Score, a.Score) })
	return snippets[:min(n, len(snippets))], nil
}

// weigh counts how many chunks of all the bases contain each word of a question, up to where the word is common.
func (l *Library) weigh(ctx context.Context, baseIDs []string, asked *question, chunks int64) error {
	queries := make([]store.WordQuery, len(asked.words))
	for i := range asked.words {
		queries[i] = inAnyBase(baseIDs, asked.words[i].folded)
	}
	counts, err := l.db.Chunks.Count(ctx, queries, commonChunks+1)
	if err != nil {
		return err
	}
	for i := range asked.words {
		w := &asked.words[i]
		w.chunks = counts[i]
		w.common = w.chunks > commonChunks || chunks >= fewChunks && 2*w.chunks > chunks
		w.weight = rarity(w.chunks, chunks)
	}
	return nil
}

// rarity returns the weight of a word that so many of all chunks contain, as in BM25: above 0, and higher for a rarer word.
func rarity(in, of int64) float64 {
	some, all := float64(in), float64(max(in, of))
	return math.Log(1 + (all-some+0.5)/(some+0.5))
}

// candidates returns the chunks worth reading: those with the most weight of rare words. When all words are common, they are
// those that have all of them, or, if there are none, some that have the rarest.
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
	queries := make([]store.WordQuery, len(rare))
	for i, w := range rare {
		queries[i] = inAnyBase(baseIDs, w.folded)
	}
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
	return heaviest(weights, maxCandidates), nil
}

// withAll finds chunks by words that are all common, the rarest first.
func (l *Library) withAll(ctx context.Context, baseIDs []string, words []*askedWord) ([]int64, error) {
	folded := make([]string, 0, rareWords)
	for _, w := range words[:min(len(words), rareWords)] {
		folded = append(folded, w.folded)
	}
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

// heaviest returns the n keys with the largest weights; of equal ones those written first.
func heaviest(weights map[int64]float64, n int) []int64 {
	seqs := make([]int64, 0, len(weights))
	for seq := range weights {
		seqs = append(seqs, seq)
	}
	slices.SortFunc(seqs, func(a, b int64) int {
		return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b))
	})
	return seqs[:min(n, len(seqs))]
}
