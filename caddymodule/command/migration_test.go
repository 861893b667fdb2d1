package command_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// workingCommands need a store of this program's version. Together with those of TestCommandsThatMayMigrate and withoutStore they are all.
var workingCommands = []string{
	"org create --name Acme", "org list", "org suspend org_1 --reason unpaid", "org resume org_1", "org set-plan org_1 --plan pro",
	"org set-time-zone org_1 --time-zone UTC",
	"org show org_1", "user reset-second-factor --org org_1 --email a@b.vn",
	"operator add --email a@b.vn --role viewer", "operator list", "operator set opr_1", "operator remove opr_1", "operator reset-password opr_1",
	"operator reset-second-factor opr_1", "operator key list",
	"user invite --org org_1 --email a@b.vn --role owner", "user reset --org org_1 --email a@b.vn", "user list --org org_1",
	"user set --org org_1 --email a@b.vn --role owner", "user remove --org org_1 --email a@b.vn",
	"key create --org org_1", "key list --org org_1", "key set key_1", "key revoke key_1",
	"wallet credit --org org_1 --micros 1 --ref a", "wallet adjust --org org_1 --micros 1 --reason b --ref a", "wallet refund call_1", "wallet calls --org org_1",
	"wallet show --org org_1", "wallet statements --org org_1", "wallet statement --org org_1 --month 2026-10", "wallet export --org org_1", "usage export",
	"payment list", "payment show pay_1", "payment match pay_1 --org org_1", "payment ignore pay_1 --reason a",
	"budget create --org org_1 --name a --period day --limit-micros 1", "budget list --org org_1", "budget show bud_1", "budget set bud_1", "budget end bud_1",
	"budget raise bud_1 --micros 1 --ends-at 2100-01-01T00:00:00Z --reason a", "budget end-rise rise_1 --budget bud_1",
	"model enable --org org_1 local/echo", "model disable --org org_1 local/echo",
	"provider-key set --org org_1 --provider openai", "provider-key list --org org_1", "provider-key delete --org org_1 --provider openai",
	"agent create --org org_1 --name a --model local/echo", "agent list --org org_1", "agent show agt_1", "agent set agt_1", "agent delete agt_1",
	"channel create --org org_1 --type bot --name a", "channel list --org org_1", "channel show chn_1", "channel set chn_1", "channel approve chn_1",
	"channel delete chn_1",
	"queue dead", "queue standing --org org_1", "queue retry trn_1", "queue dismiss --org org_1", "queue resend out_1 --conversation cnv_1",
	"conversation block cnv_1", "conversation unblock cnv_1", "conversation erase cnv_1", "conversation export cnv_1 --org org_1 --file DIR/conversation",
	"doctor", "rekey", "audit", "backup DIR/copy.db", "export DIR/archive", "status", "vendors", "try",
}

var (
	mayMigrate   = []string{"migrate", "import", "init"}
	withoutStore = []string{"health", "version", "help", "catalog import"}
)

// TestEveryCommandIsListed guarantees that the lists above have every command.
func TestEveryCommandIsListed(t *testing.T) {
	t.Parallel()
	svc := &cobra.Command{Use: "svc <command>"}
	caddycmd.Commands()["svc"].CobraFunc(svc)
	var all []string
	for _, command := range svc.Commands() {
		if !command.HasSubCommands() {
			all = append(all, command.Name())
		}
		for _, verb := range command.Commands() {
			all = append(all, command.Name()+" "+verb.Name())
		}
	}
	listed := slices.Concat(mayMigrate, withoutStore)
	for _, line := range workingCommands {
		at := slices.IndexFunc(all, func(name string) bool { return line == name || strings.HasPrefix(line, name+" ") })
		require.NotEqual(t, -1, at, "there is no command %s", line)
		listed = append(listed, all[at])
	}
	require.ElementsMatch(t, all, listed)
}

// TestCommandsMakeNoStore guarantees that a command, other than migrate, import and init, makes no store where there is none, which most
// likely is the wrong directory, and doesn't fill an empty one.
func TestCommandsMakeNoStore(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	refused := func(want string) {
		t.Helper()
		for _, line := range workingCommands {
			c.refused(want, strings.Fields(strings.ReplaceAll(line, "DIR", c.dir))...)
		}
	}
	refused("there is no store " + c.path("svc.db") + " yet; is this the server's working directory? `caddy svc migrate` makes a new one")
	require.NoFileExists(t, c.path("svc.db"))
	c.write("svc.db", "")
	refused("there is no store " + c.path("svc.db") + " yet")
	file, err := os.ReadFile(c.path("svc.db"))
	require.NoError(t, err)
	require.Empty(t, file)
	c.json("migrate")
	c.json("migrate") // can be repeated
	require.Empty(t, c.json("org", "list")["data"])
}

// TestCommandsRefuseOtherVersions guarantees that commands refuse a store that an older or a newer program has made, or a build from before
// the first release, with a sentence that says what to do, and change nothing in it.
func TestCommandsRefuseOtherVersions(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(testing.TB) *commandLine{"sqlite": newCommandLine, "postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testOtherVersions(t, begin(t))
		})
	}
}

func testOtherVersions(t *testing.T, c *commandLine) {
	t.Helper()
	c.json("migrate")
	location := c.postgres
	if location.DSN == "" {
		location = store.Location{Engine: store.SQLite, DSN: c.path("svc.db")}
	}
	db, err := store.Open(t.Context(), location, store.Options{})
	require.NoError(t, err)
	defer db.Close(context.Background())
	exec := func(statement string) {
		t.Helper()
		require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(store.AnyRows, statement)
			return nil
		}))
	}
	columns := storetest.Columns(t, db.Reader(), location.Engine)
	for _, state := range []struct {
		is        error
		says      string
		migrates  bool
		statement string
	}{
		{store.ErrNewer, "its tables have version 1000", false, `UPDATE schema_migrations SET version_id = 1000 WHERE version_id = 1`},
		{store.ErrOlder, "run `caddy svc migrate`", true, `DELETE FROM schema_migrations WHERE version_id = 1000`},
		{store.ErrUnreleased, "begin with an empty database", false, `CREATE TABLE schema_versions (version_id BIGINT)`},
	} {
		exec(state.statement)
		before := storetest.Contents(t, db.Reader(), columns)
		for _, line := range workingCommands {
			done := c.run("", strings.Fields(strings.ReplaceAll(line, "DIR", c.dir))...)
			require.ErrorIs(t, done.err, state.is, line)
			require.ErrorContains(t, done.err, state.says, line)
			require.Empty(t, done.stdout, line)
		}
		require.Equal(t, before, storetest.Contents(t, db.Reader(), columns))
		if !state.migrates {
			require.ErrorIs(t, c.run("", "migrate").err, state.is)
		}
	}
}
