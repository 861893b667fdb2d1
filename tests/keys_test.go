package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestKeys guarantees docs/contract.md#keys-and-scopes row by row: the key alone decides whether a call is allowed, and every
// other request is refused with the code of its kind of fault.
func TestKeys(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	body := prompt(modelStd, "hi", false)
	nobody := p.withKey("")

	t.Run("either header carries the key", func(t *testing.T) {
		for _, headers := range [][]string{
			{"Authorization", "Bearer " + c.Key},
			{"Authorization", "bearer " + c.Key},
			{"X-Api-Key", c.Key},
			{"X-Api-Key", c.Key, "Authorization", "Bearer sk-dummy-of-a-library"},
			{"X-Api-Key", c.Key, "Authorization", "Basic dXNlcjpwYXNz"},
		} {
			require.Equal(t, http.StatusOK, nobody.get(t, "/v1/models", headers...).Status, "%q", headers)
			requireCompletion(t, nobody.chat(t, body, headers...), modelStd)
		}
	})

	t.Run("no key", func(t *testing.T) {
		for _, headers := range [][]string{nil, {"Authorization", "Basic dXNlcjpwYXNz"}, {"Authorization", "Token x"}} {
			requireError(t, nobody.get(t, "/v1/models", headers...), "unauthenticated")
			requireError(t, nobody.chat(t, body, headers...), "unauthenticated")
		}
		requireError(t, nobody.get(t, "/v1/models?api_key="+c.Key), "unauthenticated")
		requireError(t, nobody.chat(t, "{no JSON"), "unauthenticated")
	})

	_, expired := c.newKey(t, identity.KeyRequest{ExpiresAt: ago(time.Hour)})
	swapped := swapCase(c.Key[len("ck_live_"):])
	for name, key := range map[string]string{
		"foreign":      "sk-proj-abcdef",
		"unknown":      unknownKey(),
		"prefix only":  "ck_live_",
		"other prefix": "ck_prod_" + strings.TrimPrefix(c.Key, "ck_live_"),
		"other env":    "ck_test_" + strings.TrimPrefix(c.Key, "ck_live_"),
		"truncated":    c.Key[:len(c.Key)-1],
		"extended":     c.Key + "a",
		"other case":   "ck_live_" + swapped,
		"very long":    "ck_live_" + strings.Repeat("a", 6000),
		"SQL":          "ck_live_' OR 1=1 --",
		"not ASCII":    "ck_live_" + strings.Repeat("\u00e9", 20),
		"expired":      expired,
	} {
		t.Run("invalid: "+name, func(t *testing.T) {
			for _, header := range []string{"Authorization", "X-Api-Key"} {
				value := key
				if header == "Authorization" {
					value = "Bearer " + key
				}
				e := requireError(t, nobody.get(t, "/v1/models", header, value), "invalid_api_key")
				require.NotContains(t, e.Message, key)
				requireError(t, nobody.chat(t, body, header, value), "invalid_api_key")
			}
		})
	}

	t.Run("a header given twice", func(t *testing.T) {
		for _, header := range []string{"Authorization", "X-Api-Key"} {
			r, err := nobody.request(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
			require.NoError(t, err)
			value := c.Key
			if header == "Authorization" {
				value = "Bearer " + c.Key
			}
			r.Header[header] = []string{value, value}
			requireError(t, do(t, nobody, r), "invalid_api_key")
		}
	})

	t.Run("scopes", func(t *testing.T) {
		_, reader := c.newKey(t, identity.KeyRequest{Scopes: []string{"models:read"}})
		require.Equal(t, http.StatusOK, p.withKey(reader).get(t, "/v1/models").Status)
		requireError(t, p.withKey(reader).chat(t, body), "insufficient_scope")
		requireError(t, p.withKey(reader).get(t, "/wallet"), "insufficient_scope")
		_, writer := c.newKey(t, identity.KeyRequest{Scopes: []string{"chat:write"}})
		requireError(t, p.withKey(writer).get(t, "/v1/models"), "insufficient_scope")
		requireCompletion(t, p.withKey(writer).chat(t, body), modelStd)
	})

	t.Run("the order of checks: key, suspension, scope, rate, body", func(t *testing.T) {
		other := p.operator().customer(t, 0)
		organizations := p.operator().db.Organizations
		_, narrow := other.newKey(t, identity.KeyRequest{Scopes: []string{"models:read"}})
		require.NoError(t, organizations.SetSuspended(t.Context(), actor, other.OrgID, true, ""))
		requireError(t, p.withKey(narrow).chat(t, "{no JSON"), "organization_suspended")
		require.NoError(t, organizations.SetSuspended(t.Context(), actor, other.OrgID, false, ""))
		requireError(t, p.withKey(narrow).chat(t, "{no JSON"), "insufficient_scope")
		requireError(t, p.as(other).chat(t, "{no JSON"), "invalid_request")
		requireError(t, p.as(other).chat(t, prompt("no/pe", "hi", false)), "unsupported_model")
		requireError(t, p.as(other).chat(t, body), "insufficient_credits")
	})
}

func ago(d time.Duration) *time.Time {
	moment := time.Now().Add(-d)
	return &moment
}

// unknownKey returns a well-formed key that was never created.
func unknownKey() string {
	raw, _, _ := identity.NewKey(store.Live)
	return raw
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := strings.ToLower(string(r)); lower != string(r) {
			return []rune(lower)[0]
		}
		return []rune(strings.ToUpper(string(r)))[0]
	}, s)
}

