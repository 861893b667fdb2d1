package command_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	_ "github.com/caddy-svc/caddy-svc/caddymodule/command"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// commandLine runs `caddy svc …` in this process on a Caddyfile and a store of its own: SQLite, unless postgres has a location.
type commandLine struct {
	t        testing.TB
	dir      string
	postgres store.Location
}

func newCommandLine(t testing.TB) *commandLine {
	t.Helper()
	c := &commandLine{t: t, dir: t.TempDir()}
	c.write("master.key", masterKey(1))
	c.write("Caddyfile", c.caddyfile())
	return c
}

func masterKey(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)) + "\n"
}

func (c *commandLine) path(name string) string { return filepath.Join(c.dir, name) }

func (c *commandLine) write(name, text string) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(c.path(name), []byte(text), 0o600))
}

func (c *commandLine) caddyfile() string {
	storage := "sqlite " + c.path("svc.db")
	if c.postgres.DSN != "" {
		storage = "postgres {file." + c.path("dsn") + "}"
	}
	return strings.NewReplacer("STORE", storage, "DIR", c.dir).Replace(`{
	admin off
	svc {
		base_url http://localhost:8080
		store STORE
		master_key {file.DIR/master.key}
		plan free {
			requests_per_minute 60
		}
		plan pro {
			requests_per_minute 6000
		}
		provider openai {
			protocol openai
			base_url https://api.openai.com/v1
			api_key {env.SVC_TEST_NEVER_SET}
		}
		provider local {
			protocol echo
		}
		model openai/gpt-6-luna {
			context_window 128000
			max_output_tokens 16384
			price_input 150000
			price_output 600000
		}
		model local/echo {
			context_window 8000
			max_output_tokens 1000
			price_input 0
			price_output 0
		}
	}
}
`)
}

// ran is how a command ended.
type ran struct {
	stdout, stderr string
	err            error
}

// run runs the command with its Caddyfile.
func (c *commandLine) run(stdin string, args ...string) ran {
	c.t.Helper()
	return execute(c.t, stdin, append([]string{"--config", c.path("Caddyfile")}, args...)...)
}

// execute runs `caddy svc` with the arguments, as Caddy's main does.
func execute(t testing.TB, stdin string, args ...string) ran {
	t.Helper()
	root := &cobra.Command{Use: "caddy", SilenceUsage: true}
	svc := &cobra.Command{Use: "svc <command>"}
	caddycmd.Commands()["svc"].CobraFunc(svc)
	root.AddCommand(svc)
	var stdout, stderr bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"svc"}, args...))
	err := root.ExecuteContext(t.Context())
	return ran{stdout.String(), stderr.String(), err}
}

// json runs the command with --json, which must succeed, and gives its one object.
func (c *commandLine) json(args ...string) map[string]any {
	c.t.Helper()
	done := c.run("", append([]string{"--json"}, args...)...)
	require.NoError(c.t, done.err, "%v", args)
	return object(c.t, done.stdout)
}

// object decodes text, which must be exactly one JSON object and a line break.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var found map[string]any
	require.NoError(t, decoder.Decode(&found), text)
	require.False(t, decoder.More(), "more than one value: %s", text)
	require.True(t, strings.HasSuffix(text, "}\n"), text)
	return found
}

// refused runs the command, which must fail with want in its message, write no result, and say so on standard error.
func (c *commandLine) refused(want string, args ...string) {
	c.t.Helper()
	for _, args := range [][]string{args, append([]string{"--json"}, args...)} {
		done := c.run("", args...)
		require.ErrorContains(c.t, done.err, want, "%v", args)
		require.Empty(c.t, done.stdout, "%v", args)
		require.Contains(c.t, done.stderr, want, "%v", args)
	}
}

func (c *commandLine) newOrg(name string) string {
	c.t.Helper()
	c.json("migrate")
	return c.json("org", "create", "--name", name)["id"].(string)
}

func strOf(t testing.TB, object map[string]any, key string) string {
	t.Helper()
	text, ok := object[key].(string)
	require.True(t, ok, "%s in %v", key, object)
	return text
}

// Every noun without a verb fails and names its verbs; so does a verb that doesn't exist.
func TestCommandsThatDoNotExist(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"caddy svc needs one of: org, user, key, wallet, ":                                   {},
		`caddy svc has no command "frobnicate"; it has: org, user, key`:                      {"frobnicate"},
		"caddy svc org needs one of: create, list, suspend, resume, set-plan, set-time-zone": {"org"},
		`caddy svc org has no command "delete"`:                                              {"org", "delete", "org_1"},
		"unknown flag: --frob":                                                               {"org", "list", "--frob"},
		`required flag(s) "name" not set`:                                                    {"org", "create"},
		`caddy svc org list takes flags only, no argument "more"`:                            {"org", "list", "more"},
	} {
		done := execute(t, "", args...)
		require.ErrorContains(t, done.err, want)
		require.Empty(t, done.stdout)
	}
}

// Help names every command and shows examples, without a configuration.
func TestHelp(t *testing.T) {
	t.Parallel()
	done := execute(t, "", "--help")
	require.NoError(t, done.err)
	for name := range strings.FieldsSeq("org user key wallet model provider-key agent channel queue conversation migrate doctor rekey audit backup --config --adapter --envfile --json") {
		require.Contains(t, done.stdout, name)
	}
	done = execute(t, "", "key", "create", "--help")
	require.NoError(t, done.err)
	require.Contains(t, done.stdout, "knowledge_bases:write")
	require.Contains(t, done.stdout, "$ caddy svc key create")
}
