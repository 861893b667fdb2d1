package messaging_test

import (
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// sizes are the limits that the descriptions declare, measured by other means than the product's.
var sizes = map[platforms.Type]struct {
	most int
	of   func(string) int
}{
	bot.Type:         {4096, func(s string) int { return len(utf16.Encode([]rune(s))) }},
	social.Messenger: {2000, utf8.RuneCountInString},
	social.PhotoDM:   {1000, func(s string) int { return len(s) }},
	social.ChatApp:   {4096, utf8.RuneCountInString},
	localchat.Type:   {2000, utf8.RuneCountInString},
	marketa.Type:     {600, utf8.RuneCountInString},
	marketb.Type:     {1000, utf8.RuneCountInString},
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// requireSplit looks that the parts are the text, within the limit, and cut between graphemes.
func requireSplit(t require.TestingT, platform platforms.Type, text string, parts []string) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	limit := sizes[platform]
	edges := map[int]bool{}    // offsets at which the text may be cut
	oversize := map[int]bool{} // and those inside of graphemes that are too large
	for g := uniseg.NewGraphemes(text); g.Next(); {
		from, to := g.Positions()
		edges[from], edges[to] = true, true
		if limit.of(text[from:to]) > limit.most {
			for i := range text[from:to] {
				oversize[from+i] = true
			}
		}
	}
	at := 0
	for _, part := range parts {
		require.False(t, blank(part), "an empty part")
		require.LessOrEqual(t, limit.of(part), limit.most)
		for !strings.HasPrefix(text[at:], part) || !edges[at] && !oversize[at] {
			r, size := utf8.DecodeRuneInString(text[at:])
			require.True(t, unicode.IsSpace(r), "lost %q before %.20q", r, part)
			at += size
		}
		at += len(part)
		require.True(t, edges[at] || oversize[at], "a grapheme is cut behind %.40q", part)
	}
	require.True(t, blank(text[at:]), "the end is lost")
	require.Equal(t, withoutSpace(text), withoutSpace(strings.Join(parts, "")))
}

var pieces = []string{
	"a", "word", " ", "  ", "\n", "\n\n", "\r\n", "\t", ". ", "! ", "。", "? ", "Chào bạn", "ệ", "e\u0301", " \u0301", "日本語", "👋🏽", "👩‍👩‍👧‍👦",
	"🇻🇳", "🇻", "\u200d", "\u2029", "\u00a0", "\u0085", "\xff", "\xc3", "\x00", "กำ", "각", "नि", "“x.” ", "3.14", "https://example.com/a-b_c?d=e",
	strings.Repeat("x", 300), strings.Repeat("y ", 150), strings.Repeat("z", 990), strings.Repeat("é", 700), strings.Repeat("👋", 600),
	"e" + strings.Repeat("\u0301", 1200), strings.Repeat(" ", 1500), strings.Repeat("\n", 30), strings.Repeat("🇻🇳", 300),
}

func TestSplitHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		platform := rapid.SampledFrom(sendingTypes).Draw(t, "platform")
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 60).Draw(t, "pieces"), "")
		requireSplit(t, platform, text, split(platform, text))
	})
}

func FuzzSplit(f *testing.F) {
	for _, piece := range pieces {
		f.Add(uint8(0), piece)
		f.Add(uint8(2), strings.Repeat(piece+"b", 40))
		f.Add(uint8(5), strings.Repeat(piece, 40))
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		platform := sendingTypes[int(which)%len(sendingTypes)]
		requireSplit(t, platform, text, split(platform, text))
	})
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func TestSplitChoosesTheBestPlace(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return repeat("x", n) }
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                    {"", nil},
		"white space":                {" \n\t \u00a0", nil},
		"one message":                {"  Hello.\n\nBye. \n", []string{"Hello.\n\nBye."}},
		"just full":                  {x(1000), []string{x(1000)}},
		"just full and a blank":      {x(1000) + " " + x(3), []string{x(1000), x(3)}},
		"one too many":               {x(1001), []string{x(1000), x(1)}},
		"paragraph before line":      {x(500) + "\n\n" + x(100) + "\n" + x(600), []string{x(500), x(100) + "\n" + x(600)}},
		"paragraph with blanks":      {x(500) + " \r\n \r\n " + x(100) + "\n" + x(600), []string{x(500), x(100) + "\n" + x(600)}},
		"line before sentence":       {x(500) + "\n" + x(100) + ". " + x(600), []string{x(500), x(100) + ". " + x(600)}},
		"sentence before space":      {x(500) + ". X" + x(100) + " " + x(600), []string{x(500) + ".", "X" + x(100) + " " + x(600)}},
		"sentence without a blank":   {repeat("字", 600) + "。" + repeat("字", 600), []string{repeat("字", 600) + "。", repeat("字", 600)}},
		"the last of its kind":       {repeat(x(9)+" ", 150), []string{repeat(x(9)+" ", 99) + x(9), repeat(x(9)+" ", 49) + x(9)}},
		"no tiny message":            {"Hi!\n\n" + repeat(x(9)+" ", 150), []string{"Hi!\n\n" + repeat(x(9)+" ", 98) + x(9), repeat(x(9)+" ", 50) + x(9)}},
		"tiny rather than in a word": {"Look: " + x(1000), []string{"Look:", x(1000)}},
		"long white space":           {x(10) + repeat(" ", 3000) + x(10), []string{x(10), x(10)}},
		"numbers are no sentences":   {x(600) + " 3.14" + x(600), []string{x(600), "3.14" + x(600)}},
	} {
		require.Equal(t, test.want, split(marketb.Type, test.text), name)
	}
}

