package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// budgeted are acme's budgets in a wallet of 1,000,000.
type budgeted struct {
	*testing.T
	db   *store.DB
	book *Book
	// calls are the parts of calls in budgets, as their processes keep them.
	calls map[string]*Budgeted
}

func eachBudgeted(t *testing.T, f func(b *budgeted)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeOwners(t, db, acme.OrgID)
		topUp(t, book, 1_000_000)
		f(&budgeted{t, db, book, map[string]*Budgeted{}})
	})
}

// makeOwners makes the API keys key_1 and key_2 and the assistant agt_1 of an organization.
func makeOwners(t *testing.T, db *store.DB, org string) {
	t.Helper()
	for i, id := range []string{"key_1", "key_2"} {
		execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ($1, $2, 'live', $1, '', $3, '', 1)`,
			id+strings.TrimPrefix(org, acme.OrgID), org, append(make([]byte, 31), byte(i)))
	}
	execute(t, db, `INSERT INTO agents (id, org_id, name, model, instructions, use_byok, max_tokens, debounce_ms, debounce_max_ms, supersede, pause_ms, created_at,
		updated_at, handover, handover_words, handover_reply) VALUES ($1, $2, 'a', 'm', '', FALSE, 0, 0, 0, FALSE, 0, 1, 1, FALSE, '', '')`,
		"agt_1"+strings.TrimPrefix(org, acme.OrgID), org)
}

// budget makes a budget, of all if owner is empty.
func (b *budgeted) budget(owner string, period Period, limit int64) Budget {
	b.Helper()
	budget := Budget{Wallet: acme, Owner: OwnerOrganization, OwnerID: owner, Name: "of " + owner, Period: period, LimitMicros: limit}
	switch {
	case strings.HasPrefix(owner, "key_"):
		budget.Owner = OwnerAPIKey
	case strings.HasPrefix(owner, "agt_"):
		budget.Owner = OwnerAssistant
	}
	made, err := b.book.CreateBudget(b.Context(), "test", budget)
	require.NoError(b, err)
	return made
}

// part returns the part of a call in budgets. An owner is a key or an assistant, or empty.
func part(owner string) *Budgeted {
	part := &Budgeted{Version: 1}
	if strings.HasPrefix(owner, "agt_") {
		part.AgentID = owner
	} else {
		part.KeyID = owner
	}
	return part
}

func (b *budgeted) hold(id, owner string, micros int64) error {
	hold := holdOf(id, micros)
	hold.Budgets = part(owner)
	b.calls[id] = hold.Budgets
	return refusal(b.book.Hold(b.Context(), hold))
}

func (b *budgeted) holds(id, owner string, micros int64) {
	b.Helper()
	require.NoError(b, b.hold(id, owner, micros))
}

func (b *budgeted) refused(id, owner string, micros int64) *BudgetError {
	b.Helper()
	err := b.hold(id, owner, micros)
	refused, ok := errors.AsType[*BudgetError](err)
	require.True(b, ok, "%v", err)
	return refused
}

func (b *budgeted) settles(id string, reserved, cost int64) Settled {
	b.Helper()
	return b.ends(chargeOf(id, reserved, cost))
}

func (b *budgeted) ends(settlement Settlement) Settled {
	b.Helper()
	settlement.Budgets = b.calls[settlement.Call.ID]
	settled, err := b.book.Settle(b.Context(), settlement)
	require.NoError(b, err)
	return settled
}

// state returns a budget with its period.
func (b *budgeted) state(id string) BudgetState {
	b.Helper()
	states, err := b.book.Budgets(b.Context(), acme)
	require.NoError(b, err)
	for _, state := range states {
		if state.ID == id {
			return state
		}
	}
	require.Fail(b, "no open budget "+id)
	return BudgetState{}
}

func (b *budgeted) requireSpent(id string, spent, reserved int64) {
	b.Helper()
	state := b.state(id)
	require.Equal(b, [2]int64{spent, reserved}, [2]int64{state.SpentMicros, state.ReservedMicros})
}

// endPeriod lets the present period of a budget be over.
func (b *budgeted) endPeriod(id string) {
	b.Helper()
	now, err := b.db.Now(b.Context())
	require.NoError(b, err)
	execute(b.T, b.db, `UPDATE budget_spend SET ends_at = $2 WHERE budget_id = $1 AND ends_at > $2`, id, now)
}

// TestBudgetHolds: a hold is refused exactly when a budget that counts its call has too little room, and then nothing has changed.
func TestBudgetHolds(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		all, month := b.budget("", PeriodDay, 1000), b.budget("", PeriodMonth, 1200)
		key, agent := b.budget("key_1", PeriodTotal, 500), b.budget("agt_1", PeriodWeek, 300)
		b.holds("call_1", "key_1", 400)
		b.holds("call_1", "key_1", 400) // the same hold again
		require.ErrorIs(b, b.hold("call_1", "key_1", 401), ErrInvalid)
		refused := b.refused("call_2", "key_1", 101)
		require.Equal(b, &BudgetError{Budget: key, LimitMicros: 500, ReservedMicros: 400, RoomMicros: 100}, refused)
		require.Contains(b, refused.Error(), `The budget "of key_1" has too little left`)
		b.holds("call_2", "key_2", 500)
		b.holds("call_3", "agt_1", 100)
		refused = b.refused("call_4", "agt_1", 1)
		require.Equal(b, all.ID, refused.Budget.ID)
		require.Zero(b, refused.RoomMicros)
		require.Positive(b, refused.EndsAt)
		require.Contains(b, refused.Error(), "It ends at "+rfc3339(refused.EndsAt))
		require.ErrorIs(b, b.hold("call_4", "key_1", 1_000_000), ErrInsufficientCredits, "the wallet comes first")

		require.Equal(b, int64(150), b.settles("call_1", 400, 150).ChargedMicros)
		require.Equal(b, int64(100), b.settles("call_3", 100, 170).ChargedMicros)
		b.ends(voidOf("call_2", 500))
		b.requireSpent(all.ID, 250, 0)
		b.requireSpent(month.ID, 250, 0)
		b.requireSpent(key.ID, 150, 0)
		b.requireSpent(agent.ID, 100, 0)
		requireWallet(b.T, b.book, 1_000_000-250, 0)
		_, err := b.book.Refund(b.Context(), "test", "call_1", "")
		require.NoError(b, err)
		b.requireSpent(key.ID, 150, 0) // a refund gives no budget back
		require.Equal(b, 2, count(b.T, b.db, `SELECT count(*) FROM calls WHERE budgets <> ''`))

		free := holdOf("call_5", 5000)
		require.NoError(b, refusal(b.book.Hold(b.Context(), free)), "a call that began before the first budget")
		require.Equal(b, int64(7), b.settles("call_5", 5000, 7).ChargedMicros)
		b.requireSpent(all.ID, 250, 0)
	})
}

// TestBudgetReservationsEnd: however a hold ends, exactly what it has reserved is free again in its budgets.
func TestBudgetReservationsEnd(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("", PeriodTotal, 100)
		b.holds("call_1", "", 60)
		lapse(b.T, b.db, "call_1")
		require.Equal(b, []string{"call_1"}, sweep(b.T, b.book))
		b.requireSpent(budget.ID, 0, 0)

		hold := holdOf("call_2", 60)
		hold.Claim, hold.Budgets = claimOf("key", "content"), part("")
		require.NoError(b, refusal(b.book.Hold(b.Context(), hold)))
		b.requireSpent(budget.ID, 0, 60)
		require.NoError(b, refusal(b.book.Hold(b.Context(), hold)), "the same hold again")
		lapse(b.T, b.db, "call_2")
		hold.CallID, hold.Budgets = "call_3", part("")
		require.NoError(b, refusal(b.book.Hold(b.Context(), hold)), "a new call takes the key")
		b.requireSpent(budget.ID, 0, 60)
		kept := chargeOf("call_3", 60, 20)
		kept.Claim, kept.Keep, kept.Response = hold.Claim, true, []byte("sealed")
		b.calls["call_3"] = hold.Budgets
		b.ends(kept)
		b.requireSpent(budget.ID, 20, 0)

		b.holds("call_4", "", 80)
		again := holdOf("call_5", 70)
		again.Budgets, again.With = part(""), &note{replaced: "call_4"}
		require.NoError(b, refusal(b.book.Hold(b.Context(), again)), "the next call of a turn")
		b.requireSpent(budget.ID, 20, 70)
		void := voidOf("call_5", 70)
		_, err := b.book.Settle(b.Context(), void)
		require.NoError(b, err, "a void without the call's part, after an unknown outcome of its hold")
		b.requireSpent(budget.ID, 20, 0)
	})
}

// TestLateCallStaysInItsBudget: a call that has lost its reservation pays at most what its budgets have left beside all that is reserved.
func TestLateCallStaysInItsBudget(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("", PeriodDay, 100)
		for _, id := range []string{"call_1", "call_2", "call_3"} {
			b.holds(id, "", 30)
			lapse(b.T, b.db, id)
		}
		require.Len(b, sweep(b.T, b.book), 3)
		b.holds("call_4", "", 75)
		require.Equal(b, Settled{ChargedMicros: 10}, b.settles("call_1", 30, 10))
		require.Equal(b, Settled{ChargedMicros: 15, ShortfallMicros: 5}, b.settles("call_2", 30, 20), "beside what is reserved")
		require.Equal(b, Settled{ShortfallMicros: 1}, b.settles("call_3", 30, 1))
		b.requireSpent(budget.ID, 25, 75)
		require.Equal(b, Settled{ChargedMicros: 75, ShortfallMicros: 5}, b.settles("call_4", 75, 80))
		b.requireSpent(budget.ID, 100, 0)
	})
}

// TestBudgetChangesWhileCallsRun: a lower limit stops the next call and no running one, and a call counts in the period of its hold, also after
// the period or the budget has ended.
func TestBudgetChangesWhileCallsRun(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("", PeriodDay, 100)
		limit := func(micros int64) {
			changed, err := b.book.ChangeBudget(b.Context(), "test", acme.OrgID, budget.ID, BudgetChange{LimitMicros: &micros})
			require.NoError(b, err)
			require.Equal(b, micros, changed.LimitMicros)
		}
		b.holds("call_1", "", 60)
		limit(0)
		require.Equal(b, int64(-60), b.refused("call_2", "", 1).RoomMicros)
		require.Equal(b, Settled{ChargedMicros: 60, ShortfallMicros: 10}, b.settles("call_1", 60, 70), "it was admitted")
		limit(100)
		b.holds("call_2", "", 40)
		b.endPeriod(budget.ID)
		b.requireSpent(budget.ID, 0, 0)
		b.holds("call_3", "", 90)
		require.Equal(b, Settled{ChargedMicros: 35}, b.settles("call_2", 40, 35))
		b.requireSpent(budget.ID, 0, 90)
		require.Equal(b, 1, count(b.T, b.db, `SELECT count(*) FROM budget_spend WHERE spent_micros = 95 AND reserved_micros = 0`))
		require.NoError(b, b.book.EndBudget(b.Context(), "test", acme.OrgID, budget.ID))
		b.holds("call_4", "", 1000)
		require.Equal(b, Settled{ChargedMicros: 90, ShortfallMicros: 5}, b.settles("call_3", 90, 95))
		require.Equal(b, 1, count(b.T, b.db, `SELECT count(*) FROM budget_spend WHERE spent_micros = 90 AND reserved_micros = 0`))
		require.Equal(b, Settled{ChargedMicros: 1000}, b.settles("call_4", 1000, 1000))
		again := b.budget("", PeriodDay, 5)
		b.requireSpent(again.ID, 0, 0)
		require.Equal(b, 5, count(b.T, b.db, `SELECT budget_version FROM organizations WHERE id = $1`, acme.OrgID))
	})
}

// TestBudgetRises: a rise adds to the limit of every period until it ends, and is a row of its own.
func TestBudgetRises(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("key_1", PeriodDay, 100)
		now, err := b.db.Now(b.Context())
		require.NoError(b, err)
		raise := func(micros, endsAt int64, reason string) error {
			_, err := b.book.RaiseBudget(b.Context(), "usr_1", acme.OrgID, budget.ID, BudgetRise{AmountMicros: micros, EndsAt: endsAt, Reason: reason})
			return err
		}
		require.NoError(b, raise(30, now+time.Hour.Milliseconds(), "a sale"))
		require.NoError(b, raise(20, now+2*time.Hour.Milliseconds(), "a fair"))
		require.Equal(b, int64(50), b.state(budget.ID).RisenMicros)
		require.Equal(b, int64(150), b.refused("call_1", "key_1", 151).LimitMicros)
		b.holds("call_1", "key_1", 130)
		execute(b.T, b.db, `UPDATE budget_rises SET ends_at = $1 WHERE reason = 'a sale'`, now)
		require.Equal(b, int64(-10), b.refused("call_2", "key_1", 1).RoomMicros)
		require.Equal(b, Settled{ChargedMicros: 130}, b.settles("call_1", 130, 130))
		require.NoError(b, raise(11, now+time.Hour.Milliseconds(), "more"))
		b.holds("call_2", "key_1", 1)
		b.settles("call_2", 1, 1)
		require.Equal(b, 1, count(b.T, b.db, `SELECT count(*) FROM budget_rises WHERE past`))

		require.ErrorIs(b, raise(1, now, "late"), ErrRiseEnded)
		for _, micros := range []int64{0, -1} {
			require.ErrorIs(b, raise(micros, now+time.Hour.Milliseconds(), "x"), ErrInvalid)
		}
		require.ErrorIs(b, raise(1, now+time.Hour.Milliseconds(), " "), ErrInvalid)
		require.ErrorIs(b, raise(math.MaxInt64-130, now+time.Hour.Milliseconds(), "too much"), ErrOverflow)
		largest := int64(math.MaxInt64)
		_, err = b.book.ChangeBudget(b.Context(), "test", acme.OrgID, budget.ID, BudgetChange{LimitMicros: &largest})
		require.ErrorIs(b, err, ErrOverflow)
		rises, err := b.book.BudgetRises(b.Context(), acme.OrgID, budget.ID)
		require.NoError(b, err)
		require.Len(b, rises, 3)
		require.Equal(b, BudgetRise{
			ID: rises[0].ID, AmountMicros: 11, EndsAt: now + time.Hour.Milliseconds(), Reason: "more", CreatedBy: "usr_1", CreatedAt: rises[0].CreatedAt,
		}, rises[0])
	})
}

// TestBudgetsThatCantBe: each is refused with a text that says why, and nothing is written.
func TestBudgetsThatCantBe(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		sound := Budget{Wallet: acme, Owner: OwnerAPIKey, OwnerID: "key_1", Name: "n", Period: PeriodDay, LimitMicros: 1}
		execute(b.T, b.db, `UPDATE api_keys SET revoked_at = 1 WHERE id = 'key_2'`)
		for name, c := range map[string]struct {
			edit func(*Budget)
			want error
		}{
			"a negative limit":               {func(m *Budget) { m.LimitMicros = -1 }, ErrInvalid},
			"no name":                        {func(m *Budget) { m.Name = " " }, ErrInvalid},
			"a long name":                    {func(m *Budget) { m.Name = strings.Repeat("n", 201) }, ErrInvalid},
			"a name with a NUL":              {func(m *Budget) { m.Name = "a\x00" }, ErrInvalid},
			"no period":                      {func(m *Budget) { m.Period = "" }, ErrInvalid},
			"no owner":                       {func(m *Budget) { m.OwnerID = "" }, ErrInvalid},
			"an owner of its own":            {func(m *Budget) { m.Owner = OwnerOrganization }, ErrInvalid},
			"an unknown kind":                {func(m *Budget) { m.Owner = "team" }, ErrInvalid},
			"a threshold of 0":               {func(m *Budget) { m.Thresholds = []int64{0, 1} }, ErrInvalid},
			"a threshold above 100":          {func(m *Budget) { m.Thresholds = []int64{50, 101} }, ErrInvalid},
			"a threshold twice":              {func(m *Budget) { m.Thresholds = []int64{50, 50} }, ErrInvalid},
			"an unknown key":                 {func(m *Budget) { m.OwnerID = "key_none" }, store.ErrNotFound},
			"a key of the other environment": {func(m *Budget) { m.Wallet.Env = store.Test }, store.ErrNotFound},
			"a revoked key":                  {func(m *Budget) { m.OwnerID = "key_2" }, store.ErrNotFound},
			"an unknown assistant":           {func(m *Budget) { m.Owner, m.OwnerID = OwnerAssistant, "agt_none" }, store.ErrNotFound},
			"an unknown organization":        {func(m *Budget) { m.Wallet.OrgID = "org_none" }, store.ErrNotFound},
		} {
			budget := sound
			c.edit(&budget)
			_, err := b.book.CreateBudget(b.Context(), "test", budget)
			require.ErrorIs(b, err, c.want, name)
		}
		require.Zero(b, count(b.T, b.db, `SELECT budget_version FROM organizations WHERE id = $1`, acme.OrgID))
		made, err := b.book.CreateBudget(b.Context(), "test", sound)
		require.NoError(b, err)
		require.Equal(b, DefaultThresholds(), made.Thresholds)
		_, err = b.book.CreateBudget(b.Context(), "test", sound)
		require.ErrorIs(b, err, ErrBudgetExists)
		name := ""
		_, err = b.book.ChangeBudget(b.Context(), "test", acme.OrgID, made.ID, BudgetChange{Name: &name})
		require.ErrorIs(b, err, ErrInvalid)
		_, err = b.book.ChangeBudget(b.Context(), "test", "org_other", made.ID, BudgetChange{Thresholds: []int64{}})
		require.ErrorIs(b, err, store.ErrNotFound)
		changed, err := b.book.ChangeBudget(b.Context(), "test", acme.OrgID, made.ID, BudgetChange{Thresholds: []int64{90}})
		require.NoError(b, err)
		require.Equal(b, []int64{90}, changed.Thresholds)
		require.NoError(b, b.book.EndBudget(b.Context(), "test", acme.OrgID, made.ID))
		require.ErrorIs(b, b.book.EndBudget(b.Context(), "test", acme.OrgID, made.ID), store.ErrNotFound)
		require.Equal(b, "budget.create budget.change budget.end", names(b.T, b.db, `SELECT action FROM audit_log WHERE action LIKE 'budget%' ORDER BY id`))
	})
}

// TestBudgetRefusesSince: the first refused call since the amounts or the budget changed last is in the budget's state.
func TestBudgetRefusesSince(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("key_1", PeriodDay, 100)
		since := func() int64 { return b.state(budget.ID).RefusedAt }
		b.refused("call_1", "key_1", 101)
		require.Zero(b, since(), "nothing was reserved in the period")
		b.holds("call_1", "key_1", 100)
		require.Zero(b, since())
		b.refused("call_2", "key_1", 1)
		first := since()
		require.Positive(b, first)
		execute(b.T, b.db, `UPDATE budget_spend SET refused_at = refused_at - 1000`)
		b.refused("call_2", "key_1", 2)
		require.Equal(b, first-1000, since(), "still the first")
		b.settles("call_1", 100, 99)
		require.Zero(b, since(), "there is room again")
		b.refused("call_2", "key_1", 2)
		b.holds("call_2", "key_1", 1)
		require.Zero(b, since(), "one was admitted")
		b.refused("call_3", "key_1", 1)
		rise, err := b.book.RaiseBudget(b.Context(), "test", acme.OrgID, budget.ID, BudgetRise{AmountMicros: 1, EndsAt: first + time.Hour.Milliseconds(), Reason: "r"})
		require.NoError(b, err)
		require.Zero(b, since(), "the limit has changed")
		require.ErrorIs(b, b.book.EndBudgetRise(b.Context(), "test", acme.OrgID, budget.ID, "rise_none"), store.ErrNotFound)
		require.NoError(b, b.book.EndBudgetRise(b.Context(), "test", acme.OrgID, budget.ID, rise.ID))
		require.Zero(b, b.state(budget.ID).RisenMicros)
		b.refused("call_3", "key_1", 1)
		require.ErrorIs(b, b.book.EndBudgetRise(b.Context(), "test", acme.OrgID, budget.ID, rise.ID), store.ErrNotFound, "it has ended")
	})
}

// TestMaxBudgets: a wallet has a bound on its open budgets, and an ended one makes room.
func TestMaxBudgets(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("key_1", PeriodDay, 100)
		execute(b.T, b.db, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
			INSERT INTO budgets (id, org_id, env, owner_kind, owner_id, name, period, limit_micros, thresholds, created_at)
			SELECT 'bud_' || i, $2, 'live', 'assistant', 'agt_' || i, 'n', 'day', 1, '', 1 FROM n`, MaxBudgets-1, acme.OrgID)
		one := Budget{Wallet: acme, Owner: OwnerOrganization, Name: "n", Period: PeriodDay, LimitMicros: 1}
		_, err := b.book.CreateBudget(b.Context(), "test", one)
		require.ErrorIs(b, err, store.ErrLimit)
		require.NoError(b, b.book.EndBudget(b.Context(), "test", acme.OrgID, budget.ID))
		b.budget("", PeriodDay, 1)
	})
}

