package api

import (
	"context"
	"errors"
	"math/big"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operations on budgets.
var (
	ListBudgets = operation(operated("wallet:read", testKeys(members("listBudgets", "GET /wallet/budgets", identity.WalletRead,
		"List the open budgets of a wallet with what they have spent, oldest first, all on one page"))), (*Deps).listBudgets)
	CreateBudget = operation(operated("wallet:write", administrators("createBudget", "POST /wallet/budgets", identity.WalletWrite,
		"Limit what the organization, an API key or an agent spends in each period")), (*Deps).createBudget)
	GetBudget = operation(operated("wallet:read", members("getBudget", "GET /wallet/budgets/{id}", identity.WalletRead,
		"Get an open budget with its newest 100 rises")), (*Deps).getBudget)
	UpdateBudget = operation(operated("wallet:write", administrators("updateBudget", "PATCH /wallet/budgets/{id}", identity.WalletWrite,
		"Change a budget from the next call on")), (*Deps).updateBudget)
	EndBudget = operationOf(operated("wallet:write", administrators("endBudget", "DELETE /wallet/budgets/{id}", identity.WalletWrite,
		"End a budget from the next call on")), (*Deps).endBudget)
	RaiseBudget = operation(operated("wallet:write", administrators("raiseBudget", "POST /wallet/budgets/{id}/rises", identity.WalletWrite,
		"Raise the limit of a budget until a moment")), (*Deps).raiseBudget)
	EndBudgetRise = operationOf(operated("wallet:write", administrators("endBudgetRise", "DELETE /wallet/budgets/{id}/rises/{riseId}",
		identity.WalletWrite, "End a rise before its time")), (*Deps).endBudgetRise)
)

// BudgetObject is a budget with its present period. It is exported for huma, see [endpoint.PathID].
type BudgetObject struct {
	ID             string         `json:"id"`
	Name           string         `json:"name"`
	Environment    store.Env      `json:"environment"    enum:"live,test" doc:"Whose wallet it limits"`
	KeyID          *string        `json:"keyId"          doc:"The API key whose calls count; null: no key's alone"`
	AgentID        *string        `json:"agentId"        doc:"The agent whose answers count; null: no agent's alone. Without both, all calls count"`
	Period         billing.Period `json:"period"         enum:"day,week,month,total" doc:"Of the calendar in the organization's time zone; weeks begin on Monday"` //nolint:lll // a struct tag can't be broken
	LimitMicros    string         `json:"limitMicros"    doc:"In millionths of the currency unit"`
	RisenMicros    string         `json:"risenMicros"    doc:"The sum of the rises in effect, which add to limitMicros"`
	SpentMicros    string         `json:"spentMicros"    doc:"In the present period, without refunds"`
	ReservedMicros string         `json:"reservedMicros" doc:"For running calls and the next ones"`
	RoomMicros     string         `json:"roomMicros"     doc:"The rest; below 0 after the limit was lowered"`
	Thresholds     []int64        `json:"thresholds"     nullable:"false" doc:"Percentages of the limit that make the event budget.threshold_reached, each once in a period"` //nolint:lll // a struct tag can't be broken
	BeginsAt       string         `json:"beginsAt"       format:"date-time" doc:"The beginning of the present period, or of the budget"`
	EndsAt         *string        `json:"endsAt"         format:"date-time" doc:"The end of the present period; null: it has none"`
	FullAt         *string        `json:"fullAt"         format:"date-time" doc:"When it is spent at the pace of the present period; null: not before its end"` //nolint:lll // a struct tag can't be broken
	RefusedSince   *string        `json:"refusedSince"   format:"date-time" doc:"Since when calls are refused for it; null: none since it changed last"`        //nolint:lll // a struct tag can't be broken
	CreatedAt      string         `json:"createdAt"      format:"date-time"`
}

// BudgetRiseObject is a temporary rise of a budget's limit. It is exported for huma, see [endpoint.PathID].
type BudgetRiseObject struct {
	ID           string  `json:"id"`
	AmountMicros string  `json:"amountMicros"`
	EndsAt       string  `json:"endsAt"    format:"date-time"`
	InEffect     bool    `json:"inEffect"  doc:"It has not ended"`
	Reason       string  `json:"reason"`
	CreatedBy    *string `json:"createdBy" doc:"The id of the user or API key that made it, or operator"`
	CreatedAt    string  `json:"createdAt" format:"date-time"`
}

// BudgetDetail is a budget with its rises. It is exported for huma, see [endpoint.PathID].
type BudgetDetail struct {
	BudgetObject

	Rises []BudgetRiseObject `json:"rises" nullable:"false" doc:"Newest first, also those that have ended"`
}

func (d *Deps) showBudget(b *billing.BudgetState) BudgetObject {
	shown := BudgetObject{
		ID: b.ID, Name: b.Name, Environment: b.Wallet.Env, Period: b.Period, LimitMicros: billing.FormatMicros(b.LimitMicros),
		RisenMicros: billing.FormatMicros(b.RisenMicros), SpentMicros: billing.FormatMicros(b.SpentMicros),
		ReservedMicros: billing.FormatMicros(b.ReservedMicros), Thresholds: append([]int64{}, b.Thresholds...),
		RoomMicros: billing.FormatMicros(b.LimitMicros + b.RisenMicros - b.SpentMicros - b.ReservedMicros),
		BeginsAt:   endpoint.Timestamp(b.BeginsAt), EndsAt: endpoint.TimestampOrNull(b.EndsAt), FullAt: fullAt(b, d.Now().UnixMilli()),
		RefusedSince: endpoint.TimestampOrNull(b.RefusedAt), CreatedAt: endpoint.Timestamp(b.CreatedAt),
	}
	switch b.Owner {
	case billing.OwnerAPIKey:
		shown.KeyID = &b.OwnerID
	case billing.OwnerAssistant:
		shown.AgentID = &b.OwnerID
	case billing.OwnerOrganization:
	}
	return shown
}

// fullAt returns when a budget is spent if calls cost as much as they have since the period began. It is nil if that is not in the period.
func fullAt(b *billing.BudgetState, now int64) *string {
	limit := b.LimitMicros + b.RisenMicros
	if b.SpentMicros <= 0 || b.SpentMicros >= limit || now <= b.BeginsAt {
		return nil
	}
	at := new(big.Int).Mul(big.NewInt(limit), big.NewInt(now-b.BeginsAt))
	at.Add(at.Div(at, big.NewInt(b.SpentMicros)), big.NewInt(b.BeginsAt))
	if !at.IsInt64() || at.Int64() > now+maxOutlook.Milliseconds() || b.EndsAt > 0 && at.Int64() >= b.EndsAt {
		return nil
	}
	return endpoint.TimestampOrNull(at.Int64())
}

// maxOutlook is how far ahead the time is said at which a budget without an end is spent.
const maxOutlook = 366 * 24 * time.Hour

func (d *Deps) listBudgets(ctx context.Context, principal *identity.Principal, in *struct{ WalletQuery }) (*pageOf[BudgetObject], error) {
	wallet, err := in.wallet(principal)
	if err != nil {
		return nil, err
	}
	budgets, err := d.Book.Budgets(ctx, wallet)
	return onePage(budgets, d.showBudget), err
}

func (d *Deps) getBudget(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*BudgetDetail, error) {
	budget, err := d.Book.Budget(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedBudgets, in.ID, err)
	}
	rises, err := d.Book.BudgetRises(ctx, principal.OrgID, in.ID)
	return &BudgetDetail{d.showBudget(&budget), showAll(rises, d.showRise)}, err
}

