package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestOperatorsOperations: the operator posts in the wallets of one organization, also of a suspended one; no key and no person does.
func TestOperatorsOperations(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Book = billing.NewBook(o.DB)
	operator := func(org string) *identity.Principal {
		principal, err := o.Operator(t.Context(), identity.CommandLine("cli:lan"), org)
		require.NoError(t, err)
		return principal
	}
	credit := endpoint.Values{"amountMicros": "1000", "reference": "invoice-1"}
	body, err := CreditWallet.Run(t.Context(), o.Deps, operator("org_3"), credit)
	require.NoError(t, err)
	posted := body.(*postedObject)
	require.Equal(t, "1000", posted.BalanceMicros)
	require.Equal(t, store.Live, posted.Environment)
	require.False(t, posted.Replayed)
	_, err = CreditWallet.Run(t.Context(), o.Deps, operator("org_1"), credit)
	require.NoError(t, err)
	audit, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	require.Equal(t, "cli:lan", audit[0].Actor)

	o.charge(t, *o.now, billing.Call{ID: "call_1", Wallet: liveWallet})
	refused := func(code errcode.Code, operation Operation, who *identity.Principal, values endpoint.Values) {
		t.Helper()
		_, err := operation.Run(t.Context(), o.Deps, who, values)
		refusal, ok := errors.AsType[*handlers.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, code, refusal.Code, refusal.Message)
	}
	adjust := endpoint.Values{"amountMicros": "-1001", "reference": "a", "reason": "b"}
	refused(errcode.InsufficientCredits, AdjustWallet, operator("org_3"), adjust)
	refused(errcode.Conflict, CreditWallet, operator("org_1"), endpoint.Values{"amountMicros": "101", "reference": "invoice-1"})
	refused(errcode.InvalidRequest, CreditWallet, operator("org_1"), endpoint.Values{"amountMicros": "9223372036854775807", "reference": "c"})
	refused(errcode.Forbidden, RefundCall, operator("org_2"), endpoint.Values{"id": "call_1"})
	refused(errcode.NotFound, RefundCall, operator("org_1"), endpoint.Values{"id": "call_2"})

	_, err = o.Operator(t.Context(), identity.CommandLine("cli:lan"), "org_4")
	require.Error(t, err)
	key := identity.Principal{OrgID: "org_1", KeyID: "key_1", Env: store.Live, Scopes: identity.ScopesOf(identity.AllScopes()...)}
	owner := identity.Principal{OrgID: "org_1", UserID: "usr_owner", Role: identity.Owner}
	valid := endpoint.Values{
		"amountMicros": "1", "reference": "r", "reason": "r", "id": "call_1", "name": "New", "plan": "pro", "model": "echo/a", "type": "widget",
		"scopes": []any{"wallet:read"}, "q": "x", "timeZone": "UTC", "orgId": "org_1",
	}
	for _, operation := range operatorsOperations {
		require.Contains(t, []handlers.Role{roleOperator, roleService}, operation.Spec().Role)
		for _, who := range []*identity.Principal{&key, &owner} {
			refused(errcode.Forbidden, operation, who, valid)
		}
	}
	for _, route := range o.Routes() {
		require.NotContains(t, []handlers.Role{roleOperator, roleService}, route.Role, "%s %s is served to tenants", route.Method, route.Path)
	}
}

// operatorsOperations are the operations that only operators have.
var operatorsOperations = []Operation{
	ListUsage, ListOrganizationUsage, GetOverview, GetSummary, FindOrganization,
	CreateOrganization, ListOrganizations, ListActions, ListDeadTurns, RetryTurn, SuspendOrganization, ResumeOrganization, SetPlan, SetTimeZone, EnableModel,
	DisableModel, CreditWallet, AdjustWallet, RefundCall, ConnectChannel, ApproveChannel, ListAttention,
	CreateOperatorKey, ListOperatorKeys, RevokeOperatorKey, ListConditions, GetDoctor, RunDoctor, ListPayments, GetPayment, MatchPayment, IgnorePayment,
}

