package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOrgCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.json("migrate")

	acme := c.json("org", "create", "--name", " Acme ")
	id := strOf(t, acme, "id")
	require.True(t, strings.HasPrefix(id, "org_"))
	require.Equal(t, "Acme", acme["name"])
	require.Equal(t, "free", acme["plan"], "the first plan of the configuration")
	require.Equal(t, false, acme["suspended"])
	require.Nil(t, acme["suspendedAt"])
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, acme["createdAt"])
	require.Equal(t, "pro", c.json("org", "create", "--name", "Other", "--plan", "pro")["plan"])

	suspended := c.json("org", "suspend", id, "--reason", "unpaid")
	require.Equal(t, true, suspended["suspended"])
	require.NotNil(t, suspended["suspendedAt"])
	require.Equal(t, suspended, c.json("org", "suspend", "--org", id, "--reason", "unpaid"), "twice is no fault and keeps the time")
	require.Equal(t, false, c.json("org", "resume", id)["suspended"])
	require.Equal(t, "pro", c.json("org", "set-plan", id, "--plan", "pro")["plan"])
	require.Equal(t, "Asia/Seoul", c.json("org", "set-time-zone", id, "--time-zone", "Asia/Seoul")["timeZone"])

	list := c.json("org", "list")["data"].([]any)
	require.Len(t, list, 2)
	text := c.run("", "org", "list")
	require.NoError(t, text.err)
	require.Regexp(t, `(?m)^ID +NAME +PLAN +EXTERNAL ID +SUSPENDED AT +CREATED AT\n`+id+` +Acme +pro +- +- +\S+Z$`, text.stdout)
	require.Empty(t, text.stderr)

	c.refused("There is an organization with this name already", "org", "create", "--name", "Acme")
	c.refused("name is empty", "org", "create", "--name", " ")
	c.refused("There is no plan with this name. The configuration has: free, pro.", "org", "create", "--name", "X", "--plan", "gold")
	c.refused("There is no plan with this name", "org", "set-plan", id, "--plan", "gold")
	c.refused("There is no time zone with this name", "org", "set-time-zone", id, "--time-zone", "Local")
	c.refused(`there is no organization "org_x"; `+"`caddy svc org list` shows them", "org", "suspend", "org_x", "--reason", "unpaid")
	c.refused(`there is no organization "org_x"`, "org", "set-plan", "--org", "org_x", "--plan", "pro")
	c.refused("caddy svc org suspend takes the id of one org as its argument, or --org", "org", "suspend", "--reason", "unpaid")
	c.refused("takes the id of one org as its argument", "org", "resume", id, id)
	c.refused("takes the id of one org as its argument", "org", "resume", id, "--org", id)
}
