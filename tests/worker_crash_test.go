package tests

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
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
	wreckWriters = 3
	// wreckMessages is how many messages each writes before another takes its place: below what the loop guard lets pass.
	wreckMessages = 15
	wreckFunds    = 1_000_000_000
)

// wreckRounds is how often something is killed.
func wreckRounds() int {
	if soak() {
		return 20
	}
	return 3
}

// TestWorkerKills guarantees that power failures of workers and Caddy lose no message and no file, and answer nothing twice. Customers
// write and send pictures on several channels while two workers answer, people send drafts and templates and erase customers, a platform
// misbehaves now and then, and workers and Caddy are killed in seeded rounds (SVC_CHAOS_SEED). Then three books are compared: what was
// delivered and acknowledged, what the platform received, and what the API shows. Every acknowledged message names one reply; every
// picture is stored as the platform has it, or says why not, and doesn't meet silence; what the platform has is on record as sent, or flagged delivery_unknown;
// drafts went out only when a person sent them; nothing of an erased customer is left; every answer was charged once; doctor is clean.
func TestWorkerKills(t *testing.T) {
	t.Parallel()
	seed := chaosSeed(t)
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		run := prepareWreck(t, engine, seed)
		meanwhile(func(stop *atomic.Bool) { run.people.decideDrafts(run, stop) }, func() {
			meanwhile(run.write, func() { run.trouble(t) })
			run.awaitQuiet(t)
		})
		run.requireAgreement(t)
	})
}

// meanwhile runs work until f has returned, also when the test ends in f.
func meanwhile(work func(stop *atomic.Bool), f func()) {
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work(&stop)
	}()
	defer func() { stop.Store(true); <-ended }()
	f()
}

// wreck is one run and its books.
type wreck struct {
	*connectedProduct
	seed     uint64
	business *business
	// lines are those of business, whose customers only the assistant answers.
	lines   []*line
	people  *wreckPeople // nil: nobody but the assistant answers
	writers []*wreckWriter
	workers []*worker
	asked   atomic.Int64
}

// wreckWriter plays one customer of a line after another.
type wreckWriter struct {
	*line
	number    int
	random    *rand.Rand
	customers []*wreckCustomer
	// people, unless nil, write to the customers and erase them.
	people *wreckPeople
}

// wreckCustomer keeps what was acknowledged.
type wreckCustomer struct {
	sender
	marks    int
	accepted []string // texts
	pictures []wreckPicture
	// templates are the texts of templates that people sent to the customer.
	templates []string
	// forgotten are the marks from before the customer was erased, and repeated a delivery of that time.
	forgotten []string
	repeated  delivery
}

// wreckPicture is a file of a customer.
type wreckPicture struct {
	content []byte
	// broken: the platform serves something else than a picture.
	broken bool
}

func prepareWreck(t *testing.T, engine store.Engine, seed uint64) *wreck {
	t.Helper()
	r := &wreck{seed: seed}
	r.connectedProduct = prepareConnectedWith(t, engine, func(d *deployment) {
		d.Lease, d.Longest, d.HoldTTL, d.Sweep, d.Grace = "2s", "5s", "1s", "200ms", "5s"
	})
	r.business = r.connectedProduct.business(t, wreckFunds, r.up.script(r.answer), nil)
	for _, kind := range []platforms.Type{bot.Type, social.Messenger, marketa.Type} {
		r.lines = append(r.lines, r.connect(t, r.business, kind, wreckWriters, nil))
	}
	r.people = r.preparePeople(t)
	r.workers = []*worker{r.startWorker(), r.startWorker()}
	return r
}

// connect makes a line on which so many customers write at a time.
func (r *wreck) connect(t *testing.T, b *business, kind platforms.Type, writers int, people *wreckPeople) *line {
	t.Helper()
	l := b.line(t, kind)
	for range writers {
		n := len(r.writers)
		r.writers = append(r.writers, &wreckWriter{
			line: l, number: n, people: people,
			random: rand.New(rand.NewPCG(r.seed, uint64(n))), //nolint:gosec // the same for the same seed
		})
	}
	return l
}

// write lets all customers write until stop is set.
func (r *wreck) write(stop *atomic.Bool) {
	together(len(r.writers), func(i int) { r.writers[i].work(r, stop) })
}

// answer names the text that was asked last, and itself: no two answers of the model are the same.
func (r *wreck) answer(call *upstreamCall) {
	n := r.asked.Add(1)
	select {
	case <-time.After(time.Duration(n%7) * 5 * time.Millisecond): // a middle in which something can happen
	case <-call.Gone:
	}
	asked := ""
	for _, m := range call.Body.Messages {
		for _, mark := range wreckMark.FindAllString(m.Content, -1) {
			asked = mark
		}
	}
	call.answer(fmt.Sprintf("Re: %s as %d.", asked, n), usualUsage)
}

