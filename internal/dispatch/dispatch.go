// Package dispatch bounds how much work runs at a time and lets organizations take turns, so that one with much or hanging work keeps no
// other waiting. [Queue] starts the work that is due in a queue of the store. [Turns] are for work that a caller waits for. The work itself
// belongs to the callers.
package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

const (
	// lookPause is the default of [Queue.Pause].
	lookPause = time.Second
	// emptyPause is the longest time between two looks at an empty queue, and so the delay by a lost notice of a commit.
	emptyPause = 15 * time.Second
	// faultPause follows a fault of the store.
	faultPause = 5 * time.Second
	// storeWait bounds every wait for the store.
	storeWait = 10 * time.Second
)

// Queue is the work that a dispatcher starts. All fields but Pause are required.
type Queue[T any] struct {
	// Pause is about how long the queue is left alone when nothing was due; 0 means a second.
	Pause time.Duration
	// Places is how many tries run at a time, OrgPlaces how many of them for one organization.
	Places, OrgPlaces int
	// Due returns the organizations after cursor that have something to try now. next is the cursor of the next look. An empty one is the
	// beginning. empty: nothing waits, so that nothing becomes due before something is committed.
	Due func(ctx context.Context, cursor string) (orgs []string, next string, empty bool, err error)
	// Committed returns a channel that is closed after the next commit of any process, or nil if the store doesn't tell.
	Committed func() <-chan struct{}
	// Lease leases up to a number of tries of an organization.
	Lease func(ctx context.Context, org string, atMost int) ([]T, error)
	// Try makes one try. It gets the context of [Queue.Run].
	Try func(ctx context.Context, one *T)
	// Failed is called with each error of Due and Lease. Both are tried again after a pause.
	Failed func(ctx context.Context, err error)
}

// Run starts due work until ctx ends, and returns when the tries that run have ended.
func (q Queue[T]) Run(ctx context.Context) {
	d := &dispatcher[T]{Queue: q, running: map[string]int{}, freed: make(chan struct{}, 1)}
	for cursor := ""; ctx.Err() == nil; {
		committed := d.Committed() // from now on, so that the look misses nothing
		next, empty, err := d.look(ctx, cursor)
		switch {
		case err != nil && ctx.Err() == nil:
			d.Failed(ctx, err)
			d.pause(ctx, faultPause, nil)
		case next == "" || d.full():
			began := time.Now()
			if empty && committed != nil {
				d.pause(ctx, emptyPause, committed)
			}
			d.pause(ctx, repeat.Around(cmp.Or(d.Pause, lookPause))-time.Since(began), nil)
		}
		cursor = next
	}
	d.tries.Wait()
}

// Storing returns the context of one write of the store, which outlives a stop.
func Storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), storeWait, fmt.Errorf("the store took longer than %s", storeWait))
}

// dispatcher is a queue at work.
type dispatcher[T any] struct {
	Queue[T]

	mu      sync.Mutex
	taken   int
	running map[string]int // by organization
	freed   chan struct{}
	tries   sync.WaitGroup
}

// pause waits. It ends early if a place gets free or the channel is closed.
func (d *dispatcher[T]) pause(ctx context.Context, pause time.Duration, committed <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-committed:
	case <-d.freed:
	case <-ctx.Done():
	}
}

// look starts the due work of the organizations after cursor. next is where the next look goes on: the beginning after the last
// organization, or the organization that got the last free place, so that the next place is another's. empty reports whether the queue is
// empty.
func (d *dispatcher[T]) look(ctx context.Context, cursor string) (next string, empty bool, err error) {
	if d.full() {
		return cursor, false, nil
	}
	orgs, next, empty, err := d.Due(ctx, cursor)
	if err != nil {
		return cursor, false, err
	}
	for _, org := range orgs {
		free := d.free(org)
		if free <= 0 {
			continue
		}
		bounded, cancel := Storing(ctx)
		leased, err := d.Lease(bounded, org, free)
		cancel()
		if err != nil {
			return cursor, false, err
		}
		for i := range leased {
			d.start(ctx, org, &leased[i])
		}
		if cursor = org; d.full() {
			return cursor, false, nil
		}
	}
	return next, empty, nil
}

// full reports whether no place is free.
func (d *dispatcher[T]) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken >= d.Places
}

// free returns how many more tries an organization may have.
func (d *dispatcher[T]) free(org string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(d.Places-d.taken, d.OrgPlaces-d.running[org])
}

func (d *dispatcher[T]) start(ctx context.Context, org string, one *T) {
	d.mu.Lock()
	d.taken++
	d.running[org]++
	d.mu.Unlock()
	d.tries.Go(func() {
		defer d.ended(org)
		d.Try(ctx, one)
	})
}

func (d *dispatcher[T]) ended(org string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken--
	if d.running[org]--; d.running[org] == 0 {
		delete(d.running, org)
	}
	select {
	case d.freed <- struct{}{}:
	default:
	}
}

// ErrBusy is returned by [Turns.Enter] when the line is full.
var ErrBusy = errors.New("too much work waits for its turn")

