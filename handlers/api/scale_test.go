package api

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestScale measures the operator's operations. The long form (SVC_SCALE, which make soak sets) has 10,000 organizations and 5 million calls of 90 days, and
// each operation must take less than 100 ms at the 99th percentile.
func TestScale(t *testing.T) {
	organizations, calls, rounds := 20, 60, 3
	long := os.Getenv("SVC_SCALE") != ""
	if long {
		organizations, calls, rounds = 10_000, 500, 100
	}
	storetest.Each(t, []store.Kind{inbox.Kind, billing.Ledger}, func(t *testing.T, db *store.DB) {
		fillScale(t, db, organizations, calls)
		began := time.Now()
		require.NoError(t, billing.NewUsageSums(db).Update(t.Context()))
		t.Logf("%s: counted %d calls in %s", db.Engine(), organizations*calls, time.Since(began).Round(time.Millisecond))
		book := billing.NewBook(db)
		d := &Deps{
			Wallets: book, Book: book, DB: db, Conversations: inbox.New(db, handlertest.Ring(t)), Models: modelSet{}, Plans: &fixture{},
		}
		measured := []struct {
			name, org string
			operation Operation
			values    endpoint.Values
		}{
			{"organizations", "", ListOrganizations, endpoint.Values{"limit": "100"}},
			{"organizations by name", "", ListOrganizations, endpoint.Values{"q": "shop 1", "limit": "100"}},
			{"organizations by plan", "", ListOrganizations, endpoint.Values{"plan": "none", "suspended": "true"}},
			{"find a name", "", FindOrganization, endpoint.Values{"q": "Shop 17"}},
			{"find a key", "", FindOrganization, endpoint.Values{"q": "ck_live_0017"}},
			{"find a call", "", FindOrganization, endpoint.Values{"q": fmt.Sprint("call_", 100_000_017)}},
			{"overview", "", GetOverview, nil},
			{"users", "", ListUsers, endpoint.Values{"limit": "100"}},
			{"users by address", "", ListUsers, endpoint.Values{"email": "owner17", "limit": "100"}},
			{"usage by day", "", ListUsage, endpoint.Values{"by": "day"}},
			{"usage by model", "", ListUsage, endpoint.Values{"by": "model"}},
			{"usage by vendor", "", ListUsage, endpoint.Values{"by": "vendor"}},
			{"usage by organization", "", ListUsage, endpoint.Values{"by": "organization", "limit": "100"}},
			{"usage of an organization by key", "org_17", ListOrganizationUsage, endpoint.Values{"by": "key"}},
			{"usage of an organization by day", "org_17", ListOrganizationUsage, endpoint.Values{"by": "day"}},
			{"summary", "org_17", GetSummary, nil},
			{"calls", "org_17", ListCalls, endpoint.Values{"limit": "100"}},
			{"calls of a key", "org_17", ListCalls, endpoint.Values{"limit": "100", "keyId": "key_none"}},
			{"calls of an agent", "org_17", ListCalls, endpoint.Values{"limit": "100", "agentId": "agt_none"}},
			{"transactions", "org_17", ListTransactions, endpoint.Values{"limit": "100"}},
			{"audit log", "", ListActions, nil},
		}
		for _, m := range measured {
			var times []time.Duration
			for range rounds {
				principal, err := d.Operator(t.Context(), identity.CommandLine("cli:lan"), m.org)
				require.NoError(t, err)
				principal.Role = identity.Owner
				began := time.Now()
				_, err = m.operation.Run(t.Context(), d, principal, m.values)
				require.NoError(t, err, m.name)
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			p50, p99 := times[len(times)/2], times[(len(times)-1)*99/100]
			t.Logf("%s: %-32s p50 %8s p99 %8s", db.Engine(), m.name, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond))
			if long && p99 >= 100*time.Millisecond {
				t.Errorf("%s on %s: %s at the 99th percentile", m.name, db.Engine(), p99)
			}
		}
		sums, err := book.Usage(t.Context(), billing.UsageQuery{
			By: billing.UsageByVendor, Wallet: billing.WalletID{Env: store.Live}, Until: time.Now().UnixMilli() * 2, Rows: 9,
		})
		require.NoError(t, err)
		var all billing.Figures
		for i := range sums {
			all.Add(&sums[i].Figures)
		}
		charged := int64(organizations * calls * 9 / 10)
		require.Equal(t, []int64{int64(organizations * calls), 10 * charged, 4 * charged}, []int64{all.Calls, all.ChargedMicros, all.CostMicros})
		requireExport(t, d, charged)
	})
}

