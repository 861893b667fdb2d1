package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
	"github.com/caddy-svc/caddy-svc/tests/abuse"
)

// memoryLimit is how many bytes of heap and stacks the product may have under attack. It has the limit as an operator's container gives
// it: without one the collector lets garbage grow with what lives, by a factor. The process's own size says nothing here: the race
// detector multiplies it.
const memoryLimit = 448 << 20

// attackersAppSecret is that of an application of the attacker's own at the social platform.
const attackersAppSecret = "secret-of-the-attackers-application"

// usualRounds is how often the bystander does all its work, at least, while an attack lasts.
const usualRounds = 3

// abused is a product under attack, and a tenant whose usual work must go on.
type abused struct {
	*connectedProduct

	bystander *bystander
	target    *abuse.Target
}

// TestAbuse guarantees that one client's misbehaviour is felt by that client alone: while it lasts, another tenant's calls,
// webhooks and logins get their usual answers, the attacker gets those of the contract, and the process stays within its
// memory.
func TestAbuse(t *testing.T) {
	t.Parallel()
	a := startAbused(t)
	sieges := map[string]*abuse.Siege{
		"slow bodies":                    {Connections: several(400, 4000)},
		"idle connections":               {Connections: several(2000, 10_000)},
		"hostile JSON":                   {Workers: several(4, 16), Divisor: several(4, 1)},
		"wrong credentials":              {Workers: 8, Connections: several(20, 400)},
		"prompts that are hard to count": {Workers: several(5, 25), Connections: several(1, 5)},
		"slow readers":                   {Connections: several(50, 500)},
		"unread lists":                   {Connections: several(24, 100), Workers: 4},
		"unread streams":                 {Connections: several(40, 100), Workers: 4},
		"unread replays":                 {Connections: several(50, 400), Workers: 1},
		"unread files":                   {Connections: several(50, 900), Workers: several(1, 8)},
		"visitors' lists":                {Connections: several(50, 400), Workers: several(4, 16)},
		"half-sent headers":              {Connections: several(500, 7000)},
		"documents that are hard to cut": {Connections: several(2, 8), Workers: several(2, 8)},
		"searches":                       {Connections: several(16, 48), Workers: several(16, 48)},
		"many changes":                   {Connections: several(1, 4), Workers: several(4, 16)},
		"own deliveries":                 {Connections: 1, Workers: several(1, 4), Divisor: several(4, 1)},
		"deliveries for many channels":   {Connections: several(1, 20), Workers: several(1, 4)},
		"test events":                    {Connections: several(5, 50), Workers: several(2, 8)},
		"questions to platforms":         {Connections: several(20, 200), Workers: several(4, 16)},
		"guesses from many addresses":    {Connections: several(20, 250), Workers: several(16, 250)},
	}
	for _, attack := range abuse.Attacks() {
		t.Run(attack.Name, func(t *testing.T) {
			siege := sieges[attack.Name]
			require.NotNil(t, siege, "how much of it?")
			within := a.memory()
			siege.Target = a.target
			enough, rounds := a.bystander.work(t, several(usualRounds, 10*usualRounds))
			siege.Enough = enough
			err := attack.Run(t.Context(), siege)
			rounds()
			within(t)
			require.NoError(t, err)
		})
	}
}

func startAbused(t *testing.T) *abused {
	t.Helper()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) {
		d.App += "limits {\nbody_grace 2s\nbody_grace_with_key 2s\n}\n"
		d.Whole = true
		d.Global = "servers {\nprotocols h1 h2 h2c\n}\n"
		d.env = append(d.env, fmt.Sprint("GOMEMLIMIT=", memoryLimit))
	})
	a := &abused{connectedProduct: c, bystander: newBystander(t, c)}
	a.target = newTarget(t, c, a.bystander)
	_, stop := a.bystander.work(t, 1) // what is made at the first use is there
	stop()
	t.Logf("%d MiB idle", int64(a.inUse(t))>>20)
	return a
}

// newTarget gives an attacker a tenant of their own.
func newTarget(t *testing.T, c *connectedProduct, victim *bystander) *abuse.Target {
	t.Helper()
	endless := c.up.script(func(call *upstreamCall) {
		call.begin()
		for range 200 {
			call.text(strings.Repeat("word ", 2000))
		}
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	})
	greedy := c.business(t, 1_000_000_000_000, c.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) }), nil)
	var all []string
	for _, scope := range identity.AllScopes() {
		all = append(all, string(scope))
	}
	_, greedy.Key = greedy.newKey(t, identity.KeyRequest{Scopes: all})
	long := c.up.script(func(call *upstreamCall) { call.answer(strings.Repeat("word ", 160_000), usualUsage) })
	bot := greedy.line(t, bot.Type)
	own := greedy.lineWith(t, social.Messenger, greedy.AgentID, platforms.Credentials{"appSecret": attackersAppSecret})
	pages, err := abuse.ManyPages(t.Context(), greedy.db, greedy.ring, greedy.OrgID, several(30, 300))
	require.NoError(t, err)
	widget := greedy.post(t, "/channels", map[string]any{
		"type": "widget", "name": "Site", "agentId": greedy.AgentID, "origins": []string{abuse.Origin},
	}, http.StatusCreated)["id"].(string)
	var visit struct{ Token string }
	begun := c.withKey("").send(t, http.MethodPost, "/widget/"+widget+"/session", strings.NewReader("{}"),
		"Origin", abuse.Origin, "Content-Type", "application/json")
	require.NoError(t, json.Unmarshal(begun.Body, &visit), "%s", begun.Body)
	return &abuse.Target{
		Address: strings.TrimPrefix(c.BaseURL, "http://"), Key: greedy.Key, Model: modelStd, Endless: endless.Mark, Long: long.Mark,
		Page: own.External, PageSecret: attackersAppSecret, Pages: pages, Bot: bot.ID, BotSecret: bot.Secret, Widget: widget, VisitorToken: visit.Token, Person: victim.email, Sign: signSocial,
	}
}

