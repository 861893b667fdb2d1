package platforms_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

func unix(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

// TestID: digits stay as they are, and what can't be an id is none.
func TestID(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		`1`: "1", `-1001234567890`: "-1001234567890", `9007199254740993`: "9007199254740993", `"9007199254740993"`: "9007199254740993",
		`123456789012345678901234567890`: "123456789012345678901234567890", `"0012"`: "0012", `"m_\u0041\/b"`: "m_A/b", `"à"`: "à",
		`"` + strings.Repeat("x", platforms.MaxID) + `"`: strings.Repeat("x", platforms.MaxID), `"` + strings.Repeat("x", platforms.MaxID+1) + `"`: "", strings.Repeat("1", platforms.MaxID+1): "",
		`""`: "", `null`: "", `true`: "", `1.5`: "", `1e3`: "", `-`: "", `{}`: "", `[1]`: "", `"a\u0000"`: "", "\"a\xff\"": "", `"\ud800"`: "",
	} {
		require.Equal(t, want, platforms.Value(written).ID(), "%.60s", written)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]time.Time{
		`1763650000`: unix(1763650000000), `"1763650000"`: unix(1763650000000), `1763650000123`: unix(1763650000123), `"1763650000123"`: unix(1763650000123),
		`1262304000`: unix(1262304000000), `1262303999`: {}, `0`: {}, `1`: {}, `-1763650000`: {}, `99999999999999`: unix(99999999999999), `100000000000000`: {},
		`9223372036854775807`: {}, `92233720368547758070`: {}, `1.763650000e9`: {}, `""`: {}, `"now"`: {}, `null`: {}, `{}`: {},
	} {
		require.Equal(t, want, platforms.Value(written).Time(), written)
	}
}

func TestFlagAndGiven(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]bool{
		`true`: true, `1`: true, `"true"`: true, `"1"`: true, `false`: false, `0`: false, `null`: false, `{}`: false,
	} {
		require.Equal(t, want, platforms.Value(written).Flag(), written)
	}
	for written, want := range map[string]bool{`{}`: true, `[1]`: true, `0`: true, `null`: false, ``: false} {
		require.Equal(t, want, platforms.Value(written).Given(), written)
	}
}

// TestMediaName: platforms name what a message is; anything else must not reach the conversation.
func TestMediaName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"image": "image", "story_mention": "story_mention", "": "attachment", "Image": "attachment", "<b>": "attachment", "a b": "attachment",
		strings.Repeat("a", 32): strings.Repeat("a", 32), strings.Repeat("a", 33): "attachment",
	} {
		require.Equal(t, want, platforms.MediaName(name))
	}
}