// requireExport exports the charges of all organizations as CSV, in less than 64 MiB however many there are.
func requireExport(t *testing.T, d *Deps, charges int64) {
	t.Helper()
	principal, err := d.Operator(t.Context(), identity.CommandLine("cli:lan"), "")
	require.NoError(t, err)
	before, w, began := liveHeap(), &heapWriter{header: http.Header{}}, time.Now()
	body, err := ListAllUsageEvents.Run(t.Context(), d, principal, endpoint.Values{"format": "csv"})
	require.NoError(t, err)
	file, ok := body.(endpoint.File)
	require.True(t, ok)
	file(w, handlertest.Get("/"))
	t.Logf("%s: exported %d charges in %s with %d KiB", d.DB.Engine(), charges, time.Since(began).Round(time.Millisecond), max(0, w.peak-before)>>10)
	require.Equal(t, charges+1, int64(w.lines))
	require.Less(t, w.peak-before, 64<<20)
}

// fillScale writes organizations with two keys and a wallet each, and their calls of the last 90 days. Every tenth call is free.
func fillScale(t *testing.T, db *store.DB, organizations, calls int) {
	t.Helper()
	series := func(name string, n int) string {
		return fmt.Sprintf(`(WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) AS %s`, n-1, name)
	}
	start := time.Now().AddDate(0, 0, -90).UnixMilli()
	step := (time.Now().UnixMilli() - start - time.Minute.Milliseconds()) / int64(calls)
	hash := map[store.Engine]string{
		store.SQLite: `CAST(printf('%032d', 2 * o.n + k.n) AS BLOB)`, store.Postgres: `convert_to(lpad((2 * o.n + k.n)::text, 32, '0'), 'UTF8')`,
	}[db.Engine()]
	hint := map[store.Engine]string{
		store.SQLite: `printf('%04d', o.n % 10000)`, store.Postgres: `lpad((o.n % 10000)::text, 4, '0')`,
	}[db.Engine()]
	statements := []string{
		`INSERT INTO organizations (id, name, plan, created_at, search_name) SELECT 'org_' || n, 'Shop ' || n, 'start', 1, 'shop ' || n FROM ` +
			series("o", organizations),
		`INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) SELECT 'key_' || o.n || '_' || k.n, 'org_' || o.n, 'live',
			'key ' || k.n, '', ` + hash + `, 'ck_live_' || ` + hint + ` || '…', 1 FROM ` + series("o", organizations) + ` CROSS JOIN ` + series("k", 2),
		`INSERT INTO prices SELECT n + 1, 'm/' || n % 5, 'p' || n % 3, 'u', '', 1000000, 1000000, 1000000, 1000000, 1000000, '',
			'[{"above":0,"input":400000,"output":400000,"cachedInput":400000,"cacheWrite":400000,"longCacheWrite":400000}]' FROM ` + series("p", 15),
		fmt.Sprintf(`INSERT INTO wallets (org_id, env, balance_micros, seq, moved_at) SELECT 'org_' || n, 'live', 1000000 - %d, %d + 1, %d FROM `,
			calls*9, calls*9/10, start+int64(calls)*step) + series("o", organizations),
		`INSERT INTO ledger_tx (id, org_id, env, wallet_seq, kind, account, ref, reason, amount_micros, balance_micros, created_at, audit_id)
			SELECT 'txn_' || n, 'org_' || n, 'live', 1, 'topup', 'sys:cash', 'r', '', 1000000, 1000000, 1, 'aud_' || n FROM ` + series("o", organizations),
		`INSERT INTO audit_log (id, at, actor, action, target, org_id, detail) SELECT 'aud_' || n, 1, '', 'wallet.credit', 'txn_' || n, 'org_' || n, ''
			FROM ` + series("o", organizations),
		fmt.Sprintf(`INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
				cached_tokens, usage_source, ended_at, duration_ms, price_id, reserved_micros, charged_micros, shortfall_micros, cost_micros, wallet_seq, balance_micros)
			SELECT 'call_' || (100000000 + c.n * %d + o.n), 'r', 'org_' || o.n, 'live', 'key_' || o.n || '_' || c.n %% 2, 'm/' || o.n %% 5, 'p' || o.n %% 3,
				FALSE, TRUE, CASE WHEN c.n %% 10 = 9 THEN 'provider_error' ELSE 'completed' END, 0, CASE WHEN c.n %% 10 = 9 THEN 0 ELSE 10 END, 0,
				'provider', %d + CAST(c.n AS BIGINT) * %d, 1, o.n %% 15 + 1, CASE WHEN c.n %% 10 = 9 THEN 0 ELSE 10 END, CASE WHEN c.n %% 10 = 9 THEN 0 ELSE 10 END, 0, CASE WHEN c.n %% 10 = 9 THEN 0 ELSE 4 END,
				CASE WHEN c.n %% 10 < 9 THEN c.n - c.n / 10 + 2 END, CASE WHEN c.n %% 10 < 9 THEN 1000000 - 10 * (c.n - c.n / 10 + 1) END
			FROM `, organizations, start, step) + series("c", calls) + ` CROSS JOIN ` + series("o", organizations) + ` ORDER BY 1`,
	}
	if db.Engine() == store.Postgres {
		statements = append(statements, `ANALYZE`)
	}
	require.NoError(t, db.Fill(t.Context(), func(tx *sql.Tx) error {
		for _, text := range statements {
			if _, err := tx.ExecContext(t.Context(), text); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
		return nil
	}))
}
