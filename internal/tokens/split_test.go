package tokens

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pattern is that of o200k_base, which the splitter must equal. In a group regexp2 runs it by itself, without the matcher that the
// tokenizer's library has generated for it, which has faults.
var pattern = regexp2.MustCompile(`(?:[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
	`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?`+
	`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)`, regexp2.None)

// kinds has a character of each class, and those that the pattern names.
const kinds = " \t\n\rAaǅʰ汉\u03011²!/'sSſtreEvVlLmd\x7f\u00a0\u3000\u0085🙂\u200d"

var split = newSplitter()

func pieces(text string) (all []string) {
	for text != "" {
		n := split.split(text)
		all = append(all, text[:n])
		text = text[n:]
	}
	return all
}

func requireSplit(t require.TestingT, text string) {
	var want []string
	match, err := pattern.FindStringMatch(text)
	for ; match != nil; match, err = pattern.FindNextMatch(match) {
		want = append(want, match.String())
	}
	require.NoError(t, err)
	if got := pieces(text); !slices.Equal(want, got) {
		require.Equal(t, want, got, "%+q", text)
	}
}

// TestSplitShort compares all texts of up to four characters of different classes, five with SVC_SOAK.
func TestSplitShort(t *testing.T) {
	t.Parallel()
	alphabet := []rune(" \t\nAa汉\u03011!/'s")
	var grow func(text string, left int)
	grow = func(text string, left int) {
		requireSplit(t, text)
		if left == 0 {
			return
		}
		for _, r := range alphabet {
			grow(text+string(r), left-1)
		}
	}
	longest := 4
	if os.Getenv("SVC_SOAK") != "" {
		longest = 5
	}
	grow("", longest)
}

// TestSplitContractions compares words that end with an apostrophe and any two characters.
func TestSplitContractions(t *testing.T) {
	t.Parallel()
	for _, one := range kinds {
		for _, two := range kinds {
			requireSplit(t, "a'"+string(one)+string(two))
		}
	}
}

// TestSplitEachRange compares the characters at the edges of all ranges of Unicode, among others.
func TestSplitEachRange(t *testing.T) {
	t.Parallel()
	var edges []rune
	for _, table := range unicode.Categories {
		for _, r := range table.R16 {
			edges = append(edges, rune(r.Lo)-1, rune(r.Lo), rune(r.Hi), rune(r.Hi)+1)
		}
		for _, r := range table.R32 {
			edges = append(edges, rune(r.Lo)-1, rune(r.Lo), rune(r.Hi), rune(r.Hi)+1)
		}
	}
	slices.Sort(edges)
	for _, r := range slices.Compact(edges) {
		requireSplit(t, strings.ReplaceAll("a·A·1·!· ·", "·", string(r)))
	}
}

// TestSplit compares random texts.
func TestSplit(t *testing.T) {
	t.Parallel()
	character := rapid.OneOf(rapid.SampledFrom([]rune(kinds)), rapid.Rune())
	rapid.Check(t, func(t *rapid.T) { requireSplit(t, rapid.StringOf(character).Draw(t, "text")) })
}

func FuzzSplit(f *testing.F) {
	f.Add(kinds)
	f.Add("I'LL say: ĐƯỜNG đi, naïve — 12345 \r\n\t x  \n\n //\n")
	f.Fuzz(func(t *testing.T, text string) {
		requireSplit(t, strings.ToValidUTF8(text, "\ufffd"))
	})
}
