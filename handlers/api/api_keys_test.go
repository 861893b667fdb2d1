package api

import (
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// A key's text is shown once, and its changes take effect at once.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "user:administrator",
		`{"name":" shop ","scopes":["wallet:read"],"expiresInDays":30,"environment":"test","key":"ck_live_mine","revokedAt":"x"}`)
	raw := made["key"].(string)
	require.True(t, strings.HasPrefix(raw, "ck_test_"))
	one := "/api-keys/" + made["id"].(string)
	shown := o.ask(t, http.StatusOK, http.MethodGet, one, "user:administrator", "")
	require.Equal(t, map[string]any{
		"id": made["id"], "name": "shop", "environment": "test", "scopes": []any{"wallet:read"}, "hint": made["hint"],
		"createdAt": made["createdAt"], "expiresAt": "2026-12-21T10:00:00.000Z", "revokedAt": nil,
		"createdBy": "usr_administrator", "createdByName": "administrator@example.com", "models": nil, "requestsPerMinute": nil, "maxConcurrent": nil,
		"callsLast30Days": 0.0, "lastUsedOn": nil,
	}, shown)
	principal, err := identity.NewAuthenticator(o.DB.APIKeys).Authenticate(t.Context(), raw)
	require.NoError(t, err)
	require.Equal(t, "org_1", principal.OrgID)
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/api-keys", "owner", `{"name":"shop"}`)

	plain := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "user:owner", `{}`)
	require.True(t, strings.HasPrefix(plain["key"].(string), "ck_live_"))
	require.Equal(t, []any{"models:read", "chat:write"}, plain["scopes"])
	require.Nil(t, plain["name"])
	require.Nil(t, plain["expiresAt"])
	for body, field := range map[string]string{
		`{"name":"a\u0007b"}`: "name", `{"name":"` + strings.Repeat("a", 101) + `"}`: "name", `{"scopes":["all"]}`: "scopes", `{"scopes":"wallet:read"}`: "scopes",
		`{"expiresInDays":0}`: "expiresInDays", `{"expiresInDays":3651}`: "expiresInDays", `{"environment":"prod"}`: "environment",
	} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodPost, "/api-keys", "owner", body)
	}
	o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "owner", `{"name":null,"scopes":null,"expiresInDays":null,"environment":null}`)

	list := handlertest.OkText(t, o.Serve, request(http.MethodGet, "/api-keys", "owner", ""))
	require.NotContains(t, list, raw)
	require.Equal(t, 3, strings.Count(list, `"id"`))
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, "owner", "")
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, "owner", "")
	_, err = identity.NewAuthenticator(o.DB.APIKeys).Authenticate(t.Context(), raw)
	require.ErrorIs(t, err, identity.ErrRevokedKey)
	require.NotNil(t, o.ask(t, http.StatusOK, http.MethodGet, one, "owner", "")["revokedAt"])
}

// TestUseOfAPIKeys guarantees that an API key shows its own calls of the last 30 days, and the day of the last one.
func TestUseOfAPIKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Book, o.Now = billing.NewBook(o.DB), func() time.Time { return *o.now }
	var ids []string
	for range 3 {
		ids = append(ids, o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "user:owner", `{}`)["id"].(string))
	}
	for _, wallet := range []billing.WalletID{liveWallet, testWallet} {
		_, err := o.Book.Credit(t.Context(), "test", wallet, 1_000, "r")
		require.NoError(t, err)
	}
	const day = 24 * time.Hour
	for i, call := range []struct {
		key    string
		wallet billing.WalletID
		age    time.Duration
	}{
		{ids[0], liveWallet, 40 * day}, {ids[0], liveWallet, 29 * day}, {ids[0], testWallet, day}, {ids[1], liveWallet, 30 * day}, {"key_of_none", liveWallet, 0},
	} {
		o.charge(t, o.now.Add(-call.age), billing.Call{
			ID: fmt.Sprint("call_", i), Model: "echo/a", Provider: "echo", KeyID: call.key, Wallet: call.wallet, Outcome: "completed",
		})
	}
	yesterday := o.now.Add(-day).UTC().Format(dayLayout)
	*o.now = o.now.Add(20 * time.Second)
	require.NoError(t, billing.NewUsageSums(o.DB).Update(t.Context()))
	use := func(key map[string]any) []any { return []any{key["callsLast30Days"], key["lastUsedOn"]} }
	want := map[any][]any{ids[0]: {2.0, yesterday}, ids[1]: {0.0, nil}, ids[2]: {0.0, nil}}
	for _, row := range o.ask(t, http.StatusOK, http.MethodGet, "/api-keys", "user:owner", "")["data"].([]any) {
		key := row.(map[string]any)
		require.Equal(t, want[key["id"]], use(key))
		require.Equal(t, want[key["id"]], use(o.ask(t, http.StatusOK, http.MethodGet, "/api-keys/"+key["id"].(string), "user:owner", "")))
		delete(want, key["id"])
	}
	require.Empty(t, want)
}

