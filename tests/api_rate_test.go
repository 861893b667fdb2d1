package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestOneKeyFloods guarantees that one key can't write without end: its organization's changes of a minute are bounded, and
// another organization's go on. Calls of /v1 and of the playground
// share the requests per minute of the plan.
func TestOneKeyFloods(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.Whole = true
	p := startProduct(t, d)
	all := make([]string, 0, len(identity.AllScopes()))
	for _, scope := range identity.AllScopes() {
		all = append(all, string(scope))
	}
	customer := func(plan string) *client {
		c := p.operator().customerOn(t, plan, 1_000_000)
		_, key := c.newKey(t, identity.KeyRequest{Scopes: all})
		return p.withKey(key)
	}
	flooder, other := customer(planDefault), customer(planTight)
	status := 0
	for range 2*endpoint.KeyChangesPerMinute + 1 { // the flood may begin at the end of a minute
		a := flooder.send(t, http.MethodDelete, "/agents/agt_unknown", http.NoBody)
		if status = a.Status; status == http.StatusTooManyRequests {
			requireError(t, a, "rate_limited")
			require.NotEmpty(t, a.Header.Get("Retry-After"))
			break
		}
		requireError(t, a, "not_found")
	}
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, http.StatusOK, flooder.get(t, "/agents").Status, "reads have a window of their own")

	made := other.send(t, http.MethodPost, "/agents", strings.NewReader(`{"name":"Lan","model":"`+modelEcho+`"}`))
	require.Equal(t, http.StatusCreated, made.Status, "%s", made.Body)
	var agent struct{ ID string }
	require.NoError(t, json.Unmarshal(made.Body, &agent))
	answered := 0
	var last answer
	for i := range 11 { // two windows of 5 at most
		if i%2 == 0 {
			last = other.chat(t, prompt(modelEcho, "hi", false))
		} else {
			last = other.send(t, http.MethodPost, "/agents/"+agent.ID+"/playground", strings.NewReader(`{"messages":[{"role":"user","content":"hi"}]}`))
		}
		if last.Status != http.StatusOK {
			break
		}
		answered++
	}
	requireError(t, last, "rate_limited")
	require.LessOrEqual(t, answered, 10)
	require.GreaterOrEqual(t, answered, 5)
}
