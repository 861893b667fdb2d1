package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// year is a database in a bubble of package synctest, with two processes that have the wallets of some organizations between them.
type year struct {
	t         *testing.T
	location  store.Location
	random    *rand.Rand   // only for the goroutine of the year
	skew      atomic.Int64 // of the database's clock, in nanoseconds
	processes [2]*yearProcess
	wallets   []*yearWallet
	prices    [2]Price // of the models now
	calls     int
	payments  []*yearPayment
	running   sync.WaitGroup
	// budgets are open, pastBudgets have ended. steering decides what happens to them.
	steering             *rand.Rand
	budgets, pastBudgets []*yearBudget

	mu       sync.Mutex
	ended    map[string]Settled // the figures that callers were told, by call
	versions map[string]int64   // of the budgets, by organization
	happened
}

// happened counts the events of a year. Each must have happened, because otherwise the end of the year proves nothing about it.
type happened struct {
	granted, killed, lost, late, voids, shortfalls, repriced, replays, notKept, takenOver int
	refused, refunds, steps, deleted                                                      int
	refundsFirst, disputed, won, claims                                                   int
	overBudget, raised, lowered                                                           int
}

// yearProcess is a process until it ends or is killed.
type yearProcess struct {
	book *Book
	dead atomic.Bool
}

// yearWallet is a wallet with the balance and the charges that its callers and operators were told.
type yearWallet struct {
	WalletID

	mu               sync.Mutex
	balance, charged int64
	refundable       []string // calls that were charged
	keys             []string // of the last calls
	// all is the budget of all calls, and key the API key with budgets of its own, if the wallet has one.
	all, key string
}

// yearPayment is a payment with all that was delivered about it.
type yearPayment struct {
	id                         string
	wallet                     *yearWallet
	amount, refunded, disputed int64
	paid, won                  bool
}

// taken returns the credits that must be taken back.
func (p *yearPayment) taken() int64 { return 10 * min(p.amount, p.refunded+p.disputed) }

// yearZones are the zones that organizations have in turn.
var yearZones = []string{"Asia/Ho_Chi_Minh", "America/New_York", "Pacific/Kiritimati", "Europe/London", "Asia/Kathmandu"}

// yearCall is the plan of a call.
type yearCall struct {
	id           string
	wallet       *yearWallet
	model        int
	begins, runs time.Duration
	life         time.Duration
	usage        Usage
	percent      int64 // of its cost that is held
	void, again  bool
	keyed        bool // it is a call with the API key of its wallet
	key          string
	turns, lost  bool // it is a turn's, which has another call when it ends
	answer       int
}

const (
	yearKept  = 1200 // bytes of kept answers of a wallet
	yearActor = "year"
)

