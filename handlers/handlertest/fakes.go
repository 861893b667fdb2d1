package handlertest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// Keyring authenticates keys by their raw text.
type Keyring map[string]identity.Principal

// Authenticate implements [handlers.Authenticator].
func (k Keyring) Authenticate(_ context.Context, raw string) (identity.Principal, error) {
	p, ok := k[raw]
	if !ok {
		return p, identity.ErrInvalidKey
	}
	return p, nil
}

// AuthenticatorFunc is an Authenticator made of one function.
type AuthenticatorFunc func(ctx context.Context, raw string) (identity.Principal, error)

// Authenticate implements [handlers.Authenticator].
func (f AuthenticatorFunc) Authenticate(ctx context.Context, raw string) (identity.Principal, error) {
	return f(ctx, raw)
}

// LimiterFunc is a limiter made of one function.
type LimiterFunc func(ctx context.Context, orgID string, limit int64) (limit.Decision, error)

// Take implements limit.Limiter.
func (f LimiterFunc) Take(ctx context.Context, orgID string, limit int64) (limit.Decision, error) {
	return f(ctx, orgID, limit)
}

// PlanLimits are requests per minute by plan.
type PlanLimits map[string]int64

// RequestsPerMinute implements [handlers.Plans].
func (p PlanLimits) RequestsPerMinute(plan string) int64 { return p[plan] }

// ModelList are models in their order.
type ModelList []gateway.Model

// Models implements v1.ModelList.
func (l ModelList) Models() []gateway.Model { return l }

// ExceptionsFunc reads the models that an organization has exceptions for.
type ExceptionsFunc func(ctx context.Context, orgID string) (map[string]bool, error)

// Models implements v1.ModelExceptions.
func (f ExceptionsFunc) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	return f(ctx, orgID)
}

// WalletsFunc reads wallets that have no history.
type WalletsFunc func(ctx context.Context, id billing.WalletID) (billing.Wallet, error)

// Wallet implements api.Wallets, as the other methods do.
func (f WalletsFunc) Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error) {
	return f(ctx, id)
}

// Entries returns an error.
func (WalletsFunc) Entries(context.Context, billing.WalletID, billing.Stretch) ([]billing.Entry, error) {
	return nil, errors.New("no history")
}

// Calls returns an error.
func (WalletsFunc) Calls(context.Context, billing.WalletID, billing.Stretch) ([]billing.EndedCall, error) {
	return nil, errors.New("no history")
}

// Spend returns an error.
func (WalletsFunc) Spend(context.Context, billing.WalletID, int64, int64) ([]billing.Spend, error) {
	return nil, errors.New("no history")
}

// Call returns an error.
func (WalletsFunc) Call(context.Context, billing.WalletID, string) (billing.EndedCall, error) {
	return billing.EndedCall{}, errors.New("no history")
}

// Statements returns an error.
func (WalletsFunc) Statements(context.Context, billing.WalletID, string, int) ([]billing.Statement, error) {
	return nil, errors.New("no history")
}

// Statement returns an error.
func (WalletsFunc) Statement(context.Context, billing.WalletID, string) (*billing.Statement, error) {
	return nil, errors.New("no history")
}

// UsageEvents returns an error.
func (WalletsFunc) UsageEvents(context.Context, billing.WalletID, billing.UsageCursor, int) ([]billing.UsageEvent, error) {
	return nil, errors.New("no history")
}

// Postings returns an error.
func (WalletsFunc) Postings(context.Context, billing.WalletID, int64, int64) ([]billing.Entry, error) {
	return nil, errors.New("no history")
}

// Someone returns a principal with the scopes.
func Someone(scopes ...identity.Scope) identity.Principal {
	return identity.Principal{KeyID: "key_1", OrgID: "org_1", Env: store.Live, Plan: "free", Scopes: identity.ScopesOf(scopes...)}
}

// As returns the request after Auth has admitted the principal.
func As(r *http.Request, p identity.Principal) *http.Request {
	return r.WithContext(handlers.WithPrincipal(r.Context(), p))
}

// Get returns a GET request of the path.
func Get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

// Ring returns a ring of one master key.
func Ring(t *testing.T) *vault.Ring {
	t.Helper()
	ring, err := vault.ParseRing("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	return ring
}

// Of returns r with the principal of an organization, or with a client's address when orgID is "".
func Of(r *http.Request, orgID, address string) *http.Request {
	if orgID != "" {
		return r.WithContext(handlers.WithPrincipal(r.Context(), identity.Principal{OrgID: orgID}))
	}
	return handlers.WithClientAddress(r, address)
}

// Deadlines records the deadlines of a connection.
type Deadlines struct {
	http.ResponseWriter

	Read []time.Time
}

// SetReadDeadline is called by http.ResponseController.
func (d *Deadlines) SetReadDeadline(at time.Time) error {
	d.Read = append(d.Read, at)
	return nil
}

// PlatformsOf returns the built-in platforms with the options, by the name of the platform.
func PlatformsOf(t testing.TB, options map[string]map[string]string) *messaging.Set {
	t.Helper()
	set, err := messaging.New(messaging.Config{Drivers: builtin.Platforms(), Options: options})
	require.NoError(t, err)
	t.Cleanup(set.Close)
	return set
}

// BuiltinPlatforms returns the built-in platforms without options.
func BuiltinPlatforms(t testing.TB) *messaging.Set {
	t.Helper()
	return PlatformsOf(t, nil)
}

// FillSlots takes every slot in which the budget lets bodies be decoded. It is for a bubble of package synctest, where the last
// wait ends immediately.
func FillSlots(t *testing.T, bodies *handlers.ByteBudget) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := bodies.Decoding(ctx, 1)
		cancel()
		if err != nil {
			return
		}
	}
}

// Impatient returns a request with a client that waits for a second.
func Impatient(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	t.Cleanup(cancel)
	return r.WithContext(ctx)
}
