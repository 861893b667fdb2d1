package tests

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

const (
	// storeDeadline is how long a request may wait for a store that doesn't answer before it is 500.
	storeDeadline = 10 * time.Second
	// loaded is what a machine full of other tests may add.
	loaded = 35 * time.Second
	// poolBound is how many connections an outage's product may have to its database.
	poolBound = 8
	// outageFunds is what the caller of an outage begins with.
	outageFunds = 1_000_000_000
	// behindLink is the application_name of the product's connections through the link.
	behindLink = "behind-a-link"
)

// storeAddress is where the server of the deployment's database listens.
func (d *deployment) storeAddress(t testing.TB) string {
	t.Helper()
	settings, err := pgx.ParseConfig(d.location.DSN)
	require.NoError(t, err)
	return fmt.Sprintf("%s:%d", settings.Host, settings.Port)
}

// storeBehind is the variable of the environment that lets a process find its database at another address. The test's own
// connections go straight to the server.
func (d *deployment) storeBehind(t testing.TB, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return fmt.Sprintf("SVC_POSTGRES=%s host=%s port=%s application_name=%s pool_max_conns=%d",
		d.location.DSN, host, port, behindLink, poolBound)
}

// storeThrough puts a link between the product and its PostgreSQL.
func (d *deployment) storeThrough(x *toxiproxy) *link {
	x.t.Helper()
	l := x.before(d.storeAddress(x.t))
	d.env = append(slices.Clone(d.env), d.storeBehind(x.t, l.Address))
	return l
}

// outage is a product whose PostgreSQL is behind a link, with callers and platforms that never stop working.
type outage struct {
	*receiver
	up   *upstream
	link *link
	// caller pays for the crowd's calls; bounded is the product for clients that wait for no answer beyond its deadline.
	caller  *customer
	bounded *product
	crowd   *crowd
}

// startOutage starts the product; all is well so far.
func startOutage(t *testing.T) *outage {
	t.Helper()
	var l *link
	x := startToxiproxy(t)
	o := prepareOutage(t, func(d *deployment) { l = d.storeThrough(x) })
	o.link = l
	return o
}

// prepareOutage is startOutage with something else than a link before PostgreSQL.
func prepareOutage(t *testing.T, between func(*deployment)) *outage {
	t.Helper()
	o := &outage{up: startUpstream(t)}
	d := deploy(t, store.Postgres, o.up).receiving(t, platformfake.Start(t))
	d.Longest, d.HoldTTL, d.Sweep = "30s", "10s", "200ms"
	between(d)
	o.receiver = &receiver{product: startProduct(t, d), lines: map[platforms.Type]*line{}}
	o.business = o.product.business(t, 0, &script{}, nil)
	for _, kind := range []platforms.Type{bot.Type, social.Messenger} {
		o.lines[kind] = o.line(t, kind)
	}
	o.caller = o.operator().customer(t, outageFunds)
	bounded := *o.product
	bounded.clear = &http.Client{Transport: o.clear.Transport, Timeout: storeDeadline + loaded}
	o.bounded = &bounded
	return o
}

// crowd works through the whole outage: callers that ask for a model again and again, and a platform that
// delivers each message once.
type crowd struct {
	*outage
	script *script
	// asked numbers the calls: the n-th has max_tokens n, so that its hold is found by its amount.
	asked   atomic.Int64
	stop    atomic.Bool
	working sync.WaitGroup

	mu         sync.Mutex
	answers    []crowdAnswer
	deliveries []crowdDelivery
	well       int // answers and deliveries that were as on a good day
}

type crowdAnswer struct {
	answer
	stream bool
}

type crowdDelivery struct {
	delivery
	text     string
	accepted bool
}

const (
	crowdCallers, crowdWriters = 4, 2
	// crowdPause is the pause between two requests of one of the crowd: without it an outage that is answered at once would make
	// thousands of them.
	crowdPause = 50 * time.Millisecond
)

// gather lets the crowd begin. It works until disperse, or the test's end.
func (o *outage) gather(t *testing.T) {
	t.Helper()
	c := &crowd{outage: o}
	c.script = o.up.script(func(call *upstreamCall) {
		c.requireHold(t, call)
		call.answer(usualText, usualUsage)
	})
	o.crowd = c
	t.Cleanup(c.disperse)
	for i := range crowdCallers {
		c.working.Go(func() { c.call(t, i%2 == 0) })
	}
	for i := range crowdWriters {
		c.working.Go(func() { c.deliver(t, i+1) })
	}
	c.awaitWell(40)
}

// disperse ends the crowd's work and waits for the last answers.
func (c *crowd) disperse() {
	c.stop.Store(true)
	c.working.Wait()
}

