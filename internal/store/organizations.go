package store

import (
	"context"
	"database/sql"
)

// Organization is a tenant.
type Organization struct {
	ID          string
	Name        string // unique
	Plan        string // the name of a plan in the Caddyfile
	CreatedAt   int64  // epoch milliseconds; 0 when it is written: the transaction's clock
	SuspendedAt sql.NullInt64
	// RetentionDays is for how many days conversations are kept, 0 for ever. It is 0 when an organization is created.
	RetentionDays int64
}

// Organizations reads and writes organizations.
type Organizations struct{ db *DB }

// Create adds an organization, with [ErrConflict] when the name or the id is taken.
func (o Organizations) Create(ctx context.Context, actor string, organization Organization) error {
	return o.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(1, `INSERT INTO organizations (id, name, plan, created_at, suspended_at) VALUES ($1, $2, $3, $4, $5)`,
			organization.ID, organization.Name, organization.Plan, orNow(tx, organization.CreatedAt), organization.SuspendedAt)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "organization.create", Target: organization.ID, OrgID: organization.ID,
			Detail: organization.Name,
		})
		return nil
	})
}

const organizationColumns = `SELECT id, name, plan, created_at, suspended_at, retention_days FROM organizations`

func scanOrganization(row Row) (organization Organization, err error) {
	err = row.Scan(&organization.ID, &organization.Name, &organization.Plan, &organization.CreatedAt, &organization.SuspendedAt,
		&organization.RetentionDays)
	return organization, err
}

// All reads all organizations, oldest first.
func (o Organizations) All(ctx context.Context) ([]Organization, error) {
	return ReadRows(ctx, o.db, "list organizations", scanOrganization, organizationColumns+` ORDER BY created_at, id`)
}

// ByID reads one organization, or [ErrNotFound].
func (o Organizations) ByID(ctx context.Context, id string) (Organization, error) {
	return ReadRow(ctx, o.db, "read an organization", scanOrganization, organizationColumns+` WHERE id = $1`, id)
}

// SetSuspended suspends or resumes an organization, or [ErrNotFound]. The time of a suspension that stands is kept.
func (o Organizations) SetSuspended(ctx context.Context, actor, id string, suspended bool) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		entry := AuditEntry{Actor: actor, Action: "organization.resume", Target: id, OrgID: id}
		text, arguments := `UPDATE organizations SET suspended_at = NULL WHERE id = $1 RETURNING id`, []any{id}
		if suspended {
			entry.Action = "organization.suspend"
			text = `UPDATE organizations SET suspended_at = COALESCE(suspended_at, $2) WHERE id = $1 RETURNING id`
			arguments = append(arguments, tx.Now())
		}
		if err := change(ctx, tx, text, arguments...); err != nil {
			return err
		}
		QueueAudit(tx, entry)
		return nil
	})
}

// SetPlan puts an organization on a plan, or [ErrNotFound]. Whether the plan exists is the caller's to know.
func (o Organizations) SetPlan(ctx context.Context, actor, id, plan string) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := change(ctx, tx, `UPDATE organizations SET plan = $2 WHERE id = $1 RETURNING id`, id, plan); err != nil {
			return err
		}
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "organization.set_plan", Target: id, OrgID: id, Detail: plan})
		return nil
	})
}
