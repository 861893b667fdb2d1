package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// CreateOrganization makes an organization with a unique name of 1 to 100 code points. The caller has checked that plan is
// configured; it is empty when no plan is. Errors are, wrapped, a [FieldError] for a refused name, [store.ErrConflict] for a name
// that is taken, or the store's.
func CreateOrganization(ctx context.Context, db *store.DB, actor, name, plan string) (store.Organization, error) {
	name, err := CleanName("name", name)
	if err != nil {
		return store.Organization{}, err
	}
	organization := store.Organization{
		ID: store.NewID("org"), Name: name, Plan: plan, CreatedAt: time.Now().UnixMilli(), WaitingMinutes: store.DefaultWaitingMinutes,
	}
	if err := db.Organizations.Create(ctx, actor, organization); err != nil {
		return store.Organization{}, fmt.Errorf("creating organization %q: %w", name, err)
	}
	return organization, nil
}
