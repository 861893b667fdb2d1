package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// forTestKeys are all operations that a key of the test environment may use. An operation belongs here if it changes only what has
// an environment, and there only test, or if it reads neither what customers wrote nor what opens another system.
var forTestKeys = []string{
	"POST /api-keys", "GET /api-keys", "GET /api-keys/{id}", "PATCH /api-keys/{id}", "DELETE /api-keys/{id}",
	"GET /wallet", "GET /wallet/transactions", "GET /wallet/calls", "GET /wallet/spend",
	"GET /wallet/calls/{id}", "GET /wallet/statements", "GET /wallet/statements/{month}", "GET /wallet/usage-events", "GET /wallet/budgets",
	"GET /agents", "GET /agents/models", "GET /agents/{id}", "POST /agents/{id}/playground",
	"GET /knowledge-bases", "GET /knowledge-bases/{id}", "GET /knowledge-bases/{id}/search",
	"GET /knowledge-bases/{id}/documents", "GET /knowledge-bases/{id}/documents/{docId}",
	"GET /channels", "GET /channels/{id}",
}

// realKey creates a key of org_1 in the store and returns its raw text.
func (o *fixture) realKey(t *testing.T, env store.Env, scopes ...identity.Scope) string {
	t.Helper()
	request := identity.KeyRequest{OrgID: "org_1", Env: env}
	for _, scope := range scopes {
		request.Scopes = append(request.Scopes, string(scope))
	}
	key, err := identity.CreateAPIKey(t.Context(), o.DB, "cli:root", request)
	require.NoError(t, err)
	return key.Raw
}

// withRealKeys makes the API of the fixture look keys up in its store.
func (o *fixture) withRealKeys() {
	o.Authenticator = identity.NewAuthenticator(o.DB.APIKeys)
	o.Server = serve(o.Deps)
}

// Every operation × every kind of principal, with keys and sessions of the store: exactly those get in that the operation's
// registration names. A test key gets in nowhere else than in the operations of forTestKeys.
func TestMatrixOfRights(t *testing.T) {
	t.Parallel()
	var open []string
	for _, route := range newFixture(t).Routes() {
		if route.Public {
			continue
		}
		if route.TestKeys {
			open = append(open, route.Method+" "+route.Path)
		}
		o := newFixture(t)
		o.withRealKeys()
		keys := identity.AllScopes()
		others := slices.DeleteFunc(identity.AllScopes(), func(s identity.Scope) bool { return s == route.Scope })
		lacks := errcode.InsufficientScope
		if route.Scope == "" {
			lacks = errcode.Forbidden
		}
		matrix := map[string]errcode.Code{ // the error, "" for none
			"": errcode.Unauthenticated, o.realKey(t, store.Live, others...): lacks, o.realKey(t, store.Test, others...): lacks,
		}
		live, test := o.realKey(t, store.Live, keys...), o.realKey(t, store.Test, keys...)
		matrix[live], matrix[test] = "", errcode.Forbidden
		if route.TestKeys {
			matrix[test] = ""
		}
		if route.Scope == "" {
			matrix[live] = errcode.Forbidden
		} else if route.Method != http.MethodPost || route.Path != "/api-keys" { // where it can't give the scopes of a new key
			matrix[o.realKey(t, store.Live, route.Scope)] = ""
		}
		for _, role := range identity.Roles() {
			matrix["user:"+string(role)] = errcode.Forbidden
			if role.Has(route.Role) {
				matrix["user:"+string(role)] = ""
			}
		}
		for principal, code := range matrix {
			r := request(route.Method, pathOf(route, "x_unknown", map[string]string{"{docId}": "doc_unknown"}), principal, bodyFor(route))
			if code != "" {
				a := handlertest.RefusedWith(t, code, o.Serve, r)
				require.Equal(t, principal == test && route.Scope != "", strings.Contains(a.Text, "test environment"), "%s %s: %s", route.Method, route.Path, a.Text)
				continue
			}
			a := handlertest.Served(o.Serve, r)
			require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.Code, "%s %s: %s", route.Method, route.Path, a.Body)
		}
	}
	require.ElementsMatch(t, forTestKeys, open)
}

