package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
)

// Bounds of a delivery that a tenant's own secret signed, in messages and events. The tenant can sign deliveries of any content, and all
// deliveries share one writer, so that a transaction with 50,000 messages would hold up everyone's for seconds.
const (
	// maxOwn is the limit for a whole delivery. Platforms put up to 1,000 into one.
	maxOwn = 1000
	// maxOwnWrite is the limit for one transaction.
	maxOwnWrite = 100
	// shortOwn is the limit for a delivery that waits for no turn.
	shortOwn = 10
)

// longDeliveries bounds the deliveries of more than shortOwn that are stored, or wait, at a time. A waiting one keeps its texts in memory.
var longDeliveries = dispatch.Bounds{Places: 2, Each: 1, Line: 2, Lines: 16}

// enqueueOwn stores a delivery that a tenant's own secret signed. It stores a long one in several transactions, between which other
// organizations have their turns. After an error a part of it may be stored, which the platform's repetition completes, because the queue
// merges items that it already has.
func (h *Webhooks) enqueueOwn(ctx context.Context, arrivals []inbox.Arrival) error {
	count := 0
	for i := range arrivals {
		count += len(arrivals[i].Items)
	}
	switch {
	case count > maxOwn:
		return handlers.InvalidRequest("", "The delivery has more than %d messages.", maxOwn)
	case count <= shortOwn:
		return h.queue.Enqueue(ctx, arrivals)
	}
	owner := arrivals[0].Route.OrgID // of all channels with the same secret
	if err := h.turns.Enter(ctx, owner); err != nil {
		return waitRefusal(err)
	}
	holds := true
	defer func() {
		if holds {
			h.turns.Leave(owner)
		}
	}()
	for rest := arrivals; ; {
		var some []inbox.Arrival
		some, rest = cut(rest, maxOwnWrite)
		if err := h.queue.Enqueue(ctx, some); err != nil {
			return err
		}
		if len(rest) == 0 {
			return nil
		}
		if err := h.turns.Pass(ctx, owner); err != nil {
			holds = false
			return waitRefusal(err)
		}
	}
}

// waitRefusal returns the error for a delivery that got no turn.
func waitRefusal(err error) error {
	if errors.Is(err, dispatch.ErrBusy) {
		return handlers.Busy(webhookRetryAfter, err) // no 429, after which platforms don't deliver again
	}
	return fmt.Errorf("waiting for the organization's turn: %w", err)
}

// cut splits arrivals after most items.
func cut(arrivals []inbox.Arrival, most int) (first, rest []inbox.Arrival) {
	for i, arrival := range arrivals {
		if n := len(arrival.Items); n < most {
			most -= n
			continue
		}
		first = append(first, arrivals[:i]...)
		first = append(first, inbox.Arrival{Route: arrival.Route, Items: arrival.Items[:most]})
		rest = arrivals[i+1:]
		if most < len(arrival.Items) {
			rest = append([]inbox.Arrival{{Route: arrival.Route, Items: arrival.Items[most:]}}, rest...)
		}
		return first, rest
	}
	return arrivals, nil
}
