package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type organizationObject struct {
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

func showOrganization(o *store.Organization) organizationObject {
	return organizationObject{
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

type organization struct{ *Deps }

func (g *organization) register(s *endpoint.Server) {
	const path = "/organization"
	add(operations{s, handlers.RoleMember}, "getOrganization", http.MethodGet, path, noScope, "Get the organization", g.get)
	add(operations{s, handlers.RoleAdministrator}, "updateOrganization", http.MethodPatch, path, noScope,
		"Change for how long conversations are kept, and when people are told", g.update)
}

func (g *organization) get(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.JSON[organizationObject], error) {
	organization, err := g.DB.Organizations.ByID(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the organization: %w", err))
	}
	return endpoint.Answer(showOrganization(&organization)), nil
}

func (g *organization) update(
	ctx context.Context, principal *identity.Principal, in *struct{ Body organizationChange },
) (*endpoint.JSON[organizationObject], error) {
	if days := in.Body.RetentionDays; days != nil {
		err := g.DB.Organizations.SetRetention(ctx, principal.Actor(), principal.OrgID, *days)
		if errors.Is(err, store.ErrRetention) {
			return nil, handlers.InvalidRequest("retentionDays", "retentionDays must be 0, or %d to %d.",
				store.MinRetentionDays, store.MaxRetentionDays)
		}
		if err != nil {
			return nil, handlers.Internal(fmt.Errorf("setting the retention: %w", err))
		}
	}
	if err := g.updateBounds(ctx, principal, in.Body); err != nil {
		return nil, err
	}
	return g.get(ctx, principal, nil)
}

// updateBounds stores the bounds at which a low wallet and a long wait become events.
func (g *organization) updateBounds(ctx context.Context, principal *identity.Principal, change organizationChange) error {
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
	if err := g.DB.Organizations.SetEventBounds(ctx, principal.Actor(), principal.OrgID, bounds); err != nil {
		return handlers.Internal(fmt.Errorf("setting the bounds of events: %w", err))
	}
	return nil
}
