package store

import "context"

// KnowledgeBase is a set of documents that assistants may know.
type KnowledgeBase struct {
	ID, OrgID   string
	Name        string // unique within the organization
	Description string
	// Documents and Bytes count its documents, failed uploads included. They are read, never written.
	Documents, Bytes int64
	// CreatedAt and UpdatedAt are epoch milliseconds. CreatedAt 0 is the transaction's clock when it is written.
	CreatedAt, UpdatedAt int64
}

var knowledgeBases = newTable("knowledge_bases b", func(b *KnowledgeBase) []field {
	const itsDocuments = ` FROM documents d WHERE d.org_id = b.org_id AND d.knowledge_base_id = b.id)`
	return []field{
		{"id", &b.ID},
		{"org_id", &b.OrgID},
		{"name", &b.Name},
		{"description", &b.Description},
		{"created_at", &b.CreatedAt},
		{"updated_at", &b.UpdatedAt},
		{`(SELECT count(*)` + itsDocuments, computed{&b.Documents}},
		{`(SELECT CAST(COALESCE(sum(d.bytes), 0) AS BIGINT)` + itsDocuments, computed{&b.Bytes}},
	}
})

// KnowledgeBases reads and writes knowledge bases.
type KnowledgeBases struct{ db *DB }

// Create adds a knowledge base, with [ErrConflict] when the organization has one with this name, [ErrLimit] when it has
// [MaxKnowledgeBases], and [ErrNotFound] for an unknown organization. Its UpdatedAt is its CreatedAt.
func (b KnowledgeBases) Create(ctx context.Context, actor string, base KnowledgeBase) error {
	return b.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := checkRoom(ctx, tx, base.OrgID, MaxKnowledgeBases, `SELECT count(*) FROM knowledge_bases WHERE org_id = $1`)
		if err != nil {
			return err
		}
		base.CreatedAt = orNow(tx, base.CreatedAt)
		base.UpdatedAt = base.CreatedAt
		knowledgeBases.queueInsert(tx, &base)
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "knowledge_base.create", Target: base.ID, OrgID: base.OrgID, Detail: base.Name})
		return nil
	})
}

// KnowledgeBaseChange is a change of a knowledge base: a nil field stays unchanged.
type KnowledgeBaseChange struct {
	Name, Description *string
}

// Update changes an organization's knowledge base. It returns [ErrNotFound] when there is none, and
// [ErrConflict] when another one has the name.
func (b KnowledgeBases) Update(ctx context.Context, actor, orgID, id string, update KnowledgeBaseChange) error {
	return b.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, `UPDATE knowledge_bases SET
				name = CASE WHEN $3 THEN $4 ELSE name END,
				description = CASE WHEN $5 THEN $6 ELSE description END,
				updated_at = CASE WHEN $3 OR $5 THEN $7 ELSE updated_at END
			WHERE id = $1 AND org_id = $2 RETURNING id`,
			id, orgID, update.Name != nil, orEmpty(update.Name), update.Description != nil, orEmpty(update.Description), tx.Now())
		if err != nil || update == (KnowledgeBaseChange{}) {
			return err
		}
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "knowledge_base.update", Target: id, OrgID: orgID, Detail: orEmpty(update.Name)})
		return nil
	})
}

// DeleteEmpty removes an organization's knowledge base that has no documents, and takes it from its agents.
// It reports false when there are documents, also new ones, and returns [ErrNotFound] when there is no such base.
func (b KnowledgeBases) DeleteEmpty(ctx context.Context, actor, orgID, id string) (deleted bool, err error) {
	err = b.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		deleted = false
		// Adding a document locks the base by its foreign key, so the document is either seen in the next statement or fails.
		err := change(ctx, tx, `SELECT id FROM knowledge_bases WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
		if err != nil {
			return err
		}
		filled, err := Changed(ctx, tx, `SELECT id FROM documents WHERE org_id = $1 AND knowledge_base_id = $2 LIMIT 1`, orgID, id)
		if err != nil || filled {
			return err
		}
		tx.Queue(AnyRows, `DELETE FROM knowledge_bases WHERE id = $1 AND org_id = $2`, id, orgID)
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "knowledge_base.delete", Target: id, OrgID: orgID})
		deleted = true
		return nil
	})
	return deleted && err == nil, err
}

// ByID reads an organization's knowledge base, or [ErrNotFound].
func (b KnowledgeBases) ByID(ctx context.Context, orgID, id string) (KnowledgeBase, error) {
	return ReadRow(ctx, b.db, "read a knowledge base", knowledgeBases.scan,
		knowledgeBases.selected+` WHERE b.id = $1 AND b.org_id = $2`, id, orgID)
}

// List reads a page of an organization's knowledge bases, oldest first.
func (b KnowledgeBases) List(ctx context.Context, orgID string, page Page) ([]KnowledgeBase, error) {
	return readPage(ctx, b.db, "list knowledge bases", knowledgeBases.scan, knowledgeBases.selected+` WHERE b.org_id = $1`, "b.id", page, orgID)
}
