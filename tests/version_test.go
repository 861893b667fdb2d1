package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestVersionEverywhere guarantees that a program tells its version on the command line, and a running process in its log, its probes,
// its metrics and the description of the interface: everywhere the same.
func TestVersionEverywhere(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.SQLite, startUpstream(t))
	d.Whole = true
	p := startProduct(t, d)
	version := p.svc(t, "version")["version"].(string)
	require.Equal(t, "devel", version, "a build for tests")
	full, err := p.caddy("version")
	require.NoError(t, err)
	require.Regexp(t, `^caddy-svc devel, Caddy v2\.`, full)
	worker, err := workerBinary()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), worker, "--version").Output()
	require.NoError(t, err)
	require.Equal(t, "svc-worker version devel", strings.TrimSpace(string(out)))

	line := regexp.MustCompile(`(?m)^.*"msg":"serving".*$`).FindString(p.log.String())
	var started map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &started), "%s", p.log.tail(2000))
	require.Equal(t, "server", started["process"])
	require.Equal(t, version, started["version"])
	require.Equal(t, p.location.Redacted(), started["store"])
	require.EqualValues(t, 7, started["models"])
	for _, probe := range []string{"/live", "/ready"} {
		response, err := p.clear.Get(p.SideURL + probe) //nolint:noctx // it is local
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Contains(t, string(body), `"version":"devel"`)
	}
	require.Contains(t, p.metrics(t), `svc_build_info{version="devel"} 1`)
	var described struct{ Info struct{ Version string } }
	require.NoError(t, json.Unmarshal(p.withKey("").get(t, "/docs/openapi.json").Body, &described))
	require.Equal(t, version, described.Info.Version)

	program := p.withKey("").get(t, "/")
	require.Equal(t, http.StatusNotFound, program.Status)
	requireError(t, program, "not_found")
}
