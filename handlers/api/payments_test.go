package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/payments"
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

// page is a provider with a page on which people pay.
type page struct{ orders []payments.Order }

func (*page) Read(*payments.Delivery) ([]payments.Payment, error) { return nil, payments.ErrProof }

func (p *page) Begin(_ context.Context, order *payments.Order) (string, error) {
	p.orders = append(p.orders, *order)
	if order.Amount == 13 {
		return "", errors.New("secret of the provider")
	}
	return "https://pay.example/" + order.Code, nil
}

// TestTopUps: an organization pays by a transfer with its own code, which doesn't end, or at a provider's page with a code for one price. Impossible
// amounts are refused, and only its own payments are listed.
func TestTopUps(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	const path = "/wallet/top-ups"
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["data"])
	o.refused(t, errcode.InvalidRequest, "via", http.MethodPost, path, "owner", `{"via":"transfer","amount":"1"}`)
	stripe := &page{}
	o.TopUps = &topup.Payments{
		Book: o.Book, Rates: map[string]topup.Rate{"VND": {Micros: 10, Max: 5_000_000}}, Log: slog.New(slog.DiscardHandler),
		Transfer:  &topup.Transfer{Bank: "970436", Account: "00001234", Holder: "CTY MAU"},
		Providers: map[string]topup.Provider{"stripe": {Provider: stripe, Description: &payments.Description{Name: "stripe", Label: "Stripe"}}},
	}
	o.Server = serve(o.Deps)
	require.Equal(t, []any{
		map[string]any{"via": "transfer", "label": "VietQR", "currencies": []any{"VND"}},
		map[string]any{"via": "stripe", "label": "Stripe", "currencies": []any{"VND"}},
	}, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["data"])

	made := o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"via":"transfer","amount":"500000"}`)
	code := made["code"].(string)
	require.Contains(t, payments.FindCodes("nap "+code), code)
	require.Equal(t, []any{"5000000", "VND", nil}, []any{made["creditMicros"], made["currency"], made["address"]})
	transfer := made["transfer"].(map[string]any)
	require.Contains(t, transfer["qr"], code)
	require.Contains(t, transfer["svg"], "<svg ")
	require.Equal(t, "00001234", transfer["account"])
	require.Equal(t, code, o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"via":"transfer","amount":"7"}`)["code"], "one code")
	require.NotEqual(t, code, o.ask(t, http.StatusCreated, http.MethodPost, path, "stranger", `{"via":"transfer","amount":"7"}`)["code"])

	bought := o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"via":"stripe","amount":"200000","currency":"VND"}`)
	require.Equal(t, "https://pay.example/"+bought["code"].(string), bought["address"])
	require.Equal(t, payments.Order{
		Code: bought["code"].(string), Amount: 200_000, Currency: "VND", Title: "Credits", ReturnURL: "https://svc.example/dashboard/wallet",
	}, stripe.orders[0])

	for _, amount := range []string{"0", "-1", "1.5", "1.0", "1e3", "", "5000001", "9223372036854775807", "92233720368547758080"} {
		o.refused(t, errcode.InvalidRequest, "amount", http.MethodPost, path, "owner", fmt.Sprintf(`{"via":"transfer","amount":%q}`, amount))
	}
	o.TopUps.Rates = map[string]topup.Rate{"VND": {Micros: 10}}
	o.refused(t, errcode.InvalidRequest, "amount", http.MethodPost, path, "owner", `{"via":"transfer","amount":"10000000000000"}`)
	o.refused(t, errcode.InvalidRequest, "currency", http.MethodPost, path, "owner", `{"via":"stripe","amount":"1","currency":"USD"}`)
	o.refused(t, errcode.Forbidden, "", http.MethodPost, path, "user:member", `{"via":"transfer","amount":"1"}`)

	late := receipt("1", 300)
	late.Codes = []string{code} // of any day
	o.receive(t, late)
	short := receipt("2", 199_999)
	short.Codes = []string{bought["code"].(string)}
	o.receive(t, short)
	rows := o.ask(t, http.StatusOK, http.MethodGet, "/wallet/payments", "user:member", "")["data"].([]any)
	var states []any
	for _, row := range rows {
		states = append(states, row.(map[string]any)["state"], row.(map[string]any)["reason"])
		require.NotContains(t, row, "account")
	}
	require.Equal(t, []any{"unmatched", "amount", "credited", nil}, states)
	require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, "/wallet/payments", "stranger", "")["data"])
	failed := o.refused(t, errcode.ProviderError, "", http.MethodPost, path, "owner", `{"via":"stripe","amount":"13"}`)
	require.NotContains(t, failed.Text, "secret")
	for range 97 {
		o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"via":"stripe","amount":"5"}`)
	}
	o.refused(t, errcode.PlanLimitExceeded, "", http.MethodPost, path, "owner", `{"via":"stripe","amount":"5"}`)
	o.ask(t, http.StatusCreated, http.MethodPost, path, "owner", `{"via":"transfer","amount":"7"}`)
}
