package inbox

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Many workers, two processes: no conversation is with two at a time, and each is leased.
func TestLeaseIsExclusive(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := newHandle(t, q)
		const conversations, workers = 60, 8
		for n := range conversations {
			q.arrive(t, textOf("c"+number(n), number(n), "text"))
		}
		var mu sync.Mutex
		got := map[string]int{}
		var failed error
		var wg sync.WaitGroup
		for i := range workers {
			queue := []*Queue{q.Queue, other}[i%2]
			wg.Go(func() {
				for range conversations {
					var leases []Lease
					err := storetest.Insist(func() (err error) {
						leases, err = queue.Lease(context.Background(), Places{Free: 3}, life)
						return err
					})
					mu.Lock()
					for _, lease := range leases {
						got[lease.ConversationID]++
					}
					if err != nil {
						failed = err
					}
					done := len(got) == conversations || failed != nil
					mu.Unlock()
					if done {
						return
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, failed)
		require.Len(t, got, conversations)
		for id, times := range got {
			require.Equal(t, 1, times, id)
		}
		depth, err := q.Depth(t.Context())
		require.NoError(t, err)
		require.Equal(t, Depth{Leased: conversations}, depth)
	})
}

// Organizations take turns, each with what has waited longest; those that are full are left out.
func TestLeaseIsFair(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		small := q.channel(t, "org_2", "chn_2")
		tiny := q.channel(t, "org_3", "chn_3")
		for n := range 30 {
			q.arrive(t, textOf("c"+number(n), number(n), "text"))
		}
		for n := range 3 {
			require.NoError(t, q.Enqueue(t.Context(), []Arrival{{small, []Item{textOf("c"+number(n), number(n), "text")}}}))
		}
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{tiny, []Item{textOf("c", "1", "text")}}}))
		q.exec(t, `UPDATE conversations SET run_at = run_at - 3600000 WHERE org_id = 'org_1' AND customer_ref = '`+q.ref("c7")+`'`)

		leases, err := q.Lease(t.Context(), Places{Free: 6}, life)
		require.NoError(t, err)
		require.Equal(t, []string{"org_1", "org_2", "org_3", "org_1", "org_2", "org_1"}, ownersOf(leases))
		require.Equal(t, "c7", leases[0].CustomerRef)

		leases, err = q.Lease(t.Context(), Places{Free: 2, Most: 1, Taken: map[string]int{"org_1": 1, "org_3": 1}}, life)
		require.NoError(t, err)
		require.Equal(t, []string{"org_2"}, ownersOf(leases))
		leases, err = q.Lease(t.Context(), Places{Free: 5, Most: 3, Taken: map[string]int{"org_1": 3, "org_2": 4, "org_3": 3}}, life)
		require.NoError(t, err)
		require.Empty(t, leases)
		leases, err = q.Lease(t.Context(), Places{Free: 0}, life)
		require.NoError(t, err)
		require.Empty(t, leases)
	})
}

func ownersOf(leases []Lease) []string {
	owners := make([]string, len(leases))
	for i, lease := range leases {
		owners[i] = lease.OrgID
	}
	if len(owners) > 3 {
		slices.Sort(owners[:3]) // due at the same millisecond or not
	}
	return owners
}

