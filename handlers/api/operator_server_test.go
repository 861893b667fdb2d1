package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// operatorFixture is the operator's interface over the database of a fixture.
func operatorFixture(t *testing.T) *fixture {
	t.Helper()
	o := newFixture(t)
	o.serveOperator(o.DB)
	return o
}

// serveOperator replaces the server by the operator's interface over a database.
func (o *fixture) serveOperator(db *store.DB) {
	deps := *o.Deps
	deps.DB, deps.Book, deps.Authenticator = db, billing.NewBook(db), identity.NewOperatorKeys(db)
	deps.Wallets = deps.Book
	deps.Endpoints = func() []gateway.EndpointState {
		return []gateway.EndpointState{{Provider: "echo", Upstream: "a", Cooled: time.Minute, Attempts: map[string]int64{"answered": 2, "failed": 1}}}
	}
	deps.StartDoctor = func(context.Context, string, bool) error { return nil }
	o.Server = NewOperator(deps)
}

// operatorKey makes an operator's key with the scopes.
func operatorKey(t *testing.T, db *store.DB, name string, expires *time.Time, scopes ...identity.OperatorScope) (id, raw string) {
	t.Helper()
	request := identity.OperatorKeyRequest{Name: name, ExpiresAt: expires}
	for _, scope := range scopes {
		request.Scopes = append(request.Scopes, string(scope))
	}
	key, raw, err := identity.NewOperatorKeys(db).Create(t.Context(), identity.CommandLine("cli:root"), request)
	require.NoError(t, err)
	return key.ID, raw
}

// operatorBodies are valid bodies of the operator's operations, by the end of the path.
var operatorBodies = map[string]string{
	"/organizations": `{"name":"new"}`, "/suspend": `{"reason":"unpaid"}`, "/resume": `{}`, "/plan": `{"plan":"pro"}`, "/time-zone": `{"timeZone":"Asia/Seoul"}`,
	"/models/enable": `{"model":"echo/a"}`, "/models/disable": `{"model":"echo/a"}`, "/api-keys": `{}`,
	"/members": `{"email":"new@example.com","role":"member"}`, "/members/{id}": `{"role":"member"}`,
	"/wallet/credits": `{"amountMicros":"1","reference":"r"}`, "/wallet/adjustments": `{"amountMicros":"1","reference":"r","reason":"r"}`,
	"/calls/{id}/refund": `{}`, "/doctor": `{}`, "/match": `{"orgId":"org_1"}`, "/ignore": `{"reason":"a gift"}`, "/operator-keys": `{"name":"new","scopes":["operator_keys:write"]}`,
	"/wallet/budgets": `{"name":"new","period":"day","limitMicros":"1"}`, "/budgets/{id}": `{}`,
	"/rises": `{"reason":"new","amountMicros":"1","endsAt":"2100-01-01T00:00:00Z"}`,
}

