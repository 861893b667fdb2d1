package worker

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// idleWait bounds a wait for work, and so the delay by a lost wake-up.
	idleWait = 5 * time.Second
	// emptyPause follows a look that found nothing though something may be due: another worker was faster, or the organization
	// is at its cap.
	emptyPause = 20 * time.Millisecond
	// faultPause follows a fault of the store.
	faultPause = time.Second
)

// dispatcher hands leased conversations to goroutines. Its methods run on Run's goroutine, except freeEarly and ended.
type dispatcher struct {
	*Worker
	work context.Context //nolint:containedctx // the lifetime that running conversations are joined to
	stop <-chan struct{}
	// most is how many places one organization may have.
	most    int
	running sync.WaitGroup

	mu     sync.Mutex
	places map[string]int // in use, by organization
	taken  int
	ending int // conversations that gave their place back before their last write

	// freed holds a token after a place was given back.
	freed chan struct{}
	// A token in ask makes the waiter wait for work once; a token in due reports that there may be some.
	ask, due chan struct{}
}

func newDispatcher(work context.Context, w *Worker, stop <-chan struct{}) *dispatcher {
	return &dispatcher{
		Worker: w, work: work, stop: stop, most: max(1, w.Concurrency/2), places: map[string]int{},
		freed: make(chan struct{}, 1), ask: make(chan struct{}, 1), due: make(chan struct{}, 1),
	}
}

// run leases and starts conversations until ctx ends.
func (d *dispatcher) run(ctx context.Context) {
	d.running.Go(func() { d.waiter(ctx) })
	for ctx.Err() == nil {
		err := d.fill(ctx)
		if err == nil {
			d.idle(ctx)
			continue
		}
		if ctx.Err() == nil {
			d.Logger.ErrorContext(ctx, "leasing conversations failed", "error", err)
		}
		_ = repeat.Pause(ctx, faultPause)
	}
}

// fill leases conversations for the free places and starts them. The end of ctx must not interrupt fill: a lease without a confirmed commit
// would keep its customer waiting until it runs out.
func (d *dispatcher) fill(ctx context.Context) error {
	free, _ := d.room()
	if free.Free == 0 || closed(d.stop) {
		return nil
	}
	bounded, cancel := storing(ctx)
	defer cancel()
	leases, err := d.Queue.Lease(bounded, free, d.Lease)
	if err != nil {
		return err
	}
	if len(leases) > 0 {
		d.Observer.Leased(len(leases))
	}
	for _, lease := range leases {
		d.start(lease)
	}
	return nil
}

// room returns the free places. capped: an organization has as many as it may have.
func (d *dispatcher) room() (free inbox.Places, capped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, taken := range d.places {
		capped = capped || taken >= d.most
	}
	return inbox.Places{Free: d.Concurrency - d.taken, Most: d.most, Taken: maps.Clone(d.places)}, capped
}

func (d *dispatcher) start(lease inbox.Lease) {
	d.mu.Lock()
	d.taken++
	d.places[lease.OrgID]++
	d.mu.Unlock()
	early := false
	p := &pass{Worker: d.Worker, lease: lease, stop: d.stop, ending: func() { early = early || d.freeEarly(lease.OrgID) }}
	d.running.Go(func() {
		defer func() { d.ended(lease.OrgID, early) }()
		p.converse(d.work)
	})
}

// freeEarly gives a place back before the last write of its conversation, so that the same commit may lease the next one. It reports
// whether it did: up to the number of conversations for which there are places end without one.
func (d *dispatcher) freeEarly(org string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending >= d.Concurrency {
		return false
	}
	d.ending++
	d.free(org)
	return true
}

// ended gives a place back, unless freeEarly did.
func (d *dispatcher) ended(org string, early bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if early {
		d.ending--
		return
	}
	d.free(org)
}

// free gives a place back. The caller holds mu.
func (d *dispatcher) free(org string) {
	d.taken--
	if d.places[org]--; d.places[org] == 0 {
		delete(d.places, org)
	}
	signal(d.freed)
}

