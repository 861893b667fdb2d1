package billing

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var acme = WalletID{OrgID: "org_acme", Env: store.Live}

// testBooks are books with acme's wallet in them, at time 1000.
func testBooks(balance, held int64) *books {
	state := walletState{balance: balance, held: held}
	return &books{
		now:       1000,
		wallets:   map[WalletID]*walletRow{acme: {walletState: state, read: state}},
		holds:     map[string]*holdRow{},
		calls:     map[string]callFigures{},
		entries:   map[entryKey]Entry{},
		corrected: map[correctedKey]*corrected{},
		claims:    map[claimKey]*claimRow{},
		newPrices: map[int64]*priceRow{},
	}
}

func holdOf(callID string, micros int64) Hold {
	return Hold{CallID: callID, Wallet: acme, AmountMicros: micros, ExpiresIn: time.Minute}
}

// chargeOf is the settlement of a call that costs micros.
func chargeOf(callID string, reserved, micros int64) Settlement {
	s := cost(callID, reserved, micros)
	if micros == 0 {
		s.Call.Outcome = "provider_error"
	}
	return s
}

func voidOf(callID string, reserved int64) Settlement {
	s := chargeOf(callID, reserved, 0)
	s.Void = true
	return s
}

// settleOpOf is the operation that [Book.Settle] makes.
func settleOpOf(s Settlement) *settleOp {
	op, err := NewBook(nil).settlement(s)
	if err != nil {
		panic(err)
	}
	return op
}

// settles decides the end of a call of acme.
func (b *books) settles(t *testing.T, s Settlement) Settled {
	t.Helper()
	settled, err := b.settle(&settleOp{Settlement: s, keptBytes: DefaultKeptBytes})
	require.NoError(t, err)
	return settled
}

func TestHoldIsBoundedByTheFreeBalance(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 40)
	hold := func(hold Hold) error {
		_, err := b.hold(hold)
		return err
	}
	require.ErrorIs(t, hold(holdOf("call_large", 61)), ErrInsufficientCredits)
	require.NoError(t, hold(holdOf("call_small", 60)), "a refused large hold must not block a smaller one behind it")
	require.ErrorIs(t, hold(holdOf("call_next", 1)), ErrInsufficientCredits)
	require.Equal(t, int64(100), b.wallets[acme].held)
	require.Len(t, b.holds, 1)
	require.Equal(t, int64(61_000), b.holds["call_small"].expiresAt, "a hold expires by the database's clock")

	other := holdOf("call_other", 1)
	other.Wallet.Env = store.Test
	require.ErrorIs(t, hold(other), ErrInsufficientCredits, "a wallet that doesn't exist has no funds")
	b = testBooks(math.MaxInt64, 1)
	require.ErrorIs(t, hold(holdOf("call_all", math.MaxInt64)), ErrInsufficientCredits)
}

func TestHoldAgain(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	hold := func(micros int64) error {
		_, err := b.hold(holdOf("call_1", micros))
		return err
	}
	require.NoError(t, hold(60))
	require.NoError(t, hold(60), "the same hold again is the same hold")
	require.Equal(t, int64(60), b.wallets[acme].held)
	require.ErrorIs(t, hold(61), ErrInvalid)
	b.settles(t, voidOf("call_1", 60))
	require.ErrorIs(t, hold(60), ErrCallEnded)
	require.Zero(t, b.wallets[acme].held)
}

