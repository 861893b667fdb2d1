package limit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Windows counts in a PostgreSQL, for the processes that share it. Requests that arrive together share a round trip; a refused one
// costs nothing until the window ends, because this process remembers the refusal. It is safe for concurrent use.
type Windows struct {
	counter store.Windows
	clock   func() time.Time
	refused *refusals
	plain   plainKeys
}

// NewStore returns a counter in a database, see [store.DB.Windows].
func NewStore(counter store.Windows) *Windows { return newWindows(counter, time.Now) }

func newWindows(counter store.Windows, clock func() time.Time) *Windows {
	return &Windows{counter: counter, clock: clock, refused: newRefusals()}
}

// Take implements [Limiter]. The window is that of the database's clock.
func (w *Windows) Take(ctx context.Context, orgID string, limit int64) (Decision, error) {
	if limit <= 0 {
		return unlimited(), nil
	}
	asked := w.clock()
	if d, ok := w.refused.remembered(orgID, limit, asked); ok {
		return d, nil
	}
	permit, err := w.counter.Take(ctx, orgID, limit)
	if err != nil {
		return Decision{}, fmt.Errorf("counting a request: %w", err)
	}
	d := Permitted(permit, limit)
	w.refused.remember(orgID, d, asked)
	return d, nil
}

// Return implements [Returner].
func (w *Windows) Return(orgID string, decision Decision) {
	if decision.window == 0 {
		return
	}
	w.refused.forgive(orgID)
	// A permit that can't be returned stays counted.
	_ = w.counter.Return(orgID, decision.window)
}

// Permitted returns the decision on a request that the store was asked for under a limit above 0.
func Permitted(permit store.Permit, limit int64) Decision {
	d := decide(permit.Before, limit, time.Duration(permit.Window+window.Milliseconds()-permit.NowMS)*time.Millisecond)
	if d.Allowed {
		d.window = permit.Window
	}
	return d
}

// KeyReader reads a key by its hash, as [store.APIKeys] does.
type KeyReader interface {
	ByHash(ctx context.Context, hash [32]byte) (store.KeyRecord, bool, error)
}

// Keys returns a reader that counts the request of each key it reads, in the same round trip, by terms. A record without a permit wasn't
// counted, so [Windows.Take] decides: of keys that may not be used, and for a minute of keys without a limit, which don't wait for the
// commits of others, and of refused keys.
func (w *Windows) Keys(keys KeyReader, terms *store.KeyTerms) KeyReader {
	return countedKeys{w, keys, terms}
}

type countedKeys struct {
	windows *Windows
	keys    KeyReader
	terms   *store.KeyTerms
}

// ByHash implements [KeyReader].
func (k countedKeys) ByHash(ctx context.Context, hash [32]byte) (store.KeyRecord, bool, error) {
	w, asked := k.windows, k.windows.clock()
	if w.plain.has(hash, asked) {
		return k.keys.ByHash(ctx, hash)
	}
	record, found, err := w.counter.Key(ctx, hash, k.terms)
	if err != nil || !found {
		return record, found, err
	}
	limit := k.terms.Limit(record.Plan)
	if limit <= 0 {
		w.plain.add(hash, asked.Add(window))
		return record, true, nil
	}
	if record.Permit.Window == 0 {
		return record, true, nil
	}
	if d := Permitted(record.Permit, limit); !d.Allowed {
		w.refused.remember(record.OrgID, d, asked)
		w.plain.add(hash, asked.Add(d.ResetIn))
	}
	return record, true, nil
}

// plainKeys are keys that need not be counted with the look-up for some time. The zero value is empty.
type plainKeys struct {
	mu     sync.Mutex
	byHash map[[32]byte]time.Time
}

// maxPlainKeys bounds the keys that are remembered; others are only looked up a little more dearly.
const maxPlainKeys = 8192

func (p *plainKeys) has(hash [32]byte, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.byHash[hash]
	if ok && !now.Before(until) {
		delete(p.byHash, hash)
		return false
	}
	return ok
}

func (p *plainKeys) add(hash [32]byte, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byHash == nil || len(p.byHash) >= maxPlainKeys {
		p.byHash = make(map[[32]byte]time.Time)
	}
	p.byHash[hash] = until
}

// Limiter counts the requests of organizations in windows of one minute: [Memory], [Windows] or [Redis].
type Limiter interface {
	// Take counts one request of the organization under the limit of requests per window, if it is admitted; a limit of 0 or
	// less is none. An error is a fault of the counter or the end of ctx, after which the request may have been counted.
	Take(ctx context.Context, orgID string, limit int64) (Decision, error)
}

// Returner is a [Limiter] to which a permit can be returned, for a request that was admitted and then refused because of the
// service's own load. [Memory] and [Windows] implement it; Redis isn't asked again for a request that has failed.
type Returner interface {
	// Return uncounts the request that decision admitted, unless its window is over. It doesn't wait, and may fail silently:
	// then the request stays counted.
	Return(orgID string, decision Decision)
}

var (
	_ Returner = (*Memory)(nil)
	_ Returner = (*Windows)(nil)

	_ Limiter = (*Memory)(nil)
	_ Limiter = (*Windows)(nil)
	_ Limiter = (*Redis)(nil)
)