// TestExactlyTheCallsOfABudget: of many parallel calls of three processes exactly those pass that a budget has room for, to the micro, and none is
// refused before, with and without tranches.
func TestExactlyTheCallsOfABudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engine   store.Engine
		tranches bool
	}{"sqlite": {store.SQLite, true}, "postgres": {store.Postgres, true}, "sqlite, no tranches": {store.SQLite, false}, "postgres, no tranches": {store.Postgres, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := c.engine
			const price, atOnce = 7, 16
			calls := int64(long(1000, 5000))
			if !c.tranches {
				calls /= 4
			}
			location := storetest.Location(t, engine)
			var books []*Book
			for range 3 {
				db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Ledger}})
				book := NewBook(db)
				books = append(books, book)
				if c.tranches {
					tranches := book.StartTranches(slog.New(slog.DiscardHandler))
					t.Cleanup(func() { require.NoError(t, tranches.Stop(context.WithoutCancel(t.Context()))) })
				}
			}
			makeOrganization(t, books[0].db, acme.OrgID)
			topUp(t, books[0], 1_000_000)
			b := &budgeted{t, books[0].db, books[0], nil}
			makeOwners(t, b.db, acme.OrgID)
			tight := b.budget("key_1", PeriodTotal, calls*price+price-1)
			wide := b.budget("", PeriodMonth, 900_000)

			var held, granted atomic.Int64
			var callers sync.WaitGroup
			for i, book := range books {
				for j := range atOnce {
					callers.Go(func() {
						for n := 0; ; n++ {
							hold := holdOf(fmt.Sprintf("call_%d_%d_%d", i, j, n), price)
							hold.Budgets = part("key_1")
							_, err := book.Hold(t.Context(), hold)
							if _, refused := errors.AsType[*BudgetError](err); refused {
								return
							}
							settlement := chargeOf(hold.CallID, price, price)
							settlement.Budgets = hold.Budgets
							if err == nil {
								held.Add(1)
								if isGranted(book, hold.CallID) {
									granted.Add(1)
								}
								_, err = book.Settle(t.Context(), settlement)
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			callers.Wait()
			require.Equal(t, calls, held.Load())
			for _, book := range books {
				if c.tranches { // one may have the rest, which is too little for a call
					require.NoError(t, book.tranches.Stop(t.Context()))
				}
			}
			require.Equal(t, c.tranches, granted.Load() > calls/20, "calls from tranches")
			b.requireSpent(tight.ID, calls*price, 0)
			b.requireSpent(wide.ID, calls*price, 0)
			requireWallet(t, books[0], 1_000_000-calls*price, 0)
			require.Zero(t, count(t, b.db, `SELECT count(*) FROM calls WHERE shortfall_micros > 0`))
			requireSoundBooks(t, b.db)
		})
	}
}

// TestChangesOfBudgetsReachTheNextCall: the read of a call's key has the version of the budgets as committed last.
func TestChangesOfBudgetsReachTheNextCall(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		version := func() int64 {
			record, found, err := b.db.APIKeys.ByHash(b.Context(), [32]byte{})
			require.NoError(b, err)
			require.True(b, found)
			return record.BudgetVersion
		}
		require.Zero(b, version())
		budget := b.budget("", PeriodDay, 1)
		require.EqualValues(b, 1, version())
		zero := int64(0)
		_, err := b.book.ChangeBudget(b.Context(), "test", acme.OrgID, budget.ID, BudgetChange{LimitMicros: &zero})
		require.NoError(b, err)
		require.EqualValues(b, 2, version())
		require.NoError(b, b.book.EndBudget(b.Context(), "test", acme.OrgID, budget.ID))
		require.EqualValues(b, 3, version())
	})
}

