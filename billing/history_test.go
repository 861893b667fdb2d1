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

// chargeCalls makes calls that cost 1, 2, 3… micros and began at 1000, 1001, 1002… milliseconds.
func chargeCalls(t *testing.T, book *Book, wallet WalletID, calls int) {
	t.Helper()
	for n := range int64(calls) {
		id := fmt.Sprintf("call_%s_%03d", wallet.Env, n)
		_, err := book.Hold(t.Context(), Hold{CallID: id, Wallet: wallet, AmountMicros: 1000, ExpiresIn: time.Hour})
		require.NoError(t, err)
		_, err = book.Settle(t.Context(), Settlement{
			Call: Call{
				ID: id, RequestID: "req_" + id, KeyID: "key_1", Model: fmt.Sprintf("m%d", n%2), Provider: "p", Wallet: wallet, Stream: true,
				Usage: Usage{PromptTokens: n, CompletionTokens: 2 * n, CachedPromptTokens: n / 2}, UsageSource: UsageEstimated,
				Outcome: "completed", StartedAt: 1000 + n, DurationMS: n,
			},
			Held: true, ChargeMicros: n + 1,
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
		_, err := book.Adjust(t.Context(), "cli", live, -7, "because", "")
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
		}, all[0])
		require.Equal(t, all[1].ID, all[1].Ref, "without a reference it is its own")
		require.Equal(t, "because", all[1].Note)
		require.Equal(t, "ref of "+acme.OrgID+"live", all[7].Ref)
		for _, rows := range []int{1, 2, 3, 8, 100} {
			require.Equal(t, all, historyOf(t, rows, read, Entry.Place), "pages of %d", rows)
		}

		for _, table := range []string{"ledger_tx", "calls"} {
			execute(t, db, storetest.Unguard(db.Engine(), table))
		}
		execute(t, db, `UPDATE calls SET charged_at = 5000`)
		execute(t, db, `UPDATE ledger_tx SET created_at = 5000`)
		tied := historyOf(t, 3, read, Entry.Place)
		require.Len(t, tied, 8, "rows of one moment are neither lost nor repeated")
		for stretch, want := range map[Stretch]int{
			{From: 5000, Until: 5001}: 8, {From: 5001}: 0, {Until: 5000}: 0, {Until: 5001, After: tied[2].Place()}: 5, {Until: 4000, After: tied[2].Place()}: 0,
		} {
			found, err := read(stretch)
			require.NoError(t, err)
			require.Len(t, found, want, "%+v", stretch)
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

func TestCallsOfAWallet(t *testing.T) {
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		live, test := WalletID{acme.OrgID, store.Live}, WalletID{acme.OrgID, store.Test}
		for _, wallet := range []WalletID{live, test} {
			_, err := book.Credit(t.Context(), "cli", wallet, 10_000, "")
			require.NoError(t, err)
		}
		chargeCalls(t, book, live, 7)
		chargeCalls(t, book, test, 1)
		recorded(t, book, Settlement{Call: Call{ID: "call_byok", Wallet: live, BYOK: true, UsageSource: UsageProvider, StartedAt: 1003}})

		read := func(stretch Stretch) ([]EndedCall, error) { return book.Calls(t.Context(), live, stretch) }
		all, err := read(Stretch{})
		require.NoError(t, err)
		require.Len(t, all, 8)
		require.Equal(t, EndedCall{
			Call: Call{
				ID: "call_live_006", RequestID: "req_call_live_006", KeyID: "key_1", Model: "m0", Provider: "p", Wallet: live, Stream: true,
				Usage: Usage{PromptTokens: 6, CompletionTokens: 12, CachedPromptTokens: 3}, UsageSource: UsageEstimated, Outcome: "completed",
				StartedAt: 1006, DurationMS: 6,
			},
			Settled: Settled{ChargedMicros: 7},
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
	eachEngine(t, func(t *testing.T, _ *store.DB, book *Book) {
		live, test := WalletID{acme.OrgID, store.Live}, WalletID{acme.OrgID, store.Test}
		for _, wallet := range []WalletID{live, test} {
			_, err := book.Credit(t.Context(), "cli", wallet, 10_000, "")
			require.NoError(t, err)
			chargeCalls(t, book, wallet, 6)
		}
		spent, err := book.Spend(t.Context(), live, 1001, 1005)
		require.NoError(t, err)
		require.Equal(t, []Spend{
			{Model: "m0", Calls: 2, PromptTokens: 2 + 4, CompletionTokens: 4 + 8, ChargedMicros: 3 + 5},
			{Model: "m1", Calls: 2, PromptTokens: 1 + 3, CompletionTokens: 2 + 6, ChargedMicros: 2 + 4},
		}, spent)
		none, err := book.Spend(t.Context(), live, 0, 1000)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = book.Spend(t.Context(), WalletID{}, 0, 1)
		require.ErrorIs(t, err, ErrInvalid)
	})
}
