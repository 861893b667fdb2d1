package store

import (
	"cmp"
	"context"
	"fmt"
)

// AuditEntry records the actor, the action and its target. No field carries a secret.
type AuditEntry struct {
	ID     string // made when it is written, unless it is given
	At     int64  // epoch milliseconds; 0 when it is written: the transaction's clock
	Actor  string // cli:<account>, key_…, usr_… or a part of the service
	Action string // resource.verb: organization.create, api_key.revoke
	Target string // id or name of what was acted on
	OrgID  string // "" when no organization is concerned
	Detail string // free text for a human
}

var auditLog = newTable("audit_log", func(e *AuditEntry) []field {
	return []field{
		{"id", &e.ID},
		{"at", &e.At},
		{"actor", &e.Actor},
		{"action", &e.Action},
		{"target", &e.Target},
		{"org_id", &e.OrgID},
		{"detail", &e.Detail},
	}
})

// QueueAudit writes an entry in an open transaction, so that it is committed together with what it records.
func QueueAudit(tx Tx, entry AuditEntry) {
	entry.ID, entry.At = cmp.Or(entry.ID, NewID("aud")), orNow(tx, entry.At)
	auditLog.queueInsert(tx, &entry)
}

// AuditLog reads and writes the audit log.
type AuditLog struct{ db *DB }

// Add writes an entry about something that happened outside the database.
func (l AuditLog) Add(ctx context.Context, entry AuditEntry) error {
	return l.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		QueueAudit(tx, entry)
		return nil
	})
}

// Newest reads the newest limit entries, newest first.
func (l AuditLog) Newest(ctx context.Context, limit int) ([]AuditEntry, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("store: read the audit log: limit %d is not positive", limit)
	}
	return ReadRows(ctx, l.db, "read the audit log", auditLog.scan, auditLog.selected+` ORDER BY id DESC LIMIT $1`, limit)
}

// List reads a page of the entries about an organization, newest first: After is the id of the oldest that was seen.
func (l AuditLog) List(ctx context.Context, orgID string, page Page) ([]AuditEntry, error) {
	return ReadRows(ctx, l.db, "read the audit log", auditLog.scan,
		auditLog.selected+` WHERE org_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, orgID, page.After, page.Rows())
}