// grantedTo is a book with a tranche of key_1, from which call_3 is held, and its clock.
func (b *budgeted) grantedTo() (holder *Book, clock *time.Time) {
	b.Helper()
	holder, clock = tendedBook(b.db)
	b.book = holder
	for _, id := range []string{"call_1", "call_2", "call_3"} {
		b.holds(id, "key_1", 10)
	}
	require.True(b, isGranted(holder, "call_3"))
	return holder, clock
}

// TestTranchesOfBudgets: a tranche is reserved in the budgets of its calls as in the wallet. It is for one key, for one version of the budgets, and
// for the periods in which it was opened.
func TestTranchesOfBudgets(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		all, key := b.budget("", PeriodTotal, 100_000), b.budget("key_1", PeriodDay, 20_000)
		holder, clock := b.grantedTo()
		b.requireSpent(all.ID, 0, 20+trancheCalls*10)
		b.requireSpent(key.ID, 0, 20+trancheCalls*10)
		requireWallet(t, holder, 1_000_000, 20+trancheCalls*10)
		require.Equal(b, Settled{ChargedMicros: 4, ShortfallMicros: 0}, b.settles("call_3", 10, 4))
		b.requireSpent(key.ID, 4, 20+trancheCalls*10-4)

		b.holds("call_4", "key_2", 10)
		require.False(b, isGranted(holder, "call_4"), "of another key")
		b.calls["call_5"] = &Budgeted{KeyID: "key_1", Version: 2}
		hold := holdOf("call_5", 10)
		hold.Budgets = b.calls["call_5"]
		require.NoError(b, refusal(holder.Hold(b.Context(), hold)))
		require.False(b, isGranted(holder, "call_5"), "after a change of a budget")
		b.holds("call_6", "key_1", 10)
		require.True(b, isGranted(holder, "call_6"), "before it")

		known := holder.tranches.wallets[trancheKey{acme, "key_1", "", 1}]
		*clock = known.until.Add(-time.Second)
		known.usedAt, known.leasedAt = *clock, *clock
		b.holds("call_7", "key_1", 10)
		require.True(b, isGranted(holder, "call_7"), "in the last second of the day")
		*clock = known.until
		known.usedAt, known.leasedAt = *clock, *clock
		b.holds("call_8", "key_1", 10)
		require.False(b, isGranted(holder, "call_8"), "on the next day")
		b.endPeriod(key.ID)
		holder.tranches.tend(b.Context())
		require.Equal(b, memory{inUse: 10}, memoryOf(known), "what no call uses is returned when the day ends; call_6 should have ended")
		for _, id := range []string{"call_1", "call_2", "call_4", "call_5", "call_6", "call_7", "call_8"} {
			require.Equal(b, int64(3), b.settles(id, 10, 3).ChargedMicros)
		}
		b.requireSpent(all.ID, 4+7*3, 0)
		b.requireSpent(key.ID, 0, 0)
		require.Equal(b, 4+6*3, count(b.T, b.db, `SELECT spent_micros FROM budget_spend WHERE budget_id = $1`, key.ID), "each on the day of its hold")
		stop(t, holder)
	})
}

