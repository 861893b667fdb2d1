package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// planted stands where no secret may stand, and must never be seen again.
const planted = "hunter2"

func TestSecretMustBeOneReference(t *testing.T) {
	t.Parallel()
	for _, good := range []Secret{"{env.KEY}", "{env._k3y}", "{file.key}", "{file./run/secrets/my key.txt}", "{file.../k}"} {
		require.True(t, good.IsReference(), good)
	}
	for _, bad := range []Secret{
		planted, "", " ", "none", "{env.}", "{file.}", "{env.KEY}" + planted, planted + "{env.KEY}", "{env.A}{env.B}",
		" {env.KEY}", "{env.KEY} ", "{env.KEY}\n", "{env.KEY:" + planted + "}", "{env.KEY:-" + planted + "}", "{env.1KEY}",
		"{file.{env.DIR}/k}", "{http.request.header.X}", "{system.hostname}", "{$KEY}", `\{env.KEY}`, "{vault.key}", "{ENV.KEY}",
	} {
		require.False(t, bad.IsReference(), bad)
		var fs Faults
		bad.Check(&fs, "svc.master_key", "")
		require.Len(t, fs, 1, bad)
		require.Contains(t, fs[0].Text, "exactly one {env.NAME} or {file.PATH}")
		require.NotContains(t, fs.Err().Error(), planted)
		_, err := bad.Resolve(caddy.NewReplacer())
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), planted)
	}
}

func TestSecretResolve(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) Secret {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return Secret("{file." + path + "}")
	}
	t.Setenv("SVC_TEST_SECRET", " "+planted+"\t")
	t.Setenv("SVC_TEST_EMPTY", "")
	t.Setenv("SVC_TEST_BLANK", " \n")
	t.Setenv("SVC_TEST_BRACES", "{env.SVC_TEST_SECRET}")
	repl := caddy.NewReplacer()

	for secret, want := range map[Secret]string{
		"{env.SVC_TEST_SECRET}":                  planted,
		write("plain", planted):                  planted,
		write("newlines", "\n"+planted+"\r\n\n"): planted,
		// What a variable holds is a value, not a reference again.
		"{env.SVC_TEST_BRACES}": "{env.SVC_TEST_SECRET}",
	} {
		got, err := secret.Resolve(repl)
		require.NoError(t, err, secret)
		require.Equal(t, want, got, secret)
	}

	for secret, want := range map[Secret]string{
		"{env.SVC_TEST_UNSET}":        "{env.SVC_TEST_UNSET} is not set",
		"{env.SVC_TEST_EMPTY}":        "{env.SVC_TEST_EMPTY} is not set",
		"{env.SVC_TEST_BLANK}":        "{env.SVC_TEST_BLANK} is not set",
		"{file.testdata/no-such-key}": "{file.testdata/no-such-key} can't be read or is empty: no such file or directory",
		write("empty", ""):            "can't be read or is empty",
		write("blank", " \n"):         "can't be read or is empty",
		Secret("{file." + dir + "}"):  "can't be read or is empty",
	} {
		_, err := secret.Resolve(repl)
		require.ErrorContains(t, err, want)
	}
}