// TestSettle: a call is charged what it costs, at most what was reserved for it; the rest is the operator's.
func TestSettle(t *testing.T) {
	t.Parallel()
	void := func(micros int64) Settlement {
		s := chargeOf("c", 60, micros)
		s.Void = true
		return s
	}
	for name, c := range map[string]struct {
		balance, otherHeld int64
		settlement         Settlement
		want               Settled
	}{
		"below the hold":            {100, 0, chargeOf("c", 60, 25), Settled{ChargedMicros: 25}},
		"exactly the hold":          {100, 0, chargeOf("c", 60, 60), Settled{ChargedMicros: 60}},
		"nothing":                   {100, 0, chargeOf("c", 60, 0), Settled{}},
		"void":                      {100, 0, void(0), Settled{}},
		"void of a call that costs": {100, 0, void(25), Settled{ShortfallMicros: 25}},
		"one above the hold":        {100, 0, chargeOf("c", 60, 61), Settled{ChargedMicros: 60, ShortfallMicros: 1}},
		"above, the wallet is full": {math.MaxInt64, 10, chargeOf("c", 60, 80), Settled{ChargedMicros: 60, ShortfallMicros: 20}},
		"above, nothing is free":    {100, 40, chargeOf("c", 60, 80), Settled{ChargedMicros: 60, ShortfallMicros: 20}},
		"the largest cost":          {100, 0, chargeOf("c", 60, math.MaxInt64), Settled{ChargedMicros: 60, ShortfallMicros: math.MaxInt64 - 60}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testBooks(c.balance, c.otherHeld)
			_, err := b.hold(holdOf("c", 60))
			require.NoError(t, err)
			require.Equal(t, c.want, b.settles(t, c.settlement))
			require.False(t, b.holds["c"].open)
			want := walletState{balance: c.balance - c.want.ChargedMicros, held: c.otherHeld}
			row := callRow{reserved: 60, settled: c.want, endedAt: 1000}
			if c.want.ChargedMicros > 0 {
				want.seq, want.movedAt = 1, 1000
				row.seq, row.balance = 1, want.balance
			}
			require.Equal(t, want, b.wallets[acme].walletState)
			require.Len(t, b.newCalls, 1)
			require.Equal(t, c.settlement.Call, b.newCalls[0].Call)
			row.settleOp = b.newCalls[0].settleOp
			require.Equal(t, row, b.newCalls[0])
			require.Empty(t, b.newEntries)

			require.Equal(t, c.want, b.settles(t, chargeOf("c", 60, 1)), "a settlement repeated returns the figures of the first")
			require.Len(t, b.newCalls, 1)
			require.Equal(t, want, b.wallets[acme].walletState)
		})
	}
}

// TestSettleTooLate: a call that lost its reservation pays from what is free, at most what was reserved.
func TestSettleTooLate(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	_, err := b.hold(holdOf("call_1", 60))
	require.NoError(t, err)
	require.False(t, b.expire("call_1"), "its time is not over")
	b.now += 60_000
	require.False(t, b.expire("call_1"), "the last moment belongs to the hold")
	b.now++
	require.True(t, b.expire("call_1"))
	require.False(t, b.expire("call_1"))
	require.False(t, b.expire("call_unknown"))
	require.Equal(t, Lost{Calls: []string{"call_1"}, Micros: 60}, b.lost)

	for range 2 {
		require.Equal(t, Settled{ChargedMicros: 25}, b.settles(t, chargeOf("call_1", 60, 25)))
	}
	require.Equal(t, walletState{balance: 75, seq: 1, movedAt: b.now}, b.wallets[acme].walletState)
	require.Len(t, b.newCalls, 1)

	_, err = b.hold(holdOf("all but ten", 65))
	require.NoError(t, err)
	for id, c := range map[string]struct {
		reserved, cost int64
		want           Settled
	}{
		"call_void":  {60, 0, Settled{}},
		"call_above": {4, 60, Settled{ChargedMicros: 4, ShortfallMicros: 56}},
	} {
		require.Equal(t, c.want, b.settles(t, chargeOf(id, c.reserved, c.cost)), id)
	}
	require.Equal(t, Settled{ChargedMicros: 6, ShortfallMicros: 54}, b.settles(t, chargeOf("call_poor", 60, 60)), "at most what is free")
	require.Equal(t, Settled{ShortfallMicros: 60}, b.settles(t, chargeOf("call_poorer", 60, 60)))
	require.Equal(t, Settled{ChargedMicros: 65}, b.settles(t, chargeOf("all but ten", 65, 65)), "what is held for another call is left alone")
	require.Equal(t, int64(4), b.wallets[acme].seq)
}