// TestRisesEndTranches: no call is held from a tranche after the end of a rise by which it was opened.
func TestRisesEndTranches(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("key_1", PeriodTotal, 50)
		now, err := b.db.Now(b.Context())
		require.NoError(b, err)
		_, err = b.book.RaiseBudget(b.Context(), "test", acme.OrgID, budget.ID,
			BudgetRise{AmountMicros: 100_000, EndsAt: now + time.Hour.Milliseconds(), Reason: "a sale"})
		require.NoError(b, err)
		holder, clock := b.grantedTo()
		known := holder.tranches.wallets[trancheKey{acme, "key_1", "", 1}]
		*clock = clock.Add(time.Hour)
		known.usedAt, known.leasedAt = *clock, *clock
		execute(b.T, b.db, `UPDATE budget_rises SET ends_at = $1`, now)
		b.holds("call_4", "key_1", 10)
		require.False(b, isGranted(holder, "call_4"))
		b.refused("call_5", "key_1", 11)
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4"} {
			b.settles(id, 10, 10)
		}
		b.requireSpent(budget.ID, 40, 0)
		stop(t, holder)
	})
}

// TestKilledProcessKeepsNoBudget: the tranche of a process that was killed is free in its budgets when its lease ends, and a call of a process that
// hung until then pays at most what the budgets have left.
func TestKilledProcessKeepsNoBudget(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("key_1", PeriodMonth, 10_000)
		other := b.book
		b.grantedTo()
		hung := b.book
		b.book = other
		require.NotNil(b, b.refused("call_4", "key_1", 9_981), "two calls hold by themselves, and a tranche can't give more than its rest back")
		execute(b.T, b.db, `UPDATE tranches SET lease_until = 1`)
		b.requireSpent(budget.ID, 0, 20+trancheCalls*10)
		b.holds("call_4", "key_1", 9_975)
		b.requireSpent(budget.ID, 0, 20+9_975)
		require.Zero(b, count(b.T, b.db, `SELECT count(*) FROM tranches`))
		b.book = hung
		require.Equal(b, Settled{ChargedMicros: 5, ShortfallMicros: 5}, b.settles("call_3", 10, 10), "late")
		b.requireSpent(budget.ID, 5, 20+9_975)
		for id, micros := range map[string]int64{"call_1": 10, "call_2": 10, "call_4": 9_975} {
			require.Equal(b, micros, b.settles(id, micros, micros).ChargedMicros)
		}
		b.requireSpent(budget.ID, 10_000, 0)
	})
}

