package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// The transaction of a lease reads the same as Open does after it, so that OpenLeased reads nothing again.
func TestOpenLeased(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.channel(t, "org_1", "chn_2")
		same := func() Work {
			lease := q.take(t)
			leased, err := q.OpenLeased(ctx, lease, 100)
			require.NoError(t, err)
			read := q.open(t, lease)
			require.LessOrEqual(t, leased.ReadAt, read.ReadAt)
			leased.ReadAt = read.ReadAt
			require.Equal(t, read, leased)
			require.NoError(t, q.Release(ctx, lease))
			return read
		}
		q.arrive(t, textOf("ann", "1", "one"), textOf("ann", "2", "two"))
		first := same()
		require.Equal(t, []string{"one", "two"}, textsOf(first.Waiting))
		require.Equal(t, "Ms ann", first.Conversation.CustomerName)
		require.Equal(t, "agt_chn_1", first.Agent.ID)
		q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann", MessageID: "event", Text: "image"})
		require.Len(t, same().History, 1)
		q.reply(t, "answer", "p1")
		q.arrive(t, textOf("ann", "3", "three"))
		require.Len(t, same().History, 4)
		for n := range leasedTexts {
			q.arrive(t, textOf("ann", "many "+number(n), "more"))
		}
		require.Len(t, same().Waiting, 1+leasedTexts)
		q.exec(t, `UPDATE channels SET agent_id = NULL`)
		require.Nil(t, same().Agent)
		q.exec(t, `UPDATE organizations SET suspended_at = 1`)
		require.True(t, same().Suspended)
	})
}

// Where a dead worker has left something, the next step may be a call of a model or a platform: then a lease that was lost since is
// noticed.
func TestOpenLeasedAfterACrashReadsAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		lost := func() {
			late := q.take(t)
			q.crash(t)
			require.NoError(t, q.Release(ctx, q.take(t)))
			_, err := q.OpenLeased(ctx, late, 10)
			require.ErrorIs(t, err, ErrLeaseLost)
		}
		q.arrive(t, textOf("ann", "1", "hello"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.crash(t)
		lost()
		lease = q.take(t)
		_, err := q.Answer(ctx, lease, turnID, []string{"answer"}, true)
		require.NoError(t, err)
		q.crash(t)
		lost()
	})
}

// A text that doesn't open says so, and keeps no conversation from being leased and read, not even its own.
func TestUnreadableTextFailsNoOtherLease(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.arrive(t, textOf("ann", "1", "damaged"))
		q.arrive(t, textOf("bob", "2", "well"))
		q.exec(t, `UPDATE messages SET body = $1 WHERE platform_message_id = '`+q.messageID("1")+`'`, []byte("nothing that was sealed"))
		leases, err := q.Lease(ctx, Places{Free: 8}, life)
		require.NoError(t, err)
		require.Len(t, leases, 2)
		for _, lease := range leases {
			work, err := q.OpenLeased(ctx, lease, 10)
			require.NoError(t, err)
			if lease.CustomerRef == "ann" {
				require.True(t, work.Waiting[0].Unreadable)
				require.Equal(t, []string{UnreadableText}, textsOf(work.Waiting))
				continue
			}
			require.Equal(t, []string{"well"}, textsOf(work.Waiting))
		}
	})
}

// A conversation whose organization is gone is leased like others, and fails none of them.
func TestMissingOrganizationFailsNoOtherLease(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "lost"), textOf("bob", "2", "well"))
		q.execUnchecked(t, `UPDATE conversations SET org_id = 'gone' WHERE customer_ref = '`+q.ref("ann")+`'`)
		leases, err := q.Lease(t.Context(), Places{Free: 8}, life)
		require.NoError(t, err)
		require.Len(t, leases, 2)
		for _, lease := range leases {
			work, err := q.OpenLeased(t.Context(), lease, 10)
			if lease.OrgID == "gone" {
				require.Empty(t, lease.CustomerRef, "it is sealed for another organization")
				require.ErrorIs(t, err, store.ErrNotFound)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, []string{"well"}, textsOf(work.Waiting))
		}
	})
}

// Operations of one transaction see what those before them have changed, though all of them read at its beginning.
func TestOperationsOfOneTransaction(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, q *inboxTest, lease Lease){
		"a turn, and another of the same texts": func(t *testing.T, q *inboxTest, lease Lease) {
			ids := idsOf(q.open(t, lease).Waiting)
			begin := func(q *Queue) error { return q.BeginCall(t.Context(), lease, Turn{ID: store.NewID("trn")}, ids) }
			errs := q.together(t, begin, begin)
			require.NoError(t, errs[0])
			require.ErrorIs(t, errs[1], ErrEnded)
		},
		"a text, and the end of the answer before it": func(t *testing.T, q *inboxTest, lease Lease) {
			parts := q.answer(t, lease, "answer")
			require.NoError(t, errors.Join(q.together(t, q.arriving(textOf("ann", "2", "and this?")), lastPart(lease, parts[0].ID))...))
			require.Equal(t, []string{"and this?"}, textsOf(q.open(t, q.take(t)).Waiting))
		},
		"the end of the only answer": func(t *testing.T, q *inboxTest, lease Lease) {
			require.NoError(t, errors.Join(q.together(t, lastPart(lease, q.answer(t, lease, "answer")[0].ID))...))
			q.idle(t)
		},
		"a person's message, and the end of a lease": func(t *testing.T, q *inboxTest, lease Lease) {
			require.NoError(t, q.Sent(t.Context(), lease, q.answer(t, lease, "answer")[0].ID, "p1", ""))
			require.NoError(t, errors.Join(q.together(t, func(q *Queue) error {
				_, err := q.SendAsHuman(context.Background(), "usr_1", "org_1", lease.ConversationID, []string{"from a person"})
				return err
			}, func(q *Queue) error { return q.Release(context.Background(), lease) })...))
			require.Equal(t, "from a person", q.open(t, q.take(t)).Outbound[0].Text)
		},
		"a report of a failed part, and the next part": func(t *testing.T, q *inboxTest, lease Lease) {
			parts := q.answer(t, lease, "one", "two", "three")
			require.NoError(t, q.Sent(t.Context(), lease, parts[0].ID, "p1", parts[1].ID))
			errs := q.together(t, q.arriving(Item{Kind: platforms.FailedDelivery, MessageID: "p1", Code: "refused"}), func(q *Queue) error {
				return q.Sent(context.Background(), lease, parts[1].ID, "p2", parts[2].ID)
			})
			require.NoError(t, errs[0])
			require.ErrorIs(t, errs[1], ErrEnded)
			require.Equal(t, OutboundFailed, q.value(t, `SELECT state FROM outbound_messages WHERE id = $1`, parts[2].ID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, q *inboxTest) {
				q.arrive(t, textOf("ann", "1", "hello"))
				test(t, q, q.take(t))
				q.healthy(t)
			})
		})
	}
}

