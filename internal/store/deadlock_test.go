package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/limit"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// Nodes that work on the same organizations, windows and conversations at once lock them in one order: the server never
// has to end a deadlock. (The writer would survive one; a second of everybody's time would be lost.)
func TestNodesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const nodes, callers, organizations, customers = 4, 48, 24, 7
	rounds := 6
	if os.Getenv("SVC_SOAK") != "" {
		rounds = 24
	}
	location := storetest.Location(t, store.Postgres)
	ring, err := vault.ParseRing("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	require.NoError(t, err)
	options := store.Options{Kinds: []store.Kind{inbox.Kind, billing.Ledger}}
	var all []*node
	for range nodes {
		db := storetest.OpenAt(t, location, options)
		all = append(all, &node{db: db, book: billing.NewBook(db), windows: limit.NewStore(db.Windows()), queue: inbox.New(db, ring)})
	}
	var orgs, channels []string
	for n := range organizations {
		org := store.NewID("org")
		orgs = append(orgs, org)
		channels = append(channels, fmt.Sprint("chn_", n))
		createOrganization(t, all[0].db, org)
		createChannel(t, all[0].db, store.Channel{ID: channels[n], OrgID: org, Type: "photo_dm", ExternalID: fmt.Sprint("x", n)})
		_, err := all[0].book.Credit(t.Context(), "cli", billing.WalletID{OrgID: org, Env: store.Live}, 1_000_000, "r")
		require.NoError(t, err)
	}
	var running sync.WaitGroup
	for n, node := range all {
		for caller := range callers {
			running.Go(func() {
				for round := range rounds {
					at := rand.IntN(organizations)
					customer := fmt.Sprint("c", rand.IntN(customers))
					id := fmt.Sprintf("%d-%d-%d", n, caller, round)
					err := node.work(orgs, channels, at, customer, id)
					// On a slow machine a node refuses while the others hold the rows that it wants.
					for again := 0; errors.Is(err, store.ErrBusy) && again < 300; again++ {
						<-time.After(100 * time.Millisecond)
						err = node.work(orgs, channels, at, customer, fmt.Sprint(id, "-", again))
					}
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return
					}
				}
			})
		}
	}
	running.Wait()
	for _, node := range all {
		require.NoError(t, node.db.Close(t.Context())) // a session tells its figures when it ends
	}
	requireNoDeadlocks(t, location)
}

// requireNoDeadlocks requires that the server has ended no deadlock in a database. Its sessions must have ended.
func requireNoDeadlocks(t *testing.T, location store.Location) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // it only read
	var deadlocks int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// When a minute begins, nodes insert the rows of the same windows at once, while some of them are already counting in those.
func TestNodesBeginWindowsWithoutDeadlocks(t *testing.T) {
	t.Parallel()
	const nodes, rounds, names = 4, 120, 24
	location := storetest.Location(t, store.Postgres)
	var all []*store.DB
	for range nodes {
		all = append(all, storetest.OpenAt(t, location, store.Options{}))
	}
	var admitted atomic.Int64
	for round := range rounds {
		var running sync.WaitGroup
		for _, db := range all {
			for i := range names {
				running.Go(func() {
					for _, at := range []int{i, i + names/2} {
						// It fails when the machine is so slow that rows stay locked for seconds.
						if _, err := db.Windows().Take(t.Context(), fmt.Sprint("org_", round, "_", at%names), 1000); err == nil {
							admitted.Add(1)
						}
					}
				})
			}
		}
		running.Wait()
	}
	for _, db := range all {
		require.NoError(t, db.Close(t.Context()))
	}
	require.Positive(t, admitted.Load())
	requireNoDeadlocks(t, location)
}

// node is a process on a shared database.
type node struct {
	db      *store.DB
	book    *billing.Book
	windows *limit.Windows
	queue   *inbox.Queue
}

