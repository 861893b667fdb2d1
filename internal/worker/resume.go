package worker

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// resumeInterval is about how often stalled turns are read.
	resumeInterval = 5 * time.Second
	// resumeAge bounds the age of a turn that is resumed: a later answer is of no use.
	resumeAge = 24 * time.Hour
	// resumeLimit bounds one read. The longest stalled come first, so it must exceed the number of turns that stay stalled.
	resumeLimit = 5000
)

// resumeLoop resumes stalled turns whose cause has been resolved, until ctx ends.
func (w *Worker) resumeLoop(ctx context.Context) {
	repeat.Every(ctx, resumeInterval, func(ctx context.Context) {
		if err := w.resume(ctx); err != nil && ctx.Err() == nil {
			w.Logger.ErrorContext(ctx, "resuming stalled turns failed", "error", err)
		}
	})
}

// resume reads the stalled turns once and resumes those whose cause has been resolved.
func (w *Worker) resume(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	stalled, err := w.Leases.Attentions(bounded, w.Now().Add(-resumeAge), resumeLimit)
	if err != nil {
		return err
	}
	free := map[string]int64{} // by organization
	for i := range stalled {
		if ctx.Err() != nil {
			return nil
		}
		due, err := w.resumable(ctx, &stalled[i], free)
		if err == nil && due {
			err = w.resumeTurn(ctx, stalled[i].TurnID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) resumeTurn(ctx context.Context, turnID string) error {
	bounded, cancel := context.WithTimeoutCause(ctx, storeWait, errStoreSlow)
	defer cancel()
	err := w.Queue.Resume(bounded, turnID)
	if over(err) || errors.Is(err, store.ErrNotFound) {
		return nil // ended meanwhile
	}
	return err
}

// resumable reports whether the cause of a stalled turn has been resolved. Causes other than these need the customer's next
// message.
func (w *Worker) resumable(ctx context.Context, t *inbox.AttentionTurn, free map[string]int64) (bool, error) {
	if t.Suspended {
		return false, nil
	}
	switch t.Code {
	case codeSuspended:
		return true, nil
	case codeNoAgent:
		return t.HasAgent, nil
	case codeNeedsReauth:
		return t.ChannelState == store.ChannelActive, nil
	case codeNoCredits:
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
