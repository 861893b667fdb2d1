package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// npmWait bounds each of the scripts of tests/clients, and the installation of their packages.
const npmWait = 5 * time.Minute

var installed sync.Once

// installNPM installs the packages of tests/clients where they are missing.
func installNPM(t *testing.T) {
	t.Helper()
	installed.Do(func() {
		if _, err := os.Stat("clients/node_modules/@copilotkit/aimock"); err == nil {
			return
		}
		runNPM(t, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	})
}

// runNPM runs a program in tests/clients, which must end well.
func runNPM(t *testing.T, name string, args ...string) {
	t.Helper()
	runIn(t, "clients", name, args...)
}

// runIn runs a program in a folder; it must end well.
func runIn(t *testing.T, folder, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), npmWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
}

// TestNPMClients guarantees that the official clients of the JavaScript world work against the product: `openai`, the AI
// SDK with @ai-sdk/openai-compatible, and LangChain. What they check is in tests/clients.
func TestNPMClients(t *testing.T) {
	t.Parallel()
	installNPM(t)
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.App = "plan single {\n requests_per_minute 1\n }"
	p := startProduct(t, d)
	var tried sync.Map
	once := up.script(func(call *upstreamCall) {
		if _, again := tried.LoadOrStore(call.Body.Messages[0].Content, true); again {
			call.answer(usualText, usualUsage)
			return
		}
		call.w.Header().Set("Retry-After", "1")
		call.json(http.StatusServiceUnavailable, `{}`)
	})
	slow := up.script(func(call *upstreamCall) {
		if call.Body.Stream {
			call.begin()
		}
		for i := range 25 {
			if call.Body.Stream {
				call.text(fmt.Sprintf("w%d ", i))
			}
			select {
			case <-call.Gone:
				return
			case <-time.After(50 * time.Millisecond): // the script asks for a slow provider
			}
		}
		if !call.Body.Stream {
			call.answer(usualText, usualUsage)
			return
		}
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	})
	scenarios, err := json.Marshal(map[string]string{
		"answer": "scenario:ok", "refused": "scenario:401", "failing": "scenario:500", "overloaded": "scenario:503;ra=1",
		"overloadedOnce": once.Mark, "tooLong": "scenario:context-openai", "broken": "scenario:reset", "slow": slow.Mark,
	})
	require.NoError(t, err)

	runClients(t, p, modelStd, string(scenarios))
}

// runClients runs the scripts of tests/clients for a model. scenarios is their SCENARIOS. The product has a plan "single" of one
// request a minute.
func runClients(t *testing.T, p *product, model, scenarios string) {
	t.Helper()
	operatorStore := p.operator()
	c, suspended, byok := operatorStore.customer(t, 1_000_000_000), operatorStore.customer(t, 0), operatorStore.customer(t, 0)
	require.NoError(t, operatorStore.db.Organizations.SetSuspended(t.Context(), actor, suspended.OrgID, true, ""))
	revokedID, revoked := c.newKey(t, identity.KeyRequest{})
	require.NoError(t, operatorStore.db.APIKeys.Revoke(t.Context(), actor, c.OrgID, revokedID))
	_, expired := c.newKey(t, identity.KeyRequest{ExpiresAt: ago(time.Hour)})
	_, narrow := c.newKey(t, identity.KeyRequest{Scopes: []string{"models:read"}})
	provider, _, _ := strings.Cut(model, "/")
	byok.ownKey(t, provider, "sk-own")
	scripts, err := filepath.Glob("clients/*.mjs")
	require.NoError(t, err)
	var ran int
	for _, script := range scripts {
		name := filepath.Base(script)
		if name == "checks.mjs" {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			limited := operatorStore.customerOn(t, "single", 1_000_000)
			ctx, cancel := context.WithTimeout(t.Context(), npmWait)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", "--no-warnings", name)
			cmd.Dir = "clients"
			cmd.Env = append(os.Environ(), "BASE_URL="+p.BaseURL, "MODEL="+model, "API_KEY="+c.Key,
				"POOR_KEY="+operatorStore.customer(t, 0).Key, "SUSPENDED_KEY="+suspended.Key, "REVOKED_KEY="+revoked, "EXPIRED_KEY="+expired,
				"NOSCOPE_KEY="+narrow, "LIMITED_KEY="+limited.Key, "BYOK_KEY="+byok.Key, "SCENARIOS="+scenarios)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), " 0 failed", "%s", out)
		})
	}
	require.GreaterOrEqual(t, ran, 3)
}
