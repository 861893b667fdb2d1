package gateway

import (
	"sync"
	"time"
)

// busyRetryAfter is the Retry-After of a call that is refused because all places are taken.
const busyRetryAfter = time.Second

// load counts the calls that run in a process: for each organization, for each provider, and for an organization at a provider.
// The zero value is empty.
type load struct {
	mu      sync.Mutex
	running map[placeOwner]int
}

// enter counts one call more, unless limit calls are counted already (0: any number).
func (l *load) enter(owner placeOwner, limit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit > 0 && l.running[owner] >= limit {
		return false
	}
	if l.running == nil {
		l.running = map[placeOwner]int{}
	}
	l.running[owner]++
	return true
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

// enterOrg counts the call for its organization until leaveAll.
func (c *call) enterOrg() error {
	if !c.Calls.load.enter(placeOwner{orgID: c.req.OrgID}, c.CallLimit) {
		return &Failure{
			Outcome: OutcomeTooManyCalls, RetryAfter: busyRetryAfter,
			Message: "Too many calls of the organization are running at once. Retry when one has ended.",
		}
	}
	c.entered = append(c.entered, placeOwner{orgID: c.req.OrgID})
	return nil
}

// maxWholeRoom limits the reserved memory of an answer in one piece: models may answer with 128,000 tokens, and hardly ever do.
const maxWholeRoom = 256 << 10

// room reserves memory for the answer. A paid answer is never refused for want of memory, so this happens before.
func (c *call) room(bytes int64) error {
	if c.req.Room == nil || c.req.Room(bytes) {
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

// enterProvider counts the call for its provider until leaveAll. A vendor that hangs keeps its calls for as long as the timers
// allow: they may take neither all calls of an organization nor the memory of the process.
func (c *call) enterProvider() error {
	for _, place := range [...]struct {
		owner placeOwner
		limit int
	}{
		{placeOwner{c.req.OrgID, c.provider.Name}, least(c.Catalog.share(c.CallLimit), c.orgPlaces())},
		{placeOwner{provider: c.provider.Name}, c.providerLimit()},
	} {
		if !c.Calls.load.enter(place.owner, place.limit) {
			return &Failure{
				Outcome: OutcomeProviderBusy, RetryAfter: overloadedRetryAfter(0),
				Message: "Too many calls to the model's provider are running at once. Retry when some have ended.",
			}
		}
		c.entered = append(c.entered, place.owner)
	}
	return nil
}

// providerLimit returns how many calls to the provider may run in this process. 0 means unlimited.
func (c *call) providerLimit() int { return least(c.provider.MaxCalls, c.Catalog.share(c.Places)) }

// orgPlaces returns how many of its half of Places an organization may have at the provider. 0 means unlimited.
func (c *call) orgPlaces() int {
	half := c.Places / 2
	if share := c.Catalog.share(half); share < half {
		return share
	}
	return 0
}

// least returns the smaller of two limits. 0 means unlimited.
func least(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (c *call) leaveAll() {
	for _, owner := range c.entered {
		c.Calls.load.leave(owner)
	}
}

// CallsAt returns how many calls to a provider run in this process.
func (f *InFlight) CallsAt(provider string) int { return f.load.count(placeOwner{provider: provider}) }
