package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operator's operations on the service as a whole. Neither they nor the other operations of the operator have a route of the organization API.
var (
	CreateOrganization = operationOf(service("createOrganization", "POST /organizations", "organizations:write",
		"Create an organization"), (*Deps).createOrganization)
	ListOrganizations = operation(service("listOrganizations", "GET /organizations", "organizations:read",
		"List or search the organizations, oldest first"), (*Deps).listOrganizations)
	ListActions = operation(service("listActions", "GET /audit-log", "audit_log:read",
		"List who changed what in the service, newest first"), (*Deps).listActions)
	ListDeadTurns = operation(service("listDeadTurns", "GET /turns", "queue:read",
		"List the turns that were given up, the longest ago first, all on one page"), (*Deps).listDeadTurns)
	RetryTurn = operation(acting(service("retryTurn", "POST /turns/{id}/retry", "queue:write",
		"Let a turn that was given up run again")), (*Deps).retryTurn)
)

// The operator's operations on one organization.
var (
	SuspendOrganization = operation(acting(operators("suspendOrganization", "POST /suspend", "organizations:write",
		"Suspend an organization: every call gets 402 organization_suspended from the next request on")), (*Deps).suspendOrganization)
	ResumeOrganization = operation(acting(operators("resumeOrganization", "POST /resume", "organizations:write",
		"End the suspension of an organization")), (*Deps).resumeOrganization)
	SetPlan     = operation(operators("setPlan", "PUT /plan", "organizations:write", "Move an organization to another plan"), (*Deps).setPlan)
	SetTimeZone = operation(operators("setTimeZone", "PUT /time-zone", "organizations:write",
		"Set the zone in which an organization's days and months begin"), (*Deps).setTimeZone)
	EnableModel = operation(acting(operators("enableModel", "POST /models/enable", "models:write",
		"Enable a model for an organization")), settingModel(true))
	DisableModel = operation(acting(operators("disableModel", "POST /models/disable", "models:write",
		"Disable a model for an organization: it leaves its list, and calls get 400 unsupported_model")), settingModel(false))
	CreditWallet = operation(operators("creditWallet", "POST /wallet/credits", "wallet:write",
		"Credit a wallet with a payment, once for each reference"), (*Deps).creditWallet)
	AdjustWallet = operation(operators("adjustWallet", "POST /wallet/adjustments", "wallet:write",
		"Correct a wallet up or down, never below what is held, once for each reference"), (*Deps).adjustWallet)
	RefundCall = operation(operators("refundCall", "POST /calls/{id}/refund", "wallet:write",
		"Give back what a model call was charged, once"), (*Deps).refundCall)
	ConnectChannel = operation(operators("connectChannel", "POST /channels", "channels:write",
		"Connect a channel, which is active immediately"), (*Deps).connectChannel)
	ApproveChannel = operation(acting(operators("approveChannel", "POST /channels/{id}/approve", "channels:write",
		"Confirm that a pending channel's organization has the page, account, number or shop it names")), (*Deps).approveChannel)
	ListAttention = operation(operators("listAttention", "GET /conversations", "queue:read",
		"List the conversations that need a person, without the customers' names and texts"), (*Deps).listAttention)
)

// The roles of the operator, which no person of an organization has. The role is roleService if an operation concerns no organization.
const (
	roleOperator handlers.Role = "operator"
	roleService  handlers.Role = "service"
)

// operators describes an operation on an organization for operators with the scope. No key and no person of an organization may use it.
func operators(id, route string, scope identity.OperatorScope, summary string) endpoint.Operation {
	return described(id, route, handlers.Route{OperatorScope: scope, Role: roleOperator, Summary: summary})
}

// service is operators for an operation on the whole service.
func service(id, route string, scope identity.OperatorScope, summary string) endpoint.Operation {
	return described(id, route, handlers.Route{OperatorScope: scope, Role: roleService, Summary: summary})
}

// OfService reports whether an operation concerns the whole service. Its principal is [Deps.Operator] without an organization.
func OfService(o Operation) bool { return o.Spec().Role == roleService }

// customerObject is an organization in the operator's view.
type customerObject struct {
	OrganizationObject

	ExternalID       *string `json:"externalId" doc:"Your own id of it"`
	SuspendedAt      *string `json:"suspendedAt" format:"date-time" doc:"null: it is not suspended"`
	SuspensionReason *string `json:"suspensionReason" doc:"Its people read it"`
}