// TestOperatorsRights: every route × every kind of credentials. Only an operator's key with the scope of the operation gets in.
func TestOperatorsRights(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	tenant := o.realKey(t, store.Live, identity.AllScopes()...)
	past := time.Now().Add(-time.Hour)
	_, expired := operatorKey(t, o.DB, "expired", &past, identity.AllOperatorScopes()...)
	revokedID, revoked := operatorKey(t, o.DB, "revoked", nil, identity.AllOperatorScopes()...)
	require.NoError(t, o.DB.OperatorKeys.Revoke(t.Context(), "cli:root", revokedID))
	with, without := map[identity.OperatorScope]string{}, map[identity.OperatorScope]string{}
	for _, scope := range identity.AllOperatorScopes() {
		_, with[scope] = operatorKey(t, o.DB, string(scope), nil, scope)
		others := slices.DeleteFunc(identity.AllOperatorScopes(), func(s identity.OperatorScope) bool { return s == scope })
		_, without[scope] = operatorKey(t, o.DB, "not "+string(scope), nil, others...)
	}
	used := map[identity.OperatorScope]bool{}
	for _, route := range o.Routes() {
		require.True(t, route.OperatorScope.Known(), "%s %s has no scope", route.Method, route.Path)
		require.Equal(t, route.Method == http.MethodGet, strings.HasSuffix(string(route.OperatorScope), ":read"), "%s %s", route.Method, route.Path)
		used[route.OperatorScope] = true
		path, ending := strings.NewReplacer("{orgId}", "org_1", "{id}", "x_unknown").Replace(route.Path), ""
		for suffix := range operatorBodies {
			if strings.HasSuffix(route.Path, suffix) && len(suffix) > len(ending) {
				ending = suffix
			}
		}
		for credential, code := range map[string]errcode.Code{
			"": errcode.Unauthenticated, "user:owner": errcode.Unauthenticated, tenant: errcode.InvalidAPIKey, expired: errcode.InvalidAPIKey,
			revoked: errcode.APIKeyRevoked, without[route.OperatorScope]: errcode.InsufficientScope,
		} {
			handlertest.RefusedWith(t, code, o.Serve, request(route.Method, path, credential, operatorBodies[ending]))
		}
		a := handlertest.Served(o.Serve, request(route.Method, path, with[route.OperatorScope], operatorBodies[ending]))
		require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.Code, "%s %s: %s", route.Method, path, a.Body)
		if !strings.Contains(route.Path, "{id}") && !strings.Contains(route.Path, "{month}") {
			require.Less(t, a.Code, http.StatusMultipleChoices, "%s %s: %s", route.Method, path, a.Body)
		}
	}
	require.Greater(t, len(used), 12)
	tenants := serve(o.Deps)
	for _, route := range tenants.Routes() {
		require.False(t, strings.HasPrefix(route.Path, operatorPrefix))
	}
	o.Authenticator = identity.NewAuthenticator(o.DB.APIKeys)
	handlertest.RefusedWith(t, errcode.InvalidAPIKey, serve(o.Deps).Serve, keyed(http.MethodGet, "/wallet", with["wallet:read"]))
}

// TestOperatorsBecomeNoTenant: an operator who isn't an administrator makes no user, link or API key of an organization, on any way; and no operator
// makes an API key that reads customers' texts, or that has them sent to another provider's account.
func TestOperatorsBecomeNoTenant(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	secrets := []Operation{CreateAPIKey, InviteMember, LinkMember, UpdateMember, RemoveMember, ResetMemberSecondFactor, CreateOperatorKey}
	for _, role := range []string{identity.OperatorViewer, identity.OperatorSupport} {
		session := identity.OperatorSession{OperatorSession: store.OperatorSession{
			Operator: store.Operator{ID: "opr_1", Email: "lan@example.com", Role: role}, Now: 2, SecondFactorAt: 1,
		}}
		principal, err := o.Operator(t.Context(), session.Principal(), "org_1")
		require.NoError(t, err)
		for _, operation := range secrets {
			_, err := operation.Run(t.Context(), o.Deps, principal, endpoint.Values{
				"id": "usr_owner", "email": "lan@example.com", "role": "member", "name": "mine", "scopes": []any{"models:read"},
			})
			require.Contains(t, []errcode.Code{errcode.InsufficientScope, errcode.Forbidden}, handlers.AsError(err).Code, "%s %s", role, operation.Spec().ID)
		}
	}
	everything := o.all(t)
	const path = "/operator/organizations/org_1/api-keys"
	for _, scope := range identity.AllScopes() {
		switch body := fmt.Sprintf(`{"scopes":[%q]}`, scope); scope {
		case identity.ConversationsRead, identity.ConversationsWrite, identity.EventEndpointsRead, identity.EventEndpointsWrite, identity.ProviderKeysWrite:
			o.refused(t, errcode.Forbidden, "", http.MethodPost, path, everything, body)
		default:
			o.ask(t, http.StatusCreated, http.MethodPost, path, everything, body)
		}
	}
}

// all returns a key with all scopes.
func (o *fixture) all(t *testing.T) string {
	t.Helper()
	_, raw := operatorKey(t, o.DB, "shop site", nil, identity.AllOperatorScopes()...)
	return raw
}