// A test key with all scopes asks for every operation of everything that its organization has, and nothing live is another
// afterwards.
func TestTestKeysChangeNothingLive(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	keys := o.Authenticator.(handlertest.Keyring)
	test := keys["stranger"]
	test.Env, test.KeyID = store.Test, "key_test"
	keys["stranger's test"] = test
	before, asked := o.liveState(t), 0
	for _, route := range o.Routes() {
		if route.Public || route.Scope == "" || strings.HasSuffix(route.Path, "/playground") { // TestPlaygroundOfATestKey
			continue
		}
		path := pathOf(route, idOf[groupOf(route.Path)], idOf)
		a := handlertest.Served(o.Serve, request(route.Method, path, "stranger's test", bodyFor(route)))
		switch {
		case route.Method != http.MethodGet && path != "/api-keys" || !slices.Contains(forTestKeys, route.Method+" "+route.Path):
			require.Equal(t, http.StatusForbidden, a.Code, "%s %s: %s", route.Method, path, a.Body)
		case strings.HasSuffix(route.Path, "/{month}"): // the wallet has no entries
			require.Equal(t, http.StatusNotFound, a.Code, "%s %s: %s", route.Method, path, a.Body)
		default:
			require.Less(t, a.Code, http.StatusBadRequest, "%s %s: %s", route.Method, path, a.Body)
		}
		asked++
	}
	require.Greater(t, asked, 50)
	require.Equal(t, before, o.liveState(t))
}

// liveState is [fixture.snapshot] without the test keys of org_2 and their creation.
func (o *fixture) liveState(t *testing.T) []any {
	t.Helper()
	all := o.snapshot(t)
	for i := range all {
		switch rows := all[i].(type) {
		case []store.APIKey:
			all[i] = slices.DeleteFunc(rows, func(key store.APIKey) bool { return key.Env == store.Test })
		case []store.AuditEntry:
			all[i] = slices.DeleteFunc(rows, func(e store.AuditEntry) bool { return e.Actor == "key_test" })
		}
	}
	return all
}

// A test key makes and revokes keys of the test environment and leaves live keys alone; a live key revokes both.
func TestTestKeysRevokeTestKeys(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.withRealKeys()
	o.Now = time.Now
	live, test := o.realKey(t, store.Live, identity.AllScopes()...), o.realKey(t, store.Test, identity.AllScopes()...)
	liveMade := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", live, `{"name":"live"}`)
	testMade := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", test, `{"name":"test"}`)
	require.Equal(t, "test", testMade["environment"])
	o.refused(t, errcode.Forbidden, "", http.MethodPost, "/api-keys", test, `{"name":"another","environment":"live"}`)

	o.refused(t, errcode.Forbidden, "", http.MethodDelete, "/api-keys/"+liveMade["id"].(string), test, "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, "/api-keys/key_unknown", test, "")
	o.refused(t, errcode.Forbidden, "", http.MethodPatch, "/api-keys/"+liveMade["id"].(string), test, `{"models":[]}`)
	o.ask(t, http.StatusOK, http.MethodPatch, "/api-keys/"+testMade["id"].(string), test, `{"models":[]}`)
	kept := o.ask(t, http.StatusOK, http.MethodGet, "/api-keys/"+liveMade["id"].(string), test, "")
	require.Nil(t, kept["revokedAt"])
	require.Nil(t, kept["models"])

	o.ask(t, http.StatusNoContent, http.MethodDelete, "/api-keys/"+testMade["id"].(string), test, "")
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/api-keys/"+liveMade["id"].(string), live, "")
	second := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", test, `{"name":"second"}`)
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/api-keys/"+second["id"].(string), live, "")
	o.refused(t, errcode.APIKeyRevoked, "", http.MethodGet, "/agents", second["key"].(string), "")
}
