package vault_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keyText is a valid master key made of one repeated byte.
func keyText(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, vault.KeyBytes))
}

func ringOf(t testing.TB, masterKey string) *vault.Ring {
	t.Helper()
	ring, err := vault.ParseRing(masterKey)
	require.NoError(t, err)
	return ring
}

// The value of master_key is base64 of 32 bytes, optionally followed by older keys.
func TestParseRingAccepts(t *testing.T) {
	t.Parallel()
	unpadded := strings.TrimRight(keyText(1), "=")
	for name, value := range map[string]string{
		"padded":             keyText(1),
		"unpadded":           unpadded,
		"newline at the end": keyText(1) + "\n",
		"older by space":     keyText(1) + " " + keyText(2),
		"older by comma":     keyText(1) + "," + keyText(2),
		"a file of lines":    keyText(1) + "\r\n" + keyText(2) + ",\n\t" + keyText(3) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := ringOf(t, value)
			where := vault.AAD{Table: "t"}
			plain, err := ringOf(t, keyText(1)).Open(ring.Seal([]byte("x"), where), where)
			require.NoError(t, err, "the first key seals")
			require.Equal(t, "x", string(plain))
		})
	}
}

// A wrong master key is refused with what is wrong and how to make one, and is never echoed.
func TestParseRingRefusesWithoutEchoingTheValue(t *testing.T) {
	t.Parallel()
	short := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 31))
	long := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 33))
	for name, c := range map[string]struct{ value, want string }{
		"empty":            {"", "master_key is empty"},
		"only separators":  {" ,\n", "master_key is empty"},
		"not base64":       {"correct-horse-battery-staple!", "key 1 of 1 is not standard base64"},
		"url base64":       {strings.Repeat("-_", 21) + "8", "key 1 of 1 is not standard base64"},
		"31 bytes":         {short, "key 1 of 1 is base64 of 31 bytes, want exactly 32"},
		"33 bytes":         {long, "key 1 of 1 is base64 of 33 bytes"},
		"second is short":  {keyText(1) + "," + short, "key 2 of 2 is base64 of 31 bytes"},
		"second repeated":  {keyText(1) + " " + keyText(1), "key 2 of 2 is the same as key 1"},
		"stray final bits": {strings.TrimRight(keyText(1), "=")[:42] + "F", "key 1 of 1 is not standard base64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring, err := vault.ParseRing(c.value)
			require.Nil(t, ring)
			require.ErrorContains(t, err, c.want)
			for _, piece := range strings.FieldsFunc(c.value, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
				require.NotContains(t, err.Error(), piece[:min(8, len(piece))])
			}
		})
	}
}

func TestRingNeverPrintsKeyMaterial(t *testing.T) {
	t.Parallel()
	ring := ringOf(t, keyText('k')+" "+keyText('o'))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.Equal(t, "vault.Ring(2 keys)", fmt.Sprintf(verb, ring))
	}
	require.Equal(t, "vault.Ring(nil)", fmt.Sprintf("%+v", (*vault.Ring)(nil)))
}