// work is a call of one organization, a delivery for a few, beginning with it, and a worker's turn.
func (n *node) work(orgs, channels []string, at int, customer, id string) error {
	ctx := context.Background()
	wallet := billing.WalletID{OrgID: orgs[at], Env: store.Live}
	if _, err := n.windows.Take(ctx, orgs[at], 1_000_000); err != nil {
		return err
	}
	hold := billing.Hold{CallID: "call_" + id, Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Hour}
	if _, err := n.book.Hold(ctx, hold); err != nil {
		return err
	}
	var arrivals []inbox.Arrival
	for i := range 4 {
		to := (at + i) % len(orgs)
		arrivals = append(arrivals, inbox.Arrival{
			Route: store.Route{ChannelID: channels[to], OrgID: orgs[to], Type: "photo_dm"},
			Items: []inbox.Item{{Kind: platforms.Text, CustomerRef: customer, MessageID: "m" + id, Text: "hello"}},
		})
	}
	if err := n.queue.Enqueue(ctx, arrivals); err != nil {
		return err
	}
	leases, err := n.queue.Lease(ctx, inbox.Places{Free: 3}, time.Minute)
	if err != nil {
		return err
	}
	for i, lease := range leases {
		err := errors.Join(n.answer(ctx, lease, fmt.Sprint(hold.CallID, "-", i)), n.queue.Release(ctx, lease))
		if err != nil && !errors.Is(err, inbox.ErrLeaseLost) {
			return err
		}
	}
	if _, err := n.book.Settle(ctx, costing(hold.CallID, wallet, 3, 5)); err != nil {
		return err
	}
	_, err = n.book.Sweep(ctx)
	return err
}

// answer answers what waits in a conversation, with a call that is held when the turn begins and charged when it ends.
func (n *node) answer(ctx context.Context, lease inbox.Lease, call string) error {
	work, err := n.queue.OpenLeased(ctx, lease, 1)
	if err != nil || len(work.Waiting) == 0 {
		return err
	}
	wallet := billing.WalletID{OrgID: lease.OrgID, Env: store.Live}
	turn := inbox.Turn{ID: store.NewID("trn"), AgentID: "agt_1"}
	lease.Call = &inbox.Call{ID: call, Commit: func(ctx context.Context, step inbox.Step) error {
		_, err := n.book.Hold(ctx, billing.Hold{CallID: call, Wallet: wallet, AmountMicros: 5, ExpiresIn: time.Hour, With: step})
		return err
	}}
	if err := n.queue.BeginCall(ctx, lease, turn, []string{work.Waiting[0].ID}); err != nil {
		return err
	}
	lease.Call.Commit = func(ctx context.Context, step inbox.Step) error {
		settlement := costing(call, wallet, 3, 5)
		settlement.With = step
		_, err := n.book.Settle(ctx, settlement)
		return err
	}
	_, err = n.queue.Answer(ctx, lease, turn.ID, []string{"answer"}, false)
	return err
}

// costing is the settlement of a call that cost micros, for which reserved were held.
func costing(id string, wallet billing.WalletID, micros, reserved int64) billing.Settlement {
	return billing.Settlement{
		Call: billing.Call{
			ID: id, Wallet: wallet, Usage: billing.Usage{CompletionTokens: micros}, UsageSource: billing.UsageProvider, Outcome: "completed",
		},
		Price: billing.Price{Output: 1_000_000}, ReservedMicros: reserved,
	}
}

// TestDeadlockRunsAgain: hand-written writes that share a transaction lock rows in the order of their arrival, which another
// node may have the other way round. The one that the server ends runs again.
func TestDeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	db := storetest.OpenAt(t, location, store.Options{})
	db.Unhurried()
	createOrganization(t, db, "org_a")
	createOrganization(t, db, "org_b")
	conn, err := pgx.Connect(t.Context(), location.DSN)
	require.NoError(t, err)
	defer conn.Close(context.Background()) // its transaction is over
	const touch = `UPDATE organizations SET name = name || 'x' WHERE id = $1`
	const waitsForLock = `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)`
	backend := conn.PgConn().PID()
	_, err = conn.Exec(t.Context(), `SET deadlock_timeout = '1min'`) // so that the other one is ended
	require.NoError(t, err)
	other, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), touch, "org_a")
	require.NoError(t, err)

	runs, has, ended := 0, make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- db.Exec(context.WithoutCancel(t.Context()), func(ctx context.Context, tx store.Tx) error {
			tx.Queue(1, touch, "org_b")
			if err := tx.Flush(ctx); err != nil {
				return err
			}
			if runs++; runs == 1 {
				close(has)
				// The server looks for a deadlock once, a second after this one began to wait: the other must wait by then.
				for waits := false; !waits; {
					if err := db.Reader().QueryRowContext(ctx, waitsForLock, backend).Scan(&waits); err != nil {
						return err
					}
				}
			}
			tx.Queue(1, touch, "org_a")
			return nil
		})
	}()
	<-has
	_, err = other.Exec(t.Context(), touch, "org_b")
	require.NoError(t, err)
	require.NoError(t, other.Commit(t.Context()))
	require.NoError(t, <-ended)
	require.Greater(t, runs, 1) // more than twice when it takes the row again before the other one wakes up
}
