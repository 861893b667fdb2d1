package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// KnowledgeBase is a set of documents that assistants may know.
type KnowledgeBase struct {
	ID, OrgID   string
	Name        string // unique within the organization
	Description string
	// Documents and Bytes count its documents, failed uploads included. They are read, never written.
	Documents, Bytes int64 `db:"-"`
	// CreatedAt and UpdatedAt are epoch milliseconds. A CreatedAt of 0 becomes the transaction's clock.
	CreatedAt, UpdatedAt int64
}

var knowledgeBases = newTable("knowledge_bases b", func(b *KnowledgeBase) []field {
	const itsDocuments = ` FROM documents d WHERE d.org_id = b.org_id AND d.knowledge_base_id = b.id)`
	return []field{
		{`(SELECT count(*)` + itsDocuments, computed{&b.Documents}},
		{`(SELECT CAST(COALESCE(sum(d.bytes), 0) AS BIGINT)` + itsDocuments, computed{&b.Bytes}},
	}
})

// KnowledgeBases reads and writes knowledge bases.
type KnowledgeBases struct{ db *DB }

// Create adds a knowledge base. It returns [ErrConflict] if the organization has one with this name, [ErrLimit] if it has
// [MaxKnowledgeBases], and [ErrNotFound] for an unknown organization. UpdatedAt becomes CreatedAt.
func (b KnowledgeBases) Create(ctx context.Context, actor string, base KnowledgeBase) error {
	return b.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := checkRoom(ctx, tx, base.OrgID, MaxKnowledgeBases, `SELECT count(*) FROM knowledge_bases WHERE org_id = $1`)
		if err != nil {
			return err
		}
		base.CreatedAt = orNow(tx, base.CreatedAt)
		base.UpdatedAt = base.CreatedAt
		knowledgeBases.queueInsert(tx, &base)
		audit(tx, actor, "knowledge_base.create", base.ID, base.OrgID, base.Name)
		return nil
	})
}

// KnowledgeBaseChange is a change of a knowledge base: a nil field stays unchanged.
type KnowledgeBaseChange struct{ Name, Description *string }

// Update changes an organization's knowledge base. It returns [ErrNotFound] when there is none, and
// [ErrConflict] when another one has the name.
func (b KnowledgeBases) Update(ctx context.Context, actor, orgID, id string, update KnowledgeBaseChange) error {
	return b.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		base, err := knowledgeBases.lock(ctx, tx, orgID, id)
		if err != nil || update == (KnowledgeBaseChange{}) {
			return err
		}
		base.Name, base.Description = *cmp.Or(update.Name, &base.Name), *cmp.Or(update.Description, &base.Description)
		base.UpdatedAt = tx.Now()
		knowledgeBases.queueUpdate(tx, &base, orgID, id)
		audit(tx, actor, "knowledge_base.update", id, orgID, *cmp.Or(update.Name, new("")))
		return nil
	})
}

