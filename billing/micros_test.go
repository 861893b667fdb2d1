package billing

import (
	"math"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseMicros(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "-1": -1, "1500000": 1_500_000,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		got, err := ParseMicros(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, FormatMicros(got))
	}
	for _, text := range []string{"", "-", "+1", "00", "01", "-0", "-01", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "١", "9a", "\x001"} {
		_, err := ParseMicros(text)
		require.ErrorIs(t, err, ErrMicrosSyntax, "%q", text)
	}
	for _, text := range []string{"9223372036854775808", "-9223372036854775809", "99999999999999999999999"} {
		_, err := ParseMicros(text)
		require.ErrorIs(t, err, ErrOverflow, "%q", text)
	}
}

func FuzzMicros(f *testing.F) {
	for _, seed := range []string{"0", "-1", "15", "-0", "007", "+1", "1e9", "9223372036854775808", ""} {
		f.Add(seed, int64(len(seed)))
	}
	plain := regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	f.Fuzz(func(t *testing.T, text string, micros int64) {
		back, err := ParseMicros(FormatMicros(micros))
		require.NoError(t, err)
		require.Equal(t, micros, back)

		parsed, err := ParseMicros(text)
		if err == nil {
			require.Equal(t, text, FormatMicros(parsed))
			return
		}
		if plain.MatchString(text) {
			require.ErrorIs(t, err, ErrOverflow)
		} else {
			require.ErrorIs(t, err, ErrMicrosSyntax)
		}
	})
}