// TestCreatingAnOrganizationAgain: the same external id with the same content is the same organization, also after a change of its plan.
func TestCreatingAnOrganizationAgain(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	const path, body = "/operator/organizations", `{"name":"Tea 100%","plan":"pro","externalId":"shop-17"}`
	made := o.ask(t, http.StatusCreated, http.MethodPost, path, key, body)
	org := path + "/" + made["id"].(string)
	require.Equal(t, made, o.ask(t, http.StatusOK, http.MethodPost, path, key, body))
	require.Equal(t, "free", o.ask(t, http.StatusOK, http.MethodPut, org+"/plan", key, `{"plan":"free"}`)["plan"])
	require.Equal(t, made["id"], o.ask(t, http.StatusOK, http.MethodPost, path, key, body)["id"])
	for _, other := range []string{
		`{"name":"Tea","plan":"pro","externalId":"shop-17"}`, `{"name":"Tea 100%","plan":"free","externalId":"shop-17"}`,
		`{"name":"Tea 100%","plan":"pro","externalId":"shop-18"}`, `{"name":"Tea 100%"}`,
	} {
		o.refused(t, errcode.Conflict, "", http.MethodPost, path, key, other)
	}
	require.Equal(t, "shop-17", o.ask(t, http.StatusOK, http.MethodGet, org, key, "")["externalId"])
	found := o.ask(t, http.StatusOK, http.MethodGet, path+"?externalId=shop-17", key, "")["data"].([]any)
	require.Len(t, found, 1)
	require.Equal(t, made["id"], found[0].(map[string]any)["id"])
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, path+"?externalId=%25", key, "")["data"])
	o.refused(t, errcode.InvalidRequest, "limit", http.MethodGet, path+"?limit=1000", key, "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/org_9", key, "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/%25", key, "")
}

// TestSuspensionHasAReason: the reason is stored, the people of the organization read it, and the end of the suspension removes it.
func TestSuspensionHasAReason(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	const org = "/operator/organizations/org_1"
	o.refused(t, errcode.InvalidRequest, "reason", http.MethodPost, org+"/suspend", key, `{}`)
	suspended := o.ask(t, http.StatusOK, http.MethodPost, org+"/suspend", key, `{"reason":"Invoice 17 is unpaid."}`)
	require.Equal(t, "Invoice 17 is unpaid.", suspended["suspensionReason"])
	refused := handlertest.RefusedWith(t, errcode.OrganizationSuspended, serve(o.Deps).Serve, keyed(http.MethodGet, "/wallet", "user:owner"))
	require.Contains(t, refused.Text, "Invoice 17 is unpaid.")
	require.Equal(t, "0", o.ask(t, http.StatusOK, http.MethodGet, org+"/wallet", key, "")["balanceMicros"], "the operator goes on")

	resumed := o.ask(t, http.StatusOK, http.MethodPost, org+"/resume", key, `{"reason":"paid"}`)
	require.Nil(t, resumed["suspensionReason"])
	audit, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	require.Equal(t, "organization.resume paid", audit[0].Action+" "+audit[0].Detail)
}

// TestCorrectionsNameWhatTheyCorrect: a correction names a transaction of the same wallet, and never brings a wallet below zero.
func TestCorrectionsNameWhatTheyCorrect(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	const wallet, other = "/operator/organizations/org_1/wallet", "/operator/organizations/org_2/wallet"
	credit := o.ask(t, http.StatusCreated, http.MethodPost, wallet+"/credits", key, `{"amountMicros":"1000","reference":"inv-1"}`)
	theirs := o.ask(t, http.StatusCreated, http.MethodPost, other+"/credits", key, `{"amountMicros":"1000","reference":"inv-1"}`)
	undo := func(amount string, tx any) string {
		return fmt.Sprintf(`{"amountMicros":%q,"reference":"undo","reason":"twice","corrects":%q}`, amount, tx)
	}
	o.refused(t, errcode.InvalidRequest, "corrects", http.MethodPost, wallet+"/adjustments", key, undo("-1000", theirs["id"]))
	o.refused(t, errcode.InvalidRequest, "corrects", http.MethodPost, wallet+"/adjustments", key, undo("-1000", "txn_none"))
	more := o.ask(t, http.StatusCreated, http.MethodPost, wallet+"/credits", key, `{"amountMicros":"1","reference":"inv-2"}`)
	o.refused(t, errcode.Conflict, "", http.MethodPost, wallet+"/adjustments", key, undo("-1001", credit["id"]))
	o.refused(t, errcode.InsufficientCredits, "", http.MethodPost, wallet+"/adjustments", key, undo("-1002", credit["id"]))
	o.ask(t, http.StatusCreated, http.MethodPost, wallet+"/adjustments", key, strings.Replace(undo("-1", more["id"]), "undo", "undo 2", 1))
	undone := o.ask(t, http.StatusCreated, http.MethodPost, wallet+"/adjustments", key, undo("-1000", credit["id"]))
	require.Equal(t, credit["id"], undone["corrects"])
	require.Equal(t, true, o.ask(t, http.StatusCreated, http.MethodPost, wallet+"/adjustments", key, undo("-1000", credit["id"]))["replayed"])
	o.refused(t, errcode.Conflict, "", http.MethodPost, wallet+"/adjustments", key, undo("-1000", undone["id"]))
	rows := o.ask(t, http.StatusOK, http.MethodGet, wallet+"/transactions", key, "")["data"].([]any)
	require.Len(t, rows, 4)
	require.Equal(t, credit["id"], rows[0].(map[string]any)["corrects"])
	require.Equal(t, "0", o.ask(t, http.StatusOK, http.MethodGet, wallet, key, "")["balanceMicros"])
}

