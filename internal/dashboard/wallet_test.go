package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/ui"
	words "github.com/caddy-svc/caddy-svc/internal/ui/text"
)

func TestCredits(t *testing.T) {
	t.Parallel()
	for micros, want := range map[string]string{
		"0": "0.00", "1": "0.000001", "12500000": "12.50", "-25": "-0.000025", "1000000": "1.00", "1230000": "1.23", "1234567": "1.234567",
		"9223372036854775807": "9223372036854.775807", "-9223372036854775808": "-9223372036854.775808", "": "", "many": "many",
	} {
		require.Equal(t, want, ui.Credits(micros), micros)
	}
}

// A series for each model, the largest first, with its cost on each day.
func TestSpending(t *testing.T) {
	t.Parallel()
	s := newSpending(words.New(words.English, ""), &api.SpendObject{From: "2026-11-01", To: "2026-11-30", Data: []api.DaySpend{
		{Day: "2026-11-01", Model: "a", Calls: 2, ChargedMicros: "3000000"},
		{Day: "2026-11-30", Model: "a", Calls: 1, ChargedMicros: "1"},
		{Day: "2026-11-30", Model: "b", Calls: 1, ChargedMicros: "5999999"},
		{Day: "2026-11-30", Model: "free", Calls: 7, ChargedMicros: "0"},
	}})
	require.Equal(t, "9000000", s.Total)
	require.Equal(t, []modelSum{
		{Model: "b", Calls: 1, Micros: "5999999", micros: 5999999},
		{Model: "a", Calls: 3, Micros: "3000001", Colour: 1, micros: 3000001},
		{Model: "free", Calls: 7, Micros: "0", Colour: 2},
	}, s.Models)
	require.Len(t, s.Plot.Steps, 30)
	require.Equal(t, []ui.Row{
		{Step: "1 Nov 2026", Values: []string{"0.00", "3.00", "0.00"}}, {Step: "30 Nov 2026", Values: []string{"≈ 6.00", "0.000001", "0.00"}},
	}, s.Plot.Rows)
}

// No answer of the API makes the plot fail, however odd.
func FuzzSpendPlot(f *testing.F) {
	f.Add("2026-11-01", "2026-11-30", "2026-11-02", "25", "9223372036854775807")
	f.Add("", "x", "2026-13-01", "", "-1")
	f.Add("2026-11-30", "2026-11-01", "0001-01-01", "9007199254740993", "9223372036854775807")
	f.Fuzz(func(t *testing.T, from, to, day, one, other string) {
		p := newSpending(words.New(words.English, ""), &api.SpendObject{From: from, To: to, Data: []api.DaySpend{{Day: day, Model: "a", ChargedMicros: one}, {Day: day, Model: "b", ChargedMicros: other}}})
		for _, bar := range p.Plot.Bars {
			require.Positive(t, bar.Height)
			require.Positive(t, bar.Width)
		}
	})
}

func TestWallet(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	page := r.see(t, "/dashboard/wallet?environment=test&cursor=abc&from=2026-11-01")
	require.Contains(t, element(t, page, "spend-plot"), `role="img"`)
	require.Contains(t, page, `data-step="2026-11-30" data-series="echo/b" data-value="5999999"><title>30 Nov 2026, echo/b: ≈ 6.00</title></rect>`)
	require.Equal(t, 3, strings.Count(page, "data-step="))
	for _, want := range []string{
		`href="/dashboard/wallet/transactions.csv?environment=test"`, `href="/dashboard/wallet/calls.csv?environment=test"`,
		`href="/dashboard/wallet/calls?environment=test"`, `<td class="number">-0.000025 credits</td>`, `<a href="/dashboard/wallet?environment=test" aria-current="true">Test wallet</a>`,
		`href="/dashboard/wallet?environment=test&amp;from=2026-11-01">First page`,
	} {
		require.Contains(t, page, want)
	}
	queries := make(map[string]url.Values)
	for _, one := range r.asked {
		queries[one.path] = one.query
	}
	require.Equal(t, url.Values{"environment": {"test"}}, queries["/wallet"])
	require.Equal(t, url.Values{"environment": {"test"}, "from": {"2026-11-01"}}, queries["/wallet/spend"])
	require.Equal(t, url.Values{"environment": {"test"}, "cursor": {"abc"}, "limit": {"20"}}, queries["/wallet/transactions"])

	r.answer("GET /wallet/spend", http.StatusOK, `{"from":"2026-11-01","to":"2026-11-30","data":[]}`)
	r.answer("GET /wallet/transactions", http.StatusOK, `{"data":[],"nextCursor":null}`)
	require.Contains(t, r.see(t, "/dashboard/wallet"), "No model was called on these days.")
}

// Days that the API refuses are reported at their field, which keeps the input.
func TestWalletDays(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.dashboard.config.API = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/wallet/spend" && q.URL.Query().Has("from") {
			answer := refusedBy(http.StatusBadRequest, "invalid_request", "from", "from and to are more than 92 days.")
			w.WriteHeader(answer.status)
			_, _ = w.Write([]byte(answer.body))
			return
		}
		r.ServeHTTP(w, q)
	})
	page := r.see(t, "/dashboard/wallet?environment=live&from=1999-01-01&to=2026-11-30")
	requireErrorAt(t, page, "wallet-days-from", "from and to are more than 92 days.")
	holds(t, page, "wallet-days-from", "1999-01-01")
	require.Contains(t, page, `data-series="echo/b"`)
}

