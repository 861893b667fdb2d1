package inbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// life is longer than any test.
const life = time.Hour

var pageAll = store.Page{Limit: 1000}

// inboxTest is a queue with an organization, an agent and a channel of it.
type inboxTest struct {
	*Queue

	db    *store.DB
	route store.Route
}

// each runs a test on both engines.
func each(t *testing.T, run func(t *testing.T, q *inboxTest)) {
	t.Helper()
	storetest.Each(t, []store.Kind{Kind}, func(t *testing.T, db *store.DB) { run(t, newInboxTest(t, db)) })
}

func newInboxTest(t testing.TB, db *store.DB) *inboxTest {
	t.Helper()
	q := &inboxTest{Queue: New(db, testRing(t)), db: db}
	_, err := q.loadIDs(context.Background(), true) // before tests write rows by hand, whose ids would be sealed
	require.NoError(t, err)
	q.route = q.channel(t, "org_1", "chn_1")
	return q
}

func testRing(t testing.TB) *vault.Ring {
	t.Helper()
	ring, err := vault.ParseRing(base64.StdEncoding.EncodeToString(make([]byte, vault.KeyBytes)))
	require.NoError(t, err)
	return ring
}

// channel makes an active channel with an agent, and its organization when that is new.
func (q *inboxTest) channel(t testing.TB, orgID, channelID string) store.Route {
	t.Helper()
	ctx := context.Background()
	err := q.db.Organizations.Create(ctx, "test", store.Organization{ID: orgID, Name: orgID, Plan: "free"})
	if err != nil {
		require.ErrorIs(t, err, store.ErrConflict)
	}
	agentID := "agt_" + channelID
	require.NoError(t, q.db.Agents.Create(ctx, "test", store.Agent{ID: agentID, OrgID: orgID, Name: agentID, Model: "local/echo"}))
	require.NoError(t, q.db.Channels.Create(ctx, "test", store.Channel{
		ID: channelID, OrgID: orgID, Type: "bot", Name: channelID, AgentID: agentID, State: store.ChannelActive,
	}, 0))
	return store.Route{ChannelID: channelID, OrgID: orgID, Type: "bot", State: store.ChannelActive}
}

func textOf(customer, id, text string) Item {
	return Item{Kind: platforms.Text, CustomerRef: customer, Address: "to " + customer, MessageID: id, Text: text, CustomerName: "Ms " + customer}
}

// arrive enqueues one item on the first channel.
func (q *inboxTest) arrive(t testing.TB, items ...Item) {
	t.Helper()
	require.NoError(t, q.Enqueue(context.Background(), []Arrival{{q.route, items}}))
}

// take leases the only conversation that is due.
func (q *inboxTest) take(t testing.TB) Lease {
	t.Helper()
	leases, err := q.Lease(context.Background(), Places{Free: 1}, life)
	require.NoError(t, err)
	require.Len(t, leases, 1, "nothing is due")
	return leases[0]
}

// idle asserts that nothing is due.
func (q *inboxTest) idle(t testing.TB) {
	t.Helper()
	leases, err := q.Lease(context.Background(), Places{Free: 1}, life)
	require.NoError(t, err)
	require.Empty(t, leases)
}

func (q *inboxTest) open(t testing.TB, lease Lease) Work {
	t.Helper()
	work, err := q.Open(context.Background(), lease, 100)
	require.NoError(t, err)
	return work
}

// BeginTurn begins a turn without a call.
func (q *Queue) BeginTurn(ctx context.Context, lease Lease, agentID string, ids []string, request []byte) (turnID string, err error) {
	id := store.NewID("trn")
	return id, q.BeginCall(ctx, lease, Turn{ID: id, AgentID: agentID, Request: request}, ids)
}

// begin begins a turn for everything that waits.
func (q *inboxTest) begin(t testing.TB, lease Lease) string {
	t.Helper()
	ids := idsOf(q.open(t, lease).Waiting)
	turnID, err := q.BeginTurn(context.Background(), lease, "agt_chn_1", ids, []byte("request"))
	require.NoError(t, err)
	return turnID
}

