package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// TestManyCustomersOfOneDelivery guarantees that each of the conversations that a delivery changes gets its own values, however many they
// are.
func TestManyCustomersOfOneDelivery(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		const customers = 32 + 8 + 1
		var first, second []Item
		for i := range customers {
			item := textOf(fmt.Sprint("c", i), fmt.Sprint("first ", i), "hello")
			if i%3 == 0 {
				item.CustomerName = ""
			}
			item.SentAt = 1000
			first = append(first, item)
			item.MessageID, item.Address, item.SentAt = fmt.Sprint("second ", i), item.CustomerRef, int64(2000+i)
			second = append(second, item)
		}
		q.arrive(t, first...)
		q.arrive(t, second...)
		require.Equal(t, fmt.Sprint(customers), q.value(t, `SELECT count(*) FROM conversations c JOIN messages m ON m.conversation_id = c.id
			WHERE m.sent_at = c.last_customer_at AND m.sent_at >= 2000 AND c.address = c.customer_ref`))
		list, err := q.Conversations(t.Context(), "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		require.Len(t, list, customers)
		unnamed := 0
		for _, c := range list {
			if c.CustomerName == "" {
				unnamed++
				continue
			}
			require.Equal(t, "Ms "+c.Address, c.CustomerName)
		}
		require.Equal(t, (customers+2)/3, unnamed)
	})
}

// TestDeliveriesInEveryQueryMode guarantees that a delivery is stored whatever default_query_exec_mode PostgreSQL's address has: a pooler may
// need another than the usual one.
func TestDeliveriesInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			location := storetest.Location(t, store.Postgres)
			location.DSN += " default_query_exec_mode='" + mode + "'"
			q := newInboxTest(t, storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{Kind}}))
			q.arrive(t, textOf("ann", "1", "hello"), textOf("bob", "2", "there"))
			q.arrive(t, textOf("ann", "3", "hello"), textOf("bob", "4", "there"))
			q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "ann"}, Item{Kind: platforms.Blocked, CustomerRef: "bob"})
			require.Equal(t, "4", q.value(t, `SELECT count(*) FROM messages`))
			require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations WHERE state = 'closed'`))
		})
	}
}

// A message goes in, is answered once with everything that waited, and both directions are listed.
func TestMessageToReply(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "hello"), textOf("ann", "2", "there"))
		lease := q.take(t)
		work := q.open(t, lease)
		require.Equal(t, "Ms ann", work.Conversation.CustomerName)
		require.Equal(t, "to ann", work.Conversation.Address)
		require.Equal(t, StateAssistant, work.Conversation.State)
		require.Equal(t, "chn_1", work.Channel.ID)
		require.Equal(t, "agt_chn_1", work.Agent.ID)
		require.False(t, work.Suspended)
		require.Equal(t, []string{"hello", "there"}, textsOf(work.Waiting))
		require.Empty(t, work.History)

		arrived := work.WaitingSince
		turnID := q.begin(t, lease)
		work = q.open(t, lease)
		require.Empty(t, work.Waiting)
		require.Equal(t, "request", string(work.Turn.Request))
		require.Equal(t, turnID, work.Turn.ID)
		require.Empty(t, work.History, "what the running turn answers is in its request")

		parts, err := q.Answer(t.Context(), lease, turnID, []string{"hi", "again"}, true)
		require.NoError(t, err)
		require.Equal(t, []string{OutboundSending, OutboundPending}, []string{parts[0].State, parts[1].State})
		for i := range parts {
			parts[i].Since = arrived // the store knows it of answers that a worker takes over
		}
		require.Equal(t, parts, q.open(t, lease).Outbound)
		require.NoError(t, q.Sent(t.Context(), lease, parts[0].ID, "p1", parts[1].ID))
		require.Equal(t, OutboundSending, q.open(t, lease).Outbound[0].State)
		require.NoError(t, q.Sent(t.Context(), lease, parts[1].ID, "p2", ""))
		require.NoError(t, q.Release(t.Context(), lease))
		q.idle(t)

		list, err := q.Conversations(t.Context(), "org_1", ConversationFilter{}, pageAll)
		require.NoError(t, err)
		require.Len(t, list, 1)
		messages, err := q.Messages(t.Context(), "org_1", list[0].ID, pageAll)
		require.NoError(t, err)
		require.Equal(t, []string{"hello", "there", "hi", "again"}, textsOf(messages))
		for _, m := range messages {
			require.Equal(t, turnID, m.TurnID, "each inbound row names the reply that answered it")
		}
		require.Equal(t, []string{"1", "2", "p1", "p2"}, []string{
			messages[0].PlatformMessageID, messages[1].PlatformMessageID, messages[2].PlatformMessageID, messages[3].PlatformMessageID,
		})
		q.healthy(t)

		q.arrive(t, textOf("ann", "3", "and you?"))
		work = q.open(t, q.take(t))
		require.Equal(t, []string{"hello", "there", "hi", "again"}, textsOf(work.History))
		require.Equal(t, []string{"and you?"}, textsOf(work.Waiting))
		require.Equal(t, 1, work.RecentReplies)
	})
}

// Repeated deliveries are merged for good: inside one delivery, later, after the answer, and 50 at once over two
// connections to the database.
func TestRepeatedDeliveryIsOneMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		other := newHandle(t, q)
		errs := make(chan error)
		for i := range 50 {
			queue := []*Queue{q.Queue, other}[i%2]
			go func() {
				errs <- storetest.Insist(func() error {
					return queue.Enqueue(context.Background(), []Arrival{{q.route, []Item{textOf("ann", "1", "hello"), textOf("ann", "1", "hello")}}})
				})
			}()
		}
		for range 50 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM conversations`))
		q.reply(t, "hi", "p1")
		q.arrive(t, textOf("ann", "1", "hello"))
		q.idle(t)
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM outbound_messages`))
	})
}

// newHandle is the queue of another process on the same database.
func newHandle(t testing.TB, q *inboxTest) *Queue {
	t.Helper()
	return New(storetest.OpenAt(t, q.db.Location(), store.Options{Kinds: []store.Kind{Kind}}), testRing(t))
}

// The same id in another channel, or under another customer of it, is another message and the same one.
func TestTaskIDIsChannelAndMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		second := q.channel(t, "org_2", "chn_2")
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{
			{q.route, []Item{textOf("ann", "1", "a"), textOf("bob", "1", "b")}},
			{second, []Item{textOf("ann", "1", "c")}},
		}))
		require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages`))
		require.Equal(t, "1", q.value(t, `SELECT count(*) FROM messages WHERE org_id = 'org_2' AND channel_id = 'chn_2'`))
	})
}

