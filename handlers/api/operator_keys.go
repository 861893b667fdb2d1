package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The operations on the keys of operators, and, for the command line alone, on their accounts.
var (
	CreateOperatorKey = operation(service("createOperatorKey", "POST /operator-keys", "operator_keys:write",
		"Create an operator key, which is shown this once"), (*Deps).createOperatorKey)
	ListOperatorKeys = operation(service("listOperatorKeys", "GET /operator-keys", "operator_keys:read",
		"List the operator keys, revoked ones too, oldest first"), (*Deps).listOperatorKeys)
	RevokeOperatorKey = operationOf(service("revokeOperatorKey", "DELETE /operator-keys/{id}", "operator_keys:write",
		"Revoke an operator key permanently, from the next request on"), (*Deps).revokeOperatorKey)

	AddOperator = operation(service("addOperator", "POST /operators", "",
		"Add an operator; the answer has a one-time link to set the password"), (*Deps).addOperator)
	ListOperators = operation(service("listOperators", "GET /operators", "operator_keys:read",
		"List the operators, oldest first"), (*Deps).listOperators)
	UpdateOperator = operation(service("updateOperator", "PATCH /operators/{id}", "",
		"Change an operator's role, or disable the operator, whose sessions end"), (*Deps).updateOperator)
	RemoveOperator = operationOf(service("removeOperator", "DELETE /operators/{id}", "",
		"Remove an operator, whose sessions end"), (*Deps).removeOperator)
	LinkOperator = operation(service("linkOperator", "POST /operators/{id}/link", "",
		"Make a new one-time link for an operator who lost the last one, or the password"), (*Deps).linkOperator)
	ResetOperatorSecondFactor = operationOf(service("resetOperatorSecondFactor", "DELETE /operators/{id}/second-factor", "",
		"Remove the second factor of an operator who lost it; the next sign-in sets up another"), (*Deps).resetOperatorSecondFactor)
)

// OperatorKeyObject is an operator key without its secret, which the store doesn't have. It is exported for huma, see [endpoint.PathID].
type OperatorKeyObject struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"    nullable:"false"`
	Hint      string   `json:"hint"      doc:"The key's first characters"`
	CreatedBy string   `json:"createdBy" doc:"The actor in the audit log that made it"`
	CreatedAt string   `json:"createdAt" format:"date-time"`
	ExpiresAt *string  `json:"expiresAt" format:"date-time" doc:"null: never"`
	RevokedAt *string  `json:"revokedAt" format:"date-time" doc:"null: it isn't revoked"`
	UsedAt    *string  `json:"usedAt"    format:"date-time" doc:"Its last use, to a minute; null: it was never used"`
}

func showOperatorKey(key *store.OperatorKey) OperatorKeyObject {
	return OperatorKeyObject{
		ID: key.ID, Name: key.Name, Scopes: key.Scopes, Hint: key.Hint, CreatedBy: key.CreatedBy, CreatedAt: endpoint.Timestamp(key.CreatedAt),
		ExpiresAt: endpoint.TimestampOrNull(key.ExpiresAt.Int64), RevokedAt: endpoint.TimestampOrNull(key.RevokedAt.Int64),
		UsedAt: endpoint.TimestampOrNull(key.UsedAt.Int64),
	}
}

type issuedOperatorKey struct {
	OperatorKeyObject

	Key string `json:"key" doc:"The raw key. It is not stored and can't be shown again"`
}

type operatorKeyCreation struct {
	Name          string   `json:"name"                    minLength:"1" maxLength:"100" doc:"Unique among the keys in use; the audit log has it"`
	Scopes        []string `json:"scopes"                  minItems:"1" maxItems:"100" nullable:"false" doc:"At most yours, such as usage:read"`
	ExpiresInDays *int64   `json:"expiresInDays,omitempty" minimum:"1" maximum:"3650" doc:"Absent: never, or with the operator key that makes it"`
	ExpiresAt     *string  `json:"expiresAt,omitempty"     maxLength:"40" doc:"Instead of expiresInDays: a time as 2027-01-31T12:00:00Z"`
}

func (d *Deps) createOperatorKey(
	ctx context.Context, principal *identity.Principal, in *struct{ Body operatorKeyCreation },
) (*issuedOperatorKey, error) {
	expiry := apiKeyCreation{ExpiresInDays: in.Body.ExpiresInDays, ExpiresAt: in.Body.ExpiresAt}
	expiresAt, err := expiry.expiry(d.Now())
	if err != nil {
		return nil, err
	}
	request := identity.OperatorKeyRequest{Name: in.Body.Name, Scopes: in.Body.Scopes, ExpiresAt: expiresAt}
	key, raw, err := identity.NewOperatorKeys(d.DB).Create(ctx, *principal, request)
	switch {
	case errors.Is(err, store.ErrConflict):
		return nil, endpoint.Refusal(errcode.Conflict, err, "There is an operator key with this name already.")
	case errors.Is(err, store.ErrLimit):
		return nil, endpoint.Refusal(errcode.Conflict, err,
			"There are %d operator keys, the most there may be. Revoke one.", store.MaxOperatorKeys)
	case errors.Is(err, store.ErrOutlives):
		return nil, handlers.InvalidRequest("expiresInDays", "An operator key can't make a key that is valid longer than itself.")
	}
	return &issuedOperatorKey{showOperatorKey(&key), raw}, err
}

