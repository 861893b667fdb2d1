package command_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestModelCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	for range 2 { // idempotent
		require.Equal(t, map[string]any{"model": "local/echo", "enabled": false},
			c.json("model", "disable", "--org", org, "local/echo"))
	}
	require.Equal(t, true, c.json("model", "enable", "local/echo", "--org", org)["enabled"])
	text := c.run("", "model", "disable", "--org", org, "local/echo")
	require.NoError(t, text.err)
	require.Equal(t, "Model local/echo is disabled.\n", text.stdout)

	c.refused("There is no model with this id. The configuration has: local/echo, openai/gpt-6-luna.",
		"model", "disable", "--org", org, "openai/gpt-9")
	c.refused(`there is no organization "org_x"`, "model", "enable", "--org", "org_x", "local/echo")
	c.refused("takes exactly one argument, the model's id", "model", "enable", "--org", org)
}

const (
	zero = json.Number("0")
	one  = json.Number("1")
)

const vendorKey = "sk-proj-0123456789abcdefWXYZ"

func TestProviderKeyCommandsAndRekey(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	set := []string{"--json", "provider-key", "set", "--org", org, "--provider", "openai"}

	done := c.run(vendorKey+"\n", set...)
	require.NoError(t, done.err)
	stored := object(t, done.stdout)
	require.Equal(t, "openai", stored["provider"])
	require.NotContains(t, done.stdout, vendorKey)
	require.Equal(t, []any{stored}, c.json("provider-key", "list", "--org", org)["data"])
	c.write("vendor.key", vendorKey)
	require.NoError(t, c.run("", append(set, "--key-file", c.path("vendor.key"))...).err)
	require.NoError(t, c.run(vendorKey, append(set, "--key-file", "-")...).err)

	require.Equal(t, map[string]any{"renewed": zero, "current": one, "unopened": zero, "overtaken": zero}, c.json("rekey"))
	c.write("master.key", masterKey(2))
	lost := c.run("", "--json", "rekey")
	require.ErrorContains(t, lost.err, "sealed with a key that is not in master_key")
	require.Equal(t, one, object(t, lost.stdout)["unopened"])
	c.write("master.key", masterKey(2)+masterKey(1))
	require.Equal(t, one, c.json("rekey")["renewed"])
	c.write("master.key", masterKey(2))
	require.Equal(t, one, c.json("rekey")["current"])

	require.Equal(t, map[string]any{"provider": "openai"}, c.json("provider-key", "delete", "--org", org, "--provider", "openai"))
	c.refused("has no key of its own at this provider", "provider-key", "delete", "--org", org, "--provider", "openai")
	require.ErrorContains(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "gemini").err, "There is no provider with this name")
	c.refused(`there is no organization "org_x"`, "provider-key", "set", "--org", "org_x", "--provider", "openai")
	c.refused("--key-file is not valid: expected length >= 1", "provider-key", "set", "--org", org, "--provider", "openai")
	c.refused("reading the key: open", "provider-key", "set", "--org", org, "--provider", "openai", "--key-file", c.path("none"))
	for _, secret := range []string{"sk-a\nsk-b", strings.Repeat("sk", 1<<20)} {
		done := c.run(secret, set...)
		require.ErrorContains(t, done.err, "key")
		require.NotContains(t, done.stderr, "sk-")
	}
}

// S21: no secret that went through the commands is readable in the store's files.
func TestCommandsLeaveNoSecretInTheStore(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	raw := strOf(t, c.json("key", "create", "--org", org), "key")
	require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)
	files, err := filepath.Glob(c.path("svc.db*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(bytes), raw[12:])
		require.NotContains(t, string(bytes), vendorKey[:20])
	}
}

func TestAuditCommand(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.json("wallet", "credit", "--org", org, "--micros", "5", "--ref", "invoice-17")
	c.json("org", "suspend", org, "--reason", "unpaid")

	entries := c.json("audit")["data"].([]any)
	require.Len(t, entries, 3)
	for i, action := range []string{"suspend", "credit", "create"} {
		entry := entries[i].(map[string]any)
		require.Contains(t, entry["action"], action)
		require.Equal(t, org, entry["orgId"])
		require.Regexp(t, `^cli:.+`, entry["actor"])
	}
	require.Contains(t, entries[1].(map[string]any)["detail"], "invoice-17")
	require.Len(t, c.json("audit", "--limit", "1")["data"], 1)
	c.json("wallet", "adjust", "--org", org, "--micros", "1", "--reason", "two\nlines \x1b[2J", "--ref", "lines")
	text := c.run("", "audit")
	require.NoError(t, text.err)
	require.Contains(t, text.stdout, "two lines  [2J\n")
	c.refused("--limit is 0, want 1 to 10000", "audit", "--limit", "0")
}

func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.json("wallet", "credit", "--org", org, "--micros", "5", "--ref", "a")

	well := c.run("", "doctor")
	require.NoError(t, well.err)
	require.Contains(t, well.stdout, "L1")
	require.Contains(t, well.stdout, "QUEUE")
	require.Contains(t, well.stdout, "No findings.")

	// A program other than the product changes a balance.
	db, err := sql.Open("sqlite", c.path("svc.db"))
	require.NoError(t, err)
	_, err = db.Exec(`UPDATE wallets SET balance_micros = 6`)
	require.NoError(t, err)
	require.NoError(t, db.Close())

	ill := c.run("", "--json", "doctor")
	require.EqualError(t, ill.err, "the books, the queue, a channel's platform, the master key or a vendor break an invariant")
	report := object(t, ill.stdout)
	require.Equal(t, false, report["ok"])
	require.Contains(t, ill.stdout, org)
	require.NotEmpty(t, report["invariants"])
}

