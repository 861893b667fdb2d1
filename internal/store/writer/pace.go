package writer

import (
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

const (
	// leastPatience and mostPatience bound how long an operation may have to wait for its transaction when it is queued.
	// In between it is one and a half times the time of a transaction: then a whole batch stands in line when the
	// one before it ends, however slow they are, and little more.
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

// recent is a smoothed duration: it follows a longer measurement at once, and a shorter one by a quarter of
// the difference, so that one quick transaction among slow ones hides nothing.
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
	// carried is how many ordinary operations a transaction takes while others stay in line, usualShare at most.
	carried float64
	// cut reports that the next transaction is for the operations that the last one cut off; retries is how many
	// transactions failed operations will have for themselves, in turns with those for the line.
	cut     bool
	retries int
	// least, most and longest are leastPatience, mostPatience and longestWait.
	least, most, longest time.Duration
}

func newPace() pace {
	return pace{carried: usualShare, least: leastPatience, most: mostPatience, longest: longestWait}
}

// admits reports whether an operation with so many others and bytes before it can be served within the patience. When
// nothing runs and nothing waits it always can, so that the pace is measured again.
func (p *pace) admits(now time.Time, ahead, bytes int) bool {
	took := p.expected(now)
	first := time.Duration(p.first()) * took
	// A transaction that is late by a time is expected to need that time once more.
	wait := p.leastWait(now, ahead, bytes, p.carried, time.Duration(p.took)) + first + took - time.Duration(p.took)
	// What goes before the next batch lets everything wait longer: there must be a whole batch in line after it, too.
	patience := took + took/2 + first
	return wait <= max(p.least, min(patience, p.most))
}

// inTime reports whether an operation in line can still begin before it is too old, if all goes well from now on.
func (p *pace) inTime(now, asked time.Time, ahead, bytes int) bool {
	return now.Sub(asked)+p.leastWait(now, ahead, bytes, usualShare, p.last) <= p.longest
}

// leastWait is how long an operation with so many others and bytes before it waits from now on, when each transaction
// carries so many and takes so long, one that is late ends at once, and the next one is for the operations in line.
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

// expected is how long a transaction takes: as long as the last ones, or as the one that runs has taken until now.
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
