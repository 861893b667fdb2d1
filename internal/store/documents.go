package store

import "context"

// MaxDocuments is how many documents an organization may have, whatever their size: what the plan allows is summed over
// them whenever one is added.
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
	// CreatedAt and UpdatedAt are epoch milliseconds. CreatedAt 0 is the transaction's clock when it is written. A
	// document that is ingesting is updated with every few chunks.
	CreatedAt, UpdatedAt int64
}

var documents = newTable("documents", func(d *Document) []field {
	return []field{
		{"id", &d.ID},
		{"org_id", &d.OrgID},
		{"knowledge_base_id", &d.KnowledgeBaseID},
		{"name", &d.Name},
		{"media_type", &d.MediaType},
		{"bytes", &d.Bytes},
		{"state", &d.State},
		{"chunks_done", &d.ChunksDone},
		{"chunks_total", &d.ChunksTotal},
		{"reason", &d.Reason},
		{"created_at", &d.CreatedAt},
		{"updated_at", &d.UpdatedAt},
	}
})

// Chunk is a part of a document, as it is found.
type Chunk struct {
	Text  string
	Words []string // distinct, [a-z0-9]+, as they are looked up
}

// Documents reads and writes documents with their chunks.
type Documents struct{ db *DB }

// Create adds a document with its first chunks, and the ones to come in [Documents.AppendChunks]; with all of its
// ChunksTotal it is ready at once. State, ChunksDone and Reason follow from that; its UpdatedAt is its CreatedAt.
//
// limit is how many bytes the organization's plan allows, less than 0 is no limit: [ErrLimit] when the document is too
// much, or the organization has [MaxDocuments], and that holds however many are added at once. [ErrConflict] when the
// knowledge base has the name, [ErrNotFound] when the organization has no such knowledge base.
func (d Documents) Create(ctx context.Context, actor string, document Document, chunks []Chunk, limit int64) error {
	return d.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := checkKnowledgeLimit(ctx, tx, document.OrgID, document.Bytes, limit); err != nil {
			return err
		}
		document.State, document.ChunksDone, document.Reason = DocumentIngesting, int64(len(chunks)), ""
		if document.ChunksDone == document.ChunksTotal {
			document.State = DocumentReady
		}
		document.CreatedAt = orNow(tx, document.CreatedAt)
		document.UpdatedAt = document.CreatedAt
		documents.queueInsert(tx, &document)
		queueChunks(tx, document.OrgID, document.ID, 0, chunks)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "document.create", Target: document.ID, OrgID: document.OrgID, Detail: document.Name,
		})
		return nil
	})
}

// checkKnowledgeLimit locks the organization, so that another upload waits, and sums up what it has.
func checkKnowledgeLimit(ctx context.Context, tx Tx, orgID string, bytes, limit int64) error {
	if err := lockOrganization(ctx, tx, orgID); err != nil {
		return err
	}
	var count, used int64
	err := tx.Query(ctx, func(row Row) error { return row.Scan(&count, &used) },
		`SELECT count(*), CAST(COALESCE(sum(bytes), 0) AS BIGINT) FROM documents WHERE org_id = $1`, orgID)
	if err == nil && (count >= MaxDocuments || limit >= 0 && bytes > limit-used) {
		err = ErrLimit
	}
	return err
}

// AppendChunks writes the chunks that follow the first ones of a document that is ingesting; the last of them make it
// ready. from is how many there are: chunks that are written already are not written again. [ErrNotFound] when the
// document isn't ingesting there any more.
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
	return d.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(AnyRows, `UPDATE documents SET state = $3, reason = $4, updated_at = $5 WHERE id = $1 AND org_id = $2 AND state = $6`,
			id, orgID, DocumentFailed, reason, tx.Now(), DocumentIngesting)
		return nil
	})
}

// deletedChunks is how many chunks one transaction of [Documents.DeleteSomeChunks] takes away at most. Others wait for the
// writer no longer than that takes.
const deletedChunks = 50

// reasonDeleting is the reason of a document whose deletion has begun.
const reasonDeleting = "Its deletion has begun. Delete it again if it stays."

// DeleteSomeChunks takes away a part of a document, and reports true when that was the last and the document is gone, too.
// The document is not found any more from the first part on. It is called again until then; a document of which a part
// is left stays, failed. [ErrNotFound] when the knowledge base has no such document.
func (d Documents) DeleteSomeChunks(ctx context.Context, actor, orgID, baseID, id string) (gone bool, err error) {
	err = d.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		gone = false
		err := change(ctx, tx, `UPDATE documents SET state = $4, reason = $5, updated_at = $6
			WHERE id = $1 AND org_id = $2 AND knowledge_base_id = $3 RETURNING id`,
			id, orgID, baseID, DocumentFailed, reasonDeleting, tx.Now())
		if err != nil {
			return err
		}
		var taken int64
		err = tx.Query(ctx, func(Row) error { taken++; return nil }, `DELETE FROM chunks WHERE seq IN (
				SELECT seq FROM chunks WHERE org_id = $1 AND document_id = $2 ORDER BY position LIMIT $3) RETURNING seq`, orgID, id, deletedChunks)
		if err != nil || taken == deletedChunks {
			return err
		}
		tx.Queue(1, `DELETE FROM documents WHERE id = $1 AND org_id = $2`, id, orgID)
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "document.delete", Target: id, OrgID: orgID})
		gone = true
		return nil
	})
	return gone && err == nil, err
}

// ByID reads a document of an organization's knowledge base, or [ErrNotFound].
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
