package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/payments"
)

const (
	sepaySecret  = "sepay-secret-0123456789"
	stripeSecret = "whsec-stripe-0123456789"
)

// TestPayments guarantees, with two nodes of the real program, that a proved delivery credits the wallet of its code once, whatever is delivered how often
// and to which node, that no other delivery credits anything, and that a payment which was never delivered is found in its provider's list.
func TestPayments(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.Postgres, startUpstream(t)).describing()
	o := openOperatorStore(t, d.location, d.masterKey)
	t.Cleanup(func() { o.close(t) })
	shop, code := o.customer(t, 0), payments.NewCode()
	require.NoError(t, o.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `INSERT INTO payment_codes (code, org_id, amount, currency, created_by, created_at) VALUES ($1, $2, 0, 'VND', 'tests', 1)`, code, shop.OrgID)
		return nil
	}))
	session := func(id, amount, currency string, live bool) string {
		return fmt.Sprintf(`{"id":"cs_%s","payment_intent":"pi_%[1]s","payment_status":"paid","amount_total":%s,"currency":%q,"client_reference_id":%q,"created":%d,"livemode":%t}`,
			id, amount, currency, code, time.Now().Unix(), live)
	}
	stripeAPI := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/checkout/sessions" || r.Header.Get("Authorization") != "Bearer rk_live_0123456789" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"has_more":false,"data":[`+session("listed", "7", "usd", true)+`]}`)
	}))
	t.Cleanup(stripeAPI.Close)
	d.env = append(d.env, "SEPAY_SECRET="+sepaySecret, "STRIPE_SECRET="+stripeSecret, "STRIPE_KEY=rk_live_0123456789")
	d.App += `payments sepay {
		secret {env.SEPAY_SECRET}
	}
	payments stripe {
		signing_secret {env.STRIPE_SECRET}
		api_key {env.STRIPE_KEY}
		api_base ` + stripeAPI.URL + `
	}
	payment_rate VND {
		micros 40
		max 1000000
	}
	payment_rate USD {
		micros 10000
	}
	`
	c := startCluster(t, d, 2, 0)
	bank := func(node int, body, secret string, age time.Duration) (int, string) {
		stamp := strconv.FormatInt(time.Now().Add(-age).Unix(), 10)
		return c.node(node).plainly(t, http.MethodPost, "/payments/sepay", body, "X-SePay-Timestamp", stamp, "X-SePay-Signature",
			"sha256="+hmacHex(secret, stamp+"."+body))
	}
	card := func(node int, kind, object string) int {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		body := fmt.Sprintf(`{"type":%q,"created":%s,"data":{"object":%s}}`, kind, stamp, object)
		status, answer := c.node(node).plainly(t, http.MethodPost, "/payments/stripe", body, "Stripe-Signature",
			"t="+stamp+",v1="+hmacHex(stripeSecret, stamp+"."+body))
		require.Empty(t, answer)
		return status
	}
	transfer := func(id string, amount int) string {
		return fmt.Sprintf(`{"id":%s,"transactionDate":"2026-11-24 21:15:40","accountNumber":"0071","transferType":"in","transferAmount":%d,
			"content":"MBVCB.99 nap %s.ct tu 0123","code":null,"referenceCode":"FT%[1]s","somethingNew":{"a":[1]}}`, id, amount, strings.ToLower(code))
	}
	requireBalance := func(micros int64) {
		t.Helper()
		wallet, err := o.book.Wallet(t.Context(), billing.WalletID{OrgID: shop.OrgID, Env: store.Live})
		require.NoError(t, err)
		require.Equal(t, micros, wallet.BalanceMicros)
	}
	states := func() string {
		rows, err := store.ReadRows(t.Context(), o.db, "read the states", store.ScanValue[string],
			`SELECT provider || ' ' || id || ' ' || state || ' ' || reason FROM payments ORDER BY provider, id`)
		require.NoError(t, err)
		return strings.Join(rows, "\n")
	}
	require.Eventually(t, func() bool { return states() == "stripe pi_listed credited " }, patience, 20*time.Millisecond, "the list was compared")
	requireBalance(70_000)

	for _, refused := range []func() (int, string){
		func() (int, string) { return bank(0, transfer("1", 500), "another-secret-0123456789", 0) },
		func() (int, string) { return bank(0, transfer("1", 500), "", 0) },
		func() (int, string) { return bank(0, transfer("1", 500), sepaySecret, 10*time.Minute) },
		func() (int, string) {
			return c.node(0).plainly(t, http.MethodPost, "/payments/sepay", transfer("1", 500))
		},
	} {
		status, answer := refused()
		require.Equal(t, http.StatusUnauthorized, status, answer)
	}
	requireBalance(70_000)

	var deliveries sync.WaitGroup
	for i := range 10 {
		deliveries.Go(func() {
			status, answer := bank(i, transfer("1", 500), sepaySecret, 0)
			if status != http.StatusOK || answer != `{"success":true}` {
				t.Errorf("the delivery was answered with %d and %s", status, answer)
			}
		})
	}
	deliveries.Wait()
	requireBalance(90_000)

	for _, body := range []string{transfer("2", 1_000_001), strings.Replace(transfer("3", 5), strings.ToLower(code), "rent", 1)} {
		status, answer := bank(1, body, sepaySecret, 0)
		require.Equal(t, http.StatusOK, status, answer)
	}
	require.Equal(t, http.StatusOK, card(0, "checkout.session.completed", session("euro", "500", "eur", true)))
	require.Equal(t, http.StatusOK, card(1, "checkout.session.completed", session("test", "500", "usd", false)))
	require.Equal(t, http.StatusOK, card(0, "charge.refunded", `{"id":"ch_1","payment_intent":"pi_listed","amount_refunded":2,"currency":"usd","livemode":true}`))
	requireBalance(70_000)
	require.Equal(t, `sepay 1 credited 
sepay 2 held limit
sepay 3 unmatched no_code
stripe pi_euro held currency
stripe pi_listed credited 
stripe pi_test ignored test`, states())
	c.nodes[0].svc(t, "doctor")
}