func TestSettleWithoutHold(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	byok := Settlement{Call: Call{ID: "call_byok", Wallet: acme, BYOK: true, UsageSource: UsageProvider}}
	require.Equal(t, Settled{}, b.settles(t, byok))
	require.Equal(t, Settled{ShortfallMicros: 9}, b.settles(t, chargeOf("call_unreserved", 0, 9)), "nothing was reserved, so nothing is charged")
	require.Len(t, b.newCalls, 2)
	require.Equal(t, b.wallets[acme].read, b.wallets[acme].walletState)

	poor := chargeOf("call_poor", 60, 9)
	poor.Call.Wallet.Env = store.Test
	_, err := b.settle(&settleOp{Settlement: poor})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, Settled{ShortfallMicros: 9}, b.settles(t, voided(poor)), "a hold whose commit was lost, and that can't have been made")
	require.Zero(t, b.newCalls[2].reserved)
}

// A call id is of one wallet: another one neither ends its hold nor learns what it was charged.
func TestSettleOfAnotherWallet(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	state := walletState{balance: 50}
	other := WalletID{"org_other", store.Live}
	b.wallets[other] = &walletRow{walletState: state, read: state}
	for _, id := range []string{"call_1", "call_2"} {
		_, err := b.hold(holdOf(id, 30))
		require.NoError(t, err)
	}
	foreign := chargeOf("call_1", 30, 10)
	foreign.Call.Wallet = other
	require.Equal(t, Settled{ChargedMicros: 10}, b.settles(t, foreign))
	require.True(t, b.holds["call_1"].open)
	require.Equal(t, int64(60), b.wallets[acme].held)
	require.Zero(t, b.wallets[other].held)

	b.settles(t, chargeOf("call_2", 30, 10))
	foreign.Call.ID = "call_2"
	_, err := b.settle(&settleOp{Settlement: foreign})
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, int64(40), b.wallets[other].balance)
}

