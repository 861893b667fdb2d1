package store

import (
	"context"
	"strconv"
)

// SetModel switches a model on or off for an organization, with [ErrNotFound] for an unknown one. It is idempotent.
// Whether the model exists is the caller's to know: an exception may outlive its model.
func (o Organizations) SetModel(ctx context.Context, actor, orgID, model string, enabled bool) error {
	return o.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(1, `INSERT INTO org_models (org_id, model, enabled) VALUES ($1, $2, $3)
			ON CONFLICT (org_id, model) DO UPDATE SET enabled = excluded.enabled`, orgID, model, enabled)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "org_model.set", Target: model, OrgID: orgID, Detail: "enabled=" + strconv.FormatBool(enabled),
		})
		return nil
	})
}
