package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
)

func TestCleanEmail(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"Lan@Example.COM": "lan@example.com", "a@b": "a@b", "o'x+y@mail.example": "o'x+y@mail.example",
	} {
		clean, err := identity.CleanEmail(given)
		require.NoError(t, err)
		require.Equal(t, want, clean)
	}
	clean, err := identity.CleanEmail(" lan@example.com\r\n")
	require.NoError(t, err)
	require.Equal(t, "lan@example.com", clean)
	for _, bad := range []string{
		"", " ", "lan", "@", "lan@", "@example.com", "a@b@c", "la n@example.com", "lan@exämple.com", "lan\x00@example.com",
		"lan@example.com\x7f", strings.Repeat("a", 250) + "@b.com", "\xff@b",
	} {
		_, err := identity.CleanEmail(bad)
		var field *identity.FieldError
		require.ErrorAs(t, err, &field, "%q", bad)
		require.Equal(t, "email", field.Field)
	}
}

// Whatever is accepted is in its final form: visible ASCII, one @, and unchanged by another round.
func FuzzCleanEmail(f *testing.F) {
	for _, seed := range []string{"Lan@Example.com", " a@b ", "a@@b", "\u212aelvin@example.com", "İ@b", "a@b\u0085"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		clean, err := identity.CleanEmail(given)
		if err != nil {
			return
		}
		again, err := identity.CleanEmail(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
		require.Equal(t, 1, strings.Count(clean, "@"))
		for _, c := range []byte(clean) {
			require.True(t, c > ' ' && c <= '~' && (c < 'A' || c > 'Z'), "%q", clean)
		}
	})
}
