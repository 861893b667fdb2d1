package identity_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The prefix names the environment, the rest is random, and the hash is SHA-256 of it all.
func TestNewKeyParses(t *testing.T) {
	t.Parallel()
	for env, prefix := range map[store.Env]string{store.Live: "ck_live_", store.Test: "ck_test_"} {
		seen := map[string]bool{}
		for range 500 {
			raw, hash, hint := identity.NewKey(env)
			require.True(t, strings.HasPrefix(raw, prefix), raw)
			require.Len(t, raw, 57, "fixed width")
			require.False(t, seen[raw])
			seen[raw] = true
			require.Equal(t, sha256.Sum256([]byte(raw)), hash)
			require.Equal(t, raw[:12]+"…", hint)

			parsed, parsedEnv, ok := identity.ParseKey(raw)
			require.True(t, ok, raw)
			require.Equal(t, hash, parsed)
			require.Equal(t, env, parsedEnv)
		}
	}
}

// A malformed key is recognized without the database.
func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	raw, _, _ := identity.NewKey(store.Live)
	notBase62 := raw[:20] + "-" + raw[21:51]
	for name, bad := range map[string]string{
		"empty":               "",
		"prefix only":         "ck_live_",
		"other prefix":        "sk_live_" + raw[8:],
		"other environment":   "ck_test_" + raw[8:],
		"upper case prefix":   "CK_LIVE_" + raw[8:],
		"one short":           raw[:56],
		"one long":            raw + "0",
		"space in front":      " " + raw[:56],
		"not base62":          raw[:20] + "-" + raw[21:],
		"only not base62":     notBase62 + identity.Checksum(notBase62),
		"not ASCII":           raw[:20] + "é" + raw[22:],
		"NUL":                 raw[:20] + "\x00" + raw[21:],
		"two keys":            raw + "," + raw,
		"128 bytes":           strings.Repeat("a", 128),
		"a megabyte":          raw + strings.Repeat("a", 1<<20),
		"wrong last digit":    raw[:56] + other(raw[56]),
		"wrong secret digit":  raw[:30] + other(raw[30]) + raw[31:],
		"all zero, no sum":    "ck_live_" + strings.Repeat("0", 49),
		"all z, sum too high": "ck_live_" + strings.Repeat("z", 49),
	} {
		hash, env, ok := identity.ParseKey(bad)
		require.False(t, ok, name)
		require.Zero(t, hash, name)
		require.Empty(t, env, name)
	}
}

func other(digit byte) string {
	if digit == 'a' {
		return "b"
	}
	return "a"
}

func TestParseKeyAllocatesOnce(t *testing.T) {
	raw, _, _ := identity.NewKey(store.Live)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { identity.ParseKey(raw) }), 1.0)
}

// ParseKey takes any bytes without a panic, and what it accepts has the whole form.
func FuzzParseKey(f *testing.F) {
	f.Add("ck_live_")
	f.Add("ck_test_" + strings.Repeat("0", 49))
	for _, env := range []store.Env{store.Live, store.Test} {
		raw, _, _ := identity.NewKey(env)
		f.Add(raw)
		f.Add(raw[:56])
	}
	f.Fuzz(func(t *testing.T, raw string) {
		hash, env, ok := identity.ParseKey(raw)
		if !ok {
			return
		}
		require.Len(t, raw, len("ck_live_")+43+6)
		require.True(t, strings.HasPrefix(raw, "ck_"+string(env)+"_"))
		require.Equal(t, sha256.Sum256([]byte(raw)), hash)
	})
}
