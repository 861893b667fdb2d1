package segment_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/segment"
)

// all are the characters of a text, and those behind which a sentence may end.
func all(text string) (characters []string, sentences []int) {
	state := -1
	for text != "" {
		var character string
		var sentence bool
		character, text, sentence, state = segment.Step(text, state)
		if sentence {
			sentences = append(sentences, len(characters))
		}
		characters = append(characters, character)
	}
	return characters, sentences
}

func TestCharactersAndSentences(t *testing.T) {
	t.Parallel()
	characters, sentences := all("Hé! “Ok.” x")
	require.Equal(t, []string{"H", "é", "!", " ", "“", "O", "k", ".", "”", " ", "x"}, characters)
	require.Equal(t, []int{3, 10}, sentences)
	long := strings.Repeat("Tea is good. Is it? 👩‍👩‍👧‍👦! ", 500)
	characters, sentences = all(long)
	require.Len(t, characters, uniseg.GraphemeClusterCount(long))
	require.Len(t, sentences, 1500)
}

// A character with very many accents is one as long as it fits, and cut at a code point where it doesn't.
func TestHugeCharacters(t *testing.T) {
	t.Parallel()
	one := "a" + strings.Repeat("\u0301", 1000)
	characters, _ := all("x" + one + "y" + strings.Repeat("z", 5000))
	require.Equal(t, []string{"x", one, "y"}, characters[:3])
	characters, _ = all("a" + strings.Repeat("\u0301", 10_000))
	require.Len(t, characters, 5)
	for _, character := range characters {
		require.True(t, utf8.ValidString(character))
	}
}

// What once took minutes takes as long as any text of its length: the test would not end in time otherwise.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	const length = 300_000
	for _, text := range []string{
		"a." + strings.Repeat(")", length), "a." + strings.Repeat(" ", length) + "b", strings.Repeat("a.", length/2),
		strings.Repeat("\u0301", length/2), strings.Repeat("\xbf", length), strings.Repeat("👩\u200d", length/7),
	} {
		characters, _ := all(text)
		require.Equal(t, text, strings.Join(characters, ""))
	}
}

// Nothing is lost and every step goes on, for any bytes.
func FuzzStep(f *testing.F) {
	for _, seed := range []string{"", "Hé! “Ok.” x", "\xff\xfe", "a." + strings.Repeat(")", 200), strings.Repeat("\u0301", 100), strings.Repeat("\xbf", 5000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		characters, _ := all(text)
		require.Equal(t, text, strings.Join(characters, ""))
		require.NotContains(t, characters, "")
	})
}
