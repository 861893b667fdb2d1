package markup

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

var (
	plain platforms.Markup
	marks = platforms.Markup{Strong: "*", Emphasis: "_", Code: "`", CodeBlock: "```"}
)

// TestRender guarantees that customers read neither asterisks nor brackets of an assistant's Markdown.
func TestRender(t *testing.T) {
	for _, tt := range []struct{ name, markdown, plain, marks string }{
		{"emphasis", "The **blue** one, *not* the __red__ _one_.", "The blue one, not the red one.", "The *blue* one, _not_ the *red* _one_."},
		{"both", "***Sold out***", "Sold out", "_*Sold out*_"},
		{"heading and list", "## Sizes\n\n- **S**: 20 cm\n* none\n", "Sizes\n\n• S: 20 cm\n• none", "*Sizes*\n\n• *S*: 20 cm\n• none"},
		{"numbers", "Steps:\n1. Open\n2. Press\n   twice\n", "Steps:\n1. Open\n2. Press\n  twice", "Steps:\n1. Open\n2. Press\n  twice"},
		{"loose list", "- a\n\n- b", "• a\n\n• b", "• a\n\n• b"},
		{"list in a list", "- a\n  - b\n  - c\n- d", "• a\n  • b\n  • c\n• d", "• a\n  • b\n  • c\n• d"},
		{
			"link", "See [our shop](https://shop.example/a_b_c) or <https://x.example>.", "See our shop (https://shop.example/a_b_c) or https://x.example.",
			"See our shop (https://shop.example/a_b_c) or https://x.example.",
		},
		{"link that says its address", "[https://x.example](https://x.example) [a@x.example](mailto:a@x.example)", "https://x.example a@x.example", "https://x.example a@x.example"},
		{"image", "![the map](https://x.example/m.png)", "the map (https://x.example/m.png)", "the map (https://x.example/m.png)"},
		{"code", "Type `*#06#`.", "Type *#06#.", "Type `*#06#`."},
		{"code block", "Run:\n```sh\nls *\n```\nDone.", "Run:\nls *\n\nDone.", "Run:\n```\nls *\n```\n\nDone."},
		{"table", "| Size | Price |\n|---|--:|\n| S | **5** |\n| M | 6 |", "Size | Price\nS | 5\nM | 6", "*Size | Price*\nS | *5*\nM | 6"},
		{"quote", "> **a**\n> b", "> a\n> b", "> *a*\n> b"},
		{"rule", "a\n\n---\n\nb", "a\n\n———\n\nb", "a\n\n———\n\nb"},
		{"escapes", `1\. 5 \* 3 &amp; more`, "1. 5 * 3 & more", "1. 5 * 3 & more"},
		{"HTML", "a <b>b</b>\n\n<p>\nc\n</p>", "a <b>b</b>\n\n<p>\nc\n</p>", "a <b>b</b>\n\n<p>\nc\n</p>"},
		{"lines", "**Open**\nMonday\nTuesday", "Open\nMonday\nTuesday", "*Open*\nMonday\nTuesday"},
	} {
		require.Equal(t, tt.plain, Render(tt.markdown, plain), tt.name)
		require.Equal(t, tt.marks, Render(tt.markdown, marks), tt.name)
		require.Equal(t, tt.markdown, Render(tt.markdown, platforms.Markup{Markdown: true}), tt.name)
	}
}

// TestRenderLeavesOtherTexts guarantees that what is no Markdown, or only looks like it, reaches the customer unchanged.
func TestRenderLeavesOtherTexts(t *testing.T) {
	for _, text := range []string{
		"", "    \v ", "Hello.", " two  spaces \n\n\n and lines ", "snake_case_name and 2 * 3 * 4", "5 < 6 > 4", "R&D, C:\\temp", "#1 choice, @you, 100%",
		"~5 km ~ 10 min", "Là 20 °C — được ạ! 👍🏽", "[not a link] (really)", "2*3*4 = 24", "[1]: https://x.example", "+84 123 456",
	} {
		require.Equal(t, text, Render(text, plain))
		require.Equal(t, text, Render(text, marks))
	}
}

