package worker

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/knowledge"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/providers"
)

const (
	acme       = "org_acme"
	bot        = "chn_bot"
	botType    = platforms.Type("bot")
	helper     = "agt_helper"
	modelID    = "vendor/std"
	credits    = 1_000_000_000
	masterKey  = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	window     = 4000
	maxOutput  = 500
	answerCost = 12 // what one answer of the vendor costs: see play
	patience   = time.Minute
)

// kinds are those of the product.
var kinds = []store.Kind{inbox.Kind, billing.Ledger}

// fixture is a whole product without its HTTP handlers: one funded organization with an assistant on a bot channel.
type fixture struct {
	db       *store.DB
	queue    *inbox.Queue
	book     *billing.Book
	gateway  *gateway.Gateway
	calls    *gateway.InFlight
	ring     *vault.Ring
	vendor   *vendor
	platform *platformfake.Server
	client   *messaging.Set
	log      *logbook
	accounts int
}

// logbook keeps what was logged: no test may find a customer's words in it.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// vendor is a model provider that a test speaks for.
type vendor struct {
	// reply makes the answer of the nth call, from 1. nil repeats the user's texts since the last answer.
	reply func(ctx context.Context, n int, asked []string) (string, error)

	mu    sync.Mutex
	asked [][]string
}

// Open implements providers.Provider.
func (v *vendor) Open(ctx context.Context, req *providers.Request) (providers.Events, error) {
	var asked []string
	for _, m := range req.Messages {
		asked = append(asked, m.Role+": "+m.Content.Text())
	}
	v.mu.Lock()
	v.asked = append(v.asked, asked)
	n := len(v.asked)
	v.mu.Unlock()
	reply := v.reply
	if reply == nil {
		reply = func(_ context.Context, _ int, asked []string) (string, error) { return echo(asked), nil }
	}
	text, err := reply(ctx, n, asked)
	if err != nil && !errors.Is(err, errBrokenOff) {
		return nil, err
	}
	return &played{text: text, breaks: err != nil}, nil
}

// echo names what the user said since the last answer.
func echo(asked []string) string {
	var said []string
	for _, m := range asked {
		if text, user := strings.CutPrefix(m, "user: "); user {
			said = append(said, text)
		} else {
			said = nil
		}
	}
	return "You said: " + strings.Join(said, " and ")
}

func (v *vendor) calls() [][]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

// played is a whole answer in one event; it costs answerCost.
type played struct {
	text         string
	done, breaks bool
}

// errBrokenOff lets a vendor break off after its text and its report of usage.
var errBrokenOff = errors.New("the vendor breaks off")

func (p *played) Next() (providers.Event, error) {
	switch {
	case p.done && p.breaks:
		return providers.Event{}, broken(providers.FailureUnreachable)
	case p.done:
		return providers.Event{}, io.EOF
	}
	p.done = true
	return providers.Event{
		Text: p.text, FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 4, CompletionTokens: 4},
	}, nil
}

func (p *played) Buffered() bool { return !p.done }
func (p *played) Close()         {}

// broken is a failure of the vendor's.
func broken(f providers.Failure) error {
	return &providers.Error{Failure: f, Cause: fmt.Errorf("the vendor fails: %s", f)}
}

// build makes a fixture on a database.
func build(t testing.TB, db *store.DB) *fixture {
	t.Helper()
	ring, err := vault.ParseRing(masterKey)
	require.NoError(t, err)
	h := &fixture{
		db: db, queue: inbox.New(db, ring), book: billing.NewBook(db), ring: ring, vendor: &vendor{},
		calls: gateway.NewInFlight(), platform: platformfake.Start(t), log: &logbook{},
	}
	h.client = h.platform.Client(t)
	catalog, err := gateway.NewCatalog([]gateway.Model{{
		ID: modelID, Provider: "vendor", Upstream: "std-1", ContextWindow: window, MaxOutputTokens: maxOutput,
		MaxTokensField: "max_tokens", Price: billing.Price{Input: 1_000_000, Output: 2_000_000, CachedInput: 1_000_000},
	}}, []gateway.ProviderEntry{{Name: "vendor", Provider: h.vendor, KeyMode: gateway.KeyNone, MaxDuration: time.Minute}})
	require.NoError(t, err)
	h.gateway = gateway.New(gateway.Config{
		Catalog: catalog, Book: h.book, DB: db, Ring: ring, Calls: h.calls, HoldTTL: time.Minute,
	})
	h.organization(t, acme, credits)
	h.agent(t, acme, helper)
	h.channel(t, acme, bot, botType, helper)
	return h
}

// open makes a fixture on a fresh SQLite database.
func open(t *testing.T) *fixture {
	t.Helper()
	return build(t, storetest.Open(t, store.SQLite, kinds...))
}

// onEach runs a test with a fixture on each engine.
func onEach(t *testing.T, run func(t *testing.T, h *fixture)) {
	t.Helper()
	storetest.Each(t, kinds, func(t *testing.T, db *store.DB) { run(t, build(t, db)) })
}

