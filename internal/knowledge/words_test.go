package knowledge

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
)

func foldedWords(text string) (words []string) {
	for w := range wordsIn(text) {
		words = append(words, w.folded)
	}
	return words
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"Hà Nội, 36 phố phường!":        "ha noi 36 pho phuong",
		"ĐỒNG, và đồng Đ":               "dong va dong d",
		norm.NFD.String("Hà Nội, Đà"):   "ha noi da",
		"naïve CAFÉ Straße ΆΒΓ Ёж":      "naive cafe straße αβγ еж",
		"e-mail@example.com x_y":        "e mail example com x y",
		"iPhone15 3,5 ½ １２":             "iphone15 3 5 12 12",
		"如何退款 退":                        "如何 何退 退款 退",
		"ギフト":                           "キフ フト",
		"iPhone手机":                      "iphone 手机",
		"\u0301\u0302":                  "",
		"a\x00b\xffc 👩‍👩‍👧 x":           "a b c x",
		strings.Repeat("a", 100) + " é": strings.Repeat("a", 40) + " e",
		strings.Repeat("ы", 100):        strings.Repeat("ы", 40),
	} {
		require.Equal(t, want, strings.Join(foldedWords(text), " "), "%q", text)
	}
}

func TestIndexedWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"mmmmmha", "mmmmmu9000u6b3e", "mmmmm1"}, indexWords("mmmmm", "Hà ha 退款 HÁ 1 1"))
	seen := map[string]bool{}
	for _, id := range []string{"kb_a", "kb_b", "", strings.Repeat("x", 99)} {
		mark := markOf(id)
		require.Regexp(t, `^[0-9a-z]{5}$`, mark)
		require.False(t, seen[mark])
		seen[mark] = true
	}
}

var inIndex = regexp.MustCompile(`^mmmmm[a-z0-9]+$`)

// FuzzWords: whatever a text is, its words are plain letters in the index, and folding them again changes nothing.
func FuzzWords(f *testing.F) {
	for _, seed := range []string{
		"Hà Nội", "NEAR(a, 2) OR b* AND NOT \"c\"", "a' | 'b", "退款ギフトภาษาไทย", "½㏂ﬁ\u1e9e\u0345İı", "\xff\x00a", "\u0344\u212b", strings.Repeat("ộ", 99),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for w := range wordsIn(text) {
			require.NotEmpty(t, w.folded)
			require.True(t, utf8.ValidString(w.folded))
			require.LessOrEqual(t, utf8.RuneCountInString(w.folded), maxWordRunes)
			require.Regexp(t, inIndex, indexed("mmmmm", w.folded))
			require.Equal(t, w.folded, fold(w.folded))
		}
		for _, w := range indexWords("mmmmm", text) {
			require.Regexp(t, inIndex, w)
		}
		q := newQuestion(text)
		require.LessOrEqual(t, len(q.words), maxQueryWords)
		for i := range q.words {
			q.words[i].weight = 1
		}
		if len(q.words) > 0 {
			require.Positive(t, q.score(text))
		}
	})
}

// The table folds as the long way does.
func TestFoldTable(t *testing.T) {
	t.Parallel()
	for c := range rune(foldTableSize) {
		require.Equal(t, inWord(c), isLetter(c), "%q", c)
		if !inWord(c) || unicode.ToLower(c) != c {
			continue // it isn't folded
		}
		for _, text := range []string{string(c), "a" + string(c) + "b", string(c) + string(c)} {
			require.Equal(t, foldLong(text), foldAll(text), "%q", text)
		}
	}
}
