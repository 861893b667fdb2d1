package driver

import (
	"context"
	"slices"
)

// Windows counts requests in windows of one minute of the database's clock, for all processes that share the database: in one
// window at most the limit is admitted. Requests that arrive while others are counted share the next round trip. What was
// counted is durable. An error may come after the request was counted.
type Windows interface {
	// Take counts one request under a limit above 0 in the window of a name, if it is admitted.
	Take(ctx context.Context, name string, limit int64) (Permit, error)
	// Key reads a key as [HotReader] does. In the same round trip it counts one request in the window of the key's organization,
	// if the key may be used and has the scopes, the organization isn't suspended, and its plan has a limit: the record has the
	// permit.
	Key(ctx context.Context, hash [32]byte, terms *KeyTerms) (KeyRecord, bool, error)
	// Return uncounts one request in the window of a name that begins at window. It doesn't wait.
	Return(name string, window int64) error
}

// KeyTerms are the conditions under which a request is counted with its key. Requests with the same pointer share statements.
type KeyTerms struct {
	// Scopes are required of the key, all of them.
	Scopes []string
	// Plans and PerMinute are the plans and their limits, 0 for none. The first one is also for organizations without a known
	// plan.
	Plans     []string
	PerMinute []int64
}

// Limit returns the limit of a plan, 0 for none.
func (t *KeyTerms) Limit(plan string) int64 {
	if len(t.Plans) == 0 {
		return 0
	}
	return t.PerMinute[max(slices.Index(t.Plans, plan), 0)]
}

// Permit is what a window says about one request. The zero value says that it wasn't asked.
type Permit struct {
	// Before is how many requests the window had admitted before this one, which is admitted if that is less than the limit.
	Before int64
	// Window is the window's beginning, and NowMS the database's clock, in epoch milliseconds.
	Window, NowMS int64
}
