package billing

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestUsageEvents: the events of a wallet are its charges and refunds, in the order of its numbers, from any cursor and in pages of any size.
func TestUsageEvents(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		writeSmallBooks(t, db)
		all, err := book.UsageEvents(t.Context(), acme, UsageCursor{}, 100)
		require.NoError(t, err)
		var ids []string
		for _, e := range all {
			ids = append(ids, e.ID)
			require.Equal(t, e.RefundID != "", e.RefundedMicros == 10 && e.RefundedAt > 0)
			require.NotZero(t, e.PriceID)
		}
		require.Equal(t, []string{"call_charged", "call_back", "call_back", "call_last"}, ids)
		require.Equal(t, []string{"", "", all[2].RefundID, ""}, []string{all[0].RefundID, all[1].RefundID, all[2].RefundID, all[3].RefundID})
		require.Equal(t, "key_1", all[0].KeyID)
		for _, rows := range []int{1, 2, 3} {
			var paged []UsageEvent
			for {
				var after UsageCursor
				if len(paged) > 0 {
					after, err = ParseUsageCursor(paged[len(paged)-1].Cursor.String())
					require.NoError(t, err)
				}
				page, err := book.UsageEvents(t.Context(), acme, after, rows)
				require.NoError(t, err)
				if len(page) == 0 {
					break
				}
				require.LessOrEqual(t, len(page), rows)
				paged = append(paged, page...)
			}
			require.Equal(t, all, paged)
		}
		body, err := book.UsageBody(t.Context(), "https://svc.example", &store.EventDelivery{
			OrgID: acme.OrgID, EventID: "evt_1", Type: store.EventUsage, Payload: fmt.Sprintf(
				`{"type":"usage.recorded","timestamp":"2026-01-02T03:04:05.678Z","organizationId":"%s","data":{"after":"%s","through":"%s"}}`,
				acme.OrgID, all[0].Cursor, all[2].Cursor),
		})
		require.NoError(t, err)
		var sent struct{ Data struct{ Events []CloudEvent } }
		require.NoError(t, json.Unmarshal([]byte(body), &sent))
		require.Equal(t, []CloudEvent{all[1].CloudEvent("https://svc.example"), all[2].CloudEvent("https://svc.example")}, sent.Data.Events)
		for _, payload := range []string{"", "[]", `{"data":{"after":"x","through":"0_1"}}`, `{"data":{"after":"0_1","through":"1"}}`} {
			_, err := book.UsageBody(t.Context(), "", &store.EventDelivery{EventID: "evt_1", Payload: payload})
			require.ErrorContains(t, err, "evt_1", payload)
		}
		for _, text := range []string{"x", "1", "1_", "_1", "-1_2", "1_-2", "1_2_3", "99999999999999999999_1"} {
			_, err := ParseUsageCursor(text)
			require.ErrorIs(t, err, ErrInvalid, text)
		}
	})
}

// TestEventsOfLateCommits: a charge whose id and time are from before other wallets' charges is committed after they were exported, and comes
// after them.
func TestEventsOfLateCommits(t *testing.T) {
	eachEngine(t, func(t *testing.T, db *store.DB, book *Book) {
		if db.Engine() == store.SQLite {
			return // has one writer
		}
		topUp(t, book, 100)
		makeOrganization(t, db, "org_late")
		late := WalletID{"org_late", store.Live}
		require.NoError(t, refusalOf(book.Credit(t.Context(), "cli", late, 100, "pay")))
		tx, err := db.Reader().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		for _, text := range []string{
			`INSERT INTO calls (id, request_id, org_id, env, key_id, model, provider, byok, stream, outcome, prompt_tokens, completion_tokens,
				cached_tokens, usage_source, ended_at, duration_ms, reserved_micros, charged_micros, shortfall_micros, wallet_seq, balance_micros, cost_micros)
				VALUES ('call_0', '', 'org_late', 'live', '', 'm', '', FALSE,FALSE, 'client_gone', 0, 0, 0, 'none', 1, 0, 5, 5, 0, 2, 95, 0)`,
			`UPDATE wallets SET seq = 2, balance_micros = 95 WHERE org_id = 'org_late'`,
		} {
			_, err := tx.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		spendMicros(t, book, "call_1", "m/one", "", 10)
		first, err := book.AllUsageEvents(t.Context(), UsageCursor{}, 10)
		require.NoError(t, err)
		require.Len(t, first, 1)
		require.NoError(t, tx.Commit())
		spendMicros(t, book, "call_2", "m/one", "", 10)
		rest, err := book.AllUsageEvents(t.Context(), first[0].Cursor, 10)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"call_0", "call_2"}, []string{rest[0].ID, rest[1].ID})
		require.Len(t, rest, 2)
		require.NoError(t, db.Fill(t.Context(), func(tx *sql.Tx) error { // sound books for the end of the test
			_, err := tx.ExecContext(t.Context(), `ALTER TABLE calls DISABLE TRIGGER USER; DELETE FROM calls WHERE id = 'call_0';
				ALTER TABLE calls ENABLE TRIGGER USER; UPDATE wallets SET seq = 1, balance_micros = 100 WHERE org_id = 'org_late'`)
			return err
		}))
	})
}

// TestEventsOfManyWriters: while two processes charge several wallets, two readers with cursors of their own get each event once, in one order.
func TestEventsOfManyWriters(t *testing.T) {
	eachStatementEngine(t, func(t *testing.T, engine store.Engine) {
		nodes, _ := openClockedNodes(t, engine)
		const calls = 40
		var writers, readers sync.WaitGroup
		var written atomic.Bool
		for n := range 4 {
			id := WalletID{fmt.Sprint("org_", n), store.Live}
			makeOrganization(t, nodes[0].db, id.OrgID)
			require.NoError(t, refusalOf(nodes[0].Credit(t.Context(), "cli", id, 100_000, "pay")))
			writers.Go(func() {
				for i := range calls {
					s := cost(fmt.Sprintf("call_%d_%d", n, i), 10, 5)
					s.Call.Wallet = id
					book := nodes[(n+i)%2].Book
					hold := Hold{CallID: s.Call.ID, Wallet: id, AmountMicros: 10, ExpiresIn: time.Minute}
					require.NoError(t, refusal(book.Hold(t.Context(), hold)))
					_, err := book.Settle(t.Context(), s)
					require.NoError(t, err)
				}
			})
		}
		var read [2][]string
		for r := range read {
			readers.Go(func() {
				for after := (UsageCursor{}); ; {
					last := written.Load()
					page, err := nodes[r].AllUsageEvents(t.Context(), after, 7)
					require.NoError(t, err)
					for _, e := range page {
						read[r], after = append(read[r], e.ID), e.Cursor
					}
					if last && len(page) == 0 {
						return
					}
				}
			})
		}
		writers.Wait()
		written.Store(true)
		readers.Wait()
		require.Equal(t, read[0], read[1])
		seen := map[string]bool{}
		for _, id := range read[0] {
			require.False(t, seen[id], "%s comes twice", id)
			seen[id] = true
		}
		require.Len(t, seen, 4*calls)
	})
}
