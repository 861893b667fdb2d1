package tests

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestBrowserPages guarantees for every page that a link leads to, and for those of errors and of signing in, that it loads
// without a complaint, that axe-core finds no serious fault in light and dark, on a phone and on a desk, that
// it fits a narrow screen, and that a finger can press everything; and that on a phone every section is behind its bar.
func TestBrowserPages(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l, pending := b.line(t, bot.Type), b.line(t, social.Messenger)
	_ = pending
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	c.awaitSent(l.from(1), 1)
	p := b.person(t, "owner")
	p.open("/dashboard/knowledge")
	p.fill("#knowledge-create-name", "Teas")
	p.submit("form#knowledge-create")
	p.fill("#document-create-name", "Green teas")
	p.fill("#document-create-content", "Sencha is a green tea from Japan.")
	p.submit("form#document-create")

	for _, path := range []string{"/dashboard/nothing", "/dashboard/agents/agt_unknown", "/dashboard/agents/" + b.AgentID + "/playground"} {
		p.openAny(path)
		p.requireAccessible()
	}
	visited := p.crawl("/dashboard", func() {
		p.requireAccessible()
		p.requireTouchable()
	})
	for _, path := range []string{
		"/dashboard", "/dashboard/keys", "/dashboard/provider-keys", "/dashboard/events", "/dashboard/members", "/dashboard/audit", "/dashboard/wallet",
		"/dashboard/organization", "/dashboard/agents", "/dashboard/agents/{id}", "/dashboard/agents/{id}/playground", "/dashboard/knowledge",
		"/dashboard/knowledge/{id}", "/dashboard/channels", "/dashboard/channels?type", "/dashboard/channels/{id}", "/dashboard/conversations",
		"/dashboard/conversations/{id}", "/dashboard/account",
	} {
		require.Contains(t, visited, path)
	}

	p.as(dark, touch)
	p.open("/dashboard")
	require.Equal(t, []string{"Overview", "Inbox", "Assistants", "Wallet", "More"}, p.texts(".bar a"))
	require.False(t, js[bool](p.tab, `document.querySelector("#menu").checkVisibility()`))
	p.click(`.bar a[href="#menu"]`)
	p.await("the menu", `document.querySelector("#menu").checkVisibility()`)
	require.Empty(t, p.tooSmall())
	p.as(dark, touch)
	p.picture("the menu on a phone")
	p.follow(`#menu a[href="/dashboard/organization"]`)
	p.follow(`.tabs a[href="/dashboard/audit"]`)
	p.picture("the audit log on a phone")
	p.as(light, desk)

	p.submit("form#logout")
	for _, path := range []string{"/dashboard/login", "/dashboard/welcome"} {
		p.open(path)
		p.requireAccessible()
	}
}

// TestBrowserVietnamese guarantees that a person who chooses Vietnamese has every page in it, and that no label of the sidebar, a tab or a button
// needs a second line at 1440.
func TestBrowserVietnamese(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, bot.Type)
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	c.awaitSent(l.from(1), 1)
	p := b.person(t, "owner")
	p.open("/dashboard/account")
	p.fill("#account-language-language", "vi")
	p.submit("form#account-language")
	require.Equal(t, "Đã lưu.", p.text("#notice"))
	p.requireAccessible()
	p.as(light, 1440)
	p.crawl("/dashboard", func() {
		require.Equal(t, "vi", js[string](p.tab, `document.documentElement.lang`), p.address())
		require.Empty(t, js[[]string](p.tab, `[...document.querySelectorAll(".side nav a .label, .tabs a, button, a.button")].filter(label => {
			const lines = new Set(), walk = document.createTreeWalker(label, NodeFilter.SHOW_TEXT)
			for (let text = walk.nextNode(); text; text = walk.nextNode()) {
				const range = document.createRange()
				range.selectNodeContents(text)
				for (const part of range.getClientRects()) if (part.width > 1) lines.add(Math.round(part.top))
			}
			return lines.size > 1
		}).map(label => label.textContent)`), p.address())
	})
}

