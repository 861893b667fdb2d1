package identity

import "github.com/caddy-svc/caddy-svc/internal/store"

// NewCheapSessions are sessions whose passwords cost next to nothing, for tests that sign in many times.
func NewCheapSessions(db *store.DB) *Sessions {
	s := NewSessions(db)
	s.passwords.cost = hashCost{memory: 8, time: 1, threads: 1}
	return s
}