// DeleteEmpty removes an organization's knowledge base without documents, also from its agents. It reports false if there are documents,
// also new ones, and returns [ErrNotFound] if there is no such base.
func (b KnowledgeBases) DeleteEmpty(ctx context.Context, actor, orgID, id string) (deleted bool, err error) {
	return Write(ctx, b.db, func(ctx context.Context, tx Tx) (bool, error) {
		// Adding a document locks the base by its foreign key, so the document is either seen in the next statement or fails.
		err := change(ctx, tx, `SELECT id FROM knowledge_bases WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
		if err != nil {
			return false, err
		}
		filled, err := Changed(ctx, tx, `SELECT id FROM documents WHERE org_id = $1 AND knowledge_base_id = $2 LIMIT 1`, orgID, id)
		if err != nil || filled {
			return false, err
		}
		tx.Queue(AnyRows, `DELETE FROM knowledge_bases WHERE id = $1 AND org_id = $2`, id, orgID)
		audit(tx, actor, "knowledge_base.delete", id, orgID, "")
		return true, nil
	})
}

// ByID reads an organization's knowledge base. It returns [ErrNotFound] if there is none.
func (b KnowledgeBases) ByID(ctx context.Context, orgID, id string) (KnowledgeBase, error) {
	return ReadRow(ctx, b.db, "read a knowledge base", knowledgeBases.scan,
		knowledgeBases.selected+` WHERE b.id = $1 AND b.org_id = $2`, id, orgID)
}

// List reads a page of an organization's knowledge bases, oldest first.
func (b KnowledgeBases) List(ctx context.Context, orgID string, page Page) ([]KnowledgeBase, error) {
	return readPage(ctx, b.db, "list knowledge bases", knowledgeBases.scan, knowledgeBases.selected+` WHERE b.org_id = $1`, "b.id", page, orgID)
}

// MaxDocuments is the number of documents that an organization may have, whatever their size, because each new document sums up their
// sizes.
const MaxDocuments = 10_000

// The states of a document.
const (
	// DocumentIngesting: its chunks are being written.
	DocumentIngesting = "ingesting"
	// DocumentReady: it is complete, and found.
	DocumentReady = "ready"
	// DocumentFailed: it is not found; Reason says why.
	DocumentFailed = "failed"
)

// Document is an upload in a knowledge base.
type Document struct {
	ID, OrgID       string
	KnowledgeBaseID string
	Name            string // unique within the knowledge base
	MediaType       string // text/plain, text/markdown or text/html
	Bytes           int64  // of the upload
	State           string // DocumentIngesting, DocumentReady or DocumentFailed
	// ChunksDone of ChunksTotal are written.
	ChunksDone, ChunksTotal int64
	Reason                  string // why it failed, "" in any other state
	// CreatedAt and UpdatedAt are epoch milliseconds. A CreatedAt of 0 becomes the transaction's clock. A document that is ingesting is
	// updated with every few chunks.
	CreatedAt, UpdatedAt int64
}

var documents = newTable[Document]("documents", nil)

// Chunk is a part of a document, as it is found.
type Chunk struct {
	Text  string
	Words []string // distinct, [a-z0-9]+, as they are looked up
}

// Documents reads and writes documents with their chunks.
type Documents struct{ db *DB }

// Create adds a document with its first chunks; [Documents.AppendChunks] adds the others. With all of its ChunksTotal the document is ready
// immediately. State, ChunksDone and Reason follow from that; UpdatedAt becomes CreatedAt.
//
// limit is the number of bytes of the organization's plan; less than 0 means unlimited. Create returns [ErrLimit] if the document exceeds
// it or the organization has [MaxDocuments], also of concurrent calls, [ErrConflict] if the knowledge base has the name, and [ErrNotFound]
// if the organization has no such knowledge base.
func (d Documents) Create(ctx context.Context, actor string, document Document, chunks []Chunk, limit int64) error {
	return d.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := lockOrganization(ctx, tx, document.OrgID); err != nil { // another upload waits
			return err
		}
		var count, used int64
		err := queryRow(ctx, tx, []any{&count, &used},
			`SELECT count(*), CAST(COALESCE(sum(bytes), 0) AS BIGINT) FROM documents WHERE org_id = $1`, document.OrgID)
		if err != nil || count >= MaxDocuments || limit >= 0 && document.Bytes > limit-used {
			return cmp.Or(err, ErrLimit)
		}
		document.State, document.ChunksDone, document.Reason = DocumentIngesting, int64(len(chunks)), ""
		if document.ChunksDone == document.ChunksTotal {
			document.State = DocumentReady
		}
		document.CreatedAt = orNow(tx, document.CreatedAt)
		document.UpdatedAt = document.CreatedAt
		documents.queueInsert(tx, &document)
		queueChunks(tx, document.OrgID, document.ID, 0, chunks)
		audit(tx, actor, "document.create", document.ID, document.OrgID, document.Name)
		return nil
	})
}

// AppendChunks writes the chunks that follow the first from ones of a document that is ingesting. The last chunks make it ready. Chunks
// that are written already are not written again. It returns [ErrNotFound] if the document is no longer ingesting there.
func (d Documents) AppendChunks(ctx context.Context, orgID, id string, from int64, chunks []Chunk) error {
	done := from + int64(len(chunks))
	return d.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		advanced, err := Changed(ctx, tx, `UPDATE documents SET chunks_done = $4, updated_at = $5,
				state = CASE WHEN $4 = chunks_total THEN $6 ELSE state END
			WHERE id = $1 AND org_id = $2 AND state = $7 AND chunks_done = $3 RETURNING id`,
			id, orgID, from, done, tx.Now(), DocumentReady, DocumentIngesting)
		if err != nil {
			return err
		}
		if !advanced { // perhaps by a commit that was lost sight of
			return change(ctx, tx, `SELECT id FROM documents WHERE id = $1 AND org_id = $2 AND chunks_done = $3 AND state <> $4`,
				id, orgID, done, DocumentFailed)
		}
		queueChunks(tx, orgID, id, from, chunks)
		return nil
	})
}

func queueChunks(tx Tx, orgID, documentID string, from int64, chunks []Chunk) {
	for i := range chunks {
		tx.Queue(AnyRows, `INSERT INTO chunks (org_id, document_id, position, text, words) VALUES ($1, $2, $3, $4, $5)`,
			orgID, documentID, from+int64(i), chunks[i].Text, storedWords(chunks[i].Words))
	}
}

// Fail ends the ingestion of a document for a reason that its owner is shown. Failing a document that isn't
// ingesting changes nothing.
func (d Documents) Fail(ctx context.Context, orgID, id, reason string) error {
	return d.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(AnyRows, `UPDATE documents SET state = $3, reason = $4, updated_at = $5 WHERE id = $1 AND org_id = $2 AND state = $6`,
			id, orgID, DocumentFailed, reason, tx.Now(), DocumentIngesting)
	})
}

// deletedChunks is the number of chunks that one transaction of [Documents.DeleteSomeChunks] deletes. It keeps a deletion from blocking
// other writes for long.
const deletedChunks = 50

// reasonDeleting is the reason of a document during its deletion.
const reasonDeleting = "Its deletion has begun. Delete it again if it stays."

// DeleteSomeChunks deletes a part of a document, and reports true when the document is gone. Its callers repeat it until it reports
// true. Searches don't find the document from the first part on; a partly deleted document stays failed. It returns [ErrNotFound] if the
// knowledge base has no such document.
func (d Documents) DeleteSomeChunks(ctx context.Context, actor, orgID, baseID, id string) (gone bool, err error) {
	return Write(ctx, d.db, func(ctx context.Context, tx Tx) (bool, error) {
		err := change(ctx, tx, `UPDATE documents SET state = $4, reason = $5, updated_at = $6
			WHERE id = $1 AND org_id = $2 AND knowledge_base_id = $3 RETURNING id`,
			id, orgID, baseID, DocumentFailed, reasonDeleting, tx.Now())
		if err != nil {
			return false, err
		}
		var taken int64
		err = tx.Query(ctx, func(Row) error { taken++; return nil }, `DELETE FROM chunks WHERE seq IN (
				SELECT seq FROM chunks WHERE org_id = $1 AND document_id = $2 ORDER BY position LIMIT $3) RETURNING seq`, orgID, id, deletedChunks)
		if err != nil || taken == deletedChunks {
			return false, err
		}
		tx.Queue(1, `DELETE FROM documents WHERE id = $1 AND org_id = $2`, id, orgID)
		audit(tx, actor, "document.delete", id, orgID, "")
		return true, nil
	})
}

// ByID reads a document of an organization's knowledge base. It returns [ErrNotFound] if there is none.
func (d Documents) ByID(ctx context.Context, orgID, baseID, id string) (Document, error) {
	return ReadRow(ctx, d.db, "read a document", documents.scan,
		documents.selected+` WHERE id = $1 AND org_id = $2 AND knowledge_base_id = $3`, id, orgID, baseID)
}

// List reads a page of the documents of an organization's knowledge base, oldest first.
func (d Documents) List(ctx context.Context, orgID, baseID string, page Page) ([]Document, error) {
	return readPage(ctx, d.db, "list documents", documents.scan, documents.selected+` WHERE org_id = $1 AND knowledge_base_id = $2`,
		"id", page, orgID, baseID)
}

// ReadyChunks returns how many chunks the ready documents of some of an organization's knowledge bases have.
func (d Documents) ReadyChunks(ctx context.Context, orgID string, baseIDs []string) (n int64, err error) {
	if len(baseIDs) == 0 {
		return 0, nil
	}
	arguments := []any{orgID, DocumentReady}
	list := in(&arguments, baseIDs)
	return ReadRow(ctx, d.db, "count chunks", ScanValue[int64], `SELECT CAST(COALESCE(sum(chunks_total), 0) AS BIGINT) FROM documents
		WHERE org_id = $1 AND state = $2 AND knowledge_base_id IN `+list, arguments...)
}

// WordQuery selects the chunks that have all words of one of the groups. Words are [a-z0-9]+, so that no word is a sign of an engine's own
// query language.
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

// storedWords returns the column of a chunk's words. It leaves out texts that aren't words, because they couldn't be looked up.
func storedWords(words []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(word string) bool { return !isWord(word) }), " ")
}

// Chunks finds the chunks of documents by their words.
type Chunks struct{ db *DB }

// selects returns a SELECT for each query, which a format makes of the query's number and of the SELECT of its chunks, and the arguments.
func (c Chunks) selects(queries []WordQuery, most int, format string) (selects []string, arguments []any, err error) {
	match := `SELECT rowid AS seq FROM chunk_words WHERE chunk_words MATCH $%d`
	if c.db.Engine() == Postgres {
		match = `SELECT seq FROM chunks WHERE chunk_lexemes(words) @@ $%d::text::tsquery`
	}
	for i, query := range queries {
		text, ok := query.text(c.db.Engine())
		if !ok {
			return nil, nil, fmt.Errorf("store: query %d has what is no word", i)
		}
		arguments = append(arguments, text)
		selects = append(selects, fmt.Sprintf(format, i, fmt.Sprintf(match, i+1), most))
	}
	return selects, arguments, nil
}

// Count returns how many chunks each of the queries finds, over all organizations, counted up to most.
func (c Chunks) Count(ctx context.Context, queries []WordQuery, most int) ([]int64, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	columns, arguments, err := c.selects(queries, most, `(SELECT count(*) FROM (%[2]s LIMIT %[3]d) AS found)`)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(queries))
	into := make([]any, len(queries))
	for i := range counts {
		into[i] = &counts[i]
	}
	err = EachRow(ctx, c.db, "count chunks", func(row Row) error { return row.Scan(into...) }, `SELECT `+strings.Join(columns, ", "), arguments...)
	return counts, err
}

// Find finds chunks by each of the queries, over all organizations: their seqs, for [Chunks.Read]. most bounds
// what each query finds.
func (c Chunks) Find(ctx context.Context, queries []WordQuery, most int) ([][]int64, error) {
	found := make([][]int64, len(queries))
	if len(queries) == 0 {
		return found, nil
	}
	parts, arguments, err := c.selects(queries, most, `SELECT %[1]d AS query, seq FROM (%[2]s LIMIT %[3]d) AS found%[1]d`)
	if err != nil {
		return nil, err
	}
	err = EachRow(ctx, c.db, "find chunks", func(row Row) error {
		var query int
		var seq int64
		err := row.Scan(&query, &seq)
		if err == nil {
			found[query] = append(found[query], seq)
		}
		return err
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

// Read reads chunks of ready documents in some of an organization's knowledge bases, in the order of seq. Other chunks are left out.
func (c Chunks) Read(ctx context.Context, orgID string, baseIDs []string, seqs []int64) ([]FoundChunk, error) {
	if len(baseIDs) == 0 || len(seqs) == 0 {
		return nil, nil
	}
	arguments := []any{orgID, DocumentReady}
	text := fmt.Sprintf(`SELECT c.seq, c.document_id, d.name, d.knowledge_base_id, c.position, c.text
		FROM chunks c JOIN documents d ON d.org_id = c.org_id AND d.id = c.document_id
		WHERE d.org_id = $1 AND d.state = $2 AND d.knowledge_base_id IN %s AND c.seq IN %s ORDER BY c.seq`,
		in(&arguments, baseIDs), in(&arguments, seqs))
	return ReadRows(ctx, c.db, "read chunks", ScanFields[FoundChunk](), text, arguments...)
}