func (h *fixture) organization(t testing.TB, id string, funds int64) {
	t.Helper()
	require.NoError(t, h.db.Organizations.Create(t.Context(), "test", store.Organization{ID: id, Name: id, Plan: "free"}))
	if funds > 0 {
		h.credit(t, id, funds)
	}
}

func (h *fixture) credit(t testing.TB, org string, micros int64) {
	t.Helper()
	_, err := h.book.Credit(t.Context(), "test", billing.WalletID{OrgID: org, Env: store.Live}, micros, store.NewID("ref"))
	require.NoError(t, err)
}

func (h *fixture) agent(t testing.TB, org, id string, change ...func(*store.Agent)) {
	t.Helper()
	agent := store.Agent{ID: id, OrgID: org, Name: id, Model: modelID, Instructions: "Be kind.", MaxTokens: 100}
	for _, f := range change {
		f(&agent)
	}
	require.NoError(t, h.db.Agents.Create(t.Context(), "test", agent))
}

// changeAgent changes the fixture's own assistant.
func (h *fixture) changeAgent(t *testing.T, change func(*store.Agent)) {
	t.Helper()
	require.NoError(t, h.db.Agents.Update(t.Context(), "test", acme, helper, func(agent *store.Agent) error {
		change(agent)
		return nil
	}))
}

func (h *fixture) channel(t testing.TB, org, id string, kind platforms.Type, agent string) platforms.Credentials {
	t.Helper()
	h.accounts++
	externalID := fmt.Sprint(1000 + h.accounts)
	account := h.platform.Account(kind, externalID)
	require.NoError(t, h.db.Channels.Create(t.Context(), "test", store.Channel{
		ID: id, OrgID: org, Type: string(kind), Name: id, ExternalID: externalID, AgentID: agent, State: store.ChannelActive,
		Credentials: h.sealed(t, org, id, account),
	}, 0))
	return account
}

func (h *fixture) sealed(t testing.TB, org, channel string, c platforms.Credentials) []byte {
	t.Helper()
	plain, err := json.Marshal(c)
	require.NoError(t, err)
	return h.ring.Seal(plain, vault.ChannelCredentials(org, channel))
}

// say delivers a customer's texts on a channel, each under an id of its own.
func (h *fixture) say(t *testing.T, channel, customer string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		h.deliver(t, channel, inbox.Item{
			Kind: platforms.Text, CustomerRef: customer, Address: "to-" + customer, MessageID: store.NewID("m"), Text: text,
		})
	}
}

func (h *fixture) deliver(t *testing.T, channel string, items ...inbox.Item) {
	t.Helper()
	route, found, err := h.db.Routes.ByID(t.Context(), channel)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, h.queue.Enqueue(t.Context(), []inbox.Arrival{{Route: route, Items: items}}))
}

// later is a queue that gives conversations back for an hour more: nothing comes back by itself while a test waits for a slow
// machine, but by hurry.
type later struct{ Queue }

func (l later) Backoff(ctx context.Context, lease inbox.Lease, wait time.Duration) error {
	return l.Queue.Backoff(ctx, lease, wait+time.Hour)
}

func (l later) Postpone(ctx context.Context, lease inbox.Lease, wait time.Duration) error {
	return l.Queue.Postpone(ctx, lease, wait+time.Hour)
}

// unpaced are platforms that take messages as fast as they come, so that tests of other things don't wait.
type unpaced struct{ *messaging.Set }

func (u unpaced) Find(channelType string) (messaging.ChannelType, bool) {
	found, known := u.Set.Find(channelType)
	if found.ChannelType != nil {
		kind := *found.ChannelType
		kind.Pace, kind.CustomerPace = platforms.Pace{}, platforms.Pace{}
		found.ChannelType = &kind
	}
	return found, known
}

// worker is a worker of the fixture.
func (h *fixture) worker(change ...func(*Config)) *Worker {
	cfg := Config{
		Queue: later{h.queue}, DB: h.db, Ring: h.ring, Gateway: h.gateway, Platforms: unpaced{h.client}, Lease: time.Minute,
		Knowledge: knowledge.New(h.db, nil),
		Logger:    slog.New(slog.NewTextHandler(h.log, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	return New(cfg)
}

// drain works on the test's own goroutine until nothing is due, and returns how many passes that took.
func (h *fixture) drain(t *testing.T, w *Worker) (passes int) {
	t.Helper()
	for {
		leases, err := w.Queue.Lease(t.Context(), inbox.Places{Free: 8}, w.Lease)
		require.NoError(t, err)
		if len(leases) == 0 {
			return passes
		}
		for _, lease := range leases {
			w.converse(t.Context(), lease, nil)
			passes++
		}
		require.Less(t, passes, 1000, "the queue turns in circles")
	}
}

// hurry makes everything that waits for a later time due now.
func (h *fixture) hurry(t *testing.T) {
	t.Helper()
	h.exec(t, `UPDATE conversations SET run_at = 1 WHERE run_at IS NOT NULL`)
	h.exec(t, `DELETE FROM channel_paces`)
	h.exec(t, `UPDATE conversations SET paced_until = 0`)
}

// bury ends all leases, as if their workers had died long ago.
func (h *fixture) bury(t *testing.T) {
	t.Helper()
	h.exec(t, `UPDATE conversations SET lease_until = 1 WHERE lease_until > 0`)
}

func (h *fixture) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	require.NoError(t, h.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, args...)
		return nil
	}))
}

