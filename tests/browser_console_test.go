package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// operatorTab adds an operator as the command line does, opens the one-time link in a new tab, and sets up the second factor.
func (c *connectedProduct) operatorTab(t *testing.T, role string, prepare ...func(*tab)) *person {
	t.Helper()
	email := fmt.Sprintf("%s-%d@example.com", role, people.Add(1))
	added := c.svc(t, "operator", "add", "--email", email, "--role", role)
	p := &person{tab: openTab(t, c.SideURL), Email: email, Password: "correct horse " + email}
	for _, change := range prepare {
		change(p.tab)
	}
	path, token, _ := strings.Cut(added["link"].(string), "#")
	p.open(path)
	p.requireAccessible()
	p.fill("#welcome-token", token)
	p.fill("#welcome-password", p.Password)
	p.submit("form#welcome")
	p.requireAccessible()
	p.fill("#second-factor-code", codeNow(t, p.text("#secret")))
	p.submit("form#second-factor")
	require.NotEmpty(t, p.texts("#recovery-codes li"))
	p.requireAccessible()
	p.open("/console")
	return p
}

// codeNow returns the present code of a second factor.
func codeNow(t testing.TB, secret string) string {
	t.Helper()
	code, err := totp.GenerateCode(secret, time.Now())
	require.NoError(t, err)
	return code
}

// TestBrowserConsole guarantees that an operator signs up a shop, credits it, suspends it and refunds a call of it by keyboard alone; that axe-core
// finds no serious fault in any page of the console; and that credit and undo work without the script.
func TestBrowserConsole(t *testing.T) {
	t.Parallel()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Whole = true })
	p := c.operatorTab(t, "administrator")

	p.open("/console/organizations")
	p.tabTo("organization-create-name")
	p.keys("Tea House")
	p.enter()
	require.Equal(t, "Tea House", p.text("h1"))
	shop := p.path()
	p.tabTo("credit-amountMicros")
	p.keys("1.5")
	p.tabTo("credit-reference")
	p.keys("BANK 24-0911")
	p.enter()
	require.Equal(t, "1500000", p.micros("#balance-after"))
	p.tabTo("credit-confirm")
	p.enter()
	require.Equal(t, "1500000", p.micros("#balance"))

	p.follow(`a[href$="/keys"]`)
	p.tabTo("key-create-name")
	p.keys("Website")
	p.enter()
	client := &client{http: c.clear, base: c.BaseURL, key: p.text("#new-key")}
	requireCompletion(t, client.chat(t, prompt(modelStd, "hi", false)), modelStd)

	p.open(shop)
	p.tabTo("organization-suspend-reason")
	p.keys("card fraud reported")
	p.enter()
	requireError(t, client.chat(t, prompt(modelStd, "hi", false)), "organization_suspended")
	require.Equal(t, http.StatusPaymentRequired, client.get(t, "/v1/models").Status)

	p.open(shop + "/calls")
	p.tabTo(js[string](p.tab, `document.querySelector("form[id^=refund-]").getAttribute("id")`))
	p.enter()
	require.Equal(t, fmt.Sprint(usualCharge), p.micros("#balance-change"))
	p.tabTo("refund-confirm")
	p.enter()
	p.open(shop)
	require.Equal(t, "1500000", p.micros("#balance"))

	for _, path := range []string{
		"", "/organizations", "/queue", "/vendors", "/audit-log", "/second-factor", "/nothing",
	} {
		p.openAny("/console" + path)
		p.requireAccessible()
	}
	for _, tab := range []string{"", "/ledger", "/calls", "/keys", "/models", "/people", "/channels"} {
		p.open(shop + tab)
		p.requireAccessible()
	}
	p.picture("the console")
	c.withoutConsoleScript(t, shop)
}

// withoutConsoleScript requires that a credit and its undo work where no script runs, and that signing in does.
func (c *connectedProduct) withoutConsoleScript(t *testing.T, shop string) {
	t.Helper()
	p := c.operatorTab(t, "administrator", (*tab).withoutScript)
	p.open(shop)
	p.fill("#credit-amountMicros", "2")
	p.submitBad("form#credit")
	p.requireFieldError("#credit-reference")
	p.fill("#credit-reference", "BANK 24-0912")
	p.submit("form#credit")
	p.requireAccessible()
	p.submit("form#credit-confirm")
	p.open(shop + "/ledger")
	p.submit(`form[id^="undo-"]`)
	require.Equal(t, "-2000000", p.micros("#balance-change"))
	p.submit("form#undo-confirm")
	p.open(shop)
	require.Equal(t, "1500000", p.micros("#balance"))
	p.submit("form#sign-out")
	p.requireAccessible()
}

// micros is the exact amount of an element.
func (p *tab) micros(selector string) string {
	p.t.Helper()
	return call[string](p, `selector => document.querySelector(selector).dataset.micros`, selector)
}