// do sends a request that was made by hand.
func do(t testing.TB, c *client, r *http.Request) answer {
	t.Helper()
	response, err := c.http.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	a := answer{Status: response.StatusCode, Header: response.Header}
	a.Body, a.Broken = readAll(response)
	require.NoError(t, a.Broken)
	return a
}

// TestCommandsHoldAtTheNextRequest guarantees that what the command line does in a process of its own, to keys,
// organizations, plans and models, holds at the very next request. The
// customer, too, is made by commands.
func TestCommandsHoldAtTheNextRequest(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		p := startProduct(t, deploy(t, engine, up))
		body := prompt(modelStd, "hi", false)

		org := p.svc(t, "org", "create", "--name", "By Command")["id"].(string)
		key := p.svc(t, "key", "create", "--org", org, "--name", "first", "--scopes", "models:read,chat:write,wallet:read")
		require.Regexp(t, `^ck_live_`, key["key"])
		as := p.withKey(key["key"].(string))

		requireError(t, as.chat(t, body), "insufficient_credits")
		p.svc(t, "wallet", "credit", "--org", org, "--micros", "1000000", "--ref", "invoice-1")
		again := p.svc(t, "wallet", "credit", "--org", org, "--micros", "1000000", "--ref", "invoice-1")
		require.Equal(t, true, again["replayed"])
		done := requireCompletion(t, as.chat(t, body), modelStd)
		require.EqualValues(t, usualCharge, done.charged(t))
		p.await("a tranche to be given back", patience, func() bool {
			return p.svc(t, "wallet", "show", "--org", org)["heldMicros"] == "0"
		})
		require.Equal(t, fmt.Sprint(1_000_000-usualCharge), p.svc(t, "wallet", "show", "--org", org)["balanceMicros"])
		a := as.get(t, "/wallet")
		require.Equal(t, http.StatusOK, a.Status)
		require.JSONEq(t, fmt.Sprintf(`{"environment":"live","balanceMicros":"%d","heldMicros":"0"}`, 1_000_000-usualCharge), string(a.Body))

		p.svc(t, "model", "disable", "--org", org, modelStd)
		requireError(t, as.chat(t, body), "unsupported_model")
		require.NotContains(t, string(as.get(t, "/v1/models").Body), `"`+modelStd+`"`)
		requireError(t, as.get(t, "/v1/models/"+modelStd), "not_found")
		p.svc(t, "model", "enable", "--org", org, modelStd)
		requireCompletion(t, as.chat(t, body), modelStd)

		p.svc(t, "org", "suspend", org, "--reason", "unpaid")
		requireError(t, as.chat(t, body), "organization_suspended")
		requireError(t, as.get(t, "/v1/models"), "organization_suspended")
		p.svc(t, "org", "resume", org)
		requireCompletion(t, as.chat(t, body), modelStd)

		p.svc(t, "org", "set-plan", org, "--plan", planTight)
		a = as.get(t, "/v1/models")
		require.Equal(t, "5", a.Header.Get("X-Ratelimit-Limit-Requests"))
		p.svc(t, "org", "set-plan", org, "--plan", planDefault)

		past := p.svc(t, "key", "create", "--org", org, "--name", "past", "--expires-at", "2020-01-01T00:00:00Z")
		requireError(t, p.withKey(past["key"].(string)).get(t, "/v1/models"), "invalid_api_key")
		test := p.svc(t, "key", "create", "--org", org, "--env", "test", "--expires-in-days", "3")
		require.Regexp(t, `^ck_test_`, test["key"])
		requireError(t, p.withKey(test["key"].(string)).chat(t, body), "insufficient_credits")

		p.svc(t, "key", "revoke", key["id"].(string))
		requireError(t, as.chat(t, body), "api_key_revoked")
		requireError(t, as.get(t, "/v1/models"), "api_key_revoked")

		// A raw key is shown once, when it is made.
		list, err := p.caddy("svc", "key", "list", "--org", org, "--config", p.configFile(), "--json")
		require.NoError(t, err)
		require.NotContains(t, list, key["key"])
		p.svc(t, "doctor")
	})
}

// TestRevocationIsImmediate guarantees that no request which begins after a revocation has returned is let in: while
// other requests of the same key keep every connection and statement warm, each new key is revoked and refused.
func TestRevocationIsImmediate(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		p := startProduct(t, deploy(t, engine, startUpstream(t)))
		c := p.operator().customer(t, 0)
		db := p.operator().db
		together(4, func(int) {
			for range 25 {
				key, err := identity.CreateAPIKey(t.Context(), db, actor, identity.KeyRequest{OrgID: c.OrgID})
				if !failOn(t, err) {
					return
				}
				as := p.withKey(key.Raw)
				before, err := as.try(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
				if !failOn(t, err) || !failOn(t, db.APIKeys.Revoke(t.Context(), actor, c.OrgID, key.ID)) {
					return
				}
				after, err := as.try(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
				if !failOn(t, err) {
					return
				}
				if before.Status != http.StatusOK || !strings.Contains(string(after.Body), "api_key_revoked") {
					t.Errorf("before the revocation %d, after it %d %s", before.Status, after.Status, after.Body)
				}
			}
		})
	})
}

// failOn marks the test failed for an error, from any goroutine.
func failOn(t testing.TB, err error) (fine bool) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}
