package gateway

import (
	"context"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
)

// RefuseCounts makes every count of tokens fail for want of a place in line.
func (g *Gateway) RefuseCounts() {
	g.tokens.line = dispatch.NewTurns(dispatch.Bounds{})
}

// MaxDrains is how many calls may go on without their client.
const MaxDrains = maxDrains

// FillDrains takes all places.
func (g *Gateway) FillDrains() {
	g.drains.mu.Lock()
	defer g.drains.mu.Unlock()
	g.drains.running = map[placeOwner]int{{}: maxDrains}
}

// Untraced does what a call does for traces when its request isn't traced.
func Untraced(ctx context.Context) {
	var c call
	c.startSpan(ctx)
	c.endSpan(OutcomeCompleted, billing.Usage{}, billing.UsageProvider)
}
