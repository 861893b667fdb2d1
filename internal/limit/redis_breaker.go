package limit

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// The breaker judges by the last remembered pipelines, of which tooMany may not fail. A ratio survives the one slow
	// pipeline that a fork or a full log of Redis causes; under load ten pipelines pass quickly, and without load few requests
	// wait.
	remembered = 10
	tooMany    = remembered / 2
	// onTrial is the history of a breaker that has just closed: one more failure opens it again.
	onTrial = 1<<(tooMany-1) - 1
)

// breaker keeps requests away from a failing Redis. It opens when half of the last pipelines failed, and is closed when a look
// finds that Redis answers. The zero value is closed. It is safe for concurrent use.
type breaker struct {
	open atomic.Bool
	mu   sync.Mutex
	// outcomes has one bit for each of the last pipelines, the latest lowest: 1 if it failed.
	outcomes uint16
}

// report records the outcome of a pipeline and reports whether that opened the breaker.
func (b *breaker) report(failed bool) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() {
		return false // of a pipeline that began before
	}
	b.outcomes = b.outcomes << 1 & (1<<remembered - 1)
	if failed {
		b.outcomes |= 1
	}
	if bits.OnesCount16(b.outcomes) < tooMany {
		return false
	}
	b.open.Store(true)
	return true
}

// trip opens the breaker, and reports whether it was closed.
func (b *breaker) trip() (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open.Swap(true)
}

// close lets requests through again, on trial.
func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = onTrial
	b.open.Store(false)
}