func TestPost(t *testing.T) {
	t.Parallel()
	credit := posting{kind: EntryTopUp, wallet: acme, micros: 50, ref: "invoice 1", actor: "ops"}
	b := testBooks(100, 80)

	entry, err := b.post(credit)
	require.NoError(t, err)
	require.Regexp(t, "^txn_", entry.ID)
	require.Equal(t, b.audits[0].ID, entry.auditID)
	require.Equal(t, entry.ID, b.audits[0].Target)
	require.Equal(t, Entry{
		ID: entry.ID, Wallet: acme, Kind: EntryTopUp, AmountMicros: 50, BalanceMicros: 150, Seq: 1, Ref: "invoice 1", At: 1000,
		auditID: entry.auditID,
	}, entry)
	again, err := b.post(credit)
	require.NoError(t, err)
	entry.Replayed = true
	require.Equal(t, entry, again)
	credit.micros = 51
	_, err = b.post(credit)
	require.ErrorIs(t, err, ErrRefReused)

	adjust := posting{kind: EntryAdjust, wallet: acme, micros: -71, note: "double payment", ref: "invoice 1", actor: "ops"}
	_, err = b.post(adjust)
	require.ErrorIs(t, err, ErrInsufficientCredits, "held credits can't be taken away")
	adjust.micros = -70
	entry, err = b.post(adjust)
	require.NoError(t, err, "a reference counts within its kind")
	require.Equal(t, int64(80), entry.BalanceMicros)
	require.Equal(t, int64(2), entry.Seq)

	_, err = b.post(posting{kind: EntryTopUp, wallet: WalletID{"org_none", store.Live}, micros: 1, ref: "r", actor: "ops"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, walletState{balance: 80, held: 80, seq: 2, movedAt: 1000}, b.wallets[acme].walletState)
	require.Len(t, b.newEntries, 2)
	require.Len(t, b.audits, 2, "one audit row for each posting, none for a replay or a refusal")
}

// TestLargestSums: no sum of the books wraps at the edge of an int64.
func TestLargestSums(t *testing.T) {
	t.Parallel()
	b := testBooks(1, 0)
	_, err := b.post(posting{kind: EntryTopUp, wallet: acme, micros: math.MaxInt64, ref: "one above", actor: "ops"})
	require.ErrorIs(t, err, ErrOverflow)
	_, err = b.post(posting{kind: EntryAdjust, wallet: acme, micros: math.MaxInt64, ref: "one above", note: "n", actor: "ops"})
	require.ErrorIs(t, err, ErrOverflow)
	entry, err := b.post(posting{kind: EntryTopUp, wallet: acme, micros: math.MaxInt64 - 1, ref: "all", actor: "ops"})
	require.NoError(t, err)
	require.Equal(t, int64(math.MaxInt64), entry.BalanceMicros)

	_, err = b.hold(holdOf("call_1", math.MaxInt64))
	require.NoError(t, err)
	_, err = b.hold(holdOf("call_2", 1))
	require.ErrorIs(t, err, ErrInsufficientCredits)
	_, err = b.post(posting{kind: EntryAdjust, wallet: acme, micros: -math.MaxInt64, ref: "held", note: "n", actor: "ops"})
	require.ErrorIs(t, err, ErrInsufficientCredits)
	require.Equal(t, Settled{ChargedMicros: math.MaxInt64}, b.settles(t, chargeOf("call_1", math.MaxInt64, math.MaxInt64)))
	_, err = b.post(posting{kind: EntryTopUp, wallet: acme, micros: 1, ref: "fills", actor: "ops"})
	require.NoError(t, err)
	_, err = b.post(posting{kind: EntryRefund, ref: "call_1", actor: "ops"})
	require.ErrorIs(t, err, ErrOverflow, "a refund that fits no more")
	require.Equal(t, int64(1), b.wallets[acme].balance)

	b = testBooks(math.MaxInt64, 0)
	require.Equal(t, Settled{ShortfallMicros: math.MaxInt64}, b.settles(t, voided(chargeOf("call_void", math.MaxInt64, math.MaxInt64))))
}

func voided(s Settlement) Settlement {
	s.Void, s.Call.Outcome = true, "internal_error"
	return s
}

// TestTheClockOfAWallet: numbers count up, and times don't fall when the clock is set back by less than a day.
func TestTheClockOfAWallet(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	w := b.wallets[acme]
	const hour = int64(time.Hour / time.Millisecond)
	for i, c := range []struct{ now, at int64 }{
		{1000, 1000},
		{1000 + hour, 1000 + hour},
		{2000, 1000 + hour},
		{3000 + hour, 3000 + hour},
		{3000 + hour - clockLead, 3000 + hour},
		{3000 + hour - clockLead - 1, 3000 + hour - clockLead - 1},
	} {
		seq, at := w.move(w.balance-1, c.now)
		require.Equal(t, int64(i+1), seq)
		require.Equal(t, c.at, at)
		require.Equal(t, walletState{balance: 99 - int64(i), seq: seq, movedAt: at}, w.walletState)
	}
}

func TestRefund(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	b.settles(t, chargeOf("call_1", 60, 25))
	b.settles(t, voidOf("call_2", 40))

	b.corrected[correctedKey{acme, "call_1"}] = &corrected{amount: -25}
	refund := posting{kind: EntryRefund, ref: "call_1", note: "ticket 7", actor: "ops"}
	entry, err := b.post(refund)
	require.NoError(t, err)
	require.Equal(t, int64(25), entry.AmountMicros)
	require.Equal(t, acme, entry.Wallet)
	require.Equal(t, int64(100), b.wallets[acme].balance)
	refund.note = "ticket 8"
	again, err := b.post(refund)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, "ticket 7", again.Note)
	require.Equal(t, int64(100), b.wallets[acme].balance, "a call is refunded once")

	_, err = b.post(posting{kind: EntryRefund, ref: "call_2", actor: "ops"})
	require.ErrorIs(t, err, ErrNothingToRefund)
	_, err = b.post(posting{kind: EntryRefund, ref: "call_none", actor: "ops"})
	require.ErrorIs(t, err, store.ErrNotFound)
}
