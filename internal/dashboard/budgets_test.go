package dashboard

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestBudgetPages: a person limits a key, sees since when it refuses, raises it for a time, and ends both, without the script. A colleague only looks.
func TestBudgetPages(t *testing.T) {
	t.Parallel()
	dashboard, db := overRealAPI(t)
	people := map[identity.Role]*browser{}
	for _, role := range []identity.Role{identity.Owner, identity.Member} {
		b := &browser{dashboard, make(map[string]string)}
		_, link, err := identity.NewUsers(db).Invite(t.Context(), identity.Authority{Actor: "test", Role: identity.Owner}, "org_1", string(role)+"@shop.example", role)
		require.NoError(t, err)
		status, _, page := b.ask(t, http.MethodPost, "/dashboard/welcome", url.Values{"token": {link.Token}, "password": {"correct horse battery"}})
		require.Equal(t, http.StatusSeeOther, status, page)
		people[role] = b
	}
	b, mai := people[identity.Owner], people[identity.Member]
	_, _, page := b.ask(t, http.MethodPost, "/dashboard/keys", url.Values{"name": {"CRM"}, "environment": {"live"}, "scopes": {"chat:write"}})
	key := regexp.MustCompile(`key-revoke-(key_[a-z0-9]+)"`).FindStringSubmatch(page)[1]
	page = b.opens(t, "/dashboard/keys/"+key)
	require.Contains(t, page, `<option value="`+key+`">CRM</option>`, "the only key of the form")
	create := url.Values{"name": {"CRM"}, "limitMicros": {"0"}, "period": {"month"}, "keyId": {key}, "environment": {"live"}}
	status, _, page := b.ask(t, http.MethodPost, "/dashboard/wallet/budgets", create)
	require.Equal(t, http.StatusBadRequest, status)
	element(t, page, "budget-create-limitMicros-error")
	holds(t, page, "budget-create-name", "CRM")
	create.Set("limitMicros", "1.50")
	_, location, _ := b.ask(t, http.MethodPost, "/dashboard/wallet/budgets", create)
	one, _, _ := strings.Cut(location, "?")
	require.Contains(t, b.opens(t, location), `data-micros="1500000"`)

	book, wallet := billing.NewBook(db), billing.WalletID{OrgID: "org_1", Env: store.Live}
	_, err := book.Credit(t.Context(), "test", wallet, 9_000_000, "pay")
	require.NoError(t, err)
	hold := func(id string, micros int64) error {
		_, err := book.Hold(t.Context(), billing.Hold{
			CallID: id, Wallet: wallet, AmountMicros: micros, ExpiresIn: time.Minute, Budgets: &billing.Budgeted{KeyID: key, Version: 1},
		})
		return err
	}
	require.NoError(t, hold("call_1", 1_400_000))
	require.Error(t, hold("call_2", 200_000))
	for _, path := range []string{"/dashboard", "/dashboard/keys", "/dashboard/wallet/budgets", one, "/dashboard/keys/" + key} {
		require.Contains(t, b.opens(t, path), "refuses since", path)
		require.Contains(t, b.opens(t, path), `min="0" max="1500000" value="0"`, path)
	}
	require.Contains(t, b.opens(t, "/dashboard/keys/"+key), "Calls get 402 plan_limit_exceeded until")
	_, location, _ = b.ask(t, http.MethodPost, one, url.Values{"name": {"CRM"}, "limitMicros": {"1.70"}})
	page = b.opens(t, location)
	require.Contains(t, page, `data-micros="300000"`, "what the saved limit has freed")
	require.NotContains(t, page, "refuses since")

	raise := url.Values{"amountMicros": {"1"}, "endsAt": {"2020-01-01"}, "reason": {"a fair"}}
	status, _, page = b.ask(t, http.MethodPost, one+"/raise", raise)
	require.Equal(t, http.StatusBadRequest, status)
	element(t, page, "budget-raise-endsAt-error")
	require.NoError(t, db.Organizations.SetTimeZone(t.Context(), "test", "org_1", "Asia/Ho_Chi_Minh"))
	raise.Set("endsAt", "2099-01-31")
	_, location, _ = b.ask(t, http.MethodPost, one+"/raise", raise)
	page = b.opens(t, location)
	require.Contains(t, page, `datetime="2099-01-31T17:00:00.000Z"`, "the end of that day in the organization's zone")
	require.Contains(t, page, `data-micros="1300000"`)
	rise := regexp.MustCompile(`budget-lower-(rise_[a-z0-9]+)"`).FindStringSubmatch(page)[1]
	require.NotContains(t, mai.opens(t, one), "<form id=\"budget", "members look")
	require.NotContains(t, mai.opens(t, "/dashboard/wallet/budgets"), "<form id=\"budget")
	status, _, _ = mai.ask(t, http.MethodPost, one+"/end", url.Values{})
	require.Equal(t, http.StatusForbidden, status)
	_, location, _ = b.ask(t, http.MethodPost, one+"/lower", url.Values{"riseId": {rise}})
	require.Contains(t, b.opens(t, location), `data-micros="300000"`)
	_, location, _ = b.ask(t, http.MethodPost, one+"/end", url.Values{})
	require.Contains(t, b.opens(t, location), "No budget yet")
}

// TestKeyPage: what a key may use is changed on its page; all models and none are different.
func TestKeyPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /api-keys/key_1", http.StatusOK, keyJSON)
	r.answer("GET /agents/models", http.StatusOK, listOf(`{"id":"acme/a"}`))
	r.answer("PATCH /api-keys/key_1", http.StatusOK, keyJSON)
	require.Regexp(t, `value="\*" checked`, r.see(t, "/dashboard/keys/key_1"))
	for _, c := range []struct {
		models []string
		want   any
	}{{[]string{"", "*", "acme/a"}, nil}, {[]string{""}, []any{}}, {[]string{"", "acme/a"}, []any{"acme/a"}}} {
		requireTo(t, r.submit(t, "/dashboard/keys/key_1", url.Values{"models": c.models, "requestsPerMinute": {"60"}, "maxConcurrent": {""}}), "/dashboard/keys/key_1", "key-edit")
		require.Equal(t, map[string]any{"models": c.want, "requestsPerMinute": 60., "maxConcurrent": nil}, r.last(t, http.MethodPatch).body)
	}
}

// TestCallsAreFiltered: the filters of the address reach the API and stay in the form; wrong days are an error of theirs.
func TestCallsAreFiltered(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	query := "keyId=key_1&agentId=agt_1&model=echo%2Fa&outcome=completed&from=2026-11-01&to=2026-11-02&environment=test"
	page := r.see(t, "/dashboard/wallet/calls?"+query)
	want, err := url.ParseQuery(query)
	require.NoError(t, err)
	require.Equal(t, want, r.last(t, http.MethodGet).query)
	for name, value := range map[string]string{"model": "echo/a", "outcome": "completed", "from": "2026-11-01", "to": "2026-11-02"} {
		holds(t, page, "calls-filter-"+name, value)
	}
	require.Contains(t, page, `<option value="key_1" selected>Shop</option>`)
	require.Contains(t, page, "<details open>")
	r.refuse("GET /wallet/calls", http.StatusBadRequest, "invalid_request", "to", "to is before from.")
	page = r.see(t, "/dashboard/wallet/calls?from=2026-11-03&to=2026-11-02")
	element(t, page, "calls-filter-to-error")
}
