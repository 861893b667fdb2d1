package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

const (
	// maxLate limits the calls that wait for a late settlement. Further calls are left to the sweeper, which releases their hold
	// and key when they expire.
	maxLate = 4096
	// maxLateBytes limits the kept answers of waiting calls, each of which may be 1 MiB. A call with an answer above the limit is voided instead:
	// it costs nothing, and its key is free for another try as soon as the store is back.
	maxLateBytes = 64 << 20
	// lateAtOnce is the number of calls that are tried at a time: enough to share the writer's transactions.
	lateAtOnce = 64
	// firstLatePause and longestLatePause limit the pause after a round without success, with a jitter of a quarter. Because a try
	// may take 5 s, all calls are decided within 10 s after the store works again.
	firstLatePause   = 250 * time.Millisecond
	longestLatePause = 2 * time.Second
)

// lateCall is a call without a confirmed end.
type lateCall struct {
	settlement billing.Settlement
	// until is the time when the call's hold and key expire.
	until time.Time
	leave func()
}

// lateCalls settles calls after their settlements didn't commit while their clients waited. It repeats them until they succeed, the hold expires,
// or the process can't wait. One goroutine does so for all calls, and each counts as running until it ends here.
type lateCalls struct {
	// settle tries one call once, until ctx ends. It may be repeated after an error.
	settle func(ctx context.Context, l *lateCall) error
	logger *slog.Logger

	mu      sync.Mutex
	waiting []*lateCall
	// answers is the size in bytes of the kept answers of all calls that wait or are being tried.
	answers int
	running bool // whether the goroutine runs
}

// add adds a call, which leaves when its end is committed or given up. cut ends when the process can't wait.
func (q *lateCalls) add(cut context.Context, l *lateCall) {
	size := len(l.settlement.Response)
	q.mu.Lock()
	full := len(q.waiting) >= maxLate
	large := !full && q.answers+size > maxLateBytes
	if large {
		l.settlement, size = voided(l.settlement), 0
	}
	if !full {
		q.waiting = append(q.waiting, l)
		q.answers += size
	}
	start := !full && !q.running
	q.running = q.running || start
	q.mu.Unlock()
	switch {
	case full:
		q.giveUp(l, errors.New("too many calls wait for the store"))
	case large:
		q.logger.Error("the answers of calls that wait for the store take too much memory; a call is not charged", "call", l.settlement.Call.ID)
	}
	if start {
		go q.run(cut)
	}
}

// run tries round after round until no call waits.
func (q *lateCalls) run(cut context.Context) {
	pause := firstLatePause
	for {
		round := q.take(cut)
		if len(round) == 0 {
			return
		}
		if q.try(cut, round) {
			pause = firstLatePause
			continue
		}
		_ = repeat.Pause(cut, repeat.Around(pause))
		pause = min(2*pause, longestLatePause)
	}
}

// take returns the calls of the next round. If there are none, the goroutine must end.
func (q *lateCalls) take(cut context.Context) []*lateCall {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.waiting = slices.DeleteFunc(q.waiting, func(l *lateCall) bool {
		over := cut.Err() != nil || !now.Before(l.until)
		if over {
			q.answers -= len(l.settlement.Response)
			q.giveUp(l, errors.New("its time is over"))
		}
		return over
	})
	n := min(len(q.waiting), lateAtOnce)
	round := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.running = n > 0
	return round
}

// try settles a round and puts failed calls back, behind calls that were not tried yet. It reports whether another round may follow immediately,
// because the store works.
func (q *lateCalls) try(cut context.Context, round []*lateCall) (works bool) {
	ctx, cancel := context.WithTimeoutCause(cut, settleWait, errStoreSlow)
	defer cancel()
	errs := make([]error, len(round))
	var tries sync.WaitGroup
	for i, l := range round {
		tries.Go(func() { errs[i] = q.settle(ctx, l) })
	}
	tries.Wait()
	var failed []*lateCall
	var last error
	ended := 0
	for i, l := range round {
		if errs[i] == nil {
			ended += len(l.settlement.Response)
			l.leave()
			continue
		}
		failed, last = append(failed, l), errs[i]
	}
	if len(failed) > 0 {
		q.logger.Error("calls could not be settled late; they are tried again", "calls", len(failed), "error", last)
	}
	q.mu.Lock()
	q.waiting = append(q.waiting, failed...)
	q.answers -= ended
	q.mu.Unlock()
	return len(failed) < len(round)
}

// giveUp leaves a call to the sweeper.
func (q *lateCalls) giveUp(l *lateCall, why error) {
	q.logger.Error("a call was not settled; its hold expires by itself", "call", l.settlement.Call.ID, "error", why)
	l.leave()
}
