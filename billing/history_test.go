package billing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// chargeCalls makes calls that cost 1, 2, 3… micros.
func chargeCalls(t *testing.T, book *Book, wallet WalletID, calls int) {
	t.Helper()
	for n := range int64(calls) {
		id := fmt.Sprintf("call_%s_%03d", wallet.Env, n)
		_, err := book.Hold(t.Context(), Hold{CallID: id, Wallet: wallet, AmountMicros: 1000, ExpiresIn: time.Hour})
		require.NoError(t, err)
		_, err = book.Settle(t.Context(), Settlement{
			Call: Call{
				ID: id, RequestID: "req_" + id, Model: fmt.Sprintf("m%d", n%2), Provider: "p", Wallet: wallet, Stream: true,
				Usage: Usage{PromptTokens: n, CompletionTokens: n + 1, CachedPromptTokens: n / 2}, UsageSource: UsageEstimated,
				Outcome: "completed", DurationMS: n,
			},
			Price: Price{Output: tokensPerPrice}, ReservedMicros: 1000,
		})
		require.NoError(t, err)
	}
}

// historyOf reads a history in pages.
func historyOf[T any](t *testing.T, rows int, read func(Stretch) ([]T, error), place func(T) Place) (all []T) {
	t.Helper()
	for stretch := (Stretch{Rows: rows}); ; {
		page, err := read(stretch)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), rows)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		stretch.After = place(page[len(page)-1])
	}
}

// A wallet's transactions, and no other wallet's, are listed newest first with their effect on the balance, whatever the size of the
// pages.
func TestEntries(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		makeOrganization(t, db, "org_2")
		live, test, other := WalletID{acme.OrgID, store.Live}, WalletID{acme.OrgID, store.Test}, WalletID{"org_2", store.Live}
		for _, wallet := range []WalletID{live, test, other} {
			_, err := book.Credit(t.Context(), "cli", wallet, 10_000, "ref of "+wallet.OrgID+string(wallet.Env))
			require.NoError(t, err)
		}
		chargeCalls(t, book, live, 5)
		_, err := book.Adjust(t.Context(), "cli", live, -7, "because", "note", "")
		require.NoError(t, err)
		_, err = book.Refund(t.Context(), "cli", "call_live_002", "ticket")
		require.NoError(t, err)

		read := func(stretch Stretch) ([]Entry, error) { return book.Entries(t.Context(), live, stretch) }
		all, err := read(Stretch{})
		require.NoError(t, err)
		require.Len(t, all, 8)
		balance := int64(0)
		for _, entry := range slices.Backward(all) {
			balance += entry.AmountMicros
			require.Equal(t, balance, entry.BalanceMicros)
			require.Equal(t, live, entry.Wallet)
		}
		require.Equal(t, Entry{
			ID: all[0].ID, Wallet: live, Kind: EntryRefund, AmountMicros: 3, BalanceMicros: balance, Ref: "call_live_002", Note: "ticket", At: all[0].At,
			Seq: 8,
		}, all[0])
		require.Equal(t, "note", all[1].Ref)
		require.Equal(t, "because", all[1].Note)
		require.Equal(t, "ref of "+acme.OrgID+"live", all[7].Ref)
		for _, rows := range []int{1, 2, 3, 8, 100} {
			require.Equal(t, all, historyOf(t, rows, read, Entry.Place), "pages of %d", rows)
		}

		for _, table := range []string{"ledger_tx", "calls"} {
			execute(t, db, storetest.Unguard(db.Engine(), table))
		}
		// Each at the moment of its number, but for the last two, of one moment.
		execute(t, db, `UPDATE calls SET ended_at = 1000 * wallet_seq`)
		execute(t, db, `UPDATE ledger_tx SET created_at = 1000 * CASE wallet_seq WHEN 8 THEN 7 ELSE wallet_seq END`)
		for stretch, want := range map[Stretch][]int64{
			{}:                                    {8, 7, 6, 5, 4, 3, 2, 1},
			{From: 7000}:                          {8, 7},
			{From: 7001}:                          nil,
			{Until: 7000}:                         {6, 5, 4, 3, 2, 1},
			{From: 2000, Until: 4000}:             {3, 2},
			{From: 2001, Until: 4001}:             {4, 3},
			{Until: 1000}:                         nil,
			{From: 1, Until: 1001}:                {1},
			{Until: 7001, After: Place{Seq: 8}}:   {7, 6, 5, 4, 3, 2, 1},
			{From: 3000, After: Place{Seq: 6}}:    {5, 4, 3},
			{Until: 4000, After: Place{Seq: 3}}:   {2, 1},
			{From: 3000, After: Place{Seq: 2}}:    nil,
			{From: 1, Until: 99_000_000, Rows: 2}: {8, 7},
		} {
			found, err := read(stretch)
			require.NoError(t, err)
			var numbers []int64
			for _, entry := range found {
				numbers = append(numbers, entry.Seq)
			}
			require.Equal(t, want, numbers, "%+v", stretch)
		}

		for _, wallet := range []WalletID{test, other} {
			found, err := book.Entries(t.Context(), wallet, Stretch{})
			require.NoError(t, err)
			require.Len(t, found, 1)
		}
		none, err := book.Entries(t.Context(), WalletID{"org_9", store.Live}, Stretch{})
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = book.Entries(t.Context(), WalletID{}, Stretch{})
		require.ErrorIs(t, err, ErrInvalid)
	})
}

