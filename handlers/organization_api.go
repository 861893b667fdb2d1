package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// organizationObject is the caller's organization as the API shows it.
type organizationObject struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Plan          string `json:"plan"`
	Suspended     bool   `json:"suspended"`
	RetentionDays int64  `json:"retentionDays" doc:"For how many days conversations are kept; 0: until they are deleted"`
	CreatedAt     string `json:"createdAt"     format:"date-time"`
}

func showOrganization(o *store.Organization) organizationObject {
	return organizationObject{
		ID: o.ID, Name: o.Name, Plan: o.Plan, Suspended: o.SuspendedAt.Valid, RetentionDays: o.RetentionDays, CreatedAt: timestamp(o.CreatedAt),
	}
}

// organizationChange is the body of PATCH /organization.
type organizationChange struct {
	RetentionDays *int64 `json:"retentionDays,omitempty" minimum:"0" maximum:"3650" doc:"0, or 7 to 3650: what is older is deleted within a day, for good"` //nolint:lll // a struct tag can't be broken
}

func (a *API) registerOrganization() {
	const path = "/organization"
	register(a, operation{id: "getOrganization", Route: Route{
		Method: http.MethodGet, Path: path, Role: RoleMember, Summary: "Get the organization",
	}}, a.getOrganization)
	register(a, operation{id: "updateOrganization", Route: Route{
		Method: http.MethodPatch, Path: path, Role: RoleAdministrator, Summary: "Change for how long conversations are kept",
	}}, a.updateOrganization)
}

func (a *API) getOrganization(ctx context.Context, caller *identity.Principal, _ *struct{}) (*jsonBody[organizationObject], error) {
	organization, err := a.DB.Organizations.ByID(ctx, caller.OrgID)
	if err != nil {
		return nil, Internal(fmt.Errorf("reading the organization: %w", err))
	}
	return &jsonBody[organizationObject]{showOrganization(&organization)}, nil
}

func (a *API) updateOrganization(
	ctx context.Context, caller *identity.Principal, in *struct{ Body organizationChange },
) (*jsonBody[organizationObject], error) {
	if days := in.Body.RetentionDays; days != nil {
		err := a.DB.Organizations.SetRetention(ctx, caller.Actor(), caller.OrgID, *days)
		if errors.Is(err, store.ErrRetention) {
			return nil, InvalidRequest("retentionDays", "retentionDays must be 0, or %d to %d.", store.MinRetentionDays, store.MaxRetentionDays)
		}
		if err != nil {
			return nil, Internal(fmt.Errorf("setting the retention: %w", err))
		}
	}
	return a.getOrganization(ctx, caller, nil)
}