// Keys and members create only keys within their own scopes.
func TestKeysMakeKeysWithinTheirScopes(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	keys := o.Authenticator.(handlertest.Keyring)
	keys["some"] = handlertest.Someone(identity.APIKeysWrite, identity.AgentsRead)
	before := o.snapshot(t)
	for _, scope := range identity.AllScopes() {
		body := fmt.Sprintf(`{"scopes":["agents:read",%q]}`, scope)
		if keys["some"].Scopes.Has(scope) {
			continue
		}
		o.refused(t, errcode.InsufficientScope, "", http.MethodPost, "/api-keys", "some", body)
	}
	o.refused(t, errcode.InsufficientScope, "", http.MethodPost, "/api-keys", "some", `{}`) // the defaults are more than it has
	o.refused(t, errcode.Forbidden, "", http.MethodPost, "/api-keys", "test", `{"environment":"live"}`)
	require.Equal(t, before, o.snapshot(t))

	o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "some", `{"scopes":["agents:read","api_keys:write"]}`)
	require.Equal(t, "test", o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "test", `{}`)["environment"])
	for _, role := range []string{"administrator", "owner"} {
		o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "user:"+role,
			`{"scopes":["`+identity.JoinScopes(identity.AllScopes(), `","`)+`"]}`)
	}
}

func TestProviderKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const secret = "sk-proj-0123456789abcdefWXYZ"
	put := o.ask(t, http.StatusOK, http.MethodPut, "/provider-keys/echo", "user:administrator", `{"key":" `+secret+`\n"}`)
	require.Equal(t, "…WXYZ", put["hint"])
	require.Len(t, put, 3)
	sealed, found, err := o.DB.ProviderKeys.Sealed(t.Context(), "org_1", "echo")
	require.NoError(t, err)
	require.True(t, found)
	key, err := o.Ring.Open(sealed, vault.ProviderKey("org_1", "echo"))
	require.NoError(t, err)
	require.Equal(t, secret, string(key))
	list := handlertest.OkText(t, o.Serve, request(http.MethodGet, "/provider-keys", "owner", ""))
	require.Equal(t, `{"data":[{"provider":"echo","hint":"…WXYZ","updatedAt":"`+put["updatedAt"].(string)+`"}],"nextCursor":null}`, list)
	require.Equal(t, `{"data":[],"nextCursor":null}`, handlertest.OkText(t, o.Serve, request(http.MethodGet, "/provider-keys", "stranger", "")))

	a := o.refused(t, errcode.InvalidRequest, "key", http.MethodPut, "/provider-keys/echo", "owner", `{"key":"sk-a sk-b"}`)
	require.NotContains(t, a.Text, "sk-")
	for _, unknown := range []string{"openai", "Echo", "%00", "%2F", "%ff", "ÄÖ", strings.Repeat("a", 1000)} {
		o.refused(t, errcode.NotFound, "", http.MethodPut, "/provider-keys/"+unknown, "owner", `{"key":"sk-a"}`)
		o.refused(t, errcode.NotFound, "", http.MethodDelete, "/provider-keys/"+unknown, "owner", "")
	}
	o.refused(t, errcode.NotFound, "", http.MethodDelete, "/provider-keys/echo", "stranger", "") // nothing of another organization is touched
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/provider-keys/echo", "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, "/provider-keys/echo", "owner", "")

	// A provider that was taken out of the configuration: its key can still be deleted.
	require.NoError(t, o.DB.ProviderKeys.Put(t.Context(), "test", store.ProviderKey{OrgID: "org_1", Provider: "gone", Sealed: []byte{1}}))
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/provider-keys/gone", "owner", "")
}

