package caddymodule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

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
