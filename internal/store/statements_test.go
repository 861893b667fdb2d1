package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// The writes of a call and of a delivery take a fixed number of statements on SQLite, and of round trips on PostgreSQL. BEGIN and
// COMMIT count. A stream writes the same rows as an answer in one piece.
func TestStatementsAndRoundTrips(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			m := newMeter(t, engine)
			// Its row has the time of the database, which PostgreSQL says first.
			m.requireCost(t, "free call", cost{statements: 3, trips: 2}, m.freeCall)
			m.requireCost(t, "charged call", cost{statements: 14, trips: 4}, func(t *testing.T, id string) { m.chargedCall(t, id, nil) })
			m.requireCost(t, "keyed call", cost{statements: 16, trips: 4}, func(t *testing.T, id string) {
				m.chargedCall(t, id, &billing.Claim{KeyHash: [32]byte([]byte(id + "................................"))})
			})
			// The third trip looks for tranches that could give something back.
			m.requireCost(t, "refused call", cost{statements: 5, trips: 3}, m.refusedCall)
			m.requireCost(t, "delivery of a new customer", cost{statements: 7, trips: 3}, func(t *testing.T, id string) { m.deliver(t, id, id) })
			m.requireCost(t, "delivery of a known customer", cost{statements: 6, trips: 2}, func(t *testing.T, id string) { m.deliver(t, id, "known") })
			m.requireCost(t, "delivery of 99 known customers", cost{statements: 107, trips: 2}, func(t *testing.T, id string) { m.deliverMany(t, id, 99) })
			m.emptyQueue(t)
			m.requireCost(t, "delivery and answer, without its call", cost{statements: 7 + 35, trips: 3 + 11}, m.answer)
		})
	}
}

// A request under a limit takes one round trip to PostgreSQL for its key, its organization and its window.
func TestWindowedRequestTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	m := newMeter(t, store.Postgres)
	key, hash := "key_1", [32]byte{1}
	write(t, m.db, `INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at)
		VALUES ($1, $2, 'live', '', 'chat:write', $3, '', 1)`, key, m.wallet.OrgID, hash[:])
	plan, err := m.db.Organizations.ByID(t.Context(), m.wallet.OrgID)
	require.NoError(t, err)
	terms := &store.KeyTerms{Scopes: []string{"chat:write"}, Plans: []string{plan.Plan}, PerMinute: []int64{1000}}
	windows := limit.NewStore(m.db.Windows())
	request := func() {
		record, found, err := windows.Keys(m.db.APIKeys, terms).ByHash(t.Context(), hash)
		require.NoError(t, err)
		require.True(t, found)
		require.NotZero(t, record.Permit.Window)
	}
	request()
	before := m.count()
	const requests = 100
	for range requests {
		request()
	}
	trips := m.count() - before
	require.GreaterOrEqual(t, trips, requests)
	require.Less(t, trips, 2*requests, "old windows are deleted when a minute begins, and new connections are set up")
}

// cost is what is counted: statements of the writer on SQLite, round trips to PostgreSQL.
type cost struct{ statements, trips int }

// meter is a database with an organization and a channel, and counts what is written.
type meter struct {
	db     *store.DB
	wire   *storetest.Wire // to PostgreSQL
	book   *billing.Book
	queue  *inbox.Queue
	wallet billing.WalletID
}

func newMeter(t *testing.T, engine store.Engine) *meter {
	t.Helper()
	m := &meter{wallet: billing.WalletID{OrgID: "org_1", Env: store.Live}}
	location := storetest.Location(t, engine)
	if engine == store.Postgres {
		m.wire = storetest.StartWire(t, location)
		location = m.wire.Location
	}
	m.db = storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}})
	ring, err := vault.ParseRing("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	require.NoError(t, err)
	m.book, m.queue = billing.NewBook(m.db), inbox.New(m.db, ring)
	createOrganization(t, m.db, m.wallet.OrgID)
	createChannel(t, m.db, store.Channel{ID: "chn_1", OrgID: m.wallet.OrgID, Type: "photo_dm", ExternalID: "x"})
	_, err = m.book.Credit(t.Context(), "cli", m.wallet, 1_000, "r")
	require.NoError(t, err)
	return m
}

