package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// wait makes conversations of an organization that have been due since at, without their messages.
func (q *inboxTest) wait(t testing.TB, orgID string, conversations int, at int64) {
	t.Helper()
	channelID := "chn_1"
	if orgID != "org_1" {
		channelID = strings.Replace(orgID, "org", "chn", 1)
		q.channel(t, orgID, channelID)
	}
	storetest.Fill(t, q.db, fmt.Sprintf(`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention, run_at,
		lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at)
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		SELECT 'cnv_%[2]s_' || i, '%[2]s', '%s', 'waits ' || i, '', 'assistant', '', %d + i, 0, 0, 0, 0, 1, 1, 1 FROM n`,
		conversations, orgID, channelID, at))
}

// counts are the leases by organization.
func counts(leases []Lease) map[string]int {
	by := map[string]int{}
	for _, lease := range leases {
		by[lease.OrgID]++
	}
	return by
}

// An organization whose only message came last is served with the first leases, however much waits of others, and however few are
// leased at a time.
func TestSmallOrganizationIsServedFirst(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 8, 32} {
		each(t, func(t *testing.T, q *inboxTest) {
			q.wait(t, "org_1", 2000, 1)
			q.wait(t, "org_2", 2000, 1)
			q.wait(t, "org_3", 1, 1_000_000)
			var leases []Lease
			for len(leases) < max(n, 3) {
				more, err := q.Lease(t.Context(), Places{Free: n}, life)
				require.NoError(t, err)
				require.NotEmpty(t, more)
				leases = append(leases, more...)
			}
			by := counts(leases)
			require.Equal(t, 1, by["org_3"])
			require.InDelta(t, by["org_1"], by["org_2"], 1)
		})
	}
}

// Leases count for their organization whichever process has them: a second one begins with those that have fewer.
func TestLeasesOfAllProcessesCount(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.wait(t, "org_1", 100, 1)
		leases, err := q.Lease(t.Context(), Places{Free: 10}, life)
		require.NoError(t, err)
		require.Len(t, leases, 10)
		q.wait(t, "org_2", 100, 1_000)
		q.wait(t, "org_3", 100, 1_000)
		leases, err = newHandle(t, q).Lease(t.Context(), Places{Free: 14}, life)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"org_2": 7, "org_3": 7}, counts(leases))
		q.exec(t, `UPDATE conversations SET lease_until = 0 WHERE org_id = 'org_1'`)
		leases, err = newHandle(t, q).Lease(t.Context(), Places{Free: 6}, life)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"org_1": 6}, counts(leases))
	})
}

// However few organizations have work, one lease gives them all places, each as many as the others and no more than it may; the next place
// that gets free is for an organization that came late.
func TestPlacesAreSharedOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for organizations, each := range map[int][]int{1: {16}, 2: {16, 16}, 3: {10, 11}, 7: {4, 5}} {
			q.exec(t, `DELETE FROM conversations`)
			for org := range organizations {
				q.wait(t, fmt.Sprintf("org_%d%d", organizations, org), 40, int64(1000*org))
			}
			leases, err := q.Lease(t.Context(), Places{Free: 32, Most: 16}, life)
			require.NoError(t, err)
			taken := counts(leases)
			sum := 0
			for org, n := range taken {
				require.Contains(t, each, n, org)
				sum += n
			}
			require.Equal(t, min(32, 16*organizations), sum, "%d organizations", organizations)

			late := fmt.Sprintf("org_%d_late", organizations)
			q.wait(t, late, 5, 1_000_000)
			taken[fmt.Sprintf("org_%d0", organizations)]--
			leases, err = newHandle(t, q).Lease(t.Context(), Places{Free: 1, Most: 16, Taken: taken}, life)
			require.NoError(t, err)
			require.Equal(t, map[string]int{late: 1}, counts(leases))
		}
	})
}

// A lease fills all places although the organizations' parts are not equally long.
func TestLeaseGoesOnWhereMoreIsDue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.wait(t, "org_1", 1, 1)
		q.wait(t, "org_2", 40, 2)
		leases, err := q.Lease(t.Context(), Places{Free: 20}, life)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"org_1": 1, "org_2": 19}, counts(leases))
		leases, err = q.Lease(t.Context(), Places{Free: 32}, life)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"org_2": 21}, counts(leases))
	})
}

