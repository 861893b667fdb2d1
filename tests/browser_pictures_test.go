package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// maxPicture is what a picture in docs/ may have, in bytes.
const maxPicture = 200 << 10

// TestBrowserPictures makes the pictures of the README in dist/screenshots/docs, from where a person copies them to docs/
// when the pages have changed. It guarantees that they stay small and that docs/ has all of them.
func TestBrowserPictures(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	answers := []struct{ asked, answer string }{
		{"Do you have green tea?", "We do! Sencha from Uji, and a mild gunpowder. Both are in stock."},
		{"Which one is better for the evening?", "The gunpowder: it has less caffeine. Many drink it with fresh mint."},
		{"Can I get it gift-wrapped?", "I will ask a colleague, one moment please."},
	}
	b := c.business(t, 40_000_000, c.up.script(func(call *upstreamCall) {
		for _, a := range answers {
			if strings.Contains(replyTo(call), a.asked) {
				call.answer(a.answer, usage(31_000, 9_000))
			}
		}
	}), nil)
	rows := connect(t, c.location)
	change := func(statement string, arguments ...any) {
		t.Helper()
		_, err := rows.ExecContext(t.Context(), statement, arguments...)
		require.NoError(t, err)
	}
	change(`UPDATE organizations SET name = 'Tea House' WHERE id = $1`, b.OrgID)
	p := b.person(t, "owner")

	l := b.line(t, bot.Type)
	change(`UPDATE channels SET name = 'Shop bot' WHERE id = $1`, l.ID)
	for i, a := range answers {
		requireQueued(t, c.deliver(t, l.from(1).says(a.asked)), 1)
		c.awaitSent(l.from(1), i+1)
	}
	p.open("/dashboard/conversations/" + b.conversation(t, l).ID)
	p.awaitText("#messages > li:last-child", answers[2].answer)
	p.submit("form#conversation-handover")
	p.fill("#message-create-text", "Mai from the shop here: of course! It costs 2 extra, in red or blue paper.")
	p.submit("form#message-create")
	p.await("the answer to be sent", `document.querySelector("#messages > li:last-child[data-direction=out][data-state=sent]")`)
	p.open(p.path())
	p.show("conversation", desk, 1180)

	calls := c.fortyCalls(b)
	change(storetest.Unguard(store.SQLite, "calls"))
	for i, id := range calls {
		change(`UPDATE calls SET ended_at = ended_at - $1 WHERE id = $2`, int64(i%29)*24*time.Hour.Milliseconds(), id)
	}
	p.open("/dashboard/wallet")
	p.show("wallet", desk, 900)

	widget := b.post(t, "/channels", map[string]any{"type": "widget", "name": "Shop site", "agentId": b.AgentID}, http.StatusCreated)["id"].(string)
	site := startSite(t, "shop", c.BaseURL+"/widget/"+widget+"/widget.js")
	b.call(t, http.MethodPatch, "/channels/"+widget, map[string]any{"origins": []string{site}}, http.StatusOK)
	visitor := openTab(t, site, c.BaseURL)
	visitor.open("/")
	visitor.click("#svc-widget-open")
	chat := visitor.frame(c.BaseURL + "/widget/")
	for _, a := range answers[:2] {
		chat.write(a.asked)
		chat.awaitText("#messages .theirs", a.answer)
		chat.await("the chat to take the next one", `!document.querySelector("#send").hasAttribute("aria-disabled")`)
	}
	visitor.show("widget", 760, 700)
}

// fortyCalls makes calls of different cost and gives the ids of all calls.
func (c *connectedProduct) fortyCalls(b *business) (ids []string) {
	c.t.Helper()
	var made atomic.Int64
	model := c.up.script(func(call *upstreamCall) {
		n := made.Add(1)
		call.answer(usualText, usage(20, 500+n*n*5003%3_500))
	})
	for i := range 40 {
		sold := []string{modelStd, modelDeep}[i%7%2]
		requireAnswered(c.t, c.as(b.customer).chat(c.t, prompt(sold, model.Mark, false, fmt.Sprintf(`"max_tokens":%d`, stdMaxOut))), sold, false)
	}
	for _, row := range b.calls(c.t) {
		ids = append(ids, row.ID)
	}
	return ids
}

// show takes a picture for docs/ of what fits on a screen of this size.
func (p *tab) show(name string, width, height int64) {
	p.t.Helper()
	p.do("setting the screen", chromedp.EmulateViewport(width, height))
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.Less(p.t, len(picture), maxPicture)
	file := "dashboard-" + name + ".png"
	require.NoError(p.t, os.MkdirAll(filepath.Join(screenshots, "docs"), 0o755))
	require.NoError(p.t, os.WriteFile(filepath.Join(screenshots, "docs", file), picture, 0o644))
	kept, err := os.Stat(filepath.Join("..", "docs", file))
	require.NoError(p.t, err)
	require.Less(p.t, kept.Size(), int64(maxPicture))
}
