package stripe_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/paymentstest"
	"github.com/caddy-svc/caddy-svc/payments/stripe"
)

const secret = "whsec_of-the-endpoint"

func event(kind, object string) string {
	return `{"id":"evt_1","object":"event","api_version":"2025-03-31.basil","created":1795529740,"livemode":true,"type":"` + kind + `","data":{"object":` + object + `}}`
}

func session(status, amount, live string) string {
	return `{%x"id":"cs_live_%i","object":"checkout.session","payment_status":"` + status + `","amount_total":` + amount + `,"currency":"usd",
		"client_reference_id":"BS7K2Q04A","payment_intent":"pi_%i","livemode":` + live + `,"created":1795529000}`
}

func sign(body []byte, at time.Time, options map[string]string) (http.Header, []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(options["signing_secret"]))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return http.Header{"Stripe-Signature": {"t=" + stamp + ",v1=" + strings.Repeat("0", 64) + ",v1=" + hex.EncodeToString(mac.Sum(nil)) + ",v0=x"}}, body
}

func TestContract(t *testing.T) {
	t.Parallel()
	none := strings.NewReplacer("%x", "", "%i", "1")
	paymentstest.Run(t, paymentstest.Suite{
		Driver: stripe.Driver{}, Options: map[string]string{"signing_secret": secret, "api_key": "rk_live_1"}, Currency: "USD", Sign: sign,
		Paid: event("checkout.session.completed", session("paid", "%a", "true")),
		None: []string{
			none.Replace(event("checkout.session.completed", session("unpaid", "5", "true"))),
			none.Replace(event("checkout.session.completed", session("no_payment_required", "0", "true"))),
			none.Replace(event("checkout.session.completed", strings.Replace(session("paid", "5", "true"), `"object"`, `"mode":"subscription","object"`, 1))),
			event("customer.created", `{"id":"cus_1"}`),
			event("charge.dispute.created", `{"id":"dp_1","payment_intent":"pi_1","amount":5,"currency":"usd","status":"warning_needs_response","livemode":true}`),
			event("charge.dispute.closed", `{"id":"dp_1","payment_intent":"pi_1","amount":5,"currency":"usd","status":"won","livemode":true}`),
		},
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_795_529_800, 0)
	provider, err := stripe.Driver{}.New(&payments.Config{Options: map[string]string{"signing_secret": secret}, Now: func() time.Time { return at }})
	require.NoError(t, err)
	begun := time.Unix(1_795_529_740, 0)
	for body, want := range map[string]payments.Payment{
		event("checkout.session.async_payment_succeeded", strings.NewReplacer("%x", "", "%i", "1").Replace(session("paid", "250", "false"))): {
			ID: "pi_1", Kind: payments.Paid, Amount: 250, Currency: "USD", Code: "BS7K2Q04A", At: begun, Test: true,
		},
		event("checkout.session.completed", strings.NewReplacer("%x", "", "%i", "1", "usd", "isk").Replace(session("paid", "2500", "true"))): {
			ID: "pi_1", Kind: payments.Paid, Amount: 25, Currency: "ISK", Code: "BS7K2Q04A", At: begun,
		},
		event("charge.refunded", `{"id":"ch_1","payment_intent":"pi_1","amount":500,"amount_refunded":300,"currency":"usd","livemode":true}`): {
			ID: "pi_1", Kind: payments.Refunded, Amount: 300, Currency: "USD", At: begun,
		},
		event("charge.dispute.funds_withdrawn", `{"id":"dp_1","payment_intent":"pi_1","amount":500,"currency":"usd","status":"needs_response","livemode":true}`): {
			ID: "pi_1", Kind: payments.Disputed, Dispute: "dp_1", Amount: 500, Currency: "USD", At: begun,
		},
		event("charge.dispute.funds_reinstated", `{"id":"dp_1","payment_intent":"pi_1","amount":500,"currency":"usd","status":"won","livemode":true}`): {
			ID: "pi_1", Kind: payments.DisputeWon, Dispute: "dp_1", Amount: 500, Currency: "USD", At: begun,
		},
	} {
		header, signed := sign([]byte(body), at, map[string]string{"signing_secret": secret})
		made, err := provider.Read(&payments.Delivery{Header: header, Body: signed})
		require.NoError(t, err)
		require.Equal(t, []payments.Payment{want}, made, body)
	}
}

func TestCheckout(t *testing.T) {
	t.Parallel()
	var seen []*http.Request
	var forms []url.Values
	status, answer := http.StatusOK, `{"id":"cs_1","url":"https://checkout.stripe.test/c/pay/cs_1"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		seen, forms = append(seen, r), append(forms, form)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	provider, err := stripe.Driver{}.New(&payments.Config{
		Options: map[string]string{"signing_secret": secret, "api_key": "rk_live_1", "api_base": server.URL + "/"}, Client: server.Client(), Now: time.Now,
	})
	require.NoError(t, err)
	order := &payments.Order{Code: "BS7K2Q04A", Amount: 2500, Currency: "USD", Title: "Credits", ReturnURL: "https://svc.test/dashboard/wallet"}
	address, err := provider.(payments.Checkout).Begin(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, "https://checkout.stripe.test/c/pay/cs_1", address)
	require.Equal(t, "/v1/checkout/sessions", seen[0].URL.Path)
	require.Equal(t, []string{"Bearer rk_live_1", "2025-03-31.basil", "checkout-BS7K2Q04A"},
		[]string{seen[0].Header.Get("Authorization"), seen[0].Header.Get("Stripe-Version"), seen[0].Header.Get("Idempotency-Key")})
	require.Equal(t, "2500", forms[0].Get("line_items[0][price_data][unit_amount]"))
	require.Equal(t, "BS7K2Q04A", forms[0].Get("client_reference_id"))

	_, err = provider.(payments.Checkout).Begin(t.Context(), &payments.Order{Code: "BS7K2Q04A", Amount: 25, Currency: "ISK"})
	require.NoError(t, err)
	require.Equal(t, "2500", forms[1].Get("line_items[0][price_data][unit_amount]"))

	status, answer = http.StatusUnauthorized, `{"error":{"message":"Invalid API Key provided: rk_live_1"}}`
	_, err = provider.(payments.Checkout).Begin(t.Context(), order)
	require.ErrorContains(t, err, "401")
	require.NotContains(t, err.Error(), "rk_live_1")

	status = http.StatusOK
	answer = `{"has_more":false,"data":[` + strings.NewReplacer("%x", "", "%i", "1").Replace(session("paid", "250", "true")+","+session("unpaid", "9", "true")) + `]}`
	var found []payments.Payment
	require.NoError(t, provider.(payments.Lister).List(t.Context(), time.Unix(1_795_000_000, 0), func(p payments.Payment) bool {
		found = append(found, p)
		return true
	}))
	require.Len(t, found, 1)
	require.Equal(t, "pi_1", found[0].ID)
	require.Equal(t, strconv.FormatInt(1_795_000_000-14*24*60*60, 10), seen[3].URL.Query().Get("created[gte]"))
}

// A session with a member of another type, as after a change of Stripe's version, is a payment for a person. An amount in hundredths of a krona is none.
func TestUnreadableSession(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_795_529_800, 0)
	provider, err := stripe.Driver{}.New(&payments.Config{Options: map[string]string{"signing_secret": secret}, Now: func() time.Time { return at }})
	require.NoError(t, err)
	for _, change := range []*strings.Replacer{
		strings.NewReplacer("%x", "", "%i", "1", `"BS7K2Q04A"`, `{"id":"BS7K2Q04A"}`), strings.NewReplacer("%x", "", "%i", "1", "usd", "isk"),
	} {
		header, signed := sign([]byte(event("checkout.session.completed", change.Replace(session("paid", "250", "true")))), at,
			map[string]string{"signing_secret": secret})
		made, err := provider.Read(&payments.Delivery{Header: header, Body: signed})
		require.NoError(t, err)
		require.Len(t, made, 1)
		require.Equal(t, "pi_1", made[0].ID)
		require.NotEmpty(t, made[0].Problem)
	}
}