func (d *Deps) showRise(r *billing.BudgetRise) BudgetRiseObject {
	return BudgetRiseObject{
		ID: r.ID, AmountMicros: billing.FormatMicros(r.AmountMicros), EndsAt: endpoint.Timestamp(r.EndsAt), InEffect: r.EndsAt > d.Now().UnixMilli(),
		Reason: r.Reason, CreatedBy: endpoint.OrNull(shownActor(r.CreatedBy)), CreatedAt: endpoint.Timestamp(r.CreatedAt),
	}
}

type budgetCreation struct {
	Name        string         `json:"name"                  minLength:"1" maxLength:"100" doc:"The message to refused calls has it"`
	Environment *store.Env     `json:"environment,omitempty" enum:"live,test" doc:"Whose wallet; live when absent"`
	KeyID       string         `json:"keyId,omitempty"       maxLength:"100" doc:"Only calls with this API key count"`
	AgentID     string         `json:"agentId,omitempty"     maxLength:"100" doc:"Only answers of this agent count. Without keyId and agentId, all calls count"`                        //nolint:lll // a struct tag can't be broken
	Period      billing.Period `json:"period"                enum:"day,week,month,total" doc:"The limit holds in each day, week or month of the organization's time zone, or in total"` //nolint:lll // a struct tag can't be broken
	LimitMicros string         `json:"limitMicros"           maxLength:"20" doc:"In millionths of the currency unit, above 0"`
	Thresholds  []int64        `json:"thresholds,omitempty"  maxItems:"10" doc:"Percentages of the limit that make an event, rising; 50, 80 and 100 when absent"` //nolint:lll // a struct tag can't be broken
}

