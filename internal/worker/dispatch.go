package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
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

// dispatcher hands leased conversations to goroutines. Its methods run on Run's goroutine, but for freeEarly and ended.
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
		more, err := d.fill(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				d.Logger.ErrorContext(ctx, "leasing conversations failed", "error", err)
			}
			_ = repeat.Pause(ctx, faultPause)
		case !more:
			d.idle(ctx)
		}
	}
}

// wait returns when every goroutine of the dispatcher has ended.
func (d *dispatcher) wait() { d.running.Wait() }

// fill leases conversations for the free places and starts them. It reports whether another look may fill more of them: a lease may
// end early at an organization that has more to do than was read. The end of ctx must not interrupt fill: a lease whose commit wasn't
// confirmed would keep its customer waiting until it runs out.
func (d *dispatcher) fill(ctx context.Context) (more bool, err error) {
	free, _ := d.room()
	if free.Free == 0 || closed(d.stop) {
		return false, nil
	}
	bounded, cancel := storing(ctx)
	defer cancel()
	leases, err := d.Leases.Lease(bounded, free, d.Lease)
	if err != nil {
		return false, err
	}
	if len(leases) > 0 {
		d.Observer.Leased(len(leases))
	}
	for _, lease := range leases {
		d.start(lease)
		free.Taken[lease.OrgID]++
	}
	return slices.ContainsFunc(leases, func(lease inbox.Lease) bool { return free.Taken[lease.OrgID] < d.most }), nil
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
// whether it did: at most as many conversations as there are places end without one.
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
	// What is due may be an organization's at its cap, which a wait for due work would return for at once.
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

// waiter waits for due work whenever it is asked, on a goroutine of its own, so that a place that gets free doesn't have to
// interrupt a wait.
func (d *dispatcher) waiter(ctx context.Context) {
	for {
		select {
		case <-d.ask:
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		err := d.Leases.Wait(ctx, idleWait)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			d.Logger.ErrorContext(ctx, "waiting for due conversations failed", "error", err)
			_ = repeat.Pause(ctx, faultPause)
		}
		signal(d.due)
		if time.Since(asked) < emptyPause {
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
	// longestWait bounds a pause, whatever a vendor asks for.
	longestWait = 5 * time.Minute
	// waitFactor: with maxTries the pauses are about 1, 3, 9, 27, 81, 243 and 300 s, eleven minutes in all, which
	// outlives most outages of a vendor.
	waitFactor = 3
	// maxTries bounds how often a turn is asked before it stands and people are told.
	maxTries = 8
	// busyStorePause is the pause of a turn whose hold the overloaded store refused; each try costs the store two more writes.
	busyStorePause = 10 * time.Second
)

// backoff returns the pause after a failed try that followed attempts failed tries: exponential, at least retryAfter (the vendor's
// Retry-After, 0 for none), at most longestWait. A random quarter at most is taken off, or added to a retryAfter, so that
// conversations which failed together aren't tried together again.
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
