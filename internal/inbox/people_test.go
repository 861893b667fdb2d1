package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// endpoint makes an endpoint of all events.
func (q *inboxTest) endpoint(t testing.TB) {
	t.Helper()
	require.NoError(t, q.db.EventEndpoints.Create(context.Background(), "test", &store.EventEndpoint{
		ID: "evep_1", OrgID: "org_1", URL: "https://example.com", Events: store.EventTypes(), Secret: []byte("sealed"),
	}))
}

// told returns the events so far, oldest first, as "type reason-or-code".
func (q *inboxTest) told(t testing.TB) (found []string) {
	t.Helper()
	rows, err := q.db.EventDeliveries.OfEndpoint(context.Background(), "org_1", "evep_1", store.Page{})
	require.NoError(t, err)
	for _, row := range slices.Backward(rows) {
		var body struct {
			Data map[string]string `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(row.Payload), &body))
		require.Equal(t, q.value(t, `SELECT id FROM conversations`), body.Data["conversationId"])
		require.Equal(t, "chn_1", body.Data["channelId"])
		require.NotContains(t, row.Payload, "hello", "no text leaves by an event")
		found = append(found, string(row.Type)+" "+body.Data["reason"]+body.Data["code"])
	}
	return found
}

// Each change that people should know of is told once, in the transaction that makes it.
func TestEventsOfConversations(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.endpoint(t)
		q.arrive(t, textOf("ann", "1", "hello"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: codes.NoAgent}))
		require.NoError(t, q.Release(ctx, lease))
		require.NoError(t, q.Resume(ctx, turnID, 1))
		lease = q.take(t)
		require.NoError(t, q.Stand(ctx, lease, Standing{TurnID: turnID, Code: codes.NoAgent}))
		require.NoError(t, q.Release(ctx, lease))
		require.Equal(t, []string{"conversation.attention no_agent"}, q.told(t))
		q.arrive(t, textOf("ann", "2", "hello?"))
		require.Len(t, q.told(t), 1, "it is the same attention")

		id := lease.ConversationID
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.Equal(t, []string{"conversation.attention no_agent", "conversation.handover person"}, q.told(t))
		require.NoError(t, q.HandBack(ctx, "usr_1", "org_1", id))
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.Len(t, q.told(t), 3)
	})
}

// A customer waits from the first unanswered text on. Each wait becomes one event, unless the organization has turned these events off.
func TestWaitingCustomersAreTold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		q.endpoint(t)
		waited := func(minutes int64) []string {
			q.exec(t, `UPDATE conversations SET unanswered_since = unanswered_since - $1 WHERE unanswered_since > 0`, minutes*60_000)
			for range 2 {
				more, err := q.db.EventWatch.Waits(ctx)
				require.NoError(t, err)
				require.False(t, more)
			}
			return q.told(t)
		}
		q.arrive(t, textOf("ann", "1", "hello"))
		require.Empty(t, waited(14))
		require.Equal(t, []string{"conversation.waiting "}, waited(2))
		q.reply(t, "good day", "p1")
		require.Equal(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`))
		require.Len(t, waited(60), 1, "it was answered")

		q.arrive(t, textOf("ann", "2", "and?"))
		lease := q.take(t)
		turnID := q.begin(t, lease)
		q.arrive(t, textOf("ann", "3", "hello?"))
		first := q.value(t, `SELECT unanswered_since FROM conversations`)
		parts, err := q.Answer(ctx, lease, turnID, []string{"x", "y"}, true)
		require.NoError(t, err)
		require.Equal(t, first, q.value(t, `SELECT unanswered_since FROM conversations`), "nothing was sent")
		require.NoError(t, q.Sent(ctx, lease, parts[0].ID, "p2", parts[1].ID))
		require.Equal(t, q.value(t, `SELECT received_at FROM messages WHERE platform_message_id = '`+q.messageID("3")+`'`),
			q.value(t, `SELECT unanswered_since FROM conversations`), "the answer was to the text before")
		require.NoError(t, q.Sent(ctx, lease, parts[1].ID, "p3", ""))
		require.NoError(t, q.Release(ctx, lease))

		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", lease.ConversationID))
		require.Len(t, waited(16), 3, "the handover, and the wait for a person")
		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", lease.ConversationID, []string{"here I am"})
		require.NoError(t, err)
		require.NotEqual(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`), "it isn't sent yet")
		q.sendAll(t)
		require.Equal(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`))
		q.arrive(t, textOf("ann", "4", "great"))
		require.NotEqual(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`))
		never := int64(0)
		require.NoError(t, q.db.Organizations.SetEventBounds(ctx, "usr_1", "org_1", store.EventBounds{WaitingMinutes: &never}))
		require.Len(t, waited(600), 3)
		now, err := q.db.Now(ctx)
		require.NoError(t, err)
		q.exec(t, `UPDATE conversations SET last_customer_at = $1`, now-60_000)
		q.arrive(t, unmarked(echoSaying("ann", "e0", "We are away.", now-59_000)))
		require.NotEqual(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`), "an automatic reply is no answer")
		q.arrive(t, echoOf("ann", "e1"))
		require.Equal(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`), "a person has answered from the platform's app")

		q.arrive(t, textOf("ann", "5", "spam"))
		require.NoError(t, q.Block(ctx, "usr_1", "org_1", lease.ConversationID))
		q.arrive(t, textOf("ann", "6", "more spam"))
		require.Equal(t, "0", q.value(t, `SELECT unanswered_since FROM conversations`), "nobody answers a blocked customer")
	})
}

// A conversation waits for people while something in it needs attention, or while a person has it and the customer has no answer; the
// count is that of the list, and of one organization.
func TestWaitingForPeople(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		ctx := t.Context()
		waiting := func() int {
			count, err := q.WaitingForPeople(ctx, "org_1")
			require.NoError(t, err)
			listed, err := q.Conversations(ctx, "org_1", ConversationFilter{Waiting: true}, pageAll)
			require.NoError(t, err)
			require.Len(t, listed, count)
			other, err := q.WaitingForPeople(ctx, "org_2")
			require.NoError(t, err)
			require.Zero(t, other)
			return count
		}
		long := func(before int64) [2]int64 {
			waits, err := q.LongWaits(ctx, before)
			require.NoError(t, err)
			customers := int64(0)
			for _, wait := range waits {
				require.Equal(t, LongWait{"org_1", wait.Name, 1}, wait)
				customers += wait.Customers
			}
			return [2]int64{customers, int64(len(waits))}
		}
		q.arrive(t, textOf("ann", "1", "hello"))
		require.Zero(t, waiting(), "the assistant will answer")
		require.Equal(t, [2]int64{1, 1}, long(math.MaxInt64), "the customer waits for it")
		require.Equal(t, [2]int64{0, 0}, long(1), "but not for long")
		id := q.value(t, `SELECT id FROM conversations`)
		require.NoError(t, q.HandOver(ctx, "usr_1", "org_1", id))
		require.Equal(t, 1, waiting())
		require.Equal(t, [2]int64{1, 1}, long(math.MaxInt64))
		shown, err := q.Conversation(ctx, "org_1", id)
		require.NoError(t, err)
		require.Positive(t, shown.UnansweredSince)
		require.Equal(t, HandoverPerson, shown.HandoverReason)
		_, err = q.SendAsHuman(ctx, "usr_1", "org_1", id, []string{"here I am"})
		require.NoError(t, err)
		require.Equal(t, 1, waiting(), "the platform doesn't have it")
		q.sendAll(t)
		require.Zero(t, waiting())
		require.Equal(t, [2]int64{0, 0}, long(math.MaxInt64))
		q.exec(t, `UPDATE conversations SET attention = $1`, codes.NoAgent)
		require.Equal(t, 1, waiting())
		for i := range MaxWaiting + 5 {
			q.arrive(t, textOf(fmt.Sprint("customer", i), fmt.Sprint("m", i), "hello"))
		}
		q.exec(t, `UPDATE conversations SET attention = $1`, codes.NoAgent)
		count, err := q.WaitingForPeople(ctx, "org_1")
		require.NoError(t, err)
		require.Equal(t, MaxWaiting, count)
	})
}

// TestWaitsInTheQueueAreTold: customers who wait in the queue, because no worker comes to them, are told of like others, each once, also when
// they are due at one time and more than a read's.
func TestWaitsInTheQueueAreTold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.endpoint(t)
		const customers = 450
		q.wait(t, "org_1", customers, 1)
		q.exec(t, `UPDATE conversations SET run_at = 1, unanswered_since = $1`, time.Now().Add(-16*time.Minute).UnixMilli())
		q.exec(t, `UPDATE conversations SET unanswered_since = unanswered_since + 120000 WHERE id = (SELECT max(id) FROM conversations)`)
		for range 2 {
			more, err := q.db.EventWatch.Waits(t.Context())
			require.NoError(t, err)
			require.False(t, more)
			require.Equal(t, strconv.Itoa(customers-1), q.value(t, `SELECT count(*) FROM event_deliveries`))
		}
	})
}
