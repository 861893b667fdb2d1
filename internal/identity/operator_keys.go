package identity

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// OperatorScope is one right of an operator of the service, such as wallet:write.
type OperatorScope string

// Scopes that rules name. Operations name the others.
const (
	OperatorWalletWrite OperatorScope = "wallet:write"
	OperatorKeysWrite   OperatorScope = "operator_keys:write"
)

// operatorNouns are the nouns of operators' scopes. Each has :read and :write.
var operatorNouns = []string{
	"organizations", "api_keys", "models", "channels", "users", "wallet", "usage", "queue", "vendors", "audit_log", "doctor", "status", "backup",
	"operator_keys",
}

// operatorScopes has every scope at its position in an [OperatorScopes]: by noun, :read before :write.
var operatorScopes = func() (all []OperatorScope) {
	for _, noun := range operatorNouns {
		all = append(all, OperatorScope(noun+":read"), OperatorScope(noun+":write"))
	}
	return all
}()

// OperatorScopes is a set of operators' scopes. The zero value holds none.
type OperatorScopes uint32

// CommandLineScopes are the rights of the command line: all scopes, and the operations without a scope.
const CommandLineScopes = ^OperatorScopes(0)

// bit returns the scope's position in an [OperatorScopes], -1 for an unknown scope.
func (s OperatorScope) bit() int { return slices.Index(operatorScopes, s) }

// Known reports whether s is a scope of this version.
func (s OperatorScope) Known() bool { return s.bit() >= 0 }

// Has reports whether scope is in the set. The empty scope is in [CommandLineScopes] alone.
func (set OperatorScopes) Has(scope OperatorScope) bool {
	bit := scope.bit()
	return set == CommandLineScopes || bit >= 0 && set&(1<<bit) != 0
}

// OperatorScopesOf returns a set without unknown scopes.
func OperatorScopesOf(scopes ...OperatorScope) OperatorScopes {
	return OperatorScopes(setOf(operatorScopes, scopes...))
}

// AllOperatorScopes returns every scope by noun, :read before :write.
func AllOperatorScopes() []OperatorScope { return slices.Clone(operatorScopes) }

// ParseOperatorScopes trims scope names and drops empty and repeated names. It returns a [FieldError] for no names, and a [FieldError] with the
// known names for an unknown name.
func ParseOperatorScopes(names []string) ([]OperatorScope, error) {
	scopes, unknown := parseNames(operatorScopes, names)
	if len(unknown) > 0 {
		return nil, &FieldError{"scopes", fmt.Sprintf("unknown scope %s; known are :read and :write of %s",
			unknown[0], strings.Join(operatorNouns, ", "))}
	}
	if len(scopes) == 0 {
		return nil, &FieldError{"scopes", "is empty; name the rights of the key, such as organizations:read"}
	}
	return scopes, nil
}

// The beginnings of operators' names in the audit log.
const (
	OperatorActor    = "operator:"     // and the e-mail address
	OperatorKeyActor = "operator-key:" // and the key's name
)

// CommandLine returns the principal of the operator at the command line, who may do everything. actor is the name in the audit log.
func CommandLine(actor string) Principal {
	principal := operatorPrincipal("", actor, CommandLineScopes)
	principal.Scopes = ScopesOf(AllScopes()...)
	return principal
}

// operatorPrincipal returns an operator as a principal. The operator has an owner's rights over the users of organizations, and may not give
// a key of an organization a scope for texts of customers, or for provider keys, because their accounts get such texts.
func operatorPrincipal(id, actor string, scopes OperatorScopes) Principal {
	all := ScopesOf(AllScopes()...) &^
		ScopesOf(ConversationsRead, ConversationsWrite, EventEndpointsRead, EventEndpointsWrite, ProviderKeysWrite)
	return Principal{OperatorID: id, Operator: actor, OperatorScopes: scopes, Role: Owner, Scopes: all, Env: store.Live}
}

const operatorPrefix = "ck_operator_"