// requireHold requires of a call that reached the provider that its hold is committed and open, or a tranche that carries its amount.
func (c *crowd) requireHold(t *testing.T, call *upstreamCall) {
	amount := int64(len(c.script.Mark)) + 8 + 16 + 2*call.Body.MaxTokens
	var holds int
	err := c.operator().db.Reader().QueryRow(`SELECT (SELECT count(*) FROM holds WHERE org_id = $1 AND amount_micros = $2)
			+ (SELECT count(*) FROM tranches WHERE org_id = $1 AND left_micros >= $2)`, //nolint:noctx // local
		c.caller.OrgID, amount).Scan(&holds)
	if failOn(t, err) && holds == 0 {
		t.Errorf("the provider was called for max_tokens %d without a hold", call.Body.MaxTokens)
	}
}

func (c *crowd) call(t *testing.T, stream bool) {
	as := c.bounded.as(c.caller)
	for !c.stop.Load() {
		n := c.asked.Add(1)%stdMaxOut + 1
		a, err := as.tryChat(prompt(modelStd, c.script.Mark, stream, fmt.Sprintf(`"max_tokens":%d`, n)))
		if !failOn(t, err) || !failOn(t, a.Broken) {
			return
		}
		c.mu.Lock()
		c.answers = append(c.answers, crowdAnswer{a, stream})
		c.well += count(a.Status == http.StatusOK && !strings.Contains(string(a.Body), `"error"`))
		c.mu.Unlock()
		<-time.After(crowdPause)
	}
}

func (c *crowd) deliver(t *testing.T, writer int) {
	customer := c.lines[social.Messenger].from(writer)
	for n := 1; !c.stop.Load(); n++ {
		text := fmt.Sprintf("message %d of %d", n, writer)
		d := customer.says(text)
		a, err := c.bounded.tryDeliver(d)
		if !failOn(t, err) || !failOn(t, a.Broken) {
			return
		}
		accepted := a.accepted()
		if !accepted && (a.Status != http.StatusInternalServerError || a.Header.Get("Retry-After") == "") {
			t.Errorf("a delivery was answered %d, Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), a.Body)
		}
		c.mu.Lock()
		c.deliveries = append(c.deliveries, crowdDelivery{d, text, accepted})
		c.well += count(accepted)
		c.mu.Unlock()
		<-time.After(crowdPause)
	}
}

// awaitWell waits until n more of the crowd's requests were answered as on a good day.
func (c *crowd) awaitWell(n int) {
	c.t.Helper()
	looks := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.well
	}
	before := looks()
	c.await(fmt.Sprintf("%d good answers", n), 2*patience, func() bool { return looks() >= before+n })
}

// requireRight requires of everything the crowd has seen that it is the contract's: a call is answered whole, or with
// internal_error, or its stream ends with it. It returns what the complete answers said was charged, and how many were
// broken.
func (c *crowd) requireRight(t *testing.T) (charged int64, broken int) {
	t.Helper()
	recorded := map[string]callRow{}
	for _, call := range c.caller.calls(t) {
		recorded[call.RequestID] = call
	}
	whole := 0
	for _, a := range c.answers {
		switch {
		case a.Status != http.StatusOK:
			broken++
			requireError(t, a.answer, "internal_error") // what it cost, if anything, is given back: the wallet tells
		case a.stream && strings.Contains(string(a.Body), `"error"`):
			broken++
			requireBroken(t, a.answer, "internal_error")
		default:
			whole++
			done := requireAnswered(t, a.answer, modelStd, a.stream)
			require.Equal(t, done.charged(t), recorded[done.RequestID].Charged, "what the client saw is on record")
			charged += done.charged(t)
		}
	}
	t.Logf("%d calls whole, %d broken, %d at the provider; %d deliveries", whole, broken, len(c.script.Calls()), len(c.deliveries))
	return charged, broken
}

// requireStored requires that every acknowledged delivery is in the database; then the platform delivers the others
// again, as platforms do, and all are there once.
func (c *crowd) requireStored(t *testing.T) {
	t.Helper()
	stored := c.received(t, social.Messenger)
	var all []string
	lost := 0
	for _, d := range c.deliveries {
		all = append(all, d.text)
		if d.accepted {
			require.Contains(t, stored, d.text, "acknowledged and not stored")
			continue
		}
		lost++
		requireQueued(t, c.product.deliver(t, d.delivery), 1)
	}
	require.ElementsMatch(t, all, c.received(t, social.Messenger))
	t.Logf("%d of %d deliveries had to come again", lost, len(all))
}

