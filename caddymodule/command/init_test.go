package command_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// program runs a command of the program in a process of its own, without a terminal.
func program(t *testing.T, environment []string, args ...string) ran {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), programVariable + "=1"}, environment...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	done := ran{}
	if err := cmd.Run(); err != nil {
		done.err = errors.New(stderr.String())
	}
	done.stdout, done.stderr = stdout.String(), stderr.String()
	return done
}

// initIn runs init with its files in dir.
func initIn(t *testing.T, dir string, environment []string, args ...string) ran {
	t.Helper()
	return program(t, environment, append([]string{"svc", "init", "--config", filepath.Join(dir, "Caddyfile")}, args...)...)
}

// dialectOf are the dialects of vendors that don't speak OpenAI's.
var dialectOf = map[string]string{"anthropic": "anthropic", "gemini": "gemini"}

// dialects are the ways in which vendors of the dialects are asked and answer.
var dialects = map[string]struct {
	path                         *regexp.Regexp
	keyHeader, keyPrefix, answer string
}{
	"openai": {
		regexp.MustCompile(`^/v1/chat/completions$`), "Authorization", "Bearer ",
		`{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Say hello to you there."}}],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}`,
	},
	"anthropic": {
		regexp.MustCompile(`^/v1/messages$`), "X-Api-Key", "",
		`{"type":"message","content":[{"type":"text","text":"Say hello to you there."}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":6}}`,
	},
	"gemini": {
		regexp.MustCompile(`^/v1/models/gemini-[^/]+:(g|streamG)enerateContent$`), "X-Goog-Api-Key", "",
		`{"candidates":[{"content":{"parts":[{"text":"Say hello to you there."}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":6}}`,
	},
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
				d := dialects[cmp.Or(dialectOf[name], "openai")]
				authorization.Store(r.Header.Get(d.keyHeader))
				if r.Method != http.MethodPost || !d.path.MatchString(r.URL.Path) {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, d.answer)
			}))
			t.Cleanup(vendor.Close)
			dir := t.TempDir()
			var environment []string
			if variable != "" {
				environment = append(environment, variable+"=sk-planted-"+name)
			}
			args := []string{"--json", "--vendor", name, "--organization", "Acme", "--email", "ops@example.com"}
			if name != "echo" {
				args = append(args, "--base-url", vendor.URL+"/v1")
			}
			done := initIn(t, dir, environment, args...)
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
				require.Equal(t, dialects[cmp.Or(dialectOf[name], "openai")].keyPrefix+"sk-planted-"+name, authorization.Load())
				require.Contains(t, string(env), "\n"+variable+"=sk-planted-"+name+"\n")
			}
			c := &commandLine{t: t, dir: dir}
			require.Equal(t, true, c.json("doctor")["ok"])
			if name != "ollama" {
				require.NotEqual(t, "10000000", c.json("wallet", "show", "--org", made["orgId"].(string))["balanceMicros"], "the call was charged")
			}

			again := initIn(t, dir, environment, "--vendor", name)
			require.ErrorContains(t, again.err, "exists already, and init overwrites nothing")
			kept, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
			require.NoError(t, err)
			require.Equal(t, string(caddyfile), string(kept))
		})
	}
}

// refusing starts a vendor that answers every request with the status, and returns its address.
func refusing(t *testing.T, status int) (address string) {
	t.Helper()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":{"message":"no luck with sk-planted-0123456789abcdef"}}`, status)
	}))
	t.Cleanup(vendor.Close)
	return vendor.URL + "/v1"
}

// A failed trial call prints its real cause and the command that repeats it. The organization and key stay and are shown, and the
// repeated trial succeeds once the cause is gone.
func TestFailedTrial(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, tt := range map[string]struct{ vendor, address, want string }{
		"wrong key":        {"mistral", refusing(t, http.StatusUnauthorized), "refused the key (401). Correct {env.MISTRAL_API_KEY}, which api_key of the provider mistral names."},
		"wants a key":      {"ollama", refusing(t, http.StatusUnauthorized), "wants a key (401), and api_key of the provider ollama is none."},
		"no such model":    {"mistral", refusing(t, http.StatusNotFound), `has no model "mistral-small-latest", or base_url`},
		"no credits":       {"mistral", refusing(t, http.StatusPaymentRequired), "has no credits or quota left (402)"},
		"too many calls":   {"mistral", refusing(t, http.StatusTooManyRequests), "is overloaded or limits its calls (429)"},
		"a broken vendor":  {"mistral", refusing(t, http.StatusInternalServerError), "answered with status 500"},
		"nobody listens":   {"ollama", closed.URL + "/v1", "nobody listens at " + strings.TrimPrefix(closed.URL, "http://") + ". Start the server there, or correct base_url of the provider ollama."},
		"no such host":     {"ollama", "http://nowhere.invalid/v1", "the host nowhere.invalid isn't known"},
		"no vendor at all": {"ollama", refusing(t, http.StatusOK), "gave an answer that isn't one of the provider's protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			done := initIn(t, dir, []string{"MISTRAL_API_KEY=sk-planted-0123456789abcdef"}, "--vendor", tt.vendor, "--base-url", tt.address)
			require.ErrorContains(t, done.err, tt.want)
			require.Regexp(t, `Try again with: \S+ svc try `+tt.vendor+`/\S+ --org org_\w+ --config \S+ --envfile \S+`, done.err.Error())
			require.Regexp(t, `ck_live_\w+`, done.stdout)
			require.NotContains(t, done.stdout+done.stderr, "sk-planted")
		})
	}
}