func TestSplitCountsInThePlatformsUnit(t *testing.T) {
	t.Parallel()
	for platform, limit := range sizes {
		for _, unit := range []string{"x", "é", "字", "👋"} {
			full := repeat(unit, limit.most/limit.of(unit))
			require.Equal(t, []string{full}, split(platform, full), "%s %s", platform, unit)
			require.Equal(t, []string{full, unit}, split(platform, full+unit), "%s %s", platform, unit)
		}
	}
	long := repeat("Hello. ", 20000)
	require.Equal(t, []string{strings.TrimSpace(long)}, split(messaging.Widget, long))
}

func TestSplitKeepsGraphemesWhole(t *testing.T) {
	t.Parallel()
	family := "👩‍👩‍👧‍👦" // 7 characters
	parts := split(marketb.Type, repeat(family, 300))
	require.Equal(t, []string{repeat(family, 142), repeat(family, 142), repeat(family, 16)}, parts)

	zalgo := "e" + repeat("\u0301", 1500)
	parts = split(marketb.Type, "a "+zalgo+" b")
	require.Equal(t, []string{"a", "e" + repeat("\u0301", 999), repeat("\u0301", 501) + " b"}, parts)
}

var limits = func() map[platforms.Type]platforms.Limit {
	limits := map[platforms.Type]platforms.Limit{}
	for _, driver := range builtin.Platforms() {
		for _, channel := range driver.Describe().Channels {
			limits[channel.Type] = channel.Limit
		}
	}
	return limits
}()

func split(channelType platforms.Type, text string) []string {
	return platforms.Split(limits[channelType], text)
}

// TestLongestReply guarantees that no reply has more parts than its platform takes in a row, or more than 20, and that a shortened one
// shows it.
func TestLongestReply(t *testing.T) {
	t.Parallel()
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	sentence := strings.Repeat("x", 98) + ". " // six of them are a part
	for n, want := range map[int]int{1: 1, 6: 1, 7: 2, 24: 4, 25: 4, 100: 4} {
		parts := catalog.Split("market_a", strings.Repeat(sentence, n), false)
		require.Len(t, parts, want)
		for _, part := range parts {
			require.LessOrEqual(t, utf8.RuneCountInString(part), 600)
		}
		require.Equal(t, n > 24, strings.HasSuffix(parts[want-1], ". …"), n)
	}
	require.Len(t, catalog.Split("market_a", strings.Repeat("ả", 5000), false), 4, "without any place for a cut")

	// Ten sentences are a part of a platform that has no bound of its own.
	for n, whole := range map[int]bool{200: true, 201: false, 5000: false} {
		parts := catalog.Split("market_b", strings.Repeat(sentence, n), false)
		require.Len(t, parts, 20)
		require.Equal(t, !whole, strings.HasSuffix(parts[19], ". …"), n)
	}
	long := strings.Repeat(sentence, 5000)
	require.Equal(t, []string{strings.TrimSpace(long)}, catalog.Split("widget", long, false))
}

// TestHugeReply guarantees that a reply which no platform could show costs little more than its own length.
func TestHugeReply(t *testing.T) { //nolint:paralleltest // it measures the whole process
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	for _, piece := range []string{"word ", "👋"} {
		text := strings.Repeat(piece, 16<<20/len(piece))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		parts := catalog.Split("bot", text, false)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "%q", piece)
		require.Len(t, parts, 20, "%q", piece)
		require.True(t, strings.HasSuffix(parts[19], " …"), "%q", piece)
		require.Equal(t, platforms.Split(limits["bot"], text[:256<<10])[:19], parts[:19], "%q", piece)
	}
	gap := catalog.Split("bot", "a"+strings.Repeat(" ", 16<<20)+"b", false)
	require.Equal(t, []string{"a …"}, gap, "what is left out shows, though there is room")
	require.Empty(t, catalog.Split("bot", strings.Repeat(" ", 16<<20), false))
}

func TestFailureCodes(t *testing.T) {
	t.Parallel()
	for class, want := range map[platforms.Class]string{
		platforms.Retry: "send_failed", platforms.Refused: "send_refused", platforms.CustomerBlocked: "customer_blocked",
		platforms.NeedsReauth: "channel_needs_reauth", platforms.WindowExpired: "service_window_expired",
		platforms.TemplateRequired: "template_required", platforms.Unknown: "", "": "",
	} {
		require.Equal(t, want, messaging.FailureCode(class), class)
	}
}
