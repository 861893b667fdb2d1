package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// books are the load's own account of what was served.
type books struct {
	startMicros int64
	answers     int64
	charged     int64
	freeCharged int64
	// calls and tokens are those of answers through the gateway, paid or free.
	calls, tokens int64
}

func (b *books) add(v variant, f figures) {
	b.answers += int64(f.answers)
	if v.isCall() {
		b.calls += int64(f.answers)
		b.tokens += f.tokens
	}
	if v == free {
		b.freeCharged += f.charged
	} else {
		b.charged += f.charged
	}
}

// check compares the load's account with the upstream's and the wallets'.
func (b *books) check(ctx context.Context, p *product) error {
	end, err := p.balance(ctx)
	if err != nil {
		return err
	}
	var faults []error
	if got := p.upstream.answers.Load(); got != b.answers {
		faults = append(faults, fmt.Errorf("the upstream answered %d requests, the clients got %d answers", got, b.answers))
	}
	if lost := b.startMicros - end; lost != b.charged {
		faults = append(faults, fmt.Errorf("the wallets lost %d micros, the answers charged %d", lost, b.charged))
	}
	if b.freeCharged != 0 {
		faults = append(faults, fmt.Errorf("calls with the organization's own key were charged %d micros", b.freeCharged))
	}
	if err := b.checkUsage(ctx, p); err != nil {
		faults = append(faults, err)
	}
	if err := p.doctor(ctx); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// report says what check has found to be true.
func (b *books) report() {
	fmt.Printf("books: %d answers, upstream the same; %d micros charged, wallets the same; %d tokens served, calls the same; doctor clean\n",
		b.answers, b.charged, b.tokens)
}

// checkUsage compares the tokens in the answers with those of the calls in the database. Free calls are recorded
// a second later at the latest.
func (b *books) checkUsage(ctx context.Context, p *product) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := store.Open(ctx, p.place.location, store.Options{})
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close(ctx) //nolint:errcheck // it was only read
	var calls, tokens int64
	for {
		err := db.Reader().QueryRowContext(ctx, `SELECT count(*), CAST(coalesce(sum(prompt_tokens + completion_tokens), 0) AS BIGINT) FROM calls`).Scan(&calls, &tokens)
		if err != nil {
			return fmt.Errorf("the database has %d calls of %d with %d tokens of %d: %w", calls, b.calls, tokens, b.tokens, err)
		}
		if calls == b.calls && tokens == b.tokens {
			return nil
		}
		<-time.After(50 * time.Millisecond)
	}
}
