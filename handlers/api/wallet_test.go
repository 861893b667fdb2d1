package api

import (
	"context"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ledger returns the fixture's book, with which tests make a history.
func (o *fixture) ledger(t *testing.T) *billing.Book {
	t.Helper()
	book, ok := o.Wallets.(*billing.Book)
	require.True(t, ok)
	return book
}

// during has the database's clock stand at a moment while a test writes a part of its history.
func (o *fixture) during(moment time.Time, write func()) {
	before := *o.now
	*o.now = moment
	write()
	*o.now = before
}

// charge has a call end for which 500 micros are reserved, and whose completion tokens cost 10 each.
func (o *fixture) charge(t *testing.T, ended time.Time, call billing.Call) {
	t.Helper()
	if call.UsageSource == "" {
		call.UsageSource = billing.UsageProvider
	}
	o.during(ended, func() {
		_, err := o.ledger(t).Hold(t.Context(), billing.Hold{CallID: call.ID, Wallet: call.Wallet, AmountMicros: 500, ExpiresIn: time.Hour})
		require.NoError(t, err)
		_, err = o.ledger(t).Settle(t.Context(), billing.Settlement{
			Call: call, ReservedMicros: 500, Price: billing.Price{
				Input: 6_000_000, CachedInput: -1, Output: 10_000_000, Tiers: billing.NewTiers([billing.MaxTiers]billing.Tier{{Above: 9, Rates: billing.Rates{
					Input: 12_000_000, CachedInput: 8_000_000, CacheWrite: 15_000_000, LongCacheWrite: -1, Output: 10_000_000,
				}}}),
			},
		})
		require.NoError(t, err)
	})
}

var (
	liveWallet     = billing.WalletID{OrgID: "org_1", Env: store.Live}
	testWallet     = billing.WalletID{OrgID: "org_1", Env: store.Test}
	strangerWallet = billing.WalletID{OrgID: "org_2", Env: store.Live}
)

// funded returns a fixture whose wallets were topped up a year ago.
func funded(t *testing.T) *fixture {
	t.Helper()
	o := newFixture(t)
	o.during(apiNow().AddDate(-1, 0, 0), func() {
		for _, wallet := range []billing.WalletID{liveWallet, testWallet, strangerWallet} {
			_, err := o.ledger(t).Credit(t.Context(), "cli", wallet, 1_000_000, `=HYPERLINK("https://evil.example")`)
			require.NoError(t, err)
		}
	})
	return o
}

// spend writes transactions of the other kinds for the live wallet, the newest a refund.
func (o *fixture) spend(t *testing.T) {
	t.Helper()
	o.charge(t, apiNow().Add(-time.Second), billing.Call{
		ID: "call_1", RequestID: "req_1", KeyID: "key_1", Model: "echo/a", Provider: "echo", Wallet: liveWallet, Stream: true,
		Usage: billing.Usage{PromptTokens: 10, CompletionTokens: 20, CachedPromptTokens: 5, ReasoningTokens: 19}, Outcome: "completed", DurationMS: 7,
	})
	o.charge(t, apiNow(), billing.Call{
		ID: "call_2", RequestID: "trn_1", Model: "echo/b", Wallet: liveWallet, Outcome: "client_gone", UsageSource: billing.UsageEstimated,
	})
	o.during(apiNow(), func() {
		_, err := o.ledger(t).Adjust(t.Context(), "cli", liveWallet, -50, "a \"mistake\",\nmended", "ticket 6", "")
		require.NoError(t, err)
		_, err = o.ledger(t).Refund(t.Context(), "cli", "call_1", "ticket 7")
		require.NoError(t, err)
	})
}

// spending returns a fixture whose live wallet has a transaction of each kind.
func spending(t *testing.T) *fixture {
	t.Helper()
	o := funded(t)
	o.spend(t)
	return o
}

// elements are the data of a list without what depends on the moment.
func elements(t *testing.T, object map[string]any) (all []map[string]any) {
	t.Helper()
	for _, element := range object["data"].([]any) {
		element := element.(map[string]any)
		_, err := time.Parse(time.RFC3339, element["at"].(string))
		require.NoError(t, err)
		all = append(all, element)
	}
	return all
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	o := spending(t)
	object := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions", "owner", "")
	require.Nil(t, object["nextCursor"])
	all := elements(t, object)
	require.Len(t, all, 4)
	want := []map[string]any{
		{"kind": "refund", "amountMicros": "300", "balanceMicros": "999950", "callId": "call_1", "reference": "ticket 7", "reason": nil, "corrects": nil},
		{"kind": "adjustment", "amountMicros": "-50", "balanceMicros": "999650", "callId": nil, "reference": "ticket 6", "reason": "a \"mistake\",\nmended", "corrects": nil},
		{"kind": "charge", "amountMicros": "-300", "balanceMicros": "999700", "callId": "call_1", "reference": nil, "reason": nil, "corrects": nil},
		{
			"kind": "credit", "amountMicros": "1000000", "balanceMicros": "1000000", "callId": nil,
			"reference": `=HYPERLINK("https://evil.example")`, "reason": nil, "corrects": nil,
		},
	}
	for i := range want {
		want[i]["id"], want[i]["at"] = all[i]["id"], all[i]["at"]
	}
	require.Equal(t, want, all)

	var paged []map[string]any
	cursor := ""
	for {
		page := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions?limit=3&cursor="+cursor, "user:member", "")
		paged = append(paged, elements(t, page)...)
		if page["nextCursor"] == nil {
			break
		}
		cursor = page["nextCursor"].(string)
	}
	require.Equal(t, want, paged)

	require.Len(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions", "stranger", "")), 1)
	require.Empty(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions?to=2000-01-01", "owner", "")))
	require.Len(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions?from=2000-01-01", "owner", "")), 4)
}

func TestEnvironmentOfAWallet(t *testing.T) {
	t.Parallel()
	o := spending(t)
	for _, path := range []string{"/wallet", "/wallet/spend"} {
		for principal, want := range map[string]string{
			"owner": "live", "test?environment=test": "test", "test": "test", "owner?environment=live": "live", "user:member": "live",
			"user:member?environment=live": "live", "user:member?environment=test": "test",
		} {
			principal, query, _ := strings.Cut(principal, "?")
			require.Equal(t, want, o.ask(t, http.StatusOK, http.MethodGet, path+"?"+query, principal, "")["environment"])
		}
	}
	require.Len(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions?environment=test", "user:member", "")), 1)
	for _, path := range []string{"/wallet", "/wallet/spend", "/wallet/transactions", "/wallet/calls"} {
		o.refused(t, errcode.InvalidRequest, "environment", http.MethodGet, path+"?environment=live", "test", "")
		o.refused(t, errcode.InvalidRequest, "environment", http.MethodGet, path+"?environment=test", "owner", "")
		o.refused(t, errcode.InvalidRequest, "environment", http.MethodGet, path+"?environment=both", "user:member", "")
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	o := spending(t)
	require.Equal(t, []map[string]any{
		{
			"id": "call_2", "at": "2026-11-21T10:00:00.000Z", "durationMs": 0., "model": "echo/b", "outcome": "client_gone",
			"promptTokens": 0., "cachedPromptTokens": 0., "cacheWriteTokens": 0., "longCacheWriteTokens": 0., "completionTokens": 0.,
			"reasoningTokens": 0., "usageSource": "estimated", "inputPriceMicros": "6000000", "cachedPriceMicros": "6000000",
			"cacheWritePriceMicros": "0", "longCacheWritePriceMicros": "0", "outputPriceMicros": "10000000", "reservedMicros": "500",
			"chargedMicros": "0", "byok": false, "stream": false, "keyId": nil, "requestId": nil, "agentId": "agt_1", "conversationId": "cnv_1",
		},
		{
			"id": "call_1", "at": "2026-11-21T09:59:59.000Z", "durationMs": 7., "model": "echo/a", "outcome": "completed",
			"promptTokens": 10., "cachedPromptTokens": 5., "cacheWriteTokens": 0., "longCacheWriteTokens": 0., "completionTokens": 20.,
			"reasoningTokens": 19., "usageSource": "provider", "inputPriceMicros": "12000000", "cachedPriceMicros": "8000000",
			"cacheWritePriceMicros": "15000000", "longCacheWritePriceMicros": "12000000", "outputPriceMicros": "10000000", "reservedMicros": "500",
			"chargedMicros": "300", "byok": false, "stream": true, "keyId": "key_1", "requestId": "req_1", "agentId": nil, "conversationId": nil,
		},
	}, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls", "owner", "")))
	require.Len(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls?from=2026-11-21&to=2026-11-21", "owner", "")), 2)
	require.Empty(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls?from=2026-11-22", "owner", "")))
	require.Empty(t, elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls", "stranger", "")))

	o.inbox.fail = errors.New("disk I/O error")
	require.NotContains(t, o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/calls", "owner", "").Text, "disk")
}

// TestCall: the lines of a call are its cost, of which the charge is all that was reserved.
func TestCall(t *testing.T) {
	t.Parallel()
	o := spending(t)
	shown := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls/call_1", "owner", "")
	require.Equal(t, []any{
		map[string]any{"kind": "input", "tokens": 5., "priceMicros": "12000000", "micros": "60"},
		map[string]any{"kind": "cachedInput", "tokens": 5., "priceMicros": "8000000", "micros": "40"},
		map[string]any{"kind": "output", "tokens": 20., "priceMicros": "10000000", "micros": "200"},
	}, shown["lines"])
	require.Equal(t, []any{"300", "0", "300"}, []any{shown["costMicros"], shown["unchargedMicros"], shown["chargedMicros"]})
	o.charge(t, apiNow(), billing.Call{ID: "call_3", Model: "echo/a", Wallet: liveWallet, Usage: billing.Usage{CompletionTokens: 60}})
	shown = o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls/call_3", "owner", "")
	require.Equal(t, []any{"600", "100", "500"}, []any{shown["costMicros"], shown["unchargedMicros"], shown["chargedMicros"]})
	o.refused(t, errcode.NotFound, "", http.MethodGet, "/wallet/calls/call_9", "owner", "")
	o.refused(t, errcode.NotFound, "", http.MethodGet, "/wallet/calls/call_1?environment=test", "user:owner", "")
	o.refused(t, errcode.Forbidden, "", http.MethodGet, "/wallet/calls/call_1", "stranger", "")
	o.Wallets = handlertest.WalletsFunc(nil)
	o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/calls/call_1", "owner", "")
}

func TestDaysOfHistory(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for _, path := range []string{"/wallet/transactions", "/wallet/calls", "/wallet/spend"} {
		for query, field := range map[string]string{
			"from=yesterday": "from", "from=2026-11-21T00:00:00Z": "from", "from=2026-02-30": "from", "from=0001-01-01": "from",
			"to=2026-13-01": "to", "to=1": "to", "from=2026-11-02&to=2026-11-01": "to",
		} {
			o.refused(t, errcode.InvalidRequest, field, http.MethodGet, path+"?"+query, "owner", "")
		}
	}
	o.refused(t, errcode.InvalidRequest, "from", http.MethodGet, "/wallet/spend?from=2026-11-22", "owner", "")
	o.refused(t, errcode.InvalidRequest, "from", http.MethodGet, "/wallet/spend?from=2026-08-21", "owner", "")
	o.ask(t, http.StatusOK, http.MethodGet, "/wallet/spend?from=2026-08-22", "owner", "")
	for path, cursors := range map[string][]string{
		"/wallet/transactions": {"0", "-1", "a", "1_call_1", "99999999999999999999"},
		"/wallet/calls":        {"1_", "1", "0_call_1", "a_1", "99999999999999999999_x"},
	} {
		for _, cursor := range cursors {
			cursor := base64.RawURLEncoding.EncodeToString([]byte(cursor))
			o.refused(t, errcode.InvalidRequest, "cursor", http.MethodGet, path+"?cursor="+cursor, "owner", "")
		}
	}
}

func TestSpend(t *testing.T) {
	t.Parallel()
	o, one := funded(t), billing.Usage{CompletionTokens: 1}
	o.charge(t, apiNow().AddDate(0, 0, -30), billing.Call{ID: "call_4", Model: "echo/a", Wallet: liveWallet, Usage: one})
	o.charge(t, apiNow().AddDate(0, 0, -29), billing.Call{ID: "call_3", Model: "echo/a", Wallet: liveWallet, Usage: one})
	o.spend(t)
	require.JSONEq(t, `{"environment":"live","from":"2026-10-23","to":"2026-11-21","data":[
		{"day":"2026-10-23","model":"echo/a","calls":1,"promptTokens":0,"completionTokens":1,"chargedMicros":"10"},
		{"day":"2026-11-21","model":"echo/a","calls":1,"promptTokens":10,"completionTokens":20,"chargedMicros":"300"},
		{"day":"2026-11-21","model":"echo/b","calls":1,"promptTokens":0,"completionTokens":0,"chargedMicros":"0"}]}`,
		handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet/spend", "owner")))
	require.Equal(t, `{"environment":"live","from":"2026-10-01","to":"2026-10-02","data":[]}`,
		handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet/spend?from=2026-10-01&to=2026-10-02", "owner")))
	require.Equal(t, `{"environment":"live","from":"2026-10-23","to":"2026-11-21","data":[]}`,
		handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet/spend", "stranger")))
	o.Wallets = handlertest.WalletsFunc(nil)
	o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/spend", "owner", "")
}

// table reads an answer of text/csv.
func (o *fixture) table(t *testing.T, r *http.Request) [][]string {
	t.Helper()
	w := handlertest.Served(o.Serve, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "text/csv; charset=utf-8; header=present", w.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.NotEmpty(t, w.Header().Get("X-Request-Id"))
	require.True(t, strings.HasSuffix(w.Body.String(), "\r\n"))
	rows, err := csv.NewReader(w.Body).ReadAll()
	require.NoError(t, err)
	return rows
}

func TestTransactionsAsCSV(t *testing.T) {
	t.Parallel()
	o := spending(t)
	all := elements(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/transactions", "owner", ""))
	rows := o.table(t, keyed(http.MethodGet, "/wallet/transactions?format=csv&limit=1", "owner"))
	require.Equal(t, []string{"id", "at", "kind", "amountMicros", "balanceMicros", "callId", "reference", "reason", "corrects"}, rows[0])
	require.Len(t, rows, 5)
	require.Equal(t, []string{all[1]["id"].(string), all[1]["at"].(string), "adjustment", "-50", "999650", "", "ticket 6", "a \"mistake\",\nmended", ""}, rows[2])
	require.Equal(t, `'=HYPERLINK("https://evil.example")`, rows[4][6], "no spreadsheet runs it")

	r := keyed(http.MethodGet, "/wallet/transactions", "owner")
	r.Header.Set("Accept", "text/csv")
	require.Equal(t, rows, o.table(t, r))
	w := handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/transactions?format=csv&environment=test", "user:member"))
	require.Equal(t, `attachment; filename="transactions-test.csv"`, w.Header().Get("Content-Disposition"))
	r = keyed(http.MethodGet, "/wallet/transactions?format=json", "owner")
	r.Header.Set("Accept", "text/csv")
	require.Contains(t, handlertest.OkText(t, o.Serve, r), `"data"`)
	o.refused(t, errcode.InvalidRequest, "format", http.MethodGet, "/wallet/transactions?format=xml", "owner", "")
}

func TestCallsAsCSV(t *testing.T) {
	t.Parallel()
	o := funded(t)
	o.charge(t, apiNow().Add(-time.Hour), billing.Call{ID: "call_3", Model: "-echo/a", Wallet: liveWallet, Outcome: "completed"})
	o.spend(t)
	rows := o.table(t, keyed(http.MethodGet, "/wallet/calls?format=csv", "owner"))
	require.Len(t, rows, 4)
	require.Equal(t, []string{
		"id", "at", "durationMs", "model", "outcome", "promptTokens", "cachedPromptTokens", "cacheWriteTokens", "longCacheWriteTokens",
		"completionTokens", "reasoningTokens", "usageSource", "inputPriceMicros", "cachedPriceMicros", "cacheWritePriceMicros",
		"longCacheWritePriceMicros", "outputPriceMicros", "reservedMicros", "chargedMicros", "byok", "stream", "keyId", "requestId", "agentId", "conversationId",
	}, rows[0])
	require.Equal(t, []string{
		"call_2", "2026-11-21T10:00:00.000Z", "0", "echo/b", "client_gone", "0", "0", "0", "0", "0", "0", "estimated",
		"6000000", "6000000", "0", "0", "10000000", "500", "0", "false", "false", "", "", "agt_1", "cnv_1",
	}, rows[1])
	require.Equal(t, "'-echo/a", rows[3][3])
	require.Equal(t, rows[:1], o.table(t, keyed(http.MethodGet, "/wallet/calls?format=csv", "stranger")), "the header is always there")
}

// TestSelectedCalls: calls by key, model and outcome, in pages and as CSV. However few are selected, a page looks at 5,000 calls.
func TestSelectedCalls(t *testing.T) {
	t.Parallel()
	o := funded(t)
	for i, call := range []billing.Call{
		{Model: "echo/a", KeyID: "key_a", Outcome: "completed"},
		{Model: "echo/b", KeyID: "key_a", Outcome: "client_gone"},
		{Model: "echo/a", KeyID: "key_b", Outcome: "provider_error", RequestID: "trn_1"},
		{Model: "echo/a", KeyID: "key_a", Outcome: "client_gone"},
	} {
		call.ID, call.Wallet, call.Usage = fmt.Sprint("call_", i), liveWallet, billing.Usage{CompletionTokens: int64(i % 2)}
		o.charge(t, apiNow().Add(time.Duration(i-10)*time.Hour), call)
	}
	for query, want := range map[string][]string{
		"keyId=key_a": {"call_3", "call_1", "call_0"}, "model=echo/a": {"call_3", "call_2", "call_0"}, "outcome=client_gone": {"call_3", "call_1"},
		"keyId=key_a&model=echo/a&outcome=completed": {"call_0"}, "keyId=%25": nil,
		"agentId=agt_1": {"call_2"}, "agentId=agt_1&outcome=completed": nil, "agentId=agt_2": nil,
		"agentId=agt_1&from=2026-11-21": {"call_2"}, "agentId=agt_1&to=2026-11-20": nil, "keyId=key_a&to=2026-11-20": nil,
	} {
		var paged, table []string
		for address, more := "/wallet/calls?limit=1&"+query, true; more; {
			page := o.ask(t, http.StatusOK, http.MethodGet, address, "owner", "")
			for _, call := range elements(t, page) {
				paged = append(paged, call["id"].(string))
			}
			var next string
			if next, more = page["nextCursor"].(string); more {
				address = "/wallet/calls?limit=1&" + query + "&cursor=" + next
			}
		}
		require.Equal(t, want, paged, query)
		for _, row := range o.table(t, keyed(http.MethodGet, "/wallet/calls?format=csv&"+query, "owner"))[1:] {
			table = append(table, row[0])
		}
		require.Equal(t, want, table, query)
	}

	const calls = 12_500
	long := &history{calls: calls}
	o.Wallets = long
	address, reads := "/wallet/calls?keyId=key_last", []int{5, 5, 3}
	for i, most := range reads {
		long.reads = nil
		page := o.ask(t, http.StatusOK, http.MethodGet, address, "owner", "")
		require.Len(t, long.reads, most)
		if i < len(reads)-1 {
			require.Empty(t, page["data"])
			address = "/wallet/calls?keyId=key_last&cursor=" + page["nextCursor"].(string)
			continue
		}
		require.Nil(t, page["nextCursor"])
		require.Equal(t, fmt.Sprint("call_", calls-1), elements(t, page)[0]["id"])
	}
	require.Len(t, o.table(t, keyed(http.MethodGet, "/wallet/calls?format=csv&keyId=key_last", "owner")), 2)
	long.reads = nil
	require.NotNil(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/calls?agentId=agt_1", "owner", "")["nextCursor"])
	require.Len(t, long.reads, 5)
}

// history is a wallet with many calls, of which the last has a key. Its reads fail after some.
type history struct {
	handlertest.WalletsFunc

	calls, failAfter int
	reads            []billing.Stretch
}

func (h *history) Calls(_ context.Context, _ billing.WalletID, stretch billing.Stretch) (page []billing.EndedCall, _ error) {
	h.reads = append(h.reads, stretch)
	if h.failAfter > 0 && len(h.reads) > h.failAfter {
		return nil, errors.New("disk I/O error")
	}
	for n := int(stretch.After.At); n < h.calls && len(page) < stretch.Rows; n++ {
		call := billing.Call{ID: fmt.Sprintf("call_%d", n)}
		if n == h.calls-1 {
			call.KeyID = "key_last"
		}
		page = append(page, billing.EndedCall{Call: call, EndedAt: int64(n + 1)})
	}
	return page, nil
}

// A long table is read page by page, and is complete or cut.
func TestLongTables(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{0, 1, billing.MaxHistoryRows - 1, billing.MaxHistoryRows, 2*billing.MaxHistoryRows + 1} {
		o, h := newFixture(t), &history{calls: calls}
		o.Wallets = h
		rows := o.table(t, keyed(http.MethodGet, "/wallet/calls?format=csv", "owner"))
		require.Len(t, rows, calls+1)
		for n, row := range rows[1:] {
			require.Equal(t, fmt.Sprintf("call_%d", n), row[0])
		}
		require.Len(t, h.reads, calls/billing.MaxHistoryRows+1)
	}

	o := newFixture(t)
	o.Wallets = &history{calls: 5000, failAfter: 2}
	w := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = o.Serve(w, keyed(http.MethodGet, "/wallet/calls?format=csv", "owner"))
	}, "nobody takes a part for the whole")
	require.Equal(t, 1+2*billing.MaxHistoryRows, strings.Count(w.Body.String(), "\r\n"))

	gone := &history{calls: 5000}
	o.Wallets = gone
	require.NoError(t, o.Serve(&deafWriter{header: http.Header{}}, keyed(http.MethodGet, "/wallet/calls?format=csv", "owner")))
	require.Len(t, gone.reads, 1, "nothing is read for somebody who left")
}

// deafWriter is a client that is gone.
type deafWriter struct{ header http.Header }

func (w *deafWriter) Header() http.Header     { return w.header }
func (*deafWriter) WriteHeader(int)           {}
func (*deafWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestOrganization(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	object := o.ask(t, http.StatusOK, http.MethodGet, "/organization", "user:member", "")
	require.Equal(t, map[string]any{
		"id": "org_1", "name": "org_1", "plan": "free", "suspended": false, "retentionDays": 0., "createdAt": "1970-01-01T00:00:00.001Z",
		"lowBalanceMicros": "0", "waitingMinutes": 15., "timeZone": "UTC",
	}, object)
	for _, days := range []string{"7", "30", "3650", "0"} {
		changed := o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:administrator", `{"retentionDays":`+days+`,"plan":"pro","name":"x"}`)
		object["retentionDays"] = changed["retentionDays"]
		require.Equal(t, object, changed)
		require.Equal(t, days, fmt.Sprint(changed["retentionDays"]))
	}
	object["timeZone"] = "America/St_Johns"
	require.Equal(t, object, o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:administrator", `{"timeZone":"America/St_Johns"}`))
	o.refused(t, errcode.Forbidden, "", http.MethodPatch, "/organization", "user:member", `{"timeZone":"UTC"}`)
	for _, zone := range []string{"", "Local", "Asia", "UTC+7", "../etc/passwd", strings.Repeat("x", 65)} {
		o.refused(t, errcode.InvalidRequest, "timeZone", http.MethodPatch, "/organization", "user:owner", `{"retentionDays":7,"timeZone":"`+zone+`"}`)
	}
	require.Equal(t, object, o.ask(t, http.StatusOK, http.MethodGet, "/organization", "user:member", ""))
	o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:owner", `{"retentionDays":0}`)
	o.ask(t, http.StatusOK, http.MethodPatch, "/organization", "user:owner", `{}`)
	for _, days := range []string{"-1", "1", "6", "3651", "1.5", `"7"`, "1e30"} {
		o.refused(t, errcode.InvalidRequest, "retentionDays", http.MethodPatch, "/organization", "user:owner", `{"retentionDays":`+days+`}`)
	}
	require.Zero(t, o.ask(t, http.StatusOK, http.MethodGet, "/organization", "user:stranger", "")["retentionDays"])
	log, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{})
	require.NoError(t, err)
	var changes []string
	for _, entry := range log {
		if entry.Action == "organization.set_retention" {
			changes = append(changes, entry.Actor+" "+entry.Detail)
		}
	}
	require.Equal(t, []string{
		"usr_administrator 0 days", "usr_administrator 3650 days", "usr_administrator 30 days", "usr_administrator 7 days",
	}, changes, "what changes nothing isn't logged")
}
