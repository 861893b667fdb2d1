package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

func TestCleanName(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"Demo":                         "Demo",
		"  Cà phê Hà Nội \n":           "Cà phê Hà Nội",
		strings.Repeat("Ế", 100):       strings.Repeat("Ế", 100),
		strings.Repeat("😀", 100):       strings.Repeat("😀", 100),
		" " + strings.Repeat("x", 100): strings.Repeat("x", 100),
	} {
		got, err := identity.CleanName("name", given)
		require.NoError(t, err, given)
		require.Equal(t, want, got)
	}
	for given, want := range map[string]string{
		"":                       "name: is empty",
		"\u2003":                 "name: is empty",
		strings.Repeat("Ế", 101): "name: has 101 characters, at most 100 are allowed",
		"a\x00b":                 "name: contains a control character",
		"a\nb":                   "name: contains a control character",
		"a\u202eb":               "name: contains a control character",
		"\u2066a\u2069":          "name: contains a control character",
		"a\u061c":                "name: contains a control character",
		"a\u009bb":               "name: contains a control character",
		"a\xffb":                 "name: is not valid UTF-8",
	} {
		_, err := identity.CleanName("name", given)
		require.EqualError(t, err, want, "%q", given)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, days := range []int64{1, 3650} {
		at, err := identity.ExpiryInDays(now, days)
		require.NoError(t, err)
		require.Equal(t, now.Add(time.Duration(days)*24*time.Hour), at)
	}
	for _, days := range []int64{-1, 0, 3651, 1 << 62} {
		_, err := identity.ExpiryInDays(now, days)
		require.ErrorContains(t, err, "want 1 to 3650")
	}

	at, err := identity.ExpiryAt("2020-01-31T12:00:00+07:00")
	require.NoError(t, err, "the past is allowed")
	require.Equal(t, int64(1580446800000), at.UnixMilli())
	for _, bad := range []string{"", "tomorrow", "2026-11-20", "2026-11-20 12:00:00Z", strings.Repeat("9", 10000)} {
		_, err := identity.ExpiryAt(bad)
		require.ErrorContains(t, err, "is not an RFC 3339 time")
		require.Less(t, len(err.Error()), 200)
	}
}