func newYear(t *testing.T, location store.Location) *year {
	t.Helper()
	y := &year{t: t, location: location, random: rand.New(rand.NewPCG(33, 1)), ended: map[string]Settled{}, versions: map[string]int64{}} //nolint:gosec // a test's
	y.steering = rand.New(rand.NewPCG(39, 1))                                                                                             //nolint:gosec // as above
	t.Cleanup(y.close)
	y.open(time.Now())
	defer y.close()
	db := y.db()
	for n := range 3 {
		org := fmt.Sprintf("org_%d", n)
		makeOrganization(t, db, org)
		require.NoError(t, db.Organizations.SetRetention(t.Context(), yearActor, org, store.MinRetentionDays))
		execute(t, db, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, $1, 0, 'VND', '', 1)`, org)
		for _, env := range []store.Env{store.Live, store.Test} {
			wallet := &yearWallet{WalletID: WalletID{org, env}}
			y.wallets = append(y.wallets, wallet)
			y.budget(wallet)
		}
	}
	y.reprice()
	return y
}

// open starts both processes at a time. They don't run all the time, because an idle store looks after its log every hour.
func (y *year) open(at time.Time) {
	<-time.After(time.Until(at))
	for i := range y.processes {
		db, err := store.Open(y.t.Context(), y.location, store.Options{
			Kinds: []store.Kind{Ledger}, Clock: func() time.Time { return time.Now().Add(time.Duration(y.skew.Load())) },
		})
		require.NoError(y.t, err)
		y.processes[i] = startYearProcess(db)
	}
}

func (y *year) close() {
	ctx := context.WithoutCancel(y.t.Context())
	for i, p := range y.processes {
		if p != nil {
			require.NoError(y.t, p.book.tranches.Stop(ctx))
			require.NoError(y.t, p.book.db.Close(ctx))
		}
		y.processes[i] = nil
	}
}

func (y *year) db() *store.DB { return y.processes[0].book.db }

func (y *year) chance(oneOf int) bool { return y.random.IntN(oneOf) == 0 }

func (y *year) between(least, most int64) int64 { return least + y.random.Int64N(most-least+1) }

func (y *year) reprice() {
	for i := range y.prices {
		input := y.between(1, 10) * tokensPerPrice
		y.prices[i] = Price{
			Input: input, Output: 2*input + y.between(0, 999_999), CachedInput: input / 2, CacheWrite: input * 5 / 4, LongCacheWrite: 2 * input,
			Tiers: NewTiers([MaxTiers]Tier{{y.between(100, 150), Rates{2 * input, 3 * input, input, -1, -1}}}),
		}
	}
}

func startYearProcess(db *store.DB) *yearProcess {
	p := &yearProcess{book: NewBook(db)}
	p.book.KeepAtMost(yearKept)
	p.book.StartTranches(slog.New(slog.DiscardHandler))
	return p
}

// kill ends a process without returning its tranche. Its holds stay, and its calls never settle.
func (p *yearProcess) kill() {
	p.dead.Store(true)
	p.book.tranches.task.Stop()
}

// plan draws a call.
func (y *year) plan() yearCall {
	y.calls++
	wallet := y.wallets[0]
	if y.chance(2) {
		wallet = y.wallets[y.random.IntN(len(y.wallets))]
	}
	c := yearCall{
		wallet: wallet, model: y.random.IntN(len(y.prices)), life: time.Minute, percent: []int64{100, 100, 150, 300, 50}[y.random.IntN(5)],
		begins: time.Duration(y.between(0, 2500)) * time.Millisecond, runs: time.Duration(y.between(0, 1500)) * time.Millisecond,
		usage: Usage{
			PromptTokens: y.between(1, 200), CompletionTokens: y.between(1, 200), CachedPromptTokens: y.between(0, 50),
			CacheWriteTokens: y.between(0, 50), LongCacheWriteTokens: y.between(0, 50),
		},
		void: y.chance(8), again: y.chance(10), keyed: y.steering.IntN(4) == 0 && wallet.key != "", answer: int(y.between(1, 500)),
	}
	if y.chance(10) { // it ends after its reservation
		c.life, c.runs = time.Second, 4*time.Second
	}
	if y.chance(3) {
		c.key = fmt.Sprintf("key %d", y.calls)
		if n := len(wallet.keys); n > 0 && y.chance(2) {
			c.key = wallet.keys[n-1-y.random.IntN(min(n, 5))]
		}
		wallet.keys = append(wallet.keys, c.key)
	} else {
		c.turns, c.lost = y.chance(4), y.chance(4)
	}
	return c
}

// run makes a call by a process, which may be killed while the call runs.
func (y *year) run(p *yearProcess, c yearCall) {
	ctx := y.t.Context()
	<-time.After(c.begins)
	if p.dead.Load() {
		return
	}
	c.id = store.NewID("call")
	y.mu.Lock()
	price := y.prices[c.model]
	y.mu.Unlock()
	cost, err := price.Cost(c.usage)
	if err != nil {
		y.t.Error(err)
		return
	}
	hold := Hold{
		CallID: c.id, Wallet: c.wallet.WalletID, AmountMicros: max(1, cost*c.percent/100), ExpiresIn: c.life, Budgets: y.part(c.wallet, c.keyed),
	}
	settlement := Settlement{
		Call: Call{
			ID: c.id, Model: fmt.Sprint("m", c.model), Wallet: c.wallet.WalletID, Usage: c.usage, UsageSource: UsageProvider, Outcome: "completed",
			KeyID: hold.Budgets.KeyID,
		},
		Price: price, ReservedMicros: hold.AmountMicros, Void: c.void, Budgets: hold.Budgets,
	}
	if c.void {
		settlement.Call.Outcome = "internal_error"
		if c.again { // before the vendor was called
			settlement.Call.Usage, cost = Usage{}, 0
		}
	}
	if c.key != "" {
		hold.Claim = claimOf(c.key, c.key)
		settlement.Claim, settlement.Keep, settlement.Response = hold.Claim, !c.void, make([]byte, c.answer)
	}
	if c.turns {
		hold.With, settlement.With = &note{}, &note{lost: c.lost}
	}
	replay, err := p.book.Hold(ctx, hold)
	granted := err == nil && isGranted(p.book, c.id)
	_, overBudget := errors.AsType[*BudgetError](err)
	y.mu.Lock()
	switch {
	case overBudget:
		y.overBudget++
	case errors.Is(err, ErrInsufficientCredits), errors.Is(err, ErrCreditsInTranches), errors.Is(err, ErrKeyInFlight):
		y.refused++
	case err != nil:
		y.t.Errorf("hold: %v", err)
	case replay != nil:
		y.replays++
		if replay.Response == nil {
			y.notKept++
		}
		if told, known := y.ended[replay.CallID]; known && told != replay.Settled {
			y.t.Errorf("call %s was told %v, its replay %v", replay.CallID, told, replay.Settled)
		}
	case granted:
		y.granted++
	}
	y.mu.Unlock()
	if err != nil || replay != nil {
		return
	}
	<-time.After(c.runs)
	if p.dead.Load() {
		return
	}
	settled, err := p.book.Settle(ctx, settlement)
	if err != nil {
		y.t.Errorf("settle: %v", err)
		return
	}
	y.end(c, settlement, cost, settled)
	if c.again {
		again, err := NewBook(p.book.db).Settle(ctx, settlement)
		if err != nil || again != settled {
			y.t.Errorf("settled as %v, and again as %v: %v", settled, again, err)
		}
	}
}

// end notes what a call was charged, and requires that it is not more than it cost or than was held for it.
func (y *year) end(c yearCall, s Settlement, cost int64, settled Settled) {
	if settled.ChargedMicros+settled.ShortfallMicros != cost || settled.ChargedMicros > s.ReservedMicros ||
		((c.void || c.turns && c.lost) && settled.ChargedMicros > 0) {
		y.t.Errorf("a call of %d with %d held, void %t, settled as %v", cost, s.ReservedMicros, c.void, settled)
	}
	y.mu.Lock()
	y.ended[c.id] = settled
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	count(&y.voids, c.void)
	count(&y.shortfalls, settled.ShortfallMicros > 0 && !c.void)
	count(&y.late, c.runs > c.life && settled.ChargedMicros > 0)
	count(&y.takenOver, c.key != "" && !c.void && settled.ChargedMicros == 0)
	count(&y.repriced, s.Price != y.prices[c.model] && settled.ChargedMicros > 0)
	y.mu.Unlock()
	if settled.ChargedMicros > 0 {
		c.wallet.mu.Lock()
		defer c.wallet.mu.Unlock()
		c.wallet.balance -= settled.ChargedMicros
		c.wallet.charged += settled.ChargedMicros
		c.wallet.refundable = append(c.wallet.refundable, c.id)
	}
}

// post books a posting twice, as an operator does who missed the first answer.
func (y *year) post(wallet *yearWallet, write func() (Entry, error)) {
	entry, err := write()
	if errors.Is(err, ErrInsufficientCredits) || errors.Is(err, ErrCreditsInTranches) {
		return
	}
	require.NoError(y.t, err)
	again, err := write()
	require.NoError(y.t, err)
	require.Equal(y.t, [3]any{entry.ID, entry.AmountMicros, true}, [3]any{again.ID, again.AmountMicros, again.Replayed})
	require.Equal(y.t, wallet.WalletID, entry.Wallet)
	if !entry.Replayed {
		wallet.mu.Lock()
		defer wallet.mu.Unlock()
		wallet.balance += entry.AmountMicros
	}
}

// pay delivers something about a new payment or one of the last ones, in any order and twice. A payment without a code is matched by hand.
func (y *year) pay() {
	ctx, book := y.t.Context(), y.processes[y.random.IntN(2)].book
	ref := store.NewID("ref")
	p := &yearPayment{id: fmt.Sprint(len(y.payments)), wallet: y.wallets[2*y.random.IntN(3)], amount: y.between(1, 4000)}
	if n := len(y.payments); n > 0 && !y.chance(3) {
		p = y.payments[n-1-y.random.IntN(min(n, 4))]
	} else {
		y.payments = append(y.payments, p)
	}
	receipt := transfer(p.id, p.amount)
	receipt.Codes = []string{p.wallet.OrgID}
	switch y.random.IntN(6) {
	case 0:
		receipt = about(p.id, PaymentRefunded, y.between(1, p.amount), "")
		p.refunded = max(p.refunded, receipt.Amount)
		if !p.paid {
			y.refundsFirst++
		}
	case 1:
		receipt = about(p.id, PaymentDisputed, p.amount, "dp_1")
		if now, err := book.Wallet(ctx, p.wallet.WalletID); err == nil && now.BalanceMicros > now.HeldMicros && y.chance(2) { // it was spent
			y.post(p.wallet, func() (Entry, error) {
				return book.Adjust(ctx, yearActor, p.wallet.WalletID, now.HeldMicros-now.BalanceMicros, "spent", ref, "")
			})
		}
		if !p.won {
			p.disputed = p.amount
			y.disputed++
		}
	case 2:
		receipt = about(p.id, PaymentDisputeWon, p.amount, "dp_1")
		y.won += int(min(1, p.disputed))
		p.won, p.disputed = true, 0
	default:
		if !p.paid && y.chance(4) {
			receipt.Codes = nil
		}
		p.paid = true
	}
	for range 2 {
		payment, err := book.Receive(ctx, receipt)
		require.NoError(y.t, err)
		if payment.State == PaymentUnmatched {
			payment, err = book.MatchPayment(ctx, yearActor, payment.Provider, payment.ID, p.wallet.OrgID)
			require.NoError(y.t, err)
		}
		require.Equal(y.t, p.paid, payment.State == PaymentCredited)
		if p.paid {
			require.Equal(y.t, p.taken(), payment.TakenMicros)
		}
	}
	y.claims += count(y.t, y.db(), `SELECT count(*) FROM wallets WHERE claim_micros > 0`)
}

// addPayments adds the payments to the balances that wallets must have: the credits without those that were taken back, and the claims on later ones.
func (y *year) addPayments() {
	for _, p := range y.payments {
		if p.paid {
			p.wallet.balance += 10*p.amount - p.taken()
		}
	}
	for _, w := range y.wallets {
		w.balance += int64(count(y.t, y.db(), `SELECT claim_micros FROM wallets WHERE org_id = $1 AND env = $2`, w.OrgID, string(w.Env)))
	}
}

// operate credits, adjusts or refunds something at random.
func (y *year) operate() {
	ctx, wallet := y.t.Context(), y.wallets[y.random.IntN(len(y.wallets))]
	book, ref := y.processes[1].book, store.NewID("ref")
	switch y.random.IntN(5) {
	default:
		y.pay()
	case 0:
		micros := y.between(1, 30_000)
		y.post(wallet, func() (Entry, error) { return book.Credit(ctx, yearActor, wallet.WalletID, micros, ref) })
		_, err := book.Credit(ctx, yearActor, wallet.WalletID, micros+1, ref)
		require.ErrorIs(y.t, err, ErrRefReused)
	case 1:
		micros := y.between(-5000, -1)
		y.post(wallet, func() (Entry, error) { return book.Adjust(ctx, yearActor, wallet.WalletID, micros, "why", ref, "") })
	case 2:
		wallet.mu.Lock()
		calls := slices.Clone(wallet.refundable)
		wallet.mu.Unlock()
		if len(calls) > 0 {
			y.refunds++
			call := calls[y.random.IntN(len(calls))]
			y.post(wallet, func() (Entry, error) { return book.Refund(ctx, yearActor, call, ref) })
		}
	}
	wallet.keys = wallet.keys[max(0, len(wallet.keys)-10):]
}

// fill tops up each wallet. The first is never empty, the others sometimes are.
func (y *year) fill() {
	for n, wallet := range y.wallets {
		micros, ref := []int64{5_000_000, 30_000, 10_000}[min(n, 2)], store.NewID("ref")
		y.post(wallet, func() (Entry, error) {
			return y.processes[0].book.Credit(y.t.Context(), yearActor, wallet.WalletID, micros, ref)
		})
	}
}

// step sets the database's clock forward or back by an hour: at most an hour from the right time.
func (y *year) step() {
	hour := int64(time.Hour)
	next := y.skew.Load() + hour
	if y.chance(2) {
		next -= 2 * hour
	}
	y.setClock(max(-hour, min(hour, next)))
}

func (y *year) setClock(skew int64) {
	if y.skew.Swap(skew) != skew {
		y.steps++
	}
}

func (y *year) sweep() {
	lost, err := y.processes[0].book.Sweep(y.t.Context())
	require.NoError(y.t, err)
	y.lost += len(lost.Calls)
}

// begin lets calls begin within some seconds, by both processes.
func (y *year) begin(calls int) {
	for n := range calls {
		p, c := y.processes[n%2], y.plan()
		y.running.Go(func() { y.run(p, c) })
	}
}

// work makes calls for some seconds. Meanwhile clocks and prices change, and processes are killed.
func (y *year) work(calls int) {
	y.begin(calls)
	for range 4 {
		<-time.After(time.Duration(y.between(100, 1500)) * time.Millisecond)
		switch y.random.IntN(8) {
		case 0:
			y.step()
		case 1:
			i := y.random.IntN(2)
			y.killed++
			y.processes[i].kill()
			y.processes[i] = startYearProcess(y.processes[i].book.db)
		case 2:
			y.mu.Lock()
			y.reprice()
			y.mu.Unlock()
		case 3, 4:
			y.sweep()
		default:
			y.operate()
			y.steer()
		}
	}
	y.running.Wait()
}

// turn makes calls around the midnight between two months. After midnight it sets the clock back, and the month that has begun goes on.
func (y *year) turn(calls int) {
	y.setClock(0)
	y.begin(calls)
	<-time.After(3 * time.Second)
	y.setClock(-int64(time.Hour))
	y.operate()
	y.operate()
	y.running.Wait()
}

// check requires that the doctor is silent, whatever part of the books it reads.
func (y *year) check() {
	y.sweep() // as every server does four times a minute
	require.NoError(y.t, y.processes[0].book.CloseMonths(y.t.Context()))
	for _, recent := range []time.Duration{0, time.Minute, time.Hour, 24 * time.Hour, 40 * 24 * time.Hour} {
		report, err := Checker{Recent: recent}.Check(y.t.Context(), y.db())
		require.NoError(y.t, err)
		require.True(y.t, report.OK(), "%s, the last %s:\n%s", time.Now(), recent, report)
	}
}

// requireStatements requires that a wallet's statement, read by months, is whole and that each balance follows from the one before, over
// the ends of months too; and that spend, read by days, is what the statement charges.
func (y *year) requireStatements(wallet *yearWallet, begin time.Time) {
	t, book := y.t, y.processes[0].book
	whole := historyOf(t, MaxHistoryRows, func(s Stretch) ([]Entry, error) { return book.Entries(t.Context(), wallet.WalletID, s) }, Entry.Place)
	var months []Entry
	var balance, charged, spent int64
	for from := begin; from.Before(time.Now().Add(24 * time.Hour)); from = from.AddDate(0, 1, 0) {
		until := from.AddDate(0, 1, 0)
		month := historyOf(t, 50, func(s Stretch) ([]Entry, error) {
			s.From, s.Until = from.UnixMilli(), until.UnixMilli()
			return book.Entries(t.Context(), wallet.WalletID, s)
		}, Entry.Place)
		slices.Reverse(month)
		var inMonth, ofDays int64
		for _, entry := range month {
			balance += entry.AmountMicros
			require.Equal(t, balance, entry.BalanceMicros, "number %d of %v", entry.Seq, wallet.WalletID)
			if entry.Kind == EntryCharge {
				inMonth -= entry.AmountMicros
			}
		}
		for day := from; day.Before(until); day = day.AddDate(0, 0, 1) {
			spend, err := book.Spend(t.Context(), wallet.WalletID, day.UnixMilli(), day.AddDate(0, 0, 1).UnixMilli())
			require.NoError(t, err)
			for _, model := range spend {
				ofDays += model.ChargedMicros
			}
		}
		require.Equal(t, inMonth, ofDays, "the days of %s", from)
		charged, spent, months = charged+inMonth, spent+ofDays, append(months, month...)
	}
	slices.Reverse(whole)
	require.Equal(t, whole, months, "the months are the statement")
	require.Equal(t, [2]int64{wallet.charged, wallet.charged}, [2]int64{charged, spent}, "what callers were told")
	require.Equal(t, wallet.balance, balance, "what callers and operators were told")
	requireStatement(t, y.db(), wallet.WalletID, balance)
	now, err := book.Wallet(t.Context(), wallet.WalletID)
	require.NoError(t, err)
	require.Equal(t, Wallet{BalanceMicros: balance}, now, "nothing is held at the end")
}

// TestYear runs a year of calls of several organizations by two processes: credits, adjustments, repeated refunds, payments with refunds and disputes in any
// order, budgets that are changed, raised and ended, zones that change, prices that
// change while calls run, voids, late settlements, kept answers up to their bound, killed processes, sweeps, retention, and a database whose clock is set
// forward and back by an hour. At the end of each month and of the year the books are sound, whatever part of them is checked. The
// statement read by months has no gap and no overlap, spend by days adds up to its charges, and both are what callers were told.
func TestYear(t *testing.T) {
	t.Parallel()
	pause, calls := 4, 24 // days between the hours of work, and calls of these
	if os.Getenv("SVC_SOAK") != "" {
		pause, calls = 1, 200
	}
	location := storetest.Migrated(t, store.SQLite)
	synctest.Test(t, func(t *testing.T) {
		y := newYear(t, location)
		begin := time.Now().UTC()
		for month := begin; month.Year() == begin.Year(); month = month.AddDate(0, 1, 0) {
			end := month.AddDate(0, 1, 0)
			for day := month; day.AddDate(0, 0, 1).Before(end); day = day.AddDate(0, 0, pause) {
				y.open(day.Add(time.Duration(y.between(0, 1439)) * time.Minute))
				y.fill()
				y.work(calls)
				y.close()
			}
			y.open(end.Add(-2 * time.Second))
			y.fill()
			y.turn(calls)
			y.check()
			deleted, err := NewRetention(y.db()).Sweep(t.Context())
			require.NoError(t, err)
			y.deleted += int(deleted)
			zone, org := yearZones[int(month.Month())%5], fmt.Sprintf("org_%d", int(month.Month())%3)
			require.NoError(t, y.db().Organizations.SetTimeZone(t.Context(), yearActor, org, zone))
			y.check()
			y.close()
		}
		y.setClock(0)
		y.open(time.Now().Add(25 * time.Hour)) // when everything that was left has come to its end
		y.check()
		y.addPayments()
		y.requireBudgets()
		for _, wallet := range y.wallets {
			y.requireStatements(wallet, begin)
		}
		y.close()
		t.Logf("%d calls ended: %+v", len(y.ended), y.happened)
		for _, n := range []int{
			y.granted, y.killed, y.lost, y.late, y.voids, y.shortfalls, y.repriced, y.replays, y.notKept, y.takenOver, y.refused, y.refunds,
			y.steps, y.deleted, y.refundsFirst, y.disputed, y.won, y.claims, y.overBudget, y.raised, y.lowered,
		} {
			require.Positive(t, n, "%+v", y.happened)
		}
	})
}
