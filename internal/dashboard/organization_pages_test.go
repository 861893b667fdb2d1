package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	keyJSON = `{"id":"key_1","name":"Shop","environment":"live","scopes":["models:read","chat:write"],"hint":"ck_live_abcd",
		"createdAt":"2026-11-21T10:00:00.000Z","expiresAt":null,"revokedAt":null}`
	revokedKeyJSON = `{"id":"key_2","name":null,"environment":"test","scopes":["models:read"],"hint":"ck_test_efgh",
		"createdAt":"2026-11-20T10:00:00.000Z","expiresAt":"2027-11-20T10:00:00.000Z","revokedAt":"2026-11-21T10:00:00.000Z"}`
	providerKeyJSON = `{"provider":"acme","hint":"9xyz","updatedAt":"2026-11-21T10:00:00.000Z"}`
	memberJSON      = `{"id":"usr_1","email":"lan@shop.example","role":"owner","state":"active","createdAt":"2026-11-21T10:00:00.000Z"}`
	invitedJSON     = `{"id":"usr_2","email":"mai@shop.example","role":"member","state":"invited","createdAt":"2026-11-21T10:00:00.000Z",
		"link":"https://svc.example/dashboard/welcome#tok_1","linkExpiresAt":"2026-11-28T10:00:00.000Z"}`
	auditJSON        = `{"id":"aud_1","at":"2026-11-21T10:00:00.000Z","actor":"usr_1","action":"api_key.create","target":"key_1","detail":"Shop"}`
	organizationJSON = `{"id":"org_1","name":"Shop","plan":"free","suspended":false,"retentionDays":90,"timeZone":"Asia/Seoul","createdAt":"2026-01-01T00:00:00.000Z"}`
	walletJSON       = `{"environment":"live","balanceMicros":"12500000","heldMicros":"1200"}`
	spendJSON        = `{"environment":"live","from":"2026-11-01","to":"2026-11-30","data":[
		{"day":"2026-11-01","model":"echo/a","calls":2,"promptTokens":10,"completionTokens":20,"chargedMicros":"3000000"},
		{"day":"2026-11-30","model":"echo/a","calls":1,"promptTokens":1,"completionTokens":2,"chargedMicros":"1"},
		{"day":"2026-11-30","model":"echo/b","calls":1,"promptTokens":1,"completionTokens":2,"chargedMicros":"5999999"},
		{"day":"2026-11-30","model":"echo/free","calls":7,"promptTokens":1,"completionTokens":2,"chargedMicros":"0"}]}`
	transactionJSON = `{"id":"txn_1","at":"2026-11-21T10:00:00.000Z","kind":"charge","amountMicros":"-25","balanceMicros":"12500000",
		"callId":"call_1","reference":null,"reason":null}`
	eventEndpointJSON = `{"id":"evep_1","url":"https://crm.example.com/events","events":["wallet.low"],"state":"disabled",
		"disabledReason":"failing","failingSince":"2026-11-21T10:00:00.000Z"}`
	callJSON = `{"id":"call_1","at":"2026-11-21T10:00:00.000Z","durationMs":120,"model":"echo/a","outcome":"completed","promptTokens":3,
		"cachedPromptTokens":0,"completionTokens":4,"usageSource":"estimated","inputPriceMicros":"1000000","cachedPriceMicros":"1000000",
		"outputPriceMicros":"5500000","reservedMicros":"25","chargedMicros":"25","byok":false,"stream":true,"keyId":"key_1",
		"requestId":"req_1","agentId":null,"conversationId":null}`
)

