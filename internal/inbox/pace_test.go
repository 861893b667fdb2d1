package inbox

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// unsent is a leased conversation of a new customer with parts that a person wrote.
type unsent struct {
	Lease

	parts []string // ids
}

// person lets a person write to a new customer, and leases the conversation.
func (q *inboxTest) person(t *testing.T, customer string, paces Paces, texts ...string) *unsent {
	t.Helper()
	q.arrive(t, textOf(customer, "hello "+customer, "hello"))
	lease := q.take(t)
	messages, err := q.SendAsHuman(t.Context(), "usr_1", "org_1", lease.ConversationID, texts)
	require.NoError(t, err)
	lease.Paces = paces
	return &unsent{Lease: lease, parts: idsOf(messages)}
}

// early returns the refusal of a part that is too early, nil for one that is in time.
func early(t *testing.T, err error) *PacedError {
	t.Helper()
	refused, is := errors.AsType[*PacedError](err)
	if !is {
		require.NoError(t, err)
	}
	return refused
}

// renew renews a lease, as its worker does while it waits.
func (q *inboxTest) renew(t *testing.T, lease Lease) {
	t.Helper()
	_, err := q.Renew(t.Context(), lease, life)
	require.NoError(t, err)
}

// sending renews the lease and marks the next part of the conversation as sending.
func (u *unsent) sending(t *testing.T, q *Queue) *PacedError {
	t.Helper()
	_, err := q.Renew(t.Context(), u.Lease, life)
	require.NoError(t, err)
	return early(t, q.Sending(t.Context(), u.Lease, u.parts[0]))
}

// tenASecond is a channel that takes 2 messages in a row, and 10 a second.
var tenASecond = Paces{Channel: Pace{Every: 100 * time.Millisecond, Burst: 2}}

// Messages of a channel go out as fast as its pace allows: a burst, then one after the other, each at a place that was reserved for it,
// and from a second on by conversations that come back later, in the order in which they were sent away.
func TestPaceOfAChannel(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	var customers []*unsent
	for i := range 20 {
		customers = append(customers, c.person(t, number(i), tenASecond, "hi"))
	}
	require.Nil(t, customers[0].sending(t, c.Queue))
	require.Nil(t, customers[1].sending(t, c.Queue))
	for i := 2; i < 12; i++ {
		wait := customers[i].sending(t, c.Queue)
		require.Equal(t, time.Duration(i-1)*100*time.Millisecond, wait.Wait)
		require.Equal(t, c.ms.Load()+wait.Wait.Milliseconds(), wait.Slot)
		customers[i].Paces.Slot = wait.Slot
	}
	require.Equal(t, &PacedError{Wait: 1200 * time.Millisecond}, customers[12].sending(t, c.Queue))
	require.Equal(t, &PacedError{Wait: 1300 * time.Millisecond}, customers[13].sending(t, c.Queue))
	for i := 2; i < 12; i++ {
		c.pass(100 * time.Millisecond)
		require.Nil(t, customers[i].sending(t, c.Queue))
	}
	c.pass(200 * time.Millisecond) // those who were sent away come back
	require.Nil(t, customers[12].sending(t, c.Queue))
	c.pass(100 * time.Millisecond)
	require.Nil(t, customers[13].sending(t, c.Queue))
	c.pass(time.Hour)
	require.Nil(t, customers[14].sending(t, c.Queue), "after a rest it is a burst again")
	require.Nil(t, customers[15].sending(t, c.Queue))
	require.Equal(t, 100*time.Millisecond, customers[16].sending(t, c.Queue).Wait)
}

// An answer that is made while others wait goes behind them, and so does the next part of an answer; a person's message doesn't.
func TestPaceOfNewAnswers(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	one := Paces{Channel: Pace{Every: 10 * time.Second, Burst: 1}}
	first, waits := c.person(t, "first", one, "1", "2"), c.person(t, "waits", one, "hi")
	require.Nil(t, first.sending(t, c.Queue))
	require.Equal(t, 20*time.Second, waits.sending(t, c.Queue).Wait)
	c.pass(15 * time.Second) // a message would be in time now, but for the one that waits

	c.arrive(t, textOf("new", "m", "hello"))
	lease := c.take(t)
	lease.Paces = one
	parts, err := c.Answer(t.Context(), lease, c.begin(t, lease), []string{"answer"}, true)
	require.Equal(t, 15*time.Second, early(t, err).Wait)
	require.Equal(t, OutboundPending, parts[0].State)
	for range 2 { // a repetition, because the commit wasn't confirmed
		err = c.Sent(t.Context(), first.Lease, first.parts[0], "p1", first.parts[1])
		require.Greater(t, early(t, err).Wait, 20*time.Second)
		require.Equal(t, "sent pending", c.value(t, `SELECT group_concat(state, ' ') FROM (SELECT state FROM outbound_messages
			WHERE conversation_id = $1 ORDER BY id)`, first.ConversationID))
	}
	c.pass(5 * time.Second)
	require.Nil(t, waits.sending(t, c.Queue))
	c.healthy(t)
}