// conversation is the only one of a customer.
func (h *fixture) conversation(t *testing.T, org, customer string) inbox.Conversation {
	t.Helper()
	all, err := h.queue.Conversations(t.Context(), org, inbox.ConversationFilter{}, store.Page{Limit: 100})
	require.NoError(t, err)
	var found []inbox.Conversation
	for _, c := range all {
		if c.CustomerRef == customer {
			found = append(found, c)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// lines are the messages of a customer's conversation as "author: text (state code)".
func (h *fixture) lines(t *testing.T, org, customer string) (lines []string) {
	t.Helper()
	messages, err := h.queue.Messages(t.Context(), org, h.conversation(t, org, customer).ID, store.Page{Limit: 100})
	require.NoError(t, err)
	for _, m := range messages {
		line := m.Author + ": " + m.Text
		if state := strings.TrimSpace(m.State + " " + m.Code); state != "" {
			line += " (" + state + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// turns are the turns of an organization as "state code", oldest first.
func (h *fixture) turns(t *testing.T, org string) (turns []string) {
	t.Helper()
	rows, err := h.db.Reader().QueryContext(t.Context(), `SELECT state, code FROM turns WHERE org_id = $1 ORDER BY id`, org)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var state, code string
		require.NoError(t, rows.Scan(&state, &code))
		turns = append(turns, strings.TrimSpace(state+" "+code))
	}
	require.NoError(t, rows.Err())
	return turns
}

// leaseless checks that no conversation is leased.
func (h *fixture) leaseless(t *testing.T) {
	t.Helper()
	var held int
	require.NoError(t, h.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM conversations WHERE lease_until > 0`).Scan(&held))
	require.Zero(t, held)
}

// texts are what the platform delivered, oldest first.
func (h *fixture) texts() (texts []string) {
	for _, sent := range h.platform.Sent() {
		texts = append(texts, sent.Text)
	}
	return texts
}

// spent is what the organization paid, with all books in order and nothing held.
func (h *fixture) spent(t *testing.T, org string) int64 {
	t.Helper()
	require.NoError(t, h.calls.Wait(t.Context()))
	wallet, err := h.book.Wallet(t.Context(), billing.WalletID{OrgID: org, Env: store.Live})
	require.NoError(t, err)
	require.Zero(t, wallet.HeldMicros, "something is still held")
	report, err := billing.Check(t.Context(), h.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "%v", report)
	findings, err := inbox.CheckSince(t.Context(), h.db, 0)
	require.NoError(t, err)
	require.Empty(t, findings)
	var charged sql.NullInt64
	require.NoError(t, h.db.Reader().QueryRowContext(t.Context(),
		`SELECT sum(charged_micros) FROM calls WHERE org_id = $1`, org).Scan(&charged))
	return charged.Int64
}

// observed counts what an Observer hears.
type observed struct {
	mu    sync.Mutex
	heard map[string]int
	waits []string // of customers, in whole hours
}

func observe() *observed { return &observed{heard: map[string]int{}} }

func (o *observed) add(what string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard[what] += n
}

func (o *observed) Leased(n int)             { o.add("leased", n) }
func (o *observed) LeaseLost()               { o.add("lost", 1) }
func (o *observed) TurnEnded(outcome string) { o.add("turn "+outcome, 1) }
func (o *observed) TurnBegan(channelType string, waited time.Duration) {
	o.wait(channelType+" began", waited)
}

func (o *observed) Answered(channelType string, waited time.Duration) {
	o.wait(channelType+" answered", waited)
}

func (o *observed) wait(what string, waited time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits = append(o.waits, fmt.Sprintf("%s after %d h", what, waited/time.Hour))
}

func (o *observed) Refreshed(channelType, outcome string) { o.add(channelType+" token "+outcome, 1) }

func (o *observed) Sent(channelType, outcome string) { o.add(channelType+" "+outcome, 1) }

func (o *observed) all() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.heard
}

// converse works on a leased conversation and gives the lease back.
func (w *Worker) converse(ctx context.Context, lease inbox.Lease, stop <-chan struct{}) {
	p := &pass{Worker: w, lease: lease, stop: stop}
	p.converse(ctx)
}

// resumeStanding lets a worker look at the standing turns once.
func resumeStanding(t *testing.T, w *Worker) {
	t.Helper()
	_, err := w.resume(t.Context())
	require.NoError(t, err)
}