// requireCost requires what a write costs once its statements are prepared.
func (m *meter) requireCost(t *testing.T, what string, want cost, write func(t *testing.T, id string)) {
	t.Helper()
	t.Run(what, func(t *testing.T) { //nolint:paralleltest // one after the other, to count
		write(t, what+" 1")
		write(t, what+" 2")
		before := m.count()
		write(t, what+" 3")
		if m.wire == nil {
			require.Equal(t, want.statements, m.count()-before, "statements")
		} else {
			require.Equal(t, want.trips, m.count()-before, "round trips")
		}
	})
}

func (m *meter) count() int {
	if m.wire == nil {
		return m.db.WriterStatements()
	}
	return m.wire.RoundTrips()
}

func (m *meter) freeCall(t *testing.T, id string) {
	t.Helper()
	record, err := m.book.Record(billing.Settlement{Call: costing(id, m.wallet, 0, 0).Call})
	require.NoError(t, err)
	<-record.Done()
	require.NoError(t, record.Err())
}

func (m *meter) chargedCall(t *testing.T, id string, claim *billing.Claim) {
	t.Helper()
	_, err := m.book.Hold(t.Context(), billing.Hold{CallID: id, Wallet: m.wallet, AmountMicros: 10, ExpiresIn: time.Hour, Claim: claim})
	require.NoError(t, err)
	settlement := costing(id, m.wallet, 7, 10)
	settlement.Claim, settlement.Keep = claim, claim != nil
	settled, err := m.book.Settle(t.Context(), settlement)
	require.NoError(t, err)
	require.EqualValues(t, 7, settled.ChargedMicros)
}

func (m *meter) refusedCall(t *testing.T, id string) {
	t.Helper()
	_, err := m.book.Hold(t.Context(), billing.Hold{CallID: id, Wallet: m.wallet, AmountMicros: 100_000, ExpiresIn: time.Hour})
	require.ErrorIs(t, err, billing.ErrInsufficientCredits)
}

func (m *meter) deliver(t *testing.T, id, customer string) {
	t.Helper()
	require.NoError(t, m.enqueue(textOf(id, customer)))
}

// deliverMany delivers a text of each of many customers at once.
func (m *meter) deliverMany(t *testing.T, id string, customers int) {
	t.Helper()
	var items []inbox.Item
	for n := range customers {
		items = append(items, textOf(fmt.Sprint(id, n), fmt.Sprint("one of many ", n)))
	}
	require.NoError(t, m.enqueue(items...))
}

func textOf(id, customer string) inbox.Item {
	return inbox.Item{
		Kind: platforms.Text, CustomerRef: customer, Address: customer, CustomerName: "Eve", MessageID: id, Text: fmt.Sprint("text of ", id),
	}
}

func (m *meter) enqueue(items ...inbox.Item) error {
	route := store.Route{ChannelID: "chn_1", OrgID: m.wallet.OrgID, Type: "photo_dm", State: store.ChannelActive}
	return m.queue.Enqueue(context.Background(), []inbox.Arrival{{Route: route, Items: items}})
}

// emptyQueue deletes the conversations, so that nothing else is due.
func (m *meter) emptyQueue(t *testing.T) {
	t.Helper()
	all, err := m.queue.Conversations(t.Context(), m.wallet.OrgID, inbox.ConversationFilter{}, store.Page{Limit: 200})
	require.NoError(t, err)
	for _, c := range all {
		require.NoError(t, m.queue.DeleteConversation(t.Context(), "usr_1", m.wallet.OrgID, c.ID))
	}
}

// answer has a new customer's text answered as a worker does.
func (m *meter) answer(t *testing.T, id string) {
	t.Helper()
	ctx := t.Context()
	m.deliver(t, id, id)
	leases, err := m.queue.Lease(ctx, inbox.Places{Free: 8}, time.Hour)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	work, err := m.queue.OpenLeased(ctx, leases[0], 100)
	require.NoError(t, err)
	turnID := store.NewID("trn")
	err = m.queue.BeginCall(ctx, leases[0], inbox.Turn{ID: turnID, AgentID: "agt_1", Request: []byte("request")}, []string{work.Waiting[0].ID})
	require.NoError(t, err)
	parts, err := m.queue.Answer(ctx, leases[0], turnID, []string{"answer"}, true)
	require.NoError(t, err)
	require.NoError(t, m.queue.SentAndRelease(ctx, leases[0], parts[0].ID, id))
}
