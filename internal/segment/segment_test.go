package segment_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/segment"
)

// all are the characters of a text, and those behind which a sentence may end.
func all(text string) (characters []string, sentences []int) {
	for character, sentence := range segment.Characters(text) {
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

var spacesBeforeLineEnds = regexp.MustCompile(`[ \t\x{a0}][ \t\x{a0}\x{301}\x{200d}]*([\r\n\x{2029}])`)

// TestSentencesAreThoseOfTheStandard compares the sentences of random texts with the library's, which are slow. The library lacks the part of
// rule SB10 that keeps a line end after a space with its sentence.
func TestSentencesAreThoseOfTheStandard(t *testing.T) {
	t.Parallel()
	pieces := []string{
		".", "!", "?", "。", "…", "a", "B", "ß", "É", "ª", "ǅ", "字", "אב", "1", "٣", ",", "-", "—", "、", ":", ")", "(", "“", "”", "\"", "'", "»", " ", "\u00a0", "\t", "\n",
		"\r\n", "\u2029", "\u0301", "\u200d", "👩\u200d👩", "🇻🇳", "각", "$", "_", "\ufe52", "U.S.", "etc. ",
	}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 30).Draw(t, "pieces"), "")
		text = spacesBeforeLineEnds.ReplaceAllString(text, "$1")
		var want []int
		for i, rest, state := 0, text, -1; rest != ""; i++ {
			var boundaries int
			if _, rest, boundaries, state = uniseg.StepString(rest, state); boundaries&uniseg.MaskSentence != 0 {
				want = append(want, i)
			}
		}
		_, got := all(text)
		require.Equal(t, want, got, "%q", text)
	})
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

// TestHostileTexts guarantees that no text costs many times what words of its length cost.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	const length = 60_000
	words := strings.Repeat("Чай хороший. Правда? Да, ", length/45)
	usual := shortest(words, 0)
	for _, text := range []string{
		"a." + strings.Repeat(")", length), "a." + strings.Repeat("”", length/3), "a." + strings.Repeat(" ", length) + "b", "a." + strings.Repeat(") ", length/2),
		strings.Repeat("a.", length/2), strings.Repeat("a."+strings.Repeat("1)", 60), length/122), strings.Repeat("\u0301", length/2),
		strings.Repeat("\xbf", length), strings.Repeat("👩\u200d", length/7),
	} {
		characters, _ := all(text)
		require.Equal(t, text, strings.Join(characters, ""))
		require.Less(t, shortest(text, 10*usual), 10*usual, "%.20q", text)
	}
}

// shortest returns the shortest time that a text takes in five tries, or the first time below enough in up to a hundred: other work of the
// machine slows some of them, for seconds.
func shortest(text string, enough time.Duration) time.Duration {
	least := time.Hour
	for try := 0; try < 5 && enough == 0 || try < 100 && least >= enough && enough > 0; try++ {
		began := time.Now()
		for range segment.Characters(text) { //nolint:revive // only the time counts
		}
		least = min(least, time.Since(began))
	}
	return least
}

// Nothing is lost and every step goes on, for any bytes.
func FuzzCharacters(f *testing.F) {
	for _, seed := range []string{"", "Hé! “Ok.” x", "\xff\xfe", "a." + strings.Repeat(")", 200), strings.Repeat("\u0301", 100), strings.Repeat("\xbf", 5000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		characters, _ := all(text)
		require.Equal(t, text, strings.Join(characters, ""))
		require.NotContains(t, characters, "")
	})
}
