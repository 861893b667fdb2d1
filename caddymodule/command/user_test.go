package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUserCommands(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org, other := c.newOrg("Acme"), c.newOrg("Other")

	invited := c.json("user", "invite", "--org", org, "--email", " Lan@Example.com", "--role", "owner")
	require.True(t, strings.HasPrefix(strOf(t, invited, "id"), "usr_"))
	require.Equal(t, "lan@example.com", invited["email"])
	require.Equal(t, "owner", invited["role"])
	require.Regexp(t, `^http://localhost:8080/dashboard/welcome#[A-Za-z0-9_-]{43}$`, invited["link"])
	require.Regexp(t, `^\d{4}-\d\d-\d\dT`, invited["linkExpiresAt"])

	reset := c.json("user", "reset", "--org", org, "--email", "LAN@example.com")
	require.Equal(t, invited["id"], reset["id"])
	require.NotEqual(t, invited["link"], reset["link"])
	require.Equal(t, "administrator", c.json("user", "invite", "--org", org, "--email", "tu@example.com", "--role", "administrator")["role"])
	require.Equal(t, "member", c.json("user", "set", "--org", org, "--email", "tu@example.com", "--role", "member")["role"])

	text := c.run("", "user", "reset", "--org", org, "--email", "lan@example.com")
	require.NoError(t, text.err)
	require.Contains(t, text.stdout, "http://localhost:8080/dashboard/welcome#")
	require.Contains(t, text.stdout, "No e-mail is sent")

	c.refused("has a user, or an open invitation, with this e-mail address", "user", "invite", "--org", org, "--email", "lan@example.com", "--role", "member")
	c.refused("organization "+other+` has no user with the e-mail address "lan@example.com"`, "user", "reset", "--org", other, "--email", "lan@example.com")
	c.refused("is not an e-mail address", "user", "invite", "--org", org, "--email", "lan", "--role", "member")
	c.refused("email: is not an e-mail address", "user", "reset", "--org", org, "--email", "lan")
	c.refused(`role is not valid: expected value to be one of "member, administrator, owner"`, "user", "invite", "--org", org, "--email", "a@b", "--role", "boss")
	c.refused("role is not valid", "user", "set", "--org", org, "--email", "lan@example.com", "--role", "boss")
	c.refused(`there is no organization "org_x"`, "user", "invite", "--org", "org_x", "--email", "a@b", "--role", "member")
	c.refused(`required flag(s) "email", "role" not set`, "user", "invite", "--org", org)

	// The audit log of one organization names actor and action, without the links.
	log := c.json("audit", "--org", org, "--limit", "3")["data"].([]any)
	require.Len(t, log, 3)
	for _, entry := range log {
		require.Equal(t, org, entry.(map[string]any)["orgId"])
		require.True(t, strings.HasPrefix(strOf(t, entry.(map[string]any), "actor"), "cli"))
	}
	all := c.run("", "--json", "audit", "--org", org)
	require.NoError(t, all.err)
	require.NotContains(t, all.stdout, other)
	require.NotContains(t, all.stdout, strings.Split(strOf(t, reset, "link"), "#")[1])
	require.Len(t, c.json("audit", "--org", org)["data"], 6)
	require.Len(t, c.json("audit", "--org", other)["data"], 1)
	c.refused("There is no organization with this id", "audit", "--org", "org_x")
}

// TestUserRemove: the operator sees the users, and frees an address that an organization holds without being its owner.
func TestUserRemove(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	org, other := c.newOrg("Acme"), c.newOrg("Other")
	lan := c.json("user", "invite", "--org", org, "--email", "lan@example.com", "--role", "owner")
	users := func(org string) []any { return c.json("user", "list", "--org", org)["data"].([]any) }
	require.Len(t, users(org), 1)
	require.Empty(t, users(other))
	listed := users(org)[0].(map[string]any)
	require.Regexp(t, `^\d{4}-\d\d-\d\dT`, listed["createdAt"])
	for _, other := range []string{"createdAt", "updatedAt", "expiresAt"} {
		delete(listed, other)
	}
	require.Equal(t, map[string]any{"id": lan["id"], "email": "lan@example.com", "role": "owner", "state": "invited"}, listed)
	text := c.run("", "user", "list", "--org", org)
	require.NoError(t, text.err)
	require.Regexp(t, `(?m)^usr_\w+ +lan@example.com +owner +invited `, text.stdout)

	c.refused("organization "+other+` has no user with the e-mail address "lan@example.com"`, "user", "remove", "--org", other, "--email", "lan@example.com")
	c.refused(`there is no organization "org_x"`, "user", "list", "--org", "org_x")
	c.refused("email: is not an e-mail address", "user", "remove", "--org", org, "--email", "lan")
	c.refused(`required flag(s) "email" not set`, "user", "remove", "--org", org)
	removed := c.json("user", "remove", "--org", org, "--email", "LAN@example.com")
	require.Equal(t, map[string]any{"id": lan["id"]}, removed)
	require.Empty(t, users(org))
	c.json("user", "invite", "--org", other, "--email", "lan@example.com", "--role", "owner")
	require.Len(t, users(other), 1)

	log := c.json("audit", "--org", org, "--limit", "1")["data"].([]any)
	require.Equal(t, "user.remove", log[0].(map[string]any)["action"])
}
