package tests

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// startWorkerWith runs the companion binary with other variables than the product's.
func (p *product) startWorkerWith(environment ...string) *worker {
	p.t.Helper()
	w := p.prepareWorker()
	binary, err := workerBinary()
	require.NoError(p.t, err)
	w.run(p.Dir, append(p.environment(), environment...), w.stop, binary, "--config", p.configFile())
	w.awaitLog()
	return w
}

// startLeased is a product whose leases are short, without a worker.
func startLeased(t *testing.T) *connectedProduct {
	t.Helper()
	return prepareConnectedWith(t, store.Postgres, func(d *deployment) {
		d.Lease, d.Longest, d.HoldTTL, d.Sweep, d.Grace = "2s", "10s", "5s", "200ms", "5s"
	})
}

// leased is how many conversations some worker has.
func (c *connectedProduct) leased() (n int) {
	c.t.Helper()
	require.NoError(c.t, c.operator().db.Reader().QueryRowContext(c.t.Context(), `SELECT count(*) FROM conversations
		WHERE lease_until > floor(extract(epoch FROM clock_timestamp()) * 1000)`).Scan(&n))
	return n
}

// heldQueue is what several customers have written, whose answers the model holds back.
type heldQueue struct {
	*connectedProduct
	model     heldModel
	business  *business
	line      *line
	customers []sender
}

const heldCustomers = 6

// holdQueue lets customers write while the model holds every answer back.
func (c *connectedProduct) holdQueue(t *testing.T) *heldQueue {
	t.Helper()
	q := &heldQueue{connectedProduct: c, model: c.hold()}
	q.business = c.business(t, pendingFunds, q.model.script, nil)
	q.line = q.business.line(t, social.Messenger)
	for i := range heldCustomers {
		customer := q.line.from(i + 1)
		q.customers = append(q.customers, customer)
		requireQueued(t, c.deliver(t, customer.says("hello")), 1)
	}
	return q
}

// requireAnsweredOnce waits for the answers, lets every customer write once more, and requires that each has one answer to
// each message and the business one charge for each answer: what was to be sent twice would have been sent by then.
func (q *heldQueue) requireAnsweredOnce(t *testing.T) {
	t.Helper()
	for _, customer := range q.customers {
		require.Equal(t, []string{"Re: hello"}, q.awaitSent(customer, 1))
	}
	for _, customer := range q.customers {
		requireQueued(t, q.deliver(t, customer.says("thanks")), 1)
	}
	for _, customer := range q.customers {
		require.Equal(t, []string{"Re: hello", "Re: thanks"}, q.awaitSent(customer, 2))
	}
	for _, conversation := range q.business.conversations(t, q.line) {
		q.await("the answers to be on record", patience, func() bool {
			by, to := written(q.business.messages(t, conversation.ID))
			return len(by) == 2 && len(to) == 2 && !slices.ContainsFunc(to, func(m message) bool { return m.State != "sent" })
		})
	}
	q.await("what was left behind to expire", 2*patience, func() bool { return q.operator().openHolds(t) == 0 })
	require.EqualValues(t, pendingFunds-2*heldCustomers*usualCharge, q.business.wallet(t).BalanceMicros)
	q.svc(t, "doctor")
}

// eachSilence runs a test for each way in which a worker's PostgreSQL can fall silent. The worker has asked the model for
// every answer, and the model holds them back; during lasts as long as the silence.
func eachSilence(t *testing.T, test func(t *testing.T, q *heldQueue, during func(func()))) {
	t.Helper()
	for name, fault := range map[string]func(*link){"hang": (*link).hang, "partition": (*link).partition} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := startToxiproxy(t)
			c := startLeased(t)
			l := x.before(c.storeAddress(t))
			w := c.startWorkerWith(c.storeBehind(t, l.Address))
			q := c.holdQueue(t)
			c.awaitAsked(q.model.script, heldCustomers)
			test(t, q, func(silence func()) { l.during(fault, silence) })
			q.requireAnsweredOnce(t)
			w.stop()
		})
	}
}

// TestWorkerLosesPostgres guarantees that a worker whose PostgreSQL falls silent while the model answers loses its leases
// and nothing else: when the database is back every conversation is answered, exactly once and for one charge.
func TestWorkerLosesPostgres(t *testing.T) {
	t.Parallel()
	eachSilence(t, func(t *testing.T, q *heldQueue, during func(func())) {
		during(func() {
			q.model.gate.open()
			q.await("the leases to lapse", patience, func() bool { return q.leased() == 0 })
			for _, customer := range q.customers {
				require.Empty(t, q.sentTo(customer), "sent without a record of it")
			}
		})
	})
}

