package caddymodule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// TestOddities guarantees that what is most likely a mistake gives a warning, and a usual configuration none.
func TestOddities(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	app.fill()
	require.Empty(t, app.oddities())
	bytes := int64(256)
	app.Models, app.Limits = nil, &Limits{BufferedBytes: &bytes}
	app.Providers[1].BaseURL = "http://vendor.example.com/v1"
	require.Equal(t, []string{
		"svc.model: there is no model, so every call ends with unsupported_model",
		"svc.limits.buffered_bytes: 256 bytes hold hardly a request; give a unit, e.g. 256MiB",
		"svc.provider[vendor].base_url: the key and all prompts go to a public host without TLS; use https",
	}, app.oddities())
	bytes = leastBufferedBytes
	app.Providers[1].APIKey = NoKey
	require.Len(t, app.oddities(), 1)

	for address, public := range map[string]bool{
		"http://api.example.com/v1": true, "http://203.0.113.7": true, "http://[2001:db8::1]:8000": true,
		"https://api.example.com/v1": false, "http://localhost:11434/v1": false, "http://ollama:11434/v1": false, "http://127.0.0.1": false,
		"http://10.1.2.3": false, "http://[::1]:8000": false, "http://models.internal/v1": false, "http://box.local./v1": false,
	} {
		require.Equal(t, public, PublicHTTP(address), address)
	}
}

// TestEndingModels guarantees a warning 90 days before the end of a model, and an error from 7 days before it on.
func TestEndingModels(t *testing.T) {
	t.Parallel()
	app := goodApp(t)
	app.Models[0].ShutdownDate = "2027-01-14"
	const ends = "svc.model[echo/echo-1].shutdown_date: the vendor ends the model on 2027-01-14; offer another one"
	for today, want := range map[string]struct{ warnings, faults []string }{
		"2026-10-15": {}, "2026-10-16": {warnings: []string{ends}}, "2027-01-06": {warnings: []string{ends}},
		"2027-01-07": {faults: []string{ends}}, "2027-02-01": {faults: []string{ends}},
	} {
		now, err := time.Parse(time.DateOnly, today)
		require.NoError(t, err)
		warnings, faults := app.endingModels(now)
		require.Equal(t, want.warnings, warnings, today)
		require.Equal(t, want.faults, faults, today)
	}
	app.Models[0].ShutdownDate = ""
	warnings, faults := app.endingModels(time.Now())
	require.Empty(t, append(warnings, faults...))
}

func TestSecretWarnings(t *testing.T) {
	folder := t.TempDir()
	open, private := filepath.Join(folder, "open"), filepath.Join(folder, "private")
	require.NoError(t, os.WriteFile(open, []byte("long enough, and more"), 0o600))
	require.NoError(t, os.Chmod(open, 0o644)) //nolint:gosec // that is the point
	require.NoError(t, os.WriteFile(private, []byte("long enough, and more"), 0o600))
	t.Setenv("SVC_SHORT", "fifteen-letters")
	t.Setenv("SVC_LONG", "sixteen letters!")
	app := &App{
		MasterKey: config.Secret("{file." + open + "}"),
		Providers: []*Provider{
			{Name: "short", APIKey: "{env.SVC_SHORT}"},
			{Name: "long", APIKey: "{env.SVC_LONG}"},
			{Name: "none", APIKey: NoKey},
			{Name: "byok"},
			{Name: "absent", APIKey: "{env.SVC_NEVER_SET}"},
			{Name: "private", APIKey: config.Secret("{file." + private + "}")},
		},
		Platforms: Platforms{"market_b": block(map[string]string{"app_secret": "{env.SVC_SHORT}"})},
	}
	warnings := app.secretWarnings(caddy.NewReplacer())
	require.Len(t, warnings, 3)
	require.Contains(t, warnings[0], "svc.master_key: every account of this machine can read the file behind {file."+open+"}")
	require.Contains(t, warnings[1], "{env.SVC_SHORT} holds is shorter than 16 characters")
	require.Contains(t, warnings[2], "app_secret")
	require.NotContains(t, strings.Join(warnings, "\n"), "letters")

	started := goodApp(t)
	started.Providers[1].APIKey = "{env.SVC_SHORT}"
	file := filepath.Join(folder, "log")
	require.NoError(t, loadLogging(t, started, &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{
		WriterRaw: caddyconfig.JSONModuleObject(map[string]any{"filename": file, "roll": false}, "output", "file", nil),
	}}}}))
	log, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(log), "could be guessed"), "a start says so:\n%s", log)
}
