package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the whole Caddyfile needs them
	"github.com/stretchr/testify/require"

	_ "github.com/caddy-svc/caddy-svc" // the modules under test
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestInProcess guarantees that the whole Caddyfile and its JSON form, the second entrance, mean the same: provisioned
// inside this process, both serve models, calls in both forms, and errors; and after the last of them no goroutine and no
// open store is left (goleak in TestMain).
func TestInProcess(t *testing.T) {
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	p := prepareProduct(t, d) // its binary isn't run; it has the folder and the store
	for _, variable := range d.env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(d.caddyfile(t)), map[string]any{"filename": "Caddyfile"})
	require.NoError(t, err)
	for _, warning := range warnings {
		require.Contains(t, warning.Message, "not formatted")
	}
	var loose any // another order of members, no comments: what an operator's own tools make of it
	require.NoError(t, json.Unmarshal(adapted, &loose))
	rewritten, err := json.MarshalIndent(loose, "", "\t")
	require.NoError(t, err)

	c := p.operator().customer(t, 1_000_000)
	for name, config := range map[string][]byte{"Caddyfile": adapted, "JSON": rewritten} {
		t.Run(name, func(t *testing.T) {
			server, end := provision(t, config, d.Port)
			defer end()
			as := &client{http: server.Client(), base: server.URL, key: c.Key}
			before := len(c.calls(t))
			require.Equal(t, http.StatusOK, as.get(t, "/v1/models").Status)
			done := requireCompletion(t, as.chat(t, prompt(modelStd, "hi", false)), modelStd)
			require.EqualValues(t, usualCharge, done.charged(t))
			done = requireStream(t, as.chat(t, prompt(modelStd, "hi", true)), modelStd)
			require.Equal(t, usualText, done.Text)
			requireError(t, as.chat(t, prompt(modelStd, "scenario:503", true)), "provider_overloaded")
			requireError(t, as.chat(t, `{"model":1}`), "invalid_request")
			requireError(t, as.get(t, "/nothing"), "not_found")
			c.awaitCalls(t, before+3)
		})
	}
	p.operator().requireBooksInOrder(t)
	p.closeOperatorStore(t)
	deadline := time.Now().Add(patience)
	for openFiles(t, os.Getpid(), p.location.DSN) > 0 {
		require.True(t, time.Now().Before(deadline), "the store is still open")
		betweenLooks()
	}
}

// provision makes the configuration's server for a port answer without a listener of Caddy's; end gives all back, as
// the end of a configuration does.
func provision(t *testing.T, config []byte, port int) (server *httptest.Server, end func()) {
	t.Helper()
	var parsed caddy.Config
	require.NoError(t, caddy.StrictUnmarshalJSON(caddy.RemoveMetaFields(config), &parsed))
	parsed.Logging = nil // the log of this process is the test's
	ctx, err := caddy.ProvisionContext(&parsed)
	require.NoError(t, err)
	svc, err := ctx.App("svc")
	require.NoError(t, err)
	app := svc.(caddy.App)
	require.NoError(t, app.Start())
	web, err := ctx.App("http")
	require.NoError(t, err)
	for _, candidate := range web.(*caddyhttp.App).Servers {
		if strings.HasSuffix(candidate.Listen[0], fmt.Sprintf(":%d", port)) {
			server = httptest.NewServer(candidate)
		}
	}
	require.NotNil(t, server)
	return server, func() {
		server.Close()
		require.NoError(t, app.Stop())
		require.NoError(t, app.(caddy.CleanerUpper).Cleanup())
	}
}
