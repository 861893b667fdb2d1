package handlers

import "sync/atomic"

// ByteBudget bounds the bytes of request bodies that are held in memory at once, over all requests (design §4 `limits`).
// A nil budget is unlimited; a zero one admits no body at all.
type ByteBudget struct {
	limit, used atomic.Int64
}

// NewByteBudget returns a budget of limit bytes.
func NewByteBudget(limit int64) *ByteBudget {
	b := &ByteBudget{}
	b.limit.Store(limit)
	return b
}

// SetLimit changes the limit for bodies that come later, so that one budget outlives a configuration.
func (b *ByteBudget) SetLimit(limit int64) { b.limit.Store(limit) }

// Used returns the bytes that are held now.
func (b *ByteBudget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Take charges n bytes and reports true, or charges nothing when they don't fit.
func (b *ByteBudget) Take(n int64) bool {
	if b == nil {
		return true
	}
	if b.used.Add(n) > b.limit.Load() {
		b.used.Add(-n)
		return false
	}
	return true
}

// Give returns n bytes that were taken.
func (b *ByteBudget) Give(n int64) {
	if b != nil {
		b.used.Add(-n)
	}
}
