package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/payments"
	"github.com/caddy-svc/caddy-svc/payments/payos"
	"github.com/caddy-svc/caddy-svc/payments/sepay"
)

const sepaySecret = "a-secret-of-the-webhook"

// TestPaymentDeliveries guarantees that a provider gets its answer for each delivery that was stored, in whatever state, and an error for all others,
// and that no log and no answer has a part of the delivery or the secret.
func TestPaymentDeliveries(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	db := storetest.Open(t, store.SQLite, billing.Ledger)
	h := Payments{Log: slog.New(slog.NewTextHandler(&logged, nil)), Payments: &topup.Payments{
		Book: billing.NewBook(db), Rates: map[string]topup.Rate{"VND": {Micros: 10}}, Log: slog.New(slog.NewTextHandler(&logged, nil)),
		Providers: map[string]topup.Provider{},
	}}
	for name, made := range map[string]struct {
		driver  payments.Driver
		options map[string]string
	}{"sepay": {sepay.Driver{}, map[string]string{"secret": sepaySecret}}, "pay_os": {payos.Driver{}, map[string]string{"checksum_key": sepaySecret}}} {
		provider, err := topup.NewProvider(made.driver, made.options)
		require.NoError(t, err)
		h.Payments.Providers[name] = provider
	}
	deliver := func(method, path, body, secret string) (int, string) {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(stamp + "." + body))
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("X-SePay-Timestamp", stamp)
		r.Header.Set("X-SePay-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		w := httptest.NewRecorder()
		if _, err := h.Serve(w, r); err != nil {
			return handlers.AsError(err).Code.Status(), err.Error()
		}
		return w.Code, w.Body.String()
	}
	const transfer = `{"id":7,"transactionDate":"2026-11-24 21:15:40","accountNumber":"0071","transferType":"in","transferAmount":500,"content":"for rent"}`
	for _, c := range []struct {
		what, method, path, body, secret string
		status                           int
	}{
		{"unmatched", "POST", "/payments/sepay", transfer, sepaySecret, 200},
		{"again", "POST", "/payments/sepay", transfer, sepaySecret, 200},
		{"a transfer out", "POST", "/payments/sepay", strings.Replace(transfer, `"in"`, `"out"`, 1), sepaySecret, 200},
		{"no number", "POST", "/payments/sepay", strings.NewReplacer("500", "0.5", ":7", ":8").Replace(transfer), sepaySecret, 200},
		{"forged", "POST", "/payments/sepay", transfer, sepaySecret + "x", 401},
		{"no id", "POST", "/payments/sepay", `{"transferType":"in"}`, sepaySecret, 400},
		{"as large as allowed", "POST", "/payments/sepay", transfer + strings.Repeat(" ", maxPayment-len(transfer)), sepaySecret, 200},
		{"too large", "POST", "/payments/sepay", transfer + strings.Repeat(" ", maxPayment-len(transfer)+1), sepaySecret, 400},
		{"not configured", "POST", "/payments/stripe", transfer, sepaySecret, 404},
		{"below it", "POST", "/payments/sepay/", transfer, sepaySecret, 404},
		{"no name", "POST", "/payments/", transfer, sepaySecret, 404},
		{"another method", "GET", "/payments/sepay", "", sepaySecret, 404},
		{"a name with dashes", "POST", "/payments/pay-os", transfer, sepaySecret, 401},
		{"its underscores", "POST", "/payments/pay_os", transfer, sepaySecret, 404},
	} {
		status, answer := deliver(c.method, c.path, c.body, c.secret)
		require.Equal(t, c.status, status, c.what)
		if status == http.StatusOK {
			require.JSONEq(t, `{"success":true}`, answer, c.what)
		}
	}
	require.NoError(t, db.Close(t.Context()))
	status, _ := deliver("POST", "/payments/sepay", transfer, sepaySecret)
	require.Equal(t, 500, status, "the store is down")
	require.NotContains(t, logged.String(), "rent")
	require.NotContains(t, logged.String(), sepaySecret)
	require.Contains(t, logged.String(), "state=unmatched")
}
