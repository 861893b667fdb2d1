package handlers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// APIKeyObject is an API key as the API shows it: without its secret, which the store doesn't have. It is exported for the
// framework, see [PathID].
type APIKeyObject struct {
	ID            string    `json:"id"`
	Name          *string   `json:"name"        doc:"null: it has none"`
	Environment   store.Env `json:"environment" enum:"live,test"`
	Scopes        []string  `json:"scopes"      nullable:"false"`
	Hint          string    `json:"hint"        doc:"The key's first characters"`
	CreatedAt     string    `json:"createdAt"   format:"date-time"`
	ExpiresAt     *string   `json:"expiresAt"   format:"date-time" doc:"null: never"`
	RevokedAt     *string   `json:"revokedAt"   format:"date-time" doc:"null: it isn't revoked"`
	CreatedBy     *string   `json:"createdBy"   doc:"The id of the user or API key that made it, or operator; null: it isn't known"`
	CreatedByName *string   `json:"createdByName" doc:"The user's e-mail address, or the API key's name or hint; null: there is none (any more)"`
}

func showAPIKey(key *store.APIKey) APIKeyObject {
	return APIKeyObject{
		ID: key.ID, Name: textOrNull(key.Name), Environment: key.Env, Scopes: key.Scopes, Hint: key.Hint,
		CreatedAt: timestamp(key.CreatedAt), ExpiresAt: nullTimestamp(key.ExpiresAt), RevokedAt: nullTimestamp(key.RevokedAt),
		CreatedBy: textOrNull(shownActor(key.CreatedBy)), CreatedByName: textOrNull(key.CreatedByName),
	}
}

func nullTimestamp(epochMillis sql.NullInt64) *string {
	if !epochMillis.Valid {
		return nil
	}
	text := timestamp(epochMillis.Int64)
	return &text
}

// issuedKey is a new key with its raw text, which is shown this once (spec §5.1 rule 3).
type issuedKey struct {
	APIKeyObject

	Key string `json:"key" doc:"The raw key. It is not stored and can't be shown again"`
}

// apiKeyCreation is the body of POST /api-keys.
type apiKeyCreation struct {
	Name          *string    `json:"name,omitempty"          maxLength:"100" doc:"Unique among the organization's keys in use"`
	Environment   *store.Env `json:"environment,omitempty"   enum:"live,test" doc:"live, or the one of the key that asks"`
	Scopes        []string   `json:"scopes,omitempty"        maxItems:"100" doc:"At most those of who asks; models:read and chat:write when absent"` //nolint:lll // a struct tag can't be broken
	ExpiresInDays *int64     `json:"expiresInDays,omitempty" minimum:"1" maximum:"3650" doc:"Absent: never, or with the API key that asks"`
}

func (a *API) registerAPIKeys() {
	route := func(method, path string, scope identity.Scope, summary string) Route {
		return Route{Method: method, Path: path, Scope: scope, Role: RoleAdministrator, Summary: summary}
	}
	const all, one = "/api-keys", "/api-keys/{id}"
	register(a, operation{id: "createAPIKey", Route: route(http.MethodPost, all, identity.APIKeysWrite,
		"Create an API key, which is shown this once")}, a.createAPIKey)
	register(a, operation{id: "listAPIKeys", Route: route(http.MethodGet, all, identity.APIKeysRead,
		"List the API keys, revoked ones too, oldest first")}, a.listAPIKeys)
	register(a, operation{id: "getAPIKey", Route: route(http.MethodGet, one, identity.APIKeysRead, "Get an API key")}, a.getAPIKey)
	register(a, operation{id: "revokeAPIKey", Route: route(http.MethodDelete, one, identity.APIKeysWrite,
		"Revoke an API key for good, from the next request on")}, a.revokeAPIKey)
}

func (a *API) createAPIKey(
	ctx context.Context, caller *identity.Principal, in *struct{ Body apiKeyCreation },
) (*jsonBody[issuedKey], error) {
	request := identity.KeyRequest{OrgID: caller.OrgID, Env: caller.Env, Scopes: in.Body.Scopes}
	set(&request.Name, in.Body.Name)
	set(&request.Env, in.Body.Environment)
	if in.Body.ExpiresInDays != nil {
		at, err := identity.ExpiryInDays(a.Now(), *in.Body.ExpiresInDays)
		if err != nil {
			return nil, InvalidRequest("expiresInDays", "expiresInDays must be from %d to %d.", identity.MinExpiryDays, identity.MaxExpiryDays)
		}
		request.ExpiresAt = &at
	}
	if err := withinRights(caller, request); err != nil {
		return nil, err
	}
	key, err := identity.NewAPIKeys(a.DB).Create(ctx, caller.Actor(), request)
	if errors.Is(err, store.ErrConflict) {
		return nil, &Error{Code: errcode.Conflict, Message: "The organization has an API key with this name already.", Cause: err}
	}
	if errors.Is(err, store.ErrOutlives) {
		return nil, InvalidRequest("expiresInDays", "An API key can't make a key that is valid longer than itself.")
	}
	if err != nil {
		return nil, badField(err)
	}
	return &jsonBody[issuedKey]{issuedKey{APIKeyObject: showAPIKey(&key.APIKey), Key: key.Raw}}, nil
}

// withinRights refuses a key that could do more than who makes it (design §6 "scopes"). A test key makes test keys only:
// it must not come to spend live credits.
func withinRights(caller *identity.Principal, request identity.KeyRequest) error {
	scopes, err := identity.ParseScopes(request.Scopes)
	if err != nil {
		return badField(err)
	}
	for _, scope := range scopes {
		if caller.Scopes.Has(scope) {
			continue
		}
		if caller.UserID != "" {
			return &Error{Code: errcode.Forbidden, Message: fmt.Sprintf("Your role can't give the scope %s to a key.", scope)}
		}
		return &Error{
			Code:    errcode.InsufficientScope,
			Message: fmt.Sprintf("This API key lacks the scope %s, so it can't make a key that has it.", scope),
		}
	}
	if caller.Env == store.Test && request.Env != store.Test {
		return &Error{Code: errcode.Forbidden, Message: "A key of the test environment makes keys of the test environment only."}
	}
	return nil
}

func (a *API) listAPIKeys(
	ctx context.Context, caller *identity.Principal, in *struct{ PageQuery },
) (*jsonBody[listObject[APIKeyObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	keys, err := a.DB.APIKeys.List(ctx, caller.OrgID, page)
	if err != nil {
		return nil, Internal(err)
	}
	return listed(in.PageQuery, keys, func(row *store.APIKey) string { return row.ID }, showAPIKey), nil
}

func (a *API) getAPIKey(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[APIKeyObject], error) {
	key, err := a.DB.APIKeys.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAPIKeys, in.ID, err)
	}
	return &jsonBody[APIKeyObject]{showAPIKey(&key)}, nil
}

func (a *API) revokeAPIKey(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := identity.NewAPIKeys(a.DB).Revoke(ctx, caller.Actor(), caller.OrgID, in.ID); err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedAPIKeys, in.ID, err)
	}
	return &noBody{}, nil
}
