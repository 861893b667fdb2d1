package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// TestStatements: the months of a wallet in JSON and CSV, each of which adds up.
func TestStatements(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	tokens := func(n int64) billing.Usage { return billing.Usage{CompletionTokens: n} }
	o.during(time.Date(2026, 8, 31, 18, 0, 0, 0, time.UTC), func() {
		_, err := o.ledger(t).Credit(t.Context(), "cli", liveWallet, 10_000, "=pay")
		require.NoError(t, err)
	})
	october := time.Date(2026, 10, 2, 0, 0, 0, 0, time.UTC)
	o.charge(t, october, billing.Call{ID: "call_1", Model: "echo/a", Wallet: liveWallet, KeyID: "key_1", Usage: tokens(10)})
	o.charge(t, october, billing.Call{ID: "call_2", Model: "echo/a", Wallet: liveWallet, KeyID: "key_1", Usage: tokens(2)})
	o.charge(t, october, billing.Call{ID: "call_3", Model: "echo/b", Wallet: liveWallet, RequestID: "trn_1", Usage: tokens(1)})
	o.during(october, func() {
		_, err := o.ledger(t).Refund(t.Context(), "cli", "call_1", "ticket")
		require.NoError(t, err)
	})
	o.during(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), func() {
		_, err := o.ledger(t).Adjust(t.Context(), "cli", liveWallet, -7, "why", "ref", "")
		require.NoError(t, err)
	})

	list := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements?limit=2", "owner", "")
	months := list["data"].([]any)
	require.Equal(t, []any{"2026-11", "2026-10"}, []any{months[0].(map[string]any)["month"], months[1].(map[string]any)["month"]})
	require.Equal(t, map[string]any{
		"month": "2026-10", "environment": "live", "timeZone": "UTC", "from": "2026-10-01T00:00:00.000Z", "to": "2026-11-01T00:00:00.000Z",
		"closed": true, "openingMicros": "10000", "creditsMicros": "0", "chargesMicros": "-130", "refundsMicros": "100",
		"correctionsMicros": "0", "reversalsMicros": "0", "closingMicros": "9970", "calls": 3.,
	}, months[1])
	require.Equal(t, false, months[0].(map[string]any)["closed"])
	require.Equal(t, "9963", months[0].(map[string]any)["closingMicros"])
	rest := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements?cursor="+list["nextCursor"].(string), "owner", "")
	require.Len(t, rest["data"], 2, "September and August")
	require.Nil(t, rest["nextCursor"])
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements", "stranger", "")["data"])

	whole := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements/2026-10", "owner", "")
	require.Len(t, whole["hash"], 64)
	require.Equal(t, []any{
		map[string]any{"model": "echo/a", "keyId": "key_1", "agentId": nil, "calls": 2., "promptTokens": 0., "completionTokens": 12., "amountMicros": "-120"},
		map[string]any{"model": "echo/b", "keyId": nil, "agentId": nil, "calls": 1., "promptTokens": 0., "completionTokens": 1., "amountMicros": "-10"},
	}, whole["charges"])
	require.Len(t, whole["transactions"], 1)
	require.Equal(t, false, whole["moreTransactions"])
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements/2026-11", "owner", "")["hash"])

	for _, month := range []string{"2026-08", "2026-09", "2026-10", "2026-11"} {
		rows := o.table(t, keyed(http.MethodGet, "/wallet/statements/"+month+"?format=csv", "owner"))
		amount, balance := slices.Index(rows[0], "amountMicros"), slices.Index(rows[0], "balanceMicros")
		require.Equal(t, []string{"opening", "closing"}, []string{rows[1][0], rows[len(rows)-1][0]})
		sum, err := strconv.Atoi(rows[1][balance])
		require.NoError(t, err)
		for _, row := range rows[2 : len(rows)-1] {
			micros, err := strconv.Atoi(row[amount])
			require.NoError(t, err)
			sum += micros
		}
		require.Equal(t, fmt.Sprint(sum), rows[len(rows)-1][balance], month)
		if month == "2026-08" {
			require.Equal(t, "'=pay", rows[2][slices.Index(rows[0], "reference")])
		}
	}
	for _, path := range []string{"/wallet/statements/2026-07", "/wallet/statements/2027-01", "/wallet/statements/x", "/wallet/statements/2026-10%00", "/wallet/statements/2026-10?environment=test"} {
		o.refused(t, errcode.NotFound, "", http.MethodGet, path, "user:owner", "")
	}
	o.refused(t, errcode.InvalidRequest, "format", http.MethodGet, "/wallet/statements/2026-10?format=xml", "owner", "")
	o.Wallets = handlertest.WalletsFunc(nil)
	o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/statements/2026-10", "owner", "")
	o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/statements", "owner", "")
}

// TestLongStatements: JSON has the first 1,000 postings of a month, and CSV has all.
func TestLongStatements(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.Wallets = &longMonth{postings: 2*billing.MaxHistoryRows + 1}
	whole := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/statements/2026-10", "owner", "")
	require.Len(t, whole["transactions"], billing.MaxHistoryRows)
	require.Equal(t, true, whole["moreTransactions"])
	require.Len(t, o.table(t, keyed(http.MethodGet, "/wallet/statements/2026-10?format=csv", "owner")), 1+1+2*billing.MaxHistoryRows+1+1)
}

// longMonth is a wallet with one month of many postings.
type longMonth struct {
	handlertest.WalletsFunc

	postings int64
}

func (m *longMonth) Statement(context.Context, billing.WalletID, string) (*billing.Statement, error) {
	return &billing.Statement{Month: "2026-10", FirstSeq: 1, LastSeq: m.postings}, nil
}

func (*longMonth) Postings(_ context.Context, _ billing.WalletID, from, through int64) (page []billing.Entry, _ error) {
	for n := from; n <= through && len(page) < billing.MaxHistoryRows; n++ {
		page = append(page, billing.Entry{Seq: n, Kind: billing.EntryTopUp})
	}
	return page, nil
}
