package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const statementJSON = `"month":"2026-10","environment":"test","timeZone":"Asia/Ho_Chi_Minh","from":"2026-09-30T17:00:00.000Z",
	"to":"2026-10-31T17:00:00.000Z","closed":true,"openingMicros":"10000000","creditsMicros":"500000","chargesMicros":"-1300000",
	"refundsMicros":"100000","correctionsMicros":"-7","reversalsMicros":"0","closingMicros":"9299993","calls":3`

// TestStatementPages: the list of months, and a month that can be printed, whose lines add up.
func TestStatementPages(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /wallet/statements", http.StatusOK,
		listOf("{"+strings.Replace(strings.Replace(statementJSON, "2026-10", "2026-11", 1), "true", "false", 1)+"}", "{"+statementJSON+"}"))
	page := r.see(t, "/dashboard/wallet/statements?environment=test")
	for _, part := range []string{
		`<th scope="row">2026-11 <span class="badge">so far</span></th>`, `<th scope="row">2026-10</th>`,
		`href="/dashboard/wallet/statements/2026-10?environment=test"`, `href="/dashboard/wallet/statements/2026-10/statement.csv?environment=test"`,
	} {
		require.Contains(t, page, part)
	}
	require.Equal(t, url.Values{"environment": {"test"}, "limit": {"12"}}, r.last(t, http.MethodGet).query)

	r.answer("GET /wallet/statements/2026-10", http.StatusOK, `{`+statementJSON+`,"charges":[
		{"model":"echo/a","keyId":"key_1","agentId":null,"calls":2,"promptTokens":1,"completionTokens":2,"amountMicros":"-1000000"},
		{"model":"echo/a","keyId":null,"agentId":"agt_gone","calls":1,"promptTokens":1,"completionTokens":2,"amountMicros":"-300000"}],
		"transactions":[{"id":"txn_1","at":"2026-10-02T00:00:00.000Z","kind":"credit","amountMicros":"500000","balanceMicros":"1","callId":null,
		"reference":"pay-1","reason":null,"corrects":null}],"moreTransactions":true,"hash":"abc"}`)
	r.answer("GET /agents", http.StatusOK, listOf())
	r.answer("GET /organization", http.StatusOK, organizationJSON)
	page = r.see(t, "/dashboard/wallet/statements/2026-10?environment=test")
	var sum int64
	for _, micros := range []string{"10000000", "500000", "-1300000", "100000", "-7"} {
		require.Contains(t, page, `data-micros="`+micros+`"`)
		sum += mustMicros(t, micros)
	}
	require.Equal(t, int64(9299993), sum)
	for _, part := range []string{`data-micros="9299993"`, "<td>key_1</td>", "<td>agt_gone</td>", "pay-1", "abc", "The file has all of them"} {
		require.Contains(t, page, part)
	}
}

func mustMicros(t *testing.T, text string) int64 {
	t.Helper()
	require.Regexp(t, `^-?[0-9]+$`, text)
	return micros(text)
}

// TestCallPage: the lines of a call, and what of them wasn't charged.
func TestCallPage(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("GET /wallet/calls/call_1", http.StatusOK, strings.Replace(callJSON, "{", `{"lines":[
		{"kind":"input","tokens":5,"priceMicros":"12000000","micros":"60"},{"kind":"output","tokens":20,"priceMicros":"10000000","micros":"200"}],
		"costMicros":"260","unchargedMicros":"60",`, 1))
	page := r.see(t, "/dashboard/wallet/calls/call_1")
	for _, part := range []string{
		`<tr data-kind="input"><th scope="row">Question</th>`, `<tr data-kind="output"><th scope="row">Answer</th>`, `data-micros="200"`, `data-kind="uncharged"`,
	} {
		require.Contains(t, page, part)
	}
}
