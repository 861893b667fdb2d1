package tests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// scheme is the colours a person prefers.
type scheme string

const (
	light scheme = "light"
	dark  scheme = "dark"
)

// The widths of screens in CSS pixels. Narrow is the width of WCAG 1.4.10 into which pages must fit. Axe checks phone and desk; a finger presses
// on touch.
const (
	narrow = 320
	phone  = 360
	touch  = 390
	desk   = 1280
)

// axe is the source of axe-core, installed from tests/browser where it is missing.
var axe = sync.OnceValues(func() (string, error) {
	const file = "browser/node_modules/axe-core/axe.min.js"
	if _, err := os.Stat(file); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), npmWait)
		defer cancel()
		install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
		install.Dir = "browser"
		if out, err := install.CombinedOutput(); err != nil {
			return "", fmt.Errorf("installing axe-core: %w\n%s", err, out)
		}
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading axe-core: %w", err)
	}
	return string(source), nil
})

// as sets the tab's preferred colours and the width of its screen.
func (p *tab) as(colours scheme, width int64) {
	p.t.Helper()
	p.do("setting the screen", chromedp.EmulateViewport(width, 800), chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: string(colours)}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	}))
}

// requireAccessible requires that axe-core finds no serious or critical fault in the page as it is now, in either scheme, on
// a phone and on a desk or in other widths, and that nothing makes the page wider than a narrow screen.
func (p *tab) requireAccessible(widths ...int64) {
	p.t.Helper()
	if faults := p.faults(widths...); len(faults) > 0 {
		p.picture("inaccessible")
		p.t.Errorf("%s is not accessible:\n%s", p.address(), strings.Join(faults, "\n"))
	}
}

// axeOptions are what axe-core looks for: everything in light, and in dark what colours decide, because the elements are the same.
var axeOptions = map[scheme]string{
	light: `{resultTypes: ["violations"]}`,
	dark:  `{resultTypes: ["violations"], runOnly: ["color-contrast", "link-in-text-block"]}`,
}

// faults are what requireAccessible would tell, each once.
func (p *tab) faults(widths ...int64) (all []string) {
	p.t.Helper()
	if len(widths) == 0 {
		widths = []int64{phone, desk}
	}
	found := func(where, fault string) {
		if !slices.ContainsFunc(all, func(told string) bool { return strings.HasSuffix(told, fault) }) {
			all = append(all, where+": "+fault)
		}
	}
	for _, width := range widths {
		for _, colours := range []scheme{light, dark} {
			p.as(colours, width)
			for _, fault := range p.axe(axeOptions[colours]) {
				found(fmt.Sprintf("%s, %d px", colours, width), fault)
			}
		}
	}
	p.as(light, narrow)
	for _, element := range js[[]string](p, tooWide) {
		found(fmt.Sprintf("%d px", narrow), "wider than the screen: "+element)
	}
	p.as(light, desk)
	return all
}

// requireTouchable requires that a finger can press everything on a phone.
func (p *tab) requireTouchable() {
	p.t.Helper()
	if small := p.tooSmall(); len(small) > 0 {
		p.picture("too small")
		p.t.Errorf("%s has targets too small for a finger:\n%s", p.address(), strings.Join(small, "\n"))
	}
}

func (p *tab) tooSmall() []string {
	p.t.Helper()
	p.as(light, touch)
	defer p.as(light, desk)
	return js[[]string](p, tooSmall)
}

// tooSmall lists the targets that are not 44 px wide and high, and have another target within 44 px around their middle. A link in a sentence is
// none, and a box is one with its label.
const tooSmall = `(() => {
	const finger = 44
	const targets = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")]
		.filter(element => element.checkVisibility({visibilityProperty: true}) && !element.closest(".skip, dialog:not([open])"))
		.filter(element => !(element.matches("a") && getComputedStyle(element).display === "inline" && element.closest("p, li, dd, td, caption") &&
			element.closest("p, li, dd, td, caption").innerText.trim() !== element.innerText.trim()))
		.map(element => {
			const rects = [element, ...(element.type === "checkbox" ? element.labels : [])].map(one => one.getBoundingClientRect())
			const left = Math.min(...rects.map(r => r.left)), right = Math.max(...rects.map(r => r.right))
			const top = Math.min(...rects.map(r => r.top)), bottom = Math.max(...rects.map(r => r.bottom))
			return {element, left, right, top, bottom, layer: element.closest(".bar, .side")}
		}).filter(t => t.right > t.left && t.bottom > t.top)
	const near = (t, other) => {
		const x = (t.left + t.right) / 2, y = (t.top + t.bottom) / 2
		const w = Math.max(finger, t.right - t.left) / 2 - 0.5, h = Math.max(finger, t.bottom - t.top) / 2 - 0.5
		return other !== t && other.layer === t.layer && other.left < x + w && other.right > x - w && other.top < y + h && other.bottom > y - h
	}
	return targets.filter(t => t.right - t.left < finger - 0.5 || t.bottom - t.top < finger - 0.5)
		.filter(t => targets.some(other => near(t, other)))
		.map(t => Math.round(t.right - t.left) + " × " + Math.round(t.bottom - t.top) + " " + t.element.outerHTML.slice(0, 120))
})()`

// tooWide lists what sticks out of the page, if the page as a whole can be moved sideways.
const tooWide = `(() => {
	const page = document.documentElement
	if (page.scrollWidth <= page.clientWidth) return []
	const all = [...document.body.querySelectorAll("*")].filter(element => element.getBoundingClientRect().right > page.clientWidth + 1)
	const outermost = all.filter(element => !all.includes(element.parentElement))
	return ["page"].concat(outermost.slice(0, 5).map(element => element.outerHTML.slice(0, 120)))
})()`

// axe runs axe-core in the page.
func (p *tab) axe(options string) []string {
	p.t.Helper()
	source, err := axe()
	require.NoError(p.t, err)
	if p.Scriptless { // axe waits for timers; the page was loaded, so its own scripts don't run
		p.allowScripts(true)
		defer p.allowScripts(false)
	}
	if !js[bool](p, "!!window.axe") {
		p.do("loading axe-core", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := chromedp.Evaluate[chromedp.Void](source)(ctx, t)
			return err
		}))
	}
	return js[[]string](p, `axe.run(document, `+options+`).then(result => result.violations
		.filter(violation => ["serious", "critical"].includes(violation.impact))
		.flatMap(violation => violation.nodes.slice(0, 5).map(node =>
			violation.impact + ": " + violation.id + ": " + node.html.slice(0, 200) + ": " +
			[...node.any, ...node.all, ...node.none].map(check => check.message).join("; "))))`)
}