// endOneByOne makes calls end at 1000, 1001, 1002… milliseconds.
func endOneByOne(t *testing.T, db *store.DB) {
	t.Helper()
	execute(t, db, storetest.Unguard(db.Engine(), "calls"))
	execute(t, db, `UPDATE calls SET ended_at = 999 + charged_micros`)
}

func TestCallsOfAWallet(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		live, test := WalletID{acme.OrgID, store.Live}, WalletID{acme.OrgID, store.Test}
		for _, wallet := range []WalletID{live, test} {
			_, err := book.Credit(t.Context(), "cli", wallet, 10_000, "invoice")
			require.NoError(t, err)
		}
		chargeCalls(t, book, live, 7)
		chargeCalls(t, book, test, 1)
		recorded(t, book, Settlement{Call: Call{ID: "call_byok", Wallet: live, BYOK: true, UsageSource: UsageProvider}})
		endOneByOne(t, db)
		execute(t, db, `UPDATE calls SET ended_at = 1003 WHERE id = 'call_byok'`)

		read := func(stretch Stretch) ([]EndedCall, error) { return book.Calls(t.Context(), live, stretch) }
		all, err := read(Stretch{})
		require.NoError(t, err)
		require.Len(t, all, 8)
		require.Equal(t, EndedCall{
			Call: Call{
				ID: "call_live_006", RequestID: "req_call_live_006", Model: "m0", Provider: "p", Wallet: live, Stream: true,
				Usage: Usage{PromptTokens: 6, CompletionTokens: 7, CachedPromptTokens: 3}, UsageSource: UsageEstimated, Outcome: "completed",
				DurationMS: 6,
			},
			Settled: Settled{ChargedMicros: 7}, Price: Price{Output: tokensPerPrice}, ReservedMicros: 1000, EndedAt: 1006,
		}, all[0])
		require.True(t, all[4].BYOK)
		for _, rows := range []int{1, 2, 3, 8, 100} {
			require.Equal(t, all, historyOf(t, rows, read, func(c EndedCall) Place { return c.Place() }), "pages of %d", rows)
		}
		some, err := read(Stretch{From: 1002, Until: 1004})
		require.NoError(t, err)
		require.Equal(t, all[3:6], some)
		_, err = book.Calls(t.Context(), WalletID{}, Stretch{})
		require.ErrorIs(t, err, ErrInvalid)
	})
}

func TestSpend(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		live, test := WalletID{acme.OrgID, store.Live}, WalletID{acme.OrgID, store.Test}
		for _, wallet := range []WalletID{live, test} {
			_, err := book.Credit(t.Context(), "cli", wallet, 10_000, "invoice")
			require.NoError(t, err)
			chargeCalls(t, book, wallet, 6)
		}
		endOneByOne(t, db)
		spent, err := book.Spend(t.Context(), live, 1001, 1005)
		require.NoError(t, err)
		require.Equal(t, []Spend{
			{Model: "m0", Calls: 2, PromptTokens: 2 + 4, CompletionTokens: 3 + 5, ChargedMicros: 3 + 5},
			{Model: "m1", Calls: 2, PromptTokens: 1 + 3, CompletionTokens: 2 + 4, ChargedMicros: 2 + 4},
		}, spent)
		none, err := book.Spend(t.Context(), live, 0, 1000)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = book.Spend(t.Context(), WalletID{}, 0, 1)
		require.ErrorIs(t, err, ErrInvalid)
	})
}
