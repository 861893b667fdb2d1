package main

import (
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// composeFolder is the folder of compose.yaml and of what it mounts.
const composeFolder = "../compose"

// loadCompose decodes compose.yaml as Compose itself does: strictly, with every variable of example.env set.
func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	example, err := os.ReadFile(filepath.Join(composeFolder, "example.env"))
	require.NoError(t, err)
	environment := types.Mapping{}
	for _, setting := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(example), -1) {
		environment[setting[1]] = "v" + strings.ToLower(strings.ReplaceAll(setting[1], "_", ""))
	}
	load := func(environment types.Mapping) (*types.Project, error) {
		return loader.LoadWithContext(t.Context(), types.ConfigDetails{
			WorkingDir: composeFolder, Environment: environment,
			ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(composeFolder, "compose.yaml")}},
		}, func(o *loader.Options) { o.SetProjectName("caddy-svc", false) })
	}
	for missing := range environment { // a forgotten one is an error, and not an empty password
		others := environment.Clone()
		delete(others, missing)
		_, err := load(others)
		require.ErrorContains(t, err, missing)
	}
	project, err := load(environment)
	require.NoError(t, err)
	return project
}

// TestCompose guarantees that compose.yaml is valid, runs the product without rights and only the front at the machine's ports,
// and that every Caddyfile which it mounts is valid for the product in the environment that the file gives it.
func TestCompose(t *testing.T) {
	t.Parallel()
	project := loadCompose(t)
	require.ElementsMatch(t, []string{"front", "node-1", "node-2", "worker", "postgres", "redis"}, project.ServiceNames())
	for name, service := range project.Services {
		require.Equal(t, name == "front", len(service.Ports) > 0, name)
		require.Equal(t, "unless-stopped", service.Restart, name)
		if !strings.HasPrefix(service.Image, "caddy-svc:") {
			require.NotNil(t, service.HealthCheck, name)
			require.Equal(t, []string{"inside"}, service.NetworksByPriority(), name)
			continue
		}
		require.True(t, service.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, service.CapDrop, name)
		require.Empty(t, service.User, "%s: the image has its own", name)
		requireValidCaddyfile(t, service)
	}
	require.True(t, project.Networks["inside"].Internal)
	require.Equal(t, []string{"svc-worker", "--config", "/etc/caddy-svc/Caddyfile"}, []string(project.Services["worker"].Command))
}

// requireValidCaddyfile requires that the product accepts the Caddyfile that a service mounts, and that the secrets which it
// names are the service's.
func requireValidCaddyfile(t *testing.T, service types.ServiceConfig) {
	t.Helper()
	caddy := os.Getenv("SVC_CADDY")
	require.NotEmpty(t, caddy, "SVC_CADDY names the built binary")
	dir, credentials := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	for _, secret := range service.Secrets {
		key := base64.StdEncoding.EncodeToString(make([]byte, 32))
		require.NoError(t, os.WriteFile(filepath.Join(credentials, secret.Source), []byte(key), 0o600))
	}
	mounted := ""
	for _, volume := range service.Volumes {
		if volume.Target == "/etc/caddy-svc/Caddyfile" {
			mounted = volume.Source
		}
	}
	require.NotEmpty(t, mounted, service.Name)
	environment := []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "CREDENTIALS_DIRECTORY=" + credentials}
	for name, value := range service.Environment {
		require.NotNil(t, value, name)
		environment = append(environment, name+"="+*value)
	}
	path, err := filepath.Abs(mounted)
	require.NoError(t, err)
	program, err := filepath.Abs(caddy)
	require.NoError(t, err)
	for _, command := range [][]string{{"validate", "--config", path}, {"fmt", "--diff", path}} {
		cmd := exec.CommandContext(t.Context(), program, command...)
		cmd.Dir, cmd.Env = dir, environment
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: caddy %v: %s", service.Name, command, output)
	}
}