// newFixture is all pages over an API that has one of everything; the visitor is an owner.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	r := newBareFixture(t)
	r.dashboard.config.Providers = []string{"acme", "other"}
	for request, body := range map[string]string{
		"GET /api-keys": listOf(keyJSON, revokedKeyJSON), "GET /provider-keys": listOf(providerKeyJSON),
		"GET /event-endpoints": listOf(eventEndpointJSON),
		"GET /members":         listOf(memberJSON, invitedJSON), "GET /members/usr_1": memberJSON, "GET /audit-log": listOf(auditJSON),
		"GET /session/all":           listOf(`{"current":true,"client":"Browser","createdAt":"2026-11-21T10:00:00.000Z","seenAt":"2026-11-21T10:00:00.000Z"}`),
		"GET /session/second-factor": `{"enabled":false,"recoveryCodes":0}`, "GET /organization": organizationJSON, "GET /wallet": walletJSON, "GET /wallet/top-ups": `{"data":[],"nextCursor":null}`, "GET /wallet/spend": spendJSON, "GET /wallet/statements": `{"data":[],"nextCursor":null}`, "GET /wallet/budgets": `{"data":[],"nextCursor":null}`,
		"GET /wallet/transactions": listOf(transactionJSON), "GET /wallet/calls": listOf(callJSON),
	} {
		r.answer(request, http.StatusOK, body)
	}
	return r
}

// open asks for a page, whatever the answer is.
func (r *fixture) open(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	return r.serve(t, httptest.NewRequest(http.MethodGet, path, nil))
}

// signedOut ends the visitor's session.
func (r *fixture) signedOut() {
	r.refuse("GET /session", http.StatusUnauthorized, "unauthenticated", "", "There is no API key and no login session.")
}

// An endpoint's secret is shown once, and why it was disabled always.
func TestEventsPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	require.Contains(t, r.see(t, "/dashboard/events"), "every delivery failed for three days")
	r.answer("POST /event-endpoints", http.StatusCreated, `{"id":"evep_2","url":"https://e.com","events":["wallet.low"],"secret":"whsec_raw"}`)
	w := r.submit(t, "/dashboard/events", url.Values{"url": {"https://e.com"}, "events": {"wallet.low"}})
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `<code id="new-secret">whsec_raw</code>`)
	require.Equal(t, map[string]any{"url": "https://e.com", "events": []any{"wallet.low"}}, r.last(t, http.MethodPost).body)
	w = r.submit(t, "/dashboard/events", url.Values{"url": {"https://e.com"}})
	element(t, w.Body.String(), "event-endpoint-create-events-error")
	r.refuse("POST /event-endpoints", http.StatusBadRequest, "invalid_request", "url", "url must begin with https://.")
	w = r.submit(t, "/dashboard/events", url.Values{"url": {"http://e.com"}, "events": {"wallet.low"}})
	requireErrorAt(t, w.Body.String(), "event-endpoint-create-url", "url must begin with https://.")
	holds(t, w.Body.String(), "event-endpoint-create-url", "http://e.com")

	r.answer("POST /event-endpoints/evep_1/test", http.StatusCreated, `{"eventId":"evt_1"}`)
	requireTo(t, r.submit(t, "/dashboard/events/test", url.Values{"id": {"evep_1"}}), "/dashboard/events", "event-endpoint-test")
	r.answer("PATCH /event-endpoints/evep_1", http.StatusOK, eventEndpointJSON)
	requireTo(t, r.submit(t, "/dashboard/events/activate", url.Values{"id": {"evep_1"}}), "/dashboard/events", "event-endpoint-activate")
	require.Equal(t, map[string]any{"state": "active"}, r.last(t, http.MethodPatch).body)
	r.answer("DELETE /event-endpoints/evep_1", http.StatusNoContent, "")
	requireTo(t, r.submit(t, "/dashboard/events/delete", url.Values{"id": {"evep_1"}}), "/dashboard/events", "event-endpoint-delete")
}

