// Package identity authenticates requests and checks their rights: organizations, API keys with scopes and expiry, users
// with roles, passwords, login sessions and one-time links, and the organizations' own provider keys.
//
// Invariants:
//   - a raw API key exists in memory only when it is made and when it is presented; the store has its SHA-256;
//   - every request reads its key from the store, without a cache, so that a revocation, a suspension, another plan or other
//     scopes hold from the next request on, on every node;
//   - tokens of sessions and links are 256 random bits, stored as SHA-256; passwords are stored as argon2id hashes, of which
//     only a few are computed at a time;
//   - a session is read at each use, and ends with a sign-out, a new password, another role and the user's removal;
//   - a sign-in is counted in the store before its password is checked, so that the bounds hold over all nodes together;
//     sign-ins from a known device are counted and queued apart;
//   - an organization keeps an owner who can sign in, and no principal grants rights that it lacks;
//   - a fault of the store is never reported as an error of the credential;
//   - a provider key is sealed for its row as soon as it is checked; the package opens it only to seal it again ([Rekey]).
//
// The package sends no e-mail: one-time links are returned to their maker. HTTP statuses, cookies, prices, configuration and
// rate limits belong to its callers: handlers map its errors to codes, commands check plan, model and provider names.
package identity

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The reasons to refuse a credential. Every other error of an [Authenticator] is a fault of the service, not of the client.
var (
	// ErrNoKey: the request carries no API key; 401 unauthenticated.
	ErrNoKey = errors.New("no API key")
	// ErrInvalidKey: malformed, unknown or expired; 401 invalid_api_key. Its text after the colon is for logs.
	ErrInvalidKey = errors.New("invalid API key")
	// ErrRevokedKey: the key was valid and is revoked; 401 api_key_revoked.
	ErrRevokedKey = errors.New("API key revoked")
)

var (
	errHeaderTwice = fmt.Errorf("%w: a key header is given twice", ErrInvalidKey)
	errMalformed   = fmt.Errorf("%w: malformed", ErrInvalidKey)
	errUnknown     = fmt.Errorf("%w: unknown", ErrInvalidKey)
	errExpired     = fmt.Errorf("%w: expired", ErrInvalidKey)
)

// Principal is the authenticated identity of a request: an organization, through one of its keys or one of its signed-in users,
// or the operator of the service on its behalf. Exactly one of KeyID, UserID and Operator is set.
type Principal struct {
	KeyID, OrgID string
	// UserID and Role are set for a user.
	UserID string
	Role   Role
	// Operator is set for an operator of the service: the name in the audit log. OperatorScopes are the operator's rights.
	Operator       string
	OperatorScopes OperatorScopes
	// OperatorID is the id of the operator's key or account. It is empty for the command line.
	OperatorID string
	// NeedsCode: the second factor of the operator's session is too old to move money, or to make a key that may.
	NeedsCode bool
	// OnBehalfOf is the person for whom an operator's program works, as the program names them. It may be empty.
	OnBehalfOf string
	// Env is the key's environment; live for a user.
	Env  store.Env
	Plan string
	// Suspended organizations authenticate; handlers refuse them with 402 organization_suspended.
	Suspended bool
	// SuspensionReason is why, for a person. Empty means that no reason is known.
	SuspensionReason string
	// Scopes are the key's scopes, or the scopes that the user may give to a key.
	Scopes Scopes
	// KeyModels are the models that the key may use; a person may use all.
	KeyModels store.KeyModels
	// KeyPerMinute bounds the key's requests in a minute, and KeyConcurrent its running calls on a server; 0 means no bound of its own.
	KeyPerMinute, KeyConcurrent int64
	// HasOrgModels is false when the organization has no exception among the models, so that [store.Organizations.Models]
	// need not be asked.
	HasOrgModels bool
	// BudgetVersion counts the changes of the organization's budgets. 0 means that it never had one.
	BudgetVersion int64
	// Permit is set when the request was counted with the look-up of its key: in the key's window if KeyPerMinute is set, else in the organization's.
	Permit store.Permit
}

// Can reports whether a key or a user may use a route: a key needs the scope (else 403 insufficient_scope), a user at least the
// role (else 403 forbidden). No key has the empty scope, no user the empty role. An operator needs a scope of [Principal.OperatorScopes].
func (p Principal) Can(scope Scope, role Role) bool {
	if p.KeyID != "" {
		return p.Scopes.Has(scope)
	}
	return p.Operator == "" && p.Role.Has(role)
}

