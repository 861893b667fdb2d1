package tests

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// startWithPages starts a product with its pages, the dashboard, the interface description and the widget,
// beside the platforms and the worker.
func startWithPages(t *testing.T) *connectedProduct {
	t.Helper()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Whole = true })
	c.worker = c.startWorker()
	return c
}

// person is a user of a business, signed in to its dashboard in a tab of their own.
type person struct {
	*tab

	Email, Password string
}

var people atomic.Int64

// person invites a user as the operator does, opens the one-time link and sets a password.
func (b *business) person(t testing.TB, role string) *person {
	t.Helper()
	email := fmt.Sprintf("%s-%d@example.com", role, people.Add(1))
	invited := b.product.svc(t, "user", "invite", "--org", b.OrgID, "--email", email, "--role", role)
	p := &person{tab: openTab(t, b.product.BaseURL), Email: email, Password: "correct horse " + email}
	p.welcome(invited["link"].(string))
	return p
}

// welcome opens a one-time link and sets the password.
func (p *person) welcome(link string) {
	p.t.Helper()
	p.open(link)
	p.await("the link's code to stand in the form", `document.querySelector("#welcome-token").value !== ""`)
	p.fill("#welcome-password", p.Password)
	p.submit("form#welcome")
	require.Equal(p.t, "/dashboard", p.path())
}

// signIn signs in with the password, from a page that asked for it.
func (p *person) signIn() {
	p.t.Helper()
	p.fill("#login-email", p.Email)
	p.fill("#login-password", p.Password)
	p.submit("form#login")
}

// in is the same person for a subtest.
func (p *person) in(t testing.TB) *person {
	t.Helper()
	other := *p
	other.tab = p.tab.in(t)
	return &other
}