// With more organizations than one lease visits, each is served once before one is served again; organizations that wait for a
// later time, or have their share, keep none of the others.
func TestManyOrganizationsTakeTurns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		const organizations = 2*maxWalk + 3
		for org := range organizations {
			q.wait(t, fmt.Sprintf("org_%03d", org+100), 3, int64(1000-org))
		}
		q.exec(t, `UPDATE conversations SET run_at = 4000000000000 WHERE org_id < 'org_200'`)
		full := map[string]int{}
		for org := range 10 {
			full[fmt.Sprintf("org_%03d", org+210)] = 7
		}
		waiting := organizations - 100 - len(full)
		by := map[string]int{}
		for sum := 0; sum < waiting; {
			leases, err := q.Lease(t.Context(), Places{Free: 7, Most: 7, Taken: full}, life)
			require.NoError(t, err)
			require.NotEmpty(t, leases)
			for _, lease := range leases {
				by[lease.OrgID]++
			}
			sum += len(leases)
		}
		require.Len(t, by, waiting, "each once")
		for org := range full {
			require.Zero(t, by[org])
		}
	})
}

// A lease that ran out is taken before what waits, however much that is, also when a message that came meanwhile moved it.
func TestExpiredLeaseIsTakenFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.wait(t, "org_1", 3000, 1)
		q.exec(t, `UPDATE conversations SET lease_until = 7, run_at = 5000 WHERE id = 'cnv_org_1_2999'`)
		q.exec(t, `UPDATE conversations SET lease_until = 5, run_at = 4000000000000 WHERE id = 'cnv_org_1_2998'`)
		lease := q.take(t)
		require.Equal(t, "cnv_org_1_2999", lease.ConversationID)
		require.Equal(t, int64(1), lease.Attempts)
	})
}

// A lease reads its way through the index conversations_ready: nothing is sorted, and neither what waits nor what is leased is
// read as a whole, whatever the statistics say.
func TestLeasePlans(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		check := func() {
			for _, text := range append([]string{walkOrganizations}, dueOfAll...) {
				plan := q.plan(t, text, leasePlanArguments(text))
				require.NotContains(t, plan, "Sort", plan)
				require.NotContains(t, plan, "TEMP B-TREE", text)
				for line := range strings.Lines(plan) {
					if strings.Contains(line, "onversations") {
						require.Contains(t, line, "conversations_ready", "%s\n%s", text, plan)
					}
				}
			}
		}
		check() // a new installation
		fill(t, q)
		check() // nothing waits
		q.wait(t, "org_1", 5000, 1)
		storetest.Fill(t, q.db, "ANALYZE")
		check() // one organization has everything
		oldest := q.plan(t, strings.Replace(selectOldestDue, "{but}", "", 1), []any{int64(9), int64(oldestDue)})
		require.Contains(t, oldest, "conversations_due")
		require.NotContains(t, oldest, "Sort")
		require.NotContains(t, oldest, "TEMP B-TREE")
		for org := range 20 {
			q.wait(t, fmt.Sprintf("org_%d", org+2), 200, 1)
		}
		storetest.Fill(t, q.db, "ANALYZE")
		check()
	})
}

func leasePlanArguments(text string) []any {
	if text == walkOrganizations {
		return []any{int64(9), "", int64(40)}
	}
	args := []any{int64(9)}
	for range strings.Count(text, "LIMIT") {
		args = append(args, "org_1", int64(0), int64(40))
	}
	return args
}

// leaseModel is what a batch of leases must keep, for several processes on one queue.
type leaseModel struct {
	q      *inboxTest
	queues []*Queue
	// held are the valid leases, by conversation; due are those that wait, by organization.
	held map[string]Lease
	late []Lease // that ran out, or were given back
	due  map[string]string
	made int
}

// Arrive makes some conversations of an organization due.
func (m *leaseModel) Arrive(t *rapid.T) {
	org := rapid.SampledFrom([]string{"org_1", "org_2", "org_3"}).Draw(t, "organization")
	for range rapid.IntRange(1, 12).Draw(t, "conversations") {
		m.made++
		id := "c" + number(m.made)
		route := m.q.route
		route.OrgID, route.ChannelID = org, strings.Replace(org, "org", "chn", 1)
		require.NoError(t, m.q.Enqueue(context.Background(), []Arrival{{route, []Item{textOf(id, id, "text")}}}))
		m.due[m.q.value(t, `SELECT id FROM conversations WHERE customer_ref = $1`, m.q.sealedID(id, vault.CustomerID(org)))] = org
	}
}