// TestTry guarantees that a trial can be repeated when its cause is gone, and that it needs neither a model nor an organization to be
// named while there is one.
func TestTry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	caddyfile := filepath.Join(dir, "Caddyfile")
	require.NoError(t, initIn(t, dir, nil, "--vendor", "echo").err)
	done := program(t, nil, "svc", "try", "--json", "--config", caddyfile)
	require.NoError(t, done.err)
	tried := object(t, done.stdout)
	require.Equal(t, "echo/echo-1", tried["model"])
	require.NotEmpty(t, tried["reply"])
	require.NotEqual(t, "0", tried["chargedMicros"])

	require.ErrorContains(t, program(t, nil, "svc", "try", "echo/none", "--config", caddyfile).err, `there is no model "echo/none"; the configuration has: echo/echo-1`)
	require.ErrorContains(t, program(t, nil, "svc", "try", "--org", "org_none", "--config", caddyfile).err, `there is no organization "org_none"`)
	c := &commandLine{t: t, dir: dir}
	c.json("org", "create", "--name", "second")
	require.ErrorContains(t, program(t, nil, "svc", "try", "--config", caddyfile).err, "--org is needed")
}

// TestInitOfAnotherModel guarantees that address, model, key and port can be given, and that the operator is told to check a model's
// figures.
func TestInitOfAnotherModel(t *testing.T) {
	t.Parallel()
	var asked, authorization atomic.Value
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a broken one is not what is wanted
		asked.Store(string(body))
		authorization.Store(r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."}}],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}`)
	}))
	t.Cleanup(vendor.Close)
	for _, name := range []string{"qwen3:8b", "ollama/qwen3:8b"} {
		dir := t.TempDir()
		key := filepath.Join(dir, "key")
		require.NoError(t, os.WriteFile(key, []byte("sk-planted\n"), 0o600))
		done := initIn(t, dir, nil, "--vendor", "ollama", "--base-url", vendor.URL+"/v1", "--model", name, "--key-file", key, "--port", "9000")
		require.NoError(t, done.err)
		require.Contains(t, asked.Load(), `"model":"qwen3:8b"`)
		require.Equal(t, "Bearer sk-planted", authorization.Load())
		require.Contains(t, done.stdout, "Check the window, the largest output and the prices of ollama/qwen3:8b in the Caddyfile: they are those of ollama/llama3.2.")
		require.Contains(t, done.stdout, "curl http://localhost:9000/v1/chat/completions")
		text, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
		require.NoError(t, err)
		for _, part := range []string{"\tmodel ollama/qwen3:8b {\n", "\tapi_key {env.OLLAMA_API_KEY}\n", "base_url http://localhost:9000\n", "\n:9000 {\n", "\nhttp://:9001 {\n", "listen 127.0.0.1:9002\n"} {
			require.Contains(t, string(text), part)
		}
		require.NotContains(t, string(text), "Llama 3.2")
		require.NotContains(t, string(text), "sk-planted")
	}
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
		{`there is no vendor "acme"; choose one of: `, []string{"--vendor", "acme"}},
		{"echo has no address; leave --base-url out", []string{"--base-url", "http://127.0.0.1:1/v1"}},
		{"--base-url: the URL doesn't begin with http:// or https://", []string{"--vendor", "ollama", "--base-url", "127.0.0.1:1"}},
		{"echo takes no key", []string{"--key-file", os.DevNull}},
		{"reading --key-file", []string{"--vendor", "openai", "--key-file", "nowhere"}},
		{"the key of openai is missing", []string{"--vendor", "openai", "--key-file", os.DevNull}},
		{"--domain and --port exclude each other", []string{"--domain", "ai.example.com", "--port", "9000"}},
		{"--port must be at most 65533", []string{"--port", "65534"}},
		{"the URL doesn't begin with postgres:// or postgresql://", []string{"--postgres", "127.0.0.1"}},
		{"the URL doesn't begin with redis:// or rediss://", []string{"--redis", "127.0.0.1"}},
		{"is not a host name", []string{"--domain", "https://ai.example.com"}},
		{"is not an e-mail address", []string{"--email", "ops"}},
		{"the URL has a character", []string{"--redis", "redis://user:pass#word@host"}},
		{"the store", []string{"--postgres", "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"}},
		{"name: is empty", []string{"--organization", " "}},
	} {
		dir := t.TempDir()
		done := initIn(t, dir, nil, tt.args...)
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
			require.ErrorContains(t, initIn(t, dir, nil).err, path+" exists already, and init overwrites nothing", kind)
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
		require.Error(t, initIn(t, dir, nil, args...).err)
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
	done := initIn(t, dir, nil, "--domain", "ai.example.com", "--redis", "redis://user:planted@127.0.0.1:1", "--email", "ops@example.com")
	require.NoError(t, done.err)
	require.Contains(t, done.stdout, "https://ai.example.com/v1/chat/completions")
	require.NotContains(t, done.stdout, "planted")
	text, err := os.ReadFile(filepath.Join(dir, "Caddyfile"))
	require.NoError(t, err)
	for _, part := range []string{"\n\temail ops@example.com\n", "base_url https://ai.example.com\n", "redis {env.SVC_REDIS}\n", "\nai.example.com {\n\tsvc_server\n}\n", "\nhttp://:8081 {\n\tbind 127.0.0.1\n", "listen 127.0.0.1:8082\n"} {
		require.Contains(t, string(text), part)
	}
	require.NotContains(t, string(text), "planted")
}