func showCustomer(o *store.Organization) customerObject {
	return customerObject{
		showOrganization(o), endpoint.OrNull(o.ExternalID), endpoint.TimestampOrNull(o.SuspendedAt.Int64),
		endpoint.OrNull(o.SuspensionReason),
	}
}

type organizationCreation struct {
	Name       string `json:"name" minLength:"1" maxLength:"100" doc:"Unique in the service"`
	Plan       string `json:"plan,omitempty" doc:"A plan of the configuration; the first one when absent"`
	ExternalID string `json:"externalId,omitempty" maxLength:"100" doc:"Your own id of it, unique. With the same name and plan again nothing is made, with others it is refused"` //nolint:lll // a struct tag can't be broken
}

func (d *Deps) createOrganization(
	ctx context.Context, principal *identity.Principal, in *struct{ Body organizationCreation },
) (*endpoint.Made[customerObject], error) {
	plan := in.Body.Plan
	if plan == "" {
		plan = d.Plans.DefaultPlan()
	} else if err := d.checkPlan(plan); err != nil {
		return nil, err
	}
	organization, err := identity.CreateOrganization(ctx, d.DB, principal.Actor(), in.Body.Name, plan, in.Body.ExternalID)
	if errors.Is(err, store.ErrConflict) {
		return d.createdBefore(ctx, in.Body, err)
	}
	return &endpoint.Made[customerObject]{Status: http.StatusCreated, Body: showCustomer(&organization)}, err
}

// createdBefore returns the organization with the external id if it was created with the same name and plan.
func (d *Deps) createdBefore(ctx context.Context, creation organizationCreation, conflict error) (*endpoint.Made[customerObject], error) {
	message := "There is an organization with this name already."
	if creation.ExternalID != "" {
		o, err := d.DB.Organizations.ByExternalID(ctx, strings.TrimSpace(creation.ExternalID))
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return nil, handlers.Internal(fmt.Errorf("reading an organization: %w", err))
		case o.Name == strings.TrimSpace(creation.Name) && (creation.Plan == "" || creation.Plan == o.FirstPlan):
			return &endpoint.Made[customerObject]{Status: http.StatusOK, Body: showCustomer(&o)}, nil
		default:
			message = fmt.Sprintf("The organization %s was created with this externalId, and with another name or plan.", o.ID)
		}
	}
	return nil, &handlers.Error{Code: errcode.Conflict, Message: message, Cause: conflict}
}

func (d *Deps) checkPlan(plan string) error {
	if slices.Contains(d.Plans.PlanNames(), plan) {
		return nil
	}
	return handlers.InvalidRequest("plan", "There is no plan with this name. The configuration has: %s.", strings.Join(d.Plans.PlanNames(), ", "))
}

type organizationsQuery struct {
	endpoint.PageQuery

	ExternalID string `query:"externalId" maxLength:"100"   doc:"Only the organization with this id of yours"`
	Q          string `query:"q"          maxLength:"100"   doc:"The beginning of the name, in any case and with or without marks, or an id"`
	Plan       string `query:"plan"       maxLength:"100"   doc:"Only organizations on this plan"`
	Suspended  string `query:"suspended"  enum:"true,false" doc:"Only suspended organizations, or only the others"`

	CreatedSince string `query:"createdSince" maxLength:"40" doc:"Only organizations created since this time, as 2027-01-31T12:00:00Z"`
}

func (d *Deps) listOrganizations(ctx context.Context, principal *identity.Principal, in *organizationsQuery) (*pageOf[customerObject], error) {
	filter := store.OrganizationFilter{Text: in.Q, ExternalID: in.ExternalID, Plan: in.Plan}
	if in.Suspended != "" {
		filter.Suspended = new(in.Suspended == "true")
	}
	if in.CreatedSince != "" {
		since, err := time.Parse(time.RFC3339, in.CreatedSince)
		if err != nil {
			return nil, handlers.InvalidRequest("createdSince", "createdSince must be a time such as 2027-01-31T12:00:00Z.")
		}
		filter.CreatedSince = since.UnixMilli()
	}
	search := func(ctx context.Context, _ string, page store.Page) ([]store.Organization, error) {
		return d.DB.Organizations.Search(ctx, filter, page)
	}
	return listRows(ctx, principal, in.PageQuery, search, func(row *store.Organization) string { return row.ID }, showCustomer)
}

