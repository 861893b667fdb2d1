package tests

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// operatorsInterface is the operator's interface of a product, with a key.
type operatorsInterface struct {
	url, key string
}

// operatorsKey makes an operator's key with all scopes.
func (p *product) operatorsKey(t testing.TB) string {
	t.Helper()
	return p.svc(t, "operator", "key", "create", "--name", "site", "--scopes", identity.JoinScopes(identity.AllOperatorScopes(), ","))["key"].(string)
}

// ask sends a request and returns the answer's members.
func (o operatorsInterface) ask(t testing.TB, status int, method, path, body string) map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, o.url+"/operator"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+o.key)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := readAll(response)
	require.NoError(t, err)
	require.Equal(t, status, response.StatusCode, "%s", text)
	var answer map[string]any
	require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
	return answer
}

// TestREADMEStory runs the README's script: a shop signs up, pays, is served, is suspended and gets a refund through the operator's interface
// alone. Only addresses, names of files and the text of the call are changed.
func TestREADMEStory(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	var script string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		if strings.Contains(block[1], "externalId") {
			script = block[1]
		}
	}
	model := up.script(replying)
	changed := strings.NewReplacer(
		"https://ai.example.com", p.BaseURL, "http://127.0.0.1:8081", p.SideURL, "openai/gpt-6-luna", modelStd, "Hello!", model.Mark,
		"caddy svc", p.program()+" svc", "--config Caddyfile", "--config "+p.configFile(),
	).Replace(script)
	require.NotEqual(t, script, changed)
	shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", changed)
	shell.Dir, shell.Env = p.Dir, p.environment()
	var errs strings.Builder
	shell.Stderr = &errs
	out, err := shell.Output()
	require.NoError(t, err, "%s\n%s", out, errs.String())
	for _, part := range []string{`"chat.completion"`, `"suspensionReason":"Invoice 18 is unpaid."`, `"code":"organization_suspended"`, `"kind":"refund"`} {
		require.Contains(t, string(out), part)
	}
	require.Len(t, model.Calls(), 1, "the call of the suspended shop was not made")
	listed := p.svc(t, "org", "list", "--external-id", "shop-17")["data"].([]any)
	shop := listed[0].(map[string]any)["id"].(string)
	require.Equal(t, "5000000", p.svc(t, "wallet", "show", "--org", shop)["balanceMicros"])
	audit := p.svc(t, "audit", "--org", shop)["data"].([]any)
	require.Equal(t, "operator-key:shop-site for lan@example.com", audit[0].(map[string]any)["actor"])
}

// TestOperatorsPage: the description is served on the private listener, tenants' pages have none of it, and the operator's paths are nowhere else.
func TestOperatorsPage(t *testing.T) {
	t.Parallel()
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	operator := operatorsInterface{p.SideURL, p.operatorsKey(t)}
	paths := operator.ask(t, http.StatusOK, http.MethodGet, "/docs/openapi.json", "")["paths"].(map[string]any)
	require.Contains(t, paths, "/operator/organizations/{orgId}/suspend")
	for path := range paths {
		require.True(t, strings.HasPrefix(path, "/operator/"), path)
	}
	elsewhere := operatorsInterface{p.BaseURL, operator.key}
	elsewhere.ask(t, http.StatusNotFound, http.MethodGet, "/organizations", "")
	elsewhere.ask(t, http.StatusNotFound, http.MethodGet, "/docs/openapi.json", "")
	tenants := string(p.withKey("").get(t, "/docs/openapi.json").Body)
	require.NotContains(t, tenants, "/operator/")
	require.NotContains(t, tenants, "OperatorKey")
	require.NotContains(t, tenants, "suspendOrganization")
}
