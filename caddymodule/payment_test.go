package caddymodule

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/topup"
)

// TestPaymentSettings guarantees that what is configured reaches the payments, that no secret of it is in the configuration, and that no
// configuration with an empty or short secret is loaded.
func TestPaymentSettings(t *testing.T) {
	app := goodApp(t)
	secret := string(secretFile(t, planted+planted+planted))
	app.Payments = PaymentProviders{"sepay": {"secret": secret}, "stripe": {"signing_secret": secret, "api_key": secret}}
	app.PaymentRates = []*PaymentRate{{Currency: "VND", Micros: new(int64(40)), Max: new(int64(1_000))}, {Currency: "USD", Micros: new(int64(10_000))}}
	app.Transfer = &Transfer{Bank: "970436", Account: "0071", Holder: "ACME"}
	raw, err := json.Marshal(app)
	require.NoError(t, err)
	ctx, err := caddy.ProvisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{appName: raw}})
	require.NoError(t, err)
	provisioned, err := ctx.AppIfConfigured(appName)
	require.NoError(t, err)
	made := provisioned.(*App).newTopUps(new(sharedStore))
	require.Equal(t, map[string]topup.Rate{"VND": {Micros: 40, Max: 1_000}, "USD": {Micros: 10_000}}, made.Rates)
	require.Equal(t, &topup.Transfer{Bank: "970436", Account: "0071", Holder: "ACME"}, made.Transfer)
	require.Equal(t, []string{"stripe"}, made.Checkouts())
	require.Len(t, made.Providers, 2)
	written, err := json.Marshal(provisioned)
	require.NoError(t, err)
	require.NotContains(t, string(written), planted)
	require.JSONEq(t, filledJSON(t, app), string(written))

	for reference, fault := range map[string]string{
		string(secretFile(t, "")): "empty", string(secretFile(t, "fifteen letters")): "has 15 bytes; it needs 16", "{env.SVC_TEST_NO_1}": "SVC_TEST_NO_1",
	} {
		app.Payments["sepay"] = map[string]string{"secret": reference}
		err := load(t, app)
		require.ErrorContains(t, err, "svc.payments[sepay].secret: ")
		require.ErrorContains(t, err, fault)
	}
	app.Payments["sepay"] = map[string]string{"secret": ""}
	require.ErrorContains(t, load(t, app), "svc.payments[sepay]: nothing proves deliveries; give secret or api_key")
}
