package api

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
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
		principal, err := o.Operator(t.Context(), "cli:lan", org)
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

	_, err = o.Operator(t.Context(), "cli:lan", "org_4")
	require.Error(t, err)
	key := identity.Principal{OrgID: "org_1", KeyID: "key_1", Env: store.Live, Scopes: identity.ScopesOf(identity.AllScopes()...)}
	owner := identity.Principal{OrgID: "org_1", UserID: "usr_owner", Role: identity.Owner}
	valid := endpoint.Values{
		"amountMicros": "1", "reference": "r", "reason": "r", "id": "call_1", "name": "New", "plan": "pro", "model": "echo/a", "type": "widget",
	}
	for _, operation := range []Operation{
		CreateOrganization, ListOrganizations, ListActions, ListDeadTurns, RetryTurn, SuspendOrganization, ResumeOrganization, SetPlan, EnableModel,
		DisableModel, CreditWallet, AdjustWallet, RefundCall, ConnectChannel, ApproveChannel, ListAttention,
	} {
		require.Contains(t, []handlers.Role{roleOperator, roleService}, operation.Spec().Role)
		for _, who := range []*identity.Principal{&key, &owner} {
			refused(errcode.Forbidden, operation, who, valid)
		}
	}
	for _, route := range o.Routes() {
		require.NotContains(t, []handlers.Role{roleOperator, roleService}, route.Role, "%s %s is served to tenants", route.Method, route.Path)
	}
}