// requireDown asks for everything n times at once. Each request gets a fault of ours in the contract's form, whatever its
// credentials; the platforms are asked to come again; a wrong signature is still one. Nothing reaches the provider.
func (o *outage) requireDown(t *testing.T, n int) {
	t.Helper()
	as, stranger := o.bounded.as(o.caller), o.bounded.withKey(unknownKey())
	asked := o.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	bot, social := o.lines[bot.Type].from(1), o.lines[social.Messenger].from(99)
	get := func(c *client, path string) func() (answer, error) {
		return func() (answer, error) { return c.try(context.Background(), http.MethodGet, path, http.NoBody) }
	}
	asks := map[string]func() (answer, error){
		"a call":   func() (answer, error) { return as.tryChat(prompt(modelStd, asked.Mark, false)) },
		"a stream": func() (answer, error) { return as.tryChat(prompt(modelStd, asked.Mark, true)) },
		"a call with a key": func() (answer, error) {
			return as.tryChat(prompt(modelStd, asked.Mark, false), "Idempotency-Key", freshID())
		},
		"the models":                get(as, "/v1/models"),
		"the models for a stranger": get(stranger, "/v1/models"),
		"the conversations":         get(o.bounded.as(o.customer), "/conversations"),
		"the wallet":                get(as, "/wallet"),
		"a delivery":                func() (answer, error) { return o.bounded.tryDeliver(social.says("under the fault")) },
		"a delivery of the bot":     func() (answer, error) { return o.bounded.tryDeliver(bot.says("under the fault")) },
		"a delivery signed by nobody": func() (answer, error) {
			d := social.says("by nobody")
			d.Signatures = []string{flipped(d.Signatures[0])}
			return o.bounded.tryDeliver(d)
		},
	}
	names := make([]string, 0, len(asks)*n)
	for name := range asks {
		names = append(names, slices.Repeat([]string{name}, n)...)
	}
	answers := make([]answer, len(names))
	together(len(names), func(i int) {
		var err error
		answers[i], err = asks[names[i]]()
		if err != nil {
			t.Errorf("%s: %v", names[i], err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for i, name := range names {
		code := "internal_error"
		if strings.HasSuffix(name, "by nobody") {
			code = "unauthenticated"
		}
		require.Equal(t, statusOf[code], answers[i].Status, "%s: %s", name, answers[i].Body)
		requireError(t, answers[i], code)
		if strings.HasPrefix(name, "a delivery") && code == "internal_error" {
			require.NotEmpty(t, answers[i].Header.Get("Retry-After"), name)
		}
	}
	require.Empty(t, asked.Calls(), "the provider was called")
}

// requireReady waits until the readiness of the product is as wanted.
func (p *product) requireReady(status int) {
	p.t.Helper()
	p.await(fmt.Sprintf("readiness to be %d", status), patience, func() bool {
		response, err := p.clear.Get(p.SideURL + "/ready") //nolint:noctx // it is local
		require.NoError(p.t, err)
		_ = response.Body.Close()
		return response.StatusCode == status
	})
}

// goroutines is how many the product has.
func (p *product) goroutines(t testing.TB) int {
	t.Helper()
	return int(p.metric(t, "go_goroutines"))
}

// metric is the sum of samples, named with their labels as the text has them.
func (p *product) metric(t testing.TB, names ...string) (sum float64) {
	t.Helper()
	text := p.metrics(t)
	for _, name := range names {
		_, line, found := strings.Cut("\n"+text, "\n"+name+" ")
		require.True(t, found, "no metric %s", name)
		value, _, _ := strings.Cut(line, "\n")
		number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		require.NoError(t, err)
		sum += number
	}
	return sum
}

// connections is how many the product has to its database, as the server sees it.
func (o *outage) connections(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, o.operator().db.Reader().QueryRowContext(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, behindLink).Scan(&n))
	return n
}

// requireNoPileUp waits until the product has about as many goroutines as on a good day, and no more connections than
// its pool may have.
func (o *outage) requireNoPileUp(t *testing.T, goodDay int) {
	t.Helper()
	o.requireFewGoroutines(t, goodDay)
	o.await("no more connections than the pool may have", patience, func() bool { return o.connections(t) <= poolBound })
}

// requireFewGoroutines waits until the product has about as many goroutines as on a good day.
func (p *product) requireFewGoroutines(t *testing.T, goodDay int) {
	t.Helper()
	most := goodDay + 40 // those of requests that run just now
	for deadline := time.Now().Add(patience); p.goroutines(t) > most; betweenLooks() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, on a good day %d:\n%s", p.goroutines(t), goodDay, p.adminGet(t, "/debug/pprof/goroutine?debug=1"))
		}
		p.clear.CloseIdleConnections() // each keeps goroutines of the server's
	}
}
