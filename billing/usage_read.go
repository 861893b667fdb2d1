package billing

import (
	"context"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// UsageBy is a grouping of usage.
type UsageBy string

// The groupings of usage.
const (
	UsageByOrganization UsageBy = "organization"
	UsageByModel        UsageBy = "model"
	UsageByVendor       UsageBy = "vendor"
	UsageByKey          UsageBy = "key"
	UsageByDay          UsageBy = "day"
)

// UsageQuery selects figures.
type UsageQuery struct {
	By UsageBy
	// Wallet selects an environment, and an organization unless OrgID is empty. Usage by key requires one, and usage by organization none.
	Wallet WalletID
	// Model selects one model. Empty means all.
	Model string
	// From and Until limit the days, From <= day < Until, in epoch milliseconds of their beginnings.
	From, Until int64
	// Skip is the number of rows to leave out, and Rows the largest number of rows to read.
	Skip int64
	Rows int
}

// UsageRow are the figures of one group.
type UsageRow struct {
	// Group is an id, the name of a model or a provider, or a day in days since 1970. Name is the name of the organization or of the key.
	Group, Name string
	Figures
}

// usageGroups are the group, its name, the columns to group by, and the order of the rows.
var usageGroups = map[UsageBy]struct{ group, name, by, order string }{
	UsageByOrganization: {"o.id", "o.name", "o.id, o.name", "o.id"},
	UsageByModel:        {"model", "''", "model", "sum(charged_micros) DESC, model"},
	UsageByVendor:       {"provider", "''", "provider", "sum(charged_micros) DESC, provider"},
	UsageByKey: {
		"key_id", "coalesce((SELECT k.name FROM api_keys k WHERE k.id = key_id), '')", "key_id", "sum(charged_micros) DESC, key_id",
	},
	UsageByDay: {"CAST(day AS TEXT)", "''", "day", "day"},
}

// statement returns the text and the arguments of the query. The figures of organizations are read for a page of organizations in order of id,
// because the sums of all of them take too long.
func (q *UsageQuery) statement() (text string, arguments []any) {
	const days = ` AND day >= $2 AND day < $3 AND ($4 = '' OR model = $4)`
	arguments = []any{string(q.Wallet.Env), q.From / dayMillis, q.Until / dayMillis, q.Model, q.Skip}
	// For a limit that is a parameter PostgreSQL would plan to read a tenth of all organizations.
	table, page := `usage_totals WHERE env = $1`+days, ` LIMIT `+strconv.Itoa(q.Rows)+` OFFSET $5`
	if q.Wallet.OrgID != "" {
		table = `usage_days WHERE org_id = $6 AND env = $1` + days
		arguments = append(arguments, q.Wallet.OrgID)
	}
	if q.By == UsageByOrganization {
		table = `(SELECT org_id FROM usage_wallets WHERE env = $1 AND org_id > '' ORDER BY org_id` + page + `) AS paged
			JOIN organizations o ON o.id = paged.org_id LEFT JOIN usage_days u ON u.org_id = paged.org_id AND u.env = $1` + days
		page = ""
	}
	g := usageGroups[q.By]
	sums := strings.ReplaceAll(figureColumns, ",", `), 0) AS BIGINT), CAST(coalesce(sum(`)
	text = `SELECT ` + g.group + `, ` + g.name + `, CAST(coalesce(sum(` + sums + `), 0) AS BIGINT)`
	return text + ` FROM ` + table + ` GROUP BY ` + g.by + ` ORDER BY ` + g.order + page, arguments
}

// Usage reads sums of calls, up to the moment of [Book.UsageThrough]. Days are in their order, organizations in that of their ids, and other groups
// begin with the highest charges.
func (b *Book) Usage(ctx context.Context, q UsageQuery) ([]UsageRow, error) {
	text, arguments := q.statement()
	return store.ReadRows(ctx, b.db, "read usage", store.ScanFields[UsageRow](), text, arguments...)
}

// KeyCalls are the calls of an API key in a stretch of days.
type KeyCalls struct {
	KeyID string
	Calls int64
	// LastDay is the last day with a call, in days since 1970.
	LastDay int64
}

// KeyCalls reads the calls of an organization's API keys with first <= id <= last, from the day since on, in days since 1970.
// Keys without calls are left out.
func (b *Book) KeyCalls(ctx context.Context, orgID, first, last string, since int64) ([]KeyCalls, error) {
	return store.ReadRows(ctx, b.db, "read usage of keys", func(row store.Row) (k KeyCalls, err error) {
		err = row.Scan(&k.KeyID, &k.Calls, &k.LastDay)
		return k, err
	}, `SELECT key_id, CAST(sum(calls) AS BIGINT), max(day) FROM usage_days
		WHERE org_id = $1 AND env IN ('live', 'test') AND day >= $2 AND key_id BETWEEN $3 AND $4 GROUP BY key_id`, orgID, since, first, last)
}

// UsageThrough returns the moment through which all calls count in the usage, in epoch milliseconds. It is less than two minutes ago, unless
// no server or worker has run for a while.
func (b *Book) UsageThrough(ctx context.Context) (int64, error) {
	return store.ReadRow(ctx, b.db, "read usage", store.ScanValue[int64], `SELECT coalesce((SELECT through FROM usage_progress WHERE id = 1), 0)`)
}

// CallsByMinute returns the calls of all organizations that ended in each of the last n whole minutes before [Book.UsageThrough], oldest first.
func (b *Book) CallsByMinute(ctx context.Context, n int64) ([]int64, error) {
	through, err := b.UsageThrough(ctx)
	if err != nil {
		return nil, err
	}
	first, counts := through/minuteMillis-n, make([]int64, n)
	err = store.EachRow(ctx, b.db, "read usage", func(row store.Row) error {
		var minute, calls int64
		err := row.Scan(&minute, &calls)
		counts[minute-first] = calls
		return err
	}, `SELECT minute, calls FROM usage_minutes WHERE minute >= $1 AND minute < $2`, first, first+n)
	return counts, err
}

// EndingWallet is a live wallet that ends soon.
type EndingWallet struct {
	OrgID, Name, Plan string
	Spending
}

// Spending is the balance of a live wallet and the rate at which it is spent.
type Spending struct{ BalanceMicros, MicrosPerDay int64 }

// spendingMillis is the time in which a wallet's present spending is charged: today, and the seven days before.
func spendingMillis(now int64) int64 { return 7*dayMillis + now%dayMillis }

// scanSpending scans a balance, the charges since the beginning of the day before a week, and the creation of the organization. An organization
// that is younger than a week has spent its charges in the time of its life, but not in less than a day.
func scanSpending(row store.Row, now int64, into ...any) (s Spending, err error) {
	var spent, created int64
	err = row.Scan(append(into, &s.BalanceMicros, &spent, &created)...)
	hours := min(spendingMillis(now), max(now-created, dayMillis)) / (dayMillis / 24)
	s.MicrosPerDay = spent/hours*24 + spent%hours*24/hours
	return s, err
}

const walletSpending = ` coalesce(w.balance_micros, 0), coalesce(u.spent_micros, 0), o.created_at FROM `

// EndingWallets reads the live wallets that last for less than some days at their present spending, up to n. The first one ends first. Wallets
// of suspended organizations are left out.
func (b *Book) EndingWallets(ctx context.Context, now, days int64, n int) ([]EndingWallet, error) {
	return store.ReadRows(ctx, b.db, "look for wallets that end soon", func(row store.Row) (e EndingWallet, err error) {
		e.Spending, err = scanSpending(row, now, &e.OrgID, &e.Name, &e.Plan)
		return e, err
	}, `SELECT o.id, o.name, o.plan,`+walletSpending+`usage_wallets u JOIN organizations o ON o.id = u.org_id
			LEFT JOIN wallets w ON w.org_id = u.org_id AND w.env = u.env
		WHERE u.env = 'live' AND u.spent_micros > 0 AND o.suspended_at IS NULL AND coalesce(w.balance_micros, 0) * 1.0
			* CASE WHEN o.created_at + $2 < $1 THEN $2 WHEN o.created_at + 86400000 < $1 THEN $1 - o.created_at ELSE 86400000 END
			< u.spent_micros * 1.0 * CAST($3 AS BIGINT)
		ORDER BY coalesce(w.balance_micros, 0) * 1.0 / u.spent_micros, o.id LIMIT $4`, now, spendingMillis(now), days*dayMillis, n)
}

// Spending reads the balance of an organization's live wallet and the rate at which it is spent.
func (b *Book) Spending(ctx context.Context, orgID string, now int64) (Spending, error) {
	return store.ReadRow(ctx, b.db, "read spending", func(row store.Row) (Spending, error) { return scanSpending(row, now) },
		`SELECT`+walletSpending+`organizations o LEFT JOIN usage_wallets u ON u.org_id = o.id AND u.env = 'live'
			LEFT JOIN wallets w ON w.org_id = o.id AND w.env = 'live' WHERE o.id = $1`, orgID)
}

// MaxOutcomes limits the calls that [Book.Outcomes] counts, of charged calls and of others.
const MaxOutcomes = 10_000

// Outcomes counts how the calls of a wallet ended since a moment, the newest [MaxOutcomes] charged ones and as many others.
func (b *Book) Outcomes(ctx context.Context, id WalletID, since int64) (map[string]int64, error) {
	after, err := b.seqBefore(ctx, id, since)
	if err != nil {
		return nil, err
	}
	return store.ReadMap[string, int64](ctx, b.db, "count outcomes", `SELECT outcome, count(*) FROM (
			SELECT outcome FROM (SELECT outcome FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq > $3
				ORDER BY wallet_seq DESC LIMIT $5) AS charged
			UNION ALL SELECT outcome FROM (SELECT outcome FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq IS NULL AND ended_at >= $4
				ORDER BY ended_at DESC LIMIT $5) AS uncharged
		) AS history GROUP BY outcome`, id.OrgID, string(id.Env), after, since, MaxOutcomes)
}