// TestScopesOfOperators: every operation of operators × kinds of credentials, over HTTP and as a function. An operator needs exactly the scope of
// the operation, which is known, and all others are refused.
func TestScopesOfOperators(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.withRealKeys()
	o.Book = billing.NewBook(o.DB)
	keys := identity.NewOperatorKeys(o.DB)
	s := endpoint.New(keys, nil, nil)
	for _, operation := range operatorsOperations {
		operation.Register(s, o.Deps)
	}
	past := time.Unix(1, 0)
	made := 0
	newKey := func(expiresAt *time.Time, scopes ...identity.OperatorScope) string {
		request := identity.OperatorKeyRequest{Name: fmt.Sprint("key ", made), ExpiresAt: expiresAt}
		made++
		for _, scope := range scopes {
			request.Scopes = append(request.Scopes, string(scope))
		}
		_, raw, err := keys.Create(t.Context(), identity.CommandLine("cli:lan"), request)
		require.NoError(t, err)
		return raw
	}
	all := newKey(nil, identity.AllOperatorScopes()...)
	expired := newKey(&past, identity.AllOperatorScopes()...)
	tenant := o.realKey(t, store.Live, identity.AllScopes()...)
	for i, route := range s.Routes() {
		require.True(t, route.OperatorScope.Known(), route.Path)
		others := slices.DeleteFunc(identity.AllOperatorScopes(), func(s identity.OperatorScope) bool { return s == route.OperatorScope })
		matrix := map[string]errcode.Code{
			"": errcode.Unauthenticated, "user:owner": errcode.Unauthenticated, tenant: errcode.InvalidAPIKey, expired: errcode.InvalidAPIKey,
			newKey(nil, others...): errcode.InsufficientScope, all: "", newKey(nil, route.OperatorScope): "",
		}
		for credential, code := range matrix {
			r := request(route.Method, pathOf(route, "x_unknown", nil), credential, `{}`)
			a := handlertest.Served(s.Serve, r)
			if code != "" {
				require.Equal(t, code.Status(), a.Code, "%s %s: %s", route.Method, route.Path, a.Body)
				require.Contains(t, a.Body.String(), `"`+string(code)+`"`)
			} else {
				require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, a.Code, "%s %s: %s", route.Method, route.Path, a.Body)
			}
		}
		lacks := identity.Principal{Operator: "operator:lan", OperatorScopes: identity.OperatorScopesOf(others...)}
		_, err := operatorsOperations[i].Run(t.Context(), o.Deps, &lacks, endpoint.Values{
			"amountMicros": "1", "reference": "r", "reason": "r", "id": "call_1", "name": "New", "plan": "pro", "model": "echo/a", "type": "widget",
			"scopes": []any{"wallet:read"}, "q": "x", "timeZone": "UTC", "orgId": "org_1",
		})
		require.Equal(t, errcode.InsufficientScope, handlers.AsError(err).Code, route.Path)
	}
	// Where tenants are, an operator's key is none, and an operator runs only operations with a scope of operators.
	for _, route := range o.Routes() {
		if !route.Public {
			handlertest.RefusedWith(t, errcode.InvalidAPIKey, o.Serve, request(route.Method, pathOf(route, "x_unknown", map[string]string{"{docId}": "doc_unknown"}), all, bodyFor(route)))
		}
	}
	administrator := identity.Principal{OrgID: "org_1", Operator: "operator:lan", OperatorScopes: identity.OperatorScopesOf(identity.AllOperatorScopes()...)}
	_, err := ListConversations.Run(t.Context(), o.Deps, &administrator, nil)
	require.Equal(t, errcode.Forbidden, handlers.AsError(err).Code)
	_, err = o.Operator(t.Context(), administrator, "org_1")
	require.NoError(t, err)
}

// TestOperatorsAtTheSameTime guarantees that requests of operators share completed dependencies: the race detector finds a change.
func TestOperatorsAtTheSameTime(t *testing.T) {
	t.Parallel()
	deps := new(Deps)
	deps.Complete()
	var (
		requests sync.WaitGroup
		faults   [8]error
	)
	for i := range faults {
		requests.Go(func() { _, faults[i] = deps.Operator(t.Context(), identity.CommandLine("cli:lan"), "") })
	}
	requests.Wait()
	require.NoError(t, errors.Join(faults[:]...))
}

// TestOperatorKeyOperations: a key is made within its maker's rights and shown once, and organizations don't see the names of operators.
func TestOperatorKeyOperations(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	cli := identity.CommandLine("cli:lan")
	body, err := CreateOperatorKey.Run(t.Context(), o.Deps, &cli, endpoint.Values{"name": "billing", "scopes": []any{"operator_keys:write", "wallet:write"}})
	require.NoError(t, err)
	issued := body.(*issuedOperatorKey)
	principal, err := identity.NewOperatorKeys(o.DB).Authenticate(t.Context(), issued.Key)
	require.NoError(t, err)
	for _, c := range []struct {
		values endpoint.Values
		code   errcode.Code
		field  string
	}{
		{endpoint.Values{"name": "more", "scopes": []any{"users:read"}}, errcode.InvalidRequest, "scopes"},
		{endpoint.Values{"name": "more", "scopes": []any{"everything"}}, errcode.InvalidRequest, "scopes"},
		{endpoint.Values{"name": "more", "scopes": []any{}}, errcode.InvalidRequest, "scopes"},
		{endpoint.Values{"name": "billing", "scopes": []any{"wallet:write"}}, errcode.Conflict, ""},
		{endpoint.Values{"name": "more", "scopes": []any{"wallet:write"}, "expiresAt": "soon"}, errcode.InvalidRequest, "expiresAt"},
	} {
		_, err := CreateOperatorKey.Run(t.Context(), o.Deps, &principal, c.values)
		refused := handlers.AsError(err)
		require.Equal(t, c.code, refused.Code, refused.Message)
		require.Equal(t, c.field, refused.Field)
	}
	list, err := ListOperatorKeys.Run(t.Context(), o.Deps, &cli, endpoint.Values{})
	require.NoError(t, err)
	require.Equal(t, []OperatorKeyObject{issued.OperatorKeyObject}, withoutUse(list.(*endpoint.ListObject[OperatorKeyObject]).Data))
	for _, id := range []string{issued.ID, issued.ID} {
		_, err = RevokeOperatorKey.Run(t.Context(), o.Deps, &cli, endpoint.Values{"id": id})
		require.NoError(t, err)
	}
	_, err = RevokeOperatorKey.Run(t.Context(), o.Deps, &cli, endpoint.Values{"id": "opk_none"})
	require.Equal(t, errcode.NotFound, handlers.AsError(err).Code)
	require.Equal(t, []string{"operator", "operator", "operator", "usr_1"}, []string{
		shownActor("cli:lan"), shownActor(principal.Actor()), shownActor("operator:lan@example.com"), shownActor("usr_1"),
	})
}

func withoutUse(keys []OperatorKeyObject) []OperatorKeyObject {
	for i := range keys {
		keys[i].UsedAt = nil
	}
	return keys
}
