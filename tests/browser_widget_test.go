package tests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// startSite serves a shop's page that embeds a widget, at http://<name>.test on a port of its own.
func startSite(t testing.TB, name, script string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/icon.svg" {
			w.Header().Set("Content-Type", "image/svg+xml")
			_, _ = fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg"/>`)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><head><title>Tea shop</title><link rel="icon" href="/icon.svg"></head>
			<body><main><h1>Tea shop</h1></main><script src="%s" async></script></body></html>`, script)
	}))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	return "http://" + name + ".test:" + address.Port()
}

// frame is the frame of another site in the page, as a tab of its own. It is there until the page is left.
func (p *tab) frame(address string) *tab {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		targets, err := chromedp.Targets(p.ctx)
		require.NoError(p.t, err)
		for _, target := range targets {
			if target.Type == "iframe" && strings.HasPrefix(target.URL, address) {
				ctx, cancel := chromedp.NewContext(p.ctx, chromedp.WithTargetID(target.TargetID), chromedp.WithDetachOnCancel())
				other := *p
				other.ctx = ctx
				ended := func() {}
				p.t.Cleanup(func() {
					cancel()
					ended()
				})
				require.NoError(p.t, chromedp.Do(ctx))
				ended, err = p.watcher.watch(ctx)
				require.NoError(p.t, err)
				other.await("the frame to be loaded", `document.readyState === "complete"`)
				return &other
			}
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("there is no frame of %s in %s: %v", address, p.address(), targets)
		}
		betweenLooks()
	}
}

// write sends a visitor's message in the frame of the chat. The click brings the keyboard there: a frame that has just come
// may not have it.
func (p *tab) write(text string) {
	p.t.Helper()
	p.click("#text")
	p.fill("#text", text)
	p.enterHere()
}

// TestBrowserWidget guarantees that the chat works on the sites that its channel allows, and only there: a visitor's
// message is answered while they look, the conversation is in the dashboard, where a person can take over and reach the
// visitor; a returning visitor sees the conversation so far. On another site neither the script nor the frame is served.
func TestBrowserWidget(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	more := newGate(t)
	b := c.business(t, 1_000_000, c.up.script(func(call *upstreamCall) {
		if !strings.Contains(replyTo(call), "sencha") {
			call.answer(replyTo(call), usualUsage)
			return
		}
		call.answerInTwo("We have ", more, "sencha.")
	}), nil)
	p := b.person(t, "administrator")
	p.open("/dashboard/channels?type=widget")
	p.fill("#channel-create-name", "Shop site")
	p.fill("#channel-create-agentId", b.AgentID)
	p.fill("#channel-create-origins", "https://shop.example.com")
	p.submit("form#channel-create")
	id := strings.TrimPrefix(p.path(), "/dashboard/channels/")
	widget := c.BaseURL + "/widget/" + id
	snippet := p.text("#widget-snippet")
	require.Contains(t, snippet, widget+"/widget.js")
	shop, foreign := startSite(t, "shop", widget+"/widget.js"), startSite(t, "foreign", widget+"/widget.js")
	p.fill("#channel-edit-origins", "https://shop.example.com\n"+shop)
	p.submit("form#channel-edit")

	visitor := openTab(t, shop, c.BaseURL)
	visitor.open("/")
	visitor.click("#svc-widget-open")
	chat := visitor.frame(widget)
	chat.write("Do you have sencha?")
	chat.awaitText("#messages .theirs", "We have")
	require.NotContains(t, chat.text("#messages"), "sencha.")
	visitor.picture("answered while the visitor looks")
	more.open()
	chat.awaitText("#messages .theirs", "We have sencha.")
	require.Empty(t, chat.axe(axeOptions[light]))
	require.Empty(t, visitor.axe(axeOptions[light]))

	frame := openTab(t, c.BaseURL, c.BaseURL)
	frame.open("/widget/" + id)
	frame.requireAccessible()

	p.open("/dashboard/conversations")
	p.follow("#conversations tbody th a")
	p.awaitSaid("in received Do you have sencha?", "out sent We have sencha.")
	p.submit("form#conversation-handover")
	p.fill("#message-create-text", "Lan here. Which size?")
	p.submit("form#message-create")
	chat.awaitText("#messages .theirs", "Lan here. Which size?")
	require.EqualValues(t, 1_000_000-usualCharge, b.wallet(t).BalanceMicros)

	visitor.open("/")
	visitor.click("#svc-widget-open")
	chat = visitor.frame(widget)
	chat.awaitText("#messages .theirs", "Lan here. Which size?")

	stranger := openTab(t, foreign, c.BaseURL)
	stranger.open("/")
	stranger.click("#svc-widget-open")
	stranger.await("the browser to refuse the frame", `document.querySelector("#svc-widget-frame").src !== ""`)
	refused := js[int](stranger, fmt.Sprintf(`fetch(%q, {method: "POST", headers: {"Content-Type": "application/json"}, body: "{}"}).then(answer => answer.status, () => 0)`, widget+"/session"))
	require.Contains(t, []int{0, http.StatusForbidden}, refused)
	require.Contains(t, awaitComplaint(stranger, "frame-ancestors"), "frame-ancestors", "the frame is not shown")
	stranger.watcher.forgive()
	require.Len(t, b.Model.Calls(), 1)
}

// awaitComplaint looks until the browser has complained about something, and gives all complaints so far.
func awaitComplaint(p *tab, about string) (told string) {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for !strings.Contains(told, about) && ctx.Err() == nil {
		told += strings.Join(p.watcher.take(), "\n")
		betweenLooks()
	}
	return told
}