// TestThresholds: each threshold makes one event in each period, in the transaction of the charge that reaches it.
func TestThresholds(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		execute(b.T, b.db, `INSERT INTO event_endpoints (id, org_id, url, events, secret, old_secret_until, state, reason, failing_since, created_at,
			updated_at) VALUES ('evep_1', $1, 'https://e.com', ' budget.threshold_reached ', $2, 0, 'active', '', 0, 1, 1)`, acme.OrgID, []byte{1})
		events := func() (all []string) {
			payloads, err := store.ReadRows(b.Context(), b.db, "read events", store.ScanValue[string],
				`SELECT payload FROM event_deliveries WHERE type = 'budget.threshold_reached' ORDER BY event_id`)
			require.NoError(b, err)
			for _, payload := range payloads {
				var event struct {
					Data struct {
						BudgetID, SpentMicros, LimitMicros, ExpiresAt string
						Percent                                       string
					}
				}
				require.NoError(b, json.Unmarshal([]byte(payload), &event))
				d := event.Data
				all = append(all, fmt.Sprintf("%s %s%%: %s of %s, ends %t", strings.Repeat("x", len(d.BudgetID)-29), d.Percent, d.SpentMicros, d.LimitMicros,
					d.ExpiresAt != ""))
			}
			return all
		}
		budget := b.budget("key_1", PeriodDay, 1000)
		spend := func(id string, micros int64) {
			b.holds(id, "key_1", micros)
			b.settles(id, micros, micros)
		}
		spend("call_1", 499)
		require.Empty(b, events())
		spend("call_2", 1)
		first := "x 50%: 500 of 1000, ends true"
		require.Equal(b, []string{first}, events())
		spend("call_3", 100)
		require.Len(b, events(), 1)
		spend("call_4", 400)
		require.Equal(b, []string{first, "x 80%: 1000 of 1000, ends true", "x 100%: 1000 of 1000, ends true"}, events())
		b.endPeriod(budget.ID)
		spend("call_5", 799)
		require.Len(b, events(), 4)
		_, err := b.book.ChangeBudget(b.Context(), "test", acme.OrgID, budget.ID, BudgetChange{Thresholds: []int64{}})
		require.NoError(b, err)
		spend("call_6", 201)
		require.Len(b, events(), 4)
	})
}

