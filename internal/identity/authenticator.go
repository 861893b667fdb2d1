package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The ways a caller is not let in (spec §5.1 rule 7). Everything else an [Authenticator] returns is a fault of ours
// and must be answered as such (design §2: a failing part never looks like the caller's fault).
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

// Principal is who makes a request: an organization, through one of its keys (spec §5.1 rule 4) or through one of its
// users, who is signed in. Exactly one of KeyID and UserID is set.
type Principal struct {
	KeyID, OrgID string
	// UserID and Role are a user's.
	UserID string
	Role   Role
	// Env is the key's; users work in the live environment.
	Env  store.Env
	Plan string
	// Suspended organizations are let in here and refused after (402 organization_suspended), see design §6.
	Suspended bool
	// Scopes are the key's, or all that a user may give to a key.
	Scopes Scopes
	// HasOrgModels is false when the organization has no exception among the models, so that [store.Organizations.Models]
	// need not be asked.
	HasOrgModels bool
}

// Can reports whether the caller may use a route: a key needs the scope (else 403 insufficient_scope), a user at least the
// role (else 403 forbidden). An empty scope takes no key, an empty role no user.
func (p Principal) Can(scope Scope, role Role) bool {
	if p.UserID != "" {
		return p.Role.Has(role)
	}
	return p.Scopes.Has(scope)
}

// Actor is who stands in the audit log for what the caller changes: the id of the key or of the user.
func (p Principal) Actor() string {
	if p.UserID != "" {
		return p.UserID
	}
	return p.KeyID
}

// Authority is what the caller may do to users. A key has no role and so no such right.
func (p Principal) Authority() Authority { return Authority{Actor: p.Actor(), Role: p.Role} }

// keyReader is what an [Authenticator] asks: [store.APIKeys], which reads the key anew each time.
type keyReader interface {
	ByHash(ctx context.Context, hash [sha256.Size]byte) (store.KeyRecord, bool, error)
}

// Authenticator turns raw keys into principals. It keeps no state and is safe for concurrent use.
type Authenticator struct{ keys keyReader }

// NewAuthenticator makes an authenticator over the store.
func NewAuthenticator(keys keyReader) *Authenticator { return &Authenticator{keys: keys} }

// Authenticate reads the key's row and tells who it belongs to. It returns [ErrInvalidKey] for a key that is
// malformed (told without the store), unknown or expired by the database's clock, [ErrRevokedKey] for a revoked one,
// and else the store's error. A key both revoked and expired counts as revoked: someone ended it on purpose.
// Nothing is told about a key whose full hash didn't match (S2).
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
		KeyID:        record.KeyID,
		OrgID:        record.OrgID,
		Env:          record.Env,
		Plan:         record.Plan,
		Suspended:    record.SuspendedAt.Valid,
		Scopes:       storedScopes(record.Scopes),
		HasOrgModels: record.HasOrgModels,
	}, nil
}
