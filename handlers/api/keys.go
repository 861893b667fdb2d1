package api

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// APIKeyObject is an API key as the API shows it: without its secret, which the store doesn't have. It is exported for
// huma, see [endpoint.PathID].
type APIKeyObject struct { //nolint:revive // KeyObject could be any key
	ID          string    `json:"id"`
	Name        *string   `json:"name"        doc:"null: it has none"`
	Environment store.Env `json:"environment" enum:"live,test"`
	Scopes      []string  `json:"scopes"      nullable:"false"`
	Hint        string    `json:"hint"        doc:"The key's first characters"`
	CreatedAt   string    `json:"createdAt"   format:"date-time"`
	ExpiresAt   *string   `json:"expiresAt"   format:"date-time" doc:"null: never"`
	RevokedAt   *string   `json:"revokedAt"   format:"date-time" doc:"null: it isn't revoked"`
	CreatedBy   *string   `json:"createdBy"   doc:"The id of the user or API key that made it, or operator; null: it isn't known"`
	Models      *[]string `json:"models"      doc:"The models that it may use; null: all; empty: none"`
	KeyBounds
	CreatedByName   *string `json:"createdByName"   doc:"The user's e-mail address, or the API key's name or hint; null: there is none (any more)"`
	CallsLast30Days int64   `json:"callsLast30Days" doc:"The calls of the last 30 days, counted every minute"`
	LastUsedOn      *string `json:"lastUsedOn"      doc:"The day of the last of them in UTC, yyyy-mm-dd; null: there is none" format:"date"`
}

func showAPIKey(key *store.APIKey) APIKeyObject {
	var models *[]string
	if key.Models.Valid {
		models = new(key.Models.List())
	}
	return APIKeyObject{
		ID: key.ID, Name: endpoint.OrNull(key.Name), Environment: key.Env, Scopes: key.Scopes, Hint: key.Hint, Models: models,
		KeyBounds: KeyBounds{numberOrNull(key.RequestsPerMinute), numberOrNull(key.MaxConcurrent)},
		CreatedAt: endpoint.Timestamp(key.CreatedAt), ExpiresAt: endpoint.TimestampOrNull(key.ExpiresAt.Int64),
		RevokedAt: endpoint.TimestampOrNull(key.RevokedAt.Int64),
		CreatedBy: endpoint.OrNull(shownActor(key.CreatedBy)), CreatedByName: endpoint.OrNull(key.CreatedByName),
	}
}

// KeyBounds are the numeric bounds of an API key. It is exported for huma, see [endpoint.PathID].
type KeyBounds struct {
	RequestsPerMinute *int64 `json:"requestsPerMinute" doc:"Of the key, beside the organization's; null: no bound of its own"`
	MaxConcurrent     *int64 `json:"maxConcurrent"     doc:"Model calls of the key that run at the same time on a server; null: no bound of its own"`
}

func numberOrNull(number sql.NullInt64) *int64 {
	if !number.Valid {
		return nil
	}
	return &number.Int64
}

// issuedKey is a new key with its raw text, which is shown this once.
type issuedKey struct {
	APIKeyObject

	Key string `json:"key" doc:"The raw key. It is not stored and can't be shown again"`
}

// apiKeyCreation is the body of POST /api-keys. A key has the bounds of the key that makes it, unless the body has others.
type apiKeyCreation struct {
	APIKeyChange

	Name          *string    `json:"name,omitempty"          maxLength:"100" doc:"Unique among the organization's keys in use"`
	Environment   *store.Env `json:"environment,omitempty"   enum:"live,test" doc:"live, or the one of the key that asks"`
	Scopes        []string   `json:"scopes,omitempty"        maxItems:"100" doc:"At most those of who asks; models:read and chat:write when absent"` //nolint:lll // a struct tag can't be broken
	ExpiresInDays *int64     `json:"expiresInDays,omitempty" minimum:"1" maximum:"3650" doc:"Absent: never, or with the API key that asks"`
	ExpiresAt     *string    `json:"expiresAt,omitempty"     maxLength:"40" doc:"Instead of expiresInDays: a time as 2027-01-31T12:00:00Z, which may lie in the past"` //nolint:lll // as above
}