// TestOwnerOfAnID: - means the organization that has the id, and an id of another organization is forbidden under a named one.
func TestOwnerOfAnID(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	made := o.ask(t, http.StatusCreated, http.MethodPost, "/operator/organizations/org_2/api-keys", key, `{"name":"theirs","orgId":"org_1"}`)
	id := made["id"].(string)
	o.refused(t, errcode.Forbidden, "", http.MethodDelete, "/operator/organizations/org_1/api-keys/"+id, key, "")
	o.refused(t, errcode.NotFound, "", http.MethodDelete, "/operator/organizations/-/api-keys/key_none", key, "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, "/operator/organizations/-/wallet", key, "")
	o.ask(t, http.StatusNoContent, http.MethodDelete, "/operator/organizations/-/api-keys/"+id, key, "")
	require.NotNil(t, o.ask(t, http.StatusOK, http.MethodGet, "/operator/organizations/org_2/api-keys/"+id, key, "")["revokedAt"])
}

// TestActorsOfOperators: the audit log has the key's name and a bounded, cleaned X-Actor, which organizations don't see.
func TestActorsOfOperators(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	r := request(http.MethodPut, "/operator/organizations/org_1/plan", o.all(t), `{"plan":"pro"}`)
	r.Header.Set("X-Actor", " lan@example.com\x7f\xff "+strings.Repeat("ệ", 300))
	require.Equal(t, http.StatusOK, handlertest.Served(o.Serve, r).Code)
	audit, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	person, ok := strings.CutPrefix(audit[0].Actor, "operator-key:shop site for lan@example.com ")
	require.True(t, ok, audit[0].Actor)
	require.Equal(t, strings.Repeat("ệ", 100-len("lan@example.com ")), person)
	require.Equal(t, "operator", showAudit(&audit[0]).Actor)
}

// post sends a body with an Idempotency-Key, and returns the status and the answer.
func post(serve handlers.Handler, path, key, once, body string) (status int, text string, replayed bool) {
	r := request(http.MethodPost, path, key, body)
	r.Header.Set(handlers.HeaderIdempotencyKey, once)
	w := handlertest.Served(serve, r)
	return w.Code, w.Body.String(), w.Header().Get(handlers.HeaderReplayed) != ""
}

// TestPostsCanBeRepeated: with an Idempotency-Key a POST runs once, and its repetition gets the same answer, with the new API key in it.
func TestPostsCanBeRepeated(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	_, other := operatorKey(t, o.DB, "other", nil, "api_keys:write")
	const path = "/operator/organizations/org_1/api-keys"
	status, first, replayed := post(o.Serve, path, key, "a", `{"name":"shop"}`)
	require.Equal(t, http.StatusCreated, status, first)
	require.False(t, replayed)
	status, again, replayed := post(o.Serve, path, key, "a", `{"name":"shop"}`)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, first, again)
	require.True(t, replayed)
	for _, c := range []struct{ path, body string }{{path, `{"name":"another"}`}, {strings.Replace(path, "org_1", "org_2", 1), `{"name":"shop"}`}} {
		status, text, _ := post(o.Serve, c.path, key, "a", c.body)
		require.Equal(t, http.StatusConflict, status)
		require.Contains(t, text, errcode.IdempotencyKeyReused)
	}
	status, text, _ := post(o.Serve, path, other, "a", `{"name":"of another key"}`)
	require.Equal(t, http.StatusCreated, status, text)
	status, text, _ = post(o.Serve, path, key, "b", `{"name":"shop"}`)
	require.Equal(t, http.StatusConflict, status, text)
	status, text, _ = post(o.Serve, path, key, "b", `{"name":"shop 2"}`)
	require.Equal(t, http.StatusCreated, status, "a refused request leaves its key free: "+text)
	o.refused(t, errcode.InvalidRequest, "", http.MethodPost, path, key, `{`)
}

