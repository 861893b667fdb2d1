package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// planWide has a limit that no test reaches; it distinguishes requests of an organization on it from those on the default plan.
const planWide = "wide"

const (
	// revocations is how many keys are revoked, withdrawals how often each other right is taken away.
	revocations = 1000
	withdrawals = 40
	// revokers is how many revoke at a time.
	revokers = 4
)

// TestNodesRevokeStrictly guarantees that what is taken away is gone at the very next request on any node: not one of 1,000
// revoked keys passes, nor does one that has expired or lost its scope, or whose
// organization is suspended; a changed plan counts at once. Another process takes it away, while requests with the same
// key are under way on the node that is asked next, so that whatever it might remember or share between them is there.
func TestNodesRevokeStrictly(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.Postgres, startUpstream(t))
	d.App = fmt.Sprintf("plan %s {\nrequests_per_minute 1000000\n}\n", planWide)
	c := startCluster(t, d, clusterNodes, 0)
	o := c.operator()
	owner := o.customer(t, 0)
	rights := rights(t, o)
	holders := make([]*customer, len(rights))
	for i := range holders {
		holders[i] = o.customer(t, 0)
	}
	var begun, done atomic.Int64
	together(revokers+len(rights), func(i int) {
		if i < len(rights) {
			for n := 0; n < withdrawals && c.withdrawAndGive(t, holders[i], rights[i], n); n++ {
				done.Add(1)
			}
			return
		}
		for n := begun.Add(1); n <= revocations && !t.Failed(); n = begun.Add(1) {
			key, err := identity.CreateAPIKey(t.Context(), o.db, actor, identity.KeyRequest{OrgID: owner.OrgID})
			if !failOn(t, err) {
				return
			}
			c.withdraw(t, key.Raw, int(n), "api_key_revoked", func(ctx context.Context) error {
				return o.db.APIKeys.Revoke(ctx, actor, owner.OrgID, key.ID)
			})
			done.Add(1)
		}
	})
	require.EqualValues(t, revocations+withdrawals*len(rights), done.Load())
}

// right is something that can be taken from a customer and given back.
type right struct {
	// code is the code of requests without it.
	code         string
	taken, given func(ctx context.Context, c *customer) error
}

// rights are all but the key itself, which is never given back.
func rights(t testing.TB, o *operatorStore) []right {
	t.Helper()
	organizations := o.db.Organizations
	plan := func(name string) func(ctx context.Context, c *customer) error {
		return func(ctx context.Context, c *customer) error { return organizations.SetPlan(ctx, actor, c.OrgID, name) }
	}
	// No command changes the scopes or the expiry of a key that exists.
	sql := connect(t, o.db.Location())
	set := func(column string, value any) func(ctx context.Context, c *customer) error {
		return func(ctx context.Context, c *customer) error {
			_, err := sql.ExecContext(ctx, "UPDATE api_keys SET "+column+" = $2 WHERE id = $1", c.KeyID, value)
			return err
		}
	}
	expire := func(ctx context.Context, c *customer) error {
		now, err := o.db.Now(ctx)
		moment := now + 20
		if err == nil {
			err = set("expires_at", moment)(ctx, c)
		}
		for err == nil && now < moment { // by the clock that the nodes go by
			now, err = o.db.Now(ctx)
		}
		return err
	}
	return []right{
		{
			"organization_suspended",
			func(ctx context.Context, c *customer) error {
				return organizations.SetSuspended(ctx, actor, c.OrgID, true, "")
			},
			func(ctx context.Context, c *customer) error {
				return organizations.SetSuspended(ctx, actor, c.OrgID, false, "")
			},
		},
		{planWide, plan(planWide), plan(planDefault)},
		{"insufficient_scope", set("scopes", "wallet:read"), set("scopes", "models:read chat:write")},
		{"invalid_api_key", expire, set("expires_at", nil)},
	}
}

// withdrawAndGive takes a right away as withdraw does, and requires that it holds again when it is given back.
func (c *cluster) withdrawAndGive(t testing.TB, holder *customer, r right, node int) (fine bool) {
	t.Helper()
	c.withdraw(t, holder.Key, node, r.code, func(ctx context.Context) error { return r.taken(ctx, holder) })
	if !failOn(t, r.given(t.Context(), holder)) {
		return false
	}
	a, err := c.node(node+1).as(holder).try(t.Context(), http.MethodGet, "/v1/models", http.NoBody)
	if failOn(t, err) && verdict(a) != "" {
		t.Errorf("node %d after %s was over: %d %.200s", (node+1)%len(c.nodes), r.code, a.Status, a.Body)
	}
	return !t.Failed()
}

// withdraw lets requests with a key flow on a node, takes a right away meanwhile, and requires that the next request there
// is refused with this code. It may be called from any goroutine.
func (c *cluster) withdraw(t testing.TB, key string, node int, code string, take func(context.Context) error) {
	t.Helper()
	as := c.node(node).withKey(key)
	ask := func() (answer, bool) {
		a, err := as.try(context.Background(), http.MethodGet, "/v1/models", http.NoBody)
		return a, failOn(t, err)
	}
	if a, fine := ask(); !fine || verdict(a) != "" {
		t.Errorf("before %s: %d %.200s", code, a.Status, a.Body)
		return
	}
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !stop.Load() {
			if a, fine := ask(); !fine || verdict(a) != "" && verdict(a) != code {
				t.Errorf("under way with %s: %d %.200s", code, a.Status, a.Body)
				return
			}
		}
	}()
	if failOn(t, take(t.Context())) {
		if a, fine := ask(); fine && verdict(a) != code {
			t.Errorf("passed on node %d after %s: %d %.200s", node%len(c.nodes), code, a.Status, a.Body)
		}
	}
	stop.Store(true)
	<-ended
}

// verdict is what an answer says of the right to ask: the error's code, the wide plan, or nothing.
func verdict(a answer) string {
	if a.Status == http.StatusOK {
		if a.Header.Get("X-Ratelimit-Limit-Requests") != "" {
			return planWide
		}
		return ""
	}
	_, code, _ := strings.Cut(string(a.Body), `"code":"`)
	code, _, _ = strings.Cut(code, `"`)
	return code
}