// A worker that lost its lease, because it ran out and another worker took the conversation, because it was given back, or
// because the conversation is gone, changes nothing with any operation.
func TestLateWorkerIsFenced(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		late := q.take(t)
		turnID := q.begin(t, late)
		parts, err := q.SendAsHuman(ctx, "usr_1", "org_1", late.ConversationID, []string{"one", "two"})
		require.NoError(t, err)
		require.NoError(t, q.Sending(ctx, late, parts[0].ID))
		q.arrive(t, textOf("ann", "2", "more"))
		waiting := idsOf(q.open(t, late).Waiting)

		operations := map[string]func() error{
			"Renew":       func() error { _, err := q.Renew(ctx, late, life); return err },
			"Release":     func() error { return q.Release(ctx, late) },
			"Backoff":     func() error { return q.Backoff(ctx, late, time.Second) },
			"Postpone":    func() error { return q.Postpone(ctx, late, time.Second) },
			"Open":        func() error { _, err := q.Open(ctx, late, 10); return err },
			"BeginTurn":   func() error { _, err := q.BeginTurn(ctx, late, "a", waiting, nil); return err },
			"BeginCall":   func() error { return q.BeginCall(ctx, late, Turn{ID: turnID, Request: []byte("x")}, nil) },
			"Answer":      func() error { _, err := q.Answer(ctx, late, turnID, []string{"x"}, true); return err },
			"Sending":     func() error { return q.Sending(ctx, late, parts[1].ID) },
			"Sent":        func() error { return q.Sent(ctx, late, parts[0].ID, "p", parts[1].ID) },
			"SendFailed":  func() error { return q.SendFailed(ctx, late, parts[0].ID, OutboundFailed, "x", SendFailure{}) },
			"Attention":   func() error { return q.Stand(ctx, late, Standing{TurnID: turnID, AgentID: "a", Code: "x"}) },
			"Attention 2": func() error { return q.Stand(ctx, late, Standing{AgentID: "a", MessageIDs: waiting, Code: "x"}) },
			"Dead":        func() error { return q.Stand(ctx, late, Standing{TurnID: turnID, Code: "x", Final: true}) },
		}
		fenced := func(why string) {
			before := q.contents(t)
			for name, operation := range operations {
				require.ErrorIs(t, operation(), ErrLeaseLost, "%s: %s", why, name)
			}
			require.Equal(t, before, q.contents(t), why)
		}
		q.crash(t)
		current := q.take(t)
		require.Equal(t, late.Token+1, current.Token)
		fenced("another has it")
		require.NoError(t, q.Release(ctx, current))
		late.Token = current.Token
		fenced("it was given back")
		stranger := q.take(t)
		late = stranger
		late.OrgID = "org_2"
		require.ErrorIs(t, q.Release(ctx, late), ErrLeaseLost, "another organization")
		require.NoError(t, q.DeleteConversation(ctx, "usr_1", "org_1", late.ConversationID))
		late = stranger
		require.ErrorIs(t, q.Release(ctx, late), ErrLeaseLost, "it is gone")
		_, err = q.Open(ctx, late, 10)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// contents is all that the queue has stored, as one text.
func (q *inboxTest) contents(t testing.TB) string {
	t.Helper()
	var all string
	for _, text := range []string{
		`SELECT state || ' ' || attention || ' ' || coalesce(run_at, -1) || ' ' || lease_until || ' ' || lease_token || ' ' || attempts FROM conversations ORDER BY id`,
		`SELECT id || ' ' || coalesce(turn_id, '') || ' ' || CASE WHEN handled THEN 1 ELSE 0 END FROM messages ORDER BY id`,
		`SELECT id || ' ' || state || ' ' || code || ' ' || updated_at FROM turns ORDER BY id`,
		`SELECT id || ' ' || state || ' ' || code || ' ' || platform_message_id || ' ' || attempts FROM outbound_messages ORDER BY id`,
	} {
		rows, err := store.ReadRows(context.Background(), q.db, "", func(row store.Row) (line string, err error) {
			err = row.Scan(&line)
			return line, err
		}, text)
		require.NoError(t, err)
		for _, line := range rows {
			all += line + "\n"
		}
	}
	return all
}

// A lease runs out by the database's clock; until another worker takes the conversation its worker may go on, or renew.
func TestLeaseLife(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "hello"))
	leases, err := c.Lease(t.Context(), Places{Free: 1}, time.Minute)
	require.NoError(t, err)
	lease := leases[0]
	require.Equal(t, c.ms.Load()+60_000, lease.Until.UnixMilli())

	c.pass(59 * time.Second)
	c.idle(t)
	lease, err = c.Renew(t.Context(), lease, time.Minute)
	require.NoError(t, err)
	require.Equal(t, c.ms.Load()+60_000, lease.Until.UnixMilli())
	c.pass(60 * time.Second)
	c.idle(t)
	c.pass(time.Millisecond)
	turnID := c.begin(t, lease)
	_, err = c.Renew(t.Context(), lease, time.Second)
	require.NoError(t, err)
	c.pass(time.Minute)

	second := c.take(t)
	work := c.open(t, second)
	require.Equal(t, int64(1), work.Conversation.Attempts, "its worker was lost")
	require.Equal(t, int64(1), work.Turn.Attempts)
	require.Equal(t, turnID, work.Turn.ID)
	require.Equal(t, "request", string(work.Turn.Request), "a retry sends the stored request")
}

