package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// NewCheapSessions are sessions whose passwords cost next to nothing, for tests that sign in many times.
func NewCheapSessions(db *store.DB) *Sessions {
	s := NewSessions(db, nil, nil)
	s.passwords.cost = hashCost{memory: 8, time: 1, threads: 1}
	return s
}

// Seal sets the keys that seal second factors.
func (s *Sessions) Seal(ring *vault.Ring) { s.factors.ring = ring }

// NewCheapOperators is [NewCheapSessions] for operators.
func NewCheapOperators(db *store.DB, ring *vault.Ring) *Operators {
	o := NewOperators(db, ring, nil)
	o.passwords.cost = hashCost{memory: 8, time: 1, threads: 1}
	return o
}

// Occupy takes every turn that strangers have to check a password until release, and lets nobody wait for one.
func (s *Sessions) Occupy() (release func()) {
	patience := s.passwords.patience
	s.passwords.patience = time.Nanosecond
	holders := make([]string, strangersHashes())
	for i := range holders {
		holders[i] = fmt.Sprint("holder ", i)
		if err := s.passwords.strangers.Enter(context.Background(), holders[i]); err != nil {
			panic(err)
		}
	}
	return func() {
		s.passwords.patience = patience
		for _, holder := range holders {
			s.passwords.strangers.Leave(holder)
		}
	}
}

// Checksum returns the last six digits of a key that begins with body.
func Checksum(body string) string { return checksum(body) }