// crawl visits one page of each kind that links lead to from a page, and gives the kinds: the path with {id} for ids, and
// the names of its parameters.
func (p *person) crawl(from string, visit func()) (kinds []string) {
	p.t.Helper()
	next := []string{from}
	for len(next) > 0 {
		address := next[0]
		next = next[1:]
		kind := kindOf(address)
		if slices.Contains(kinds, kind) {
			continue
		}
		kinds = append(kinds, kind)
		p.open(address)
		visit()
		next = append(next, p.links(`a:not([download], [target])`)...)
	}
	return kinds
}

// kindOf is what two pages have in common that differ by what they show.
func kindOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	segments := strings.Split(u.Path, "/")
	for i, segment := range segments {
		if strings.Contains(segment, "_") {
			segments[i] = "{id}"
		}
	}
	names := make([]string, 0, 4)
	for name := range u.Query() {
		names = append(names, name)
	}
	slices.Sort(names)
	kind := strings.Join(segments, "/")
	if len(names) > 0 {
		kind += "?" + strings.Join(names, "&")
	}
	return kind
}

// links are the addresses within the dashboard that elements lead to, without the place in the page.
func (p *tab) links(selector string) []string {
	p.t.Helper()
	return call[[]string](p, `selector => [...document.querySelectorAll(selector)].map(link => new URL(link.href))
		.filter(url => url.origin === location.origin && url.pathname.startsWith("/dashboard")).map(url => url.pathname + url.search)`, selector)
}

// TestBrowserKeyboard guarantees that a user without a mouse can sign in, skip to the content and send a form, and always
// sees the focus.
func TestBrowserKeyboard(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	p := b.person(t, "owner")
	p.submit("form#logout")
	p.open("/dashboard/login")
	p.tabTo("login-email")
	p.keys(p.Email)
	p.tabTo("login-password")
	p.keys(p.Password)
	p.enter()
	require.Equal(t, "/dashboard", p.path())
	p.open("/dashboard/agents")
	p.keys("\t")
	require.Equal(t, "#main", js[string](p.tab, `document.activeElement.getAttribute("href")`), "the first stop skips to the content")
	p.enterHere()
	p.tabTo("agent-create-name")
	p.keys("Lan")
	p.enter()
	require.Equal(t, "Lan", p.text("h1"))
	p.tabTo("agent-delete")
}

// tabTo presses Tab until an element has the focus, or a button in it, and requires at each stop that the focus is seen.
func (p *person) tabTo(id string) {
	p.t.Helper()
	for range 100 {
		p.keys("\t")
		at := js[struct{ ID, Form, Name, Seen string }](p.tab, `(() => {
			const at = document.activeElement, style = getComputedStyle(at)
			const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none"
			return {ID: at.id, Form: at.form?.getAttribute("id") ?? "", Name: at.outerHTML.slice(0, 100), Seen: seen ? "seen" : ""}
		})()`)
		require.NotEmpty(p.t, at.Seen, "the focus is not seen at %s in %s", at.Name, p.address())
		if at.ID == id || at.Form == id {
			return
		}
	}
	p.t.Fatalf("the keyboard does not reach %s in %s", id, p.address())
}

// TestBrowserWithoutScript guarantees that what the dashboard does, but for the playground, works where no script runs: a form
// leads to its page, a fault stands at its field, and a conversation is read and answered.
func TestBrowserWithoutScript(t *testing.T) {
	t.Parallel()
	c := startWithPages(t)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, bot.Type)
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	c.awaitSent(l.from(1), 1)
	p := b.person(t, "owner")
	p.withoutScript()
	p.submit("form#logout")
	p.open("/dashboard/login")
	p.signIn()

	p.open("/dashboard/agents")
	p.fill("#agent-create-model", modelStd)
	p.submitBad("form#agent-create")
	p.requireFieldError("#agent-create-name")
	p.fill("#agent-create-name", "Lan")
	p.submit("form#agent-create")
	require.Equal(t, "Lan", p.text("h1"))
	p.submit("form#agent-delete")
	require.Len(t, p.texts("#agents tbody tr"), 1)

	p.open("/dashboard/conversations/" + b.conversation(t, l).ID)
	p.fill("#message-create-text", "A person here.")
	p.submit("form#message-create")
	require.Equal(t, "A person here.", c.awaitSent(l.from(1), 2)[1])
	p.open(p.path())
	p.awaitSaid("in received hello", "out sent Re: hello", "out sent A person here.")
}
