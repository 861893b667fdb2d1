package markup

import (
	"strings"
	"testing"
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

// FuzzRender looks for texts whose rendering panics, is empty, or is no valid UTF-8.
func FuzzRender(f *testing.F) {
	f.Add("# a\n\n- **b** [c](d)\n\n```\ne\n```\n| f |\n|---|\n")
	f.Add("***a**b*c\n> - 1. &#0; \\*")
	f.Fuzz(func(t *testing.T, markdown string) {
		for _, style := range []platforms.Markup{plain, marks} {
			rendered := Render(markdown, style)
			require.Equal(t, strings.TrimSpace(markdown) == "", strings.TrimSpace(rendered) == "")
			require.True(t, !utf8.ValidString(markdown) || utf8.ValidString(rendered))
		}
	})
}
