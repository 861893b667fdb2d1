package tests

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const actor = "tests"

// operatorStore is a product's store, opened by this process, which is another one than the product's: it makes customers and
// reads the books.
type operatorStore struct {
	db   *store.DB
	book *billing.Book
	ring *vault.Ring
}

// openOperatorStores are those that are still open, with the tests that opened them.
var openOperatorStores sync.Map

// closeOperatorStores closes and names the stores that tests left open, so that the search for leaks finds only the product's.
func closeOperatorStores() {
	openOperatorStores.Range(func(left, test any) bool {
		fmt.Fprintf(os.Stderr, "%v left an operator's store open\n", test)
		if err := left.(*operatorStore).db.Close(context.Background()); err != nil { //nolint:forcetypeassert,errcheck // nothing else is in it
			fmt.Fprintln(os.Stderr, err)
		}
		return true
	})
}

func openOperatorStore(t testing.TB, location store.Location, masterKey string) *operatorStore {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := store.Open(ctx, location, store.Options{Kinds: []store.Kind{billing.Ledger}})
	require.NoError(t, err)
	o := &operatorStore{db: db, book: billing.NewBook(db)}
	openOperatorStores.Store(o, t.Name())
	require.NoError(t, db.Migrate(ctx))
	o.ring, err = vault.ParseRing(masterKey)
	require.NoError(t, err)
	return o
}

func (o *operatorStore) close(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	openOperatorStores.Delete(o)
	require.NoError(t, o.db.Close(ctx))
}

// customer is an organization with one key.
type customer struct {
	*operatorStore
	OrgID, KeyID, Key string
	Env               store.Env
}

var customers atomic.Int64

// customer makes an organization on the default plan with credits and a live key for everything of /v1 and the wallet.
func (o *operatorStore) customer(t testing.TB, micros int64) *customer {
	t.Helper()
	return o.customerOn(t, planDefault, micros)
}

func (o *operatorStore) customerOn(t testing.TB, plan string, micros int64) *customer {
	t.Helper()
	ctx := t.Context()
	name := fmt.Sprintf("Customer %d", customers.Add(1))
	var organization store.Organization
	require.NoError(t, storetest.Insist(func() (err error) { // products on the same SQLite file are writing, too
		organization, err = identity.CreateOrganization(ctx, o.db, actor, name, plan, "")
		return err
	}))
	c := &customer{operatorStore: o, OrgID: organization.ID, Env: store.Live}
	if micros > 0 {
		c.credit(t, store.Live, micros)
	}
	c.KeyID, c.Key = c.newKey(t, identity.KeyRequest{})
	return c
}

// credit tops up one of the customer's wallets.
func (c *customer) credit(t testing.TB, env store.Env, micros int64) {
	t.Helper()
	c.pay(t, env, micros, store.NewID("pay"))
}

// pay tops up one of the customer's wallets by a payment with a reference.
func (c *customer) pay(t testing.TB, env store.Env, micros int64, ref string) {
	t.Helper()
	require.NoError(t, storetest.Insist(func() error {
		_, err := c.book.Credit(t.Context(), actor, billing.WalletID{OrgID: c.OrgID, Env: env}, micros, ref)
		return err
	}))
}

// newKey makes a further key of the customer; without scopes it can do all of /v1 and read the wallet.
func (c *customer) newKey(t testing.TB, request identity.KeyRequest) (id, raw string) {
	t.Helper()
	request.OrgID = c.OrgID
	if request.Scopes == nil {
		request.Scopes = []string{"models:read", "chat:write", "wallet:read"}
	}
	var key identity.IssuedKey
	require.NoError(t, storetest.Insist(func() (err error) {
		key, err = identity.CreateAPIKey(t.Context(), c.db, actor, request)
		return err
	}))
	return key.ID, key.Raw
}

// connect connects a channel as `caddy svc channel create` does, but in this process. With the race detector a process of its own would need a
// second.
func (c *customer) connect(t testing.TB, in endpoint.Values) (id string) {
	t.Helper()
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	deps := &api.Deps{DB: c.db, Ring: c.ring, Book: c.book, Catalog: catalog}
	operator, err := deps.Operator(t.Context(), identity.CommandLine("cli:"+actor), c.OrgID)
	require.NoError(t, err)
	require.NoError(t, storetest.Insist(func() error {
		made, err := api.ConnectChannel.Run(t.Context(), deps, operator, in)
		if err == nil {
			id = made.(*api.ChannelObject).ID
		}
		return err
	}))
	return id
}