// APIKeyChange is the body of PATCH /api-keys/{id}. It is exported for huma, see [endpoint.PathID].
type APIKeyChange struct { //nolint:revive // KeyChange could be of any key
	Models clearable[[]string] `json:"models,omitzero" maxItems:"500" doc:"The ids of the models that it may use; null: all; empty: none. Absent in a new key: as in the key that asks"` //nolint:lll // a struct tag can't be broken

	RequestsPerMinute clearable[int64] `json:"requestsPerMinute,omitzero" minimum:"1" maximum:"1000000" doc:"null: no bound of its own"`
	MaxConcurrent     clearable[int64] `json:"maxConcurrent,omitzero"     minimum:"1" maximum:"100000"  doc:"Running model calls on a server; null: no bound of its own"` //nolint:lll // a struct tag can't be broken
}

// The operations on API keys.
var (
	CreateAPIKey = operation(operated("api_keys:write", testKeys(administrators("createAPIKey", "POST /api-keys", identity.APIKeysWrite,
		"Create an API key, which is shown this once"))), (*Deps).createAPIKey)
	ListAPIKeys = operation(operated("api_keys:read", testKeys(administrators("listAPIKeys", "GET /api-keys", identity.APIKeysRead,
		"List the API keys, revoked ones too, oldest first"))), (*Deps).listAPIKeys)
	GetAPIKey = operation(operated("api_keys:read", testKeys(administrators("getAPIKey", "GET /api-keys/{id}", identity.APIKeysRead,
		"Get an API key"))), (*Deps).getAPIKey)
	UpdateAPIKey = operation(operated("api_keys:write", testKeys(administrators("updateAPIKey", "PATCH /api-keys/{id}", identity.APIKeysWrite,
		"Change what an API key may use, from the next request on"))), (*Deps).updateAPIKey)
	RevokeAPIKey = operationOf(operated("api_keys:write", testKeys(administrators("revokeAPIKey", "DELETE /api-keys/{id}", identity.APIKeysWrite,
		"Revoke an API key for good, from the next request on"))), (*Deps).revokeAPIKey)
)

func (d *Deps) createAPIKey(ctx context.Context, principal *identity.Principal, in *struct{ Body apiKeyCreation }) (*issuedKey, error) {
	request := identity.KeyRequest{OrgID: principal.OrgID, Env: principal.Env, Scopes: in.Body.Scopes}
	set(&request.Name, in.Body.Name)
	set(&request.Env, in.Body.Environment)
	expiresAt, err := in.Body.expiry(d.Now())
	if err != nil {
		return nil, err
	}
	edit, err := d.keyEdit(principal, &in.Body.APIKeyChange)
	if err != nil {
		return nil, err
	}
	bounds := store.APIKey{
		Models:            principal.KeyModels,
		RequestsPerMinute: sql.NullInt64{Int64: principal.KeyPerMinute, Valid: principal.KeyPerMinute > 0},
		MaxConcurrent:     sql.NullInt64{Int64: principal.KeyConcurrent, Valid: principal.KeyConcurrent > 0},
	}
	edit(&bounds)
	request.ExpiresAt = expiresAt
	request.Models, request.RequestsPerMinute, request.MaxConcurrent = bounds.Models, bounds.RequestsPerMinute, bounds.MaxConcurrent
	if err := d.withinRights(ctx, principal, request); err != nil {
		return nil, err
	}
	key, err := identity.CreateAPIKey(ctx, d.DB, principal.Actor(), request)
	switch {
	case errors.Is(err, store.ErrConflict):
		return nil, endpoint.Refusal(errcode.Conflict, err, "The organization has an API key with this name already.")
	case errors.Is(err, store.ErrLimit):
		return nil, noRoom(store.MaxAPIKeys, "API keys that aren't revoked", err)
	case errors.Is(err, store.ErrOutlives):
		return nil, handlers.InvalidRequest("expiresInDays", "An API key can't make a key that is valid longer than itself.")
	}
	return &issuedKey{showAPIKey(&key.APIKey), key.Raw}, err
}

