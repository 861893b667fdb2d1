package tests

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

const (
	// queueWorkers is how many workers a cluster with a queue has.
	queueWorkers = 2
	// queueWriters is how many customers write on each channel at a time, queueMessages how many messages each writes.
	queueWriters, queueMessages = 8, 4
	// queueConcurrency is how many conversations a worker answers at a time. Half of it is one organization's, and three
	// quarters of that half, rounded up, one vendor's: queuePlaces.
	queueConcurrency, queuePlaces = 12, 5
)

// TestNodesShareTheQueue guarantees that it doesn't matter which node takes a message and which worker answers it. Many
// customers write on several channels, each message to another node, some delivered to two nodes at once: each message
// is answered exactly once, and each customer in order, by two workers. When one of them is killed while it answers, the
// other takes over its conversations, and no message is answered twice.
func TestNodesShareTheQueue(t *testing.T) {
	t.Parallel()
	r := prepareQueue(t)
	together(len(r.writers), func(i int) { r.write(t, r.writers[i], queueMessages) })
	r.awaitQuiet(t)
	r.killOneThatAnswers(t)
	together(len(r.writers), func(i int) { r.write(t, r.writers[i], 1) })
	r.awaitQuiet(t)
	r.requireAnswered(t)
	r.requireAgreement(t)
	for _, backend := range r.cluster.balancer.backends {
		require.Positive(t, backend.answered.Load(), "every node took messages")
	}
}

// queueRun is a wreck in which nothing is wrecked but one worker: the same books, for a cluster.
type queueRun struct {
	*wreck
	cluster *cluster

	mu sync.Mutex
	// held is where the model waits while it is not nil.
	held *gate
}

func prepareQueue(t *testing.T) *queueRun {
	t.Helper()
	platform, up := platformfake.Start(t), startUpstream(t)
	d := deploy(t, store.Postgres, up).receiving(t, platform)
	d.Lease, d.Longest, d.HoldTTL, d.Sweep = "3s", "20s", "1s", "200ms"
	d.App += fmt.Sprintf("worker {\nconcurrency %d\n}\n", queueConcurrency)
	r := &queueRun{cluster: startCluster(t, d, clusterNodes, queueWorkers)}
	r.wreck = &wreck{
		connectedProduct: &connectedProduct{product: r.cluster.balanced(), up: up, platform: platform}, workers: r.cluster.workers,
	}
	r.business = r.connectedProduct.business(t, wreckFunds, up.script(r.model), nil)
	for _, kind := range []platforms.Type{bot.Type, social.Messenger, marketa.Type} {
		l := r.business.line(t, kind)
		r.lines = append(r.lines, l)
		for range queueWriters {
			n := len(r.writers)
			customer := &wreckCustomer{sender: l.from(n)}
			r.writers = append(r.writers, &wreckWriter{line: l, number: n, customers: []*wreckCustomer{customer}})
		}
	}
	return r
}

// model answers as a wreck's does, once it is not held.
func (r *queueRun) model(call *upstreamCall) {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held == nil || held.pass(call) {
		r.answer(call)
	}
}

// write lets a customer write n messages, one after the other; every third is delivered to two nodes at once.
func (r *queueRun) write(t *testing.T, w *wreckWriter, n int) {
	c := w.customers[0]
	for range n {
		mark := fmt.Sprintf("wreck-%s-%s-%d.", c.Type, c.Customer, len(c.accepted)+1)
		d := c.says(mark)
		times := 1 + count(len(c.accepted)%3 == 0)
		together(times, func(int) {
			a, err := r.tryDeliver(d)
			if failOn(t, err) && !a.accepted() {
				t.Errorf("not acknowledged: %d %s", a.Status, a.Body)
			}
		})
		c.accepted = append(c.accepted, mark)
	}
}

// killOneThatAnswers holds the model until both workers have taken all the conversations they may, kills one of them, and
// waits until all customers have their answers by the other.
func (r *queueRun) killOneThatAnswers(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	r.held = newGate(t)
	r.mu.Unlock()
	together(len(r.writers), func(i int) { r.write(t, r.writers[i], 1) })
	r.await("both workers to be full", patience, func() bool { return r.held.waiting.Load() == queueWorkers*queuePlaces })
	asked := len(r.business.Model.Calls())
	r.workers[0].kill()
	r.held.open()
	r.awaitQuiet(t)
	again := len(r.business.Model.Calls()) - asked - (len(r.writers) - queueWorkers*queuePlaces)
	require.GreaterOrEqual(t, again, queuePlaces, "what the killed worker had asked is asked again by the other")
	r.requireAnswered(t)
}

// requireAnswered requires that the last reply each customer got answers the last message.
func (r *queueRun) requireAnswered(t *testing.T) {
	t.Helper()
	for _, w := range r.writers {
		c := w.customers[0]
		texts := r.sentTo(c.sender)
		require.NotEmpty(t, texts)
		require.Equal(t, c.accepted[len(c.accepted)-1], wreckMark.FindString(texts[len(texts)-1]), "to %s: %q", c.Customer, texts)
	}
}