// The models of a key hold from the next request on. A key gives no other key more models than it has.
func TestModelsOfAPIKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.withRealKeys()
	o.Now = time.Now
	owner := o.realKey(t, store.Live, identity.AllScopes()...)
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", owner,
		`{"scopes":["api_keys:read","api_keys:write","agents:read","agents:write"],"models":["echo/b","echo/b"]}`)
	one, key := "/api-keys/"+made["id"].(string), made["key"].(string)
	require.Equal(t, []any{"echo/b"}, made["models"])
	models := func() (ids []any) {
		for _, model := range o.ask(t, http.StatusOK, http.MethodGet, "/agents/models", key, "")["data"].([]any) {
			ids = append(ids, model.(map[string]any)["id"])
		}
		return ids
	}
	require.Equal(t, []any{"echo/b"}, models())
	o.refused(t, errcode.UnsupportedModel, "model", http.MethodPost, "/agents", key, `{"name":"x","model":"echo/a"}`)

	// What the key makes is within its own models.
	inherits := `{"scopes":["api_keys:read"]}`
	require.Equal(t, []any{"echo/b"}, o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", key, inherits)["models"])
	require.Equal(t, []any{}, o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", key, `{"scopes":["api_keys:read"],"models":[]}`)["models"])
	o.refused(t, errcode.Forbidden, "models", http.MethodPost, "/api-keys", key, `{"scopes":["api_keys:read"],"models":["echo/a"]}`)
	o.refused(t, errcode.Forbidden, "models", http.MethodPatch, one, key, `{"models":null}`)
	o.refused(t, errcode.Forbidden, "models", http.MethodPatch, one, key, `{"models":["echo/b","echo/a"]}`)
	require.Equal(t, []any{"echo/b"}, o.ask(t, http.StatusOK, http.MethodPatch, one, key, `{}`)["models"])

	for body, field := range map[string]string{
		`{"models":["echo/a","none"]}`: "models[1]", `{"models":[""]}`: "models[0]", `{"models":"echo/a"}`: "models", `{"models":[1]}`: "models[0]",
	} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodPatch, one, owner, body)
		o.refused(t, errcode.InvalidRequest, field, http.MethodPost, "/api-keys", owner, body)
	}
	require.Equal(t, []any{}, o.ask(t, http.StatusOK, http.MethodPatch, one, owner, `{"models":[]}`)["models"])
	require.Empty(t, models())
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodPatch, one, "user:owner", `{"models":null}`)["models"])
	require.Contains(t, models(), "echo/a")
	o.refused(t, errcode.Forbidden, "", http.MethodPatch, one, "user:member", `{"models":[]}`)
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, owner, "")
	o.refused(t, errcode.Conflict, "", http.MethodPatch, one, owner, `{"models":[]}`)
}