type suspension struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; the people of the organization read it"`
}

func (d *Deps) suspendOrganization(ctx context.Context, principal *identity.Principal, in *struct{ Body suspension }) (*customerObject, error) {
	return d.changed(ctx, principal, d.DB.Organizations.SetSuspended(ctx, principal.Actor(), principal.OrgID, true, in.Body.Reason))
}

type resumption struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the audit log"`
}

func (d *Deps) resumeOrganization(ctx context.Context, principal *identity.Principal, in *struct{ Body resumption }) (*customerObject, error) {
	return d.changed(ctx, principal, d.DB.Organizations.SetSuspended(ctx, principal.Actor(), principal.OrgID, false, in.Body.Reason))
}

type planChange struct {
	Plan string `json:"plan" doc:"A plan of the configuration"`
}

func (d *Deps) setPlan(ctx context.Context, principal *identity.Principal, in *struct{ Body planChange }) (*customerObject, error) {
	if err := d.checkPlan(in.Body.Plan); err != nil {
		return nil, err
	}
	return d.changed(ctx, principal, d.DB.Organizations.SetPlan(ctx, principal.Actor(), principal.OrgID, in.Body.Plan))
}

type timeZoneChange struct {
	TimeZone string `json:"timeZone" minLength:"1" maxLength:"64" doc:"An IANA name, like Asia/Ho_Chi_Minh"`
}

func (d *Deps) setTimeZone(ctx context.Context, principal *identity.Principal, in *struct{ Body timeZoneChange }) (*customerObject, error) {
	if err := d.storeTimeZone(ctx, principal, in.Body.TimeZone); err != nil {
		return nil, err
	}
	return d.readOrganization(ctx, principal, nil)
}

// changed returns the organization after a change that ended with err.
func (d *Deps) changed(ctx context.Context, principal *identity.Principal, err error) (*customerObject, error) {
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("changing an organization: %w", err))
	}
	organization, err := d.DB.Organizations.ByID(ctx, principal.OrgID)
	return new(showCustomer(&organization)), err
}

type modelChoice struct {
	Model string `json:"model" doc:"A model of the configuration, PROVIDER/MODEL"`
}

type modelState struct {
	Model   string `json:"model"`
	Enabled bool   `json:"enabled"`
}

// settingModel returns the method of an operation that enables or disables a model.
func settingModel(enabled bool) func(*Deps, context.Context, *identity.Principal, *struct{ Body modelChoice }) (*modelState, error) {
	return func(d *Deps, ctx context.Context, principal *identity.Principal, in *struct{ Body modelChoice }) (*modelState, error) {
		if _, configured := d.Models.Model(in.Body.Model); !configured {
			ids := strings.Join(showAll(d.Models.Models(), func(m *gateway.Model) string { return m.ID }), ", ")
			return nil, handlers.InvalidRequest("model", "There is no model with this id. The configuration has: %s.", ids)
		}
		if err := d.DB.Organizations.SetModel(ctx, principal.Actor(), principal.OrgID, in.Body.Model, enabled); err != nil {
			return nil, handlers.Internal(fmt.Errorf("setting a model: %w", err))
		}
		return &modelState{in.Body.Model, enabled}, nil
	}
}

// actionObject is an entry of the audit log in the operator's view.
type actionObject struct {
	AuditObject

	OrgID *string `json:"orgId" doc:"null: it concerns no organization"`
}

type actionsQuery struct {
	endpoint.PageQuery

	OrgID string `query:"orgId" doc:"Only what concerns this organization"`
}

func (d *Deps) listActions(ctx context.Context, principal *identity.Principal, in *actionsQuery) (*pageOf[actionObject], error) {
	if in.OrgID != "" {
		if _, err := d.Operator(ctx, *principal, in.OrgID); err != nil {
			return nil, err
		}
	}
	concerned := identity.Principal{OrgID: in.OrgID}
	return listRows(ctx, &concerned, in.PageQuery, d.DB.AuditLog.List, func(row *store.AuditEntry) string { return row.ID },
		func(row *store.AuditEntry) actionObject {
			action := actionObject{showAudit(row), endpoint.OrNull(row.OrgID)}
			action.Actor = row.Actor
			return action
		})
}