// together runs writes in one transaction, in order, and returns the error of each.
func (q *inboxTest) together(t *testing.T, writes ...func(q *Queue) error) []error {
	t.Helper()
	errs := make([]error, len(writes))
	var ops []store.Op
	queued, applied := make(chan store.Op), make(chan struct{})
	var running sync.WaitGroup
	for i, write := range writes {
		batched := New(q.db, q.ring)
		batched.ids.Store(q.ids.Load())
		batched.write = func(_ context.Context, op store.Op) error {
			queued <- op
			<-applied
			return nil
		}
		running.Go(func() { errs[i] = write(batched) })
		ops = append(ops, <-queued)
	}
	require.NoError(t, q.db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error { return apply(ctx, tx, ops) }))
	close(applied)
	running.Wait()
	return errs
}

// arriving delivers an item.
func (q *inboxTest) arriving(item Item) func(q *Queue) error {
	return func(batched *Queue) error {
		return batched.Enqueue(context.Background(), []Arrival{{q.route, []Item{item}}})
	}
}

// lastPart sends the last part of an answer.
func lastPart(lease Lease, id string) func(q *Queue) error {
	return func(q *Queue) error { return q.SentAndRelease(context.Background(), lease, id, "p1") }
}

// answer answers what waits. The first part is being sent.
func (q *inboxTest) answer(t *testing.T, lease Lease, parts ...string) []Outbound {
	t.Helper()
	outbound, err := q.Answer(t.Context(), lease, q.begin(t, lease), parts, true)
	require.NoError(t, err)
	return outbound
}

// TestClockThatStepsBack guarantees that an answer stands after its question, and the next question after the answer, when the clock was
// set back in between: otherwise the next prompt would ask an answered question again.
func TestClockThatStepsBack(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	ctx := t.Context()
	c.arrive(t, textOf("a", "m1", "first question"))
	lease := c.take(t)
	turnID := c.begin(t, lease)
	c.pass(-10 * time.Minute)
	parts, err := c.Answer(ctx, lease, turnID, []string{"first answer", "its end"}, true)
	require.NoError(t, err)
	require.NoError(t, c.Sent(ctx, lease, parts[0].ID, "p1", parts[1].ID))
	require.NoError(t, c.SentAndRelease(ctx, lease, parts[1].ID, "p2"))
	c.arrive(t, textOf("a", "m2", "second question"))
	c.reply(t, "second answer", "p3")
	_, err = c.SendAsHuman(ctx, "user:ann", "org_1", lease.ConversationID, []string{"a person"})
	require.NoError(t, err)
	require.NoError(t, c.HandBack(ctx, "user:ann", "org_1", lease.ConversationID))
	c.arrive(t, Item{Kind: platforms.HumanEcho, CustomerRef: "a", MessageID: "m3", Text: "the same person", SentAt: 1}, textOf("a", "m4", "third question"))

	said := []string{"first question", "first answer", "its end", "second question", "second answer", "a person", "the same person", "third question"}
	messages, err := c.Messages(ctx, "org_1", lease.ConversationID, pageAll)
	require.NoError(t, err)
	require.Equal(t, said, textsOf(messages))
	lease = c.take(t)
	work := c.open(t, lease)
	require.Equal(t, []string{"third question"}, textsOf(work.Waiting))
	require.Equal(t, slices.DeleteFunc(said[:7], func(text string) bool { return text == "a person" }), textsOf(work.History))

	c.pass(-time.Minute)
	turnID, err = c.BeginTurn(ctx, lease, "agt_chn_1", idsOf(work.Waiting), []byte("request"))
	require.NoError(t, err)
	c.arrive(t, tookBack("a", "m4"))
	require.Equal(t, "0", c.value(t, `SELECT count(*) FROM turns WHERE id = $1 AND request IS NOT NULL`, turnID), "the prompt repeats the text")

	c.pass(-30 * 24 * time.Hour)
	c.arrive(t, textOf("a", "m5", "the clock was a month ahead"))
	require.Equal(t, fmt.Sprint(c.ms.Load()), c.value(t, `SELECT received_at FROM messages WHERE platform_message_id = '`+c.messageID("m5")+`'`))
}
