package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeyCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")

	plain := c.json("key", "create", "--org", org)
	raw := strOf(t, plain, "key")
	require.True(t, strings.HasPrefix(raw, "ck_live_"))
	require.Equal(t, "live", plain["environment"])
	require.Equal(t, []any{"models:read", "chat:write"}, plain["scopes"])
	require.Nil(t, plain["expiresAt"])

	full := c.json("key", "create", "--org", org, "--name", "shop", "--env", "test",
		"--scopes", "wallet:read,chat:write", "--expires-in-days", "90")
	require.True(t, strings.HasPrefix(strOf(t, full, "key"), "ck_test_"))
	expires, err := time.Parse(time.RFC3339, strOf(t, full, "expiresAt"))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(90*24*time.Hour), expires, time.Hour)
	past := c.json("key", "create", "--org", org, "--expires-at", "2020-01-02T03:04:05+07:00")
	require.Equal(t, "2020-01-01T20:04:05.000Z", past["expiresAt"], "may lie in the past")

	set := func(models string) any {
		return c.json("key", "set", strOf(t, full, "id"), "--models", models)["models"]
	}
	require.Equal(t, []any{"local/echo"}, set("local/echo"))
	require.Equal(t, []any{}, set(""))
	require.Nil(t, set("null"))

	text := c.run("", "key", "create", "--org", org)
	require.NoError(t, text.err)
	require.Regexp(t, `key +ck_live_\w{49}\n`, text.stdout)
	require.Contains(t, text.stdout, "can't be shown again")

	for range 2 { // twice is no fault
		require.Equal(t, map[string]any{"id": plain["id"]}, c.json("key", "revoke", strOf(t, plain, "id")))
	}
	revoked := c.run("", "key", "revoke", strOf(t, plain, "id"))
	require.NoError(t, revoked.err)
	require.Equal(t, "API key "+strOf(t, plain, "id")+" is revoked.\n", revoked.stdout)

	listed := c.run("", "--json", "key", "list", "--org", org)
	require.NoError(t, listed.err)
	require.NotContains(t, listed.stdout, raw)
	list := object(t, listed.stdout)["data"].([]any)
	require.Len(t, list, 4)
	for _, element := range list {
		key := element.(map[string]any)
		require.Equal(t, key["id"] == plain["id"], key["revokedAt"] != nil)
		require.NotContains(t, key, "key")
	}
	table := c.run("", "key", "list", "--org", org)
	require.NoError(t, table.err)
	require.Regexp(t, `(?m)^ID +HINT +NAME +ENVIRONMENT +SCOPES +MODELS +CREATED AT +EXPIRES AT +REVOKED AT\n`, table.stdout)
	require.Regexp(t, `(?m)^key_\w+ +ck_test_\w+… +shop +test +wallet:read,chat:write +- +\S+Z +\S+Z +-$`, table.stdout)
	require.Empty(t, c.json("key", "list", "--org", c.newOrg("Other"))["data"])
}

func TestKeyCommandsRefuse(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org := c.newOrg("Acme")
	raw := strOf(t, c.json("key", "create", "--org", org, "--name", "shop"), "key")
	create := func(args ...string) []string { return append([]string{"key", "create", "--org", org}, args...) }

	c.refused(`required flag(s) "org" not set`, "key", "create")
	c.refused(`there is no organization "org_x"`, "key", "create", "--org", "org_x")
	c.refused(`there is no organization "org_x"`, "key", "list", "--org", "org_x")
	c.refused("has an API key with this name already", create("--name", "shop")...)
	c.refused(`unknown scope "all"; known are models:read, chat:write`, create("--scopes", "all")...)
	c.refused(`--env is not valid: expected value to be one of "live, test"`, create("--env", "prod")...)
	c.refused("--expires-in-days is not valid: expected number >= 1", create("--expires-in-days", "0")...)
	for _, days := range []string{"soon", "NaN", "Inf", "-inf", "1e999"} {
		c.refused("want a number", create("--expires-in-days", days)...)
	}
	c.refused("--expires-at must be a time such as", create("--expires-at", "tomorrow")...)
	c.refused("can't be given beside", create("--expires-at", "2030-01-01T00:00:00Z", "--expires-in-days", "1")...)
	c.refused(`no key has the id "key_x"`, "key", "revoke", "key_x")
	c.refused("is no model of the service", create("--models", "local/echo,none")...)
	c.refused("takes exactly one argument, the key's id; 0 were given", "key", "revoke")

	done := c.run("", "key", "revoke", raw)
	require.ErrorContains(t, done.err, "that is not the id of a key")
	require.NotContains(t, done.stderr, raw[8:])
}

func TestOperatorKeyCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.newOrg("Acme")
	made := c.json("operator", "key", "create", "--name", "sign-up", "--scopes", "organizations:write,api_keys:write", "--expires-in-days", "9")
	require.True(t, strings.HasPrefix(strOf(t, made, "key"), "ck_operator_"))
	c.refused(`unknown scope "chat:write"; known are :read and :write of organizations, api_keys`, "operator", "key", "create", "--name", "x", "--scopes", "chat:write")
	c.refused(`required flag(s) "scopes" not set`, "operator", "key", "create", "--name", "x")
	c.refused("There is an operator key with this name already", "operator", "key", "create", "--name", "sign-up", "--scopes", "wallet:read")
	require.Equal(t, map[string]any{"id": made["id"]}, c.json("operator", "key", "revoke", strOf(t, made, "id")))
	c.refused("There is no operator key with this id", "operator", "key", "revoke", "opk_x")
	table := c.run("", "operator", "key", "list")
	require.NoError(t, table.err)
	require.Regexp(t, `(?m)^opk_\w+ +ck_operator_\w+… +sign-up +organizations:write,api_keys:write +cli:\S.* +\S+Z +\S+Z +\S+Z +-$`, table.stdout)
}

func TestOperatorCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.newOrg("Acme")
	added := c.json("operator", "add", "--email", "LAN@example.com", "--role", "administrator")
	require.Regexp(t, `^/console/welcome#[\w-]{43}$`, strOf(t, added, "link"))
	id := strOf(t, added, "id")
	c.refused("There is an operator with this e-mail address already", "operator", "add", "--email", "lan@example.com", "--role", "viewer")
	c.refused(`--role is not valid: expected value to be one of "viewer, support, administrator"`, "operator", "add", "--email", "a@example.com", "--role", "owner")
	require.Equal(t, "support", c.json("operator", "set", id, "--role", "support")["role"])
	require.Equal(t, "disabled", c.json("operator", "set", id, "--disabled")["state"])
	require.Equal(t, "invited", c.json("operator", "set", id, "--disabled=false")["state"])
	require.NotEqual(t, added["link"], c.json("operator", "reset-password", id)["link"])
	c.refused("none with a second factor", "operator", "reset-second-factor", id)
	table := c.run("", "operator", "list")
	require.NoError(t, table.err)
	require.Regexp(t, `(?m)^opr_\w+ +lan@example.com +support +invited +false +\S+Z$`, table.stdout)
	c.json("operator", "remove", id)
	c.refused("There is no operator with this id", "operator", "remove", id)
}
