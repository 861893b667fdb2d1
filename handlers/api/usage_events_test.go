package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// TestUsageEvents: the export of a wallet in each format, and from the sequence of an event on.
func TestUsageEvents(t *testing.T) {
	t.Parallel()
	o := spending(t)
	w := handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events", "owner"))
	require.Equal(t, "application/cloudevents-batch+json", w.Header().Get("Content-Type"))
	var events []map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &events))
	require.Len(t, events, 2)
	priceID := events[0]["data"].(map[string]any)["priceId"]
	require.NotEqual(t, "0", priceID)
	data := map[string]any{
		"callId": "call_1", "environment": "live", "model": "echo/a", "upstreamModel": "", "keyId": "key_1", "agentId": nil, "conversationId": nil,
		"promptTokens": 10., "cachedPromptTokens": 5., "cacheWriteTokens": 0., "longCacheWriteTokens": 0., "completionTokens": 20.,
		"reasoningTokens": 19., "chargedMicros": "300", "byok": false, "priceId": priceID,
	}
	require.Equal(t, map[string]any{
		"specversion": "1.0", "id": "call_1", "source": "https://svc.example", "type": "svc.model.call.settled", "subject": "org_1",
		"time": "2026-11-21T09:59:59.000Z", "sequence": "0_2", "datacontenttype": "application/json", "data": data,
	}, events[0])
	data["refundedMicros"] = "300"
	require.Equal(t, []any{"svc.model.call.refunded", data}, []any{events[1]["type"], events[1]["data"]})
	require.True(t, strings.HasPrefix(events[1]["id"].(string), "txn_"))

	lines := handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events?format=jsonl", "owner")).Body.String()
	require.Equal(t, 2, strings.Count(lines, "\n"))
	for n, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var event map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &event))
		require.Equal(t, events[n], event)
	}
	rows := o.table(t, keyed(http.MethodGet, "/wallet/usage-events?format=csv", "owner"))
	require.Len(t, rows, 3)
	require.Equal(t, []string{"0_2", "call_1", "svc.model.call.settled"}, rows[1][:3])

	for query, want := range map[string]string{
		"since=0_2": "svc.model.call.refunded", "limit=1": "svc.model.call.settled", "since=0_2&limit=1": "svc.model.call.refunded",
	} {
		text := handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events?"+query, "owner")).Body.String()
		require.NoError(t, json.Unmarshal([]byte(text), &events))
		require.Len(t, events, 1, query)
		require.Equal(t, want, events[0]["type"])
	}
	for _, query := range []string{"since=0_99&format=cloudevents", "environment=test"} {
		require.Equal(t, "[]\n", handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events?"+query, "user:owner")).Body.String())
	}
	require.Empty(t, handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events?since=0_99&format=jsonl", "owner")).Body.String())
	require.Equal(t, "[]\n", handlertest.Served(o.Serve, keyed(http.MethodGet, "/wallet/usage-events", "stranger")).Body.String())
	o.refused(t, errcode.InvalidRequest, "since", http.MethodGet, "/wallet/usage-events?since=x", "owner", "")
	o.refused(t, errcode.InvalidRequest, "format", http.MethodGet, "/wallet/usage-events?format=xml", "owner", "")
	o.refused(t, errcode.InvalidRequest, "limit", http.MethodGet, "/wallet/usage-events?limit=0", "owner", "")
	o.Wallets = handlertest.WalletsFunc(nil)
	o.refused(t, errcode.InternalError, "", http.MethodGet, "/wallet/usage-events", "owner", "")
}

// manyEvents is a wallet with many events. Its reads fail after some.
type manyEvents struct {
	handlertest.WalletsFunc

	events, failAfter int64
}

func (m *manyEvents) UsageEvents(_ context.Context, id billing.WalletID, after billing.UsageCursor, rows int) (page []billing.UsageEvent, err error) {
	if m.failAfter > 0 && after.Seq >= m.failAfter {
		return nil, io.ErrUnexpectedEOF
	}
	for n := after.Seq + 1; n <= m.events && len(page) < rows; n++ {
		e := billing.UsageEvent{Cursor: billing.UsageCursor{Seq: n}}
		e.ID, e.Wallet, e.Model, e.UpstreamModel = fmt.Sprint("call_", n), id, "echo/a", strings.Repeat("u", 20)
		page = append(page, e)
	}
	return page, nil
}

// heapWriter counts the bytes and lines of an answer, and measures the live heap on the way.
type heapWriter struct {
	header              http.Header
	lines, writes, peak int
}

func (w *heapWriter) Header() http.Header { return w.header }
func (*heapWriter) WriteHeader(int)       {}
func (w *heapWriter) Write(text []byte) (int, error) {
	w.lines += strings.Count(string(text), "\n")
	if w.writes++; w.writes%10_000 == 0 {
		w.peak = max(w.peak, liveHeap())
	}
	return len(text), nil
}

func liveHeap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc) //nolint:gosec // less than the machine has
}

// TestLongExports: an export of 100,000 events needs no more memory than some pages. A read that fails on the way cuts the connection.
func TestLongExports(t *testing.T) { //nolint:paralleltest // measures the heap
	o, most := newFixture(t), 8<<20
	o.Wallets = &manyEvents{events: 100_000}
	for _, format := range []string{"jsonl", "csv"} {
		w := &heapWriter{header: http.Header{}}
		before := liveHeap()
		require.NoError(t, o.Serve(w, keyed(http.MethodGet, "/wallet/usage-events?format="+format, "owner")))
		require.GreaterOrEqual(t, w.lines, 100_000)
		require.Less(t, w.peak-before, most, format)
	}
	o.Wallets = &manyEvents{events: 5000, failAfter: 2000}
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		_ = o.Serve(&heapWriter{header: http.Header{}}, keyed(http.MethodGet, "/wallet/usage-events", "owner"))
	})
}
