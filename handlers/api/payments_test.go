package api

import (
	"fmt"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// receipt is a transfer without a code of an amount in dong, each of which is 10 micros.
func receipt(id string, amount int64) billing.Receipt {
	return billing.Receipt{
		Provider: "sepay", ID: id, Kind: billing.PaymentPaid, Amount: amount, Currency: "VND", Micros: 10 * amount, Text: "NAP =1+1", Reference: "FT/" + id,
		Account: "0071", PaidAt: 1,
	}
}

// receive has a payment booked, and returns its id.
func (o *fixture) receive(t *testing.T, receipt billing.Receipt) string {
	t.Helper()
	payment, err := billing.NewBook(o.DB).Receive(t.Context(), receipt)
	require.NoError(t, err)
	return payment.PayID
}

// TestPaymentsOfTheOperator: a person finds the payments that wait, credits one to an organization and ignores another, each once, and reads why a
// decision is not possible.
func TestPaymentsOfTheOperator(t *testing.T) {
	t.Parallel()
	o := operatorFixture(t)
	key := o.all(t)
	const path = "/operator/payments"
	ask := func(status int, method, path, body string) map[string]any {
		return o.ask(t, status, method, path, key, body)
	}
	lost, gift := o.receive(t, receipt("17/a", 500)), o.receive(t, receipt("18", math.MaxInt64/10))
	euros := receipt("19", 5)
	euros.Currency, euros.Micros, euros.Reason = "EUR", 0, billing.ReasonCurrency
	foreign := o.receive(t, euros)
	refund := o.receive(t, billing.Receipt{Provider: "stripe", ID: "pi_1", Kind: billing.PaymentRefunded, Amount: 5, Currency: "VND"})

	shown := ask(http.StatusOK, http.MethodGet, path+"/"+lost, "")
	require.NotEmpty(t, shown["receivedAt"])
	delete(shown, "receivedAt")
	require.Equal(t, map[string]any{
		"id": lost, "provider": "sepay", "state": "unmatched", "reason": "no_code", "amount": "500", "currency": "VND", "creditMicros": "5000",
		"refunded": "0", "takenMicros": "0", "paidAt": "1970-01-01T00:00:00.001Z", "transactionId": nil, "orgId": nil, "providerId": "17/a",
		"reference": "FT/17/a", "account": "0071", "text": "NAP =1+1", "decidedBy": nil, "note": nil,
	}, shown)
	require.Equal(t, "922337203685477580", ask(http.StatusOK, http.MethodGet, path+"/"+gift, "")["amount"], "beyond what a float holds")
	o.refused(t, errcode.NotFound, "", http.MethodGet, path+"/pay_none", key, "")

	o.refused(t, errcode.InvalidRequest, "orgId", http.MethodPost, path+"/"+lost+"/match", key, `{"orgId":"org_none"}`)
	matched := ask(http.StatusOK, http.MethodPost, path+"/"+lost+"/match", `{"orgId":"org_1"}`)
	require.Equal(t, []any{"credited", nil, "org_1", "operator-key:shop site"},
		[]any{matched["state"], matched["reason"], matched["orgId"], matched["decidedBy"]})
	row := ask(http.StatusOK, http.MethodGet, "/operator/organizations/org_1/wallet/transactions", "")["data"].([]any)[0].(map[string]any)
	require.Equal(t, []any{matched["transactionId"], "5000", "pay:sepay:17/a"}, []any{row["id"], row["amountMicros"], row["reference"]})
	for _, again := range []string{lost + `/match {"orgId":"org_1"}`, lost + `/ignore {"reason":"x"}`, refund + `/ignore {"reason":"x"}`} {
		var at, body string
		fmt.Sscanf(again, "%s %s", &at, &body)
		o.refused(t, errcode.Conflict, "", http.MethodPost, path+"/"+at, key, body)
	}
	o.refused(t, errcode.InvalidRequest, "", http.MethodPost, path+"/"+foreign+"/match", key, `{"orgId":"org_1"}`)
	o.refused(t, errcode.InvalidRequest, "amountMicros", http.MethodPost, path+"/"+gift+"/match", key, `{"orgId":"org_1"}`)
	ignored := ask(http.StatusOK, http.MethodPost, path+"/"+gift+"/ignore", `{"reason":"a gift"}`)
	require.Equal(t, []any{"ignored", "person", "a gift"}, []any{ignored["state"], ignored["reason"], ignored["note"]})
	audit, err := o.DB.AuditLog.List(t.Context(), "", store.Page{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, [3]string{"operator-key:shop site", "payment.ignore", gift}, [3]string{audit[0].Actor, audit[0].Action, audit[0].Target})

	for query, want := range map[string][]string{
		"": {refund, foreign, gift, lost}, "?state=waiting": {refund, foreign}, "?state=credited&orgId=org_1": {lost}, "?provider=stripe": {refund},
		"?orgId=org_2": {},
	} {
		ids := []string{}
		for _, p := range ask(http.StatusOK, http.MethodGet, path+query, "")["data"].([]any) {
			ids = append(ids, p.(map[string]any)["id"].(string))
		}
		require.Equal(t, want, ids, query)
	}
	first := ask(http.StatusOK, http.MethodGet, path+"?limit=3", "")
	rest := ask(http.StatusOK, http.MethodGet, path+"?limit=3&cursor="+first["nextCursor"].(string), "")
	require.Equal(t, lost, rest["data"].([]any)[0].(map[string]any)["id"])
	require.Nil(t, rest["nextCursor"])
}
