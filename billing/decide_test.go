package billing

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var acme = WalletID{OrgID: "org_acme", Env: store.Live}

// testBooks are books with acme's wallet in them, at time 1000.
func testBooks(balance, held int64) *books {
	ids := 0
	return &books{
		now:     1000,
		newID:   func() string { ids++; return "txn_" + strconv.Itoa(ids) },
		wallets: map[WalletID]*walletRow{acme: {balance: balance, held: held, readBalance: balance, readHeld: held}},
		holds:   map[string]*holdRow{},
		calls:   map[string]callFigures{},
		entries: map[entryKey]Entry{},
		claims:  map[claimKey]*claimRow{},
	}
}

func holdOf(callID string, micros int64) Hold {
	return Hold{CallID: callID, Wallet: acme, AmountMicros: micros, ExpiresIn: time.Minute}
}

func chargeOf(callID string, micros int64) Settlement {
	return Settlement{Call: Call{ID: callID, Wallet: acme, UsageSource: UsageProvider}, Held: true, ChargeMicros: micros}
}

func voidOf(callID string) Settlement {
	return Settlement{Call: Call{ID: callID, Wallet: acme, UsageSource: UsageNone}, Held: true, Void: true}
}

func TestHoldIsBoundedByTheFreeBalance(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 40)
	require.ErrorIs(t, b.reserve(holdOf("call_large", 61)), ErrInsufficientCredits)
	require.NoError(t, b.reserve(holdOf("call_small", 60)), "a refused large hold must not block a smaller one behind it")
	require.ErrorIs(t, b.reserve(holdOf("call_next", 1)), ErrInsufficientCredits)
	require.Equal(t, int64(100), b.wallets[acme].held)
	require.Len(t, b.newHolds, 1)
	require.Equal(t, int64(61_000), b.newHolds[0].expiresAt, "a hold expires by the database's clock")

	other := holdOf("call_other", 1)
	other.Wallet.Env = store.Test
	require.ErrorIs(t, b.reserve(other), ErrInsufficientCredits, "a wallet that doesn't exist has no funds")
	require.ErrorIs(t, testBooks(math.MaxInt64, 1).reserve(holdOf("call_all", math.MaxInt64)), ErrInsufficientCredits)
}

func TestHoldAgain(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	require.NoError(t, b.reserve(holdOf("call_1", 60)))
	require.NoError(t, b.reserve(holdOf("call_1", 60)), "the same hold again is the same hold")
	require.Equal(t, int64(60), b.wallets[acme].held)
	require.ErrorIs(t, b.reserve(holdOf("call_1", 61)), ErrInvalid)

	_, err := b.settle(voidOf("call_1"), nil)
	require.NoError(t, err)
	require.ErrorIs(t, b.reserve(holdOf("call_1", 60)), ErrCallEnded)
	require.Zero(t, b.wallets[acme].held)
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		balance, otherHeld int64
		hold               int64
		settlement         Settlement
		want               Settled
		status             holdStatus
		charges            bool
	}{
		"below the hold":            {100, 0, 60, chargeOf("c", 25), Settled{ChargedMicros: 25}, holdSettled, true},
		"exactly the hold":          {100, 0, 60, chargeOf("c", 60), Settled{ChargedMicros: 60}, holdSettled, true},
		"nothing":                   {100, 0, 60, chargeOf("c", 0), Settled{}, holdSettled, false},
		"void":                      {100, 0, 60, voidOf("c"), Settled{}, holdVoided, false},
		"above: the rest is free":   {100, 10, 60, chargeOf("c", 80), Settled{ChargedMicros: 80, ExtraMicros: 20}, holdSettled, true},
		"above: partly free":        {100, 30, 60, chargeOf("c", 80), Settled{ChargedMicros: 70, ExtraMicros: 10, ShortfallMicros: 10}, holdSettled, true},
		"above: nothing free":       {100, 40, 60, chargeOf("c", 80), Settled{ChargedMicros: 60, ShortfallMicros: 20}, holdSettled, true},
		"above: more than there is": {100, 0, 60, chargeOf("c", math.MaxInt64), Settled{ChargedMicros: 100, ExtraMicros: 40, ShortfallMicros: math.MaxInt64 - 100}, holdSettled, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := testBooks(c.balance, c.otherHeld)
			require.NoError(t, b.reserve(holdOf("c", c.hold)))
			got, err := b.settle(c.settlement, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, c.status, b.holds["c"].status)
			require.Equal(t, walletRow{
				balance: c.balance - got.ChargedMicros, held: c.otherHeld, readBalance: c.balance, readHeld: c.otherHeld,
			}, *b.wallets[acme])
			require.Len(t, b.newCalls, 1)
			require.Equal(t, c.charges, b.newCalls[0].txID != "")
			require.Empty(t, b.newEntries)

			again, err := b.settle(chargeOf("c", 1), nil)
			require.NoError(t, err)
			require.Equal(t, c.want, again, "a settlement repeated returns the figures of the first")
			require.Len(t, b.newCalls, 1)
		})
	}
}