// WalletPosting are the members that credits and adjustments share. It is exported for huma, see [endpoint.PathID].
type WalletPosting struct {
	Environment  *store.Env `json:"environment,omitempty" enum:"live,test" doc:"Whose wallet; live when absent"`
	AmountMicros string     `json:"amountMicros" maxLength:"20" doc:"In millionths of the currency unit; an adjustment below 0 takes"`
	Reference    string     `json:"reference" minLength:"1" maxLength:"500" doc:"Of the payment, or of the reason. With the same amount again nothing changes, with another one it is refused"` //nolint:lll // a struct tag can't be broken
}

// posting returns the wallet and the amount.
func (c *WalletPosting) posting(principal *identity.Principal) (wallet billing.WalletID, micros int64, err error) {
	wallet = billing.WalletID{OrgID: principal.OrgID, Env: store.Live}
	set(&wallet.Env, c.Environment)
	if micros, err = billing.ParseMicros(c.AmountMicros); err != nil {
		err = handlers.InvalidRequest("amountMicros", "amountMicros must be a whole number of micros that fits 64 bits, in plain decimal digits.")
	}
	return wallet, micros, err
}

type walletAdjustment struct {
	WalletPosting

	Reason   string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; the customer can read it"`
	Corrects string `json:"corrects,omitempty" maxLength:"64" pattern:"^[a-z0-9_]+$" doc:"The id of the transaction that it corrects. All corrections of it together can't be larger than its amount"` //nolint:lll // a struct tag can't be broken
}

// postedObject is a transaction that the operator has posted.
type postedObject struct {
	TransactionObject

	Environment store.Env `json:"environment" enum:"live,test"`
	Replayed    bool      `json:"replayed" doc:"It was posted before, and nothing was changed now"`
}

func (d *Deps) creditWallet(ctx context.Context, principal *identity.Principal, in *struct{ Body WalletPosting }) (*postedObject, error) {
	wallet, micros, err := in.Body.posting(principal)
	if err != nil {
		return nil, err
	}
	entry, err := d.Book.Credit(ctx, principal.Actor(), wallet, micros, in.Body.Reference)
	return d.posted(ctx, entry, err)
}

func (d *Deps) adjustWallet(ctx context.Context, principal *identity.Principal, in *struct{ Body walletAdjustment }) (*postedObject, error) {
	wallet, micros, err := in.Body.posting(principal)
	if err != nil {
		return nil, err
	}
	entry, err := d.Book.Adjust(ctx, principal.Actor(), wallet, micros, in.Body.Reason, in.Body.Reference, in.Body.Corrects)
	entry.Wallet = wallet // of a refused one, too
	return d.posted(ctx, entry, err)
}

// callRefund is the body of a refund.
type callRefund struct {
	Reference string `json:"reference,omitempty" maxLength:"500" doc:"A note of your own, such as a ticket"`
}

func (d *Deps) refundCall(ctx context.Context, principal *identity.Principal, in *idAndBody[callRefund]) (*postedObject, error) {
	owner, err := d.DB.OwnerOf(ctx, store.OwnedCalls, in.ID)
	if err != nil || owner != principal.OrgID {
		return nil, d.missing(ctx, principal, store.OwnedCalls, in.ID)
	}
	entry, err := d.Book.Refund(ctx, principal.Actor(), in.ID, in.Body.Reference)
	return d.posted(ctx, entry, err)
}