// testing is the same customer with a key of the test environment.
func (c *customer) testing(t testing.TB) *customer {
	t.Helper()
	other := *c
	other.Env = store.Test
	other.KeyID, other.Key = c.newKey(t, identity.KeyRequest{Env: store.Test})
	return &other
}

// ownKey gives the customer its own key for a provider.
func (c *customer) ownKey(t testing.TB, provider, key string) {
	t.Helper()
	require.NoError(t, storetest.Insist(func() error {
		return identity.PutProviderKey(t.Context(), c.db, c.ring, actor, c.OrgID, provider, key)
	}))
}

// wallet reads the wallet of the customer's environment.
func (c *customer) wallet(t testing.TB) billing.Wallet {
	t.Helper()
	wallet, err := c.book.Wallet(t.Context(), billing.WalletID{OrgID: c.OrgID, Env: c.Env})
	require.NoError(t, err)
	return wallet
}

// callRow is what the store keeps of a call.
type callRow struct {
	ID, RequestID, Model, Outcome, Source string
	Prompt, Completion, Cached            int64
	Reserved, Charged, Shortfall          int64
	BYOK, Stream                          bool
}

// calls reads the customer's calls in the order in which they began.
func (c *customer) calls(t testing.TB) []callRow {
	t.Helper()
	rows, err := c.db.Reader().QueryContext(t.Context(), `SELECT id, request_id, model, outcome, usage_source,
		prompt_tokens, completion_tokens, cached_tokens, reserved_micros, charged_micros, shortfall_micros, byok, stream
		FROM calls WHERE org_id = $1 AND env = $2 ORDER BY id`, c.OrgID, string(c.Env))
	require.NoError(t, err)
	defer rows.Close()
	var calls []callRow
	for rows.Next() {
		var row callRow
		require.NoError(t, rows.Scan(&row.ID, &row.RequestID, &row.Model, &row.Outcome, &row.Source,
			&row.Prompt, &row.Completion, &row.Cached, &row.Reserved, &row.Charged, &row.Shortfall, &row.BYOK, &row.Stream))
		calls = append(calls, row)
	}
	require.NoError(t, rows.Err())
	return calls
}

// awaitCalls polls until the customer has n calls on record and nothing on hold.
func (c *customer) awaitCalls(t testing.TB, n int) []callRow {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		calls := c.calls(t)
		held := c.wallet(t).HeldMicros
		if len(calls) == n && held == 0 {
			return calls
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store has %d calls instead of %d, and holds %d micros", len(calls), n, held)
		}
		betweenLooks()
	}
}

// awaitNothingHeld waits until no call and no tranche holds anything of the wallet.
func (c *customer) awaitNothingHeld(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for c.wallet(t).HeldMicros != 0 {
		require.True(t, time.Now().Before(deadline), "the wallet still holds %d micros", c.wallet(t).HeldMicros)
		betweenLooks()
	}
}

// voids counts the customer's calls for which credits were reserved and which were voided, because the store didn't say what became of
// their holds or settlements.
func (c *customer) voids(t testing.TB) (n int) {
	t.Helper()
	for _, call := range c.calls(t) {
		if call.Reserved > 0 && call.Charged == 0 && call.Outcome == "internal_error" {
			n++
		}
	}
	return n
}

// openHolds is how many calls of the whole store, but for those with a part of a tranche, have credits reserved.
func (o *operatorStore) openHolds(t testing.TB) int64 {
	t.Helper()
	n, err := o.book.OpenHolds(t.Context())
	require.NoError(t, err)
	return n
}

// requireBooksInOrder checks the ledger's invariants, and that no hold is left.
func (o *operatorStore) requireBooksInOrder(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bookWait)
	defer cancel()
	report, err := billing.Check(ctx, o.db)
	require.NoError(t, err)
	require.True(t, report.OK(), "doctor: %+v", report.Findings)
	open, err := o.book.OpenHolds(ctx)
	require.NoError(t, err)
	require.Zero(t, open, "holds left open")
}

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// betweenLooks is the pause between two reads of a state without an event for its change. With the race detector a read costs a processor some
// milliseconds.
func betweenLooks() { <-time.After(50 * time.Millisecond) }