// TestReaches: thresholds are exact, also of limits beyond any sum.
func TestReaches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spent, limit, percent int64
		want                  bool
	}{
		{49, 99, 50, false},
		{50, 99, 50, true},
		{50, 100, 50, true},
		{0, 0, 50, true},
		{1, 1, 100, true},
		{0, 1, 1, false},
		{1, 101, 1, false},
		{2, 101, 1, true},
		{math.MaxInt64, math.MaxInt64, 100, true},
		{math.MaxInt64 - 1, math.MaxInt64, 100, false},
		{math.MaxInt64/2 + 1, math.MaxInt64, 50, true},
		{math.MaxInt64 / 2, math.MaxInt64, 50, false},
	} {
		require.Equal(t, c.want, reaches(c.spent, c.limit, c.percent), "%+v", c)
	}
}

// TestTranchesAreAShareOfEachBudget: the tranches of a budget have at most a hundredth of what it has left, so that others find the rest.
func TestTranchesAreAShareOfEachBudget(t *testing.T) {
	eachBudgeted(t, func(b *budgeted) {
		budget := b.budget("", PeriodTotal, 5_000)
		b.book, _ = tendedBook(b.db)
		b.holds("call_1", "key_1", 10)
		b.holds("call_2", "key_1", 10)
		b.requireSpent(budget.ID, 0, 20+(5_000-20)/trancheShare)
		b.holds("call_3", "key_2", 10)
		b.holds("call_4", "key_2", 10)
		b.requireSpent(budget.ID, 0, 40+(5_000-20)/trancheShare)
		require.Equal(b, 1, count(b.T, b.db, `SELECT count(*) FROM tranches`))
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4"} {
			b.settles(id, 10, 10)
		}
		stop(b.T, b.book)
	})
}
