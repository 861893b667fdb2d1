package topup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/payments"
)

const (
	// comparePause is the pause between two looks whether a comparison is due, and comparePeriod the time after which it is.
	comparePause, comparePeriod = time.Hour, 24 * time.Hour
	// comparedTime is how far back a comparison goes, so that a day without one loses nothing.
	comparedTime = 72 * time.Hour
	// listTime bounds the list of one provider. A list that fails is tried listTries times in all, with a pause of listPause.
	listTime, listTries, listPause = 5 * time.Minute, 3, time.Minute
	// leftBehind is how long a list may take to end after its context has ended.
	leftBehind = 5 * time.Second
)

// StartComparing compares the payments with the lists of their providers once a day, until the task is stopped. Of all processes with the database
// one does so. It returns nil if no provider has a list.
func (p *Payments) StartComparing(db *store.DB, node string) *repeat.Task {
	for _, name := range p.names() {
		if _, lists := p.Providers[name].Provider.(payments.Lister); lists {
			return repeat.Start(comparePause, func(ctx context.Context) {
				if err := p.compareDue(ctx, db, node); err != nil && ctx.Err() == nil {
					p.Log.ErrorContext(ctx, "the comparison of payments did not begin; it is tried again within an hour", "error", err)
				}
			})
		}
	}
	return nil
}

// compareDue compares if no process has begun a comparison within the period.
func (p *Payments) compareDue(ctx context.Context, db *store.DB, node string) error {
	var due bool
	var now int64
	err := db.Exec(ctx, func(ctx context.Context, tx store.Tx) (err error) {
		now = tx.Now()
		due, err = store.Changed(ctx, tx, `INSERT INTO marks (name, node, at) VALUES ('payments', $1, $2)
			ON CONFLICT (name) DO UPDATE SET node = excluded.node, at = excluded.at WHERE marks.at <= $3 RETURNING name`,
			node, now+comparePeriod.Milliseconds(), now)
		return err
	})
	if err == nil && due {
		p.compareAll(ctx, now)
	}
	return err
}

// compareAll compares with the list of each provider that has one.
func (p *Payments) compareAll(ctx context.Context, now int64) {
	for _, name := range p.names() {
		lister, lists := p.Providers[name].Provider.(payments.Lister)
		for try := 1; lists && ctx.Err() == nil; try++ {
			err := p.compare(ctx, name, lister, now)
			if err == nil {
				break
			}
			p.Log.ErrorContext(ctx, "payments were not compared with the list of their provider; three tries are made each day",
				"provider", name, "try", try, "error", err)
			if try == listTries {
				break
			}
			_ = repeat.Pause(ctx, listPause)
		}
	}
}

// compare books the payments of the provider's list. It leaves a list behind that ignores the end of its context.
func (p *Payments) compare(ctx context.Context, name string, lister payments.Lister, now int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("the list took longer than %s", listTime))
	defer cancel()
	listed := make(chan error, 1)
	go func() {
		var failed error
		err := guard(func() error {
			return lister.List(ctx, time.UnixMilli(now).Add(-comparedTime), func(made payments.Payment) bool {
				if ctx.Err() != nil {
					return false
				}
				booked, err := p.book(ctx, name, &made)
				if err == nil && booked.CreatedAt >= now {
					p.Log.WarnContext(ctx, "a payment that was never delivered is on the list of its provider; it was booked",
						"provider", name, "payment", made.ID)
				}
				if failed == nil {
					failed = err
				}
				return err == nil || errors.Is(err, ErrUnread)
			})
		})
		listed <- errors.Join(err, failed)
	}()
	select {
	case err := <-listed:
		return err
	case <-ctx.Done():
		select {
		case err := <-listed:
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(leftBehind):
			return context.Cause(ctx)
		}
	}
}