// TestPostsAfterAnInternalError: the Idempotency-Key of a request that ended with internal_error is free, so that a repetition runs.
func TestPostsAfterAnInternalError(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	inTheWay := filepath.Join(filepath.Dir(o.DB.Location().DSN), "backups")
	require.NoError(t, os.WriteFile(inTheWay, nil, 0o600))
	status, text, _ := post(o.Serve, "/operator/backup", key, "a", "")
	require.Equal(t, http.StatusInternalServerError, status, text)
	require.NoError(t, os.Remove(inTheWay))
	for _, repeated := range []bool{false, true} {
		status, text, replayed := post(o.Serve, "/operator/backup", key, "a", "")
		require.Equal(t, http.StatusCreated, status, text)
		require.Equal(t, repeated, replayed)
	}
}

// TestPostsAfterTheEndOfAProcess: a process has ended between a change and the storing of its answer. For five minutes a repetition is refused,
// because the request may still run. Later it runs, and moves no money again.
func TestPostsAfterTheEndOfAProcess(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	id, key := operatorKey(t, o.DB, "shop site", nil, "wallet:write")
	const path, body = "/operator/organizations/org_1/wallet/credits", `{"amountMicros":"1000","reference":"inv-1"}`
	_, _, err := o.DB.OperatorRequests.Begin(t.Context(), store.OperatorRequest{
		Hash: sha256.Sum256([]byte(id + " a")), Fingerprint: sha256.Sum256([]byte(path + "\n" + body)),
	})
	require.NoError(t, err)
	book := billing.NewBook(o.DB)
	_, err = book.Credit(t.Context(), "operator-key:shop site", liveWallet, 1000, "inv-1")
	require.NoError(t, err)

	status, text, _ := post(o.Serve, path, key, "a", body)
	require.Equal(t, http.StatusConflict, status, text)
	require.Contains(t, text, "5 minutes")
	storetest.Fill(t, o.DB, fmt.Sprintf(`UPDATE operator_requests SET until = until - %d`, 5*time.Minute.Milliseconds()))
	status, text, _ = post(o.Serve, path, key, "a", body)
	require.Equal(t, http.StatusCreated, status, text)
	require.Contains(t, text, `"replayed":true`)
	wallet, err := book.Wallet(t.Context(), liveWallet)
	require.NoError(t, err)
	require.EqualValues(t, 1000, wallet.BalanceMicros)
}

