package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func asked(t *testing.T, w *Windows, org string, limit int64) Decision {
	t.Helper()
	d, err := w.Take(t.Context(), org, limit)
	require.NoError(t, err)
	return clientPart(d)
}

// node is a process that shares a PostgreSQL with others, with a clock of its own that a test puts forward.
type node struct {
	*Windows

	db    *store.DB
	clock *ahead
}

func newNode(t *testing.T, location store.Location) *node {
	t.Helper()
	db := storetest.OpenAt(t, location, store.Options{})
	clock := new(ahead)
	return &node{newWindows(db.Windows(), clock.read), db, clock}
}

func newNodes(t *testing.T, n int) []*node {
	t.Helper()
	location := storetest.Location(t, store.Postgres)
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = newNode(t, location)
	}
	return nodes
}

// minute returns the window of the database's clock.
func (n *node) minute(t *testing.T) int64 {
	t.Helper()
	now, err := n.db.Now(t.Context())
	require.NoError(t, err)
	return now - now%window.Milliseconds()
}

// counted returns what the windows of a name have counted.
func (n *node) counted(t *testing.T, org string) (count int64) {
	t.Helper()
	require.NoError(t, n.db.Reader().QueryRowContext(t.Context(),
		`SELECT COALESCE(sum(count), 0) FROM rate_windows WHERE org_id = $1`, org).Scan(&count))
	return count
}

// inOneMinute runs a test that must not meet the turn of a minute of the database's clock, which can't be stopped, and runs it again
// if it did, or if it returns nil. The test returns what it requires.
func (n *node) inOneMinute(t *testing.T, run func(org string) (require func())) {
	t.Helper()
	for range 5 {
		before := n.minute(t)
		requireIt := run(newOrg())
		if requireIt != nil && n.minute(t) == before {
			requireIt()
			return
		}
	}
	require.Fail(t, "the minute turned every time")
}

// addKeys adds an organization with a plan and two keys, and returns the hashes of the keys.
func (n *node) addKeys(t *testing.T, org, plan string) (hashes [2][32]byte) {
	t.Helper()
	storetest.Fill(t, n.db, fmt.Sprintf(`INSERT INTO organizations (id, name, plan, created_at) VALUES ('%[1]s', '%[1]s', '%[2]s', 1)`, org, plan),
		fmt.Sprintf(`INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at)
			SELECT 'key_' || i || '%[1]s', '%[1]s', 'live', i, 'chat:write models:read', sha256(convert_to(i || '%[1]s', 'UTF8')), '', 1
			FROM generate_series(0, 1) i`, org))
	for i := range hashes {
		var hash []byte
		require.NoError(t, n.db.Reader().QueryRowContext(t.Context(), `SELECT hash FROM api_keys WHERE id = $1`,
			fmt.Sprint("key_", i, org)).Scan(&hash))
		copy(hashes[i][:], hash)
	}
	return hashes
}

func (n *node) exec(t *testing.T, text string, arguments ...any) {
	t.Helper()
	require.NoError(t, n.db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, text, arguments...)
		return nil
	}))
}

// testTerms are the plans free, with 4 requests a minute, and open, without a limit, for keys that may chat.
func testTerms() *store.KeyTerms {
	return &store.KeyTerms{Scopes: []string{"chat:write"}, Plans: []string{"free", "open"}, PerMinute: []int64{4, 0}}
}

// request reads a key as svc_auth does and decides as svc_rate_limit does.
func (n *node) request(keys KeyReader, hash [32]byte, terms *store.KeyTerms) (Decision, error) {
	record, found, err := keys.ByHash(context.Background(), hash)
	switch {
	case err != nil:
		return Decision{}, err
	case !found:
		return Decision{}, errors.New("no such key")
	}
	name, limit := terms.Window(&record)
	if record.Permit.Window != 0 {
		return Permitted(record.Permit, limit), nil
	}
	return n.Take(context.Background(), name, limit)
}

