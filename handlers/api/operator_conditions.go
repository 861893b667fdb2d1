package api

import (
	"context"
	"errors"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operator's operations on the state of the service.
var (
	ListConditions = operation(service("listConditions", "GET /conditions", "status:read",
		"List the conditions that need the operator, the gravest first, all on one page"), (*Deps).listConditions)
	GetDoctor = operation(service("getDoctor", "GET /doctor", "doctor:read", "Read the result of the doctor's last run"), (*Deps).getDoctor)
	RunDoctor = operation(service("runDoctor", "POST /doctor", "doctor:write",
		"Start the doctor in the background; 409 conflict while it runs"), (*Deps).runDoctor)
)

func (d *Deps) listConditions(ctx context.Context, _ *identity.Principal, _ *struct{}) (*pageOf[conditions.Object], error) {
	all, err := conditions.List(ctx, d.DB)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	return onePage(all, (*conditions.Condition).Show), nil
}

// doctorObject is the doctor's last result, and whether the doctor runs.
type doctorObject struct {
	RunningSince *string            `json:"runningSince" format:"date-time" doc:"null: the doctor doesn't run"`
	State        *string            `json:"state" enum:"ok,findings,unfinished" doc:"Of the last run that has ended; null: none has"`
	StartedAt    *string            `json:"startedAt" format:"date-time"`
	EndedAt      *string            `json:"endedAt" format:"date-time"`
	StartedBy    *string            `json:"startedBy" doc:"null: the run was due"`
	Node         *string            `json:"node" doc:"The process that ran it"`
	Invariants   []billing.Examined `json:"invariants" doc:"What was checked, with up to 20 findings each"`
}

func (d *Deps) getDoctor(ctx context.Context, _ *identity.Principal, _ *struct{}) (*doctorObject, error) {
	shown := doctorObject{Invariants: []billing.Examined{}}
	last, err := conditions.LastRun(ctx, d.DB)
	if err == nil {
		shown.State, shown.Node, shown.StartedBy = &last.State, &last.Node, endpoint.TextOrNull(last.StartedBy)
		shown.StartedAt, shown.EndedAt = endpoint.TimestampOrNull(last.StartedAt), endpoint.TimestampOrNull(last.EndedAt)
		shown.Invariants = append(shown.Invariants, last.Report.Invariants...)
		for i := range shown.Invariants {
			shown.Invariants[i].Findings = append([]billing.Finding{}, shown.Invariants[i].Findings...) // [], not null
		}
	}
	if err == nil || errors.Is(err, store.ErrNotFound) {
		var running conditions.Run
		if running, err = conditions.RunningRun(ctx, d.DB); err == nil {
			shown.RunningSince = endpoint.TimestampOrNull(running.StartedAt)
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, handlers.Internal(err)
	}
	return &shown, nil
}

type doctorStart struct {
	All bool `json:"all,omitempty" doc:"Check all rows; otherwise those of the last two hours and those that are open"`
}

type doctorStarted struct {
	Started bool `json:"started"`
}

func (d *Deps) runDoctor(ctx context.Context, principal *identity.Principal, in *struct{ Body doctorStart }) (*doctorStarted, error) {
	if d.StartDoctor == nil {
		return nil, handlers.InvalidRequest("", "Only a server runs the doctor in the background. Run `caddy svc doctor`.")
	}
	err := d.StartDoctor(ctx, principal.Actor(), in.Body.All)
	if errors.Is(err, conditions.ErrRunning) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "The doctor runs already. Read its result when it has ended.")
	}
	if err != nil {
		return nil, handlers.Internal(err)
	}
	return &doctorStarted{true}, nil
}
