package knowledge

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestHTMLText(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"":                   "",
		"plain &amp; simple": "plain & simple",
		"<p>One <b>two</b>three</p><p>\n four\n five </p>":             "One twothree\n\nfour five",
		"<title>T</title><h1>A</h1><h3>B <i>c</i></h3>d":               "# T\n\n# A\n\n### B c\n\nd",
		"<ul><li>one<li>two</ul>after":                                 "- one\n- two\n\nafter",
		"<table><tr><th>Size<th>Price<tr><td>42<td>100</table>":        "| Size | Price\n| 42 | 100",
		"a<br>b<br/>c<hr>d":                                            "a\nb\nc\n\nd",
		"<pre>a\n  b</pre>c":                                           "a\n  b\n\nc",
		"a<script>alert('<p>x</p>')</script><style>p{}</style>b":       "ab",
		"a<!-- no --><template><p>x</p></template><svg><text>y</svg>b": "ab",
		"<noscript>enable</noscript>ok<script>never closed <p>x":       "ok",
		"<a href='javascript:x' title=t>link</a> <img alt=x>":          "link",
		"Caf&eacute; &#x110;&#273; &nbsp;x &lt;p&gt; 5 < 6 &bogus;":    "Café Đđ x <p> 5 < 6 &bogus;",
		"</p></li></script></pre>x</h1>y":                              "x\n\ny",
	} {
		require.Equal(t, want, strings.TrimSpace(textOf(source)), "%q", source)
	}
}

// FuzzHTMLText: any source gives a text, and nothing of a script.
func FuzzHTMLText(f *testing.F) {
	for _, seed := range []string{
		"<p>a</p>", "<script>zzsecretzz</script>", "<svg><style>zzsecretzz</svg>x", "<<<>>>&&&;", "<pre><pre></pre>\x00\xff", "<h1><li><td>x",
		"<textarea><script>zzsecretzz", "<plaintext><p>", "<!--><p>", "<![CDATA[x]]>", "<p" + strings.Repeat(" a=b", 50),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		text := clean(textOf(source))
		require.True(t, utf8.ValidString(text))
		require.NotContains(t, text, "\x00")
		require.LessOrEqual(t, len(text), 8*len(source)+64)
		hidden := textOf("<p>seen</p><script>" + strings.ReplaceAll(source, "<", "") + "</script>")
		require.Equal(t, "seen", hidden)
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb\nc\nd\n\n e\tf\uFFFDg h", clean("\uFEFFa\r\nb\rc\u2028d\n\n\u0001e\tf\xff\x00g\u007Fh"))
}

func textOf(source string) string {
	text, _ := htmlText(source, func() error { return nil }) // there is no other error
	return text
}
