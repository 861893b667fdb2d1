package handlers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func keyed(method, path, key string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("X-Api-Key", key)
	return r
}

func testAPI() *API {
	test := someone(identity.WalletRead)
	test.Env = store.Test
	suspended := someone(identity.WalletRead)
	suspended.Suspended = true
	return &API{
		Authenticator: keyring{"live": someone(identity.WalletRead), "test": test, "chat": someone(identity.ChatWrite, identity.WalletWrite), "suspended": suspended},
		Wallets: walletsFunc(func(_ context.Context, id billing.WalletID) (billing.Wallet, error) {
			if id == (billing.WalletID{OrgID: "org_1", Env: store.Live}) {
				return billing.Wallet{BalanceMicros: 9_007_199_254_740_993, HeldMicros: 17}, nil
			}
			return billing.Wallet{}, nil
		}),
	}
}

func TestWallet(t *testing.T) {
	t.Parallel()
	api := testAPI()
	require.Equal(t, `{"environment":"live","balanceMicros":"9007199254740993","heldMicros":"17"}`,
		okText(t, api.Serve, keyed(http.MethodGet, "/wallet", "live")))
	require.Equal(t, `{"environment":"test","balanceMicros":"0","heldMicros":"0"}`,
		okText(t, api.Serve, keyed(http.MethodGet, "/wallet?env=live", "test")))
}

func TestWalletRefusals(t *testing.T) {
	t.Parallel()
	api := testAPI()
	refusedWith(t, CodeUnauthenticated, api.Serve, get("/wallet"))
	refusedWith(t, CodeInvalidAPIKey, api.Serve, keyed(http.MethodGet, "/wallet", "nobody"))
	refusedWith(t, CodeInsufficientScope, api.Serve, keyed(http.MethodGet, "/wallet", "chat"))
	refusedWith(t, CodeOrganizationSuspended, api.Serve, keyed(http.MethodGet, "/wallet", "suspended"))
	for _, r := range []*http.Request{
		keyed(http.MethodPost, "/wallet", "live"), keyed(http.MethodHead, "/wallet", "live"), keyed(http.MethodGet, "/wallet/", "live"),
		keyed(http.MethodGet, "/wallets", "live"), keyed(http.MethodGet, "/wallet/x", "live"), keyed(http.MethodGet, "/Wallet", "live"), get("/nothing"),
	} {
		refusedWith(t, CodeNotFound, api.Serve, r)
	}
	api.Wallets = walletsFunc(func(context.Context, billing.WalletID) (billing.Wallet, error) {
		return billing.Wallet{}, errors.New("disk I/O error")
	})
	require.NotContains(t, refusedWith(t, CodeInternalError, api.Serve, keyed(http.MethodGet, "/wallet", "live")).text, "disk")
}

func TestWalletWithTheStore(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite, billing.Ledger)
	require.NoError(t, db.CreateOrganization(t.Context(), "test", store.Organization{ID: "org_1", Name: "a", Plan: "free", CreatedAt: 1}))
	book := billing.NewBook(db)
	api := testAPI()
	api.Wallets = book
	require.Equal(t, `{"environment":"live","balanceMicros":"0","heldMicros":"0"}`, okText(t, api.Serve, keyed(http.MethodGet, "/wallet", "live")))
	_, err := book.Credit(t.Context(), "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, 5_000_000, "ref")
	require.NoError(t, err)
	require.Equal(t, `{"environment":"live","balanceMicros":"5000000","heldMicros":"0"}`, okText(t, api.Serve, keyed(http.MethodGet, "/wallet", "live")))
	require.Equal(t, `{"environment":"test","balanceMicros":"0","heldMicros":"0"}`, okText(t, api.Serve, keyed(http.MethodGet, "/wallet", "test")))
}
