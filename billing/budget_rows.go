package billing

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The columns of a budget b, of a rise r and of a period p, which may be missing, and the number of the wallet's newest period.
const (
	budgetColumns = `b.org_id, b.env, b.id, b.owner_kind, b.owner_id, b.name, b.period, b.limit_micros, b.thresholds, b.created_at,
		b.ended_at, o.time_zone, coalesce(r.id, ''), coalesce(r.amount_micros, 0), coalesce(r.ends_at, 0),
		coalesce(p.number, 0), coalesce(p.period_start, 0), coalesce(p.ends_at, 0), coalesce(p.reserved_micros, 0), coalesce(p.spent_micros, 0),
		coalesce(p.most_micros, 0), coalesce(p.told, 0), coalesce(p.first_seq, 0), coalesce(p.last_seq, 0),
		coalesce(p.refused_at, 0)`
	risesOfBudget = ` JOIN organizations o ON o.id = b.org_id
		LEFT JOIN budget_rises r ON r.org_id = b.org_id AND r.budget_id = b.id AND NOT r.past`
	// newestPeriod joins the newest period of a budget.
	newestPeriod = ` LEFT JOIN budget_spend p ON p.org_id = b.org_id AND p.budget_id = b.id AND p.period_start =
			(SELECT max(n.period_start) FROM budget_spend n WHERE n.org_id = b.org_id AND n.budget_id = b.id)`
)

var (
	selectBudgets = listSizes.Statement(`SELECT `+budgetColumns+`,
			coalesce((SELECT max(number) FROM budget_spend n WHERE n.org_id = b.org_id AND n.env = b.env), 0)
		FROM budgets b`+risesOfBudget+newestPeriod+`
		WHERE (b.org_id, b.env, b.owner_kind, b.owner_id) IN ({list}) AND b.ended_at IS NULL`, 4, 0)
	selectPeriods = listSizes.Rows(`WITH wanted (org_id, env, number) AS ({list}) SELECT `+budgetColumns+`, 0
		FROM wanted CROSS JOIN budget_spend p JOIN budgets b ON b.id = p.budget_id`+risesOfBudget+`
		WHERE p.org_id = wanted.org_id AND p.env = wanted.env AND p.number = wanted.number`, "text", "text", "bigint")
	// Updates of the periods of a batch are one statement, together with new periods.
	writePeriods = listSizes.Statement(`INSERT INTO budget_spend (org_id, env, number, budget_id, period_start, ends_at, reserved_micros,
			spent_micros, most_micros, told, first_seq, last_seq, refused_at) {list}
		ON CONFLICT (org_id, env, number) DO UPDATE SET reserved_micros = excluded.reserved_micros, spent_micros = excluded.spent_micros,
			most_micros = excluded.most_micros, told = excluded.told, last_seq = excluded.last_seq, refused_at = excluded.refused_at`, 13, 0)
)

// queuePeriods reads periods with their budgets.
func queuePeriods(tx store.Tx, keys []periodKey, books *books) {
	if len(keys) == 0 {
		return
	}
	slices.SortFunc(keys, periodKey.compare)
	keys = slices.Compact(keys)
	selectPeriods.QueueLookup(tx, books.scanBudget, store.Column(keys, func(k periodKey) string { return k.wallet.OrgID }),
		store.Column(keys, func(k periodKey) string { return string(k.wallet.Env) }), store.Column(keys, func(k periodKey) int64 { return k.number }))
}

// scanBudget scans a row of a budget, with one of its rises and one of its periods. Rows may repeat a budget, a rise or a period.
func (b *books) scanBudget(row store.Row) error {
	r, p, newest := &budgetRow{rises: make([]riseRow, 1)}, &periodRow{stored: true}, int64(0)
	rise := &r.rises[0] // with an amount of zero if the budget has none
	var kind, every, thresholds string
	var ended sql.NullInt64
	err := row.Scan(
		&r.Wallet.OrgID, &r.Wallet.Env, &r.ID, &kind, &r.OwnerID, &r.Name, &every, &r.LimitMicros, &thresholds, &r.CreatedAt,
		&ended, &r.zone, &rise.id, &rise.micros, &rise.endsAt, &p.number, &p.begin, &p.endAt, &p.reserved, &p.spent,
		&p.most, &p.told, &p.firstSeq, &p.lastSeq, &p.refusedAt, &newest)
	if err != nil {
		return err
	}
	r.Owner, r.Period, r.EndedAt = OwnerKind(kind), Period(every), ended.Int64
	for word := range strings.FieldsSeq(thresholds) {
		percent, _ := strconv.ParseInt(word, 10, 64) // writeThresholds wrote it
		r.Thresholds = append(r.Thresholds, percent)
	}
	p.wallet, p.read = r.Wallet, p.periodState
	if b.budgets == nil {
		b.budgets, b.open, b.periods = map[string]*budgetRow{}, map[budgetOwner][]*budgetRow{}, map[periodKey]*periodRow{}
	}
	known := b.budgets[r.ID]
	if known == nil {
		known = r
		b.budgets[r.ID] = known
		if r.EndedAt == 0 {
			b.open[r.owner()] = append(b.open[r.owner()], r)
		}
	} else if !slices.Contains(known.rises, r.rises[0]) {
		known.rises = append(known.rises, r.rises[0])
	}
	if wallet := b.wallets[r.Wallet]; wallet != nil {
		wallet.periods = max(wallet.periods, newest)
	}
	if p.number == 0 || b.periods[p.periodKey] != nil {
		return nil
	}
	p.budget = known
	b.periods[p.periodKey] = p
	if known.last == nil || known.last.begin < p.begin {
		known.last = p
	}
	return nil
}

// readNamed reads the periods that holds, running keys and tranches name and that were not read before. A settlement names the periods of its
// call, so only an unusual end of a reservation costs this round trip.
func readNamed(ctx context.Context, tx store.Tx, books *books) error {
	var missing []periodKey
	add := func(wallet WalletID, names string) {
		if names == "" {
			return
		}
		for key := range periodKeys(wallet, names) {
			if books.periods[key] == nil {
				missing = append(missing, key)
			}
		}
	}
	for _, hold := range books.holds {
		add(hold.wallet, hold.budgets)
	}
	for key, claim := range books.claims {
		add(key.wallet, claim.budgets)
	}
	for id, wallet := range books.wallets {
		for _, tranche := range wallet.tranches {
			if tranche.budgets != "" && tranche.leaseUntil < tx.Now() { // it may lapse
				add(id, tranche.budgets)
			}
		}
	}
	queuePeriods(tx, missing, books)
	return store.Wrap("read budgets", tx.Flush(ctx))
}

// writePeriods writes each changed period once.
func (b *books) writePeriods(tx store.Tx) {
	changed := slices.SortedFunc(maps.Values(b.periods), func(a, b *periodRow) int { return a.compare(b.periodKey) })
	changed = slices.DeleteFunc(changed, func(p *periodRow) bool { return p.stored && p.periodState == p.read })
	store.QueueList(tx, listSizes, writePeriods, false, changed, func(values []any, p *periodRow) []any {
		return append(listWallet(values, p.wallet), p.number, p.budget.ID, p.begin, p.endAt, p.reserved, p.spent, p.most, p.told, p.firstSeq,
			p.lastSeq, p.refusedAt)
	})
}
