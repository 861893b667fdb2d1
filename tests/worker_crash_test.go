package tests

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

const (
	// wreckWriters is how many customers write on each channel at a time.
	wreckWriters = 5
	// wreckMessages is how many messages each writes before another takes its place: below what the loop guard lets pass.
	wreckMessages = 15
	wreckFunds    = 1_000_000_000
)

// wreckRounds is how often something is killed.
func wreckRounds() int {
	if soak() {
		return 20
	}
	return 5
}

// TestWorkerKills guarantees that power failures of workers and Caddy lose no message and answer none twice. Customers
// write on several channels while two workers answer, a platform misbehaves now and then, and workers and Caddy are
// killed in seeded rounds (SVC_CHAOS_SEED). Then three books are compared: what was delivered and acknowledged, what
// the platform received, and what the API shows. Every acknowledged message names one reply; what the platform has is on
// record as sent, or flagged delivery_unknown; every answer was charged once; doctor is clean.
func TestWorkerKills(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		run := prepareWreck(t, engine, seed)
		var stop atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			together(len(run.writers), func(i int) { run.writers[i].work(run, &stop) })
		}()
		func() {
			defer func() { stop.Store(true); <-ended }() // also when the test ends here
			run.trouble(t)
		}()
		run.awaitQuiet(t)
		run.requireAgreement(t)
	})
}

// wreck is one run and its books.
type wreck struct {
	*connectedProduct
	seed     uint64
	business *business
	lines    []*line
	writers  []*wreckWriter
	workers  []*worker
	asked    atomic.Int64
}

// wreckWriter plays one customer of a line after another.
type wreckWriter struct {
	*line
	number    int
	random    *rand.Rand
	customers []*wreckCustomer
}

// wreckCustomer keeps what was acknowledged.
type wreckCustomer struct {
	sender
	accepted []string
}

func prepareWreck(t *testing.T, engine store.Engine, seed uint64) *wreck {
	t.Helper()
	r := &wreck{seed: seed}
	r.connectedProduct = prepareConnectedWith(t, engine, func(d *deployment) {
		d.Lease, d.Longest, d.HoldTTL, d.Sweep, d.Grace = "2s", "5s", "1s", "200ms", "5s"
	})
	r.business = r.connectedProduct.business(t, wreckFunds, r.up.script(r.answer), nil)
	for i, kind := range []platforms.Type{bot.Type, social.Messenger, marketa.Type} {
		r.lines = append(r.lines, r.business.line(t, kind))
		for range wreckWriters {
			n := len(r.writers)
			r.writers = append(r.writers, &wreckWriter{
				line: r.lines[i], number: n,
				random: rand.New(rand.NewPCG(seed, uint64(n))), //nolint:gosec // the same for the same seed
			})
		}
	}
	r.workers = []*worker{r.startWorker(), r.startWorker()}
	return r
}

// answer names the message that was asked last, and itself: no two answers of the model are the same.
func (r *wreck) answer(call *upstreamCall) {
	n := r.asked.Add(1)
	select {
	case <-time.After(time.Duration(n%7) * 5 * time.Millisecond): // a middle in which something can happen
	case <-call.Gone:
	}
	call.answer(fmt.Sprintf("%s as %d.", replyTo(call), n), usualUsage)
}

// wreckMark names a message: channel type, customer, number.
var wreckMark = regexp.MustCompile(`wreck-([a-z_]+)-([0-9]+)-([0-9]+)\.`)

// wreckFaults are what a platform does to a reply now and then.
var wreckFaults = []platformfake.Fault{
	platformfake.TooMany, platformfake.Temporary, platformfake.DropBefore, platformfake.DropAfter, platformfake.Garbage,
}

