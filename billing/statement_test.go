package billing

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestStartOfMonth compares the beginning of every month with a search, in zones whose clocks have changed at the midnight of a first day.
func TestStartOfMonth(t *testing.T) {
	t.Parallel()
	const quarter = 15 * time.Minute
	for _, name := range []string{
		"UTC", "Asia/Ho_Chi_Minh", "Europe/Berlin", "America/Havana", "Asia/Damascus", "America/Asuncion", "Asia/Amman", "Africa/Cairo",
		"Australia/Lord_Howe", "Pacific/Apia", "Asia/Gaza", "America/Scoresbysund", "America/St_Johns", "Africa/Casablanca", "Asia/Kathmandu",
	} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		for month := time.Date(1985, 1, 1, 0, 0, 0, 0, time.UTC); month.Year() < 2040; month = month.AddDate(0, 1, 0) {
			first := month.Add(-15 * time.Hour)
			for ; first.In(zone).Month() != month.Month(); first = first.Add(quarter) { //nolint:revive // a search
			}
			for first.Add(-time.Minute).In(zone).Month() == month.Month() { // the rest of the quarter
				first = first.Add(-time.Minute)
			}
			require.Equal(t, first.UnixMilli(), beginOfDay(month.Year(), month.Month(), 1, zone), "%s in %s", month.Format(monthLayout), name)
		}
	}
}

// months opens a database of an engine with the organization acme in a time zone. set sets its clock.
func openMonths(t *testing.T, engine store.Engine, zone string) (book *Book, set func(local string) time.Time) {
	t.Helper()
	nodes, ahead := openClockedNodes(t, engine)
	makeOrganization(t, nodes[0].db, acme.OrgID)
	execute(t, nodes[0].db, `UPDATE organizations SET time_zone = $1`, zone)
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	return NewBook(nodes[0].db), func(local string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04", local, location)
		require.NoError(t, err)
		ahead(time.Until(at))
		return at
	}
}

