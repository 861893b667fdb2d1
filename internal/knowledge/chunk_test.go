package knowledge

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
)

func texts(pieces []piece) (all []string) {
	for _, p := range pieces {
		all = append(all, p.String())
	}
	return all
}

func TestSplit(t *testing.T) {
	t.Parallel()
	sentence := func(word string, n int) string { return strings.TrimSpace(strings.Repeat(word+" ", n)) + ". " }
	long := sentence("One", 150) + sentence("Two", 150) + sentence("Three", 60)
	tests := map[string]struct {
		text     string
		headings bool
		want     []string
	}{
		"nothing":             {"", true, nil},
		"only white space":    {" \n\t\n ", true, nil},
		"one line":            {"Hello.", true, []string{"Hello."}},
		"paragraphs that fit": {"One.\n\n\n  \nTwo\nlines.\n", true, []string{"One.\n\nTwo\nlines."}},
		"small sections":      {"# A\nx\n# B\ny", true, []string{"# A\n\nx\n\n# B\n\ny"}},
		"a section that is full": {
			"# A\n" + strings.Repeat("x", 300) + "\n## B\ny", true,
			[]string{"# A\n\n" + strings.Repeat("x", 300), "## B\n\ny"},
		},
		"a section in two pieces": {
			"# A\n\n" + strings.Repeat("x", 600) + "\n\n" + strings.Repeat("y", 600), true,
			[]string{"# A\n\n" + strings.Repeat("x", 600), "# A\n" + strings.Repeat("y", 600)},
		},
		"no headings in plain text": {
			"# A\n\n" + strings.Repeat("x", 600) + "\n\n" + strings.Repeat("y", 600), false,
			[]string{"# A\n\n" + strings.Repeat("x", 600), strings.Repeat("y", 600)},
		},
		"no headings in code": {"```\n# comment\n```\n#hashtag", true, []string{"```\n# comment\n```\n#hashtag"}},
		"long paragraph at a sentence": {
			long, false,
			[]string{strings.TrimSpace(sentence("One", 150)), strings.TrimSpace(sentence("Two", 150) + sentence("Three", 60))},
		},
		"long sentence at a space": {
			strings.Repeat("word ", 300), false,
			[]string{strings.TrimSpace(strings.Repeat("word ", 200)), strings.TrimSpace(strings.Repeat("word ", 100))},
		},
		"long word at a grapheme": {
			strings.Repeat("🇻🇳", 750), false, []string{strings.Repeat("🇻🇳", 500), strings.Repeat("🇻🇳", 250)},
		},
		"a grapheme that is none": {
			"e" + strings.Repeat("\u0301", 1500), false, []string{"e" + strings.Repeat("\u0301", 999), strings.Repeat("\u0301", 501)},
		},
		"a heading that is none": {
			"# " + strings.Repeat("word ", 300), true,
			[]string{
				strings.TrimSpace("# " + strings.Repeat("word ", 199)),
				"# " + strings.TrimSpace(strings.Repeat("word ", 23)) + " wor\n" + strings.TrimSpace(strings.Repeat("word ", 101)),
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, texts(slices.Collect(split(test.text, test.headings))))
		})
	}
}

// FuzzSplit: whatever the text is, pieces have their bounds, nothing but white space is lost, and no grapheme is cut.
func FuzzSplit(f *testing.F) {
	f.Add("# A\n\nx y. z\n\n"+strings.Repeat("long ", 400), true)
	f.Add(strings.Repeat("🇻🇳", 700)+" \u0301"+strings.Repeat("e\u0301", 900), false)
	f.Add(strings.Repeat("# h\n", 500), true)
	f.Add("```\n# a\n~~~\n# b\r\n\x00\xff", true)
	f.Add(strings.Repeat("ก็", 800)+strings.Repeat("가", 1200), false)
	f.Add(strings.Repeat("a", 999)+". \u0301b"+strings.Repeat("\u200d👩", 600), false)
	f.Fuzz(func(t *testing.T, source string, headings bool) {
		text := clean(source)
		pieces := slices.Collect(split(text, headings))
		bounds := graphemeStarts(text)
		rest, at := text, 0
		for _, p := range pieces {
			require.NotEmpty(t, strings.TrimSpace(p.text))
			require.LessOrEqual(t, utf8.RuneCountInString(p.text), chunkRunes)
			require.LessOrEqual(t, utf8.RuneCountInString(p.heading), headingRunes)
			require.True(t, utf8.ValidString(p.String()))
			for _, c := range p.text {
				if unicode.IsSpace(c) {
					continue
				}
				// The next sign of the text that is no white space, at the start of a piece at the start of a grapheme.
				skipped := strings.TrimLeftFunc(rest, unicode.IsSpace)
				at += len(rest) - len(skipped)
				next, size := utf8.DecodeRuneInString(skipped)
				if next != c { // require.Equal is slow
					require.Equal(t, next, c)
				}
				rest = skipped[size:]
				at += size
			}
			if strings.TrimSpace(rest) != "" && longest(text) <= chunkRunes {
				require.True(t, bounds[at] || spaceBefore(text, at), "a grapheme was cut at byte %d of %q", at, text)
			}
		}
		require.Empty(t, strings.TrimSpace(rest))
		if len(pieces) > 1 {
			require.LessOrEqual(t, len(pieces), 2*utf8.RuneCountInString(text)/leastRunes+2)
		}
	})
}

// spaceBefore reports whether white space follows the position: it was dropped, or stands inside of the grapheme's mark.
func spaceBefore(text string, at int) bool {
	c, _ := utf8.DecodeRuneInString(text[at:])
	return unicode.IsSpace(c)
}

func graphemeStarts(text string) map[int]bool {
	starts := map[int]bool{len(text): true}
	state, at := -1, 0
	for rest := text; rest != ""; {
		var cluster string
		starts[at] = true
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		at += len(cluster)
	}
	return starts
}

// longest is the size of the largest grapheme in runes.
func longest(text string) (most int) {
	state := -1
	for rest := text; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		most = max(most, utf8.RuneCountInString(cluster))
	}
	return most
}

func TestFirstRunes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", firstRunes("abc", 3))
	require.Equal(t, "ab", firstRunes("abc", 2))
	require.Equal(t, "a", firstRunes("a🇻🇳b", 2))
	require.Empty(t, firstRunes("", 5))
}

// A document made to keep us busy is cut like any other: the test would not end otherwise.
func TestSplitHostileDocument(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{")", " ", "\u0301"} {
		text := "a." + strings.Repeat(filler, 200_000) + "b"
		require.NotEmpty(t, slices.Collect(split(text, true)))
	}
}
