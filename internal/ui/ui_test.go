package ui

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func staticText(t *testing.T, name string) string {
	t.Helper()
	content, err := fs.ReadFile(staticFiles, "static/"+name)
	require.NoError(t, err)
	return string(content)
}

// Pages stay light: the files have the bounds of the design.
func TestFilesAreSmall(t *testing.T) {
	t.Parallel()
	const kilo = 1000
	for name, bound := range map[string]int{"ui.css": 30 * kilo, "ui.js": 40 * kilo, "icons.svg": 20 * kilo} {
		require.Less(t, len(staticText(t, name)), bound, name)
	}
	require.Less(t, len(staticText(t, "inter-latin.woff2"))+len(staticText(t, "inter-vietnamese.woff2")), 60*kilo)
}

// Files are kept under their own hash; under another version's they are this one's, and aren't kept. The style loads nothing else.
func TestAssets(t *testing.T) {
	t.Parallel()
	mux, assets := http.NewServeMux(), NewAssets("/pages/static/")
	assets.Register(mux)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	for name, kind := range map[string]string{
		"ui.css": "text/css; charset=utf-8", "ui.js": "text/javascript; charset=utf-8", "icons.svg": "image/svg+xml", "inter-latin.woff2": "font/woff2",
	} {
		w := get(assets.Address(name))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, kind, w.Header().Get("Content-Type"))
		require.Equal(t, "public, max-age=31536000, immutable", w.Header().Get("Cache-Control"))
		w = get("/pages/static/0123456789abcdef/" + name)
		require.Equal(t, http.StatusOK, w.Code)
		require.Empty(t, w.Header().Get("Cache-Control"))
	}
	require.Equal(t, http.StatusNotFound, get(assets.Address("ui.css")+"x").Code)
	require.Panics(t, func() { assets.Address("missing.css") })
	for _, found := range regexp.MustCompile(`url\(([^)]*)\)`).FindAllStringSubmatch(staticText(t, "ui.css"), -1) {
		require.NotEmpty(t, staticText(t, found[1]))
	}
	require.NotContains(t, staticText(t, "ui.css"), "@import")
}

// contrast returns the contrast of two colours like #1a56c4 (WCAG 2.2).
func contrast(t *testing.T, one, other string) float64 {
	t.Helper()
	luminance := func(colour string) float64 {
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			part, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
			require.NoError(t, err)
			c := float64(part) / 255
			if c <= 0.04045 {
				sum += weight * c / 12.92
				continue
			}
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
		return sum
	}
	a, b := luminance(one), luminance(other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

// Every pair of colours that meets has enough contrast, in both schemes, and the two ways to the dark scheme are one.
func TestContrast(t *testing.T) {
	t.Parallel()
	css := staticText(t, "ui.css")
	parts := strings.SplitAfterN(css, "/* The console", 2)
	blocks := regexp.MustCompile(`color-scheme: (light|dark);([^}]*)`).FindAllStringSubmatch(parts[0], -1)
	require.Len(t, blocks, 3)
	require.Equal(t, blocks[1][2], blocks[2][2])
	for _, block := range blocks[:2] {
		colours := make(map[string]string)
		for _, found := range regexp.MustCompile(`--([a-z0-5-]+): (#[0-9a-f]{6})`).FindAllStringSubmatch(block[2], -1) {
			colours[found[1]] = found[2]
		}
		for pair, least := range map[string]float64{
			"ink panel": 4.5, "ink ground": 4.5, "ink raised": 4.5, "quiet panel": 4.5, "quiet ground": 4.5, "quiet raised": 4.5, "accent-ink panel": 4.5,
			"accent-ink ground": 4.5, "accent-ink accent-soft": 4.5, "on-accent accent": 4.5, "on-accent accent-hover": 4.5, "assist-ink assist-soft": 4.5,
			"panel assist": 4.5, "quiet accent-soft": 4.5, "quiet assist-soft": 4.5, "ink bad-soft": 4.5, "good panel": 4.5, "good good-soft": 4.5,
			"warn panel": 4.5, "warn warn-soft": 4.5, "bad panel": 4.5, "bad bad-soft": 4.5, "bad ground": 4.5, "on-bad bad": 4.5, "note-ink note-soft": 4.5,
			"edge panel": 3, "edge ground": 3, "accent ground": 3, "accent panel": 3, "plot-0 panel": 3, "plot-1 panel": 3, "plot-2 panel": 3,
			"plot-3 panel": 3, "plot-4 panel": 3, "plot-5 panel": 3,
		} {
			on, below, _ := strings.Cut(pair, " ")
			require.GreaterOrEqual(t, contrast(t, colours[on], colours[below]), least, "%s, %s", block[1], pair)
		}
	}
}

var iconUse = regexp.MustCompile(`template "icon" "([^"]+)"`)

// Every icon that a template names is in the sprite, and no template has style or script in it.
func TestTemplates(t *testing.T) {
	t.Parallel()
	icons, names := staticText(t, "icons.svg"), 0
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(templateFiles, name)
		for _, found := range iconUse.FindAllStringSubmatch(string(content), -1) {
			require.Contains(t, icons, `id="`+found[1]+`"`)
			names++
		}
		require.NotContains(t, string(content), " style=")
		return err
	}))
	require.Greater(t, names, 3)
}

// page renders the frame around a content.
func page(t *testing.T, content string, data any) string {
	t.Helper()
	parts := Parse(NewAssets("/pages/static/"), template.FuncMap{"shout": strings.ToUpper})
	template.Must(parts.New(PageTemplate("tested")).Parse(content))
	var text bytes.Buffer
	require.NoError(t, WritePage(&text, parts, "tested", data))
	return text.String()
}