// positive returns an amount above 0 of a body.
func positive(field, text string) (int64, error) {
	micros, err := billing.ParseMicros(text)
	if err != nil || micros <= 0 {
		return 0, handlers.InvalidRequest(field, "%s must be a whole number of micros above 0 that fits 64 bits, in plain decimal digits.", field)
	}
	return micros, nil
}

func (d *Deps) createBudget(ctx context.Context, principal *identity.Principal, in *struct{ Body budgetCreation }) (*BudgetDetail, error) {
	budget := billing.Budget{
		Wallet: billing.WalletID{OrgID: principal.OrgID, Env: store.Live}, Owner: billing.OwnerOrganization, Name: in.Body.Name,
		Period: in.Body.Period, Thresholds: in.Body.Thresholds,
	}
	set(&budget.Wallet.Env, in.Body.Environment)
	field, kind := "", store.OwnedKind("")
	switch {
	case in.Body.KeyID != "" && in.Body.AgentID != "":
		return nil, handlers.InvalidRequest("agentId", "agentId can't be given beside keyId.")
	case in.Body.KeyID != "":
		budget.Owner, budget.OwnerID, field, kind = billing.OwnerAPIKey, in.Body.KeyID, "keyId", store.OwnedAPIKeys
	case in.Body.AgentID != "":
		budget.Owner, budget.OwnerID, field, kind = billing.OwnerAssistant, in.Body.AgentID, "agentId", store.OwnedAgents
	}
	var err error
	if budget.LimitMicros, err = positive("limitMicros", in.Body.LimitMicros); err != nil {
		return nil, err
	}
	if field != "" && !handlers.WellFormedID(budget.OwnerID) {
		return nil, handlers.InvalidRequest(field, "%s is no id.", field)
	}
	made, err := d.Book.CreateBudget(ctx, principal.Actor(), budget)
	switch {
	case errors.Is(err, store.ErrNotFound):
		refused := handlers.AsError(d.missing(ctx, principal, kind, budget.OwnerID))
		if refused.Code == errcode.NotFound {
			refused = handlers.InvalidRequest(field, "There is no %s in use with this id in the environment %s.", singular(kind), budget.Wallet.Env)
		}
		refused.Field = field
		return nil, refused
	case errors.Is(err, store.ErrLimit):
		return nil, noRoom(billing.MaxBudgets, "open budgets", err)
	case err != nil:
		return nil, d.refuseBudget(ctx, principal, "", "limitMicros", err)
	}
	return d.getBudget(ctx, principal, &endpoint.PathID{ID: made.ID})
}

// refuseBudget returns the public form of an error of a change of a budget, or of a rise. amount is the field with its amount.
func (d *Deps) refuseBudget(ctx context.Context, principal *identity.Principal, id, amount string, err error) error {
	if fault, ok := errors.AsType[*billing.FieldError](err); ok {
		return handlers.InvalidRequest(fault.Field, "%s.", fault)
	}
	switch {
	case errors.Is(err, billing.ErrOverflow):
		return handlers.InvalidRequest(amount, "%s is too large: the limit with its rises must fit 64 bits.", amount)
	case errors.Is(err, billing.ErrRiseEnded):
		return handlers.InvalidRequest("endsAt", "endsAt must be in the future.")
	case errors.Is(err, billing.ErrBudgetExists):
		return &handlers.Error{
			Code: errcode.Conflict, Field: "period", Message: "These calls have a budget of this period already. Change that one.", Cause: err,
		}
	}
	return d.refuse(ctx, principal, store.OwnedBudgets, id, err)
}

