package gateway

// RefuseCounts makes every count of tokens fail for want of a place in line.
func (g *Gateway) RefuseCounts() {
	g.tokens.line.mu.Lock()
	defer g.tokens.line.mu.Unlock()
	g.tokens.line.free, g.tokens.line.waiting = 0, maxCounts
}

// MaxDrains is how many calls may go on without their client.
const MaxDrains = maxDrains

// FillDrains takes all places.
func (g *Gateway) FillDrains() {
	g.drains.mu.Lock()
	defer g.drains.mu.Unlock()
	g.drains.free = 0
}
