package gateway

// RefuseCounts makes every count of tokens fail for want of a place in line.
func (g *Gateway) RefuseCounts() {
	g.tokens.line.mu.Lock()
	defer g.tokens.line.mu.Unlock()
	g.tokens.line.free, g.tokens.line.waiting = 0, maxCounts
}
