package command_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// scriptedService stands in for a running service: /v1/models ends as without a key, and the worker's probe with ready.
func scriptedService(t *testing.T, ready int) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			w.Header().Set("X-Request-Id", "req_x")
			w.WriteHeader(http.StatusUnauthorized)
		case "/health/ready":
			w.WriteHeader(ready)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// serve points the configuration's site and base_url at an address, and its worker at another.
func (c *commandLine) serve(address, worker string) {
	c.t.Helper()
	host := strings.TrimPrefix(address, "http://")
	caddyfile := strings.Replace(c.caddyfile(), "base_url http://localhost:8080", "base_url "+address, 1)
	caddyfile = strings.Replace(caddyfile, "\t\tplan free {", "\t\tworker {\n\t\t\tlisten "+strings.TrimPrefix(worker, "http://")+"\n\t\t}\n\t\tplan free {", 1)
	_, port, err := net.SplitHostPort(host)
	require.NoError(c.t, err)
	c.write("Caddyfile", caddyfile+"http://:"+port+" {\n\tbind 127.0.0.1\n\tsvc_server\n}\n")
}

// TestStatus guarantees on both engines that status counts what is stored and names everything that needs the operator, and
// nothing else.
func TestStatus(t *testing.T) {
	t.Parallel()
	newCommandLine(t).refused("there is no store", "status")
	for name, begin := range map[string]func(testing.TB) *commandLine{"sqlite": newCommandLine, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testStatus(t, begin(t))
		})
	}
}

func testStatus(t *testing.T, c *commandLine) {
	t.Helper()
	service, worker := scriptedService(t, http.StatusOK), scriptedService(t, http.StatusOK)
	c.serve(service.URL, worker.URL)
	c.json("migrate")
	require.Equal(t, []string{"There is no organization: `caddy svc org create`."}, conditionsOf(c.json("status")))

	org := c.newOrg("Acme")
	c.json("key", "create", "--org", org)
	c.json("user", "invite", "--org", org, "--email", "lan@example.com", "--role", "owner")
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea", "--agent", agent), "id")
	status := c.json("status")
	require.Equal(t, []any{}, status["conditions"])
	served, err := os.ReadFile(c.path("Caddyfile"))
	require.NoError(t, err)
	before := string(served)
	from := time.Now().Add(13 * 24 * time.Hour).UTC().Truncate(time.Minute)
	c.write("Caddyfile", strings.Replace(before, "price_input", "price "+from.Format(time.RFC3339)+" {\n\t\t\t\tinput 7\n\t\t\t\toutput 9\n\t\t\t}\n\t\t\tprice_input", 1))
	coming := "from " + from.Format("2006-01-02 15:04") + " UTC on, input costs 7 instead of "
	require.Contains(t, conditionsOf(c.json("status"))[0], coming)
	require.Contains(t, c.json("doctor")["warnings"].([]any)[0], coming)
	c.write("Caddyfile", before)
	address, workerAddress := strings.TrimPrefix(service.URL, "http://"), strings.TrimPrefix(worker.URL, "http://")
	require.Equal(t, []any{
		map[string]any{"part": "site", "address": address, "state": "listens"},
		map[string]any{"part": "service", "address": service.URL, "state": "responds"},
		map[string]any{"part": "worker", "address": workerAddress, "state": "is ready"},
	}, status["running"])
	one, none := json.Number("1"), json.Number("0")
	require.Equal(t, map[string]any{
		"store": c.db().Location().Redacted(), "organizations": one, "suspended": none, "users": none, "invited": one, "apiKeys": one,
		"models": json.Number("2"), "providerKeys": none, "agents": one, "knowledgeBases": none, "channels": one,
	}, status["stored"])
	require.Equal(t, map[string]any{
		"conversations": none, "oldestSeconds": none, "answering": none, "attention": none, "givenUp": none, "openHolds": none,
	}, status["waiting"])
	text := c.run("", "status")
	require.NoError(t, text.err)
	require.Regexp(t, `(?s)RUNNING\n.*is ready\nSTORED\n.*organizations +1, suspended 0\n.*WAITING\n.*CONDITIONS\n  none;`, text.stdout)
	require.Less(t, strings.Count(text.stdout, "\n"), 25, "one screen")

	c.giveUp(channel)
	require.NoError(t, c.db().Channels.SetState(t.Context(), "test", org, channel, store.ChannelNeedsReauth))
	c.write("master.key", masterKey(2))
	service.Close()
	worker.Close()
	status = c.json("status")
	require.Equal(t, json.Number("1"), status["waiting"].(map[string]any)["givenUp"])
	wrong := conditionsOf(status)
	for i, want := range []string{
		"site (" + address + "): doesn't listen: nobody listens there", "service (" + service.URL + "): doesn't respond: nobody listens there",
		"worker (" + workerAddress + "): doesn't respond: nobody listens there",
		"master_key: none of its keys sealed what this store holds",
		`svc.provider[openai].api_key: {env.SVC_TEST_NEVER_SET} is not set. A server or worker with this environment doesn't start.`,
		"Answers that were given up: 1.", "The channel " + channel + " (bot) of organization " + org + " needs new credentials.",
	} {
		require.Contains(t, wrong[i], want)
	}
	require.Len(t, wrong, 7)

	// A service has seen the channel's condition first, and one of its own.
	db := c.db()
	for _, row := range [][]any{{"channel_needs_reauth", channel, "", 1, ""}, {"other_model", "local/echo", "worker, process 1 on a", 2, "Another."}} {
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, `INSERT INTO conditions (kind, subject, node, since, text) VALUES ($1, $2, $3, $4, $5)`, row...)
			return nil
		}))
	}
	found := c.json("status")["conditions"].([]any)
	require.Equal(t, "1970-01-01T00:00:00.001Z", found[6].(map[string]any)["since"])
	require.Equal(t, "worker, process 1 on a", found[7].(map[string]any)["node"])
	require.Regexp(t, `warning +since 1970-01-01T00:00 +Another\.\n +worker, process 1 on a +Compare`, c.run("", "status").stdout)
}