// Two servers that meet the same new customer at the same moment make one conversation. Only the delivery that came second is stored once
// more, not those that share its transaction.
func TestSameNewCustomerOnTwoServers(t *testing.T) {
	t.Parallel()
	q := newInboxTest(t, storetest.OpenAt(t, storetest.Location(t, store.Postgres), store.Options{Kinds: []store.Kind{Kind}}))
	other := newHandle(t, q)
	delivery := func(customer, id string) *enqueueOp {
		op, err := q.seal(context.Background(), []Arrival{{q.route, []Item{textOf(customer, id, "text of "+id)}}})
		require.NoError(t, err)
		return op
	}
	apply := func(db *store.DB, written func(), ops ...store.Op) error {
		return db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
			err := errors.Join(Kind.Apply(ctx, tx, ops)...)
			if err == nil {
				err = tx.Flush(ctx)
			}
			written()
			return err
		})
	}
	made, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	commit := sync.OnceFunc(func() { close(goOn) })
	defer commit()
	first, second, neighbour := delivery("eve", "1"), delivery("eve", "2"), delivery("bob", "3")
	go func() {
		ended <- apply(q.db, func() {
			close(made)
			<-goOn
		}, first)
	}()
	<-made
	go func() { ended <- apply(other.db, func() {}, second, neighbour) }()
	require.Eventually(t, func() bool {
		return q.value(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) != "0"
	}, 30*time.Second, 5*time.Millisecond, "the second did not wait for the first")
	commit()
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.Equal(t, []bool{false, true, false}, []bool{first.again, second.again, neighbour.again})
	require.Equal(t, "2", q.value(t, `SELECT count(*) FROM messages`))
	require.NoError(t, apply(other.db, func() {}, second))
	require.False(t, second.again)
	require.Equal(t, "2", q.value(t, `SELECT count(*) FROM conversations`))
	require.Equal(t, []string{"text of 1", "text of 2"}, textsOf(q.open(t, q.take(t)).Waiting))
	q.healthy(t)
}

// A delivery may hold a thousand messages of several tenants.
func TestLargeDelivery(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		second := q.channel(t, "org_2", "chn_2")
		var items []Item
		for n := range 1000 {
			items = append(items, textOf("customer "+number(n%70), number(n), "text "+number(n)))
		}
		require.NoError(t, q.Enqueue(t.Context(), []Arrival{{q.route, items}, {second, items}}))
		require.Equal(t, "2000", q.value(t, `SELECT count(*) FROM messages`))
		require.Equal(t, "140", q.value(t, `SELECT count(*) FROM conversations`))
		require.Equal(t, "1000", q.value(t, `SELECT count(*) FROM messages WHERE org_id = 'org_2'`))
		q.healthy(t)
	})
}