// expiry returns the moment of expiresInDays or expiresAt, or nil if the body has neither.
func (c *apiKeyCreation) expiry(now time.Time) (*time.Time, error) {
	switch {
	case c.ExpiresInDays != nil && c.ExpiresAt != nil:
		return nil, handlers.InvalidRequest("expiresAt", "expiresAt can't be given beside expiresInDays.")
	case c.ExpiresInDays != nil:
		at, err := identity.ExpiryInDays(now, *c.ExpiresInDays)
		if err != nil {
			return nil, handlers.InvalidRequest("expiresInDays", "expiresInDays must be from %d to %d.",
				identity.MinExpiryDays, identity.MaxExpiryDays)
		}
		return &at, nil
	case c.ExpiresAt != nil:
		at, err := identity.ExpiryAt(*c.ExpiresAt)
		if err != nil {
			return nil, handlers.InvalidRequest("expiresAt", "expiresAt must be a time such as 2027-01-31T12:00:00Z.")
		}
		return &at, nil
	}
	return nil, nil //nolint:nilnil // a key without expiry is the ordinary case
}

// withinRights refuses a key with more rights than its maker's. A test key makes test keys only, so that it can't come to spend
// live credits. A key with a budget makes none, because a new key has no budget.
func (d *Deps) withinRights(ctx context.Context, principal *identity.Principal, request identity.KeyRequest) error {
	scopes, err := identity.ParseScopes(request.Scopes)
	if err != nil {
		return handlers.BadField(err)
	}
	for _, scope := range scopes {
		if principal.Scopes.Has(scope) {
			continue
		}
		if principal.KeyID == "" {
			return endpoint.Refusal(errcode.Forbidden, nil, "You can't give the scope %s to an API key.", scope)
		}
		return endpoint.Refusal(errcode.InsufficientScope, nil, "This API key lacks the scope %s, so it can't make a key that has it.", scope)
	}
	if principal.Env == store.Test && request.Env != store.Test {
		return endpoint.Refusal(errcode.Forbidden, nil, "A key of the test environment makes keys of the test environment only.")
	}
	if principal.KeyID == "" || principal.BudgetVersion == 0 {
		return nil
	}
	budgets, err := d.Book.Budgets(ctx, billing.WalletID{OrgID: principal.OrgID, Env: principal.Env})
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading budgets: %w", err))
	}
	if slices.ContainsFunc(budgets, func(b billing.BudgetState) bool { return b.OwnerID == principal.KeyID }) {
		return endpoint.Refusal(errcode.Forbidden, nil, "This API key has a budget, so it can't make a key, which would have none.")
	}
	return nil
}

func (d *Deps) listAPIKeys(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[APIKeyObject], error) {
	list, err := listRows(ctx, principal, in.PageQuery, d.DB.APIKeys.List, func(row *store.APIKey) string { return row.ID }, showAPIKey)
	if err != nil {
		return nil, err
	}
	return list, d.countCalls(ctx, principal.OrgID, list.Data)
}

func (d *Deps) getAPIKey(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*APIKeyObject, error) {
	key, err := getRow(ctx, d, principal, store.OwnedAPIKeys, in.ID, d.DB.APIKeys.ByID, showAPIKey)
	if err != nil {
		return nil, err
	}
	keys := []APIKeyObject{*key}
	return &keys[0], d.countCalls(ctx, principal.OrgID, keys)
}

