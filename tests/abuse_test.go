package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platforms"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// mostOverIdle is how many bytes of heap and stacks an attack may take over those of the idle product. The process's own
// size says nothing here: the race detector multiplies it.
const mostOverIdle = 400 << 20

// abused is a product under attack and a tenant who only wants to work.
type abused struct {
	*connectedProduct

	// greedy is the tenant that attacks with a key.
	greedy    *customer
	bystander *bystander
	idle      float64
}

// TestAbuse guarantees that one client's misbehaviour is felt by that client alone: while it lasts, another tenant's calls,
// webhooks and logins get their usual answers, and the process stays within its memory.
func TestAbuse(t *testing.T) {
	t.Parallel()
	a := startAbused(t)
	for _, attack := range []struct {
		name string
		run  func(*abused, *testing.T)
	}{
		{"slow bodies", (*abused).slowBodies},
		{"idle connections", (*abused).idleConnections},
		{"hostile JSON", (*abused).hostileJSON},
		{"wrong credentials", (*abused).wrongCredentials},
		{"prompts that are hard to count", (*abused).hardPrompts},
		{"slow readers", (*abused).slowReaders},
	} {
		t.Run(attack.name, func(t *testing.T) {
			within := a.memory()
			works := a.bystander.work(t)
			attack.run(a, t)
			works()
			within(t)
		})
	}
}

func startAbused(t *testing.T) *abused {
	t.Helper()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) {
		d.App += "limits {\nbody_grace 2s\nbody_grace_with_key 2s\n}\n"
		for path, directive := range map[string]string{"/session*": "svc_api", "/dashboard*": "svc_dashboard", "/widget/*": "svc_widget"} {
			d.Routes += fmt.Sprintf("handle %s {\n%s\n}\n", path, directive)
		}
	})
	a := &abused{connectedProduct: c, greedy: c.operator().customer(t, 1_000_000_000)}
	a.greedy.KeyID, a.greedy.Key = a.greedy.newKey(t, identity.KeyRequest{Scopes: groupScopes})
	a.bystander = newBystander(t, c)
	a.bystander.work(t)() // what is made at the first use is there
	a.idle = a.inUse(t)
	return a
}

// inUse is the product's heap and stacks in bytes.
func (a *abused) inUse(t testing.TB) float64 {
	t.Helper()
	return a.metric(t, "go_memstats_heap_inuse_bytes") + a.metric(t, "go_memstats_stack_inuse_bytes")
}

// memory watches what the product takes until the returned function is called, which requires that it was never too much.
func (a *abused) memory() (within func(*testing.T)) {
	ctx, stop := context.WithCancel(context.Background())
	var most atomic.Int64
	var watch sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), int64(a.inUse(a.t))))
			betweenLooks()
		}
	})
	return func(t *testing.T) {
		t.Helper()
		stop()
		watch.Wait()
		t.Logf("%d MiB over idle", (most.Load()-int64(a.idle))>>20)
		require.LessOrEqual(t, most.Load(), int64(a.idle)+mostOverIdle)
	}
}

// bystander is a tenant with a key, a bot channel and a person who signs in.
type bystander struct {
	product *connectedProduct
	*business
	line            *line
	email, password string
}

func newBystander(t *testing.T, c *connectedProduct) *bystander {
	t.Helper()
	model := c.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	b := &bystander{product: c, business: c.business(t, 1_000_000_000, model, nil), email: "lan@example.com", password: "correct horse battery"}
	b.line = b.business.line(t, platforms.Bot)
	invited := c.svc(t, "user", "invite", "--org", b.OrgID, "--email", b.email, "--role", "owner")
	link, err := url.Parse(invited["link"].(string))
	require.NoError(t, err)
	answered := c.withKey("").send(t, http.MethodPost, "/session/password",
		strings.NewReader(fmt.Sprintf(`{"token":%s,"password":%s}`, quoted(link.Fragment), quoted(b.password))))
	require.Equal(t, http.StatusCreated, answered.Status, "%s", answered.Body)
	return b
}

