package knowledge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A phrase is found as whole words, whatever its case and whether the customer types accents; in scripts without spaces, anywhere.
func TestSays(t *testing.T) {
	t.Parallel()
	phrases := []string{"Human", "nhân viên", "talk to a talk show", "人工", "…", ""}
	for text, want := range map[string]bool{
		"I want a HUMAN!":                  true,
		"humane treatment":                 false,
		"human":                            true,
		"cho gặp nhan vien với":            true,
		"Cho gặp NHÂN VIÊN":                true,
		"nhẫn viền":                        false,
		"nhân, viên":                       true,
		"viên nhân":                        false,
		"talk to a talk to a talk show ok": true,
		"talk to a show":                   false,
		"我要人工客服":                           true,
		"…":                                false,
		"":                                 false,
		strings.Repeat("talk to a ", 1000): false,
	} {
		require.Equal(t, want, Says(text, phrases), text)
	}
	require.False(t, Says("anything", nil))
}