// work writes until stop is set.
func (w *wreckWriter) work(r *wreck, stop *atomic.Bool) {
	for !stop.Load() {
		c := &wreckCustomer{sender: w.from(w.number*10_000 + len(w.customers))}
		w.customers = append(w.customers, c)
		for n := 1; n <= wreckMessages && !stop.Load(); n++ {
			mark := fmt.Sprintf("wreck-%s-%s-%d.", c.Type, c.Customer, n)
			if w.random.IntN(8) == 0 {
				r.platform.Script(mark, wreckFaults[w.random.IntN(len(wreckFaults))])
			}
			if !r.insist(c.says(mark), w.random.IntN(10)/8) {
				return
			}
			c.accepted = append(c.accepted, mark)
			<-time.After(time.Duration(w.random.IntN(250)) * time.Millisecond) // customers take their time
		}
	}
}

// insist delivers as a platform does: again until it is acknowledged, and sometimes once more.
func (r *wreck) insist(d delivery, repeats int) (accepted bool) {
	giveUp := time.Now().Add(2 * patience)
	for {
		a, err := r.tryDeliver(d)
		switch {
		case err == nil && a.Broken == nil && a.accepted():
			if repeats--; repeats < 0 {
				return true
			}
		case err == nil && a.Broken == nil && a.Status < 500, time.Now().After(giveUp):
			r.t.Errorf("not acknowledged: %s: %d %s %v", d.Body, a.Status, a.Body, err)
			return false
		default:
			betweenLooks() // Caddy is down
		}
	}
}

// trouble kills workers and Caddy, each time when some replies have come through since the last.
func (r *wreck) trouble(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(r.seed, 1<<32)) //nolint:gosec // the same for the same seed
	for round := range wreckRounds() {
		before := len(r.platform.Sent())
		r.await("replies to come through", 2*patience, func() bool { return len(r.platform.Sent()) >= before+15 })
		<-time.After(time.Duration(random.IntN(60)) * time.Millisecond) // anywhere between two replies
		victim := random.IntN(len(r.workers))
		switch kind := random.IntN(4); {
		case round == 0 || kind == 0:
			r.workers[victim].kill()
			r.workers[victim].start()
		case round == 1 || kind == 1:
			for _, w := range r.workers {
				w.kill()
			}
			for _, w := range r.workers {
				w.start()
			}
		case round == 2 || kind == 2:
			r.kill()
			r.start()
			r.awaitReady()
		default:
			for _, w := range r.workers {
				w.kill()
			}
			r.kill()
			r.start()
			for _, w := range r.workers {
				w.start()
			}
			r.awaitReady()
		}
	}
}

