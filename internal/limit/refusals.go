package limit

import (
	"sync"
	"time"
)

// refusals remembers the organizations that have used up their window, so that clients which ignore Retry-After cost the shared
// counter nothing. It is bounded by the organizations that are refused within two windows.
type refusals struct {
	mu    sync.Mutex
	byOrg map[string]refusal
	// forget is when the last refusal ends.
	forget time.Time
}

// refusal: until then the organization's requests are refused under a limit of at most limit.
type refusal struct {
	until time.Time
	limit int64
}

func newRefusals() *refusals { return &refusals{byOrg: make(map[string]refusal)} }

// remembered returns an earlier refusal that decides the request. After a raise of the limit, the counter decides.
func (r *refusals) remembered(orgID string, limit int64, now time.Time) (Decision, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	earlier, ok := r.byOrg[orgID]
	if !ok || !now.Before(earlier.until) || limit > earlier.limit {
		return Decision{}, false
	}
	return decide(limit, limit, earlier.until.Sub(now)), true
}

// forgive drops an organization's refusal, because a permit was returned.
func (r *refusals) forgive(orgID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byOrg, orgID)
}

// remember keeps d if it is a refusal. asked is the time before the counter was asked, so that a refusal ends a little early,
// never late.
func (r *refusals) remember(orgID string, d Decision, asked time.Time) {
	if d.Allowed {
		return
	}
	until := asked.Add(d.ResetIn)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !asked.Before(r.forget) {
		clear(r.byOrg)
	}
	if until.After(r.forget) {
		r.forget = until
	}
	r.byOrg[orgID] = refusal{until: until, limit: d.Limit}
}
