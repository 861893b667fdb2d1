package week

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/internal/worker"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	modelID = "vendor/std"
	credits = 1_000_000_000
	actor   = "week"
)

// types are the platforms' types; tenants have one each, in turn.
var types = []platforms.Type{bot.Type, social.Messenger, localchat.Type, marketa.Type, social.PhotoDM, marketb.Type, social.ChatApp}

// world is a product in a bubble with its tenants and what they live through.
type world struct {
	t       *testing.T
	times   *rand.Rand // when and for how long something goes wrong, the same for any tenants
	chance  *rand.Rand // whom it meets
	persons *rand.Rand // what people do
	db      *store.DB
	queue   *inbox.Queue
	book    *billing.Book
	ring    *vault.Ring
	calls   *gateway.InFlight
	gateway *gateway.Gateway
	vendor  *vendor
	fake    *platformfake.Server
	network *network
	set     *messaging.Set
	skew    atomic.Int64  // of the clock, in nanoseconds
	came    chan struct{} // a token after a delivery
	tenants []*tenant
	running sync.WaitGroup
	end     time.Time // of what customers write

	mu       sync.Mutex
	accepted []*message
	looked   map[string]bool // turns whose answer has not arrived, or may not have, in conversations that a person took over then
}

// message is a customer's question that was accepted.
type message struct {
	tenant     *tenant
	customer   string
	text       string
	acceptedAt time.Time
}

// newWorld makes the chosen ones of the plan's tenants. Number 0 is the biggest.
func newWorld(t *testing.T, location store.Location, seed uint64, p plan, chosen func(number int) bool) *world {
	t.Helper()
	numbers := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) } //nolint:gosec // a test's
	w := &world{
		t: t, times: numbers(1), chance: numbers(2), persons: numbers(3), vendor: &vendor{random: numbers(4)},
		calls: gateway.NewInFlight(), fake: platformfake.InMemory(t), came: make(chan struct{}, 1), looked: map[string]bool{},
	}
	var err error
	w.ring, err = vault.ParseRing("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	require.NoError(t, err)
	w.db, err = store.Open(t.Context(), location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}, Clock: w.now})
	require.NoError(t, err)
	w.network = newNetwork(w.fake, numbers(5))
	w.set, err = messaging.New(messaging.Config{
		Drivers: builtin.Platforms(), Options: platformfake.Options(base), Client: w.network.client(), Now: w.now,
	})
	require.NoError(t, err)
	w.queue, w.book = inbox.New(w.db, w.ring), billing.NewBook(w.db)
	catalog, err := gateway.NewCatalog([]gateway.Model{{
		ID: modelID, Provider: "vendor", Upstream: "std-1", ContextWindow: 4000, MaxOutputTokens: 500,
		MaxTokensField: "max_tokens", Price: billing.Price{Input: 1_000_000, Output: 2_000_000, CachedInput: 1_000_000},
	}}, []gateway.ProviderEntry{{Name: "vendor", Provider: w.vendor, KeyMode: gateway.KeyNone, MaxDuration: time.Minute}})
	require.NoError(t, err)
	w.gateway = gateway.New(gateway.Config{
		Catalog: catalog, Book: w.book, DB: w.db, Ring: w.ring, Calls: w.calls, HoldTTL: 2 * time.Minute,
	})
	for n := range p.tenants {
		if chosen(n) {
			w.tenants = append(w.tenants, w.newTenant(n, seed, p))
		}
	}
	return w
}

// now is the clock of the store and the worker, which may step.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

// tenant is an organization with one channel.
type tenant struct {
	number       int
	org, channel string
	kind         platforms.Type
	externalID   string
	random       *rand.Rand
	perDay       float64
	burst        int // written at noon, all at once
	customers    int
	written      int
}