// Bounds limit the work of [Turns].
type Bounds struct {
	// Places is how many pieces of work run at a time, and Each how many of them for one owner.
	Places, Each int
	// Line is how many pieces of work of one owner may wait, and Lines how many in all.
	Line, Lines int
}

// Turns bound the work that callers wait for. Owners with waiting work get the free places in turn, so that the work of one owner delays
// another's by one piece for each owner in line. An owner is an organization, or a stranger's network address. Turns are safe for
// concurrent use.
type Turns struct {
	bounds Bounds

	mu            sync.Mutex
	free, waiting int
	running       map[string]int // by owner
	// order lists the owners with waiting work, the next one first.
	order []string
	// lines are the waiting pieces of work by owner, the next one first. A closed channel is a place.
	lines map[string][]chan struct{}
}

// NewTurns returns turns without work.
func NewTurns(bounds Bounds) *Turns {
	return &Turns{bounds: bounds, free: bounds.Places, running: map[string]int{}, lines: map[string][]chan struct{}{}}
}

// Enter waits for a place, which [Turns.Leave] gives back. The error is [ErrBusy] if the line is full, or the cause of ctx's end.
func (t *Turns) Enter(ctx context.Context, owner string) error {
	turn, err := t.join(owner)
	if turn == nil || err != nil {
		return err
	}
	return t.wait(ctx, owner, turn)
}

// Leave gives the owner's place to the next work in line.
func (t *Turns) Leave(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveBack(owner)
	t.next()
}

// Pass gives the place to another owner's work, if any waits, and waits for the next place at the head of its own line, so that an
// owner's pieces of work end one after the other. The error is the cause of ctx's end, and then the place is given back.
func (t *Turns) Pass(ctx context.Context, owner string) error {
	if ctx.Err() != nil {
		t.Leave(owner)
		return context.Cause(ctx)
	}
	turn := t.offer(owner)
	if turn == nil {
		return nil
	}
	return t.wait(ctx, owner, turn)
}

func (t *Turns) wait(ctx context.Context, owner string, turn chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		if at := slices.Index(t.lines[owner], turn); at >= 0 {
			t.remove(owner, at)
		} else { // the place came at the same time
			t.giveBack(owner)
			t.next()
		}
		return context.Cause(ctx)
	}
}

// join uses a free place, or queues. The returned turn is closed when there is a place. It is nil if a place was free.
func (t *Turns) join(owner string) (turn chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 && t.running[owner] < t.bounds.Each {
		t.use(owner)
		return nil, nil //nolint:nilnil // a place without a wait
	}
	line := t.lines[owner]
	if t.waiting >= t.bounds.Lines || len(line) >= t.bounds.Line {
		return nil, ErrBusy
	}
	return t.insert(owner, len(line)), nil
}

func (t *Turns) use(owner string) {
	t.free--
	t.running[owner]++
}

func (t *Turns) giveBack(owner string) {
	t.free++
	if t.running[owner]--; t.running[owner] == 0 {
		delete(t.running, owner)
	}
}

// insert adds a piece of work to its owner's line.
func (t *Turns) insert(owner string, at int) (turn chan struct{}) {
	if t.lines[owner] == nil {
		t.order = append(t.order, owner)
	}
	turn = make(chan struct{})
	t.lines[owner] = slices.Insert(t.lines[owner], at, turn)
	t.waiting++
	return turn
}

// remove deletes a piece of work from its owner's line, and an owner without a line from the order.
func (t *Turns) remove(owner string, at int) {
	t.waiting--
	line := slices.Delete(t.lines[owner], at, at+1)
	if len(line) > 0 {
		t.lines[owner] = line
		return
	}
	delete(t.lines, owner)
	t.order = slices.DeleteFunc(t.order, func(other string) bool { return other == owner })
}

// next gives a free place to the first owner in line that may have one more. That owner goes to the end of the order.
func (t *Turns) next() {
	at := slices.IndexFunc(t.order, func(owner string) bool { return t.running[owner] < t.bounds.Each })
	if t.free == 0 || at < 0 {
		return
	}
	owner := t.order[at]
	t.order = append(slices.Delete(t.order, at, at+1), owner)
	t.use(owner)
	close(t.lines[owner][0])
	t.remove(owner, 0)
}

// offer gives the place back for another owner's work. It returns nil if no other owner may use the place.
func (t *Turns) offer(owner string) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.order, func(other string) bool { return other != owner && t.running[other] < t.bounds.Each }) {
		return nil
	}
	// If this owner has waited longest, its turn comes immediately, and the others' after its next share.
	turn = t.insert(owner, 0)
	t.giveBack(owner)
	t.next()
	return turn
}

// Slot lets writes that aren't urgent run one at a time. It has room for one element, which is a running write.
type Slot chan struct{}

// Write runs a write of a few milliseconds while no other of the slot runs, and pauses for as long as it took, up to longest, so that all
// other writes have at least half of the time. The error is that of write, or the cause of ctx's end.
func (s Slot) Write(ctx context.Context, longest time.Duration, write func() error) error {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s }()
	began := time.Now()
	err := write()
	_ = repeat.Pause(ctx, min(time.Since(began), longest))
	return err
}
