package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// watchPause is about how often a worker looks in which conversations with running model calls a person has taken over or written, in
// whatever process. Most calls take longer, and one cheap read serves all of them.
const watchPause = 250 * time.Millisecond

// watches are the running model calls of a worker. The zero value has none.
type watches struct {
	mu      sync.Mutex
	running map[*watch]struct{}
	// stop ends the goroutine that looks, and returns when it has ended; nil while there is none.
	stop func()
}

// watch is a running model call.
type watch struct {
	turn inbox.RunningTurn
	end  context.CancelCauseFunc
	seen inbox.Interruption // guarded by watches.mu
}

// untilInterrupted returns a context that, once start was called, ends with [gateway.ErrInterrupted] when the turn needs no answer any more, or a
// person's message waits to be sent. stop must be called, and may be repeated; it returns what was seen.
func (p *pass) untilInterrupted(ctx context.Context, turnID string) (held context.Context, start func(), stop func() inbox.Interruption) {
	held, end := context.WithCancelCause(ctx)
	call := &watch{turn: inbox.RunningTurn{ConversationID: p.lease.ConversationID, TurnID: turnID}, end: end}
	start = func() {
		p.watches.begin(call, func() (stop func()) {
			looking, cancel := context.WithCancel(context.WithoutCancel(ctx))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.look(looking)
			}()
			return func() {
				cancel()
				<-ended
			}
		})
	}
	return held, start, func() inbox.Interruption {
		end(nil)
		return p.watches.finish(call)
	}
}

// begin adds a call. The first one starts the goroutine that looks.
func (w *watches) begin(call *watch, start func() (stop func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		w.running = map[*watch]struct{}{}
	}
	w.running[call] = struct{}{}
	if w.stop == nil {
		w.stop = start()
	}
}

// finish removes a call, and returns what was seen. The last one ends the goroutine that looks.
func (w *watches) finish(call *watch) inbox.Interruption {
	w.mu.Lock()
	delete(w.running, call)
	seen, stop := call.seen, w.stop
	if len(w.running) > 0 {
		stop = nil
	} else {
		w.stop = nil
	}
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	return seen
}

// turns returns those that weren't interrupted yet.
func (w *watches) turns() (turns []inbox.RunningTurn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.running {
		if call.seen == (inbox.Interruption{}) {
			turns = append(turns, call.turn)
		}
	}
	return turns
}

// interrupt ends calls of turns that were interrupted.
func (w *watches) interrupt(seen map[string]inbox.Interruption) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.running {
		if interruption, interrupted := seen[call.turn.TurnID]; interrupted {
			call.seen = interruption
			call.end(gateway.ErrInterrupted)
		}
	}
}

// look looks until ctx ends whether people interrupt running calls. Faults of the store only postpone the next look: what is written
// later is checked under the lease.
func (w *Worker) look(ctx context.Context) {
	for repeat.Pause(ctx, repeat.Around(watchPause)) == nil {
		turns := w.watches.turns()
		if len(turns) == 0 {
			continue
		}
		bounded, done := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
		seen, err := w.Turns.Interruptions(bounded, turns)
		done()
		if err == nil {
			w.watches.interrupt(seen)
		}
	}
}

// giveWay ends the turn of an interrupted call. What the person wrote is sent with the next pass, which is due at once.
func (p *pass) giveWay(ctx context.Context, turnID string, seen inbox.Interruption) error {
	if seen.Ended {
		p.turnEnded(endedDiscarded)
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	err := p.Turns.GiveWay(ctx, p.lease, turnID)
	switch {
	case over(err):
		p.turnEnded(endedDiscarded)
		return nil
	case err != nil:
		return fmt.Errorf("giving way to a person: %w", err)
	}
	p.turnEnded(endedSuperseded)
	return nil
}

// unmark makes the part that a commit in doubt may have marked as sending pending again: its platform was not called. called is a part
// for which the platform was called, "" for none.
func (p *pass) unmark(ctx context.Context, called string) {
	err := insist(ctx, func(ctx context.Context) error { return p.Turns.Unmark(ctx, p.lease, called) })
	if err != nil && !errors.Is(err, inbox.ErrLeaseLost) {
		p.Logger.ErrorContext(ctx, "a message that was not sent may be shown as one whose delivery is unknown",
			"conversation", p.lease.ConversationID, "error", err)
	}
}

// inDoubt reports whether a write may have happened though it returned an error.
func inDoubt(err error) bool {
	if _, early := errors.AsType[*inbox.PacedError](err); early {
		return false
	}
	for _, certain := range []error{nil, inbox.ErrLeaseLost, inbox.ErrInvalid, inbox.ErrDraftMode, inbox.ErrSuperseded} {
		if errors.Is(err, certain) {
			return false
		}
	}
	return !over(err)
}
