package tests

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestTypedClient guarantees that a client can be generated from the description as it is served: openapi-typescript takes it,
// which checks it against OpenAPI 3.1, too;
// `tsc --strict` compiles a client with its types, and finds mistakes; and that client calls a model and lists agents.
func TestTypedClient(t *testing.T) {
	t.Parallel()
	installNPM(t)
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)).describing())
	_, key := p.operator().customer(t, 1_000_000_000).newKey(t, identity.KeyRequest{
		Scopes: []string{"models:read", "chat:write", "agents:read", "agents:write"},
	})
	served := p.withKey("").get(t, "/docs/openapi.json")
	require.Equal(t, http.StatusOK, served.Status)
	require.NoError(t, os.WriteFile("clients/typed/openapi.json", served.Body, 0o600))
	runNPM(t, "node_modules/.bin/openapi-typescript", "typed/openapi.json", "--output", "typed/api.d.ts")
	runNPM(t, "node_modules/.bin/tsc", "--project", "typed")

	ctx, cancel := context.WithTimeout(t.Context(), npmWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--no-warnings", "typed/build/client.js")
	cmd.Dir = "clients"
	cmd.Env = append(os.Environ(), "BASE_URL="+p.BaseURL, "MODEL="+modelStd, "API_KEY="+key)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), " 0 failed", "%s", out)
}