func (w *world) newTenant(number int, seed uint64, p plan) *tenant {
	t := w.t
	n := &tenant{
		number: number, org: fmt.Sprintf("org_%02d", number), channel: fmt.Sprintf("chn_%02d", number), kind: types[number%len(types)],
		externalID: fmt.Sprint(1000 + number), random: rand.New(rand.NewPCG(seed, uint64(100+number))), //nolint:gosec // a test's
		perDay: max(12, float64(p.biggest)/math.Pow(float64(number+1), 1.2)), customers: max(3, p.biggest/(number+1)/4),
	}
	if number < 3 {
		n.burst = p.burst
	}
	ctx := t.Context()
	require.NoError(t, w.db.Organizations.Create(ctx, actor, store.Organization{ID: n.org, Name: n.org, Plan: "free", WaitingMinutes: 15}))
	_, err := w.book.Credit(ctx, actor, billing.WalletID{OrgID: n.org, Env: store.Live}, credits, n.org)
	require.NoError(t, err)
	require.NoError(t, w.db.EventEndpoints.Create(ctx, actor, &store.EventEndpoint{
		ID: store.NewID("eep"), OrgID: n.org, URL: "https://shop.example/events", Events: store.EventTypes(), Secret: []byte("sealed"),
	}))
	agent := "agt_" + n.org
	require.NoError(t, w.db.Agents.Create(ctx, actor, store.Agent{
		ID: agent, OrgID: n.org, Name: agent, Model: modelID, Instructions: "Be kind.", MaxTokens: 100,
	}))
	require.NoError(t, w.db.Channels.Create(ctx, actor, store.Channel{
		ID: n.channel, OrgID: n.org, Type: string(n.kind), Name: n.channel, ExternalID: n.externalID, AgentID: agent,
		State: store.ChannelActive, Credentials: w.credentials(n),
	}, 0))
	return n
}

// credentials are new ones of the tenant's account, sealed.
func (w *world) credentials(n *tenant) []byte {
	plain, err := json.Marshal(w.fake.Account(n.kind, n.externalID))
	require.NoError(w.t, err)
	return w.ring.Seal(plain, vault.ChannelCredentials(n.org, n.channel))
}

// live writes a tenant's messages until the end.
func (w *world) live(ctx context.Context, n *tenant) {
	noon := time.Now().Add(12 * time.Hour)
	for {
		rest := time.Duration(n.random.ExpFloat64() / n.perDay * 24 * float64(time.Hour))
		if next := time.Now().Add(rest); n.burst > 0 && next.After(noon) {
			pause(ctx, time.Until(noon))
			for range n.burst {
				w.write(ctx, n)
			}
			noon = noon.Add(24 * time.Hour)
			continue
		}
		pause(ctx, rest)
		if !time.Now().Before(w.end) {
			return
		}
		w.write(ctx, n)
	}
}

// write has a customer write. The platform delivers it until it is accepted, as platforms do: in growing pauses.
func (w *world) write(ctx context.Context, n *tenant) {
	customer := fmt.Sprint(1_000_000*(n.number+1) + n.random.IntN(n.customers)) // the marketplaces take numbers only
	text := fmt.Sprintf("q-%d-%d", n.number, n.written)
	n.written++
	sentAt := w.now().UnixMilli()
	w.running.Go(func() {
		for wait := 5 * time.Second; ; wait = min(2*wait, 10*time.Minute) {
			err := w.deliver(ctx, n, inbox.Item{
				Kind: platforms.Text, CustomerRef: customer, Address: customer, MessageID: text, Text: text, SentAt: sentAt,
			})
			if err == nil {
				break
			}
			pause(ctx, wait)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.accepted = append(w.accepted, &message{n, customer, text, time.Now()})
	})
}

// deliver is what a webhook does with a verified delivery.
func (w *world) deliver(ctx context.Context, n *tenant, item inbox.Item) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	route, found, err := w.db.Routes.ByID(ctx, n.channel)
	if err != nil || !found {
		return cmp.Or(err, errors.New("the channel is gone"))
	}
	if err := w.queue.Enqueue(ctx, []inbox.Arrival{{Route: route, Items: []inbox.Item{item}}}); err != nil {
		return err
	}
	select {
	case w.came <- struct{}{}:
	default:
	}
	return nil
}

// patient waits for due conversations as PostgreSQL lets a worker wait, not by looking ten times a second: a week has millions of these.
type patient struct {
	*inbox.Queue
	w      *world
	looked *time.Time // for standing turns
}

// Reconnected and StandingTurns, which follows it, look every 20 s, not every 2 s.
func (p patient) Reconnected(ctx context.Context, limit int) (int, error) {
	if time.Since(*p.looked) < 20*time.Second {
		return 0, nil
	}
	return p.Queue.Reconnected(ctx, limit)
}

