package gateway

import "sync"

// maxDrains bounds the calls of a configuration that go on without their client (see call.drain). One more is cut as soon as
// its client leaves.
const maxDrains = 256

// places are the bounded slots of calls that go on without their client.
type places struct {
	mu   sync.Mutex
	free int
	// taken counts by organization and by provider.
	taken map[placeOwner]int
}

// placeOwner is an organization or a provider; the other field is empty.
type placeOwner struct{ orgID, provider string }

func newPlaces(n int) *places { return &places{free: n, taken: map[placeOwner]int{}} }

// take takes a place if one is free, and reports whether it did. An organization gets no more than the number left for all others, and a provider
// no more than perProvider, so that neither clients that hang up nor a vendor that hangs use all places.
func (p *places) take(orgID, provider string, perProvider int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	org, vendor := placeOwner{orgID: orgID}, placeOwner{provider: provider}
	if p.taken[org] >= p.free || p.taken[vendor] >= perProvider {
		return false
	}
	p.free--
	p.taken[org]++
	p.taken[vendor]++
	return true
}

func (p *places) used(of int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return of - p.free
}

// give returns a place.
func (p *places) give(orgID, provider string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	for _, owner := range [...]placeOwner{{orgID: orgID}, {provider: provider}} {
		if p.taken[owner]--; p.taken[owner] == 0 {
			delete(p.taken, owner)
		}
	}
}