// conditionsOf returns the texts of the conditions in an answer.
func conditionsOf(status map[string]any) (texts []string) {
	for _, one := range status["conditions"].([]any) {
		texts = append(texts, one.(map[string]any)["text"].(string))
	}
	return texts
}

// TestStatusOfStrangers guarantees that neither another program on the service's address nor a worker that isn't ready passes
// for a healthy one.
func TestStatusOfStrangers(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	otherStranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(otherStranger.Close)
	c.serve(stranger.URL, otherStranger.URL)
	c.newOrg("Acme")
	text := strings.Join(strings.Fields(c.run("", "status").stdout), " ")
	require.Equal(t, 4, strings.Count(text, "something else responds, with status 404"), "the service and the worker, twice: %s", text)
	c.serve(scriptedService(t, http.StatusServiceUnavailable).URL, scriptedService(t, http.StatusServiceUnavailable).URL)
	text = strings.Join(strings.Fields(c.run("", "status").stdout), " ")
	require.Contains(t, text, " responds worker")
	require.Contains(t, text, "is not ready")

	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	for address, want := range map[string]string{"http://nowhere.invalid": "the host isn't known", untrusted.URL: "tls: failed to verify certificate"} {
		c.write("Caddyfile", strings.Replace(c.caddyfile(), "base_url http://localhost:8080", "base_url "+address, 1))
		require.Contains(t, c.run("", "status").stdout, "doesn't respond: "+want)
	}
}

// TestHealth guarantees that the health check of a container succeeds only if a probe responds with status 200, and that it
// needs no configuration.
func TestHealth(t *testing.T) {
	t.Parallel()
	health := func(address string) error { return execute(t, "", "health", address).err }
	service := scriptedService(t, http.StatusOK)
	require.NoError(t, health(service.URL+"/health/ready"))
	require.ErrorContains(t, health(service.URL+"/v1/models"), "responds with status 401")
	require.ErrorContains(t, health(scriptedService(t, http.StatusServiceUnavailable).URL+"/health/ready"), "responds with status 503")
	service.Close()
	require.ErrorContains(t, health(service.URL+"/health/ready"), "doesn't respond")
}
