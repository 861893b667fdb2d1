package command_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// TestCommandsOverServer: the same commands run over the operator's interface of another machine, without a configuration and a store here.
func TestCommandsOverServer(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.json("migrate")
	made := c.json("operator", "key", "create", "--name", "laptop", "--scopes", identity.JoinScopes(identity.AllOperatorScopes(), ","))
	c.write("operator.key", strOf(t, made, "key")+"\n")
	db := storetest.OpenAt(t, store.Location{Engine: store.SQLite, DSN: c.path("svc.db")}, store.Options{Kinds: caddymodule.StoreKinds()})
	ring, err := vault.ParseRing(masterKey(1))
	require.NoError(t, err)
	interfaced := api.NewOperator(api.Deps{
		Authenticator: identity.NewOperatorKeys(db), DB: db, Ring: ring, Book: billing.NewBook(db), Wallets: billing.NewBook(db),
		Plans: &caddymodule.App{Plans: []*caddymodule.Plan{{Name: "free"}, {Name: "pro"}}}, BaseURL: "http://localhost:8080",
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := interfaced.Serve(w, r); err != nil {
			handlers.WriteError(w, r, err, "")
		}
	}))
	defer server.Close()
	remote := func(args ...string) ran {
		return execute(t, "", append([]string{"--json", "--server", server.URL, "--server-key-file", c.path("operator.key")}, args...)...)
	}
	run := func(args ...string) map[string]any {
		done := remote(args...)
		require.NoError(t, done.err, "%v", args)
		return object(t, done.stdout)
	}
	org := strOf(t, run("org", "create", "--name", "Acme", "--external-id", "shop-1"), "id")
	require.Equal(t, run("org", "show", org), c.json("org", "show", org), "here and there")
	require.Equal(t, "1000000", run("wallet", "credit", "--org", org, "--amount", "1", "--ref", "inv-1")["balanceMicros"])
	for range 101 {
		c.json("key", "create", "--org", org)
	}
	require.Equal(t, c.json("key", "list", "--org", org), run("key", "list", "--org", org), "all pages")
	key := strOf(t, run("key", "create", "--org", org, "--name", "shop"), "id")
	require.Equal(t, key, run("key", "revoke", key)["id"])
	run("user", "invite", "--org", org, "--email", "lan@example.com", "--role", "owner")
	require.Equal(t, "member", run("user", "set", "--org", org, "--email", "lan@example.com", "--role", "member")["role"])
	entry := run("audit", "--limit", "1")["data"].([]any)[0].(map[string]any)
	require.Regexp(t, `^operator-key:laptop for cli:\S+$`, entry["actor"])

	for want, args := range map[string][]string{
		"--name: There is an organization with this name already":                             {"org", "create", "--name", "Acme"},
		"The free balance is too small":                                                       {"wallet", "adjust", "--org", org, "--amount", "-2", "--ref", "a", "--reason", "b"},
		"There is no organization with this id":                                               {"org", "show", "org_x"},
		"--plan: There is no plan with this name":                                             {"org", "set-plan", org, "--plan", "gold"},
		`has no user with the e-mail address "x@example.com"`:                                 {"user", "remove", "--org", org, "--email", "x@example.com"},
		"caddy svc doctor is not in the operator's interface; run it on the server's machine": {"doctor"},
		"caddy svc agent list is not in the operator's interface":                             {"agent", "list", "--org", org},
		"run it on the server's machine, without --server":                                    {"queue", "retry", "--org", org},
		"caddy svc version is not in the operator's interface":                                {"version"},
	} {
		done := remote(args...)
		require.ErrorContains(t, done.err, strings.TrimPrefix(want, "--name: "), "%v", args)
		require.Empty(t, done.stdout)
	}
	for want, args := range map[string][]string{
		"--server must be a URL":                   {"--server", "svc.example.com"},
		"the operator's key would go to a public":  {"--server", "http://svc.example.com"},
		"--server needs an operator's key":         {"--server", server.URL},
		"has no operator's interface (status 404)": {"--server", httptestNotFound(t), "--server-key-file", c.path("operator.key")},
		"The API key is not valid":                 {"--server", server.URL, "--server-key-file", c.path("master.key")},
		"reading --server-key-file":                {"--server", server.URL, "--server-key-file", c.path("none")},
	} {
		require.ErrorContains(t, execute(t, "", append(args, "org", "list")...).err, want)
	}
}

// httptestNotFound returns the address of a server that has nothing.
func httptestNotFound(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server.URL
}