// posted returns the answer to a posting, or the public form of its error.
func (d *Deps) posted(ctx context.Context, entry billing.Entry, err error) (*postedObject, error) {
	switch {
	case err == nil:
		return &postedObject{showTransaction(&entry), entry.Wallet.Env, entry.Replayed}, nil
	case errors.Is(err, billing.ErrInvalid):
		_, why, _ := strings.Cut(err.Error(), ": ")
		return nil, handlers.InvalidRequest("", "This is not possible: %s.", why)
	case errors.Is(err, billing.ErrNotPosted):
		return nil, handlers.InvalidRequest("corrects", "The wallet has no transaction with this id.")
	case errors.Is(err, billing.ErrOverflow):
		return nil, handlers.InvalidRequest("amountMicros", "amountMicros is out of range: the balance must fit 64 bits.")
	case errors.Is(err, billing.ErrRefReused), errors.Is(err, billing.ErrNothingToRefund), errors.Is(err, billing.ErrCorrected):
		return nil, endpoint.Refusal(errcode.Conflict, err, "%s.", err)
	case errors.Is(err, billing.ErrCreditsInTranches):
		return nil, endpoint.Refusal(errcode.InsufficientCredits, err,
			"Another process holds credits that it doesn't use. Try again in 10 s.")
	case errors.Is(err, billing.ErrInsufficientCredits):
		wallet, readErr := d.Book.Wallet(ctx, entry.Wallet)
		if readErr != nil {
			return nil, handlers.Internal(fmt.Errorf("reading the wallet: %w", readErr))
		}
		return nil, endpoint.Refusal(errcode.InsufficientCredits, err,
			"The free balance is too small: of the balance of %d micros, %d are held and %d are free.",
			wallet.BalanceMicros, wallet.HeldMicros, wallet.BalanceMicros-wallet.HeldMicros)
	default:
		return nil, handlers.Internal(fmt.Errorf("changing a wallet: %w", err))
	}
}

// connectChannel creates an active channel, because the operator vouches that the external id is the organization's. A pending channel of
// another organization loses the external id. The plan's number of channels doesn't bind the operator.
func (d *Deps) connectChannel(ctx context.Context, principal *identity.Principal, in *struct{ Body channelCreation }) (*ChannelObject, error) {
	channel, credentials, err := in.Body.channel(d.Catalog, principal.OrgID)
	if err != nil {
		return nil, err
	}
	if err := d.checkAgent(ctx, principal, channel.AgentID); err != nil {
		return nil, err
	}
	channel.State = store.ChannelActive
	if in.Body.Credentials != nil {
		channel.Credentials = d.sealCredentials(&channel, credentials)
	}
	err = d.DB.Channels.TakeOver(ctx, principal.Actor(), store.OperatorConfirmed, channel, 0)
	if errors.Is(err, store.ErrConflict) {
		return nil, d.channelConflict(ctx, &channel, err)
	}
	if err != nil {
		return nil, channelRefusal(err, handlers.Internal(fmt.Errorf("connecting a channel: %w", err)))
	}
	return d.getChannel(ctx, principal, &endpoint.PathID{ID: channel.ID})
}

// channelConflict returns the error for a new channel that collides with another. Only the operator may learn which organization has an external id.
func (d *Deps) channelConflict(ctx context.Context, channel *store.Channel, conflict error) error {
	key := store.RouteKey{Type: channel.Type, ExternalID: channel.ExternalID}
	taken, err := d.DB.Routes.ByKeys(ctx, []store.RouteKey{key})
	if err != nil {
		return handlers.Internal(fmt.Errorf("looking for the channel with this external id: %w", err))
	}
	message := "The organization has a channel with this name already."
	if holder, found := taken[key]; found && holder.State != store.ChannelPending {
		message = fmt.Sprintf("Channel %s of organization %s (%s) has this external id. If it isn't theirs, delete that channel.",
			holder.ChannelID, holder.OrgID, holder.State)
	} else if found && holder.OrgID == channel.OrgID {
		message = fmt.Sprintf("The organization's own channel %s claims this external id. Approve that channel.", holder.ChannelID)
	}
	return &handlers.Error{Code: errcode.Conflict, Message: message, Cause: conflict}
}

func (d *Deps) approveChannel(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*ChannelObject, error) {
	channel, err := d.DB.Channels.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	if channel.State == store.ChannelNeedsReauth {
		return nil, endpoint.Refusal(errcode.Conflict, nil, "The channel needs new credentials, which no approval replaces.")
	}
	if channel.LostExternalID != "" {
		return nil, endpoint.Refusal(errcode.Conflict, nil,
			"The channel lost the external id %s, which was confirmed for another organization. Delete the channel.", channel.LostExternalID)
	}
	if err := d.DB.Channels.SetState(ctx, principal.Actor(), principal.OrgID, in.ID, store.ChannelActive); err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedChannels, in.ID, err)
	}
	return d.getChannel(ctx, principal, in)
}
