package tests

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestGeneratedClients guarantees that tools of others accept the description as it is served: Redocly's linter reports nothing by
// its recommended rules, and the clients that openapi-typescript and oapi-codegen generate compile, call a model, list agents and
// understand a refusal.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	installNPM(t)
	p := startProduct(t, deploy(t, store.SQLite, startUpstream(t)).describing())
	_, key := p.operator().customer(t, 1_000_000_000).newKey(t, identity.KeyRequest{
		Scopes: []string{"models:read", "chat:write", "agents:read", "agents:write"},
	})
	served := p.withKey("").get(t, "/docs/openapi.json")
	require.Equal(t, http.StatusOK, served.Status)
	// uses runs a generated client.
	uses := func(t *testing.T, cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "BASE_URL="+p.BaseURL, "MODEL="+modelStd, "API_KEY="+key)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), " 0 failed", "%s", out)
	}

	t.Run("Redocly", func(t *testing.T) {
		t.Parallel()
		description := filepath.Join(t.TempDir(), "openapi.json")
		require.NoError(t, os.WriteFile(description, served.Body, 0o600))
		requireLinted(t, description)
	})
	// A compiler has to find the mistakes in client.ts, too: tsc --strict ends well only if it does.
	t.Run("openapi-typescript", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, os.WriteFile("clients/typed/openapi.json", served.Body, 0o600))
		runNPM(t, "node_modules/.bin/openapi-typescript", "typed/openapi.json", "--output", "typed/api.d.ts")
		runNPM(t, "node_modules/.bin/tsc", "--project", "typed")
		ctx, cancel := context.WithTimeout(t.Context(), npmWait)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", "--no-warnings", "typed/build/client.js")
		cmd.Dir = "clients"
		uses(t, cmd)
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, os.WriteFile("clients/oapi/openapi.json", served.Body, 0o600))
		runIn(t, "clients/oapi", "go", "tool", "-modfile=../../../tools/go.mod", "oapi-codegen", "-config=oapi-codegen.yaml", "openapi.json")
		client := filepath.Join(t.TempDir(), "client")
		runIn(t, "clients/oapi", "go", "build", "-o", client)
		ctx, cancel := context.WithTimeout(t.Context(), npmWait)
		defer cancel()
		uses(t, exec.CommandContext(ctx, client))
	})
}

// requireLinted requires that Redocly's recommended rules find neither an error nor a warning in a description.
func requireLinted(t *testing.T, description string) {
	t.Helper()
	linter, err := filepath.Abs("clients/node_modules/.bin/redocly")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), npmWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, linter, "lint", "--extends=recommended", "--format=json", filepath.Base(description))
	cmd.Dir = filepath.Dir(description) // where no configuration lies
	cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_NOTIFICATIONS=true", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	out, _ := cmd.Output() // its status is not 0 for what it has found
	var report struct {
		Totals   *struct{ Errors, Warnings, Ignored int }
		Problems []json.RawMessage
	}
	require.NoError(t, json.Unmarshal(out, &report), "%s", out)
	require.NotNil(t, report.Totals, "%s", out)
	require.Empty(t, report.Problems, "%s", out)
	require.Zero(t, *report.Totals)
}