// work does what a tenant does, over and over, until the returned function is called, and at least twice.
func (b *bystander) work(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	rounds := 0
	working.Go(func() {
		for ; ctx.Err() == nil || rounds < 2; rounds++ {
			if !b.round(t) {
				return
			}
			betweenLooks()
		}
	})
	return func() {
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
		strings.NewReader(fmt.Sprintf(`{"email":%s,"password":%s}`, quoted(b.email), quoted(b.password))))
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

// bodyRoutes are the addresses that read a body, with the header that a request needs to come that far.
func (a *abused) bodyRoutes() map[string]string {
	key := "Authorization: Bearer " + a.greedy.Key
	return map[string]string{
		"/session": "", "/session/password": "", "/dashboard/login": "Content-Type: application/x-www-form-urlencoded",
		"/dashboard/welcome": "Content-Type: application/x-www-form-urlencoded",
		"/webhooks/social":   "", "/webhooks/localchat": "", "/webhooks/market-a": "", "/webhooks/market-b": "",
		"/webhooks/bot/chn_unknown": "", "/webhooks/bot/" + a.bystander.line.ID: botHeader + ": wrong",
		chatPath: key, "/agents": key, "/channels": key,
	}
}

// slowBodies begin everywhere and never end. Each is answered and its connection closed.
func (a *abused) slowBodies(t *testing.T) {
	var open attackers
	defer open.close()
	for path, header := range a.bodyRoutes() {
		for i := range several(30, 300) {
			c := open.dial(t, a.product, i)
			c.post(t, path, header, 8<<20, "{")
		}
	}
	for _, c := range open.connections() {
		answered := c.answer(t)
		require.Contains(t, []int{400, 401, 200}, answered.StatusCode, c.path) // the last two for bots, without their bodies
		require.True(t, answered.Close, c.path)
		c.requireClosed(t)
	}
}

// idleConnections promise bodies of which nothing comes, as strangers and as a tenant.
func (a *abused) idleConnections(t *testing.T) {
	var open attackers
	defer open.close()
	for i := range several(1000, 5000) {
		open.dial(t, a.product, i).post(t, "/webhooks/social", "", 8<<20, "")
		open.dial(t, a.product, i).post(t, chatPath, "Authorization: Bearer "+a.greedy.Key, 32<<20, "")
	}
	for _, c := range open.connections() {
		require.Equal(t, http.StatusBadRequest, c.answer(t).StatusCode, c.path)
	}
}

// hostileJSON is wide, nested and repeated; every decoder gets it.
func (a *abused) hostileJSON(t *testing.T) {
	const n = 1 << 20
	shapes := []string{
		strings.Repeat("[", 100_000), `[` + strings.Repeat("[],", n/3) + `1]`, `[` + strings.Repeat(`{"a":{}},`, n/9) + `1]`,
		`[` + strings.Repeat("1,", n/2) + `1]`, strings.Repeat(" ", n) + "1",
	}
	signed := &line{Type: platforms.SocialMessenger}
	var attack sync.WaitGroup
	for range several(2, 20) {
		for _, shape := range shapes {
			body := `{"x":` + shape + `,"messages":` + shape + `,"knowledgeBaseIds":` + shape + `,"entry":` + shape + `}`
			short := body[:min(len(body), 900_000)]
			for path, header := range map[string]string{
				chatPath: a.greedy.Key, "/agents": a.greedy.Key, "/agents/" + a.bystander.AgentID + "/playground": a.greedy.Key,
				"/session": "", "/webhooks/localchat": "", "/webhooks/market-a": "",
			} {
				attack.Go(func() {
					answered, err := a.withKey(header).try(context.Background(), http.MethodPost, path, strings.NewReader(short))
					if failOn(t, err) && answered.Status < 400 {
						t.Errorf("%s takes it: %d", path, answered.Status)
					}
				})
			}
			attack.Go(func() {
				d := signed.sign(`{"object":"page","entry":` + shape + `}`)
				if _, err := a.tryDeliver(d); err != nil {
					t.Errorf("a signed delivery: %v", err)
				}
			})
		}
	}
	attack.Wait()
}

// wrongCredentials come in a flood from other addresses than the bystander's.
func (a *abused) wrongCredentials(t *testing.T) {
	client := a.from(2)
	defer client.CloseIdleConnections()
	var attack sync.WaitGroup
	for i := range 8 {
		attack.Go(func() {
			for j := range several(50, 1000) {
				wrong := fmt.Sprintf("sk_live_%032d", i*1000+j)
				stranger := (&product{deployment: a.deployment, clear: client, BaseURL: a.BaseURL}).withKey(wrong)
				answered, err := stranger.try(context.Background(), http.MethodGet, "/v1/models", http.NoBody)
				if failOn(t, err) && answered.Status != http.StatusUnauthorized {
					t.Errorf("a wrong key: %d %s", answered.Status, answered.Body)
				}
			}
		})
	}
	attack.Go(func() {
		for i := range several(40, 400) {
			r, err := http.NewRequest(http.MethodPost, a.BaseURL+"/session", //nolint:noctx // the client is local
				strings.NewReader(fmt.Sprintf(`{"email":"somebody-%d@example.com","password":"wrong"}`, i)))
			if !failOn(t, err) {
				return
			}
			answered, err := client.Do(r)
			if !failOn(t, err) {
				return
			}
			_ = answered.Body.Close()
			if answered.StatusCode != http.StatusUnauthorized && answered.StatusCode != http.StatusTooManyRequests {
				t.Errorf("a wrong password: %d", answered.StatusCode)
			}
		}
	})
	attack.Wait()
}

// hardPrompts need a count of tokens, and are of the sorts that a tokenizer takes long for.
func (a *abused) hardPrompts(t *testing.T) {
	const most = 200_000
	var attack sync.WaitGroup
	for _, text := range []string{
		strings.Repeat(" ", most), strings.Repeat("\n", most), strings.Repeat("a", most), strings.Repeat("ạ", most), strings.Repeat(" \n\t", most/3),
	} {
		for range several(1, 5) {
			attack.Go(func() {
				ctx, leave := context.WithTimeout(context.Background(), patience)
				defer leave()
				_, err := a.as(a.greedy).try(ctx, http.MethodPost, chatPath, strings.NewReader(prompt(modelStd, text, false)))
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a long prompt: %v", err)
				}
			})
		}
	}
	attack.Wait()
}

// slowReaders begin streams and don't read them.
func (a *abused) slowReaders(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	endless := a.up.script(func(call *upstreamCall) {
		call.begin()
		for range 200 {
			call.text(long)
		}
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	})
	var open attackers
	defer open.close()
	body := prompt(modelStd, endless.Mark, true)
	for i := range several(50, 500) {
		open.dial(t, a.product, i).post(t, chatPath, "Authorization: Bearer "+a.greedy.Key, len(body), body)
	}
	for _, c := range open.connections() {
		line, err := c.reader.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, " 200 ")
	}
	a.await("the streams to stand still", patience, func() bool { return len(endless.Calls()) == len(open.all) })
}
