package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// screenshots is where pictures of pages go; git ignores it.
const screenshots = "../dist/screenshots"

// tab is a page in the browser, in a context of its own: no other test sees its cookies. Elements are named by CSS. What
// it does ends within patience. At the test's end nothing may have gone wrong in it unseen (see watcher).
type tab struct {
	t   testing.TB
	ctx context.Context
	// number distinguishes the tabs of a run in the names of pictures.
	number int64
	// Origin stands before the paths that are opened.
	Origin string
	// Scriptless: the pages' scripts don't run.
	Scriptless bool
	watcher    *watcher
}

var tabs atomic.Int64

// openTab is a new, empty tab, as wide as a desk's screen. Pages may load from origin and from more origins only.
func openTab(t testing.TB, origin string, more ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(startChromium(t), chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx, number: tabs.Add(1), Origin: origin, watcher: newWatcher(append(more, origin)...)}
	ended := func() {}
	t.Cleanup(func() {
		if t.Failed() {
			p.picture(fmt.Sprintf("failed %d", p.number))
			p.writeSource()
		}
		cancel()
		ended()
		if complaints := p.watcher.take(); len(complaints) > 0 {
			t.Errorf("the browser complains:\n%s", strings.Join(complaints, "\n"))
		}
	})
	require.NoError(t, chromedp.Do(ctx)) // the tab's life is its context's, not that of a first step
	browsing := chromedp.FromContext(ctx)
	_, err := cdp.Call(ctx, browsing.Browser, browser.SetPermission, browser.SetPermissionParams{ // a browser with windows has it
		Permission: &browser.PermissionDescriptor{Name: "clipboard-write"}, Setting: browser.PermissionSettingGranted,
		BrowserContextID: browsing.BrowserContextID,
	})
	require.NoError(t, err)
	ended, err = p.watcher.watch(ctx)
	require.NoError(t, err)
	p.as(light, desk)
	return p
}

// in is the same tab for a subtest.
func (p *tab) in(t testing.TB) *tab {
	t.Helper()
	other := *p
	other.t = t
	return &other
}

// withoutScript keeps the scripts of pages that are opened from now on from running.
func (p *tab) withoutScript() {
	p.t.Helper()
	p.Scriptless = true
	p.allowScripts(false)
}

func (p *tab) allowScripts(allowed bool) {
	p.t.Helper()
	run(p, "switching scripts on or off", func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !allowed})
	})
}

// stepWait bounds one step of a tab: axe-core looks at every element of the longest page, beside all other tests.
const stepWait = 2 * time.Minute

// do runs steps that give nothing.
func (p *tab) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepWait)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, steps...), "%s", what)
}

// run runs a step of a tab.
func run[T any](p *tab, what string, step chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, stepWait)
	defer cancel()
	value, err := chromedp.Run(ctx, step)
	require.NoError(p.t, err, "%s", what)
	return value
}

