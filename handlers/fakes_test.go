package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// keyring knows keys by their raw text.
type keyring map[string]identity.Principal

func (k keyring) Authenticate(_ context.Context, raw string) (identity.Principal, error) {
	p, ok := k[raw]
	if !ok {
		return p, identity.ErrInvalidKey
	}
	return p, nil
}

// authenticatorFunc is an Authenticator made of one function.
type authenticatorFunc func(ctx context.Context, raw string) (identity.Principal, error)

func (f authenticatorFunc) Authenticate(ctx context.Context, raw string) (identity.Principal, error) {
	return f(ctx, raw)
}

type limiterFunc func(ctx context.Context, orgID string, limit int64) (limit.Decision, error)

func (f limiterFunc) Take(ctx context.Context, orgID string, limit int64) (limit.Decision, error) {
	return f(ctx, orgID, limit)
}

// planLimits are requests per minute by plan.
type planLimits map[string]int64

func (p planLimits) RequestsPerMinute(plan string) int64 { return p[plan] }

type modelList []gateway.Model

func (l modelList) Models() []gateway.Model { return l }

type exceptionsFunc func(ctx context.Context, orgID string) (map[string]bool, error)

func (f exceptionsFunc) Models(ctx context.Context, orgID string) (map[string]bool, error) {
	return f(ctx, orgID)
}

type walletsFunc func(ctx context.Context, id billing.WalletID) (billing.Wallet, error)

func (f walletsFunc) Wallet(ctx context.Context, id billing.WalletID) (billing.Wallet, error) {
	return f(ctx, id)
}

func (walletsFunc) Entries(context.Context, billing.WalletID, billing.Stretch) ([]billing.Entry, error) {
	return nil, errors.New("no history")
}

func (walletsFunc) Calls(context.Context, billing.WalletID, billing.Stretch) ([]billing.EndedCall, error) {
	return nil, errors.New("no history")
}

func (walletsFunc) Spend(context.Context, billing.WalletID, int64, int64) ([]billing.Spend, error) {
	return nil, errors.New("no history")
}

type pingFunc func(ctx context.Context) error

func (f pingFunc) Ping(ctx context.Context) error { return f(ctx) }

// someone is a principal with the scopes.
func someone(scopes ...identity.Scope) identity.Principal {
	return identity.Principal{KeyID: "key_1", OrgID: "org_1", Env: store.Live, Plan: "free", Scopes: identity.ScopesOf(scopes...)}
}

// as is the request after Auth has let the principal in.
func as(r *http.Request, p identity.Principal) *http.Request {
	return r.WithContext(WithPrincipal(r.Context(), p))
}

func get(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, nil) }

// served runs a handler the way the server does, with WriteError for what it returns.
func served(h Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	if err := h(w, r); err != nil {
		WriteError(w, r, err, "")
	}
	return w
}

// refusedWith checks that the handler answers with the code in the contract's shape, and that the interface description
// names the code.
func refusedWith(t *testing.T, code errcode.Code, h Handler, r *http.Request) answer {
	t.Helper()
	a := checked(t, served(h, r))
	require.Equal(t, string(code), a.code(), a.text)
	requireDescribed(t, r, a.code())
	return a
}

// okText checks that the handler answers 200 with JSON and the headers of every answer.
func okText(t *testing.T, h Handler, r *http.Request) string {
	t.Helper()
	w := served(h, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	return w.Body.String()
}
