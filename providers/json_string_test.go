package providers

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestJSONStringText(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		`""`:                    "",
		`"plain"`:               "plain",
		`"tab\tquote\"slash\/"`: "tab\tquote\"slash/",
		`"\b\f\n\r\\"`:          "\b\f\n\r\\",
		`"\u00e9\u4e2d"`:        "é中",
		`"\ud83d\udc4b"`:        "👋",
		`"\uD83D\uDC4B!"`:       "👋!",
		`"\ud800"`:              "\uFFFD",
		`"\ud800\ud83d\udc4b"`:  "\uFFFD👋",
		`"\udc4bx"`:             "\uFFFDx",
		"\"raw é 👋 \x7f\"":      "raw é 👋 \x7f",
		"\"bad \xff utf-8\"":    "bad \uFFFD utf-8",
		"\"bad \xff and \\n\"":  "bad \uFFFD and \n",
		"\"cut \xf0\x9f\x91\"":  "cut \uFFFD\uFFFD\uFFFD",
		`"line\u2028separator"`: "line\u2028separator",
	} {
		s := JSONString(literal)
		require.Equal(t, want, s.Text(), literal)
		require.Equal(t, len(want), s.ByteLen(), literal)
		require.Equal(t, "x"+want, string(s.AppendText([]byte("x"))), literal)
	}
}

// A text in pieces is the text of the pieces as one literal, wherever it was cut between two characters or escapes.
func TestJSONStringTextAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pieces []string
		want   string
	}{
		{[]string{`"\ud83d"`, `"\ude00"`}, "😀"},
		{[]string{`"a\ud83d"`, `"\ude00b"`}, "a😀b"},
		{[]string{`"\ud83d"`, `""`, `"\ude00"`}, "😀"},
		{[]string{`"\uD83D"`, `"\uDE00\ud83d"`, `"\udc4b"`}, "😀👋"},
		{[]string{`"\ud83d"`, `"x"`}, "\uFFFDx"},
		{[]string{`"\ud83d"`, `"\n\ude00"`}, "\uFFFD\n\uFFFD"},
		{[]string{`"\ud83d"`, `"\ud83d"`, `"\ude00"`}, "\uFFFD😀"},
		{[]string{`"\ud83d\ude00"`, `"\ude00"`}, "😀\uFFFD"},
		{[]string{`"\\ud83d"`, `"\ude00"`}, `\ud83d` + "\uFFFD"},
		{[]string{`"\\\ud83d"`, `"\ude00"`}, `\` + "😀"},
		{[]string{`"ud83d"`, `"\ude00"`}, "ud83d\uFFFD"},
		{[]string{`"plain"`, `" é"`, `"\u00e9"`}, "plain éé"},
	} {
		var got string
		var half rune
		for _, piece := range test.pieces {
			var text string
			text, half = JSONString(piece).textAfter(half)
			require.True(t, utf8.ValidString(text))
			got += text
		}
		require.Equal(t, test.want, got, "%q", test.pieces)
		require.Zero(t, half)
	}
	text, half := JSONString(`"x\ud83d"`).textAfter(0)
	require.Equal(t, "x", text)
	require.EqualValues(t, 0xD83D, half)
}

func TestJSONStringOfNoLiteral(t *testing.T) {
	t.Parallel()
	for _, s := range []string{``, `"`, `x`, `"x`, `"\"`, `"\u12"`, `"\uZZZZ"`, `"\q"`, `"\ud800\u"`} {
		require.Equal(t, len(JSONString(s).Text()), JSONString(s).ByteLen(), s)
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"a\"b\\c\n\r\t\u0000\u001f</é👋"`, string(Quote("a\"b\\c\n\r\t\x00\x1f</é👋")))
	require.Equal(t, "\"\uFFFD.\uFFFD\"", string(Quote("\xff.\xf0")))
	require.Equal(t, `[""`, string(AppendQuoted([]byte("["), "")))
}

func TestByteLenDoesNotAllocate(t *testing.T) {
	s := Quote(strings.Repeat("a\n👋", 1000))
	require.Zero(t, testing.AllocsPerRun(10, func() { s.ByteLen() }))
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\"\\", "é👋\u2028", "\xff\xf0\x9f", "\uFFFD"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		literal := Quote(s)
		var back string
		require.NoError(t, json.Unmarshal(literal, &back))
		viaJSON, err := json.Marshal(s)
		require.NoError(t, err)
		var want string
		require.NoError(t, json.Unmarshal(viaJSON, &want))
		require.Equal(t, want, back)
		require.True(t, utf8.Valid(literal))
		require.Equal(t, want, literal.Text())
		require.Equal(t, len(want), literal.ByteLen())
	})
}

func FuzzJSONStringText(f *testing.F) {
	for _, s := range []string{
		`""`, `"a\u00e9\ud83d\udc4b"`, `"\ud800\ud83d\udc4b"`, "\"\xff\\n\"", `"\`, `"\u"`, `x`,
		`"a\"\\\n\r\t\u0000\u001f"`, `"\/"`, `"\b"`, `"\u000a"`, `"\u001F"`, `"\u0022"`, `"a"b"`, "\"\n\"", "\"é\x7f\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, literal []byte) {
		s := JSONString(literal)
		text := s.Text()
		require.True(t, utf8.ValidString(text))
		require.Equal(t, len(text), s.ByteLen())
		require.Equal(t, string(Quote(text)) == string(literal), s.canonical())
		begun, half := s.textAfter(0)
		rest, left := JSONString(`"."`).textAfter(half)
		require.Equal(t, text+".", begun+rest)
		require.Zero(t, left)
		var want string
		if len(literal) > 0 && literal[0] == '"' && literal[len(literal)-1] == '"' && json.Unmarshal(literal, &want) == nil {
			require.Equal(t, want, text)
		}
	})
}