// A key with a bound of its own is counted in its own window, by all nodes together, and its organization's other key in the organization's. The
// bound of the key holds from the next request on.
func TestWindowsOfABoundedKey(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 2)
	first := nodes[0]
	terms := testTerms()
	first.inOneMinute(t, func(org string) func() {
		hashes := first.addKeys(t, org, "free")
		first.exec(t, `UPDATE api_keys SET requests_per_minute = 3 WHERE id = $1`, "key_0"+org)
		var admitted [2]atomic.Int64
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				n := nodes[i%2]
				d, err := n.request(n.Keys(n.db.APIKeys, terms), hashes[i/2%2], terms)
				if err == nil && d.Allowed {
					admitted[i/2%2].Add(1)
				}
			})
		}
		group.Wait()
		first.exec(t, `UPDATE api_keys SET requests_per_minute = 5 WHERE id = $1`, "key_0"+org)
		for range 2 {
			if d, err := first.request(first.Keys(first.db.APIKeys, terms), hashes[0], terms); err == nil && d.Allowed {
				admitted[0].Add(1)
			}
		}
		first.exec(t, `UPDATE api_keys SET requests_per_minute = NULL WHERE id = $1`, "key_0"+org)
		d, err := first.request(first.Keys(first.db.APIKeys, terms), hashes[0], terms)
		return func() {
			require.NoError(t, err)
			require.False(t, d.Allowed, "the organization's window is used up by its other key")
			require.EqualValues(t, 4, admitted[1].Load())
			require.EqualValues(t, 5, admitted[0].Load())
			require.Equal(t, []int64{5, 4}, []int64{first.counted(t, "key_0"+org), first.counted(t, org)})
		}
	})
}

// A request that is refused leaves no trace, and costs no round trip while its process remembers the refusal: clients that ignore
// Retry-After come again and again.
func TestWindowsRefuseWithoutTheStore(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	n.inOneMinute(t, func(org string) func() {
		first, second := asked(t, n.Windows, org, 1), asked(t, n.Windows, org, 1)
		return func() {
			require.True(t, first.Allowed)
			require.False(t, second.Allowed)
			require.EqualValues(t, 1, n.counted(t, org))
			require.NoError(t, n.db.Close(context.Background()))
			require.False(t, asked(t, n.Windows, org, 1).Allowed)
			_, err := n.Take(t.Context(), "other", 1)
			require.ErrorIs(t, err, store.ErrClosed)
			n.clock.put(window)
			_, err = n.Take(t.Context(), org, 1)
			require.ErrorIs(t, err, store.ErrClosed)
		}
	})
}

func TestWindowsForgetRefusals(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	for minute := range 3 {
		for i := range 20 {
			for n.db.Ping(t.Context()) == nil && asked(t, n.Windows, fmt.Sprint(minute, " ", i), 1).Allowed {
				continue // the second request is refused, unless the minute turned
			}
		}
		require.GreaterOrEqual(t, len(n.refused.byOrg), 1)
		require.LessOrEqual(t, len(n.refused.byOrg), 20)
		n.clock.put(2 * window)
	}
}