// Actor returns the id of the key or user, or the operator's name and the person for whom it works, for the audit log.
func (p Principal) Actor() string {
	if p.OnBehalfOf != "" {
		return p.Operator + " for " + p.OnBehalfOf
	}
	return cmp.Or(p.Operator, p.UserID, p.KeyID)
}

// Authority returns the principal's rights over users. A key has none.
func (p Principal) Authority() Authority {
	return Authority{Actor: p.Actor(), Role: p.Role, Operator: p.OperatorScopes == CommandLineScopes}
}

// keyReader is implemented by [store.APIKeys].
type keyReader interface {
	ByHash(ctx context.Context, hash [sha256.Size]byte) (store.KeyRecord, bool, error)
}

// Authenticator resolves raw keys to principals. It has no state and is safe for concurrent use.
type Authenticator struct{ keys keyReader }

// NewAuthenticator makes an authenticator over the store.
func NewAuthenticator(keys keyReader) *Authenticator { return &Authenticator{keys: keys} }

// Authenticate reads the key's row and returns its principal. It returns [ErrInvalidKey] for a key that is malformed (no
// look-up), unknown, or expired by the database's clock, [ErrRevokedKey] for a revoked one, and the store's error otherwise. A
// key both revoked and expired counts as revoked. A key counts as unknown if its full hash differs from the row's.
func (a *Authenticator) Authenticate(ctx context.Context, raw string) (Principal, error) {
	hash, _, ok := ParseKey(raw)
	if !ok {
		return Principal{}, errMalformed
	}
	record, found, err := a.keys.ByHash(ctx, hash)
	if err != nil {
		return Principal{}, fmt.Errorf("reading the API key: %w", err)
	}
	if !found || subtle.ConstantTimeCompare(record.Hash[:], hash[:]) != 1 {
		return Principal{}, errUnknown
	}
	if record.RevokedAt.Valid {
		return Principal{}, ErrRevokedKey
	}
	if record.ExpiresAt.Valid && record.ExpiresAt.Int64 <= record.NowMS {
		return Principal{}, errExpired
	}
	return Principal{
		KeyID: record.KeyID, OrgID: record.OrgID, Env: record.Env, Plan: record.Plan, Suspended: record.SuspendedAt.Valid,
		Scopes: storedScopes(record.Scopes), KeyModels: record.Models, KeyPerMinute: record.RequestsPerMinute,
		KeyConcurrent: record.MaxConcurrent, HasOrgModels: record.HasOrgModels, BudgetVersion: record.BudgetVersion, Permit: record.Permit,
	}, nil
}

// Credential returns the raw key of a request's headers (docs/contract.md#sending-a-key):
//
//   - `X-Api-Key` wins over `Authorization`, where SDKs put a placeholder; an empty one counts as absent;
//   - either header given twice is [ErrInvalidKey], because it is unclear which value a proxy in front has checked;
//   - `Authorization` counts only as `Bearer`, in any case, one space, the key. Another scheme or an empty key is no key; a tab
//     as separator is [ErrInvalidKey].
//
// Without a key it returns [ErrNoKey]. [Authenticator.Authenticate] checks the form of the key. h must have canonical names.
func Credential(h http.Header) (raw string, err error) {
	apiKeys, authorizations := h["X-Api-Key"], h["Authorization"]
	if len(apiKeys) > 1 || len(authorizations) > 1 {
		return "", errHeaderTwice
	}
	if len(apiKeys) == 1 && apiKeys[0] != "" {
		return apiKeys[0], nil
	}
	if len(authorizations) == 1 {
		return bearer(authorizations[0])
	}
	return "", ErrNoKey
}

func bearer(authorization string) (raw string, err error) {
	const scheme = "Bearer"
	if len(authorization) < len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", ErrNoKey
	}
	rest := authorization[len(scheme):]
	switch {
	case strings.HasPrefix(rest, "\t"):
		return "", errMalformed
	case len(rest) > 1 && rest[0] == ' ':
		return rest[1:], nil
	}
	return "", ErrNoKey // or a longer scheme name
}