// awaitQuiet waits until nothing is due, under way or held.
func (r *wreck) awaitQuiet(t *testing.T) {
	t.Helper()
	db := r.operator().db.Reader()
	r.await("everything to be answered", 3*patience, func() bool {
		var open int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT
			(SELECT count(*) FROM conversations WHERE run_at IS NOT NULL)
			+ (SELECT count(*) FROM messages WHERE turn_id IS NULL AND NOT handled)
			+ (SELECT count(*) FROM outbound_messages WHERE state IN ('pending', 'sending'))
			+ (SELECT count(*) FROM holds WHERE status = 'open')`).Scan(&open))
		return open == 0
	})
}

// requireAgreement compares the three books.
func (r *wreck) requireAgreement(t *testing.T) {
	t.Helper()
	r.svc(t, "doctor")
	received := map[string]int{} // by text
	for _, sent := range r.platform.Sent() {
		received[sent.Text]++
		require.Equal(t, 1, received[sent.Text], "the platform has %q twice", sent.Text)
	}
	turns := map[string]bool{}
	var found, accepted, unknown, failed int
	for _, l := range r.lines {
		for _, c := range r.business.conversations(t, l) {
			by, to := written(r.business.messages(t, c.ID))
			require.NotEmpty(t, by)
			customer := r.customerOf(t, by[0].Text)
			accepted += len(customer.accepted)
			found++
			states := requireOneReplyEach(t, customer, by, to, received, turns)
			unknown += states["delivery_unknown"]
			failed += states["failed"]
			r.requireOrder(t, customer)
		}
	}
	wrote := 0
	for _, w := range r.writers {
		for _, c := range w.customers {
			wrote += count(len(c.accepted) > 0)
		}
	}
	require.Equal(t, wrote, found, "conversations")
	require.Empty(t, received, "received by the platform, and not on record as sent or unclear")
	require.Zero(t, failed, "every fault here passes")

	r.requireCharges(t, len(turns))
	t.Logf("%d messages, %d replies, %d of them flagged; the model was asked %d times", accepted, len(turns), unknown, r.asked.Load())
}

// requireCharges requires one charge for each answer, and none else: calls that were cut, because a worker was too slow to
// keep its lease, are on record and cost nothing.
func (r *wreck) requireCharges(t *testing.T, answers int) {
	t.Helper()
	charged := 0
	for _, call := range r.business.calls(t) {
		if call.Charged != 0 {
			require.EqualValues(t, usualCharge, call.Charged)
			require.Equal(t, "completed", call.Outcome)
			charged++
		}
	}
	require.Equal(t, answers, charged, "charges")
	wallet := r.business.wallet(t)
	require.Zero(t, wallet.HeldMicros)
	require.EqualValues(t, wreckFunds-answers*usualCharge, wallet.BalanceMicros)
}

// customerOf returns the author of a text.
func (r *wreck) customerOf(t *testing.T, text string) *wreckCustomer {
	t.Helper()
	mark := wreckMark.FindStringSubmatch(text)
	require.NotNil(t, mark, text)
	for _, w := range r.writers {
		for _, c := range w.customers {
			if string(c.Type) == mark[1] && c.Customer == mark[2] {
				return c
			}
		}
	}
	t.Fatalf("nobody wrote %q", text)
	return nil
}

// requireOneReplyEach requires of one conversation that each acknowledged message is there once and names one reply, and
// that each reply is on record as the platform has it. It takes what it finds off the platform's book.
func requireOneReplyEach(t *testing.T, customer *wreckCustomer, by, to []message, received map[string]int, turns map[string]bool) (states map[string]int) {
	t.Helper()
	texts := make([]string, len(by))
	last := map[string]string{} // turn → the text of its last message
	for i, m := range by {
		texts[i] = m.Text
		require.NotEmpty(t, m.TurnID, "%s is not answered", m.Text)
		last[m.TurnID] = m.Text
	}
	// What was stored and not acknowledged, because Caddy died in between, was delivered again and merged.
	require.ElementsMatch(t, customer.accepted, texts, "the messages of %s on %s", customer.Customer, customer.Type)
	states = map[string]int{}
	for _, reply := range to {
		states[reply.State]++
		require.Contains(t, []string{"sent", "delivery_unknown", "failed"}, reply.State)
		asked, ok := last[reply.TurnID]
		require.True(t, ok, "a second reply of one turn, or one to nobody: %+v", reply)
		delete(last, reply.TurnID)
		turns[reply.TurnID] = true
		require.Equal(t, asked, wreckMark.FindString(reply.Text), "the reply answers the turn's last message")
		if reply.State == "sent" {
			require.Equal(t, 1, received[reply.Text], "%q is said to be sent", reply.Text)
		}
		if reply.State != "failed" {
			delete(received, reply.Text)
		}
	}
	require.Empty(t, last, "turns without a reply")
	return states
}

// requireOrder requires that the platform got the replies to a customer in the order of what they answer, each message
// at most once.
func (r *wreck) requireOrder(t *testing.T, customer *wreckCustomer) {
	t.Helper()
	before := 0
	for _, text := range r.sentTo(customer.sender) {
		mark := wreckMark.FindStringSubmatch(text)
		require.NotNil(t, mark, text)
		n, err := strconv.Atoi(mark[3])
		require.NoError(t, err)
		require.Greater(t, n, before, "replies to %s out of order, or twice: %q", customer.Customer, r.sentTo(customer.sender))
		before = n
	}
}
