package writer

import (
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// leastPatience and mostPatience limit the expected wait of an operation that is queued. Between them the limit is one and a half times the
	// duration of a transaction: then a whole batch and little more waits when a transaction ends, however slow transactions are.
	leastPatience = 2 * time.Second
	mostPatience  = 4 * time.Second

	// longestWait is how old an operation may be when its transaction begins; an urgent one may be twice as old. An ordinary
	// one is refused as soon as it is certain to be older, because transactions became far slower after it
	// was queued.
	longestWait = 5 * time.Second

	// reviewEvery is how often the operations in line are reviewed while a transaction runs.
	reviewEvery = 100 * time.Millisecond

	// usualShare is what remains of a batch for ordinary operations when each of them brings an urgent one, as a hold
	// brings a settlement. Estimates assume no more: holds that go first are followed by all their settlements.
	usualShare = maxBatch / 2
)

// errOverloaded refuses an operation that would have to wait too long.
var errOverloaded = fmt.Errorf("%w: too much waits for the writer", driver.ErrOverloaded)

// recent is a smoothed duration. It follows a longer measurement immediately, and a shorter one by a quarter of the difference, so that one quick
// transaction among slow ones hides nothing.
type recent time.Duration

func (r *recent) add(measured time.Duration) {
	*r = max(recent(measured), *r-(*r-recent(measured))/4)
}

// pace estimates from the last transactions how long an operation that is queued now has to wait. The queue's mutex
// guards it.
type pace struct {
	// began is when the running transaction began, waiting for its turn included; zero between two.
	began time.Time
	took  recent
	// last is how long the last transaction took. took may be longer: it follows slower ones, and counts a lost one twice.
	last time.Duration
	// carried is the number of ordinary operations in a transaction while others stay in line, up to usualShare.
	carried float64
	// cut reports that the next transaction is for the operations that the last one cut off; retries is how many
	// transactions failed operations will have for themselves, in turns with those for the line.
	cut     bool
	retries int
	// least, most and longest are leastPatience, mostPatience and longestWait.
	least, most, longest time.Duration
}

// admits reports whether an operation can be served within the patience, behind the given number of operations and bytes. If nothing runs and
// nothing waits it always can, so that the pace is measured again.
func (p *pace) admits(now time.Time, ahead, bytes int) bool {
	took := p.expected(now)
	first := time.Duration(p.first()) * took
	// A transaction that is late by a time is expected to need that time once more.
	wait := p.leastWait(now, ahead, bytes, p.carried, time.Duration(p.took)) + first + took - time.Duration(p.took)
	// Everything before the next batch makes all operations wait longer, so a whole batch must also be in line behind it.
	patience := took + took/2 + first
	return wait <= max(p.least, min(patience, p.most))
}

// inTime reports whether an operation in line can still begin before it is too old, if all goes well from now on.
func (p *pace) inTime(now, asked time.Time, ahead, bytes int) bool {
	return now.Sub(asked)+p.leastWait(now, ahead, bytes, usualShare, p.last) <= p.longest
}

// leastWait is the least wait of an operation from now on, behind the given number of operations and bytes. It assumes that each transaction
// carries as many operations and lasts as long as before, that a late one ends immediately, and that the next one is for the operations in line.
func (p *pace) leastWait(now time.Time, ahead, bytes int, carried float64, took time.Duration) time.Duration {
	left := time.Duration(0)
	if !p.began.IsZero() {
		running := now.Sub(p.began)
		left, took = max(0, took-running), max(took, running)
	}
	before := max(int(float64(ahead)/max(1, carried)), bytes/maxBatchBytes)
	before += min(p.retries, before)
	return left + time.Duration(before)*took
}

// expected is the expected duration of a transaction: the duration of the last ones, or the time that the running one has needed until now, if
// that is longer.
func (p *pace) expected(now time.Time) time.Duration {
	if p.began.IsZero() {
		return time.Duration(p.took)
	}
	return max(time.Duration(p.took), now.Sub(p.began))
}

// first is how many transactions go before the next one for the operations in line.
func (p *pace) first() int {
	first := min(p.retries, 1)
	if p.cut {
		first++
	}
	return first
}

// add records how long a transaction took. One that failed as a whole counts twice: had it been able to go on, it would have
// taken longer. So a store that hangs gets one operation at a time.
func (p *pace) add(took time.Duration, lost bool) {
	p.last = took
	if lost {
		took *= 2
	}
	p.took.add(took)
}

// carry records how many ordinary operations the last batch had, and whether others stayed in line.
func (p *pace) carry(ordinary int, left bool) {
	if !left {
		ordinary = usualShare
	}
	p.carried += (float64(min(ordinary, usualShare)) - p.carried) / 4
}
