package command_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule"
)

// TestVersion guarantees that the version command needs no configuration, and agrees with what the process tells elsewhere.
func TestVersion(t *testing.T) {
	t.Parallel()
	done := execute(t, "", "version", "--json")
	require.NoError(t, done.err)
	told := object(t, done.stdout)
	require.Equal(t, caddymodule.Version(), told["version"])
	require.Equal(t, runtime.Version(), told["go"])
	require.NotEmpty(t, told["caddy"])
	require.Regexp(t, `^caddy-svc +\S+\nCaddy +\S+\nGo +go\S+\n$`, execute(t, "", "version").stdout)
}

// TestHelpCommand guarantees that `caddy svc help` finds the commands.
func TestHelpCommand(t *testing.T) {
	t.Parallel()
	require.Contains(t, execute(t, "", "help", "model").stdout, "caddy svc model")
	require.Contains(t, execute(t, "", "help", "wallet", "credit").stdout, "--micros")
	require.Contains(t, execute(t, "", "help").stdout, "caddy svc org create")
	require.ErrorContains(t, execute(t, "", "help", "everything").err, `has no command "everything"`)
}