// TestOneOfTwoNodesPosts: two nodes get the same requests at the same moment: with an Idempotency-Key one runs, and of two credits with one
// reference and other amounts one is booked.
func TestOneOfTwoNodesPosts(t *testing.T) {
	t.Parallel()
	location := storetest.Migrated(t, store.Postgres)
	var nodes [2]*fixture
	for i := range nodes {
		nodes[i] = newFixture(t)
		nodes[i].serveOperator(storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{billing.Ledger}}))
	}
	db := storetest.OpenAt(t, location, store.Options{})
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_1", Name: "Acme", Plan: "free", CreatedAt: 1}))
	_, key := operatorKey(t, db, "sign-up", nil, identity.AllOperatorScopes()...)
	both := func(path string, once func(i int) string, bodies [2]string) (statuses []int) {
		var wait sync.WaitGroup
		statuses = make([]int, 2)
		for i, node := range nodes {
			wait.Go(func() { statuses[i], _, _ = post(node.Serve, path, key, once(i), bodies[i]) })
		}
		wait.Wait()
		slices.Sort(statuses)
		return statuses
	}
	for round := range 5 {
		same, each := fmt.Sprintf("k%d", round), func(i int) string { return fmt.Sprintf("r%d-%d", round, i) }
		statuses := both("/operator/organizations/org_1/api-keys", func(int) string { return same }, [2]string{`{}`, `{}`})
		require.Equal(t, http.StatusCreated, statuses[0])
		require.Contains(t, []int{http.StatusCreated, http.StatusConflict}, statuses[1], "the other gets the same answer, or waits")
		credit := func(micros int) string {
			return fmt.Sprintf(`{"amountMicros":"%d","reference":"inv-%d"}`, micros, round)
		}
		require.Equal(t, []int{http.StatusCreated, http.StatusConflict},
			both("/operator/organizations/org_1/wallet/credits", each, [2]string{credit(1000), credit(1001)}))
		require.Equal(t, []int{http.StatusOK, http.StatusCreated}, both("/operator/organizations", func(i int) string { return "new-" + each(i) },
			[2]string{`{"name":"` + same + `","externalId":"` + same + `"}`, `{"name":"` + same + `","externalId":"` + same + `"}`}))
	}
	keys, err := db.APIKeys.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	require.Len(t, keys, 5)
}

// TestStateOfTheService: the operator reads the models' endpoints, the plans, the queue and an organization's models.
func TestStateOfTheService(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	require.Equal(t, []any{map[string]any{
		"provider": "echo", "upstreamModel": "a", "state": "resting", "restSeconds": 60.0, "failure": nil, "otherModel": nil, "attempts": 3.0, "failures": 1.0,
	}}, o.ask(t, http.StatusOK, http.MethodGet, "/operator/vendors", key, "")["data"])
	plans := o.ask(t, http.StatusOK, http.MethodGet, "/operator/plans", key, "")["data"].([]any)
	require.Equal(t, map[string]any{"name": "free", "default": true, "requestsPerMinute": 60.0, "channels": 0.0, "knowledgeBytes": -1.0}, plans[0])
	o.ask(t, http.StatusOK, http.MethodPost, "/operator/organizations/org_1/models/disable", key, `{"model":"echo/b"}`)
	require.Equal(t, []any{map[string]any{"model": "echo/a", "enabled": true}, map[string]any{"model": "echo/b", "enabled": false}},
		o.ask(t, http.StatusOK, http.MethodGet, "/operator/organizations/org_1/models", key, "")["data"])
	require.Zero(t, o.ask(t, http.StatusOK, http.MethodGet, "/operator/queue", key, "")["waiting"])
	require.Equal(t, map[string]any{"engine": "sqlite", "processes": []any{}, "lastBackupAt": nil},
		o.ask(t, http.StatusOK, http.MethodGet, "/operator/status", key, ""))
	backup := o.ask(t, http.StatusCreated, http.MethodPost, "/operator/backup", key, "")
	require.Equal(t, "svc-20261121-100000.db", backup["name"])
	require.FileExists(t, filepath.Join(filepath.Dir(o.DB.Location().DSN), "backups", "svc-20261121-100000.db"))
	require.NotNil(t, o.ask(t, http.StatusOK, http.MethodGet, "/operator/status", key, "")["lastBackupAt"])
	o.refused(t, errcode.Conflict, "", http.MethodPost, "/operator/backup", key, "")
}

// TestChannelStates: channels are shown with their state, without their credentials.
func TestChannelStates(t *testing.T) {
	t.Parallel()
	o, idOf := furnished(t)
	o.serveOperator(o.DB)
	states := o.ask(t, http.StatusOK, http.MethodGet, "/operator/organizations/org_2/channels", o.all(t), "")["data"].([]any)
	require.Len(t, states, 1)
	state := states[0].(map[string]any)
	require.Equal(t, idOf["/channels"], state["id"])
	require.NotContains(t, state, "credentials")
	require.NotContains(t, state, "closedNotice")
}