// countCalls sets how much keys of an organization were used in the last 30 days.
func (d *Deps) countCalls(ctx context.Context, orgID string, keys []APIKeyObject) error {
	if len(keys) == 0 {
		return nil
	}
	ids := showAll(keys, func(key *APIKeyObject) string { return key.ID })
	const day = int64(24 * time.Hour / time.Second)
	used, err := d.Book.KeyCalls(ctx, orgID, slices.Min(ids), slices.Max(ids), d.Now().Unix()/day-spendDays+1)
	if err != nil {
		return handlers.Internal(fmt.Errorf("reading usage of keys: %w", err))
	}
	for _, key := range used {
		if i := slices.Index(ids, key.KeyID); i >= 0 {
			keys[i].CallsLast30Days, keys[i].LastUsedOn = key.Calls, new(time.Unix(key.LastDay*day, 0).UTC().Format(dayLayout))
		}
	}
	return nil
}

// keyModels returns the models of a key that the principal makes or changes. Nil means all models.
func (d *Deps) keyModels(principal *identity.Principal, ids []string) (store.KeyModels, error) {
	wider := &handlers.Error{
		Code: errcode.Forbidden, Field: "models", Message: "This API key may use some models only, so it can't let a key use others.",
	}
	if ids == nil && principal.KeyModels.Valid {
		return store.KeyModels{}, wider
	}
	var distinct []string
	if ids != nil {
		distinct = []string{}
	}
	for i, id := range ids {
		if _, configured := d.Models.Model(id); !configured {
			return store.KeyModels{}, handlers.InvalidRequest(fmt.Sprintf("models[%d]", i),
				"models[%d] is no model of the service. GET %s lists the models.", i, handlers.ModelsPath)
		}
		if !principal.KeyModels.Allow(id) {
			return store.KeyModels{}, wider
		}
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	return store.NewKeyModels(distinct), nil
}

// keyEdit checks a change of a key's bounds by a principal, whose own bounds it can't exceed, and returns the function that makes it.
func (d *Deps) keyEdit(principal *identity.Principal, change *APIKeyChange) (edit func(*store.APIKey), err error) {
	var models store.KeyModels
	if change.Models.given {
		var ids []string
		change.Models.set(&ids)
		if models, err = d.keyModels(principal, ids); err != nil {
			return nil, err
		}
	}
	edit = func(key *store.APIKey) {
		if change.Models.given {
			key.Models = models
		}
		setNumber(&key.RequestsPerMinute, &change.RequestsPerMinute)
		setNumber(&key.MaxConcurrent, &change.MaxConcurrent)
	}
	return edit, cmp.Or(
		withinBound(&change.RequestsPerMinute, principal.KeyPerMinute, "requestsPerMinute"),
		withinBound(&change.MaxConcurrent, principal.KeyConcurrent, "maxConcurrent"),
	)
}

// setNumber replaces a number by that of the member, or by none if the member is null.
func setNumber(into *sql.NullInt64, member *clearable[int64]) {
	if member.given {
		*into = sql.NullInt64{Int64: *cmp.Or(member.value, new(int64)), Valid: member.value != nil}
	}
}

// withinBound refuses a bound of a key above own, the bound of the key that makes the request. 0 means that this key has none.
func withinBound(bound *clearable[int64], own int64, field string) error {
	if bound.given && own > 0 && (bound.value == nil || *bound.value > own) {
		return &handlers.Error{
			Code: errcode.Forbidden, Field: field,
			Message: fmt.Sprintf("This API key has the bound %d itself, so it can't give a key a larger one.", own),
		}
	}
	return nil
}

func (d *Deps) updateAPIKey(ctx context.Context, principal *identity.Principal, in *idAndBody[APIKeyChange]) (*APIKeyObject, error) {
	edit, err := d.keyEdit(principal, &in.Body)
	if err != nil {
		return nil, err
	}
	err = d.DB.APIKeys.Update(ctx, principal.Actor(), principal.OrgID, in.ID, func(key *store.APIKey) error {
		if principal.Env == store.Test && key.Env != store.Test {
			return handlers.LiveOnly()
		}
		edit(key)
		return nil
	})
	if errors.Is(err, store.ErrRevoked) {
		return nil, endpoint.Refusal(errcode.Conflict, err, "The API key is revoked. Make another one.")
	}
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedAPIKeys, in.ID, err)
	}
	return d.getAPIKey(ctx, principal, &in.PathID)
}

