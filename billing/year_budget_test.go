package billing

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// yearBudget is a budget with the highest limit that it has had, rises included.
type yearBudget struct {
	Budget

	highest int64
}

// budget makes the budgets of a wallet: one that counts all calls of the year, and those that operators steer.
func (y *year) budget(wallet *yearWallet) {
	owner := Budget{Wallet: wallet.WalletID, Owner: OwnerOrganization, Name: "all", Period: PeriodTotal, LimitMicros: 1e12}
	wallet.all = y.createBudget(owner).ID
	owner.Name, owner.Period, owner.LimitMicros = "tight", PeriodWeek, 20_000
	if wallet.Env == store.Test {
		y.budgets = append(y.budgets, y.createBudget(owner))
		return
	}
	wallet.key = wallet.OrgID + "_key"
	makeKeys(y.t, y.db(), wallet.OrgID, wallet.key)
	owner.Owner, owner.OwnerID = OwnerAPIKey, wallet.key
	for period, limit := range map[Period]int64{PeriodDay: 10_000, PeriodMonth: 60_000} {
		owner.Period, owner.LimitMicros = period, limit
		y.budgets = append(y.budgets, y.createBudget(owner))
	}
}

func (y *year) createBudget(budget Budget) *yearBudget {
	made, err := y.processes[0].book.CreateBudget(y.t.Context(), yearActor, budget)
	require.NoError(y.t, err)
	y.seeBudgets(made.Wallet.OrgID)
	return &yearBudget{made, made.LimitMicros}
}

// seeBudgets lets the next calls of an organization know that its budgets have changed.
func (y *year) seeBudgets(org string) {
	version := count(y.t, y.db(), `SELECT budget_version FROM organizations WHERE id = $1`, org)
	y.mu.Lock()
	defer y.mu.Unlock()
	y.versions[org] = int64(version)
}

// part returns the part of a call in budgets: with the key of its wallet or without one.
func (y *year) part(wallet *yearWallet, keyed bool) *Budgeted {
	y.mu.Lock()
	defer y.mu.Unlock()
	part := &Budgeted{Version: y.versions[wallet.OrgID]}
	if keyed {
		part.KeyID = wallet.key
	}
	return part
}

// steer raises a budget for a time or ends that, changes its limit, or ends it and makes another one, while calls run.
func (y *year) steer() {
	ctx, at := y.t.Context(), y.steering.IntN(len(y.budgets))
	b, book := y.budgets[at], y.processes[y.steering.IntN(2)].book
	now, err := y.db().Now(ctx)
	require.NoError(y.t, err)
	switch y.steering.IntN(5) {
	case 0, 1:
		_, err = book.RaiseBudget(ctx, yearActor, b.Wallet.OrgID, b.ID, BudgetRise{
			AmountMicros: 1 + y.steering.Int64N(10_000), EndsAt: now + 500 + y.steering.Int64N(20*24*time.Hour.Milliseconds()), Reason: "a fair",
		})
		y.raised++
	case 2:
		for _, b := range y.budgets {
			rises, err := book.BudgetRises(ctx, b.Wallet.OrgID, b.ID)
			require.NoError(y.t, err)
			if len(rises) > 0 && rises[0].EndsAt > now+time.Hour.Milliseconds() {
				require.NoError(y.t, book.EndBudgetRise(ctx, yearActor, b.Wallet.OrgID, b.ID, rises[0].ID))
				y.seeBudgets(b.Wallet.OrgID)
				y.lowered++
				break
			}
		}
	case 3:
		limit := 1 + y.steering.Int64N(20_000)
		_, err = book.ChangeBudget(ctx, yearActor, b.Wallet.OrgID, b.ID, BudgetChange{LimitMicros: &limit})
	case 4:
		require.NoError(y.t, book.EndBudget(ctx, yearActor, b.Wallet.OrgID, b.ID))
		y.pastBudgets = append(y.pastBudgets, b)
		again := b.Budget
		again.LimitMicros = 1 + y.steering.Int64N(40_000)
		b = y.createBudget(again)
		y.budgets[at] = b
	}
	require.NoError(y.t, err)
	y.seeBudgets(b.Wallet.OrgID)
	state, err := book.Budget(ctx, b.Wallet.OrgID, b.ID)
	require.NoError(y.t, err)
	b.highest = max(b.highest, state.LimitMicros+state.RisenMicros)
}

// requireBudgets requires that the periods of each budget follow each other, that none has spent more than the highest limit of its budget, and that
// the budget of all calls has counted what callers were told.
func (y *year) requireBudgets() {
	type period struct{ begin, end, spent int64 }
	read := func(id string) (periods []period) {
		periods, err := store.ReadRows(y.t.Context(), y.db(), "read periods", func(row store.Row) (p period, err error) {
			return p, row.Scan(&p.begin, &p.end, &p.spent)
		}, `SELECT period_start, ends_at, spent_micros FROM budget_spend WHERE budget_id = $1 AND reserved_micros = 0 ORDER BY period_start`, id)
		require.NoError(y.t, err)
		return periods
	}
	full := 0
	for _, b := range append(y.budgets, y.pastBudgets...) {
		var last period
		for _, p := range read(b.ID) {
			require.LessOrEqual(y.t, last.end, p.begin, b.ID)
			require.Less(y.t, p.begin, p.end, b.ID)
			require.LessOrEqual(y.t, p.spent, b.highest, b.ID)
			full += int(p.spent * 4 / b.highest / 3)
			last = p
		}
	}
	require.Positive(y.t, full, "periods that were spent")
	for _, wallet := range y.wallets {
		require.Equal(y.t, []int64{wallet.charged}, []int64{read(wallet.all)[0].spent}, fmt.Sprint(wallet.WalletID))
	}
	require.Zero(y.t, count(y.t, y.db(), `SELECT count(*) FROM budget_spend WHERE reserved_micros > 0`))
}