func TestSettleTooLate(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	require.NoError(t, b.reserve(holdOf("call_1", 60)))
	require.False(t, b.expire("call_1"), "its time is not over")
	b.now += 60_000
	require.False(t, b.expire("call_1"), "the last moment belongs to the hold")
	b.now++
	require.True(t, b.expire("call_1"))
	require.False(t, b.expire("call_1"))
	require.False(t, b.expire("call_unknown"))

	lost := Settled{ShortfallMicros: 25, Expired: true}
	for range 2 {
		got, err := b.settle(chargeOf("call_1", 25), nil)
		require.NoError(t, err)
		require.Equal(t, lost, got)
	}
	require.Equal(t, walletRow{balance: 100, held: 0, readBalance: 100, readHeld: 0}, *b.wallets[acme])
	require.Empty(t, b.newEntries)
	require.Len(t, b.newCalls, 1)

	_, err := b.settle(chargeOf("call_without_hold", 5), nil)
	require.ErrorIs(t, err, ErrNoHold)
	require.Len(t, b.newCalls, 1)
}

func TestSettleWithoutHold(t *testing.T) {
	t.Parallel()
	b := testBooks(0, 0)
	got, err := b.settle(Settlement{Call: Call{ID: "call_byok", Wallet: acme, BYOK: true, UsageSource: UsageProvider}}, nil)
	require.NoError(t, err)
	require.Equal(t, Settled{}, got)
	require.Len(t, b.newCalls, 1)
	require.False(t, b.wallets[acme].changed())
}

func TestSettleOfAnotherWallet(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	require.NoError(t, b.reserve(holdOf("call_1", 60)))
	foreign := chargeOf("call_1", 10)
	foreign.Call.Wallet.OrgID = "org_other"
	_, err := b.settle(foreign, nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.Equal(t, holdOpen, b.holds["call_1"].status)
	_, err = b.settle(chargeOf("call_1", 10), nil)
	require.NoError(t, err)
	_, err = b.settle(foreign, nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.Empty(t, b.audits)
}

func TestPost(t *testing.T) {
	t.Parallel()
	credit := posting{kind: EntryTopUp, wallet: acme, micros: 50, ref: "invoice 1", actor: "ops"}
	b := testBooks(100, 80)

	entry, err := b.post(credit)
	require.NoError(t, err)
	require.Equal(t, Entry{
		ID: "txn_1", Wallet: acme, Kind: EntryTopUp, AmountMicros: 50, BalanceMicros: 150, Ref: "invoice 1", At: 1000,
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

	_, err = b.post(posting{kind: EntryTopUp, wallet: acme, micros: math.MaxInt64, actor: "ops"})
	require.ErrorIs(t, err, ErrOverflow)
	_, err = b.post(posting{kind: EntryTopUp, wallet: WalletID{"org_none", store.Live}, micros: 1, actor: "ops"})
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Equal(t, walletRow{balance: 80, held: 80, readBalance: 100, readHeld: 80}, *b.wallets[acme])
	require.Len(t, b.newEntries, 2)
	require.Len(t, b.audits, 2, "one audit row for each posting, none for a replay or a refusal")
}

func TestRefund(t *testing.T) {
	t.Parallel()
	b := testBooks(100, 0)
	require.NoError(t, b.reserve(holdOf("call_1", 60)))
	require.NoError(t, b.reserve(holdOf("call_2", 40)))
	_, err := b.settle(chargeOf("call_1", 25), nil)
	require.NoError(t, err)
	_, err = b.settle(voidOf("call_2"), nil)
	require.NoError(t, err)

	refund := posting{kind: EntryRefund, ref: "call_1", note: "ticket 7", actor: "ops"}
	entry, err := b.post(refund)
	require.NoError(t, err)
	require.Equal(t, int64(25), entry.AmountMicros)
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
