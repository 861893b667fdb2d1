package api

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// OrganizationObject is the organization as the API shows it.
type OrganizationObject struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Plan          string `json:"plan"`
	Suspended     bool   `json:"suspended"`
	RetentionDays int64  `json:"retentionDays" doc:"For how many days conversations are kept; 0: until they are deleted"`
	CreatedAt     string `json:"createdAt"     format:"date-time"`
	// LowBalanceMicros is the balance below which wallet.low is sent, WaitingMinutes the wait after which conversation.waiting is.
	LowBalanceMicros string `json:"lowBalanceMicros" doc:"The event wallet.low is told when the live wallet has less; 0: never"`
	WaitingMinutes   int64  `json:"waitingMinutes"   doc:"The event conversation.waiting is told when a customer has waited so long; 0: never"`
}

func showOrganization(o *store.Organization) OrganizationObject {
	return OrganizationObject{
		ID: o.ID, Name: o.Name, Plan: o.Plan, Suspended: o.SuspendedAt.Valid, RetentionDays: o.RetentionDays,
		CreatedAt:        endpoint.Timestamp(o.CreatedAt),
		LowBalanceMicros: strconv.FormatInt(o.LowBalanceMicros, 10), WaitingMinutes: o.WaitingMinutes,
	}
}

// organizationChange is the body of PATCH /organization.
type organizationChange struct {
	RetentionDays *int64 `json:"retentionDays,omitempty" minimum:"0" maximum:"3650" doc:"0, or 7 to 3650: what is older is deleted within a day, for good"` //nolint:lll // a struct tag can't be broken

	LowBalanceMicros *string `json:"lowBalanceMicros,omitempty" pattern:"^[0-9]{1,18}$" patternDescription:"a whole number of micros" doc:"Micros; 0: never"` //nolint:lll // a struct tag can't be broken
	WaitingMinutes   *int64  `json:"waitingMinutes,omitempty"   minimum:"0" maximum:"10080" doc:"0: never"`
}

// The operations on the organization.
var (
	GetOrganization = operation(members("getOrganization", "GET /organization", noScope,
		"Get the organization"), (*Deps).getOrganization)
	UpdateOrganization = operation(administrators("updateOrganization", "PATCH /organization", noScope,
		"Change for how long conversations are kept, and when people are told"), (*Deps).updateOrganization)
)

var organizationOperations = []Operation{GetOrganization, UpdateOrganization}

func (d *Deps) getOrganization(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.JSON[OrganizationObject], error) {
	organization, err := d.DB.Organizations.ByID(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the organization: %w", err))
	}
	return endpoint.Answer(showOrganization(&organization)), nil
}

func (d *Deps) updateOrganization(
	ctx context.Context, principal *identity.Principal, in *struct{ Body organizationChange },
) (*endpoint.JSON[OrganizationObject], error) {
	if days := in.Body.RetentionDays; days != nil {
		err := d.DB.Organizations.SetRetention(ctx, principal.Actor(), principal.OrgID, *days)
		if errors.Is(err, store.ErrRetention) {
			return nil, handlers.InvalidRequest("retentionDays", "retentionDays must be 0, or %d to %d.",
				store.MinRetentionDays, store.MaxRetentionDays)
		}
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("setting the retention: %w", err))
		}
	}
	if err := d.updateBounds(ctx, principal, in.Body); err != nil {
		return nil, err
	}
	return d.getOrganization(ctx, principal, nil)
}

// updateBounds stores the bounds at which a low wallet and a long wait become events.
func (d *Deps) updateBounds(ctx context.Context, principal *identity.Principal, change organizationChange) error {
	bounds := store.EventBounds{WaitingMinutes: change.WaitingMinutes}
	if change.LowBalanceMicros != nil {
		micros, err := strconv.ParseInt(*change.LowBalanceMicros, 10, 64)
		if err != nil {
			return handlers.InvalidRequest("lowBalanceMicros", "lowBalanceMicros must be a whole number of micros.")
		}
		bounds.LowBalanceMicros = &micros
	}
	if bounds == (store.EventBounds{}) {
		return nil
	}
	if err := d.DB.Organizations.SetEventBounds(ctx, principal.Actor(), principal.OrgID, bounds); err != nil {
		return handlers.Internal(fmt.Errorf("setting the bounds of events: %w", err))
	}
	return nil
}