// The form takes minutes and credits. The API gets minutes and micros.
func TestEventBounds(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /organization", http.StatusOK, `{"waitingMinutes":15,"lowBalanceMicros":"2500000"}`)
	page := r.see(t, "/dashboard/events")
	holds(t, page, "event-bounds-waitingMinutes", "15")
	holds(t, page, "event-bounds-lowBalanceMicros", "2.50")
	r.answer("PATCH /organization", http.StatusOK, organizationJSON)
	typed := url.Values{"waitingMinutes": {"0"}, "lowBalanceMicros": {" 10 "}}
	requireTo(t, r.submit(t, "/dashboard/events/bounds", typed), "/dashboard/events", "event-bounds")
	require.Equal(t, map[string]any{"waitingMinutes": 0.0, "lowBalanceMicros": "10000000"}, r.last(t, http.MethodPatch).body)
	asked := r.count(http.MethodPatch)
	for name, wrong := range map[string]url.Values{
		"lowBalanceMicros": {"waitingMinutes": {"5"}, "lowBalanceMicros": {"much"}},
		"waitingMinutes":   {"waitingMinutes": {""}, "lowBalanceMicros": {"1"}},
	} {
		w := r.submit(t, "/dashboard/events/bounds", wrong)
		require.Equal(t, http.StatusBadRequest, w.Code)
		element(t, w.Body.String(), "event-bounds-"+name+"-error")
	}
	require.Equal(t, asked, r.count(http.MethodPatch))
}

// A key is shown once, after the answer that made it, and what was chosen goes to the API as it was chosen.
func TestKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("POST /api-keys", http.StatusCreated, `{"id":"key_3","name":"New","scopes":["wallet:read"],"key":"ck_live_raw"}`)
	w := r.submit(t, "/dashboard/keys", url.Values{
		"name": {"New"}, "environment": {"test"}, "scopes": {"wallet:read"}, "expiresInDays": {" 30 "}, "requestsPerMinute": {"60"},
	})
	require.Equal(t, http.StatusOK, w.Code)
	page := w.Body.String()
	require.Contains(t, page, `<code id="new-key">ck_live_raw</code>`)
	require.Contains(t, page, `data-copy="#new-key"`)
	require.Contains(t, page, "https://svc.example/v1")
	require.Equal(t, map[string]any{
		"name": "New", "environment": "test", "scopes": []any{"wallet:read"}, "expiresInDays": 30.0, "requestsPerMinute": 60.0, "maxConcurrent": nil,
	}, r.last(t, http.MethodPost).body)
	require.NotContains(t, r.see(t, "/dashboard/keys"), "new-key")

	r.submit(t, "/dashboard/keys", url.Values{"scopes": {"wallet:read"}})
	require.Equal(t, map[string]any{"environment": "", "scopes": []any{"wallet:read"}, "requestsPerMinute": nil, "maxConcurrent": nil},
		r.last(t, http.MethodPost).body)

	made := r.count(http.MethodPost)
	w = r.submit(t, "/dashboard/keys", url.Values{"name": {"None"}})
	requireErrorAt(t, w.Body.String(), "key-create-scopes", "Choose at least one scope.")
	require.Equal(t, made, r.count(http.MethodPost), "the API would take none for its default")
	require.Contains(t, w.Body.String(), `value="None"`)
	require.NotContains(t, w.Body.String(), " checked")
}

// The list shows what each key may use.
func TestBoundsOfKeysAreShown(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for members, want := range map[string][]string{
		``: {"all models"}, `"models":[],`: {"no model"}, `"models":["acme/a","acme/b"],"requestsPerMinute":60,`: {"acme/a, acme/b", "60 requests a minute"},
		`"maxConcurrent":4,`: {"all models", "4 calls at the same time"},
	} {
		r.answer("GET /api-keys", http.StatusOK, listOf(strings.Replace(keyJSON, `"hint"`, members+`"hint"`, 1)))
		page := r.see(t, "/dashboard/keys")
		for _, text := range want {
			require.Contains(t, page, text, members)
		}
		require.Equal(t, strings.Contains(members, "Minute"), strings.Contains(page, "requests a minute"))
	}
}

func TestRevokedKeysHaveNoButton(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	page := r.see(t, "/dashboard/keys")
	require.Contains(t, element(t, page, "key-revoke-key_1"), `action="/dashboard/keys/revoke"`)
	require.Contains(t, element(t, page, "key-revoke-key_1"), "data-confirm=")
	require.NotContains(t, page, "key-revoke-key_2")
	r.answer("DELETE /api-keys/key_1", http.StatusNoContent, "")
	requireTo(t, r.submit(t, "/dashboard/keys/revoke", url.Values{"id": {"key_1"}}), "/dashboard/keys", "key-revoke")
	require.Contains(t, r.see(t, "/dashboard/keys?done=key-revoke"), "The key is revoked")
	require.NotContains(t, r.see(t, "/dashboard/keys?done=<b>anything"), `id="notice"`, "an address can't make a page say something")
}

