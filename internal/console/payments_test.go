package console

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestPayments: a payment that waits is credited in two steps, the first of which names the organization and its balances, or ignored for a reason. The
// second step needs a code when the last is 10 minutes old.
func TestPayments(t *testing.T) {
	t.Parallel()
	const path = "/console/payments"
	f := signedIn(t, "administrator")
	var ids []string
	for _, id := range []string{"17", "18"} {
		made, err := f.book.Receive(t.Context(), billing.Receipt{
			Provider: "sepay", ID: id, Kind: billing.PaymentPaid, Amount: 500, Currency: "VND", Micros: 5_000_000, Text: "NAP <" + id + ">", PaidAt: 1,
		})
		require.NoError(t, err)
		ids = append(ids, made.PayID)
	}
	page := f.opens(t, path)
	require.Contains(t, page, "no code in its text")
	require.Contains(t, page, "NAP &lt;17&gt;")
	require.Contains(t, page, `action="/console/payments/match"`)
	match := url.Values{"id": {ids[0]}, "orgId": {"org_none"}}
	require.Equal(t, http.StatusNotFound, f.send(t, path+"/match", match).Code)
	match.Set("orgId", "org_1")
	w := f.send(t, path+"/match", match)
	require.Regexp(t, `(?s)<dd>Tea &lt;House&gt;</dd>.*data-micros="0".*data-micros="5000000".*data-micros="5000000"`, w.Body.String())
	balance := func() int64 {
		wallet, err := f.book.Wallet(t.Context(), billing.WalletID{OrgID: "org_1", Env: store.Live})
		require.NoError(t, err)
		return wallet.BalanceMicros
	}
	require.Zero(t, balance(), "nothing moves before it is confirmed")

	f.ages(t, identity.MoneyFactorLifetime)
	require.Contains(t, f.send(t, path+"/match", match).Body.String(), `id="match-confirm-code"`)
	require.Equal(t, http.StatusBadRequest, f.send(t, path+"/match-confirmed", match).Code)
	require.Zero(t, balance())
	match.Set("code", f.code(t, 1))
	page = f.moves(t, path+"/match-confirmed", match)
	require.Contains(t, page, "The payment was credited.")
	require.NotContains(t, page, ids[0])
	require.EqualValues(t, 5_000_000, balance())
	require.Equal(t, http.StatusConflict, f.send(t, path+"/match-confirmed", match).Code)

	ignore := url.Values{"id": {ids[1]}}
	w = f.send(t, path+"/ignore", ignore)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), `id="ignore-`+ids[1]+`-reason-error"`)
	ignore.Set("reason", "a gift")
	page = f.moves(t, path+"/ignore", ignore)
	require.Contains(t, page, "No payment is in this state.")
	page = f.opens(t, path+"?state=")
	require.Contains(t, page, "decided by a person: a gift")
	require.NotContains(t, page, `id="match-`)
	require.NotContains(t, page, `id="ignore-`)

	viewer := signedIn(t, "support")
	_, err := viewer.book.Receive(t.Context(), billing.Receipt{Provider: "sepay", ID: "1", Kind: billing.PaymentPaid, Amount: 5, Currency: "VND", PaidAt: 1})
	require.NoError(t, err)
	require.NotContains(t, viewer.opens(t, path), `id="match-`)
	require.Equal(t, http.StatusForbidden, viewer.send(t, path+"/ignore", url.Values{"id": {"pay_1"}, "reason": {"x"}}).Code)
}
