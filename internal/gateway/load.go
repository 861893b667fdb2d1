package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// busyRetryAfter is the Retry-After of a call that is refused because all places are taken.
const busyRetryAfter = time.Second

// load counts calls: for each organization, key with a bound and provider, and for an organization at a provider. The zero value is empty.
type load struct {
	mu      sync.Mutex
	running map[placeOwner]int
}

// enter counts one more call. It returns false if the count has reached limit; 0 means unlimited.
func (l *load) enter(owner placeOwner, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit > 0 && l.running[owner] >= limit {
		return false
	}
	l.add(owner)
	return true
}

// add needs the mutex.
func (l *load) add(owner placeOwner) {
	if l.running == nil {
		l.running = map[placeOwner]int{}
	}
	l.running[owner]++
}

func (l *load) leave(owner placeOwner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[owner]--; l.running[owner] == 0 {
		delete(l.running, owner)
	}
}

func (l *load) count(owner placeOwner) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[owner]
}

// enterCaller counts the call for its organization, and for its key if the key has a bound, until the end of Call.
func (c *call) enterCaller() error {
	if !c.Calls.load.enter(placeOwner{orgID: c.req.OrgID}, c.CallLimit) {
		return &Failure{
			Outcome: OutcomeTooManyCalls, RetryAfter: busyRetryAfter,
			Message: "Too many calls of the organization are running at once. Retry when one has ended.",
		}
	}
	c.entered = append(c.entered, placeOwner{orgID: c.req.OrgID})
	if key := (placeOwner{keyID: c.req.KeyID}); c.req.KeyConcurrent > 0 {
		if !c.Calls.load.enter(key, int(c.req.KeyConcurrent)) {
			return &Failure{
				Outcome: OutcomeTooManyCalls, RetryAfter: busyRetryAfter, Message: fmt.Sprintf(
					"The API key has %d calls running on this server, the most that it may have. Retry when one has ended.", c.req.KeyConcurrent),
			}
		}
		c.entered = append(c.entered, key)
	}
	c.callers = len(c.entered)
	return nil
}

// maxWholeRoom limits the reserved memory of an answer in one piece: models may answer with 128,000 tokens, and hardly ever do.
const maxWholeRoom = 256 << 10

// wholeRoom returns the memory to reserve for the text of an answer in one piece, and 0 for a stream.
func (c *call) wholeRoom() int64 {
	if c.sink != nil {
		return 0
	}
	return min(bytesPerToken*c.upstream.MaxTokens, maxWholeRoom)
}

// room reserves memory for the answer. It runs before the hold, so that no paid answer is refused for lack of memory.
func (c *call) room(bytes int64) error {
	if bytes == 0 || c.req.Room == nil || c.req.Room(bytes) {
		return nil
	}
	return noRoom()
}

func noRoom() *Failure {
	return &Failure{
		Outcome: OutcomeTooManyCalls, RetryAfter: busyRetryAfter,
		Message: "The organization's answers that are made now, or are not read yet, are too large together. Read them, then retry.",
	}
}

// enterProvider counts the call for a provider until leaveProvider. After an error the call isn't counted. Calls at a vendor that hangs
// last as long as the timers allow. The limit keeps them from filling an organization's calls or the memory of the process.
func (c *call) enterProvider(provider *ProviderEntry) error {
	orgPlaces := 0 // of its half of Places, how many the organization may have at the provider; 0 means unlimited
	if half := c.Places / 2; c.Catalog.share(half) < half {
		orgPlaces = c.Catalog.share(half)
	}
	for _, place := range [...]struct {
		owner placeOwner
		limit int
	}{
		{placeOwner{orgID: c.req.OrgID, provider: provider.Name}, least(c.Catalog.share(c.CallLimit), orgPlaces)},
		{placeOwner{provider: provider.Name}, least(provider.MaxCalls, c.Catalog.share(c.Places))},
	} {
		if !c.Calls.load.enter(place.owner, place.limit) {
			c.leaveProvider()
			return &Failure{
				Outcome: OutcomeProviderBusy, RetryAfter: overloadedRetryAfter(0),
				Message: "Too many calls to the model's provider are running at once. Retry when some have ended.",
			}
		}
		c.entered = append(c.entered, place.owner)
	}
	return nil
}