// OperatorKeys makes, lists and authenticates the keys of operators, which are valid only for the interface of the operator. Every request
// reads its key from the store, so that a revocation holds from the next request on, on every node.
type OperatorKeys struct{ db *store.DB }

// NewOperatorKeys works on db.
func NewOperatorKeys(db *store.DB) *OperatorKeys { return &OperatorKeys{db} }

// OperatorKeyRequest describes a new key of an operator.
type OperatorKeyRequest struct {
	// Name is unique among the keys that are not revoked. The audit log has it.
	Name   string
	Scopes []string
	// ExpiresAt may be in the past. A key without it never expires.
	ExpiresAt *time.Time
}

// Create makes a key and returns its raw text, which is stored nowhere. A key can't make a key with a scope that it lacks, which is a
// [FieldError], or a key that is valid longer, which is [store.ErrOutlives]. Other errors are a [FieldError] for a refused value,
// [store.ErrConflict] for a name that is taken, [store.ErrLimit], or the store's.
func (k *OperatorKeys) Create(ctx context.Context, by Principal, request OperatorKeyRequest) (store.OperatorKey, string, error) {
	name, err := CleanName("name", request.Name)
	if err != nil {
		return store.OperatorKey{}, "", err
	}
	scopes, err := ParseOperatorScopes(request.Scopes)
	if err != nil {
		return store.OperatorKey{}, "", err
	}
	raw, hash, hint := newKey(operatorPrefix)
	key := store.OperatorKey{ID: store.NewID("opk"), Name: name, Hash: hash, Hint: hint}
	for _, scope := range scopes {
		if !by.OperatorScopes.Has(scope) {
			return store.OperatorKey{}, "", &FieldError{"scopes", fmt.Sprintf("has %s, which you lack and so can't give", scope)}
		}
		key.Scopes = append(key.Scopes, string(scope))
	}
	if request.ExpiresAt != nil {
		key.ExpiresAt = sql.NullInt64{Int64: request.ExpiresAt.UnixMilli(), Valid: true}
	}
	if err := k.db.OperatorKeys.Create(ctx, by.Operator, by.OperatorID, key); err != nil {
		return store.OperatorKey{}, "", fmt.Errorf("creating an operator key: %w", err)
	}
	// The store bounds the expiry by the maker's.
	key, err = k.db.OperatorKeys.ByID(ctx, key.ID)
	return key, raw, err
}

// keySeenEvery is the precision of a key's last use: the store isn't written on every request.
const keySeenEvery = time.Minute

// Authenticate returns the principal of a raw key. It returns [ErrInvalidKey] for a key that is malformed, unknown or expired, or an API key
// of an organization, [ErrRevokedKey] for a revoked one, and the store's error otherwise.
func (k *OperatorKeys) Authenticate(ctx context.Context, raw string) (Principal, error) {
	hash, ok := parseKey(raw, operatorPrefix)
	if !ok {
		return Principal{}, errMalformed
	}
	key, now, err := k.db.OperatorKeys.ByHash(ctx, hash)
	if err != nil {
		return Principal{}, fmt.Errorf("reading an operator key: %w", err)
	}
	switch {
	case subtle.ConstantTimeCompare(key.Hash[:], hash[:]) != 1: // zero for an unknown key
		return Principal{}, errUnknown
	case key.RevokedAt.Valid:
		return Principal{}, ErrRevokedKey
	case key.ExpiresAt.Valid && key.ExpiresAt.Int64 <= now:
		return Principal{}, errExpired
	}
	if now-key.UsedAt.Int64 >= keySeenEvery.Milliseconds() {
		_ = k.db.OperatorKeys.Touch(ctx, key.ID) // a use that isn't noted is no reason to refuse a request
	}
	scopes := store.Column(key.Scopes, func(name string) OperatorScope { return OperatorScope(name) })
	return operatorPrincipal(key.ID, OperatorKeyActor+key.Name, OperatorScopesOf(scopes...)), nil
}