// js evaluates an expression in the page, or waits for the promise it gives.
func js[T any](p *tab, expression string) T {
	p.t.Helper()
	return run(p, expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// call is js for a function that takes arguments.
func call[T any](p *tab, function string, arguments ...any) T {
	p.t.Helper()
	text, err := json.Marshal(arguments)
	require.NoError(p.t, err)
	return js[T](p, fmt.Sprintf("(%s)(...%s)", function, text))
}

// open goes to a path of the origin, or to an address, which must answer 200.
func (p *tab) open(path string) {
	p.t.Helper()
	require.EqualValues(p.t, 200, p.openAny(path), "the status of %s", path)
}

// openAny is open for a page that may be an error's. It gives the status.
func (p *tab) openAny(path string) int64 {
	p.t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = p.Origin + path
	}
	return run(p, "opening "+address, chromedp.NavigateResponse(address)).Status
}

// submit presses a form's button and waits for the page that follows, which must not be an error's.
func (p *tab) submit(form string) {
	p.t.Helper()
	response := p.press(form)
	if response.Status >= 400 {
		p.t.Fatalf("the answer to %s has status %d and says:\n%s", form, response.Status, p.text("body"))
	}
}

// submitBad is submit for a form that must be refused.
func (p *tab) submitBad(form string) {
	p.t.Helper()
	response := p.press(form)
	require.GreaterOrEqual(p.t, response.Status, int64(400), "the status of the answer to %s", form)
	require.Less(p.t, response.Status, int64(500), "the status of the answer to %s", form)
}

// press presses a form's button, says yes if the page asks whether it is meant, and waits for the page that follows.
func (p *tab) press(form string) *network.Response {
	p.t.Helper()
	asks := call[bool](p, `selector => {
		const form = document.querySelector(selector)
		if (!form) throw new Error("there is no " + selector + " in " + location)
		const button = form.querySelector("button:not([type=button])")
		if (!button) throw new Error(selector + " has no button")
		button.setAttribute("data-pressed", "")
		return "confirm" in form.dataset
	}`, form)
	if !asks || p.Scriptless {
		return p.follow("[data-pressed]")
	}
	p.click("[data-pressed]")
	p.await("the question whether it is meant", `document.querySelector("dialog#confirm").open`)
	return p.follow("#confirm-yes")
}

// follow clicks an element that leads to another page, and waits for it.
func (p *tab) follow(selector string) *network.Response {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
	require.NoError(p.t, err, "pressing %s in %s", selector, p.address())
	require.NotNil(p.t, response, "pressing %s led nowhere", selector)
	return response
}

// click clicks an element that leads to no other page.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do("clicking "+selector, chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// keys presses keys, wherever the focus is.
func (p *tab) keys(keys string) {
	p.t.Helper()
	p.do("pressing keys", chromedp.KeyEvent(keys))
}

// fill puts a value into a field as a person would: written into what takes text, chosen from a list by its value.
func (p *tab) fill(selector, value string) {
	p.t.Helper()
	writes := call[bool](p, `(selector, value) => {
		const field = document.querySelector(selector)
		if (!field) throw new Error("there is no " + selector + " in " + location)
		if (field.disabled || field.readOnly) throw new Error(selector + " takes no input")
		const writes = field.matches("textarea, input:not([type=number], [type=date], [type=checkbox], [type=radio])")
		if (writes) {
			field.focus()
			field.select()
			return true
		}
		if (field.matches("select") && ![...field.options].some(option => option.value === value))
			throw new Error(selector + " has no option " + value + ", but " + [...field.options].map(option => option.value))
		field.value = value
		field.dispatchEvent(new Event("input", {bubbles: true}))
		field.dispatchEvent(new Event("change", {bubbles: true}))
		return false
	}`, selector, value)
	if !writes {
		return
	}
	if value == "" {
		p.keys("\b")
		return
	}
	run(p, "writing into "+selector, func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: value})
	})
}

// text is what an element shows, value what a field holds. Both must exist.
func (p *tab) text(selector string) string {
	p.t.Helper()
	return strings.TrimSpace(p.property(selector, "innerText"))
}

func (p *tab) value(selector string) string {
	p.t.Helper()
	return p.property(selector, "value")
}

func (p *tab) property(selector, name string) string {
	p.t.Helper()
	return call[string](p, `(selector, name) => {
		const element = document.querySelector(selector)
		if (!element) throw new Error("there is no " + selector + " in " + location)
		return String(element[name] ?? "")
	}`, selector, name)
}

// texts are what all the elements show.
func (p *tab) texts(selector string) []string {
	p.t.Helper()
	return call[[]string](p, `selector => [...document.querySelectorAll(selector)].map(element => element.innerText.trim())`, selector)
}

func (p *tab) count(selector string) int {
	p.t.Helper()
	return call[int](p, `selector => document.querySelectorAll(selector).length`, selector)
}

func (p *tab) has(selector string) bool {
	p.t.Helper()
	return p.count(selector) > 0
}

// address is where the tab is, path its part behind the origin, without a query.
func (p *tab) address() string {
	p.t.Helper()
	return run(p, "asking where the page is", chromedp.Location())
}

func (p *tab) path() string {
	p.t.Helper()
	return js[string](p, "location.pathname")
}

// await looks until an expression is true in the page, whatever pages come meanwhile.
func (p *tab) await(what, expression string) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		// A page that just goes away can't be asked.
		holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && holds {
			return
		}
		if time.Now().After(deadline) {
			p.writeSource()
			p.t.Fatalf("waited %v for %s in %s: %v", patience, what, p.address(), err)
		}
		betweenLooks()
	}
}

