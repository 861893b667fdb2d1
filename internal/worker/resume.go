package worker

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/codes"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// resumeInterval is about how often standing turns are read, and resumeIdle how often if there are none and nothing is committed.
	resumeInterval = 5 * time.Second
	resumeIdle     = time.Minute
	// resumeAge bounds the age of a turn that is resumed: a later answer is of no use.
	resumeAge = 24 * time.Hour
	// resumeLimit bounds one read. The longest standing come first, so it must exceed the number of turns that stay standing.
	resumeLimit = 5000
	// resumeAttempts leaves a turn whose vendor failed two more tries when it is resumed: one that its worker's end uses up, and one
	// after which it stands again.
	resumeAttempts = maxTries - 2
	// Bounds of the pause until a turn is resumed whose vendor failed.
	shortestStanding, longestStanding = time.Minute, 15 * time.Minute
)

// standingPause is how long a turn stands whose code ends in time. After an outage the pause grows with the turn's age, by half of what
// the age was when it began to stand; up to a quarter is added, by the turn's id, so that turns which stand together aren't tried
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

// resumeLoop resumes standing turns whose cause has been resolved or whose pause is over, until ctx ends.
func (w *Worker) resumeLoop(ctx context.Context) {
	repeat.EveryChange(ctx, resumeInterval, resumeIdle, w.Leases.Committed, func(ctx context.Context) (again bool) {
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
	if _, err := w.Leases.Reconnected(bounded, resumeLimit); err != nil {
		return 0, err
	}
	turns, err := w.Leases.StandingTurns(bounded, w.Now().Add(-resumeAge), resumeLimit)
	if err != nil {
		return 0, err
	}
	free := map[string]int64{} // by organization
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
func (w *Worker) resumable(ctx context.Context, t *inbox.StandingTurn, free map[string]int64) (bool, error) {
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
	case codes.InsufficientCredits:
		balance, known := free[t.OrgID]
		if !known {
			bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
			defer cancel()
			var err error
			if balance, err = w.Gateway.FreeBalance(bounded, t.OrgID, store.Live); err != nil {
				return false, err
			}
			free[t.OrgID] = balance
		}
		return t.BalanceMicros == nil || balance > *t.BalanceMicros, nil
	}
	return false, nil
}
