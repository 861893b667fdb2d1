package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A missing or wrong configuration is reported as such, and nothing is created.
func TestCommandConfiguration(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.write("site.Caddyfile", ":8080 {\n\trespond ok\n}\n")
	c.write("broken.Caddyfile", "{\n\tsvc {\n\t\tfrobnicate\n\t}\n}\n")
	c.write("config.json", `{"apps":{"svc":{"base_url":"http://localhost","frobnicate":1}}}`)
	c.write("empty.json", `{"apps":{"svc":{}}}`)
	c.write("yes.txt", "yes")
	for file, want := range map[string]string{
		"nothing":          "there is no configuration " + c.path("nothing") + "; name it with --config",
		"site.Caddyfile":   "has no svc block; name the configuration that the server runs with",
		"broken.Caddyfile": "frobnicate",
		"config.json":      "unknown field",
		"empty.json":       "svc.master_key",
		"yes.txt":          "is not valid JSON; if it is in another format, name its --adapter",
		".":                "reading the configuration",
	} {
		done := execute(t, "", "--config", c.path(file), "org", "list")
		require.ErrorContains(t, done.err, want, file)
	}
	done := execute(t, "", "--config", c.path("Caddyfile"), "--adapter", "nginx9", "org", "list")
	require.ErrorContains(t, done.err, `there is no config adapter "nginx9"`)
	require.NoFileExists(t, c.path("svc.db"))
}

// The JSON form of the configuration, and any file name with --adapter, serve as well.
func TestCommandConfigurationForms(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	c.write("svc.conf", c.caddyfile())
	c.write("svc.json", `{"apps":{"svc":{"@id":"x","base_url":"http://localhost","master_key":"{file.`+c.path("master.key")+`}",
		"store":{"engine":"sqlite","path":"`+c.path("svc.db")+`"}}}}`)
	require.NoError(t, execute(t, "", "--config", c.path("svc.conf"), "--adapter", "caddyfile", "migrate").err)
	done := execute(t, "", "-c", c.path("svc.json"), "--json", "org", "create", "--name", "Acme")
	require.NoError(t, done.err)
	require.Empty(t, object(t, done.stdout)["plan"], "a configuration without plans")
}

// Variables come from --envfile where the environment doesn't set them, in the forms that Caddy reads.
func TestCommandEnvFile(t *testing.T) {
	c := newCommandLine(t)
	set := func(name, value string) { // so that it is put back, whatever the commands set
		t.Setenv(name, value)
		require.NoError(t, os.Unsetenv(name))
	}
	set("SVC_CMD_DB", "")
	set("SVC_CMD_KEY", "")
	t.Setenv("SVC_CMD_BASE", "http://localhost")
	c.write("Caddyfile", `{
	svc {
		base_url {$SVC_CMD_BASE}
		store sqlite {$SVC_CMD_DB}
		master_key {env.SVC_CMD_KEY}
	}
}
`)
	c.write("env", "# the demo\n\nexport SVC_CMD_DB=\""+c.path("svc.db")+"\"\nSVC_CMD_KEY='"+strings.TrimSpace(masterKey(1))+" \n"+
		strings.TrimSpace(masterKey(2))+"'\nSVC_CMD_BASE=no address # is set already\n")
	require.NoError(t, execute(t, "", "-c", c.path("Caddyfile"), "--envfile", c.path("env"), "migrate").err)
	require.FileExists(t, filepath.Join(c.dir, "svc.db"))
	require.NoError(t, execute(t, "", "-c", c.path("Caddyfile"), "rekey").err, "the key over two lines")

	for text, want := range map[string]string{
		"SVC_A\nsecret":     "line 1 is not KEY=VALUE",
		"A=1\n=secret":      "line 2: the name is empty or has a space",
		"A B=secret":        "line 1: the name is empty or has a space",
		"\n\nSVC_A= secret": "line 3: there is a space before the value",
	} {
		c.write("bad", text)
		done := execute(t, "", "-c", c.path("Caddyfile"), "--envfile", c.path("bad"), "migrate")
		require.ErrorContains(t, done.err, want)
		require.NotContains(t, done.stderr, "secret")
	}
	require.ErrorContains(t, execute(t, "", "--envfile", c.path("none"), "migrate").err, "reading the environment file")
}

// A command resolves only the secrets it uses, and names one that is missing.
func TestCommandsResolveOnlyTheSecretsTheyUse(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	require.NoError(t, os.Remove(c.path("master.key")))
	org := c.newOrg("Acme") // {env.SVC_TEST_NEVER_SET} isn't needed either
	c.json("wallet", "credit", "--org", org, "--micros", "1", "--ref", "a")
	c.refused("svc.master_key: {file."+c.path("master.key")+"} can't be read or is empty",
		"provider-key", "set", "--org", org, "--provider", "openai")

	c.write("master.key", "c2VjcmV0")
	done := c.run("", "rekey")
	require.ErrorContains(t, done.err, "is base64 of 6 bytes, want exactly 32")
	require.NotContains(t, done.stderr, "c2VjcmV0")
}