// What an action of a row is refused with stands in that row, and nowhere else.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /api-keys", http.StatusOK, listOf(keyJSON, strings.Replace(keyJSON, "key_1", "key_9", 1)))
	r.refuse("DELETE /api-keys/key_9", http.StatusForbidden, "forbidden", "", "Not this one.")
	w := r.submit(t, "/dashboard/keys/revoke", url.Values{"id": {"key_9"}})
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, 1, strings.Count(w.Body.String(), "Not this one."))
	element(t, w.Body.String(), "key-revoke-key_9-error")

	w = r.submit(t, "/dashboard/keys/revoke", url.Values{"id": {"key_gone"}})
	require.Equal(t, http.StatusNotFound, w.Code)
	element(t, w.Body.String(), "alert")
	r.submit(t, "/dashboard/keys/revoke", url.Values{"id": {"../members/usr_1"}})
	require.Equal(t, "/api-keys/../members/usr_1", r.last(t, http.MethodDelete).path, "one segment, which is nobody's id")
}

func TestProviderKeys(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("PUT /provider-keys/other", http.StatusOK, providerKeyJSON)
	requireTo(t, r.submit(t, "/dashboard/provider-keys", url.Values{"provider": {"other"}, "key": {"sk-1"}}), "/dashboard/provider-keys", "provider-key-set")
	require.Equal(t, map[string]any{"key": "sk-1"}, r.last(t, http.MethodPut).body)

	r.refuse("PUT /provider-keys/other", http.StatusBadRequest, "invalid_request", "key", "key is too long.")
	page := r.submit(t, "/dashboard/provider-keys", url.Values{"provider": {"other"}, "key": {"sk-secret"}}).Body.String()
	requireErrorAt(t, page, "provider-key-set-key", "key is too long.")
	holds(t, page, "provider-key-set-provider", "other")
	require.NotContains(t, page, "sk-secret")

	r.answer("DELETE /provider-keys/acme", http.StatusNoContent, "")
	requireTo(t, r.submit(t, "/dashboard/provider-keys/delete", url.Values{"provider": {"acme"}}), "/dashboard/provider-keys", "provider-key-delete")
	r.dashboard.config.Providers = nil
	require.Contains(t, r.see(t, "/dashboard/provider-keys"), "The operator has configured no provider.")
}

// The link is shown once, and both pages that make one say that no e-mail is sent.
func TestOneTimeLinks(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("POST /members", http.StatusCreated, invitedJSON)
	r.answer("POST /members/usr_1/link", http.StatusCreated, invitedJSON)
	for path, typed := range map[string]url.Values{
		"/dashboard/members":            {"email": {"mai@shop.example"}, "role": {"member"}},
		"/dashboard/members/usr_1/link": nil,
	} {
		require.NotContains(t, r.see(t, strings.TrimSuffix(path, "/link")), "tok_1")
		w := r.submit(t, path, typed)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), `<code id="new-link">https://svc.example/dashboard/welcome#tok_1</code>`)
		require.Contains(t, w.Body.String(), "no e-mail is sent")
	}
	r.refuse("POST /members", http.StatusBadRequest, "invalid_request", "email", "email must be an address.")
	w := r.submit(t, "/dashboard/members", url.Values{"email": {"nobody at all"}, "role": {"administrator"}})
	requireErrorAt(t, w.Body.String(), "member-invite-email", "email must be an address.")
	holds(t, w.Body.String(), "member-invite-email", "nobody at all")
	holds(t, w.Body.String(), "member-invite-role", "administrator")
}