func (d *Deps) listOperatorKeys(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[OperatorKeyObject], error) {
	return listRows(ctx, principal, in.PageQuery, func(ctx context.Context, _ string, page store.Page) ([]store.OperatorKey, error) {
		return d.DB.OperatorKeys.List(ctx, page)
	}, func(row *store.OperatorKey) string { return row.ID }, showOperatorKey)
}

func (d *Deps) revokeOperatorKey(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	err := d.DB.OperatorKeys.Revoke(ctx, principal.Operator, in.ID)
	return &endpoint.Empty{}, unlessMissing(err, "There is no operator key with this id.")
}

// OperatorObject is an operator. It is exported for huma, see [endpoint.PathID].
type OperatorObject struct {
	ID           string `json:"id"`
	Email        string `json:"email"`
	Role         string `json:"role"         enum:"viewer,support,administrator"`
	State        string `json:"state"        enum:"invited,active,disabled" doc:"invited: no password was set yet"`
	SecondFactor bool   `json:"secondFactor" doc:"One is set up"`
	CreatedAt    string `json:"createdAt"    format:"date-time"`
}

func showOperator(o *store.Operator) OperatorObject {
	state := "active"
	switch {
	case o.DisabledAt.Valid:
		state = "disabled"
	case o.Password == "":
		state = "invited"
	}
	return OperatorObject{o.ID, o.Email, o.Role, state, o.SecondFactor, endpoint.Timestamp(o.CreatedAt)}
}

type linkedOperator struct {
	OperatorObject

	Link          string `json:"link"          doc:"To set a password, once: what stands behind the console's address"`
	LinkExpiresAt string `json:"linkExpiresAt" format:"date-time"`
}

func (d *Deps) showLinkedOperator(operator *store.Operator, link identity.Link) *linkedOperator {
	return &linkedOperator{
		showOperator(operator), handlers.ConsoleWelcome(link.Token), endpoint.Timestamp(d.Now().Add(link.Lifetime).UnixMilli()),
	}
}

type operatorCreation struct {
	Email string `json:"email" minLength:"1" maxLength:"254" doc:"Unique among operators"`
	Role  string `json:"role"  enum:"viewer,support,administrator"`
}

type operatorChange struct {
	Role     *string `json:"role,omitempty" enum:"viewer,support,administrator"`
	Disabled *bool   `json:"disabled,omitempty" doc:"true: can't sign in"`
}

func (d *Deps) addOperator(ctx context.Context, principal *identity.Principal, in *struct{ Body operatorCreation }) (*linkedOperator, error) {
	operator, link, err := identity.AddOperator(ctx, d.DB, principal.Operator, in.Body.Email, in.Body.Role)
	if errors.Is(err, store.ErrConflict) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "There is an operator with this e-mail address already.")
	}
	return d.showLinkedOperator(&operator, link), err
}

func (d *Deps) listOperators(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[OperatorObject], error) {
	return listRows(ctx, principal, in.PageQuery, func(ctx context.Context, _ string, page store.Page) ([]store.Operator, error) {
		return d.DB.Operators.List(ctx, page)
	}, func(row *store.Operator) string { return row.ID }, showOperator)
}

func (d *Deps) updateOperator(ctx context.Context, principal *identity.Principal, in *idAndBody[operatorChange]) (*OperatorObject, error) {
	operator, err := d.operatorAfter(ctx, in.ID, d.DB.Operators.Change(ctx, principal.Operator, in.ID, in.Body.Role, in.Body.Disabled))
	return new(showOperator(&operator)), err
}

func (d *Deps) removeOperator(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, refuseOperator(d.DB.Operators.Remove(ctx, principal.Operator, in.ID))
}

func (d *Deps) resetOperatorSecondFactor(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	return &endpoint.Empty{}, refuseOperator(d.DB.SecondFactors.Delete(ctx, principal.Operator, "", in.ID, nil))
}

func (d *Deps) linkOperator(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*linkedOperator, error) {
	link, err := identity.LinkOperator(ctx, d.DB, principal.Operator, in.ID)
	operator, err := d.operatorAfter(ctx, in.ID, err)
	return d.showLinkedOperator(&operator, link), err
}

// operatorAfter returns an operator after a change that ended with err.
func (d *Deps) operatorAfter(ctx context.Context, id string, err error) (operator store.Operator, _ error) {
	if err == nil {
		operator, err = d.DB.Operators.ByID(ctx, id)
	}
	return operator, refuseOperator(err)
}

// refuseOperator returns the public form of an error about an operator. It returns nil if there is no error.
func refuseOperator(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotFound):
		return handlers.NotFound("There is no operator with this id, or none with a second factor.")
	case errors.Is(err, store.ErrLastAdministrator):
		return endpoint.Refusal(errcode.Conflict, err,
			"This is the last administrator who can sign in. Make another operator an administrator first.")
	default:
		return handlers.Internal(fmt.Errorf("changing an operator: %w", err))
	}
}