// TestWorkerIsOvertaken guarantees that another worker takes over what one whose PostgreSQL falls silent can't finish, and
// that the first one, when its database is back and it goes on with what it had, sends and charges nothing again.
func TestWorkerIsOvertaken(t *testing.T) {
	t.Parallel()
	eachSilence(t, func(t *testing.T, q *heldQueue, during func(func())) {
		during(func() {
			other := q.startWorker()
			q.model.gate.open()
			for _, customer := range q.customers {
				require.Equal(t, []string{"Re: hello"}, q.awaitSent(customer, 1))
			}
			other.stop() // what is written from now on is the first one's
		})
	})
}

// TestWorkerIsSuspended guarantees the same of a worker that stood still (a suspended machine, a paused container) while the
// model answered and another worker took over: it wakes with answers in its hands and leases that it takes for its own,
// and the database refuses them.
func TestWorkerIsSuspended(t *testing.T) {
	t.Parallel()
	c := startLeased(t)
	suspended := c.startWorkerWith()
	q := c.holdQueue(t)
	c.awaitAsked(q.model.script, heldCustomers)
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = suspended.cmd.Process.Signal(syscall.SIGCONT) }() // also when the test ends here
	other := c.startWorker()
	q.model.gate.open()
	for _, customer := range q.customers {
		require.Equal(t, []string{"Re: hello"}, c.awaitSent(customer, 1))
	}
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGCONT))
	q.requireAnsweredOnce(t)
	other.stop()
	requireQueued(t, c.deliver(t, q.line.from(99).says("and you?")), 1)
	require.Equal(t, []string{"Re: and you?"}, c.awaitSent(q.line.from(99), 1))
	suspended.stop()
}

// TestWorkerForgotten guarantees that a worker whose connections a firewall has forgotten, the one that listens for work
// among them, goes on over new ones.
func TestWorkerForgotten(t *testing.T) {
	t.Parallel()
	c := startLeased(t)
	f := &firewall{}
	f.guard(t, c.storeAddress(t))
	w := c.startWorkerWith(c.storeBehind(t, f.address))
	q := c.holdQueue(t)
	c.awaitAsked(q.model.script, heldCustomers)
	f.forget()
	q.model.gate.open()
	q.requireAnsweredOnce(t)
	f.forget() // while it is idle, too
	late := q.line.from(99)
	requireQueued(t, c.deliver(t, late.says("late")), 1)
	require.Equal(t, []string{"Re: late"}, c.awaitSent(late, 1))
	w.stop()
}

// TestMessagesOnABadNetwork guarantees that no message is lost and none is answered twice while the network between
// both workers, Caddy, and PostgreSQL breaks in one way after another, in an order and for times that SVC_CHAOS_SEED
// decides. Three books are compared as by [TestWorkerKills].
func TestMessagesOnABadNetwork(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	x := startToxiproxy(t)
	r := &wreck{seed: seed}
	var links []*link
	r.connectedProduct = prepareConnectedWith(t, store.Postgres, func(d *deployment) {
		d.Lease, d.Longest, d.HoldTTL, d.Sweep, d.Grace = "2s", "5s", "1s", "200ms", "5s"
		links = append(links, d.storeThrough(x))
	})
	r.business = r.connectedProduct.business(t, wreckFunds, r.up.script(r.answer), nil)
	for _, kind := range []platforms.Type{bot.Type, marketa.Type} {
		r.lines = append(r.lines, r.connect(t, r.business, kind, 3, nil))
	}
	for range 2 {
		links = append(links, x.before(r.storeAddress(t)))
		r.workers = append(r.workers, r.startWorkerWith(r.storeBehind(t, links[len(links)-1].Address)))
	}
	meanwhile(r.write, func() { r.breakNetwork(t, links) })
	r.awaitQuiet(t)
	r.requireAgreement(t)
}

// breakNetwork lets each fault happen to some of the links, each time when some replies have come through since the last.
func (r *wreck) breakNetwork(t *testing.T, links []*link) {
	t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1<<32)) //nolint:gosec // the same for the same seed
	faults := map[string]func(*link){
		"gone": (*link).gone, "hang": (*link).hang, "reset": (*link).reset, "partition": (*link).partition,
		"slow": func(l *link) { l.slow(50 * time.Millisecond) },
	}
	names := []string{"gone", "hang", "reset", "partition", "slow"}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		before := len(r.platform.Sent())
		r.await("replies to come through", 2*patience, func() bool { return len(r.platform.Sent()) >= before+15 })
		ill := links
		if random.IntN(2) == 0 {
			at := random.IntN(len(links))
			ill = links[at : at+1]
		}
		t.Logf("%s of %d links", name, len(ill))
		for _, l := range ill {
			faults[name](l)
			defer l.heal() // also when the test ends here
		}
		<-time.After(time.Duration(500+random.IntN(4000)) * time.Millisecond) // shorter than the deadlines, or longer
		for _, l := range ill {
			l.heal()
		}
	}
}