// The frame has the navigation of a person, the tabs of the page's section, and the mark of the operator.
func TestShell(t *testing.T) {
	t.Parallel()
	shell := Shell{
		Title: "Knowledge", Product: "caddy-svc", Home: "/p", Owner: "Shop", Person: "lan@shop.example", PersonPath: "/p/me", Role: "owner",
		Section: "/p/knowledge", SignOut: Button("logout", "/p/logout", "Sign out", ""), Sections: []Section{
			{Link: Link{"/p", "Overview"}, Icon: "layout-dashboard", Bar: "Overview", Tabs: []Link{{"/p", "Overview"}}},
			{Link: Link{"/p/agents", "Assistants"}, Icon: "bot", Tabs: []Link{{"/p/agents", "Assistants"}, {"/p/knowledge", "Knowledge"}}, Count: "3", CountLabel: "wait"},
		},
	}
	shown := page(t, `{{define "tested actions"}}<a href="/p/new">{{shout "new"}}</a>{{end}}<p>{{.Data}}</p>`, &struct {
		Shell
		Data string
	}{shell, "the content"})
	for _, want := range []string{
		"<title>Knowledge – caddy-svc</title>", "<h1>Knowledge</h1>", "<p>the content</p>", `<a href="/p/new">NEW</a>`,
		`<a href="/p/agents" aria-current="true">`, `<a href="/p/knowledge" aria-current="page">Knowledge</a>`, `<span class="count urgent">3`, ">L</span>",
	} {
		require.Contains(t, shown, want)
	}
	require.Equal(t, 1, strings.Count(shown, `<nav class="tabs"`))
	require.NotContains(t, shown, "OPERATOR")
	require.NotContains(t, shown, "data-scheme")

	shell.Operator, shell.Scheme, shell.Section = true, "dark", "/p"
	shown = page(t, "x", &struct{ Shell }{shell})
	require.Contains(t, shown, `<body class="operator">`)
	require.Contains(t, shown, "OPERATOR")
	require.Contains(t, shown, `data-scheme="dark"`)
	require.NotContains(t, shown, `<nav class="tabs"`)

	shown = page(t, "x", &struct{ Shell }{Shell{Title: "Sign in", Product: "caddy-svc", Home: "/p"}})
	require.NotContains(t, shown, `id="menu"`)
}

// Bars stand on each other, and the highest step reaches the top; the table has the figures.
func TestPlot(t *testing.T) {
	t.Parallel()
	p := Plot{
		ID: "calls", Title: "Calls", Sentence: "9 calls.", Step: "Day", Steps: []string{"1", "2", "3"},
		Series: []Series{{Name: "a", Values: []int64{3, 0, 1}}, {Name: "b", Values: []int64{0, 0, 5}, Colour: 9}},
		Format: func(value int64) string { return fmt.Sprintf("%d×", value) }, Name: func(step string) string { return step },
	}
	d := p.Draw()
	require.Len(t, d.Bars, 3)
	first, below, top := d.Bars[0], d.Bars[1], d.Bars[2]
	require.Equal(t, int64(plotLeft), first.X)
	require.Equal(t, int64(plotRoom/2), first.Height)
	require.Equal(t, int64(plotBase), first.Y+first.Height, "it stands on the line")
	require.Equal(t, below.X, top.X)
	require.Equal(t, below.Y, top.Y+top.Height)
	require.Equal(t, int64(plotTop), top.Y)
	require.Equal(t, PlotColours-1, top.Colour)
	require.LessOrEqual(t, top.X+top.Width, int64(plotWidth))
	require.Equal(t, []Row{{"1", []string{"3×", "0×"}}, {"3", []string{"1×", "5×"}}}, d.Rows)
	require.Equal(t, "6×", d.Ticks[len(d.Ticks)-1].Text)

	shown := page(t, `{{template "plot" .Data}}{{template "spark" .Spark}}{{template "figures" .Figures}}`, &struct {
		Shell
		Data    *Drawing
		Spark   *Spark
		Figures []Figure
	}{
		Data: d, Spark: NewSpark("Calls in the last hour", []int64{1, 4, 2}),
		Figures: []Figure{{Label: "Spent", Value: "7.00", ID: "spent", Micros: "7000000", Icon: "wallet", Path: "/p", Note: "in 30 days", Change: "+2 %", Trend: "good"}},
	})
	for _, want := range []string{
		`role="img" aria-labelledby="calls-title calls-words"`, "9 calls.", "<td class=\"number\">5×</td>",
		`class="spark" viewBox="0 0 96 20" role="img" aria-label="Calls in the last hour"`, `<strong id="spent" data-micros="7000000">7.00</strong>`, `<span class="good">&#43;2 %</span>`,
	} {
		require.Contains(t, shown, want)
	}
}

// No values make a plot fail, however odd.
func FuzzPlot(f *testing.F) {
	f.Add(int64(25), int64(math.MaxInt64))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64))
	f.Add(int64(math.MinInt64), int64(0))
	f.Fuzz(func(t *testing.T, one, other int64) {
		p := Plot{
			Steps: []string{"1", "2"}, Series: []Series{{Values: []int64{one, other}}, {Values: []int64{other, one}}},
			Format: func(value int64) string { return strconv.FormatInt(value, 10) }, Name: func(step string) string { return step },
		}
		for _, bar := range p.Draw().Bars {
			require.Positive(t, bar.Height)
			require.Positive(t, bar.Width)
			require.GreaterOrEqual(t, bar.Y, int64(0))
		}
		NewSpark("", []int64{one, other})
	})
}