// least returns the smaller of two limits. 0 means unlimited.
func least(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// leaveProvider undoes enterProvider.
func (c *call) leaveProvider() { c.leaveFrom(c.callers) }

func (c *call) leaveFrom(first int) {
	first = min(first, len(c.entered))
	for _, owner := range c.entered[first:] {
		c.Calls.load.leave(owner)
	}
	c.entered = c.entered[:first]
}

// CallsAt returns the number of calls to a provider that run in this process.
func (f *InFlight) CallsAt(provider string) int { return f.load.count(placeOwner{provider: provider}) }

// ErrExiting is the cause of the end of running calls when the process exits and its grace period is over.
var ErrExiting = errors.New("the gateway is shutting down")

// InFlight counts the calls on one store, so that the store is closed only after the last of them has settled, under any
// configuration.
type InFlight struct {
	cut    context.Context //nolint:containedctx // the lifetime to which the calls are joined
	cancel context.CancelCauseFunc

	load load

	mu sync.Mutex
	// health is the state of the endpoints of the newest configuration.
	health  map[healthKey]*health
	running int
	entered int64
	closed  bool
	// idle is closed when running falls to 0 during a Wait. It is nil if nothing waits.
	idle chan struct{}
}

// NewInFlight returns a registry without calls.
func NewInFlight() *InFlight {
	cut, cancel := context.WithCancelCause(context.Background())
	return &InFlight{cut: cut, cancel: cancel}
}

// Enter registers a call, or a request that may become one. The returned context ends when the process can't wait any longer; its cause is
// [ErrExiting]. leave must be called exactly once, after everything is settled. After [InFlight.Close] succeeded, Enter fails with ErrExiting.
func (f *InFlight) Enter() (cut context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, ErrExiting
	}
	f.running++
	f.entered++
	return f.cut, f.leave, nil
}

func (f *InFlight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.running == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// Running returns the number of registered calls.
func (f *InFlight) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running
}

// Wait returns when no call is running. If ctx ends first, it returns the cause.
func (f *InFlight) Wait(ctx context.Context) error {
	for {
		idle := f.whenIdle()
		if idle == nil {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// whenIdle returns nil if no call is running, else a channel that is closed when the last one ends.
func (f *InFlight) whenIdle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == 0 {
		return nil
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	return f.idle
}

// Entered returns the number of calls that have ever been registered. Two equal values show that none was registered in between.
func (f *InFlight) Entered() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entered
}

// Close refuses calls from now on, if none is running and none was registered since Entered returned entered. Otherwise it does
// nothing and returns false.
func (f *InFlight) Close(entered int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = f.closed || f.running == 0 && f.entered == entered
	return f.closed
}

// Cut ends the running calls: each is cancelled upstream with [ErrExiting] and settles the usage that its vendor reported.
func (f *InFlight) Cut() { f.cancel(ErrExiting) }

// maxDrains limits the calls of a configuration that go on without their client (see call.drain). A further call ends with its
// client.
const maxDrains = 256

// placeOwner is an organization, a provider, an organization at a provider, or a key. Empty means all of them.
type placeOwner struct{ orgID, provider, keyID string }

// take counts a call under its organization, its provider and all calls, if one of most places is free, and reports whether it did. An
// organization gets no more than the number left for all others, and a provider no more than perProvider, so that neither clients that hang up
// nor a vendor that hangs use all places.
func (l *load) take(orgID, provider string, perProvider, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, org, vendor := placeOwner{}, placeOwner{orgID: orgID}, placeOwner{provider: provider}
	if l.running[org] >= most-l.running[all] || l.running[vendor] >= perProvider {
		return false
	}
	for _, owner := range [...]placeOwner{all, org, vendor} {
		l.add(owner)
	}
	return true
}

// give returns the place of a call.
func (l *load) give(orgID, provider string) {
	for _, owner := range [...]placeOwner{{orgID: orgID}, {provider: provider}, {}} {
		l.leave(owner)
	}
}