// superseded answers a turn for which newer texts wait.
func (q *inboxTest) superseded(t testing.TB, lease Lease, turnID string) {
	t.Helper()
	lease.Call = &Call{Supersede: true}
	_, err := q.Answer(context.Background(), lease, turnID, []string{"too late"}, true)
	require.ErrorIs(t, err, ErrSuperseded)
}

// answering answers everything that waits, and leaves the first part sending.
func (q *inboxTest) answering(t testing.TB, texts ...string) (Lease, []Outbound) {
	t.Helper()
	lease := q.take(t)
	parts, err := q.Answer(context.Background(), lease, q.begin(t, lease), texts, true)
	require.NoError(t, err)
	return lease, parts
}

// reply answers everything that waits and sends the answer, under a lease of its own.
func (q *inboxTest) reply(t testing.TB, text, platformID string) {
	t.Helper()
	lease, parts := q.answering(t, text)
	require.NoError(t, q.Sent(context.Background(), lease, parts[0].ID, platformID, ""))
	require.NoError(t, q.Release(context.Background(), lease))
}

// sendAll sends the parts that wait in the only conversation that is due.
func (q *inboxTest) sendAll(t testing.TB) {
	t.Helper()
	lease := q.take(t)
	for _, part := range q.open(t, lease).Outbound {
		require.NoError(t, q.Sending(context.Background(), lease, part.ID))
		require.NoError(t, q.Sent(context.Background(), lease, part.ID, "p of "+part.ID, ""))
	}
	require.NoError(t, q.Release(context.Background(), lease))
}

// crash lets every lease run out.
func (q *inboxTest) crash(t require.TestingT) {
	q.exec(t, `UPDATE conversations SET lease_until = 1 WHERE lease_until > 1`)
}

// ref returns the form in which the database has the id of a customer of org_1.
func (q *inboxTest) ref(customer string) string {
	return q.sealedID(customer, vault.CustomerID("org_1"))
}

// messageID returns the form in which the database has a platform's id of a message of org_1.
func (q *inboxTest) messageID(id string) string {
	return q.sealedID(id, vault.PlatformMessageID("org_1"))
}

func (q *inboxTest) sealedID(id string, place vault.AAD) string {
	return q.ids.Load().seal(id, place)
}

// exec writes by hand.
func (q *inboxTest) exec(t require.TestingT, text string, args ...any) {
	require.NoError(t, q.db.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, args...)
		return nil
	}))
}

// execUnchecked is exec of what foreign keys refuse.
func (q *inboxTest) execUnchecked(t require.TestingT, text string) {
	location := q.db.Location()
	db, err := sql.Open(map[store.Engine]string{store.SQLite: "sqlite", store.Postgres: "pgx"}[location.Engine], location.DSN)
	require.NoError(t, err)
	defer db.Close()
	if location.Engine == store.Postgres {
		text = `SET session_replication_role = replica; ` + text
	}
	_, err = db.ExecContext(context.Background(), text)
	require.NoError(t, err)
}

// value reads one number or text.
func (q *inboxTest) value(t require.TestingT, text string, args ...any) string {
	var value any
	require.NoError(t, q.db.Reader().QueryRowContext(context.Background(), text, args...).Scan(&value))
	if raw, ok := value.([]byte); ok {
		return string(raw)
	}
	return fmt.Sprint(value)
}

// healthy asserts that Check finds nothing.
func (q *inboxTest) healthy(t require.TestingT) {
	findings, err := CheckSince(context.Background(), q.db, 0)
	require.NoError(t, err)
	require.Empty(t, findings)
}

func idsOf(messages []Message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return ids
}

func textsOf(messages []Message) []string {
	texts := make([]string, len(messages))
	for i, m := range messages {
		texts[i] = m.Text
	}
	return texts
}

// clocked is a SQLite queue on a clock that the test moves.
type clocked struct {
	*inboxTest

	ms atomic.Int64
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	c := &clocked{}
	c.ms.Store(1_000_000_000_000)
	db := storetest.OpenAt(t, storetest.Location(t, store.SQLite), store.Options{
		Kinds: []store.Kind{Kind}, Clock: func() time.Time { return time.UnixMilli(c.ms.Load()) },
	})
	c.inboxTest = newInboxTest(t, db)
	return c
}

func (c *clocked) pass(d time.Duration) { c.ms.Add(d.Milliseconds()) }

func number(n int) string { return strconv.Itoa(n) }
