package command_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// vendorVariables are the variables of the vendors' keys.
var vendorVariables = map[string]string{
	"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY", "xai": "XAI_API_KEY",
	"deepseek": "DEEPSEEK_API_KEY", "mistral": "MISTRAL_API_KEY", "groq": "GROQ_API_KEY", "openrouter": "OPENROUTER_API_KEY",
	"ollama": "", "echo": "",
}

// initIn runs init in a process of its own, with its files in dir, the vendors at address ("own" for their own) and no terminal.
func initIn(t *testing.T, dir, address string, environment []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"--config", filepath.Join(dir, "Caddyfile")}, args...)...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), initVariable + "=" + address}, environment...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	done := ran{}
	if err := cmd.Run(); err != nil {
		done.err = errors.New(stderr.String())
	}
	done.stdout, done.stderr = stdout.String(), stderr.String()
	return done
}

// TestInit guarantees, for each vendor, that init writes files which work, with safe modes, and makes an organization whose
// key, credits and model do: it calls the vendor once, with the vendor's key.
func TestInit(t *testing.T) {
	t.Parallel()
	for name, variable := range vendorVariables {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			var authorization atomic.Value
			vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				authorization.Store(r.Header.Get("Authorization"))
				if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop",
					"message":{"role":"assistant","content":"Say hello to you there."}}],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}`)
			}))
			t.Cleanup(vendor.Close)
			dir := t.TempDir()
			var environment []string
			if variable != "" {
				environment = append(environment, variable+"=sk-planted-"+name)
			}
			done := initIn(t, dir, vendor.URL+"/v1", environment, "--json", "--vendor", name, "--organization", "Acme", "--email", "ops@example.com")
			require.NoError(t, done.err)
			made := object(t, done.stdout)
			require.Contains(t, made["reply"], "ello")
			require.NotContains(t, done.stdout+done.stderr, "sk-planted")
			require.Regexp(t, `^`+name+`/`, made["model"])
			require.Regexp(t, `^ck_live_`, made["key"])
			require.Regexp(t, `^http://localhost:8080/dashboard/welcome#?`, made["link"])

			modes := map[string]os.FileMode{"Caddyfile": 0o644, "svc.env": 0o600, "data/master.key": 0o600}
			for file, mode := range modes {
				info, err := os.Stat(filepath.Join(dir, file))
				require.NoError(t, err)
				require.Equal(t, mode, info.Mode().Perm()&(mode|0o077), file)
			}
			caddyfile, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
			require.NoError(t, err)
			require.NotContains(t, string(caddyfile), "sk-planted")
			env, err := os.ReadFile(filepath.Join(dir, "svc.env"))
			require.NoError(t, err)
			switch {
			case name == "echo":
				require.Zero(t, calls.Load())
			case variable == "":
				require.EqualValues(t, 1, calls.Load())
				require.Empty(t, authorization.Load())
			default:
				require.EqualValues(t, 1, calls.Load())
				require.Equal(t, "Bearer sk-planted-"+name, authorization.Load())
				require.Contains(t, string(env), "\n"+variable+"=sk-planted-"+name+"\n")
			}
			c := &commandLine{t: t, dir: dir}
			require.Equal(t, true, c.json("doctor")["ok"])
			if name != "ollama" {
				require.NotEqual(t, "10000000", c.json("wallet", "show", "--org", made["orgId"].(string))["balanceMicros"], "the call was charged")
			}

			again := initIn(t, dir, vendor.URL+"/v1", environment, "--vendor", name)
			require.ErrorContains(t, again.err, "exists already, and init overwrites nothing")
			kept, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
			require.NoError(t, err)
			require.Equal(t, string(caddyfile), string(kept))
		})
	}
}