// A repetition of Sent marks the next part if the first try could not, and discards it if a person has taken the conversation since.
func TestSentAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, q *inboxTest) {
		q.arrive(t, textOf("ann", "1", "hello"))
		lease, parts := q.answering(t, "1", "2")
		slow := lease
		slow.Paces.Channel = Pace{Every: time.Minute, Burst: 1}
		require.NoError(t, q.Sent(t.Context(), slow, parts[0].ID, "p1", parts[1].ID))
		require.NoError(t, q.Sent(t.Context(), slow, parts[0].ID, "p1", parts[1].ID), "it is marked")
		require.NoError(t, q.Unmark(t.Context(), lease, ""))
		require.NotNil(t, early(t, q.Sent(t.Context(), slow, parts[0].ID, "p1", parts[1].ID)))
		require.NoError(t, q.HandOver(t.Context(), "usr_1", "org_1", lease.ConversationID))
		require.ErrorIs(t, q.Sent(t.Context(), lease, parts[0].ID, "p1", parts[1].ID), ErrHandedOver)
		q.healthy(t)
	})
}

// A customer is written to no faster than the platform allows, and the others don't wait for that.
func TestPaceOfACustomer(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	pair := Paces{Customer: Pace{Every: 6 * time.Second, Burst: 2}}
	ann, bob := c.person(t, "ann", pair, "1", "2", "3"), c.person(t, "bob", pair, "hi")
	require.Nil(t, ann.sending(t, c.Queue))
	require.NoError(t, c.Sent(t.Context(), ann.Lease, ann.parts[0], "p1", ann.parts[1]))
	require.Equal(t, &PacedError{Wait: 6 * time.Second}, early(t, c.Sent(t.Context(), ann.Lease, ann.parts[1], "p2", ann.parts[2])))
	require.Nil(t, bob.sending(t, c.Queue))
	c.pass(6 * time.Second)
	ann.parts = ann.parts[2:]
	require.Nil(t, ann.sending(t, c.Queue))
	c.healthy(t)
}

// What a platform asks for holds for all that its channel sends, and afterwards there is no burst; places that were reserved before are
// void. A pause for one customer holds for nobody else.
func TestHolds(t *testing.T) {
	t.Parallel()
	for name, paces := range map[string]Paces{"with a pace": tenASecond, "without": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClocked(t)
			var customers []*unsent
			for i := range 8 {
				customers = append(customers, c.person(t, number(i), paces, "hi"))
			}
			refused, alone := customers[0], customers[1]
			require.Nil(t, refused.sending(t, c.Queue))
			require.Nil(t, alone.sending(t, c.Queue))
			if paces.Channel.Every > 0 {
				customers[2].Paces.Slot = customers[2].sending(t, c.Queue).Slot
			}
			fail := func(u *unsent, o SendFailure) {
				require.NoError(t, c.SendFailed(t.Context(), u.Lease, u.parts[0], OutboundPending, "", o))
			}
			fail(refused, SendFailure{HoldChannel: time.Hour})
			fail(alone, SendFailure{HoldCustomer: 2 * time.Hour})
			fail(refused, SendFailure{HoldChannel: time.Second}) // of a message that was under way: the longer pause counts
			c.pass(time.Second)
			last := time.Hour - time.Second
			for _, u := range customers[2:] {
				wait := u.sending(t, c.Queue)
				require.Greater(t, wait.Wait, last, "one after the other")
				require.Less(t, wait.Wait, time.Hour+time.Second)
				require.Zero(t, wait.Slot)
				last, u.Paces.Slot = wait.Wait, 0
			}
			require.Equal(t, 2*time.Hour-time.Second, alone.sending(t, c.Queue).Wait)
			c.pass(time.Hour - time.Second)
			require.Nil(t, refused.sending(t, c.Queue))
			if paces.Channel.Every > 0 {
				require.Equal(t, 100*time.Millisecond, customers[2].sending(t, c.Queue).Wait, "no burst")
			}
			c.pass(time.Hour)
			require.Nil(t, alone.sending(t, c.Queue))
		})
	}
}

// Two processes share the pace of a channel and the pause that a platform has asked one of them for.
func TestPaceOfTwoProcesses(t *testing.T) {
	t.Parallel()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			at := storetest.Location(t, engine)
			q := newInboxTest(t, storetest.OpenAt(t, at, store.Options{Kinds: []store.Kind{Kind}}))
			other := New(storetest.OpenAt(t, at, store.Options{Kinds: []store.Kind{Kind}}), testRing(t))
			paces := Paces{Channel: Pace{Every: time.Hour, Burst: 1}}
			ann, bob := q.person(t, "ann", paces, "hi"), q.person(t, "bob", paces, "hi")
			require.Nil(t, ann.sending(t, q.Queue))
			require.Greater(t, bob.sending(t, other).Wait, time.Hour)
			require.NoError(t, other.SendFailed(t.Context(), ann.Lease, ann.parts[0], OutboundPending, "", SendFailure{HoldChannel: 10 * time.Hour}))
			require.Greater(t, ann.sending(t, q.Queue).Wait, 9*time.Hour)
			q.healthy(t)

			require.NoError(t, q.DeleteConversation(t.Context(), "usr_1", "org_1", ann.ConversationID))
			require.NoError(t, q.db.Channels.Delete(t.Context(), "test", "org_1", "chn_1"))
			require.Equal(t, "0", q.value(t, `SELECT count(*) FROM channel_paces`))
		})
	}
}
