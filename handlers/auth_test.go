package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// protect is a Handler behind auth that keeps the principal it sees.
func protect(auth *Auth, seen *identity.Principal) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		r, err := auth.Serve(w, r)
		if err != nil {
			return err
		}
		p, ok := PrincipalFrom(r.Context())
		if !ok {
			return errors.New("no principal")
		}
		*seen = p
		writeJSON(w, http.StatusOK, []byte(`{}`))
		return nil
	}
}

func withHeader(name string, values ...string) *http.Request {
	r := get("/v1/models")
	r.Header[name] = values
	return r
}

func TestAuthLetsAGoodKeyIn(t *testing.T) {
	t.Parallel()
	p := someone(identity.ModelsRead)
	auth := &Auth{Authenticator: keyring{"good": p}, Scopes: []identity.Scope{identity.ModelsRead}}
	for _, r := range []*http.Request{
		withHeader("Authorization", "Bearer good"), withHeader("Authorization", "bearer good"),
		withHeader("Authorization", "BEARER good"), withHeader("X-Api-Key", "good"),
	} {
		var seen identity.Principal
		w := served(protect(auth, &seen), r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, p, seen)
		require.Regexp(t, `^req_`, w.Header().Get("X-Request-Id"))
		require.Empty(t, w.Header().Get("Www-Authenticate"))
	}
	r := withHeader("X-Api-Key", "good")
	r.Header.Set("Authorization", "Bearer dummy")
	var seen identity.Principal
	okText(t, protect(auth, &seen), r)
}

func TestAuthRefusals(t *testing.T) {
	t.Parallel()
	suspended := someone()
	suspended.Suspended = true
	keys := authenticatorFunc(func(_ context.Context, raw string) (identity.Principal, error) {
		switch raw {
		case "good":
			return someone(identity.ModelsRead), nil
		case "suspended": // and without the scope: 402 comes first
			return suspended, nil
		case "revoked":
			return identity.Principal{}, fmt.Errorf("wrapped: %w", identity.ErrRevokedKey)
		case "store":
			return identity.Principal{}, errors.New("disk I/O error")
		case "late":
			return identity.Principal{}, context.DeadlineExceeded
		default:
			return identity.Principal{}, fmt.Errorf("%w: unknown", identity.ErrInvalidKey)
		}
	})
	auth := &Auth{Authenticator: keys, Scopes: []identity.Scope{identity.ChatWrite}}
	var seen identity.Principal
	h := protect(auth, &seen)
	for _, c := range []struct {
		code errcode.Code
		r    *http.Request
	}{
		{errcode.Unauthenticated, get("/v1/models")},
		{errcode.Unauthenticated, withHeader("Authorization", "Basic dXNlcjpwYXNz")},
		{errcode.Unauthenticated, get("/v1/models?api_key=good&key=good")},
		{errcode.InvalidAPIKey, withHeader("Authorization", "Bearer nobody")},
		{errcode.InvalidAPIKey, withHeader("X-Api-Key", "nobody")},
		{errcode.InvalidAPIKey, withHeader("X-Api-Key", "good", "good")},
		{errcode.InvalidAPIKey, withHeader("Authorization", "Bearer nobody", "Bearer good")},
		{errcode.APIKeyRevoked, withHeader("X-Api-Key", "revoked")},
		{errcode.OrganizationSuspended, withHeader("X-Api-Key", "suspended")},
		{errcode.InsufficientScope, withHeader("X-Api-Key", "good")},
		{errcode.InternalError, withHeader("X-Api-Key", "store")},
		{errcode.InternalError, withHeader("X-Api-Key", "late")},
	} {
		a := refusedWith(t, c.code, h, c.r)
		require.Equal(t, a.status == http.StatusUnauthorized, a.header.Get("Www-Authenticate") != "")
		require.NotContains(t, a.text, "nobody")
		require.NotContains(t, a.text, "disk")
	}
	require.Contains(t, refusedWith(t, errcode.InsufficientScope, h, withHeader("X-Api-Key", "good")).fields["message"], "chat:write")
	both := protect(&Auth{Authenticator: keys, Scopes: []identity.Scope{identity.ModelsRead, identity.ChatWrite}}, &seen)
	require.Contains(t, refusedWith(t, errcode.InsufficientScope, both, withHeader("X-Api-Key", "good")).fields["message"], "chat:write")
	require.Zero(t, seen)
}

func TestHandlersBehindAuthSayWhenItIsMissing(t *testing.T) {
	t.Parallel()
	models := NewModels(modelList{}, nil)
	refusedWith(t, errcode.InternalError, models.Serve, get("/v1/models"))
	refusedWith(t, errcode.InternalError, counted(&RateLimit{}), get("/v1/models"))
}

// The real chain: keys made and changed in the store hold at the very next request (spec §5.1).
func TestAuthWithTheStore(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t, store.SQLite)
	ctx := t.Context()
	require.NoError(t, db.Organizations.Create(ctx, "test", store.Organization{ID: "org_a", Name: "a", Plan: "free", CreatedAt: 1}))
	raw, hash, hint := identity.NewKey(store.Test)
	require.NoError(t, db.APIKeys.Create(ctx, "test", store.APIKey{
		ID: "key_a", OrgID: "org_a", Name: "k", Env: store.Test, Scopes: []string{"models:read"}, Hash: hash, Hint: hint,
		CreatedAt: time.Now().UnixMilli(),
	}))
	var seen identity.Principal
	h := protect(&Auth{Authenticator: identity.NewAuthenticator(db.APIKeys), Scopes: []identity.Scope{identity.ModelsRead}}, &seen)
	chat := protect(&Auth{Authenticator: identity.NewAuthenticator(db.APIKeys), Scopes: []identity.Scope{identity.ChatWrite}}, &seen)
	r := func() *http.Request { return withHeader("X-Api-Key", raw) }

	okText(t, h, r())
	require.Equal(t, "org_a", seen.OrgID)
	require.Equal(t, store.Test, seen.Env)
	refusedWith(t, errcode.InsufficientScope, chat, r())
	refusedWith(t, errcode.InvalidAPIKey, h, withHeader("X-Api-Key", raw[:len(raw)-1]))
	require.NoError(t, db.Organizations.SetSuspended(ctx, "test", "org_a", true))
	refusedWith(t, errcode.OrganizationSuspended, h, r())
	refusedWith(t, errcode.OrganizationSuspended, chat, r())
	require.NoError(t, db.Organizations.SetSuspended(ctx, "test", "org_a", false))
	okText(t, h, r())
	require.NoError(t, db.APIKeys.Revoke(ctx, "test", "org_a", "key_a"))
	refusedWith(t, errcode.APIKeyRevoked, h, r())
	require.NoError(t, db.Close(ctx))
	refusedWith(t, errcode.InternalError, h, r())
}