func (d *Deps) revokeAPIKey(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if principal.Env == store.Test {
		key, err := d.DB.APIKeys.ByID(ctx, principal.OrgID, in.ID)
		if err != nil {
			return nil, d.refuse(ctx, principal, store.OwnedAPIKeys, in.ID, err)
		}
		if key.Env != store.Test {
			return nil, handlers.LiveOnly()
		}
	}
	return &endpoint.Empty{}, d.change(ctx, principal, store.OwnedAPIKeys, in.ID, d.DB.APIKeys.Revoke)
}

// ProviderKeyObject is an organization's own key at a provider as the API shows it: never with the key.
type ProviderKeyObject struct {
	Provider  string `json:"provider"`
	Hint      string `json:"hint"      doc:"The end of a long key"`
	UpdatedAt string `json:"updatedAt" format:"date-time"`
}

func showProviderKey(key *store.ProviderKey) ProviderKeyObject {
	return ProviderKeyObject{Provider: key.Provider, Hint: key.Hint, UpdatedAt: endpoint.Timestamp(key.UpdatedAt)}
}

// PathProvider is the provider's name in a path.
type PathProvider struct {
	Provider string `path:"provider"`
}

type providerKeyPut struct {
	PathProvider

	Body providerKeyChange
}

// providerKeyChange is the body of PUT /provider-keys/{provider}.
type providerKeyChange struct {
	Key string `json:"key" minLength:"1" writeOnly:"true" doc:"The provider's key. It is stored encrypted and never shown"`
}

// The operations on the organization's own provider keys.
var (
	ListProviderKeys = operation(administrators("listProviderKeys", "GET /provider-keys", identity.ProviderKeysRead,
		"List the organization's own provider keys, by provider, all on one page"), (*Deps).listProviderKeys)
	PutProviderKey = operation(administrators("putProviderKey", "PUT /provider-keys/{provider}", identity.ProviderKeysWrite,
		"Set or replace the organization's own key at a provider"), (*Deps).putProviderKey)
	DeleteProviderKey = operationOf(administrators("deleteProviderKey", "DELETE /provider-keys/{provider}", identity.ProviderKeysWrite,
		"Delete the organization's own key at a provider"), (*Deps).deleteProviderKey)
)

// listProviderKeys returns all keys on one page, because an organization has no more than one for each configured provider.
func (d *Deps) listProviderKeys(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.ListObject[ProviderKeyObject], error) {
	keys, err := d.DB.ProviderKeys.List(ctx, principal.OrgID)
	return onePage(keys, showProviderKey), err
}

func (d *Deps) putProviderKey(ctx context.Context, principal *identity.Principal, in *providerKeyPut) (*ProviderKeyObject, error) {
	if !slices.Contains(d.Providers, in.Provider) {
		return nil, noProvider()
	}
	err := identity.PutProviderKey(ctx, d.DB, d.Ring, principal.Actor(), principal.OrgID, in.Provider, in.Body.Key)
	if err != nil {
		return nil, handlers.BadField(err)
	}
	keys, err := d.DB.ProviderKeys.List(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	for i := range keys {
		if keys[i].Provider == in.Provider {
			return new(showProviderKey(&keys[i])), nil
		}
	}
	return nil, handlers.NotFound("The key was deleted meanwhile.")
}

// deleteProviderKey also deletes a key for a provider that has been removed from the configuration.
func (d *Deps) deleteProviderKey(ctx context.Context, principal *identity.Principal, in *PathProvider) (*endpoint.Empty, error) {
	if !utf8.ValidString(in.Provider) || strings.Contains(in.Provider, "\x00") {
		return nil, noProvider()
	}
	err := d.DB.ProviderKeys.Delete(ctx, principal.Actor(), principal.OrgID, in.Provider)
	return &endpoint.Empty{}, unlessMissing(err, "The organization has no key of its own at this provider.")
}

func noProvider() error { return handlers.NotFound("There is no provider with this name.") }