// Without what was spent, both pages show everything else; an ended session is no such failure.
func TestPagesWithoutPlot(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, path := range []string{"/dashboard", "/dashboard/wallet"} {
		require.NotContains(t, r.see(t, path), "The plot can&#39;t be drawn now.")
	}
	for _, refuse := range []func(){
		func() {
			r.refuse("GET /wallet/spend", http.StatusInternalServerError, "internal_error", "", "It failed.")
		},
		func() { r.answer("GET /wallet/spend", http.StatusOK, `{"from":`) },
	} {
		refuse()
		for path, rest := range map[string]string{"/dashboard": "What needs you", "/dashboard/wallet": `id="transactions"`} {
			w := r.open(t, path)
			require.Equal(t, http.StatusOK, w.Code)
			requireGoodPage(t, r.dashboard, path, w)
			for _, want := range []string{"The plot can&#39;t be drawn now.", `id="balance" data-micros="12500000"`, rest} {
				require.Contains(t, w.Body.String(), want)
			}
			require.NotContains(t, w.Body.String(), `id="spend-plot"`)
		}
	}
	holds(t, r.see(t, "/dashboard/wallet?from=2026-11-01&to=2026-11-02"), "wallet-days-from", "2026-11-01")
	r.refuse("GET /wallet/spend", http.StatusUnauthorized, "unauthenticated", "", "The login session has ended.")
	for _, path := range []string{"/dashboard", "/dashboard/wallet"} {
		require.Equal(t, http.StatusSeeOther, r.open(t, path).Code)
	}
}

// A file goes through as the API wrote it.
func TestWalletFiles(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mu.Lock()
	r.answers["GET /wallet/calls"] = scriptedAnswer{status: http.StatusOK, body: "id,at\r\n", header: http.Header{
		"Content-Type": {"text/csv; charset=utf-8"}, "Content-Disposition": {`attachment; filename="calls-test.csv"`},
	}}
	r.mu.Unlock()
	w := r.open(t, "/dashboard/wallet/calls.csv?environment=test")
	require.Equal(t, "id,at\r\n", w.Body.String())
	require.Equal(t, `attachment; filename="calls-test.csv"`, w.Header().Get("Content-Disposition"))
	require.Equal(t, "text/csv; charset=utf-8", w.Header().Get("Content-Type"))
	asked := r.last(t, http.MethodGet)
	require.Equal(t, url.Values{"environment": {"test"}, "format": {"csv"}}, asked.query)
	r.signedOut()
	require.Equal(t, "/dashboard/login?next=%2Fdashboard%2Fwallet%2Fcalls.csv", r.open(t, "/dashboard/wallet/calls.csv").Header().Get("Location"))
}

func TestCalls(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /wallet/calls", http.StatusOK, strings.Replace(listOf(callJSON, strings.Replace(callJSON, `"conversationId":null`, `"conversationId":"cnv_1"`, 1)), `"nextCursor":null`, `"nextCursor":"n_1"`, 1))
	page := r.see(t, "/dashboard/wallet/calls?environment=test")
	require.Contains(t, page, `href="/dashboard/wallet/calls?cursor=n_1&amp;environment=test" rel="next"`)
	require.Contains(t, page, `href="/dashboard/conversations/cnv_1"`)
	require.Contains(t, page, "<td>key_1</td>")
	require.Contains(t, page, "estimated")
}

// TestTopUpPanel: an administrator gets the code of a transfer with its text to copy, or a link to a provider's page, and members see the payments.
// Without a way to pay nothing of it is shown.
func TestTopUpPanel(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/wallet"), `id="top-ups"`)
	r.answer("GET /wallet/top-ups", http.StatusOK, `{"data":[{"via":"transfer","label":"VietQR","currencies":["VND"]}],"nextCursor":null}`)
	r.answer("GET /wallet/payments", http.StatusOK, `{"data":[{"id":"pay_1","state":"unmatched","amount":"499999","currency":"VND","creditMicros":"5",
		"paidAt":"2026-11-01T00:00:00Z"}],"nextCursor":null}`)
	page := r.see(t, "/dashboard/wallet")
	require.Contains(t, page, `id="top-up-amount"`)
	require.Contains(t, page, `data-id="pay_1"`)
	require.NotContains(t, r.see(t, "/dashboard/wallet?environment=test"), `id="top-ups"`)
	r.answer("POST /wallet/top-ups", http.StatusCreated, `{"via":"transfer","code":"BS7K2Q04A","amount":"500000","currency":"VND","creditMicros":"500000000000",
		"transfer":{"bank":"970436","account":"00001234","holder":"<CTY>","qr":"0002","svg":"<svg viewBox='0 0 1 1'></svg>"},"address":null}`)
	form := url.Values{"via": {"transfer"}, "amount": {"500000"}}
	w := r.submit(t, "/dashboard/wallet/top-up", form)
	require.Equal(t, http.StatusOK, w.Code)
	for _, want := range []string{`<svg viewBox='0 0 1 1'></svg>`, `<code id="top-up-code">BS7K2Q04A</code>`, `data-copy="#top-up-code"`, "&lt;CTY&gt;"} {
		require.Contains(t, w.Body.String(), want)
	}
	r.answer("POST /wallet/top-ups", http.StatusCreated, `{"via":"stripe","code":"X","amount":"5","currency":"USD","creditMicros":"5","transfer":null,
		"address":"https://pay.example/x"}`)
	require.Contains(t, r.submit(t, "/dashboard/wallet/top-up", form).Body.String(), `href="https://pay.example/x"`)
	r.refuse("POST /wallet/top-ups", http.StatusBadRequest, "invalid_request", "amount", "amount must be a whole number.")
	require.Contains(t, r.submit(t, "/dashboard/wallet/top-up", form).Body.String(), `id="top-up-amount-error"`)
}