func (p patient) StandingTurns(ctx context.Context, newerThan time.Time, limit int) ([]inbox.StandingTurn, error) {
	if time.Since(*p.looked) < 20*time.Second {
		return nil, nil
	}
	*p.looked = time.Now()
	return p.Queue.StandingTurns(ctx, newerThan, limit)
}

// Committed tells nothing: who waits for other processes' commits waits for the system, and the clock of a bubble stands still meanwhile.
func (patient) Committed() <-chan struct{} { return nil }

func (p patient) Wait(ctx context.Context, _ time.Duration) error {
	var due sql.NullInt64
	err := p.w.db.Reader().QueryRowContext(ctx, `SELECT min(run_at) FROM conversations WHERE run_at IS NOT NULL AND lease_until < $1`,
		p.w.now().UnixMilli()).Scan(&due)
	if err != nil {
		return err
	}
	wait := time.Minute
	if due.Valid {
		wait = max(200*time.Millisecond, min(wait, time.UnixMilli(due.Int64).Sub(p.w.now())))
	}
	select {
	case <-p.w.came:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// work runs workers, one after the other: each is stopped after some hours, as a new version is installed.
func (w *world) work(ctx context.Context) {
	for ctx.Err() == nil {
		life, stop := context.WithTimeout(ctx, 7*time.Hour)
		one := worker.New(worker.Config{
			Queue: patient{w.queue, w, new(time.Time)}, DB: w.db, Ring: w.ring, Gateway: w.gateway, Platforms: w.set,
			Knowledge: knowledge.New(w.db, nil), Logger: slog.New(slog.DiscardHandler), Now: w.now,
		})
		err := one.Run(life, 2*time.Second)
		stop()
		if err != nil {
			w.t.Errorf("a worker ended: %v", err)
			return
		}
	}
}

// tell looks for customers who have waited for long, as package events does.
func (w *world) tell(ctx context.Context) {
	for pause(ctx, time.Minute) {
		_, err := w.db.EventWatch.Waits(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrBusy) {
			w.t.Errorf("looking for waits: %v", err)
		}
	}
}

// sweep ends holds of calls whose worker was stopped.
func (w *world) sweep(ctx context.Context) {
	for pause(ctx, 5*time.Minute) {
		_, _ = w.book.Sweep(ctx)
	}
}

// pause reports whether it waited, and not ctx's end ended it.
func pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// run lets the time pass: days of messages, then as long as something is retried.
func (w *world) run(p plan) {
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.end = time.Now().Add(time.Duration(24*p.days) * time.Hour)
	var house sync.WaitGroup
	house.Go(func() { w.work(ctx) })
	house.Go(func() { w.tell(ctx) })
	house.Go(func() { w.sweep(ctx) })
	house.Go(func() { w.trouble(ctx) })
	house.Go(func() { w.people(ctx) })
	for _, n := range w.tenants {
		w.running.Go(func() { w.live(ctx, n) })
	}
	w.running.Wait()
	for range 26 { // an hour more than the longest retries
		pause(ctx, time.Hour)
		if w.unsettled() == 0 {
			break
		}
	}
	stop()
	house.Wait()
}

// unsettled counts what a worker still has to do.
func (w *world) unsettled() (n int) {
	require.NoError(w.t, w.db.Reader().QueryRowContext(w.t.Context(), `SELECT (SELECT count(*) FROM conversations WHERE run_at IS NOT NULL)
		+ (SELECT count(*) FROM turns WHERE state IN ('awaiting', 'needs_attention'))`).Scan(&n))
	return n
}

// close ends what the bubble started.
func (w *world) close() {
	ctx := context.WithoutCancel(w.t.Context())
	require.NoError(w.t, w.calls.Wait(ctx))
	require.NoError(w.t, w.network.server.Close())
	w.set.Close()
	require.NoError(w.t, w.db.Close(ctx))
	synctest.Wait()
}

// trouble is what goes wrong in a week: one thing at a time, every few hours, and all is well at the end.
func (w *world) trouble(ctx context.Context) {
	hosts := map[string]bool{}
	for _, t := range types {
		hosts[host(t)] = true
	}
	troubles := []func(ctx context.Context, long time.Duration){
		func(ctx context.Context, long time.Duration) { // the vendor refuses connections
			w.vendor.set(providers.FailureUnreachable, false)
			pause(ctx, long)
			w.vendor.set("", false)
		},
		func(ctx context.Context, long time.Duration) { // one platform refuses connections
			down := host(types[w.chance.IntN(len(types))])
			w.network.set(w.network.down, down, true)
			pause(ctx, long)
			w.network.set(w.network.down, down, false)
		},
		func(ctx context.Context, long time.Duration) { // the store takes no writes
			_ = w.db.Exec(ctx, func(ctx context.Context, _ store.Tx) error {
				pause(ctx, long/8)
				return nil
			})
		},
		func(ctx context.Context, long time.Duration) { // the vendor hangs
			w.vendor.set("", true)
			pause(ctx, long/4)
			w.vendor.set("", false)
		},
		func(ctx context.Context, long time.Duration) { // all platforms are half well
			for host := range hosts {
				w.network.set(w.network.sick, host, true)
			}
			pause(ctx, long/2)
			for host := range hosts {
				w.network.set(w.network.sick, host, false)
			}
		},
		func(context.Context, time.Duration) { // tokens end
			for _, sent := range lastTokens(w.fake.Sent()) {
				if w.chance.IntN(3) == 0 {
					w.fake.Expire(sent)
				}
			}
		},
		func(context.Context, time.Duration) { // the clock steps
			w.skew.Add(int64(time.Duration(w.chance.IntN(21)-10) * time.Minute))
		},
		func(context.Context, time.Duration) { // an account is lost, until people connect it again
			w.revoke(w.tenants[w.chance.IntN(len(w.tenants))])
		},
	}
	for n := 0; ; n++ {
		if !pause(ctx, time.Duration(30+w.times.IntN(180))*time.Minute) || time.Now().After(w.end) {
			return
		}
		long := time.Duration(10+w.times.IntN(300)) * time.Minute
		troubles[n%len(troubles)](ctx, min(long, max(0, time.Until(w.end))))
	}
}

// lastTokens are those of the last messages.
func lastTokens(sent []platformfake.Sent) (tokens []string) {
	for _, m := range sent[max(0, len(sent)-20):] {
		tokens = append(tokens, m.Token)
	}
	return tokens
}

// revoke ends a tenant's tokens for good.
func (w *world) revoke(n *tenant) {
	for _, m := range w.fake.Sent() {
		if strings.Contains(m.Text, fmt.Sprintf("q-%d-", n.number)) {
			w.fake.Revoke(m.Token)
		}
	}
}

// people look every two hours: they connect channels again whose token is refused. They take over a conversation, write to its customer,
// and give it back an hour later, or not.
func (w *world) people(ctx context.Context) {
	for pause(ctx, 2*time.Hour) {
		for _, n := range w.tenants {
			w.reconnect(ctx, n)
		}
		n := w.tenants[w.persons.IntN(len(w.tenants))]
		found, err := w.queue.Conversations(ctx, n.org, inbox.ConversationFilter{}, store.Page{Limit: 1})
		if err != nil || len(found) == 0 || time.Now().After(w.end) {
			continue
		}
		id := found[0].ID
		if err := w.queue.HandOver(ctx, "user:ann", n.org, id); err != nil {
			continue
		}
		w.look(ctx, id)
		_, _ = w.queue.SendAsHuman(ctx, "user:ann", n.org, id, []string{"A person here."})
		if w.persons.IntN(2) == 0 && pause(ctx, time.Hour) {
			_ = w.queue.HandBack(ctx, "user:ann", n.org, id)
		}
	}
}

// look notes which answers of a conversation have not arrived, or may not have, when a person takes it over.
func (w *world) look(ctx context.Context, id string) {
	turns, err := store.ReadRows(ctx, w.db, "read what is in doubt", store.ScanValue[string],
		`SELECT turn_id FROM outbound_messages WHERE conversation_id = $1 
			AND (state = 'delivery_unknown' OR state = 'discarded' AND code = 'handed_over') AND turn_id IS NOT NULL`, id)
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("a person reads a conversation: %v", err)
	}
	for _, turn := range turns {
		w.looked[turn] = true
	}
}

func (w *world) reconnect(ctx context.Context, n *tenant) {
	channel, err := w.db.Channels.ByID(ctx, n.org, n.channel)
	if err != nil || channel.State != store.ChannelNeedsReauth {
		return
	}
	active := store.ChannelActive
	_ = w.db.Channels.Update(ctx, "user:ann", n.org, n.channel, store.ChannelChange{Credentials: w.credentials(n), State: &active})
}
