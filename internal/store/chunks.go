package store

import (
	"context"
	"fmt"
	"strings"
)

// WordQuery selects chunks: those that have all words of one of the groups. Words are [a-z0-9]+, so
// that nothing in one is a sign of an engine's own query language.
type WordQuery [][]string

// text returns the query in the engine's language, and false when a word has other characters, or there is no word.
func (q WordQuery) text(engine Engine) (text string, ok bool) {
	and, or := " AND ", " OR "
	if engine == Postgres {
		and, or = "&", "|"
	}
	groups := make([]string, len(q))
	for i, group := range q {
		quoted := make([]string, len(group))
		for j, word := range group {
			if !isWord(word) {
				return "", false
			}
			quoted[j] = `"` + word + `"`
			if engine == Postgres {
				quoted[j] = `'` + word + `'`
			}
		}
		if len(group) == 0 {
			return "", false
		}
		groups[i] = "(" + strings.Join(quoted, and) + ")"
	}
	return strings.Join(groups, or), len(q) > 0
}

// isWord reports whether a word may be looked up.
func isWord(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// storedWords is how a chunk's words stand in their column. What isn't a word is left out: it couldn't be looked up.
func storedWords(words []string) string {
	var text strings.Builder
	for _, word := range words {
		if !isWord(word) {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(word)
	}
	return text.String()
}

// chunkMatch selects the chunks that parameter n finds on an engine; the result's column is seq.
func chunkMatch(engine Engine, n int) string {
	if engine == Postgres {
		return fmt.Sprintf(`SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $%d::text::tsquery`, n)
	}
	return fmt.Sprintf(`SELECT rowid AS seq FROM chunk_words WHERE chunk_words MATCH $%d`, n)
}

// Chunks finds the chunks of documents by their words.
type Chunks struct{ db *DB }

// texts returns queries in the engine's language, as arguments.
func (c Chunks) texts(queries []WordQuery) ([]any, error) {
	arguments := make([]any, len(queries))
	for i, query := range queries {
		text, ok := query.text(c.db.location.Engine)
		if !ok {
			return nil, fmt.Errorf("store: query %d has what is no word", i)
		}
		arguments[i] = text
	}
	return arguments, nil
}

// Count returns how many chunks each of the queries finds, over all organizations, counted up to most.
func (c Chunks) Count(ctx context.Context, queries []WordQuery, most int) ([]int64, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	arguments, err := c.texts(queries)
	if err != nil {
		return nil, err
	}
	columns := make([]string, len(queries))
	for i := range queries {
		columns[i] = fmt.Sprintf(`(SELECT count(*) FROM (%s LIMIT %d) AS found)`, chunkMatch(c.db.location.Engine, i+1), most)
	}
	scan := func(row Row) ([]int64, error) {
		counts := make([]int64, len(queries))
		into := make([]any, len(queries))
		for i := range counts {
			into[i] = &counts[i]
		}
		err := row.Scan(into...)
		return counts, err
	}
	return ReadRow(ctx, c.db, "count chunks", scan, `SELECT `+strings.Join(columns, ", "), arguments...)
}

// Find finds chunks by each of the queries, over all organizations: their seqs, for [Chunks.Read]. most bounds
// what each query finds.
func (c Chunks) Find(ctx context.Context, queries []WordQuery, most int) ([][]int64, error) {
	found := make([][]int64, len(queries))
	if len(queries) == 0 {
		return found, nil
	}
	arguments, err := c.texts(queries)
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(queries))
	for i := range queries {
		parts[i] = fmt.Sprintf(`SELECT %d AS query, seq FROM (%s LIMIT %d) AS found%d`, i, chunkMatch(c.db.location.Engine, i+1), most, i)
	}
	_, err = ReadRows(ctx, c.db, "find chunks", func(row Row) (struct{}, error) {
		var query int
		var seq int64
		err := row.Scan(&query, &seq)
		if err == nil {
			found[query] = append(found[query], seq)
		}
		return struct{}{}, err
	}, strings.Join(parts, " UNION ALL "), arguments...)
	return found, err
}

// FoundChunk is a chunk with where it is from.
type FoundChunk struct {
	Seq             int64 // its place among all chunks, in the order of writing
	DocumentID      string
	Document        string // its name
	KnowledgeBaseID string
	Position        int64 // within the document, from 0
	Text            string
}

// Read reads those of the chunks that stand in documents, ready, of some of an organization's knowledge bases, in
// the order of seq. Others are left out.
func (c Chunks) Read(ctx context.Context, orgID string, baseIDs []string, seqs []int64) ([]FoundChunk, error) {
	if len(baseIDs) == 0 || len(seqs) == 0 {
		return nil, nil
	}
	arguments := []any{orgID, DocumentReady}
	text := fmt.Sprintf(`SELECT c.seq, c.document_id, d.name, d.knowledge_base_id, c.position, c.text
		FROM chunks c JOIN documents d ON d.org_id = c.org_id AND d.id = c.document_id
		WHERE d.org_id = $1 AND d.state = $2 AND d.knowledge_base_id IN %s AND c.seq IN %s ORDER BY c.seq`,
		in(&arguments, baseIDs), in(&arguments, seqs))
	return ReadRows(ctx, c.db, "read chunks", func(row Row) (chunk FoundChunk, err error) {
		err = row.Scan(&chunk.Seq, &chunk.DocumentID, &chunk.Document, &chunk.KnowledgeBaseID, &chunk.Position, &chunk.Text)
		return chunk, err
	}, text, arguments...)
}