func TestMember(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	holds(t, r.see(t, "/dashboard/members/usr_1"), "member-edit-role", "owner")
	r.answer("PATCH /members/usr_1", http.StatusOK, memberJSON)
	requireTo(t, r.submit(t, "/dashboard/members/usr_1", url.Values{"role": {"member"}}), "/dashboard/members/usr_1", "member-edit")
	require.Equal(t, map[string]any{"role": "member"}, r.last(t, http.MethodPatch).body)
	r.refuse("DELETE /members/usr_1", http.StatusConflict, "conflict", "", "This is the organization's last owner.")
	w := r.submit(t, "/dashboard/members/usr_1/remove", nil)
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), "This is the organization&#39;s last owner.")
	r.answer("DELETE /members/usr_1", http.StatusNoContent, "")
	requireTo(t, r.submit(t, "/dashboard/members/usr_1/remove", nil), "/dashboard/members", "member-remove")
	r.is("administrator")
	require.NotContains(t, r.see(t, "/dashboard/members"), `value="owner"`, "only owners make owners")
}

// The audit log shows users by name, and unknown actors by id.
func TestAuditLogNamesPeople(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /audit-log", http.StatusOK, listOf(auditJSON, strings.ReplaceAll(auditJSON, "usr_1", "operator")))
	page := r.see(t, "/dashboard/audit")
	require.Contains(t, page, "<td>lan@shop.example</td>")
	require.Contains(t, page, "<td>operator</td>")
	require.Contains(t, page, "<td>key_1</td>")
}