type budgetChange struct {
	Name        *string  `json:"name,omitempty"        minLength:"1" maxLength:"100"`
	LimitMicros *string  `json:"limitMicros,omitempty" maxLength:"20" doc:"In millionths of the currency unit, above 0. Below what is spent, the next call is refused"` //nolint:lll // a struct tag can't be broken
	Thresholds  *[]int64 `json:"thresholds,omitempty"  maxItems:"10" doc:"Percentages of the limit that make an event, rising; empty: none"`
}

// changeBudget runs a change of a budget. It refuses the API key whose calls the budget counts, because the key would then have no limit. amount
// is the field with an amount.
func (d *Deps) changeBudget(ctx context.Context, principal *identity.Principal, id, amount string, change func() error) error {
	if principal.KeyID != "" {
		if budget, err := d.Book.Budget(ctx, principal.OrgID, id); err == nil && budget.OwnerID == principal.KeyID {
			return endpoint.Refusal(errcode.Forbidden, nil, "An API key can't change its own budget.")
		}
	}
	if err := change(); err != nil {
		return d.refuseBudget(ctx, principal, id, amount, err)
	}
	return nil
}

func (d *Deps) updateBudget(ctx context.Context, principal *identity.Principal, in *idAndBody[budgetChange]) (*BudgetDetail, error) {
	change := billing.BudgetChange{Name: in.Body.Name}
	if in.Body.LimitMicros != nil {
		limit, err := positive("limitMicros", *in.Body.LimitMicros)
		if err != nil {
			return nil, err
		}
		change.LimitMicros = &limit
	}
	if in.Body.Thresholds != nil {
		change.Thresholds = append([]int64{}, *in.Body.Thresholds...)
	}
	err := d.changeBudget(ctx, principal, in.ID, "limitMicros", func() error {
		_, err := d.Book.ChangeBudget(ctx, principal.Actor(), principal.OrgID, in.ID, change)
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.getBudget(ctx, principal, &in.PathID)
}

func (d *Deps) endBudget(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.changeBudget(ctx, principal, in.ID, "", func() error {
		return d.Book.EndBudget(ctx, principal.Actor(), principal.OrgID, in.ID)
	})
}

type budgetRaise struct {
	AmountMicros string `json:"amountMicros" maxLength:"20" doc:"Adds to the limit; in millionths of the currency unit, above 0"`
	EndsAt       string `json:"endsAt"       maxLength:"40" doc:"A time in the future, as 2027-01-31T12:00:00Z"`
	Reason       string `json:"reason"       minLength:"1" maxLength:"500"`
}

func (d *Deps) raiseBudget(ctx context.Context, principal *identity.Principal, in *idAndBody[budgetRaise]) (*BudgetRiseObject, error) {
	amount, err := positive("amountMicros", in.Body.AmountMicros)
	if err != nil {
		return nil, err
	}
	endsAt, err := identity.ExpiryAt(in.Body.EndsAt)
	if err != nil {
		return nil, handlers.InvalidRequest("endsAt", "endsAt must be a time such as 2027-01-31T12:00:00Z.")
	}
	rise := billing.BudgetRise{AmountMicros: amount, EndsAt: endsAt.UnixMilli(), Reason: in.Body.Reason}
	err = d.changeBudget(ctx, principal, in.ID, "amountMicros", func() (err error) {
		rise, err = d.Book.RaiseBudget(ctx, principal.Actor(), principal.OrgID, in.ID, rise)
		return err
	})
	return new(d.showRise(&rise)), err
}

type pathRise struct {
	endpoint.PathID

	RiseID string `path:"riseId"`
}

func (d *Deps) endBudgetRise(ctx context.Context, principal *identity.Principal, in *pathRise) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, d.changeBudget(ctx, principal, in.ID, "", func() error {
		if !handlers.WellFormedID(in.RiseID) {
			return store.ErrNotFound
		}
		return d.Book.EndBudgetRise(ctx, principal.Actor(), principal.OrgID, in.ID, in.RiseID)
	})
}