// awaitText looks until an element shows a text.
func (p *tab) awaitText(selector, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf(
		"[...document.querySelectorAll(%s)].some(element => element.innerText.includes(%s))", quoted(selector), quoted(text)))
}

// requireFieldError requires that a form shows a fault at a field, in words, and in a way that a screen reader reads out.
func (p *tab) requireFieldError(field string) string {
	p.t.Helper()
	return p.requireFieldErrorAt(strings.TrimPrefix(field, "#"))
}

// requireFieldErrorAt is requireFieldError for an id, which need not be fit for a selector.
func (p *tab) requireFieldErrorAt(id string) string {
	p.t.Helper()
	field, message := "[id="+quoted(id)+"]", "[id="+quoted(id+"-error")+"]"
	if !p.has(message) {
		p.t.Fatalf("no fault is told at %s; the page says:\n%s", field, p.text("body"))
	}
	text := p.text(message)
	require.NotEmpty(p.t, text, "what is told at %s", field)
	described := strings.Fields(call[string](p, `selector => document.querySelector(selector).getAttribute("aria-describedby") ?? ""`, field))
	require.Contains(p.t, described, id+"-error", "aria-describedby of %s", field)
	require.Equal(p.t, "true", call[string](p, `selector => document.querySelector(selector).getAttribute("aria-invalid") ?? ""`, field), "aria-invalid of %s", field)
	return text
}

var unsuitable = regexp.MustCompile(`[^A-Za-z0-9]+`)

// picture takes a picture of the page for people to look at, under the test's name.
func (p *tab) picture(step string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		all := true
		answer, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &all})
		return answer.Data, err
	})
	if err != nil {
		p.t.Logf("no picture of %q: %v", step, err)
		return
	}
	p.keep(step+".png", picture)
}

// writeSource keeps the page as it is now, beside the pictures.
func (p *tab) writeSource() {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	source, err := chromedp.Run(ctx, chromedp.Evaluate[string]("location + '\\n' + document.documentElement.outerHTML"))
	if err != nil {
		p.t.Logf("no source of the page: %v", err)
		return
	}
	p.keep(fmt.Sprintf("failed %d.html", p.number), []byte(source))
}

func (p *tab) keep(name string, content []byte) {
	p.t.Helper()
	file := filepath.Join(screenshots, unsuitable.ReplaceAllString(p.t.Name(), "-"), name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(p.t, os.WriteFile(file, content, 0o644))
}

// enter presses Enter where it leads to another page, which must not be an error's.
func (p *tab) enter() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Func(pressEnter))
	require.NoError(p.t, err, "pressing Enter in %s", p.address())
	require.Less(p.t, response.Status, int64(http.StatusBadRequest))
}

// enterHere presses Enter where it leads to no other page.
func (p *tab) enterHere() {
	p.t.Helper()
	p.do("pressing Enter", chromedp.Func(pressEnter))
}

// pressEnter presses the key as a keyboard does: a page that has taken it gets no new line from it, as it would from
// chromedp's own, which sends the character by itself.
func pressEnter(ctx context.Context, t *chromedp.Target) error {
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		key := input.DispatchKeyEventParams{Type: kind, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13, NativeVirtualKeyCode: 13}
		if kind == input.DispatchKeyEventTypeKeyDown {
			key.Text = "\r"
		}
		if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, key); err != nil {
			return fmt.Errorf("pressing Enter: %w", err)
		}
	}
	return nil
}

// upload chooses a file of this name and content in a file field.
func (p *tab) upload(selector, name string, content []byte) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), name)
	require.NoError(p.t, os.WriteFile(file, content, 0o600))
	p.do("choosing a file", chromedp.SetUploadFiles(chromedp.CSS(selector), []string{file}))
}

// beside is another tab with the same cookies.
func (p *tab) beside() *tab {
	p.t.Helper()
	id := chromedp.FromContext(p.ctx).BrowserContextID
	ctx, cancel := chromedp.NewContext(startChromium(p.t), chromedp.WithExistingBrowserContext(id))
	other := *p
	other.ctx = ctx
	require.NoError(p.t, chromedp.Do(ctx))
	ended, err := p.watcher.watch(ctx)
	p.t.Cleanup(func() {
		cancel()
		if ended != nil {
			ended()
		}
	})
	require.NoError(p.t, err)
	return &other
}
