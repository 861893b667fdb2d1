package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
)

// watchPause is about how often a running model call looks whether a person has taken the conversation or written in it, in whatever
// process. Most calls take longer, and the read costs some microseconds.
const watchPause = 250 * time.Millisecond

// errInterrupted ends a model call whose answer is not wanted now.
var errInterrupted = errors.New("a person has taken the conversation or written in it")

// untilInterrupted returns a context that ends with errInterrupted when the turn needs no answer any more, or a person's message
// waits to be sent. stop must be called; afterwards interruption is what was seen.
func (p *pass) untilInterrupted(ctx context.Context, turnID string) (held context.Context, stop func() inbox.Interruption) {
	watched, cancel := context.WithCancelCause(ctx)
	seen := make(chan inbox.Interruption, 1)
	go func() { seen <- p.watch(watched, cancel, turnID) }()
	return watched, func() inbox.Interruption {
		cancel(nil)
		return <-seen
	}
}

// watch looks until ctx ends or a person interrupts, which ends ctx. Faults of the store only postpone the next look: what is written
// later is checked under the lease.
func (p *pass) watch(ctx context.Context, cancel context.CancelCauseFunc, turnID string) inbox.Interruption {
	for repeat.Pause(ctx, repeat.Around(watchPause)) == nil {
		bounded, done := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
		seen, err := p.Turns.Interruption(bounded, p.lease.ConversationID, turnID)
		done()
		if err == nil && (seen.Ended || seen.Person) {
			cancel(errInterrupted)
			return seen
		}
	}
	return inbox.Interruption{}
}

// giveWay ends the turn of an interrupted call. What the person wrote is sent with the next pass, which is due at once.
func (p *pass) giveWay(ctx context.Context, turnID string, seen inbox.Interruption) error {
	if seen.Ended {
		p.turnEnded(endedDiscarded)
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := p.Turns.GiveWay(ctx, p.lease, turnID); err != nil {
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
	return err != nil && !over(err) && !errors.Is(err, inbox.ErrLeaseLost) && !errors.Is(err, inbox.ErrInvalid)
}