// idle returns when another look is worth its cost.
func (d *dispatcher) idle(ctx context.Context) {
	free, capped := d.room()
	switch {
	case free.Free == 0: // every place is taken
		select {
		case <-d.freed:
		case <-ctx.Done():
		}
		return
	case !capped:
		signal(d.ask)
	}
	// The due work may belong to an organization at its cap. Waiting for due work would return immediately.
	look := (<-chan time.Time)(nil)
	if capped {
		timer := time.NewTimer(10 * emptyPause)
		defer timer.Stop()
		look = timer.C
	}
	select {
	case <-d.freed:
	case <-d.due:
	case <-look:
	case <-ctx.Done():
	}
}

// waiter waits for due work on request, on a goroutine of its own, so that a place that gets free doesn't have to
// interrupt a wait.
func (d *dispatcher) waiter(ctx context.Context) {
	for {
		select {
		case <-d.ask:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := d.Queue.Wait(ctx, idleWait)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.Logger.ErrorContext(ctx, "waiting for due conversations failed", "error", err)
			_ = repeat.Pause(ctx, faultPause)
		}
		signal(d.due)
		if time.Since(began) < emptyPause {
			_ = repeat.Pause(ctx, emptyPause)
		}
	}
}

// signal puts a token, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// closed reports whether a channel that carries nothing is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

const (
	// firstWait is the pause before the second try of a call or a send.
	firstWait = time.Second
	// longestWait limits a pause, including a pause that a vendor demands.
	longestWait = 5 * time.Minute
	// waitFactor: with maxTries the pauses are about 1, 3, 9, 27, 81, 243 and 300 s, eleven minutes in all, which
	// outlives most outages of a vendor.
	waitFactor = 3
	// maxTries bounds how often a turn is tried before it stands and is reported to people.
	maxTries = 8
	// busyStorePause is the pause of a turn after the overloaded store refused its hold; each try costs the store two more writes.
	busyStorePause = 10 * time.Second
)

// backoff returns the pause after a failed try that followed attempts failed tries: exponential, at least retryAfter (the vendor's
// Retry-After, or 0), and up to longestWait. Up to a random quarter is taken off, or added to a retryAfter, so that conversations which
// failed together aren't tried together again.
func backoff(attempts int64, retryAfter time.Duration) time.Duration {
	wait := firstWait
	for range min(attempts, maxTries) {
		wait = min(wait*waitFactor, longestWait)
	}
	wait -= repeat.Jitter(wait / 4)
	if retryAfter <= wait {
		return wait
	}
	retryAfter = min(retryAfter, longestWait)
	return retryAfter + repeat.Jitter(retryAfter/4)
}

// keepLease renews a lease every third of its life, on a goroutine of its own, until release is called. When the lease is lost,
// because the queue says so or because it can't be renewed in time, the returned context ends with errLeaseLost as its cause.
func (w *Worker) keepLease(ctx context.Context, lease inbox.Lease) (held context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if w.renew(ctx, lease) {
			cancel(errLeaseLost)
		}
	})
	return ctx, func() {
		cancel(nil)
		keeping.Wait()
	}
}

// renew returns false when ctx ended, true when the lease is lost. The local clock counts from before each renewal began, so
// that the work ends before another worker may get the lease.
func (w *Worker) renew(ctx context.Context, lease inbox.Lease) (lost bool) {
	ends := time.Now().Add(w.Lease)
	for wait := w.Lease / 3; ; {
		_ = repeat.Pause(ctx, wait)
		if ctx.Err() != nil {
			return false
		}
		began := time.Now()
		bounded, cancel := context.WithDeadlineCause(ctx, ends, errLeaseLost)
		_, err := w.Queue.Renew(bounded, lease, w.Lease)
		cancel()
		switch {
		case err == nil:
			ends, wait = began.Add(w.Lease), w.Lease/3
		case errors.Is(err, inbox.ErrLeaseLost):
			return true
		case ctx.Err() != nil:
			return false
		default:
			w.Logger.WarnContext(ctx, "renewing a lease failed", "conversation", lease.ConversationID, "error", err)
			if wait = w.Lease / 12; time.Until(ends) <= wait {
				return true
			}
		}
	}
}