// The bounds of a key are changed by themselves. A key gives no key larger ones than it has.
func TestBoundsOfAPIKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.withRealKeys()
	o.Now = time.Now
	owner := o.realKey(t, store.Live, identity.AllScopes()...)
	bounds := func(object map[string]any) []any {
		return []any{object["requestsPerMinute"], object["maxConcurrent"], object["models"]}
	}
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", owner,
		`{"scopes":["api_keys:read","api_keys:write"],"requestsPerMinute":60,"maxConcurrent":4}`)
	one, key := "/api-keys/"+made["id"].(string), made["key"].(string)
	require.Equal(t, []any{60., 4., nil}, bounds(made))
	inherited := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", key, `{"scopes":["api_keys:read"],"maxConcurrent":3}`)
	require.Equal(t, []any{60., 3., nil}, bounds(inherited))
	for body, field := range map[string]string{
		`{"requestsPerMinute":61}`: "requestsPerMinute", `{"requestsPerMinute":null}`: "requestsPerMinute",
		`{"maxConcurrent":5}`: "maxConcurrent", `{"maxConcurrent":null}`: "maxConcurrent",
	} {
		o.refused(t, errcode.Forbidden, field, http.MethodPatch, one, key, body)
	}
	require.Equal(t, []any{59., 4., nil}, bounds(o.ask(t, http.StatusOK, http.MethodPatch, one, key, `{"requestsPerMinute":59}`)))
	for _, field := range []string{"requestsPerMinute", "maxConcurrent"} {
		for _, value := range []string{"0", "-1", "1.5", `"2"`, "1e30", "9223372036854775808"} {
			o.refused(t, errcode.InvalidRequest, field, http.MethodPatch, one, owner, `{"`+field+`":`+value+`}`)
			o.refused(t, errcode.InvalidRequest, field, http.MethodPost, "/api-keys", owner, `{"`+field+`":`+value+`}`)
		}
	}
	require.Equal(t, []any{59., 4., []any{}}, bounds(o.ask(t, http.StatusOK, http.MethodPatch, one, owner, `{"models":[]}`)))
	require.Equal(t, []any{nil, 4., []any{}}, bounds(o.ask(t, http.StatusOK, http.MethodPatch, one, owner, `{"requestsPerMinute":null}`)))
	require.Equal(t, []any{nil, nil, []any{}}, bounds(o.ask(t, http.StatusOK, http.MethodPatch, one, owner, `{"maxConcurrent":null}`)))
}

// A key that was made with an API key expires with that one at the latest, and every key names its maker.
func TestKeysOfKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	end := time.Now().Add(48 * time.Hour).UnixMilli()
	require.NoError(t, o.DB.APIKeys.Create(t.Context(), "cli:root", store.APIKey{
		ID: "key_1", OrgID: "org_1", Env: store.Live, Name: "maker", Hash: [32]byte{1}, ExpiresAt: sql.NullInt64{Int64: end, Valid: true},
	}))
	o.Now = time.Now
	create := func(status int, principal, body string) map[string]any {
		return o.ask(t, status, http.MethodPost, "/api-keys", principal, body)
	}
	made := create(http.StatusCreated, "owner", `{"name":"a"}`)
	require.Equal(t, endpoint.Timestamp(end), made["expiresAt"])
	require.Equal(t, []any{"key_1", "maker"}, []any{made["createdBy"], made["createdByName"]})
	require.Less(t, create(http.StatusCreated, "owner", `{"name":"b","expiresInDays":1}`)["expiresAt"].(string), endpoint.Timestamp(end))
	o.refused(t, errcode.InvalidRequest, "expiresInDays", http.MethodPost, "/api-keys", "owner", `{"name":"c","expiresInDays":3}`)
	byPerson := create(http.StatusCreated, "user:owner", `{"name":"d"}`)
	require.Nil(t, byPerson["expiresAt"])
	require.Equal(t, []any{"usr_owner", "owner@example.com"}, []any{byPerson["createdBy"], byPerson["createdByName"]})
	first := o.ask(t, http.StatusOK, http.MethodGet, "/api-keys/key_1", "owner", "")
	require.Equal(t, []any{"operator", nil}, []any{first["createdBy"], first["createdByName"]})
	require.NoError(t, o.DB.APIKeys.Revoke(t.Context(), "cli:root", "org_1", "key_1"))
	o.refused(t, errcode.InvalidRequest, "expiresInDays", http.MethodPost, "/api-keys", "owner", `{"name":"e"}`)
}
