package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestBudgetUnderKill guarantees that three nodes on PostgreSQL, which are killed while they spend a budget, fill it and never spend above it: the
// leak is 0. The budget, the calls and the wallet agree to the micro, and clients were told no more than was charged.
func TestBudgetUnderKill(t *testing.T) {
	t.Parallel()
	const callers, funds = 30, 1_000_000_000
	limit, kills := int64(10_000), 2
	if soak() {
		limit, kills = 1_000_000, 20
	}
	d := deploy(t, store.Postgres, startUpstream(t))
	d.HoldTTL, d.Sweep, d.Longest = "1s", "200ms", "3s"
	d.First, d.Idle, d.Response = "1s", "1s", "2s"
	nodes := []*product{startProduct(t, d), startProduct(t, d.beside()), startProduct(t, d.beside())}
	c := nodes[0].operator().customer(t, funds)
	nodes[0].svc(t, "budget", "create", "--org", c.OrgID, "--name", "all", "--period", "total", "--limit-micros", strconv.FormatInt(limit, 10))
	number := func(query string) (n int64) {
		require.NoError(t, c.db.Reader().QueryRowContext(t.Context(), query, c.OrgID).Scan(&n))
		return n
	}
	spent := func() int64 {
		return number(`SELECT coalesce(sum(spent_micros), 0) FROM budget_spend WHERE org_id = $1`)
	}

	var stop atomic.Bool
	var told, refused atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		together(callers, func(i int) {
			for n := 0; !stop.Load(); n++ {
				a, err := nodes[(i+n)%len(nodes)].as(c).tryChat(prompt("acme/std", "hi", false, `"max_tokens":20`))
				var answer struct {
					Svc struct {
						Charged int64 `json:"charged_micros,string"`
					} `json:"svc"`
				}
				switch {
				case err != nil || a.Broken != nil: // its node was killed
				case a.Status == http.StatusOK && json.Unmarshal(a.Body, &answer) == nil:
					told.Add(answer.Svc.Charged)
				case a.Status == http.StatusPaymentRequired:
					refused.Add(1)
					betweenLooks()
				}
			}
		})
	}()
	func() {
		defer func() { stop.Store(true); <-ended }()
		for i := range kills {
			node := nodes[i%len(nodes)]
			node.await("a part of the budget to be spent", patience, func() bool { return spent() > limit*int64(i+1)/int64(kills+2) })
			node.kill()
			node.start()
			node.awaitReady()
		}
		hold := number(`SELECT max(reserved_micros) FROM calls WHERE org_id = $1`)
		nodes[0].await("the budget to be full", patience, func() bool { return spent() > limit-hold && refused.Load() > 0 })
	}()
	nodes[0].await("what was left behind to expire", patience, func() bool {
		return number(`SELECT (SELECT count(*) FROM holds WHERE org_id = $1) + (SELECT count(*) FROM tranches WHERE org_id = $1)`) == 0
	})
	t.Logf("spent %d of %d, clients were told %d, %d calls were refused", spent(), limit, told.Load(), refused.Load())
	require.LessOrEqual(t, spent(), limit, "the leak")
	require.Equal(t, spent(), number(`SELECT sum(charged_micros) FROM calls WHERE org_id = $1`))
	require.Equal(t, fmt.Sprint(funds-spent()), nodes[0].svc(t, "wallet", "show", "--org", c.OrgID)["balanceMicros"])
	require.LessOrEqual(t, told.Load(), spent())
	require.Positive(t, refused.Load())
	require.Equal(t, true, nodes[0].svc(t, "doctor")["ok"])
}