const (
	// resumeInterval is about how often standing turns are read, and resumeIdle how often if there are none and nothing is committed.
	resumeInterval = 5 * time.Second
	resumeIdle     = time.Minute
	// resumeAge bounds the age of a turn that is resumed: a later answer is of no use.
	resumeAge = 24 * time.Hour
	// resumeLimit bounds one read. The longest standing come first, so it must exceed the number of turns that stay standing.
	resumeLimit = 5000
	// resumeAttempts leaves a turn two more tries when it is resumed after a vendor's failure, because the end of a worker may use up one
	// of them. After the other it stands again.
	resumeAttempts = maxTries - 2
	// Bounds of the pause until a turn is resumed after a vendor's failure.
	shortestStanding, longestStanding = time.Minute, 15 * time.Minute
)

// standingPause is how long a turn stands with a code that ends in time. After an outage the pause grows with the turn's age, by half of
// its age at the beginning of the pause; up to a quarter is added, by the turn's id, so that turns which stand together aren't tried
// together.
func standingPause(t *inbox.StandingTurn) time.Duration {
	if t.Code == codes.LoopGuard {
		return inbox.LoopWindow
	}
	pause := min(max((t.Age-t.Stood)/2, shortestStanding), longestStanding)
	spread := fnv.New32a()
	_, _ = spread.Write([]byte(t.TurnID))
	return pause + pause*time.Duration(spread.Sum32()%1000)/4000
}

// resumeLoop resumes standing turns after their cause was resolved or their pause is over, until ctx ends.
func (w *Worker) resumeLoop(ctx context.Context) {
	repeat.EveryChange(ctx, resumeInterval, resumeIdle, w.Queue.Committed, func(ctx context.Context) (again bool) {
		standing, err := w.resume(ctx)
		if err != nil && ctx.Err() == nil {
			w.Logger.ErrorContext(ctx, "resuming standing turns failed", "error", err)
		}
		return standing > 0 || err != nil
	})
}

// resume reads the standing turns once, and resumes a turn if its cause has been resolved. It returns how many there were.
func (w *Worker) resume(ctx context.Context) (standing int, err error) {
	bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	if _, err := w.Queue.Reconnected(bounded, resumeLimit); err != nil {
		return 0, err
	}
	turns, err := w.Queue.StandingTurns(bounded, w.Now().Add(-resumeAge), resumeLimit)
	if err != nil {
		return 0, err
	}
	free := map[[3]string]int64{} // by code, organization and assistant
	for i := range turns {
		if ctx.Err() != nil {
			break
		}
		due, err := w.resumable(ctx, &turns[i], free)
		if err == nil && due {
			err = w.resumeTurn(ctx, &turns[i])
		}
		if err != nil {
			return len(turns), err
		}
	}
	return len(turns), nil
}

func (w *Worker) resumeTurn(ctx context.Context, t *inbox.StandingTurn) error {
	var attempts int64
	if codes.Of(t.Code).Ends == codes.InTime {
		attempts = resumeAttempts
	}
	bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	err := w.Queue.Resume(bounded, t.TurnID, attempts)
	if over(err) || errors.Is(err, store.ErrNotFound) {
		return nil // ended meanwhile
	}
	return err
}

// resumable reports whether the cause of a standing turn has been resolved, or its pause is over.
func (w *Worker) resumable(ctx context.Context, t *inbox.StandingTurn, free map[[3]string]int64) (bool, error) {
	switch policy := codes.Of(t.Code); {
	case t.Suspended:
		return false, nil
	case policy.Ends == codes.InTime:
		return t.Stood >= standingPause(t), nil
	case policy.Ends != codes.WithCause:
		return false, nil
	}
	switch t.Code {
	case codes.Suspended:
		return true, nil
	case codes.NoAgent:
		return t.HasAgent, nil
	case codes.NeedsReauth:
		return t.ChannelState == store.ChannelActive, nil
	case codes.InsufficientCredits, codes.BudgetExceeded:
		key := [3]string{t.Code, t.OrgID, t.AgentID}
		balance, known := free[key]
		if !known {
			bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
			defer cancel()
			var err error
			if balance, err = w.funds(bounded, t.Code, t.OrgID, t.AgentID); err != nil {
				return false, err
			}
			free[key] = balance
		}
		return t.BalanceMicros == nil || balance > *t.BalanceMicros, nil
	}
	return false, nil
}