func makeKeys(t *testing.T, db *store.DB, org string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		hash := sha256.Sum256([]byte(org + id))
		execute(t, db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ($1, $2, 'live', $1, '', $3, '', 1)`,
			id, org, hash[:])
	}
}

// spendMicros charges acme for a call.
func spendMicros(t *testing.T, book *Book, id, model, key string, micros int64) {
	t.Helper()
	s := cost(id, micros, micros)
	s.Call.Model, s.Call.KeyID = model, key
	require.NoError(t, refusal(book.Hold(t.Context(), Hold{CallID: id, Wallet: acme, AmountMicros: micros, ExpiresIn: time.Minute})))
	_, err := book.Settle(t.Context(), s)
	require.NoError(t, err)
}

func eachStatementEngine(t *testing.T, test func(t *testing.T, engine store.Engine)) {
	t.Helper()
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			test(t, engine)
		})
	}
}

func TestStatements(t *testing.T) {
	eachStatementEngine(t, func(t *testing.T, engine store.Engine) {
		book, set := openMonths(t, engine, "Asia/Ho_Chi_Minh")
		ctx := t.Context()
		none, err := book.Statements(ctx, acme, "", 10)
		require.NoError(t, err)
		require.Empty(t, none, "a wallet without entries has no month")

		set("2026-09-30 23:59")
		makeKeys(t, book.db, acme.OrgID, "key_1")
		require.NoError(t, refusalOf(book.Credit(ctx, "cli", acme, 1000, "pay-1")))
		spendMicros(t, book, "call_1", "m/one", "key_1", 100)
		set("2026-10-01 00:01")
		spendMicros(t, book, "call_2", "m/one", "key_1", 10)
		spendMicros(t, book, "call_3", "m/two", "", 20)
		spendMicros(t, book, "call_4", "m/one", "key_1", 5)
		execute(t, book.db, `INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens,
			completion_tokens, cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros, cost_micros)
			VALUES ('call_free', '', $1, 'live', '', 'm/one', '', TRUE, FALSE, 'completed', 1, 1, 0, 'provider', 5, 0, 0, 0, 0, 0)`, acme.OrgID)
		require.NoError(t, refusalOf(book.Refund(ctx, "cli", "call_1", "ticket")))
		require.NoError(t, refusalOf(book.Adjust(ctx, "cli", acme, -7, "why", "ref", "")))

		october, err := book.Statement(ctx, acme, "2026-10")
		require.NoError(t, err)
		require.False(t, october.Closed())
		require.Equal(t, []int64{900, 0, 35, 100, -7, 958, 3}, figuresOf(october))
		sums, err := october.Sums()
		require.NoError(t, err)
		require.Equal(t, []ChargeSum{
			{Model: "m/one", KeyID: "key_1", Calls: 2, CompletionTokens: 15, Micros: 15}, {Model: "m/two", Calls: 1, CompletionTokens: 20, Micros: 20},
		}, sums)

		set("2027-01-31 12:00")
		all, err := book.Statements(ctx, acme, "", 10)
		require.NoError(t, err)
		var months []string
		for i := range all {
			months = append(months, all[i].Month)
			require.Equal(t, i > 0, all[i].Closed())
		}
		require.Equal(t, []string{"2027-01", "2026-12", "2026-11", "2026-10", "2026-09"}, months)
		require.Equal(t, []int64{0, 1000, 100, 0, 0, 900, 1}, figuresOf(&all[4]))
		require.Equal(t, []int64{958, 0, 0, 0, 0, 958, 0}, figuresOf(&all[1]), "a month without entries")
		require.NoError(t, refusalOf(book.Refund(ctx, "cli", "call_3", "late")))
		closed, err := book.Statement(ctx, acme, "2026-10")
		require.NoError(t, err)
		require.Equal(t, all[3], *closed, "a later refund counts in its own month")
		require.Equal(t, []int64{900, 0, 35, 100, -7, 958, 3}, figuresOf(closed))
		postings, err := book.Postings(ctx, acme, closed.FirstSeq, closed.LastSeq)
		require.NoError(t, err)
		require.Len(t, postings, 2)
		page, err := book.Statements(ctx, acme, "2026-11", 1)
		require.NoError(t, err)
		require.Equal(t, all[3:4], page)
		for _, month := range []string{"2026-08", "2027-02", "", "x"} {
			_, err := book.Statement(ctx, acme, month)
			require.ErrorIs(t, err, store.ErrNotFound, month)
		}
		requireSoundBooks(t, book.db)
	})
}

func refusalOf(_ Entry, err error) error { return err }

func figuresOf(s *Statement) []int64 {
	return []int64{s.OpeningMicros, s.CreditMicros, s.ChargeMicros, s.RefundMicros, s.AdjustMicros, s.ClosingMicros, s.Calls}
}

// TestClosedMonthsStayClosed: after a month is closed, no entry gets a time in it, though the clock is set back; and a new time zone counts from
// the next month on.
func TestClosedMonthsStayClosed(t *testing.T) {
	eachStatementEngine(t, func(t *testing.T, engine store.Engine) {
		book, set := openMonths(t, engine, "Pacific/Kiritimati")
		ctx := t.Context()
		set("2026-09-30 12:00")
		require.NoError(t, refusalOf(book.Credit(ctx, "cli", acme, 1000, "pay-1")))
		set("2026-10-01 00:01")
		require.NoError(t, book.CloseMonths(ctx))
		set("2026-09-30 14:01")
		spendMicros(t, book, "call_1", "m/one", "", 10)
		september, err := book.Statement(ctx, acme, "2026-09")
		require.NoError(t, err)
		require.Equal(t, int64(1), september.LastSeq)
		entries, err := book.Entries(ctx, acme, Stretch{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, entries[0].At, september.EndsAt)

		execute(t, book.db, `UPDATE organizations SET time_zone = 'Pacific/Pago_Pago'`)
		set("2026-11-02 12:00")
		all, err := book.Statements(ctx, acme, "", 10)
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, []string{"Pacific/Pago_Pago", "Pacific/Kiritimati"}, []string{all[1].Zone, all[2].Zone})
		require.Equal(t, september.EndsAt, all[1].BeginsAt, "there is no gap")
		require.Equal(t, "2026-11-01T11:00:00Z", time.UnixMilli(all[1].EndsAt).UTC().Format(time.RFC3339))
		requireSoundBooks(t, book.db)
	})
}

// TestMonthsEndWithCharges: while calls are charged, a month ends and two processes close it. The entries before its end are in it, and no other.
func TestMonthsEndWithCharges(t *testing.T) {
	eachStatementEngine(t, func(t *testing.T, engine store.Engine) {
		nodes, set := openClockedNodes(t, engine)
		makeOrganization(t, nodes[0].db, acme.OrgID)
		ends := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		set(time.Until(ends.Add(-200 * time.Millisecond)))
		topUp(t, nodes[0].Book, 1_000_000)
		var running sync.WaitGroup
		var closed atomic.Bool
		for n := range 8 {
			running.Go(func() {
				for i := 0; i < 1000 && !closed.Load(); i++ {
					spendMicros(t, nodes[n%2].Book, fmt.Sprintf("call_%d_%d", n, i), "m/one", "", 1)
				}
			})
		}
		for _, node := range nodes {
			running.Go(func() {
				defer closed.Store(true)
				for range 5000 {
					if s, err := node.Statements(t.Context(), acme, "", 2); err != nil || len(s) == 2 {
						require.NoError(t, err)
						return
					}
					<-time.After(time.Millisecond)
				}
			})
		}
		running.Wait()
		october, err := nodes[0].Statement(t.Context(), acme, "2026-10")
		require.NoError(t, err)
		entries := historyOf(t, MaxHistoryRows, func(s Stretch) ([]Entry, error) { return nodes[0].Entries(t.Context(), acme, s) }, Entry.Place)
		require.Greater(t, int64(len(entries)), october.LastSeq, "calls went on")
		for _, e := range entries {
			require.Equal(t, e.Seq <= october.LastSeq, e.At < ends.UnixMilli(), "number %d", e.Seq)
		}
		requireSoundBooks(t, nodes[0].db)
	})
}

// TestCheckFindsChangedMonths breaks closed months, one way at a time, and names the invariants that must notice.
func TestCheckFindsChangedMonths(t *testing.T) {
	eachStatementEngine(t, func(t *testing.T, engine store.Engine) {
		book, set := openMonths(t, engine, "UTC")
		ctx := t.Context()
		for month := range 3 {
			set(fmt.Sprintf("2026-%02d-10 12:00", 7+month))
			require.NoError(t, refusalOf(book.Credit(ctx, "cli", acme, 1000, fmt.Sprint("pay-", month))))
			spendMicros(t, book, fmt.Sprint("call_", month), "m/one", "", 100)
			spendMicros(t, book, fmt.Sprint("call_other", month), "m/one", "", 10)
		}
		require.NoError(t, refusalOf(book.Refund(ctx, "cli", "call_0", "x")))
		now := set("2026-10-02 12:00").UnixMilli()
		require.NoError(t, book.CloseMonths(ctx))
		require.Error(t, tryExecute(t, book.db, `UPDATE statements SET zone = 'x'`))
		require.Error(t, tryExecute(t, book.db, `DELETE FROM statements`))

		const august = ` WHERE month = '2026-08'`
		month, err := book.Statement(ctx, acme, "2026-08")
		require.NoError(t, err)
		// rewritten returns a damage that changes August, with a hash that fits.
		rewritten := func(change func(wrong *Statement)) func(do statement) {
			wrong := *month
			change(&wrong)
			hash, err := wrong.digest(ctx, readerOf(book.db, "test"), acme)
			require.NoError(t, err)
			return func(do statement) {
				do(`UPDATE statements SET last_seq = $1, credit_micros = $2, adjust_micros = $3, charges = $4, hash = $5`+august,
					wrong.LastSeq, wrong.CreditMicros, wrong.AdjustMicros, wrong.Charges, hash[:])
			}
		}
		for name, damage := range map[string]struct {
			damage func(do statement)
			want   []string
		}{
			"nothing":             {func(statement) {}, nil},
			"a zone":              {func(do statement) { do(`UPDATE statements SET zone = 'x'` + august) }, []string{"S1"}},
			"a reference":         {func(do statement) { do(`UPDATE ledger_tx SET ref = 'pay-9' WHERE ref = 'pay-1'`) }, []string{"S1"}},
			"the end":             {func(do statement) { do(`UPDATE statements SET ends_at = ends_at + 1` + august) }, []string{"S1", "S2"}},
			"a month is missing":  {func(do statement) { do(`DELETE FROM statements` + august) }, []string{"S2"}},
			"the first one":       {func(do statement) { do(`DELETE FROM statements WHERE month = '2026-07'`) }, []string{"S2"}},
			"an amount":           {func(do statement) { do(`UPDATE statements SET credit_micros = credit_micros + 1` + august) }, []string{"S1", "S3"}},
			"the closing balance": {func(do statement) { do(`UPDATE statements SET closing_micros = closing_micros + 1` + august) }, []string{"S1", "S3"}},
			"a model of a call": {func(do statement) {
				do(`UPDATE calls SET model = 'm/two' WHERE id = 'call_1'`)
				do(`UPDATE prices SET model = 'm/two'`)
			}, []string{"S1"}},
			"a range, with the hash": {rewritten(func(wrong *Statement) { wrong.LastSeq-- }), []string{"S1", "S2", "S3"}},
			"amounts, with the hash": {rewritten(func(wrong *Statement) {
				wrong.CreditMicros--
				wrong.AdjustMicros++
			}), []string{"S1"}},
			"charges, with the hash": {rewritten(func(wrong *Statement) {
				wrong.Charges = strings.ReplaceAll(wrong.Charges, "m/one", "m/two")
			}), []string{"S1"}},
			"no wallet": {func(do statement) { do(`UPDATE statements SET org_id = 'org_none'`) }, []string{"S1", "S2", "S3"}},
		} {
			unguarded := func(do statement) {
				do(storetest.Unguard(engine, "statements"))
				damage.damage(do)
			}
			inBrokenBooks(t, book.db, unguarded, func(broken reader) {
				for _, recent := range []time.Duration{0, 90 * 24 * time.Hour} {
					report, err := Checker{Recent: recent}.examine(ctx, broken, now)
					require.NoError(t, err, name)
					found := slices.DeleteFunc(brokenInvariants(report), func(id string) bool { return !strings.HasPrefix(id, "S") })
					require.Equal(t, damage.want, found, "%s, the last %s: %s", name, recent, report)
				}
			})
		}
		execute(t, book.db, storetest.Unguard(engine, "statements"))
		execute(t, book.db, `UPDATE statements SET calls = calls + 1`+august)
		_, err = book.Statement(ctx, acme, "2026-08")
		require.ErrorIs(t, err, ErrStatementChanged)
	})
}

// TestYearOfStatements is a year of credits, calls, refunds and adjustments in five time zones, two of which change their clocks at midnight. The
// database's clock is sometimes set back by an hour. Months are closed by whoever comes first.
func TestYearOfStatements(t *testing.T) {
	t.Parallel()
	zones := []string{"Asia/Ho_Chi_Minh", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "America/Havana"}
	var clock atomic.Int64
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock.Store(now.UnixMilli())
	db, err := store.Open(t.Context(), storetest.Migrated(t, store.SQLite), store.Options{
		Kinds: []store.Kind{Ledger}, Clock: func() time.Time { return time.UnixMilli(clock.Load()) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close(context.WithoutCancel(t.Context()))) })
	book := NewBook(db)
	var wallets []WalletID
	for n, zone := range zones {
		org := fmt.Sprint("org_", n)
		makeOrganization(t, db, org)
		execute(t, db, `UPDATE organizations SET time_zone = $1 WHERE id = $2`, zone, org)
		makeKeys(t, db, org, org+"_0", org+"_1")
		wallets = append(wallets, WalletID{org, store.Live})
	}
	step := func(id WalletID, random *rand.Rand, n int) {
		ctx, ref := t.Context(), fmt.Sprint("ref-", n)
		switch random.IntN(6) {
		case 0:
			require.NoError(t, refusalOf(book.Credit(ctx, "cli", id, 1000+random.Int64N(5000), ref)))
		case 1:
			_, _ = book.Adjust(ctx, "cli", id, random.Int64N(200)-100, "why", ref, "") // too little may be free
		case 2:
			_, _ = book.Refund(ctx, "cli", fmt.Sprintf("call_%s_%d", id.OrgID, random.IntN(n+1)), ref) // it may not exist
		default:
			s := cost(fmt.Sprintf("call_%s_%d", id.OrgID, n), 500, 1+random.Int64N(499))
			s.Call.Wallet, s.Call.Model, s.Call.KeyID = id, fmt.Sprint("m/", n%3), fmt.Sprintf("%s_%d", id.OrgID, n%2)
			hold := Hold{CallID: s.Call.ID, Wallet: id, AmountMicros: s.ReservedMicros, ExpiresIn: time.Minute}
			if refusal(book.Hold(ctx, hold)) == nil {
				_, err := book.Settle(ctx, s)
				require.NoError(t, err)
			}
		}
	}
	random := rand.New(rand.NewPCG(37, 1)) //nolint:gosec // a test's
	for n := 0; now.Year() < 2027; n++ {
		next := now.Add(time.Duration(random.Int64N(int64(100 * time.Hour))))
		zone, err := time.LoadLocation(zones[random.IntN(len(zones))])
		require.NoError(t, err)
		if begins := time.UnixMilli(beginOfDay(next.Year(), next.Month(), 1, zone)); begins.After(now) {
			next = begins.Add(time.Duration(random.IntN(3)-1) * time.Millisecond) // a month begins in one of the zones
		}
		now = next
		clock.Store(now.UnixMilli())
		var running sync.WaitGroup
		for w, id := range wallets {
			own := rand.New(rand.NewPCG(uint64(n), uint64(w))) //nolint:gosec // a test's
			running.Go(func() {
				step(id, own, 2*n)
				clock.Store(now.UnixMilli() - own.Int64N(2)*time.Hour.Milliseconds())
				if own.IntN(4) == 0 {
					_, err := book.Statements(t.Context(), id, "", 3)
					require.NoError(t, err)
				}
				step(id, own, 2*n+1)
			})
		}
		if n%10 == 0 {
			running.Go(func() { require.NoError(t, book.CloseMonths(t.Context())) })
		}
		if n == 60 {
			execute(t, db, `UPDATE organizations SET time_zone = 'America/St_Johns' WHERE id = 'org_0'`)
		}
		running.Wait()
	}
	clock.Store(now.Add(45 * 24 * time.Hour).UnixMilli())
	for _, id := range wallets {
		requireMonths(t, book, id)
	}
	requireSoundBooks(t, db)
}

// requireMonths requires that the entries of a wallet are those of its months.
func requireMonths(t *testing.T, book *Book, id WalletID) {
	t.Helper()
	statements, err := book.Statements(t.Context(), id, "", 20)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(statements), 13)
	entries := historyOf(t, MaxHistoryRows, func(s Stretch) ([]Entry, error) { return book.Entries(t.Context(), id, s) }, Entry.Place)
	slices.Reverse(entries)
	require.Greater(t, len(entries), 100)
	var last Statement
	for i := range slices.Backward(statements) {
		s, err := book.Statement(t.Context(), id, statements[i].Month)
		require.NoError(t, err)
		zone, err := time.LoadLocation(s.Zone)
		require.NoError(t, err)
		ends := time.UnixMilli(s.EndsAt).In(zone)
		require.Equal(t, 1, ends.Day())
		require.Equal(t, s.Month, ends.Add(-time.Millisecond).Format(monthLayout))
		require.Equal(t, i > 0, s.Closed())
		if last.Month != "" {
			require.Equal(t, []int64{last.EndsAt, last.LastSeq + 1, last.ClosingMicros}, []int64{s.BeginsAt, s.FirstSeq, s.OpeningMicros})
		}
		var sums Statement
		balance, charged, calls := s.OpeningMicros, int64(0), int64(0)
		for _, e := range entries[s.FirstSeq-1 : s.LastSeq] {
			require.True(t, s.BeginsAt <= e.At && e.At < s.EndsAt, "number %d at %d, from %d to %d", e.Seq, e.At, s.BeginsAt, s.EndsAt)
			balance += e.AmountMicros
			switch e.Kind {
			case EntryTopUp:
				sums.CreditMicros += e.AmountMicros
			case EntryCharge:
				sums.ChargeMicros -= e.AmountMicros
				sums.Calls++
			case EntryAdjust:
				sums.AdjustMicros += e.AmountMicros
			case EntryRefund:
				sums.RefundMicros += e.AmountMicros
			case EntryReversal:
				sums.ReversalMicros += e.AmountMicros
			}
		}
		sums.OpeningMicros, sums.ClosingMicros = s.OpeningMicros, balance
		require.Equal(t, figuresOf(&sums), figuresOf(s), s.Month)
		require.Equal(t, s.ClosingMicros, s.OpeningMicros+s.CreditMicros+s.RefundMicros+s.AdjustMicros+s.ReversalMicros-s.ChargeMicros)
		charges, err := s.Sums()
		require.NoError(t, err)
		for _, c := range charges {
			charged, calls = charged+c.Micros, calls+c.Calls
		}
		require.Equal(t, []int64{s.ChargeMicros, s.Calls}, []int64{charged, calls})
		last = *s
	}
	require.Equal(t, int64(len(entries)), last.LastSeq)
}
