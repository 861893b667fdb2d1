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

// operatorTab adds an operator as the command line does, opens the link in a new tab, and sets up the second factor with a secret.
func (c *connectedProduct) operatorTab(t *testing.T, role string, prepare ...func(*tab)) (p *person, secret string) {
	t.Helper()
	email := fmt.Sprintf("%s-%d@example.com", role, people.Add(1))
	added := c.svc(t, "operator", "add", "--email", email, "--role", role)
	p = &person{tab: openTab(t, c.SideURL), Email: email, Password: "correct horse " + email}
	for _, change := range prepare {
		change(p.tab)
	}
	path, token, _ := strings.Cut(added["link"].(string), "#")
	p.open(path)
	p.requireAccessible(touch, wide)
	p.fill("#welcome-token", token)
	p.fill("#welcome-password", p.Password)
	p.submit("form#welcome")
	p.requireAccessible(touch, wide)
	secret = p.text("#secret")
	p.fill("#second-factor-code", codeAfter(t, secret, 0))
	p.submit("form#second-factor")
	require.NotEmpty(t, p.texts("#recovery-codes li"))
	p.requireAccessible(touch, wide)
	p.open("/console")
	return p, secret
}

// codeAfter returns the code that a second factor has after some time.
func codeAfter(t testing.TB, secret string, wait time.Duration) string {
	t.Helper()
	code, err := totp.GenerateCode(secret, time.Now().Add(wait))
	require.NoError(t, err)
	return code
}

// wide is the width of a large screen.
const wide = 1440

// signInByKeys signs the operator out and in again by keyboard alone.
func (p *person) signInByKeys(secret string) {
	p.t.Helper()
	p.tabTo("sign-out")
	p.enter()
	require.Equal(p.t, "/console/sign-in", p.path())
	p.tabTo("sign-in-email")
	p.keys(p.Email)
	p.tabTo("sign-in-password")
	p.keys(p.Password)
	p.enter()
	p.tabTo("second-factor-code")
	p.keys(codeAfter(p.t, secret, 30*time.Second)) // no code is used twice
	p.enter()
	require.Equal(p.t, "/console", p.path())
}

// credits gives the shop of the page a credit by keyboard alone.
func (p *person) credits(amount, reference, after string) {
	p.t.Helper()
	p.tabTo("credit-amountMicros")
	p.keys(amount)
	p.tabTo("credit-reference")
	p.keys(reference)
	p.enter()
	require.Equal(p.t, after, p.micros("#balance-after"))
	p.tabTo("credit-confirm")
	p.enter()
	require.Equal(p.t, after, p.micros("#balance"))
}

// tabToForm is tabTo for the first form with an id that begins like that.
func (p *person) tabToForm(id string) {
	p.t.Helper()
	p.tabTo(call[string](p.tab, `id => document.querySelector("form[id^=" + id + "]").getAttribute("id")`, id))
}

// TestBrowserConsole guarantees that an operator signs in, signs up a shop, credits it, undoes a credit, suspends and resumes it and refunds a call
// by keyboard alone; that axe-core finds no serious fault in any page of the console; and that credit and undo work without the script.
func TestBrowserConsole(t *testing.T) {
	t.Parallel()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Whole = true })
	p, secret := c.operatorTab(t, "administrator")
	p.signInByKeys(secret)

	p.open("/console/organizations")
	p.tabTo("organization-create-name")
	p.keys("Tea House")
	p.enter()
	require.Equal(t, "Tea House", p.text("h1"))
	shop := p.path()
	p.credits("2.5", "BANK 24-0910", "2500000")
	p.open(shop + "/ledger")
	p.tabToForm("undo-")
	p.enter()
	require.Equal(t, "0", p.micros("#balance-after"))
	p.tabTo("undo-confirm")
	p.enter()
	p.open(shop)
	p.credits("1.5", "BANK 24-0911", "1500000")

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
	p.tabTo("organization-resume-reason")
	p.keys("paid")
	p.enter()
	require.Equal(t, http.StatusOK, client.get(t, "/v1/models").Status)

	p.open(shop + "/calls")
	p.tabToForm("refund-")
	p.enter()
	require.Equal(t, fmt.Sprint(usualCharge), p.micros("#balance-change"))
	p.tabTo("refund-confirm")
	p.enter()
	p.open(shop)
	require.Equal(t, "1500000", p.micros("#balance"))

	for _, path := range []string{
		"", "/organizations?suspended=true", "/people", "/usage", "/usage?by=key", "/search?q=x", "/queue", "/vendors", "/audit-log",
		"/second-factor", "/nothing",
	} {
		p.openAny("/console" + path)
		p.requireAccessible(touch, wide)
	}
	for _, tab := range []string{"", "/ledger", "/calls", "/keys", "/models", "/people", "/channels"} {
		p.open(shop + tab)
		p.requireAccessible(touch, wide)
	}
	p.picture("the console")
	c.withoutConsoleScript(t, shop)
}

// withoutConsoleScript requires that a credit and its undo work where no script runs, and that signing in does.
func (c *connectedProduct) withoutConsoleScript(t *testing.T, shop string) {
	t.Helper()
	p, _ := c.operatorTab(t, "administrator", (*tab).withoutScript)
	p.requireAccessible(touch, wide)
	require.Equal(t, "/console", js[string](p.tab, `document.querySelector("[data-live] a").getAttribute("href")`), "it is renewed by a link")
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