// TestInitOfAVendorThatRefuses guarantees that a wrong key is said, and that what was made stays and is shown.
func TestInitOfAVendorThatRefuses(t *testing.T) {
	t.Parallel()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"message":"bad key sk-planted"}}`, http.StatusUnauthorized)
	}))
	t.Cleanup(vendor.Close)
	dir := t.TempDir()
	done := initIn(t, dir, vendor.URL+"/v1", []string{"MISTRAL_API_KEY=sk-planted"})
	require.ErrorContains(t, done.err, "the first call of mistral/mistral-small-latest failed with status 5")
	require.ErrorContains(t, done.err, "Check the vendor's key in "+filepath.Join(dir, "svc.env"))
	require.Regexp(t, `ck_live_\w+`, done.stdout)
	require.NotContains(t, done.stdout+done.stderr+done.err.Error(), "sk-planted")
}

// TestInitRefuses guarantees that a wrong answer ends init before it writes anything, and that a store that can't be opened
// leaves no file.
func TestInitRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"the key of openai is missing: set OPENAI_API_KEY", []string{"--vendor", "openai"}},
		{`there is no vendor "acme"`, []string{"--vendor", "acme"}},
		{"is not a host name", []string{"--domain", "https://ai.example.com"}},
		{"is not an e-mail address", []string{"--email", "ops"}},
		{"SVC_REDIS has a character", []string{"--redis", "redis://user:pass#word@host"}},
		{"the store", []string{"--postgres", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"}},
		{"name: is empty", []string{"--organization", " "}},
	} {
		dir := t.TempDir()
		done := initIn(t, dir, "own", nil, tt.args...)
		require.ErrorContains(t, done.err, tt.want)
		require.Empty(t, done.stdout)
		for _, pattern := range []string{"Caddyfile", "svc.env", "data/*"} {
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			require.Empty(t, files, tt.want)
		}
	}
}

// TestInitOverwritesNothing guarantees that init ends before it writes anything when one of its files is there, whatever it is,
// and that a run which fails later removes only what it has written itself.
func TestInitOverwritesNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Caddyfile", "svc.env", "data/master.key", "data/svc.db"} {
		for kind, place := range map[string]func(path string) error{
			"file": func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
			"link": func(path string) error { return os.Symlink("nowhere", path) },
		} {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
			path := filepath.Join(dir, name)
			require.NoError(t, place(path))
			require.ErrorContains(t, initIn(t, dir, "own", nil).err, path+" exists already, and init overwrites nothing", kind)
			require.Equal(t, []string{name}, filesIn(t, dir), kind)
			if kind == "file" {
				requireText(t, path, "precious")
			}
		}
	}

	for _, args := range [][]string{
		{"--organization", " "}, {"--postgres", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"},
	} {
		dir := t.TempDir()
		backup := filepath.Join(dir, "data", "svc.db.broken") // docs/operating.md, "Backup and restore"
		require.NoError(t, os.Mkdir(filepath.Dir(backup), 0o700))
		require.NoError(t, os.WriteFile(backup, []byte("precious"), 0o600))
		require.Error(t, initIn(t, dir, "own", nil, args...).err)
		require.Equal(t, []string{"data/svc.db.broken"}, filesIn(t, dir))
		requireText(t, backup, "precious")
	}
}

// filesIn are the paths of all files below a folder, sorted.
func filesIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			within, _ := filepath.Rel(dir, path) // it is below
			paths = append(paths, within)
		}
		return err
	}))
	return paths
}

func requireText(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
}

// TestInitWithEverything guarantees that the answers for production stand in the files.
func TestInitWithEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := initIn(t, dir, "own", nil, "--domain", "ai.example.com", "--redis", "redis://user:planted@127.0.0.1:1", "--email", "ops@example.com")
	require.NoError(t, done.err)
	require.Contains(t, done.stdout, "https://ai.example.com/v1/chat/completions")
	require.NotContains(t, done.stdout, "planted")
	text, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
	require.NoError(t, err)
	for _, part := range []string{"\n\temail ops@example.com\n", "base_url https://ai.example.com\n", "redis {env.SVC_REDIS}\n", "\nai.example.com {\n\tsvc_server\n}\n"} {
		require.Contains(t, string(text), part)
	}
	require.NotContains(t, string(text), "planted")
}