// Texts are answered in order of the platform's time, then of arrival, also inside one delivery.
func TestOrderOfWaitingTexts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		at := func(ms int64, id string) Item {
			item := textOf("ann", id, id)
			item.SentAt = ms
			return item
		}
		q.arrive(t, at(5000, "z"), at(5000, "y"), at(5000, "x"))
		q.arrive(t, at(3000, "late"), at(9_999_999_999_999, "future"), at(0, "now"), at(5000, "w"))
		require.Equal(t, []string{"late", "z", "y", "x", "w", "future", "now"}, textsOf(q.open(t, q.take(t)).Waiting))
	})
}

func TestIDsAreInOrderOfArrival(t *testing.T) {
	t.Parallel()
	q := &Queue{ring: testRing(t)}
	var items []Item
	for n := range 1000 {
		items = append(items, textOf("ann", number(n), "text"))
	}
	key, err := vault.ParseIDKey(vault.NewIDKey())
	require.NoError(t, err)
	q.ids.Store(&idKeys{keys: []*vault.IDKey{key}})
	op, err := q.seal(context.Background(), []Arrival{{store.Route{}, items}})
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(op.items, func(a, b *arrivedItem) int { return strings.Compare(a.id, b.id) }))
}

// What a customer says, is called and is answered is unreadable in the database.
func TestTextsAreSealed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		item := textOf("ann", "1", "SECRET-text")
		item.CustomerName = "SECRET-name"
		q.arrive(t, item)
		lease := q.take(t)
		turnID, err := q.BeginTurn(t.Context(), lease, "agt_chn_1", idsOf(q.open(t, lease).Waiting), []byte("SECRET-request"))
		require.NoError(t, err)
		require.NoError(t, q.BeginCall(t.Context(), lease, Turn{ID: turnID, Request: []byte("SECRET-shorter")}, nil))
		require.Equal(t, "SECRET-shorter", string(q.open(t, lease).Turn.Request))
		_, err = q.Answer(t.Context(), lease, turnID, []string{"SECRET-answer"}, false)
		require.NoError(t, err)
		_, err = q.SendAsHuman(t.Context(), "usr_1", "org_1", lease.ConversationID, []string{"SECRET-human"})
		require.NoError(t, err)
		for column, table := range map[string]string{"customer_name": "conversations", "body": "messages", "request": "turns"} {
			require.NotContains(t, q.value(t, `SELECT `+column+` FROM `+table), "SECRET", table)
		}
		require.NotContains(t, q.value(t, `SELECT body FROM outbound_messages ORDER BY id LIMIT 1`), "SECRET")
		require.NotContains(t, q.value(t, `SELECT body FROM outbound_messages ORDER BY id DESC LIMIT 1`), "SECRET")
	})
}

// Events show in the conversation and start nothing.
func TestEventsStartNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann", Address: "a", MessageID: "1", Text: "image"})
		q.idle(t)
		q.arrive(t, textOf("ann", "2", "what is this?"))
		work := q.open(t, q.take(t))
		require.Equal(t, []string{"image"}, textsOf(work.History))
		require.Equal(t, KindEvent, work.History[0].Kind)
		require.NotZero(t, work.Conversation.LastCustomerAt)
	})
}

// An item that couldn't be found again is refused if a customer waits for its answer, and otherwise left out.
func TestIncompleteItems(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		for _, item := range []Item{{Kind: platforms.Text, MessageID: "1"}, {Kind: platforms.Text, CustomerRef: "ann"}, {Kind: platforms.Edited + 1}, {Kind: 0}} {
			err := q.Enqueue(t.Context(), []Arrival{{q.route, []Item{textOf("bob", "1", "whole"), item}}})
			require.ErrorIs(t, err, ErrInvalid)
		}
		q.arrive(t, Item{Kind: platforms.Event, CustomerRef: "ann"}, Item{Kind: platforms.HumanEcho, MessageID: "1"}, Item{Kind: platforms.Blocked}, Item{Kind: platforms.FailedDelivery})
		q.arrive(t, Item{Kind: platforms.Blocked, CustomerRef: "nobody"}, Item{Kind: platforms.FailedDelivery, MessageID: "nothing"})
		require.NoError(t, q.Enqueue(t.Context(), nil))
		require.Equal(t, "0", q.value(t, `SELECT count(*) FROM conversations`))
	})
}

// Two operations of one batch see each other's effects, in any order, and none is lost.
func TestOneBatch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		const n = 40
		errs := make(chan error)
		for i := range n {
			go func() {
				errs <- q.Enqueue(context.Background(), []Arrival{{q.route, []Item{textOf("c"+number(i%3), number(i), "text")}}})
			}()
		}
		for range n {
			require.NoError(t, <-errs)
		}
		leases, err := q.Lease(t.Context(), Places{Free: 10}, life)
		require.NoError(t, err)
		require.Len(t, leases, 3)
		waiting := 0
		for _, lease := range leases {
			waiting += len(q.open(t, lease).Waiting)
		}
		require.Equal(t, n, waiting)
	})
}