// Windows before the last are deleted when a process counts in the next one, also in many steps; the last stays.
func TestWindowsSweep(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	at := n.minute(t)
	storetest.Fill(t, n.db, fmt.Sprintf(`INSERT INTO rate_windows (org_id, window_start, count)
		SELECT 'org' || i, %d, 1 FROM generate_series(1, 25000) i`, at-10*window.Milliseconds()))
	n.exec(t, `INSERT INTO rate_windows (org_id, window_start, count) VALUES ('last', $1, 1)`, at+10*window.Milliseconds())
	require.True(t, asked(t, n.Windows, "new", 1).Allowed)
	require.Eventually(t, func() bool {
		var old int64
		require.NoError(t, n.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM rate_windows WHERE org_id LIKE 'org%'`).Scan(&old))
		return old == 0
	}, soon, 10*time.Millisecond)
	require.EqualValues(t, 1, n.counted(t, "last"))
	require.EqualValues(t, 1, n.counted(t, "new"))
}

// Several processes share one PostgreSQL: they admit exactly the limit, of requests by name and of those that are counted with
// either key of the organization.
func TestWindowsOfSeveralProcessesAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 3)
	terms := &store.KeyTerms{Scopes: []string{"chat:write"}, Plans: []string{"forty"}, PerMinute: []int64{40}}
	nodes[0].inOneMinute(t, func(org string) func() {
		hashes := nodes[0].addKeys(t, org, "forty")
		var admitted, others, failed atomic.Int64
		count := func(to *atomic.Int64, d Decision, err error) {
			switch {
			case err != nil: // so slow is the machine that rows stay locked for seconds
				failed.Add(1)
			case d.Allowed:
				to.Add(1)
			}
		}
		var wait sync.WaitGroup
		for _, n := range nodes {
			keys := n.Keys(n.db.APIKeys, terms)
			for i := range 100 {
				wait.Go(func() {
					if i%4 == 0 {
						d, err := n.Take(context.Background(), org, 40)
						count(&admitted, d, err)
						return
					}
					d, err := n.request(keys, hashes[i%2], terms)
					count(&admitted, d, err)
				})
				wait.Go(func() {
					d, err := n.Take(context.Background(), org+" other", 299)
					count(&others, d, err)
				})
			}
		}
		wait.Wait()
		if failed.Load() > 0 {
			return nil
		}
		return func() {
			require.EqualValues(t, 40, admitted.Load())
			require.EqualValues(t, 40, nodes[0].counted(t, org))
			require.EqualValues(t, 299, others.Load())
		}
	})
}

// Only requests of keys that may be used, under a limit, are counted with their keys.
func TestKeysThatAreCounted(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	later, earlier := time.Now().Add(time.Hour).UnixMilli(), time.Now().Add(-time.Hour).UnixMilli()
	for name, c := range map[string]struct {
		plan, change string
		arguments    []any
		scopes       []string
		counted      bool
	}{
		"good":         {plan: "free", scopes: []string{"chat:write"}, counted: true},
		"other plan":   {plan: "gone", scopes: []string{"models:read", "chat:write"}, counted: true},
		"no limit":     {plan: "open", scopes: []string{"chat:write"}},
		"a scope less": {plan: "free", scopes: []string{"chat:write", "wallet:read"}},
		"revoked":      {plan: "free", change: "UPDATE api_keys SET revoked_at = $2 WHERE id = 'key_0' || $1", arguments: []any{earlier}},
		"expired":      {plan: "free", change: "UPDATE api_keys SET expires_at = $2 WHERE id = 'key_0' || $1", arguments: []any{earlier}},
		"expires":      {plan: "free", change: "UPDATE api_keys SET expires_at = $2 WHERE id = 'key_0' || $1", arguments: []any{later}, counted: true},
		"suspended":    {plan: "free", change: "UPDATE organizations SET suspended_at = $2 WHERE id = $1", arguments: []any{earlier}},
	} {
		org := newOrg()
		hash := n.addKeys(t, org, c.plan)[0]
		if c.change != "" {
			n.exec(t, c.change, append([]any{org}, c.arguments...)...)
		}
		terms := testTerms()
		if c.scopes != nil {
			terms.Scopes = c.scopes
		}
		record, found, err := n.Keys(n.db.APIKeys, terms).ByHash(t.Context(), hash)
		require.NoError(t, err, name)
		require.True(t, found, name)
		plain, _, err := n.db.APIKeys.ByHash(t.Context(), hash)
		require.NoError(t, err, name)
		require.Equal(t, c.counted, record.Permit.Window != 0, name)
		require.Equal(t, c.counted, n.counted(t, org) == 1, name)
		record.Permit, record.NowMS, plain.NowMS = store.Permit{}, 0, 0
		require.Equal(t, plain, record, name)
	}
	_, found, err := n.Keys(n.db.APIKeys, testTerms()).ByHash(t.Context(), [32]byte{1})
	require.NoError(t, err)
	require.False(t, found)
}

// A change of a key, its organization or its plan on one node holds for the next request on another, also where requests are counted.
func TestKeysChangeAtTheNextRequest(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 2)
	here, there := nodes[0], nodes[1]
	org, terms := newOrg(), testTerms()
	hashes := here.addKeys(t, org, "open")
	keys := there.Keys(there.db.APIKeys, terms)
	read := func(hash [32]byte) store.KeyRecord {
		record, found, err := keys.ByHash(t.Context(), hash)
		require.NoError(t, err)
		require.True(t, found)
		return record
	}
	for range 10 {
		require.NoError(t, here.db.Organizations.SetPlan(t.Context(), "test", org, "free"))
		require.Equal(t, "free", read(hashes[0]).Plan)
		require.NoError(t, here.db.Organizations.SetSuspended(t.Context(), "test", org, true, ""))
		require.True(t, read(hashes[0]).SuspendedAt.Valid)
		require.NoError(t, here.db.Organizations.SetSuspended(t.Context(), "test", org, false, ""))
		require.False(t, read(hashes[1]).SuspendedAt.Valid)
		require.NoError(t, here.db.Organizations.SetPlan(t.Context(), "test", org, "open"))
		require.Equal(t, "open", read(hashes[0]).Plan)
	}
	require.NoError(t, here.db.APIKeys.Revoke(t.Context(), "test", org, "key_0"+org))
	require.True(t, read(hashes[0]).RevokedAt.Valid)
	require.False(t, read(hashes[1]).RevokedAt.Valid)
}

// A key that was refused, or has no limit, is read without counting for the rest of the minute, and a raised limit holds at once.
func TestKeysThatAreNotCountedForAMinute(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	n.inOneMinute(t, func(org string) func() {
		allows := func(d Decision, err error) bool {
			require.NoError(t, err)
			return d.Allowed
		}
		terms := testTerms()
		hash := n.addKeys(t, org, "free")[0]
		keys := n.Keys(n.db.APIKeys, terms)
		var allowed []bool
		for range 6 {
			allowed = append(allowed, allows(n.request(keys, hash, terms)))
		}
		remembered := n.plain.has(hash, n.clock.read())
		raised := &store.KeyTerms{Scopes: terms.Scopes, Plans: terms.Plans, PerMinute: []int64{5, 0}}
		more := []bool{allows(n.request(n.Keys(n.db.APIKeys, raised), hash, raised)), allows(n.request(keys, hash, raised))}
		return func() {
			require.Equal(t, []bool{true, true, true, true, false, false}, allowed)
			require.True(t, remembered)
			require.Equal(t, []bool{true, false}, more)
			require.EqualValues(t, 5, n.counted(t, org))
			n.clock.put(window)
			require.False(t, n.plain.has(hash, n.clock.read()))
		}
	})
	for i := range 2 * maxPlainKeys {
		n.plain.add([32]byte{byte(i), byte(i >> 8)}, n.clock.read())
	}
	require.LessOrEqual(t, len(n.plain.byHash), maxPlainKeys)
}

// A request whose window another process begins, or counts in, meanwhile waits for that process's commit and is counted after it.
func TestWindowsThatAnotherProcessCountsIn(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	for _, begun := range []int{0, 1} {
		n.inOneMinute(t, func(org string) func() {
			for range begun {
				require.True(t, asked(t, n.Windows, org, 4).Allowed)
			}
			other, err := n.db.Reader().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer other.Rollback() //nolint:errcheck // it has ended
			_, err = other.ExecContext(t.Context(), `INSERT INTO rate_windows (org_id, window_start, count) VALUES ($1, $2, 3)
				ON CONFLICT (org_id, window_start) DO UPDATE SET count = excluded.count`, org, n.minute(t))
			require.NoError(t, err)
			taken := make(chan Decision, 1)
			go func() {
				d, _ := n.Take(context.Background(), org, 4) // fails when the machine is so slow that the wait for the other takes 3 s
				taken <- d
			}()
			require.Eventually(t, func() bool {
				var waiting int
				require.NoError(t, n.db.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
				return waiting > 0 || len(taken) > 0
			}, soon, time.Millisecond)
			committed := other.Commit()
			d := <-taken
			if committed != nil || d.Limit == 0 {
				return nil
			}
			return func() {
				require.True(t, d.Allowed)
				require.Zero(t, d.Remaining)
				require.EqualValues(t, 4, n.counted(t, org))
			}
		})
	}
}

// A request whose answer is lost may be counted twice, and a permit whose return is unknown is returned once: never is a request
// admitted beyond the limit.
func TestWindowsWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.Postgres)
	wire := storetest.StartWire(t, location)
	here, there := newNode(t, wire.Location), newNode(t, location)
	here.inOneMinute(t, func(org string) func() {
		wire.LoseCounts()
		_, err := here.Take(t.Context(), org, 5)
		wire.Mend()
		lost := here.counted(t, org)
		var admitted int64
		for asked(t, here.Windows, org, 5).Allowed {
			admitted++
		}
		return func() {
			require.Error(t, err)
			require.Positive(t, lost)
			require.EqualValues(t, 5, lost+admitted)
			require.EqualValues(t, 5, here.counted(t, org))
		}
	})
	org := newOrg()
	first, err := here.Take(t.Context(), org, 5)
	require.NoError(t, err)
	require.True(t, asked(t, here.Windows, org, 5).Allowed)
	wire.LoseCounts()
	here.Return(org, first)
	require.NoError(t, here.db.Close(t.Context())) // waits for the return
	require.EqualValues(t, 1, there.counted(t, org))
}

// Requests of one moment for many names, some of them under two limits, are each decided exactly.
func TestWindowsOfManyOrganizationsAtOnce(t *testing.T) {
	t.Parallel()
	n := newNodes(t, 1)[0]
	for _, names := range []int{1, 5, 64, 300} {
		n.inOneMinute(t, func(org string) func() {
			admitted := make([]atomic.Int64, names)
			var failed atomic.Int64
			var wait sync.WaitGroup
			for i := range 4 * names {
				wait.Go(func() {
					switch d, err := n.Take(t.Context(), fmt.Sprint(org, "_", i%names), 2+int64(i)%2); {
					case err != nil: // so slow is the machine
						failed.Add(1)
					case d.Allowed:
						admitted[i%names].Add(1)
					}
				})
			}
			wait.Wait()
			if failed.Load() > 0 {
				return nil
			}
			return func() {
				for i := range admitted {
					got := admitted[i].Load()
					require.Equal(t, got, n.counted(t, fmt.Sprint(org, "_", i)))
					require.True(t, got == 2 || got == 3, got)
				}
			}
		})
	}
}

func TestWindowsEndWithTheCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	n := newNodes(t, 1)[0]
	_, err := n.Take(ctx, "org", 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = n.Take(t.Context(), "\xff", 1)
	require.ErrorIs(t, err, store.ErrText, "it would fail the requests that share its statement")
}

// TestLoneReturn guarantees that permits are returned, and are written when the process ends.
func TestLoneReturn(t *testing.T) {
	t.Parallel()
	nodes := newNodes(t, 2)
	here, there := nodes[0], nodes[1]
	there.inOneMinute(t, func(org string) func() {
		var taken []Decision
		for range 3 {
			d, err := here.Take(t.Context(), org, 5)
			require.NoError(t, err)
			taken = append(taken, d)
		}
		for _, d := range taken[:2] {
			here.Return(org, d)
		}
		here.Return(org, Decision{window: taken[0].window - window.Milliseconds()}) // of a window that is over
		require.Eventually(t, func() bool { return there.counted(t, org) == 1 }, soon, time.Millisecond)
		next := asked(t, there.Windows, org, 5)
		return func() {
			require.EqualValues(t, 3, next.Remaining)
			here.Return(org, taken[2])
			require.NoError(t, here.db.Close(t.Context()))
			require.EqualValues(t, 1, there.counted(t, org))
		}
	})
	d := Decision{window: 1}
	here.Return("org", d) // of a closed store: it stays counted
	require.ErrorIs(t, here.counter.Return("org", 1), store.ErrClosed)
}