// TestRenderBounds guarantees that a text at each bound is rendered, and one beyond it stays as it is.
func TestRenderBounds(t *testing.T) {
	t.Parallel()
	repeat := strings.Repeat
	row := func(columns int) string { return repeat("a|", columns-1) + "a\n" }
	table := func(columns, rows int) string {
		return row(columns) + repeat("-|", columns-1) + "-\n" + repeat("b\n", rows-1)
	}
	address := "[a]: " + repeat("b", 16) + "\n\n" + repeat("[a]x", 19)
	for name, tt := range map[string]struct{ at, beyond, rendered string }{
		"quotes":        {repeat(">", 16) + "**a**", repeat(">", 17) + "**a**", repeat("> ", 16) + "a"},
		"lists":         {repeat("- ", 16) + "**a**", repeat("- ", 17) + "**a**", repeat("• ", 16) + "a"},
		"both":          {repeat("> - ", 8) + "a", repeat("> - ", 8) + "> a", repeat("> • ", 8) + "a"},
		"a table":       {table(40, 50), table(40, 51), repeat("a | ", 39) + "a" + repeat("\nb", 49)},
		"two tables":    {table(20, 50) + "\n" + table(20, 50), table(20, 50) + "\n" + table(20, 51), ""},
		"nearly tables": {table(667, 2) + "\n" + repeat("c\n", 2000), table(1001, 2) + "\n" + repeat("c\n", 2000), ""},
		"a source":      {"**a** " + repeat("b", maxSource-6), "**a** " + repeat("b", maxSource-5), "a " + repeat("b", maxSource-6)},
		// The text at the bound is 100 bytes long and becomes 400. The one beyond it would become 445 of 111.
		"an output": {address + "c", address + "[a]x[a]xcccc", repeat("a (bbbbbbbbbbbbbbbb)x", 19) + "c"},
	} {
		require.NotEqual(t, tt.at, Render(tt.at, plain), name)
		if tt.rendered != "" {
			require.Equal(t, tt.rendered, Render(tt.at, plain), name)
		}
		require.Equal(t, tt.beyond, Render(tt.beyond, plain), name)
	}
}

// worst are texts that cost much or become long when they are repeated.
var worst = []string{
	"> ", "- ", "1. ", "> - ", "> - 1. a\n", ">\na\n", "a|", "|\n", "|a|\n|-|\n|`\\|`|\n", "[a](", "![", "[a]: b\n[a]", "[", "]", "*a_ ", "**a", "`a``", "a <?\n", "<!--", "&amp;", "```\n", "    a\n", "a  \n",
	"***\n", "<a b='\n",
}

// TestRenderWorst guarantees that the length of what is rendered, and the time that it takes, are bounded by the length of the text.
func TestRenderWorst(t *testing.T) {
	t.Parallel()
	for _, text := range worst {
		requireBounded(t, strings.Repeat(text, maxSource/4/len(text))+"\na\n"+strings.Repeat("a\n", maxSource/10))
	}
	requireBounded(t, strings.Repeat("a|", 1250)+"a\n"+strings.Repeat("-|", 1250)+"-\n"+strings.Repeat("b\n", 2500))
	requireBounded(t, "[a]: "+strings.Repeat("b", 8<<10)+"\n\n"+strings.Repeat("[a]", 2<<10))
	requireBounded(t, strings.Repeat("> ", 15)+"a\n"+strings.Repeat("a\n", 7<<10))
}

// requireBounded renders a text. The bound of time is many times what the slowest text takes, because the machine may be busy.
func requireBounded(t *testing.T, markdown string) {
	t.Helper()
	for _, style := range []platforms.Markup{plain, marks} {
		began := time.Now()
		rendered := Render(markdown, style)
		require.Less(t, time.Since(began), 30*time.Second, "%.40q", markdown)
		require.LessOrEqual(t, len(rendered), maxGrowth*len(markdown), "%.40q", markdown)
	}
}

// FuzzRender looks for texts whose rendering panics, is empty, is no valid UTF-8, or is too long or takes too long when they are repeated.
func FuzzRender(f *testing.F) {
	f.Add("# a\n\n- **b** [c](d)\n\n```\ne\n```\n| f |\n|---|\n")
	f.Add("***a**b*c\n> - 1. &#0; \\*")
	for _, text := range worst {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, markdown string) {
		defer func() {
			if broken := recover(); broken != nil {
				require.Equal(t, errTooMuch{}, broken)
			}
		}()
		requireBounded(t, strings.Repeat(markdown, 4<<10/max(1, len(markdown))))
		for _, style := range []platforms.Markup{plain, marks} {
			rendered := render(markdown, style)
			require.Equal(t, strings.TrimSpace(markdown) == "", strings.TrimSpace(rendered) == "")
			require.True(t, !utf8.ValidString(markdown) || utf8.ValidString(rendered))
		}
	})
}