// inUse is the product's heap and stacks in bytes.
func (a *abused) inUse(t testing.TB) float64 {
	t.Helper()
	return a.metric(t, "go_memstats_heap_inuse_bytes", "go_memstats_stack_inuse_bytes")
}

// duringAttack is the pause between two rounds of work, and between two looks at the memory. It leaves the processors to the attack.
func duringAttack() { <-time.After(250 * time.Millisecond) }

// memory watches what the product takes until the returned function is called, which requires that it was never too much.
func (a *abused) memory() (within func(*testing.T)) {
	ctx, stop := context.WithCancel(context.Background())
	var most atomic.Int64
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), int64(a.inUse(a.t))))
			duringAttack()
		}
	})
	return func(t *testing.T) {
		t.Helper()
		stop()
		watch.Wait()
		t.Logf("%d MiB at most", most.Load()>>20)
		require.LessOrEqual(t, most.Load(), int64(memoryLimit))
	}
}

// bystander is a tenant with a key, a bot channel and a person who signs in.
type bystander struct {
	product *connectedProduct
	*business
	line            *line
	email, password string
	device          string // the cookie of where the person has signed in before
}

func newBystander(t *testing.T, c *connectedProduct) *bystander {
	t.Helper()
	model := c.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	b := &bystander{product: c, business: c.business(t, 1_000_000_000, model, nil), email: "lan@example.com", password: "correct horse battery"}
	b.line = b.business.line(t, bot.Type)
	invited := c.svc(t, "user", "invite", "--org", b.OrgID, "--email", b.email, "--role", "owner")
	link, err := url.Parse(invited["link"].(string))
	require.NoError(t, err)
	answered := c.withKey("").send(t, http.MethodPost, "/session/password",
		strings.NewReader(fmt.Sprintf(`{"token":%s,"password":%s}`, quoted(link.Fragment), quoted(b.password))))
	require.Equal(t, http.StatusCreated, answered.Status, "%s", answered.Body)
	for _, cookie := range (&http.Response{Header: answered.Header}).Cookies() {
		if cookie.Name == "svc_device" {
			b.device = cookie.Name + "=" + cookie.Value
		}
	}
	require.NotEmpty(t, b.device)
	return b
}

// work does what a tenant does, over and over, until the returned function is called. enough is closed when that was done
// so many times, or when something failed.
func (b *bystander) work(t *testing.T, times int) (enough <-chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	worked := sync.OnceFunc(func() { close(done) })
	var working sync.WaitGroup
	rounds := 0
	working.Go(func() {
		defer worked()
		for ctx.Err() == nil || rounds < times {
			if !b.round(t) {
				return
			}
			if rounds++; rounds == times {
				worked()
			}
			duringAttack()
		}
	})
	return done, func() {
		t.Helper()
		cancel()
		working.Wait()
		t.Logf("the bystander worked %d times", rounds)
	}
}

// round reports whether everything got its usual answer.
func (b *bystander) round(t *testing.T) bool {
	called, err := b.product.as(b.customer).tryChat(prompt(modelStd, b.Model.Mark, false))
	if !failOn(t, err) || called.Status != http.StatusOK {
		t.Errorf("a call of another tenant: %d %s", called.Status, called.Body)
		return false
	}
	delivered, err := b.product.tryDeliver(b.line.from(1).says("hello"))
	if !failOn(t, err) || !delivered.accepted() {
		t.Errorf("a delivery to another tenant: %d %s", delivered.Status, delivered.Body)
		return false
	}
	signedIn, err := b.product.withKey("").try(context.Background(), http.MethodPost, "/session",
		strings.NewReader(fmt.Sprintf(`{"email":%s,"password":%s}`, quoted(b.email), quoted(b.password))), "Cookie", b.device)
	if !failOn(t, err) || signedIn.Status != http.StatusCreated {
		t.Errorf("a login of another tenant: %d %s", signedIn.Status, signedIn.Body)
		return false
	}
	return true
}

// several is a number of the short form, or of the long one in make soak.
func several(short, long int) int {
	if soak() {
		return long
	}
	return short
}

// stall begins a call of which so many bytes arrive, and no more until stop.
func (p *product) stall(t testing.TB, c *customer, bytes int) (stop func()) {
	t.Helper()
	var open abuse.Crowd
	conn, err := open.Dial(t.Context(), strings.TrimPrefix(p.BaseURL, "http://"), 0)
	require.NoError(t, err)
	route := abuse.Route{Method: http.MethodPost, Path: chatPath, Header: "Authorization: Bearer " + c.Key}
	require.NoError(t, conn.Begin(route, bytes+10_000, strings.Repeat(" ", bytes)))
	return open.Close
}
