package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

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
	DeleteProviderKey = operation(administrators("deleteProviderKey", "DELETE /provider-keys/{provider}", identity.ProviderKeysWrite,
		"Delete the organization's own key at a provider"), (*Deps).deleteProviderKey)
)

var providerKeyOperations = []Operation{ListProviderKeys, PutProviderKey, DeleteProviderKey}

// listProviderKeys returns all keys on one page, because an organization has no more than one for each configured provider.
func (d *Deps) listProviderKeys(
	ctx context.Context, principal *identity.Principal, _ *struct{},
) (*endpoint.JSON[endpoint.ListObject[ProviderKeyObject]], error) {
	keys, err := d.DB.ProviderKeys.List(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	list := endpoint.ListObject[ProviderKeyObject]{Data: make([]ProviderKeyObject, len(keys))}
	for i := range keys {
		list.Data[i] = showProviderKey(&keys[i])
	}
	return endpoint.Answer(list), nil
}

func (d *Deps) putProviderKey(
	ctx context.Context, principal *identity.Principal, in *providerKeyPut,
) (*endpoint.JSON[ProviderKeyObject], error) {
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
			return endpoint.Answer(showProviderKey(&keys[i])), nil
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
	if errors.Is(err, store.ErrNotFound) {
		return nil, handlers.NotFound("The organization has no key of its own at this provider.")
	}
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("deleting a provider key: %w", err))
	}
	return &endpoint.Empty{}, nil
}

func noProvider() error { return handlers.NotFound("There is no provider with this name.") }
