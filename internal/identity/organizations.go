package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Organizations creates and changes organizations. The audit log names the actor of every change, which holds from the
// organization's next request on.
//
// The methods return, wrapped, a [FieldError] for a refused value, [store.ErrNotFound] for an unknown organization,
// [store.ErrConflict] for a name that is taken, or the store's error.
type Organizations struct{ db *store.DB }

// NewOrganizations works on db.
func NewOrganizations(db *store.DB) *Organizations { return &Organizations{db: db} }

// Create makes an organization with a unique name of 1 to 100 code points. The caller has checked that plan is configured; it
// is empty when no plan is.
func (o *Organizations) Create(ctx context.Context, actor, name, plan string) (store.Organization, error) {
	name, err := CleanName("name", name)
	if err != nil {
		return store.Organization{}, err
	}
	organization := store.Organization{ID: store.NewID("org"), Name: name, Plan: plan, CreatedAt: time.Now().UnixMilli()}
	if err := o.db.Organizations.Create(ctx, actor, organization); err != nil {
		return store.Organization{}, fmt.Errorf("creating organization %q: %w", name, err)
	}
	return organization, nil
}

// List returns all organizations, in the store's order.
func (o *Organizations) List(ctx context.Context) ([]store.Organization, error) {
	organizations, err := o.db.Organizations.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing organizations: %w", err)
	}
	return organizations, nil
}

// ByID returns one organization.
func (o *Organizations) ByID(ctx context.Context, id string) (store.Organization, error) {
	organization, err := o.db.Organizations.ByID(ctx, id)
	if err != nil {
		return store.Organization{}, fmt.Errorf("organization %q: %w", clip(id), err)
	}
	return organization, nil
}

// Suspend makes every further call of the organization 402 organization_suspended. Suspending again changes nothing.
func (o *Organizations) Suspend(ctx context.Context, actor, id string) error {
	return o.setSuspended(ctx, actor, id, true)
}

// Resume ends a suspension. Resuming again changes nothing.
func (o *Organizations) Resume(ctx context.Context, actor, id string) error {
	return o.setSuspended(ctx, actor, id, false)
}

func (o *Organizations) setSuspended(ctx context.Context, actor, id string, suspended bool) error {
	if err := o.db.Organizations.SetSuspended(ctx, actor, id, suspended); err != nil {
		return fmt.Errorf("organization %q: %w", clip(id), err)
	}
	return nil
}

// SetPlan moves the organization to another plan. The caller has checked that it is configured.
func (o *Organizations) SetPlan(ctx context.Context, actor, id, plan string) error {
	if plan == "" {
		return &FieldError{"plan", "is empty"}
	}
	if err := o.db.Organizations.SetPlan(ctx, actor, id, plan); err != nil {
		return fmt.Errorf("organization %q: %w", clip(id), err)
	}
	return nil
}

// SetModel enables or disables a model for the organization; a new organization has all models. The caller has checked that the
// model is configured. Setting it again changes nothing.
func (o *Organizations) SetModel(ctx context.Context, actor, id, model string, enabled bool) error {
	if err := o.db.Organizations.SetModel(ctx, actor, id, model, enabled); err != nil {
		return fmt.Errorf("model %q of organization %q: %w", clip(model), clip(id), err)
	}
	return nil
}
