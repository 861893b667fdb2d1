package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// protect is a Handler behind auth that keeps the principal it sees.
func protect(auth *handlers.Auth, seen *identity.Principal) handlers.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		r, err := auth.Serve(w, r)
		if err != nil {
			return err
		}
		p, ok := handlers.PrincipalFrom(r.Context())
		if !ok {
			return errors.New("no principal")
		}
		*seen = p
		handlers.WriteJSON(w, http.StatusOK, []byte(`{}`))
		return nil
	}
}

func withHeader(name string, values ...string) *http.Request {
	r := handlertest.Get("/v1/models")
	r.Header[name] = values
	return r
}

func TestAuthLetsAGoodKeyIn(t *testing.T) {
	t.Parallel()
	p := handlertest.Someone(identity.ModelsRead)
	auth := &handlers.Auth{Authenticator: handlertest.Keyring{"good": p}, Scopes: []identity.Scope{identity.ModelsRead}}
	for _, r := range []*http.Request{
		withHeader("Authorization", "Bearer good"), withHeader("Authorization", "bearer good"),
		withHeader("Authorization", "BEARER good"), withHeader("X-Api-Key", "good"),
	} {
		var seen identity.Principal
		w := handlertest.Served(protect(auth, &seen), r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, p, seen)
		require.Regexp(t, `^req_`, w.Header().Get("X-Request-Id"))
		require.Empty(t, w.Header().Get("Www-Authenticate"))
	}
	r := withHeader("X-Api-Key", "good")
	r.Header.Set("Authorization", "Bearer dummy")
	var seen identity.Principal
	handlertest.OkText(t, protect(auth, &seen), r)
}

func TestAuthRefusals(t *testing.T) {
	t.Parallel()
	suspended := handlertest.Someone()
	suspended.Suspended = true
	keys := handlertest.AuthenticatorFunc(func(_ context.Context, raw string) (identity.Principal, error) {
		switch raw {
		case "good":
			return handlertest.Someone(identity.ModelsRead), nil
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
	auth := &handlers.Auth{Authenticator: keys, Scopes: []identity.Scope{identity.ChatWrite}}
	var seen identity.Principal
	h := protect(auth, &seen)
	invalid := map[any]bool{}
	for _, c := range []struct {
		code errcode.Code
		r    *http.Request
	}{
		{errcode.Unauthenticated, handlertest.Get("/v1/models")},
		{errcode.Unauthenticated, withHeader("Authorization", "Basic dXNlcjpwYXNz")},
		{errcode.Unauthenticated, handlertest.Get("/v1/models?api_key=good&key=good")},
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
		a := handlertest.RefusedWith(t, c.code, h, c.r)
		require.Equal(t, a.Status == http.StatusUnauthorized, a.Header.Get("Www-Authenticate") != "")
		require.NotContains(t, a.Text, "nobody")
		require.NotContains(t, a.Text, "disk")
		if c.code == errcode.InvalidAPIKey {
			invalid[a.Fields["message"]] = true
		}
	}
	require.Len(t, invalid, 1, "one text for all of them")
	require.Contains(t, handlertest.RefusedWith(t, errcode.InsufficientScope, h, withHeader("X-Api-Key", "good")).Fields["message"], "chat:write")
	both := protect(&handlers.Auth{Authenticator: keys, Scopes: []identity.Scope{identity.ModelsRead, identity.ChatWrite}}, &seen)
	require.Contains(t, handlertest.RefusedWith(t, errcode.InsufficientScope, both, withHeader("X-Api-Key", "good")).Fields["message"], "chat:write")
	require.Zero(t, seen)
}

func TestHandlersBehindAuthSayWhenItIsMissing(t *testing.T) {
	t.Parallel()
	models := v1.NewModels(handlertest.ModelList{}, nil)
	handlertest.RefusedWith(t, errcode.InternalError, models.Serve, handlertest.Get("/v1/models"))
	handlertest.RefusedWith(t, errcode.InternalError, counted(&handlers.RateLimit{}), handlertest.Get("/v1/models"))
}

// With the real store: a new or changed key takes effect with the next request.
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
	h := protect(&handlers.Auth{Authenticator: identity.NewAuthenticator(db.APIKeys), Scopes: []identity.Scope{identity.ModelsRead}}, &seen)
	chat := protect(&handlers.Auth{Authenticator: identity.NewAuthenticator(db.APIKeys), Scopes: []identity.Scope{identity.ChatWrite}}, &seen)
	r := func() *http.Request { return withHeader("X-Api-Key", raw) }

	handlertest.OkText(t, h, r())
	require.Equal(t, "org_a", seen.OrgID)
	require.Equal(t, store.Test, seen.Env)
	handlertest.RefusedWith(t, errcode.InsufficientScope, chat, r())
	handlertest.RefusedWith(t, errcode.InvalidAPIKey, h, withHeader("X-Api-Key", raw[:len(raw)-1]))
	require.NoError(t, db.Organizations.SetSuspended(ctx, "test", "org_a", true, ""))
	handlertest.RefusedWith(t, errcode.OrganizationSuspended, h, r())
	handlertest.RefusedWith(t, errcode.OrganizationSuspended, chat, r())
	require.NoError(t, db.Organizations.SetSuspended(ctx, "test", "org_a", false, ""))
	handlertest.OkText(t, h, r())
	require.NoError(t, db.APIKeys.Revoke(ctx, "test", "org_a", "key_a"))
	handlertest.RefusedWith(t, errcode.APIKeyRevoked, h, r())
	require.NoError(t, db.Close(ctx))
	handlertest.RefusedWith(t, errcode.InternalError, h, r())
}