// Under a lease that ran out no part is marked as sending, because the result of the send couldn't be stored once another worker has the
// conversation, and the delivery would be unknown. Every other change under such a lease is stored.
func TestNothingIsSentUnderALeaseThatRanOut(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "hello"))
	lease := c.take(t)
	turnID := c.begin(t, lease)
	c.pass(life + time.Millisecond)
	parts, err := c.Answer(t.Context(), lease, turnID, []string{"one", "two"}, true)
	require.NoError(t, err)
	require.Equal(t, OutboundPending, parts[0].State)
	require.ErrorIs(t, c.Sending(t.Context(), lease, parts[0].ID), ErrLeaseLost)

	lease, err = c.Renew(t.Context(), lease, life)
	require.NoError(t, err)
	require.NoError(t, c.Sending(t.Context(), lease, parts[0].ID))
	c.pass(life + time.Millisecond)
	require.ErrorIs(t, c.Sent(t.Context(), lease, parts[0].ID, "p", parts[1].ID), ErrLeaseLost)
	work := c.open(t, c.take(t))
	require.Len(t, work.Outbound, 1, "the first part is stored as sent")
	require.Equal(t, OutboundPending, work.Outbound[0].State)
}

// A failed attempt waits, whatever arrives meanwhile, and is counted; a release ends the count.
func TestBackoff(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "hello"))
	lease := c.take(t)
	c.begin(t, lease)
	require.NoError(t, c.Backoff(t.Context(), lease, 10*time.Second))
	c.pass(5 * time.Second)
	c.arrive(t, textOf("ann", "2", "hello?"))
	c.idle(t)
	c.pass(5 * time.Second)
	lease = c.take(t)
	work := c.open(t, lease)
	require.Equal(t, int64(1), work.Conversation.Attempts)
	require.Equal(t, int64(1), work.Turn.Attempts)
	require.NoError(t, c.Release(t.Context(), lease))
	lease = c.take(t)
	require.Zero(t, c.open(t, lease).Conversation.Attempts)
}

// A turn that has to wait is due after its wait and counts no attempt, however often; it keeps the attempts from before.
func TestPostpone(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.arrive(t, textOf("ann", "1", "hello"))
	lease := c.take(t)
	turnID := c.begin(t, lease)
	require.NoError(t, c.Backoff(t.Context(), lease, time.Second))
	for range 20 {
		c.pass(10 * time.Second)
		lease = c.take(t)
		work := c.open(t, lease)
		require.Equal(t, turnID, work.Turn.ID)
		require.Equal(t, int64(1), work.Turn.Attempts)
		require.Equal(t, int64(1), work.Conversation.Attempts)
		require.NoError(t, c.Postpone(t.Context(), lease, 10*time.Second))
		c.pass(5 * time.Second)
		c.idle(t)
	}
}

// What a dead worker left is found again: a part that is sending comes back as sending, for delivery_unknown; a turn with
// its request; what waits.
func TestResumeAfterCrash(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "hello"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		parts, err := q.Answer(ctx, lease, turnID, []string{"one", "two"}, true)
		require.NoError(t, err)
		q.arrive(t, textOf("ann", "2", "more"))
		q.crash(t)

		lease = q.take(t)
		work := q.open(t, lease)
		require.Equal(t, []string{OutboundSending, OutboundPending}, []string{work.Outbound[0].State, work.Outbound[1].State})
		require.Equal(t, []string{"one", "two"}, []string{work.Outbound[0].Text, work.Outbound[1].Text})
		require.Equal(t, []string{"more"}, textsOf(work.Waiting))
		require.NoError(t, q.SendFailed(ctx, lease, parts[0].ID, OutboundDeliveryUnknown, "delivery_unknown", SendFailure{RestOfTurn: true}))
		require.NoError(t, q.Release(ctx, lease))

		work = q.open(t, q.take(t))
		require.Empty(t, work.Outbound)
		require.Equal(t, "delivery_unknown", work.Conversation.Attention)
		require.Equal(t, []string{"hello", "one"}, textsOf(work.History), "the customer may have seen it")
		require.Equal(t, "failed delivery_unknown", q.value(t, `SELECT state || ' ' || code FROM outbound_messages WHERE id = $1`, parts[1].ID))
		q.healthy(t)
	})
}