func TestOrganization(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	holds(t, r.see(t, "/dashboard/organization"), "organization-edit-retentionDays", "90")
	r.answer("PATCH /organization", http.StatusOK, organizationJSON)
	requireTo(t, r.submit(t, "/dashboard/organization", url.Values{"retentionDays": {"0"}}), "/dashboard/organization", "organization-edit")
	require.Equal(t, map[string]any{"retentionDays": 0.0}, r.last(t, http.MethodPatch).body)
	holds(t, r.see(t, "/dashboard/organization"), "organization-zone-timeZone", "Asia/Seoul")
	requireTo(t, r.submit(t, "/dashboard/organization/zone", url.Values{"timeZone": {"UTC"}}), "/dashboard/organization", "organization-zone")
	require.Equal(t, map[string]any{"timeZone": "UTC"}, r.last(t, http.MethodPatch).body)
	asked := r.count(http.MethodPatch)
	w := r.submit(t, "/dashboard/organization", url.Values{"retentionDays": {""}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	element(t, w.Body.String(), "organization-edit-retentionDays-error")
	require.Equal(t, asked, r.count(http.MethodPatch))
	r.refuse("PATCH /organization", http.StatusBadRequest, "invalid_request", "retentionDays", "retentionDays must be 0, or 7 to 3650.")
	w = r.submit(t, "/dashboard/organization", url.Values{"retentionDays": {"a month"}})
	require.Equal(t, map[string]any{"retentionDays": "a month"}, r.last(t, http.MethodPatch).body)
	requireErrorAt(t, w.Body.String(), "organization-edit-retentionDays", "retentionDays must be 0, or 7 to 3650.")
	holds(t, w.Body.String(), "organization-edit-retentionDays", "a month")
	r.is("member")
	page := r.see(t, "/dashboard/organization")
	require.NotContains(t, page, "organization-edit")
	require.NotContains(t, page, "organization-zone")
	require.Contains(t, page, "<dd>Asia/Seoul</dd>")
	require.Contains(t, page, "kept for 90 days")
}

// The first page lists what needs a person, and the first steps of a new organization.
func TestOverview(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	page := r.see(t, "/dashboard")
	require.Contains(t, element(t, page, "balance"), `data-micros="12500000"`)
	require.Contains(t, page, `data-micros="12500000">12.50 credits</strong>`)
	require.NotContains(t, page, "First steps")
	r.answer("GET /channels", http.StatusOK, listOf(strings.Replace(channelJSON, "active", "needs_reauth", 1)))
	r.answer("GET /conversations", http.StatusOK, strings.Replace(listOf(strings.Replace(conversationJSON, `"attention":null`, `"attention":"no_agent"`, 1)), "null}", `"more"}`, 1))
	page = r.see(t, "/dashboard")
	require.Contains(t, page, `href="/dashboard/channels/chn_1"`)
	require.Contains(t, page, `href="/dashboard/conversations/cnv_1"`)
	require.Contains(t, page, `href="/dashboard/conversations?waiting=true"`)
	r.answer("GET /channels", http.StatusOK, listOf())
	r.answer("GET /conversations", http.StatusOK, listOf())
	page = r.see(t, "/dashboard")
	require.Contains(t, page, "Nothing needs you at the moment.")
	require.Contains(t, page, "Connect a channel")
	r.is("member")
	require.NotContains(t, r.see(t, "/dashboard"), "Connect a channel", "members can't")
}

// The first page of a person whose password another person has reset says so, and names that person.
func TestPasswordResetIsShown(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	require.NotContains(t, r.see(t, "/dashboard"), "password-reset")
	for by, shown := range map[string]string{"mai@shop.example": "mai@shop.example", "operator": "the operator"} {
		r.answer("GET /session", http.StatusOK, `{"user":{"id":"usr_1","email":"lan@shop.example"},"organization":{"id":"org_1","name":"Shop"},
			"role":"member","passwordReset":{"by":"`+by+`","at":"2026-11-21T10:00:00.000Z"}}`)
		page := r.see(t, "/dashboard")
		require.Contains(t, page, `id="password-reset" role="alert"`)
		require.Contains(t, page, "with a one-time link that "+shown+" made")
		require.Contains(t, page, `datetime="2026-11-21T10:00:00.000Z"`)
	}
}

// An invitation that ended unused says so in the list and on its page, where a new link can be made.
func TestExpiredInvitation(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	open := strings.Replace(invitedJSON, `"createdAt"`, `"expiresAt":"2026-11-28T10:00:00.000Z","createdAt"`, 1)
	r.answer("GET /members/usr_2", http.StatusOK, open)
	require.Contains(t, r.see(t, "/dashboard/members"), "Invited: has set no password yet")
	page := r.see(t, "/dashboard/members/usr_2")
	require.Contains(t, page, `The invitation ends <time datetime="2026-11-28T10:00:00.000Z"`)
	ended := strings.Replace(open, `"invited"`, `"expired"`, 1)
	r.answer("GET /members", http.StatusOK, listOf(memberJSON, ended))
	r.answer("GET /members/usr_2", http.StatusOK, ended)
	page = r.see(t, "/dashboard/members")
	require.Contains(t, page, "The invitation has expired")
	require.NotContains(t, page, "has set no password yet")
	page = r.see(t, "/dashboard/members/usr_2")
	require.Contains(t, page, `the invitation expired <time datetime="2026-11-28T10:00:00.000Z"`)
	element(t, page, "member-link")
}

// The link of a person of one's own role would be a reset, which the API refuses: the page says so.
func TestNoResetOfOnesEqual(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for role, may := range map[string]bool{"owner": false, "administrator": true, "member": true} {
		r.answer("GET /members/usr_1", http.StatusOK, strings.Replace(memberJSON, `"role":"owner"`, `"role":"`+role+`"`, 1))
		page := r.see(t, "/dashboard/members/usr_1")
		require.Equal(t, may, strings.Contains(page, `id="member-link"`), role)
		require.Equal(t, !may, strings.Contains(page, "Only a person of a higher role, or the operator, can do that."), role)
	}
}

// A key names its maker, by the name that the API gives, else by the id.
func TestKeyNamesItsMaker(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	by := func(members string) string { return strings.Replace(keyJSON, `"createdAt"`, members+`"createdAt"`, 1) }
	for members, shown := range map[string]string{
		`"createdBy":"usr_1","createdByName":"lan@shop.example",`: "lan@shop.example",
		`"createdBy":"usr_9","createdByName":null,`:               "usr_9",
		`"createdBy":null,"createdByName":null,`:                  "unknown",
	} {
		r.answer("GET /api-keys", http.StatusOK, listOf(by(members)))
		require.Contains(t, r.see(t, "/dashboard/keys"), "<td>"+shown+"</td>")
	}
}