// wreckMark names a message: channel type, customer, number.
var wreckMark = regexp.MustCompile(`wreck-([a-z_]+)-([0-9]+)-([0-9]+)\.`)

// mark names the customer's next message.
func (c *wreckCustomer) mark() string {
	c.marks++
	return fmt.Sprintf("wreck-%s-%s-%d.", c.Type, c.Customer, c.marks)
}

// wreckFaults are what a platform does to a message now and then, fileFaults what it does to a download.
var (
	wreckFaults = []platformfake.Fault{
		platformfake.TooMany, platformfake.Temporary, platformfake.DropBefore, platformfake.DropAfter, platformfake.Garbage,
	}
	fileFaults = []platformfake.Fault{platformfake.Temporary, platformfake.DropBefore, platformfake.Truncated}
)

// work plays customers until stop is set.
func (w *wreckWriter) work(r *wreck, stop *atomic.Bool) {
	for !stop.Load() {
		c := &wreckCustomer{sender: w.from(w.number*10_000 + len(w.customers))}
		w.customers = append(w.customers, c)
		for n := 0; n < wreckMessages && !stop.Load(); n++ {
			if !w.act(r, c) {
				return
			}
			<-time.After(time.Duration(w.random.IntN(250)) * time.Millisecond) // customers take their time
		}
	}
}

// act does the next thing with a customer, and reports whether it was acknowledged.
func (w *wreckWriter) act(r *wreck, c *wreckCustomer) bool {
	switch draw := w.random.IntN(20); {
	case draw < 2:
		return w.sendPicture(r, c)
	case draw < 5 && w.people != nil && w.line == w.people.templates:
		return w.sendTemplate(r, c)
	case draw == 5 && w.people != nil:
		return w.erase(r, c)
	}
	mark := c.mark()
	return w.text(r, c, mark, c.says(mark))
}

// text delivers a text of the customer, whose reply may meet a fault.
func (w *wreckWriter) text(r *wreck, c *wreckCustomer, mark string, d delivery) bool {
	w.spoil(r, mark, wreckFaults)
	if !r.insist(d, 1, w.random.IntN(10)/8) {
		return false
	}
	c.accepted, c.repeated = append(c.accepted, mark), d
	return true
}

// spoil lets a request that contains match meet a fault now and then.
func (w *wreckWriter) spoil(r *wreck, match string, faults []platformfake.Fault) {
	if w.random.IntN(8) == 0 {
		r.platform.Script(match, faults[w.random.IntN(len(faults))])
	}
}

// sendPicture delivers a picture of the customer, of the chat app with words half of the time.
func (w *wreckWriter) sendPicture(r *wreck, c *wreckCustomer) bool {
	mark := c.mark()
	picture := wreckPicture{content: append(pictureOf(90+w.random.IntN(2)*300_000), mark...), broken: w.random.IntN(6) == 0}
	if picture.broken {
		picture.content = []byte("<html>" + mark)
	}
	id := r.platform.PutFile(picture.content)
	w.spoil(r, platformfake.Download+id, fileFaults)
	c.pictures = append(c.pictures, picture)
	d := c.picture(r.t, id, r.platform.Link(id))
	if c.Type == social.ChatApp && w.random.IntN(2) == 0 {
		return w.text(r, c, mark, c.sign(strings.Replace(string(d.Body), `"mime_type"`, `"caption":`+quoted(mark)+`,"mime_type"`, 1)))
	}
	return r.insist(d, 0, w.random.IntN(10)/8)
}

// insist delivers as a platform does: again until it is acknowledged with so many messages, and sometimes once more.
func (r *wreck) insist(d delivery, queued, repeats int) (acknowledged bool) {
	giveUp := time.Now().Add(2 * patience)
	for {
		a, err := r.tryDeliver(d)
		switch {
		case err == nil && a.Broken == nil && a.acknowledges(queued):
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

// awaitQuiet waits until nothing is due, under way, held, to be fetched or decided.
func (r *wreck) awaitQuiet(t *testing.T) {
	t.Helper()
	db := r.operator().db.Reader()
	r.await("everything to be answered", 3*patience, func() bool {
		var open int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT
			(SELECT count(*) FROM conversations WHERE run_at IS NOT NULL)
			+ (SELECT count(*) FROM messages WHERE turn_id IS NULL AND NOT handled)
			+ (SELECT count(*) FROM outbound_messages WHERE state IN ('pending', 'sending'))
			+ (SELECT count(*) FROM media WHERE state = 'waiting' OR message_id IS NULL)
			+ (SELECT count(*) FROM turns WHERE state = 'needs_attention' AND code <> 'media_message')
			+ (SELECT count(*) FROM holds) + (SELECT count(*) FROM running_keys)`).Scan(&open))
		return open == 0
	})
}
