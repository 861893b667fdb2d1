package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// steered is a fixture with one clock, 10,000 micros in org_1's live wallet, and a key and an agent.
func steered(t *testing.T) (o *fixture, keyID, agentID string) {
	t.Helper()
	o = newFixture(t)
	*o.now = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC) // a Monday
	o.Now = func() time.Time { return *o.now }
	_, err := o.Book.Credit(t.Context(), "cli", liveWallet, 10_000, "pay")
	require.NoError(t, err)
	keyID = o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "owner", `{"name":"shop"}`)["id"].(string)
	return o, keyID, o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"lan","model":"echo/a"}`)["id"].(string)
}

// spends lets a call with a key reserve an amount and, 10 minutes later, cost 10 micros for each token.
func (o *fixture) spends(t *testing.T, callID, keyID string, reserved, tokens int64) error {
	t.Helper()
	part := &billing.Budgeted{KeyID: keyID, Version: 1}
	_, err := o.Book.Hold(t.Context(), billing.Hold{CallID: callID, Wallet: liveWallet, AmountMicros: reserved, ExpiresIn: time.Hour, Budgets: part})
	if err != nil {
		return err
	}
	*o.now = o.now.Add(10 * time.Minute)
	_, err = o.Book.Settle(t.Context(), billing.Settlement{
		Call: billing.Call{
			ID: callID, Wallet: liveWallet, KeyID: keyID, Model: "echo/a", UsageSource: billing.UsageProvider, Usage: billing.Usage{CompletionTokens: tokens},
		},
		ReservedMicros: reserved, Price: billing.Price{CachedInput: -1, Output: 10_000_000}, Budgets: part,
	})
	return err
}

// TestBudgets: a budget from its creation to its end, as people and keys see it.
func TestBudgets(t *testing.T) {
	t.Parallel()
	o, keyID, agentID := steered(t)
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/wallet/budgets", "user:administrator", `{"name":"shop","keyId":"`+keyID+`","period":"day","limitMicros":"1000"}`)
	one := "/wallet/budgets/" + made["id"].(string)
	want := map[string]any{
		"id": made["id"], "name": "shop", "environment": "live", "keyId": keyID, "agentId": nil, "period": "day", "limitMicros": "1000",
		"risenMicros": "0", "spentMicros": "0", "reservedMicros": "0", "roomMicros": "1000", "thresholds": []any{50., 80., 100.},
		"beginsAt": "2026-11-02T12:00:00.000Z", "endsAt": "2026-11-03T00:00:00.000Z", "fullAt": nil, "refusedSince": nil,
		"createdAt": "2026-11-02T12:00:00.000Z", "rises": []any{},
	}
	require.Equal(t, want, made)
	for _, body := range []string{
		`{"name":"all","period":"total","limitMicros":"9223372036854775807","thresholds":[90]}`, `{"name":"all","period":"month","limitMicros":"5000"}`,
		`{"name":"lan","agentId":"` + agentID + `","period":"week","limitMicros":"1"}`, `{"name":"t","period":"day","limitMicros":"1","environment":"test"}`,
	} {
		other := o.ask(t, http.StatusCreated, http.MethodPost, "/wallet/budgets", "owner", body)
		require.Equal(t, other["period"] == "total", other["endsAt"] == nil)
	}
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/budgets", "user:member", "")["data"], 4)
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/budgets?environment=test", "user:member", "")["data"], 1)
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/budgets", "test", "")["data"], 1)
	o.refused(t, errcode.InvalidRequest, "environment", http.MethodGet, "/wallet/budgets?environment=test", "owner", "")

	require.NoError(t, o.spends(t, "call_1", keyID, 400, 25))
	want["spentMicros"], want["roomMicros"], want["fullAt"] = "250", "750", "2026-11-02T12:40:00.000Z"
	require.Equal(t, want, o.ask(t, http.StatusOK, http.MethodGet, one, "owner", ""))
	require.NoError(t, o.spends(t, "call_2", keyID, 500, 50))
	require.ErrorContains(t, o.spends(t, "call_3", keyID, 500, 1), `The budget "shop" has too little left`)
	*o.now = o.now.Add(time.Minute)
	require.Error(t, o.spends(t, "call_3", keyID, 251, 1))
	full := o.ask(t, http.StatusOK, http.MethodGet, one, "owner", "")
	require.Equal(t, "2026-11-02T12:20:00.000Z", full["refusedSince"], "the first of them")

	changed := o.ask(t, http.StatusOK, http.MethodPatch, one, "user:owner", `{"limitMicros":"700","name":"less","thresholds":[]}`)
	require.Equal(t, []any{"less", "700", "-50", []any{}, nil}, []any{
		changed["name"], changed["limitMicros"], changed["roomMicros"], changed["thresholds"], changed["refusedSince"],
	}, "below what is spent")
	require.Error(t, o.spends(t, "call_3", keyID, 1, 0))
	rise := o.ask(t, http.StatusCreated, http.MethodPost, one+"/rises", "user:owner", `{"amountMicros":"300","endsAt":"2026-11-02T20:00:00+07:00","reason":"a fair"}`)
	require.Equal(t, map[string]any{
		"id": rise["id"], "amountMicros": "300", "endsAt": "2026-11-02T13:00:00.000Z", "inEffect": true, "reason": "a fair", "createdBy": "usr_owner",
		"createdAt": "2026-11-02T12:21:00.000Z",
	}, rise)
	raised := o.ask(t, http.StatusOK, http.MethodGet, one, "owner", "")
	require.Equal(t, []any{"700", "300", "250", nil, []any{rise}}, []any{
		raised["limitMicros"], raised["risenMicros"], raised["roomMicros"], raised["refusedSince"], raised["rises"],
	})
	require.NoError(t, o.spends(t, "call_3", keyID, 250, 1))
	o.ask(t, http.StatusNoContent, http.MethodDelete, one+"/rises/"+rise["id"].(string), "user:owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, one+"/rises/"+rise["id"].(string), "user:owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, one+"/rises/x%20y", "user:owner", "")
	ended := o.ask(t, http.StatusOK, http.MethodGet, one, "owner", "")
	require.Equal(t, "0", ended["risenMicros"])
	require.Equal(t, false, ended["rises"].([]any)[0].(map[string]any)["inEffect"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, "user:owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodPatch, one, "user:owner", `{"name":"again"}`)
	require.NoError(t, o.spends(t, "call_4", keyID, 2000, 1), "only the organization's budget of the month is left")
	require.Equal(t, "budget.end budget.end_rise budget.raise budget.change", actionsOf(t, o, made["id"].(string), 4))
}

func actionsOf(t *testing.T, o *fixture, id string, most int) string {
	t.Helper()
	entries, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	var actions []string
	for _, e := range entries {
		if e.Target == id && len(actions) < most {
			actions = append(actions, e.Action)
		}
	}
	return strings.Join(actions, " ")
}

// TestBudgetsRefused: each wrong input is an error with the field's name that says what to do, and a key can't lift its own budget.
func TestBudgetsRefused(t *testing.T) {
	t.Parallel()
	o, keyID, agentID := steered(t)
	theirs := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "stranger", `{"name":"theirs"}`)["id"].(string)
	test := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "owner", `{"name":"t","environment":"test"}`)["id"].(string)
	revoked := o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", "owner", `{"name":"old"}`)["id"].(string)
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/api-keys/"+revoked, "owner", "")
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/wallet/budgets", "user:owner", `{"name":"n","period":"day","limitMicros":"9223372036854775807"}`)
	one := "/wallet/budgets/" + made["id"].(string)
	for _, c := range []struct {
		body, field string
		code        errcode.Code
	}{
		{`{"name":"n","period":"day","limitMicros":"0"}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"-1"}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"9223372036854775808"}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1e6"}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":1}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"day"}`, "limitMicros", errcode.InvalidRequest},
		{`{"name":"n","period":"year","limitMicros":"1"}`, "period", errcode.InvalidRequest},
		{`{"name":" ","period":"day","limitMicros":"1"}`, "name", errcode.InvalidRequest},
		{`{"name":"` + strings.Repeat("ế", 100) + `","period":"day","limitMicros":"1"}`, "name", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","thresholds":[80,50]}`, "thresholds", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","thresholds":[101]}`, "thresholds", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","thresholds":[1e18]}`, "thresholds", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","keyId":"key_none"}`, "keyId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","keyId":"' OR 1"}`, "keyId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","keyId":"` + revoked + `"}`, "keyId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","keyId":"` + test + `"}`, "keyId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","keyId":"` + theirs + `"}`, "keyId", errcode.Forbidden},
		{`{"name":"n","period":"day","limitMicros":"1","agentId":"agt_none"}`, "agentId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1","agentId":"` + agentID + `","keyId":"` + keyID + `"}`, "agentId", errcode.InvalidRequest},
		{`{"name":"n","period":"day","limitMicros":"1"}`, "period", errcode.Conflict},
	} {
		o.refused(t, c.code, c.field, http.MethodPost, "/wallet/budgets", "user:owner", c.body)
	}
	o.refused(t, errcode.InvalidRequest, "limitMicros", http.MethodPatch, one, "user:owner", `{"limitMicros":"0"}`)
	o.refused(t, errcode.InvalidRequest, "thresholds", http.MethodPatch, one, "user:owner", `{"thresholds":[0]}`)
	o.refused(t, errcode.Forbidden, "", http.MethodPatch, one, "stranger", `{"limitMicros":"1"}`)
	for body, field := range map[string]string{
		`{"amountMicros":"0","endsAt":"2100-01-01T00:00:00Z","reason":"r"}`:  "amountMicros",
		`{"amountMicros":"1","endsAt":"2100-01-01T00:00:00Z","reason":"r"}`:  "amountMicros", // beyond int64 with the limit
		`{"amountMicros":"1","endsAt":"2000-01-01T00:00:00Z","reason":"r"}`:  "endsAt",
		`{"amountMicros":"1","endsAt":"tomorrow","reason":"r"}`:              "endsAt",
		`{"amountMicros":"1","endsAt":"2100-01-01T00:00:00Z","reason":"  "}`: "reason",
	} {
		o.refused(t, errcode.InvalidRequest, field, http.MethodPost, one+"/rises", "user:owner", body)
	}
	require.Equal(t, "budget.create", actionsOf(t, o, made["id"].(string), 9), "nothing was changed")

	own := o.realKey(t, store.Live, identity.AllScopes()...)
	o.withRealKeys()
	principal, err := o.Authenticator.Authenticate(t.Context(), own)
	require.NoError(t, err)
	body := `{"name":"own","period":"day","limitMicros":"1","keyId":"` + principal.KeyID + `"}`
	mine := o.ask(t, http.StatusCreated, http.MethodPost, "/wallet/budgets", own, body)["id"].(string)
	for method, path := range map[string]string{http.MethodPatch: "", http.MethodDelete: "", http.MethodPost: "/rises"} {
		a := o.refused(t, errcode.Forbidden, "", method, "/wallet/budgets/"+mine+path, own, `{"amountMicros":"1","endsAt":"2100-01-01T00:00:00Z","reason":"r"}`)
		require.Contains(t, a.Text, "its own budget")
	}
	require.Contains(t, o.refused(t, errcode.Forbidden, "", http.MethodPost, "/api-keys", own, `{"name":"free"}`).Text, "has a budget")
	o.ask(t, http.StatusOK, http.MethodPatch, one, own, `{"name":"of all"}`)
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/wallet/budgets/"+mine, "user:owner", "")
	o.ask(t, http.StatusCreated, http.MethodPost, "/api-keys", own, `{"name":"free"}`)
}

// TestOperatorsBudgets: the operator steers the budgets of an organization, found by the budget's id.
func TestOperatorsBudgets(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	_, key := operatorKey(t, o.DB, "billing", nil, "wallet:read", "wallet:write")
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/operator/organizations/org_1/wallet/budgets", key, `{"name":"n","period":"month","limitMicros":"5"}`)
	one := "/operator/organizations/-/wallet/budgets/" + made["id"].(string)
	require.Equal(t, "7", o.ask(t, http.StatusOK, http.MethodPatch, one, key, `{"limitMicros":"7"}`)["limitMicros"])
	rise := o.ask(t, http.StatusCreated, http.MethodPost, one+"/rises", key, `{"amountMicros":"1","endsAt":"2100-01-01T00:00:00Z","reason":"r"}`)
	require.Equal(t, "operator", rise["createdBy"])
	o.ask(t, http.StatusNoContent, http.MethodDelete, one+"/rises/"+rise["id"].(string), key, "")
	o.refused(t, errcode.Forbidden, "", http.MethodGet, "/operator/organizations/org_2/wallet/budgets/"+made["id"].(string), key, "")
	require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/operator/organizations/org_1/wallet/budgets", key, "")["data"], 1)
	o.ask(t, http.StatusNoContent, http.MethodDelete, one, key, "")
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, "/operator/organizations/org_1/wallet/budgets", key, "")["data"])
}
