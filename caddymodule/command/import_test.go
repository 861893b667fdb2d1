package command_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// onPostgres is a command line on an empty PostgreSQL store of its own, with the same master key as newCommandLine's.
func onPostgres(t testing.TB) *commandLine {
	t.Helper()
	c := newCommandLine(t)
	c.postgres = storetest.Location(t, store.Postgres)
	c.write("dsn", c.postgres.DSN)
	c.write("Caddyfile", c.caddyfile())
	return c
}

// furnished is a SQLite store with something of what commands can make, and its organization.
func furnished(t testing.TB) (c *commandLine, org string) {
	t.Helper()
	c = newCommandLine(t)
	org = c.newOrg("Acme")
	c.json("key", "create", "--org", org, "--name", "one")
	c.json("wallet", "credit", "--org", org, "--micros", "1000", "--ref", "a")
	c.json("wallet", "adjust", "--org", org, "--micros", "-1", "--reason", "rounding", "--ref", "b")
	c.json("model", "disable", "--org", org, "openai/gpt-6-luna")
	require.NoError(t, c.run(vendorKey, "provider-key", "set", "--org", org, "--provider", "openai").err)
	agent := strOf(t, c.json("agent", "create", "--org", org, "--name", "Mai", "--model", "local/echo"), "id")
	c.newChannel(botCredentials, "--org", org, "--type", "bot", "--name", "Bot", "--agent", agent)
	return c, org
}

// shows is what commands tell of a store.
func (c *commandLine) shows(org string) (shown []map[string]any) {
	c.t.Helper()
	for _, args := range [][]string{
		{"org", "list"},
		{"key", "list", "--org", org},
		{"wallet", "show", "--org", org},
		{"channel", "list", "--org", org},
		{"agent", "list", "--org", org},
		{"audit"},
		{"doctor"},
	} {
		shown = append(shown, c.json(args...))
	}
	return shown
}

// A store moves to PostgreSQL through a compressed file, and back through a pipe; the doctor finds nothing on any side,
// and what was encrypted opens with the same master key.
func TestExportAndImportCommands(t *testing.T) {
	t.Parallel()
	source, org := furnished(t)
	want := source.shows(org)
	file := source.path("move.gz")

	out := source.json("export", file)
	require.Equal(t, file, out["path"])
	require.Regexp(t, `^arc_`, out["archive"])
	require.Equal(t, one, out["tables"].(map[string]any)["provider_keys"])
	require.Equal(t, zero, out["tables"].(map[string]any)["calls"])
	about, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, about.Mode().Perm())
	packed, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "\x1f\x8b", string(packed[:2]))

	postgres := onPostgres(t)
	in := postgres.json("import", file)
	require.Equal(t, out["archive"], in["archive"])
	require.Equal(t, out["rows"], in["rows"])
	require.Equal(t, out["tables"], in["tables"])
	require.Equal(t, "postgres", in["engine"])
	require.Equal(t, want, postgres.shows(org))
	rekeyed := postgres.json("rekey")
	require.Equal(t, json.Number("2"), rekeyed["current"], "%v", rekeyed)

	piped := postgres.run("", "export", "-")
	require.NoError(t, piped.err)
	require.True(t, strings.HasPrefix(piped.stdout, `{"format":"caddy-svc archive","version":1,`))
	require.Contains(t, piped.stderr, "needs the same master_key")
	require.NotContains(t, piped.stdout, "lanted", "secrets stay encrypted")
	require.NotContains(t, piped.stdout, vendorKey)

	back := newCommandLine(t)
	done := back.run(piped.stdout, "import", "-")
	require.NoError(t, done.err)
	require.Contains(t, done.stdout, "is in the sqlite store "+back.path("svc.db"))
	require.Contains(t, done.stderr, "rows imported, at ")
	require.Equal(t, want[:5], back.shows(org)[:5], "the audit log has the rekey more")
	require.Equal(t, true, back.json("doctor")["ok"])
}

func TestExportCommandRefuses(t *testing.T) {
	t.Parallel()
	c, _ := furnished(t)
	c.write("there", "precious")
	c.refused("exists already; an export never overwrites", "export", c.path("there"))
	precious, err := os.ReadFile(c.path("there"))
	require.NoError(t, err)
	require.Equal(t, "precious", string(precious))
	c.refused("takes exactly one argument, the file to write, or - for standard output", "export")
	c.refused("creating the archive: ", "export", c.path("no/such/folder"))
	done := c.run("", "--json", "export", "-")
	require.ErrorContains(t, done.err, "standard output takes either the archive or the result")
	require.Empty(t, done.stdout)

	c.write("master.key", "nonsense")
	c.refused("svc.master_key: ", "export", c.path("new"))
	require.NoFileExists(t, c.path("new"))
	newCommandLine(t).refused("there is no store", "export", c.path("new"))
	require.NoFileExists(t, c.path("new"))
}

// What can't be imported is refused with what to do, and the store stays as empty as it was.
func TestImportCommandRefuses(t *testing.T) {
	t.Parallel()
	source, org := furnished(t)
	source.json("export", source.path("archive"))

	c := newCommandLine(t)
	c.refused("takes exactly one argument, the archive to read", "import")
	c.refused("opening the archive: ", "import", c.path("none"))
	c.refused("this is no archive of `caddy svc export`", "import", c.path("Caddyfile"))
	c.write("later", `{"format":"caddy-svc archive","version":1,"id":"arc_1","schema":1000,"engine":"sqlite","createdAt":1}`+"\n")
	c.refused("its tables have version 1000, this program's 1\nimport it with a program of the version that wrote it", "import", c.path("later"))

	c.write("master.key", masterKey(2))
	c.refused("sealed with a key that is not in master_key\ngive this configuration the master_key", "import", source.path("archive"))
	require.Empty(t, c.json("org", "list")["data"])
	c.write("master.key", masterKey(2)+masterKey(1))
	c.json("import", source.path("archive"))
	c.refused("table organizations has rows\nan import needs a new database", "import", source.path("archive"))
	require.Equal(t, "999", c.json("wallet", "show", "--org", org)["balanceMicros"])
}

// TestImportCommandStartsOver guarantees that a truncated archive leaves the store empty, and that a whole copy is imported then.
func TestImportCommandStartsOver(t *testing.T) {
	t.Parallel()
	source, org := furnished(t)
	archive := source.run("", "export", "-").stdout
	for name, c := range map[string]*commandLine{"sqlite": newCommandLine(t), "postgres": onPostgres(t)} {
		cut := archive[:strings.LastIndex(archive, `{"end"`)]
		done := c.run(cut, "--json", "import", "-")
		require.ErrorContains(t, done.err, "the archive is cut", name)
		require.ErrorContains(t, done.err, "run the same command with a whole copy", name)
		require.Empty(t, done.stdout)
		require.Empty(t, c.json("org", "list")["data"])
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		_, err := zip.Write([]byte(archive))
		require.NoError(t, err)
		require.NoError(t, zip.Close())
		done = c.run(packed.String(), "--json", "import", "-")
		require.NoError(t, done.err)
		require.Equal(t, source.shows(org), c.shows(org), name)
	}
}