// Lease leases some in a process, for which an organization may have places already.
func (m *leaseModel) Lease(t *rapid.T) {
	queue := rapid.SampledFrom(m.queues).Draw(t, "process")
	n := rapid.IntRange(1, 10).Draw(t, "free")
	free := Places{Free: n}
	if rapid.Bool().Draw(t, "bounded") {
		free.Most, free.Taken = 4, map[string]int{"org_2": rapid.IntRange(0, 5).Draw(t, "taken")}
	}
	before, waiting := map[string]int{}, map[string]int{}
	for _, lease := range m.held {
		before[lease.OrgID]++
	}
	for _, org := range m.due {
		if free.may(org) {
			waiting[org]++
		}
	}
	leases, err := queue.Lease(context.Background(), free, life)
	require.NoError(t, err)
	require.LessOrEqual(t, len(leases), n)
	require.Equal(t, len(waiting) == 0, len(leases) == 0, "it returns some when some are due: %v", waiting)
	got := counts(leases)
	full := func(org string) bool { return free.Most > 0 && free.Taken[org]+got[org] >= free.Most }
	for _, lease := range leases {
		require.Equal(t, m.due[lease.ConversationID], lease.OrgID, "it was due, and with no other worker")
		for _, old := range m.late {
			if old.ConversationID == lease.ConversationID {
				require.Greater(t, lease.Token, old.Token)
			}
		}
		delete(m.due, lease.ConversationID)
		m.held[lease.ConversationID] = lease
	}
	for org, more := range got {
		if free.Most > 0 {
			require.LessOrEqual(t, free.Taken[org]+more, free.Most, org)
		}
		for other, left := range waiting {
			if got[other] < left && !full(other) { // it could have had another one
				require.LessOrEqual(t, before[org]+more, before[other]+got[other]+1, "%s before %s", org, other)
			}
		}
	}
}

// End gives some leases back, done, or lets them run out.
func (m *leaseModel) End(t *rapid.T) {
	ids := slices.Sorted(maps.Keys(m.held))
	for _, id := range ids {
		if rapid.Bool().Draw(t, "keep") {
			continue
		}
		lease := m.held[id]
		queue := rapid.SampledFrom(m.queues).Draw(t, "process")
		if rapid.Bool().Draw(t, "runs out") {
			m.q.exec(t, `UPDATE conversations SET lease_until = $2 WHERE id = $1`, id, rapid.Int64Range(1, 4).Draw(t, "end"))
		} else {
			require.NoError(t, queue.Release(context.Background(), lease)) // its text still waits
		}
		delete(m.held, id)
		m.late = append(m.late, lease)
		m.due[id] = lease.OrgID
	}
}

// Late lets a worker that lost its lease try to end it.
func (m *leaseModel) Late(t *rapid.T) {
	if len(m.late) == 0 {
		t.Skip("none yet")
	}
	lease := rapid.SampledFrom(m.late).Draw(t, "lease")
	if _, taken := m.held[lease.ConversationID]; taken {
		require.ErrorIs(t, m.q.Backoff(context.Background(), lease, time.Hour), ErrLeaseLost)
	}
}

// TestLeaseMachine leases, gives back and loses batches in three processes at random: no conversation is with two, none is lost,
// a late worker changes nothing, and no organization gets a lease while another that waits has fewer.
func TestLeaseMachine(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.channel(t, "org_2", "chn_2")
		q.channel(t, "org_3", "chn_3")
		queues := []*Queue{q.Queue, newHandle(t, q), newHandle(t, q)}
		rapid.Check(t, func(t *rapid.T) {
			for _, table := range []string{"outbound_messages", "messages", "turns", "conversations"} {
				q.exec(t, `DELETE FROM `+table)
			}
			m := &leaseModel{q: q, queues: queues, held: map[string]Lease{}, due: map[string]string{}}
			t.Repeat(map[string]func(*rapid.T){
				"arrive": m.Arrive, "lease": m.Lease, "lease 2": m.Lease, "end": m.End, "late": m.Late,
			})
			for len(m.due) > 0 {
				m.Lease(t)
			}
		})
	})
}

// BenchmarkLease leases eight conversations and gives them back, beside so many that wait, of so many organizations. Its time must
// not grow with either.
func BenchmarkLease(b *testing.B) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		for _, waiting := range []int{1_000, 100_000, 1_000_000} {
			for _, organizations := range []int{1, 1_000} {
				b.Run(fmt.Sprintf("%s/%d waiting/%d organizations", engine, waiting, organizations), func(b *testing.B) {
					q := newInboxTest(b, storetest.OpenAt(b, storetest.Location(b, engine), store.Options{Kinds: []store.Kind{Kind}}))
					storetest.Fill(b, q.db, fmt.Sprintf(`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, state, attention,
						run_at, lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at)
						WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
						SELECT 'cnv_' || i, 'org_' || (i %% %d), 'chn_1', 'waits ' || i, '', 'assistant', '', i, 0, 0, 0, 0, 1, 1, 1 FROM n`,
						waiting, organizations), "ANALYZE")
					for b.Loop() {
						leases, err := q.Lease(b.Context(), Places{Free: 8}, life)
						require.NoError(b, err)
						require.Len(b, leases, 8)
						require.NoError(b, q.db.Exec(b.Context(), func(_ context.Context, tx store.Tx) error {
							for _, lease := range leases {
								tx.Queue(store.AnyRows, `UPDATE conversations SET lease_until = 0 WHERE id = $1`, lease.ConversationID)
							}
							return nil
						}))
					}
				})
			}
		}
	}
}
