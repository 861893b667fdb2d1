package worker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// TestOneOrganizationDoesNotStarveAnother: a thousand conversations of one whose model never answers.
func TestOneOrganizationDoesNotStarveAnother(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		const org, channel, agent = "org_small", "chn_small", "agt_small"
		h.organization(t, org, credits)
		h.agent(t, org, agent)
		h.channel(t, org, channel, botType, agent)
		h.vendor.reply = func(ctx context.Context, _ int, asked []string) (string, error) {
			if strings.Contains(asked[len(asked)-1], "flood") {
				<-ctx.Done()
				return "", context.Cause(ctx)
			}
			return echo(asked), nil
		}
		var flood []inbox.Item
		for i := range 1000 {
			id := fmt.Sprint("flooder", i)
			flood = append(flood, inbox.Item{Kind: platforms.Text, CustomerRef: id, Address: id, MessageID: id, Text: "flood"})
		}
		h.deliver(t, bot, flood...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.worker(func(c *Config) { c.Concurrency = 4 }).Run(ctx, 0) }()
		h.say(t, channel, "lan", "hello")
		h.say(t, channel, "minh", "good morning")
		h.platform.WaitSent(t, 2)
		cancel()
		require.NoError(t, <-done)
		require.ElementsMatch(t, []string{"You said: hello", "You said: good morning"}, h.texts())
		h.leaseless(t)
	})
}

// TestGracefulStop: the model's answer that comes within the grace is sent, and no new turn is begun.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	h.vendor.reply = func(_ context.Context, n int, said []string) (string, error) {
		if n == 1 {
			close(asked)
			<-answer
		}
		return echo(said), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.worker().Run(ctx, patience) }()
	h.say(t, bot, "lan", "hello")
	<-asked
	h.say(t, bot, "lan", "still there?")
	cancel()
	close(answer)
	require.NoError(t, <-done)
	require.Equal(t, []string{"You said: hello"}, h.texts())
	require.Len(t, h.vendor.calls(), 1)
	h.leaseless(t)

	h.drain(t, h.worker())
	require.Equal(t, []string{"You said: hello", "You said: still there?"}, h.texts(), "another worker goes on at once")
	require.EqualValues(t, 2*answerCost, h.spent(t, acme))
}

// TestStopAfterTheGrace: a call that doesn't end is cancelled, costs nothing, and another worker asks again at once.
func TestStopAfterTheGrace(t *testing.T) {
	t.Parallel()
	h := open(t)
	asked := make(chan struct{})
	h.vendor.reply = func(ctx context.Context, n int, said []string) (string, error) {
		if n == 1 {
			close(asked)
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return echo(said), nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.worker().Run(ctx, 0) }()
	h.say(t, bot, "lan", "hello")
	<-asked
	cancel()
	require.NoError(t, <-done)
	h.leaseless(t)
	require.Zero(t, h.spent(t, acme))
	require.Equal(t, 1, h.drain(t, h.worker()))
	require.Equal(t, []string{"You said: hello"}, h.texts())
	require.EqualValues(t, answerCost, h.spent(t, acme))
}

// TestTopUpsAreSeen: the loop that Run owns takes turns up again.
func TestTopUpsAreSeen(t *testing.T) {
	t.Parallel()
	const org, channel, agent = "org_poor", "chn_poor", "agt_poor"
	h := open(t)
	h.organization(t, org, 0)
	h.agent(t, org, agent)
	h.channel(t, org, channel, botType, agent)
	h.say(t, channel, "lan", "hello")
	h.drain(t, h.worker())
	h.credit(t, org, credits)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.worker().Run(ctx, time.Second) }()
	h.platform.WaitSent(t, 1)
	cancel()
	require.NoError(t, <-done)
	require.EqualValues(t, answerCost, h.spent(t, org))
}

// TestAStoppingWorkerAsksNoModel: a conversation that was leased at the last moment goes to another worker, and what was
// answered before is sent.
func TestAStoppingWorkerAsksNoModel(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "minh", "hi")
	h.drain(t, h.worker())
	require.NoError(t, h.queue.HandOver(t.Context(), "test", acme, h.conversation(t, acme, "minh").ID))
	_, err := h.queue.SendAsHuman(t.Context(), "test", acme, h.conversation(t, acme, "minh").ID, []string{"from a human"})
	require.NoError(t, err)
	h.say(t, bot, "lan", "hello")
	leases, err := h.queue.Lease(t.Context(), inbox.Places{Free: 8}, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 2)
	stop := make(chan struct{})
	close(stop)
	for _, lease := range leases {
		h.worker().converse(t.Context(), lease, stop)
	}
	require.Equal(t, []string{"You said: hi", "from a human"}, h.texts())
	require.Len(t, h.vendor.calls(), 1)
	h.leaseless(t)
	require.Equal(t, 1, h.drain(t, h.worker()))
	require.Equal(t, "You said: hello", h.texts()[2])
}

// lastWrite holds the write that ends a lease until the next conversation has been leased.
type lastWrite struct {
	*inbox.Queue

	leased chan inbox.Lease
	next   chan struct{} // closed with the second lease
	late   atomic.Bool   // it wasn't before the write
}

func (q *lastWrite) Lease(ctx context.Context, free inbox.Places, life time.Duration) ([]inbox.Lease, error) {
	leases, err := q.Queue.Lease(ctx, free, life)
	for _, lease := range leases {
		q.leased <- lease
		if lease.CustomerRef == "minh" {
			close(q.next)
		}
	}
	return leases, err
}

func (q *lastWrite) SentAndRelease(ctx context.Context, lease inbox.Lease, outboundID, platformMessageID string) error {
	if lease.CustomerRef == "lan" {
		select {
		case <-q.next:
		case <-time.After(patience):
			q.late.Store(true)
		}
	}
	return q.Queue.SentAndRelease(ctx, lease, outboundID, platformMessageID)
}

// TestTheLastWriteGivesThePlaceBack: the next conversation is leased while it is written that the last message was sent, so that both
// may share a commit.
func TestTheLastWriteGivesThePlaceBack(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.say(t, bot, "lan", "hello")
	q := &lastWrite{Queue: h.queue, leased: make(chan inbox.Lease, 2), next: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- h.worker(func(c *Config) { c.Queue, c.Concurrency = q, 1 }).Run(ctx, patience)
	}()
	require.Equal(t, "lan", (<-q.leased).CustomerRef)
	h.say(t, bot, "minh", "good morning")
	require.Equal(t, "minh", (<-q.leased).CustomerRef)
	h.platform.WaitSent(t, 2)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, []string{"You said: hello", "You said: good morning"}, h.texts())
	require.False(t, q.late.Load())
	h.leaseless(t)
}

// TestEndingConversationsAreBounded: as many as there are places may have given theirs back.
func TestEndingConversationsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDispatcher(t.Context(), New(Config{Queue: newFakeQueue(), Concurrency: 2}), nil)
	d.taken, d.places[acme] = 2, 2
	require.True(t, d.freeEarly(acme))
	require.True(t, d.freeEarly(acme))
	free, _ := d.room()
	require.Equal(t, inbox.Places{Free: 2, Most: 1, Taken: map[string]int{}}, free)
	d.taken, d.places[acme] = 2, 2
	require.False(t, d.freeEarly(acme))
	d.ended(acme, true)
	require.True(t, d.freeEarly(acme))
	d.ended(acme, false)
	free, _ = d.room()
	require.Equal(t, 2, free.Free)
}