// The doctor names each provider key and channel that the master key doesn't open, and checks the books without a master key.
func TestDoctorChecksTheMasterKey(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)
	channel := strOf(t, c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Tea"), "id")
	require.Equal(t, true, c.json("doctor")["ok"])

	c.write("master.key", masterKey(2))
	ill := c.run("", "--json", "doctor")
	require.Error(t, ill.err)
	for _, subject := range []string{org + ":openai", channel, "master_key", "sealed with a key that is not in master_key"} {
		require.Contains(t, ill.stdout, subject)
	}
	c.write("master.key", masterKey(2)+masterKey(1))
	require.Equal(t, true, c.json("doctor")["ok"])
	c.json("rekey")
	c.write("master.key", masterKey(2))
	require.Equal(t, true, c.json("doctor")["ok"])

	require.NoError(t, os.Remove(c.path("master.key")))
	blind := c.run("", "--json", "doctor")
	require.NoError(t, blind.err)
	require.Contains(t, blind.stderr, "svc.master_key was not checked")
}

func TestBackupCommand(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	c.json("wallet", "credit", "--org", org, "--micros", "5", "--ref", "a")
	backup := c.json("backup", c.path("copy.db"))
	require.Equal(t, c.path("copy.db"), backup["path"])
	require.Regexp(t, `^[1-9]\d+$`, backup["bytes"])
	c.refused("exists already; a backup never overwrites", "backup", c.path("copy.db"))
	c.refused("takes exactly one argument, the file to write", "backup")

	// Restore, as the command's help says.
	c.json("wallet", "credit", "--org", org, "--micros", "100", "--ref", "b")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(c.path("svc.db" + suffix)); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
	}
	require.NoError(t, os.Rename(c.path("copy.db"), c.path("svc.db")))
	require.Equal(t, "5", c.json("wallet", "show", "--org", org)["balanceMicros"])
	require.Equal(t, true, c.json("doctor")["ok"])
}

// The commands work on PostgreSQL as well, whose connection string is a secret.
func TestCommandsOnPostgres(t *testing.T) {
	t.Parallel()
	c := onPostgres(t)
	require.Equal(t, map[string]any{"engine": "postgres", "store": c.postgres.Redacted()}, c.json("migrate"))
	org := c.newOrg("Acme")
	c.json("key", "create", "--org", org)
	c.json("wallet", "credit", "--org", org, "--micros", "5", "--ref", "a")
	require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)
	require.Equal(t, one, c.json("rekey")["current"])
	require.Len(t, c.json("audit")["data"], 4)
	require.Equal(t, true, c.json("doctor")["ok"])
	c.refused("use pg_dump", "backup", c.path("copy.db"))
	require.NoFileExists(t, c.path("copy.db"))

	c.write("dsn", "postgres://svc:hunter2@127.0.0.1:1/svc?connect_timeout=1")
	done := c.run("", "org", "list")
	require.ErrorContains(t, done.err, "opening the store")
	require.NotContains(t, done.stderr, "hunter2")
}

// TestDoctorAsksVendors guarantees that the doctor requests the list of models of each vendor once, only with --vendors, and that a
// model that its vendor ends within 7 days is a finding and everything else a warning.
func TestDoctorAsksVendors(t *testing.T) {
	t.Parallel()
	var lists, others atomic.Int64
	var end atomic.Value
	ending := func(days int) string {
		end.Store(time.Now().AddDate(0, 0, days).Format(time.DateOnly))
		return end.Load().(string)
	}
	soon := ending(30)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/models" && r.Header.Get("Authorization") == "Bearer sk-planted" {
			lists.Add(1)
			_, _ = fmt.Fprintf(w, `{"data":[{"id":"gone","shutdown_date":%q}]}`, end.Load())
			return
		}
		others.Add(1)
	}))
	t.Cleanup(vendor.Close)
	c := newCommandLine(t)
	c.write("Caddyfile", strings.Replace(c.caddyfile(), "https://api.openai.com", vendor.URL, 1))
	c.json("migrate")
	environment := []string{"SVC_TEST_NEVER_SET=sk-planted"}
	doctor := func(args ...string) ran {
		return program(t, environment, append([]string{"svc", "doctor", "--config", c.path("Caddyfile")}, args...)...)
	}
	require.NoError(t, doctor().err)
	require.Zero(t, lists.Load())

	absent := doctor("--vendors")
	require.NoError(t, absent.err)
	require.Regexp(t, `Warning: svc\.model\[openai/[\w.-]+\]: the list of the provider openai has no model "[\w.-]+"\.`, absent.stdout)
	require.Contains(t, absent.stdout, "Warning: svc.provider[local]: its protocol has no list of models.\n")
	require.EqualValues(t, 1, lists.Load())

	caddyfile := strings.Replace(c.caddyfile(), "https://api.openai.com", vendor.URL, 1)
	c.write("Caddyfile", strings.Replace(caddyfile, "context_window 128000", "context_window 128000\n\t\t\tupstream_model gone", 1))
	ends := doctor("--vendors", "--json")
	require.NoError(t, ends.err)
	require.Contains(t, object(t, ends.stdout)["warnings"].([]any)[1], "the provider openai ends gone on "+soon)

	soon = ending(2)
	found := doctor("--vendors")
	require.ErrorContains(t, found.err, "or a vendor break an invariant")
	require.Contains(t, found.stdout, "ends gone on "+soon)
	vendor.Close()
	require.Contains(t, doctor("--vendors").stdout, "svc.provider[openai]: nobody listens at "+strings.TrimPrefix(vendor.URL, "http://"))
	require.Zero(t, others.Load())
	require.NotContains(t, absent.stdout+ends.stdout+found.stdout, "sk-planted")
}
