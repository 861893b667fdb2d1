package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// providerKeyObject is an organization's own key at a provider as the API shows it: never with the key.
type providerKeyObject struct {
	Provider  string `json:"provider"`
	Hint      string `json:"hint"      doc:"The end of a long key"`
	UpdatedAt string `json:"updatedAt" format:"date-time"`
}

func showProviderKey(key *store.ProviderKey) providerKeyObject {
	return providerKeyObject{Provider: key.Provider, Hint: key.Hint, UpdatedAt: timestamp(key.UpdatedAt)}
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
	Key string `json:"key" minLength:"1" doc:"The provider's key. It is stored encrypted and never shown"`
}

func (a *API) registerProviderKeys() {
	route := func(method, path string, scope identity.Scope, summary string) Route {
		return Route{Method: method, Path: path, Scope: scope, Role: RoleAdministrator, Summary: summary}
	}
	const all, one = "/provider-keys", "/provider-keys/{provider}"
	register(a, operation{id: "listProviderKeys", Route: route(http.MethodGet, all, identity.ProviderKeysRead,
		"List the organization's own provider keys, by provider, all on one page")}, a.listProviderKeys)
	register(a, operation{id: "putProviderKey", Route: route(http.MethodPut, one, identity.ProviderKeysWrite,
		"Set or replace the organization's own key at a provider")}, a.putProviderKey)
	register(a, operation{id: "deleteProviderKey", Route: route(http.MethodDelete, one, identity.ProviderKeysWrite,
		"Delete the organization's own key at a provider")}, a.deleteProviderKey)
}

// listProviderKeys has one page: there is a key for a provider at most, and the operator configures those.
func (a *API) listProviderKeys(
	ctx context.Context, caller *identity.Principal, _ *struct{},
) (*jsonBody[listObject[providerKeyObject]], error) {
	keys, err := a.DB.ProviderKeys.List(ctx, caller.OrgID)
	if err != nil {
		return nil, Internal(err)
	}
	list := listObject[providerKeyObject]{Data: make([]providerKeyObject, len(keys))}
	for i := range keys {
		list.Data[i] = showProviderKey(&keys[i])
	}
	return &jsonBody[listObject[providerKeyObject]]{list}, nil
}

func (a *API) putProviderKey(
	ctx context.Context, caller *identity.Principal, in *providerKeyPut,
) (*jsonBody[providerKeyObject], error) {
	if !slices.Contains(a.Providers, in.Provider) {
		return nil, noProvider()
	}
	err := identity.NewProviderKeys(a.DB, a.Ring).Put(ctx, caller.Actor(), caller.OrgID, in.Provider, in.Body.Key)
	if err != nil {
		return nil, badField(err)
	}
	keys, err := a.DB.ProviderKeys.List(ctx, caller.OrgID)
	if err != nil {
		return nil, Internal(err)
	}
	for i := range keys {
		if keys[i].Provider == in.Provider {
			return &jsonBody[providerKeyObject]{showProviderKey(&keys[i])}, nil
		}
	}
	return nil, NotFound("The key was deleted meanwhile.")
}

// deleteProviderKey also takes away a key for a provider that the configuration doesn't have any more.
func (a *API) deleteProviderKey(ctx context.Context, caller *identity.Principal, in *PathProvider) (*noBody, error) {
	if !utf8.ValidString(in.Provider) || strings.Contains(in.Provider, "\x00") {
		return nil, noProvider()
	}
	err := identity.NewProviderKeys(a.DB, a.Ring).Delete(ctx, caller.Actor(), caller.OrgID, in.Provider)
	if errors.Is(err, store.ErrNotFound) {
		return nil, NotFound("The organization has no key of its own at this provider.")
	}
	if err != nil {
		return nil, Internal(fmt.Errorf("deleting a provider key: %w", err))
	}
	return &noBody{}, nil
}

func noProvider() error { return NotFound("There is no provider with this name.") }
