package store

import (
	"context"
	"errors"
	"fmt"
)

// The bounds of an organization's retention in days. The least is for how long platforms repeat a delivery (7 days,
// notes/platforms.md): the ids by which repetitions are merged go with the messages.
const (
	MinRetentionDays = 7
	MaxRetentionDays = 3650
)

// ErrRetention is returned for a retention that is neither 0 nor within its bounds.
var ErrRetention = errors.New("the retention must be 0 days, or 7 to 3650")

// SetRetention says for how many days an organization keeps its conversations; 0 is until they are deleted. It answers
// [ErrRetention], or [ErrNotFound] for an unknown organization. The same retention again changes nothing.
func (o Organizations) SetRetention(ctx context.Context, actor, id string, days int64) error {
	if days != 0 && (days < MinRetentionDays || days > MaxRetentionDays) {
		return fmt.Errorf("store: set a retention of %d days: %w", days, ErrRetention)
	}
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		before := int64(-1)
		read := func(row Row) error { return row.Scan(&before) }
		if err := tx.Query(ctx, read, `SELECT retention_days FROM organizations WHERE id = $1`+tx.LockRows(), id); err != nil {
			return err
		}
		switch before {
		case -1:
			return ErrNotFound
		case days:
			return nil
		}
		tx.Queue(1, `UPDATE organizations SET retention_days = $2 WHERE id = $1`, id, days)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "organization.set_retention", Target: id, OrgID: id, Detail: fmt.Sprintf("%d days", days),
		})
		return nil
	})
}

// Retention is for how many days an organization keeps its conversations.
type Retention struct {
	OrgID string
	Days  int64
}

// Retentions reads a page of the organizations that don't keep their conversations for ever, in order of id.
func (o Organizations) Retentions(ctx context.Context, page Page) ([]Retention, error) {
	return ReadRows(ctx, o.db, "list retentions", func(row Row) (r Retention, err error) {
		err = row.Scan(&r.OrgID, &r.Days)
		return r, err
	}, `SELECT id, retention_days FROM organizations WHERE retention_days > 0 AND id > $1 ORDER BY id LIMIT $2`,
		page.After, page.Rows())
}
