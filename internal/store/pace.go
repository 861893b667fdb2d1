package store

import (
	"fmt"
	"time"
)

const (
	// leastPatience and mostPatience bound how long an operation may have to wait for its transaction when it comes to
	// the line. In between it is one and a half times the time of a transaction: then a whole batch stands in line when the
	// one before it ends, however slow they are, and little more.
	leastPatience = 2 * time.Second
	mostPatience  = 4 * time.Second

	// longestWait is how old an operation may be when its transaction begins; an urgent one may be twice as old. It ends
	// those whose wait turned out far longer than it looked when they came, because the database stopped answering.
	longestWait = 5 * time.Second

	// usualShare is what remains of a batch for ordinary operations when each of them brings an urgent one, as a hold
	// brings a settlement. More is not counted on: holds that go first are followed by all their settlements.
	usualShare = maxBatch / 2
)

// errOverloaded refuses an operation that would have to wait too long.
var errOverloaded = fmt.Errorf("%w: too much waits for the writer", ErrBusy)

// recent is a time that is measured again and again: it follows a longer one at once, and a shorter one by a quarter of
// the difference, so that one quick transaction among slow ones hides nothing.
type recent time.Duration

func (r *recent) add(measured time.Duration) {
	*r = max(recent(measured), *r-(*r-recent(measured))/4)
}

// pace is what the last transactions say about how long an operation that comes now has to wait. The queue's mutex
// guards it.
type pace struct {
	// began is when the transaction that runs was begun, waiting for its turn included; zero between two.
	began time.Time
	took  recent
	// carried is how many ordinary operations a transaction takes while others stay in line, usualShare at most.
	carried float64
	// cut says that the next transaction is for what the last one cut off, and retries how many what failed before will
	// have for itself, in turns with those for what is in line.
	cut     bool
	retries int
	// least and most are leastPatience and mostPatience.
	least, most time.Duration
}

func newPace() pace {
	return pace{carried: usualShare, least: leastPatience, most: mostPatience}
}

// admits reports whether an operation with so many others and bytes before it can be served within the patience. When
// nothing runs and nothing waits it always can, so that the pace is measured again.
func (p *pace) admits(now time.Time, ahead, bytes int) bool {
	took, left := time.Duration(p.took), time.Duration(0)
	if !p.began.IsZero() {
		// One that is late by a time is expected to need that time once more.
		running := now.Sub(p.began)
		left = max(took-running, running-took)
		took = max(took, running)
	}
	before := max(int(float64(ahead)/max(1, p.carried)), bytes/maxBatchBytes)
	before += min(p.retries, before)
	// What goes before the next batch lets everything wait longer: there must be a whole batch in line after it, too.
	first := min(p.retries, 1)
	if p.cut {
		first++
	}
	patience := took + took/2 + time.Duration(first)*took
	return left+time.Duration(first+before)*took <= max(p.least, min(patience, p.most))
}

// carry says how many ordinary operations the last batch had, and whether others stayed in line.
func (p *pace) carry(ordinary int, left bool) {
	if !left {
		ordinary = usualShare
	}
	p.carried += (float64(min(ordinary, usualShare)) - p.carried) / 4
}
