package identity

import (
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// NewCheapSessions are sessions whose passwords cost next to nothing, for tests that sign in many times.
func NewCheapSessions(db *store.DB) *Sessions {
	s := NewSessions(db, nil)
	s.passwords.cost = hashCost{memory: 8, time: 1, threads: 1}
	return s
}

// Occupy takes every turn that strangers have to check a password until release, and leaves no place to wait for one.
func (s *Sessions) Occupy() (release func()) {
	patience := s.passwords.patience
	s.passwords.patience = time.Nanosecond
	for range cap(s.passwords.turns) {
		s.passwords.turns <- struct{}{}
	}
	return func() {
		s.passwords.patience = patience
		for range cap(s.passwords.turns) {
			<-s.passwords.turns
		}
	}
}
