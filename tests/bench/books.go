package main

import (
	"context"
	"errors"
	"fmt"
)

// books are the load's own account of what was served.
type books struct {
	startMicros int64
	answers     int64
	charged     int64
	freeCharged int64
}

func (b *books) add(v variant, f figures) {
	b.answers += int64(f.answers)
	switch v {
	case paid:
		b.charged += f.charged
	case free:
		b.freeCharged += f.charged
	case proxied:
	}
}

// check compares the load's account with the upstream's and the wallet's.
func (b *books) check(ctx context.Context, p *product, u *upstream) error {
	end, err := p.balance(ctx)
	if err != nil {
		return err
	}
	var faults []error
	if got := u.answers.Load(); got != b.answers {
		faults = append(faults, fmt.Errorf("the upstream answered %d requests, the clients got %d answers", got, b.answers))
	}
	if lost := b.startMicros - end; lost != b.charged {
		faults = append(faults, fmt.Errorf("the wallet lost %d micros, the answers charged %d", lost, b.charged))
	}
	if b.freeCharged != 0 {
		faults = append(faults, fmt.Errorf("calls with the organization's own key were charged %d micros", b.freeCharged))
	}
	if err := p.doctor(ctx); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Printf("\nbooks: %d answers, upstream the same; %d micros charged, wallet the same; doctor clean\n", b.answers, b.charged)
	return nil
}
