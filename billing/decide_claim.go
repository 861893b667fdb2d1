package billing

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// claimKey names a claim: a client's key counts within its wallet.
type claimKey struct {
	wallet WalletID
	hash   [32]byte
}

func (k claimKey) compare(other claimKey) int {
	return cmp.Or(k.wallet.compare(other.wallet), bytes.Compare(k.hash[:], other.hash[:]))
}

// claimRow is a locked claim: as it was read, and as the batch leaves it.
type claimRow struct {
	claimState
	read claimState
}

// claimState is the content of a claim's row; its zero value is that of no row.
type claimState struct {
	callID      string
	fingerprint [32]byte
	done        bool
	leaseUntil  int64
	createdAt   int64
	finishedAt  int64 // known only when this batch finished it, like response
	response    []byte
	expiresAt   int64
}

func (s *claimState) exists() bool { return s.callID != "" }

// until returns the last moment at which the claim counts.
func (s *claimState) until() int64 {
	if s.done {
		return s.expiresAt
	}
	return s.leaseUntil
}

func (c *claimRow) changed() bool {
	return c.callID != c.read.callID || c.done != c.read.done || c.leaseUntil != c.read.leaseUntil
}

// claimAndHold decides a hold with an Idempotency-Key. finished is the call to be replayed.
func (b *books) claimAndHold(h Hold) (finished string, err error) {
	key := claimKey{h.Wallet, h.Claim.KeyHash}
	claim := b.claims[key]
	if claim == nil {
		claim = &claimRow{}
		b.claims[key] = claim
	}
	b.clear(claim)
	if claim.exists() {
		switch {
		case claim.fingerprint != h.Claim.Fingerprint:
			return "", ErrKeyReused
		case claim.done:
			return claim.callID, nil
		case claim.callID == h.CallID:
			return "", b.repeatsClaim(h)
		case !h.Claim.TakeOver:
			return "", ErrKeyInFlight
		}
		b.takeOver(claim)
	}
	if err := b.holdForClaim(h); err != nil {
		return "", err
	}
	end := b.now + max(1, h.ExpiresIn.Milliseconds())
	claim.claimState = claimState{
		callID: h.CallID, fingerprint: h.Claim.Fingerprint, leaseUntil: end, createdAt: b.now, expiresAt: end,
	}
	return "", nil
}

// takeOver frees a key from the call that has it, which can't be charged after that.
func (b *books) takeOver(claim *claimRow) {
	if hold := b.holds[claim.callID]; hold != nil && hold.status == holdOpen {
		b.release(hold)
	}
	claim.claimState = claimState{}
}

// holdForClaim reserves what a call with a new claim needs.
func (b *books) holdForClaim(h Hold) error {
	if known := b.holds[h.CallID]; known != nil {
		if err := known.repeats(h); err != nil {
			return err
		}
		return fmt.Errorf("%w: the call's hold was made without this idempotency key", ErrInvalid)
	}
	if h.AmountMicros > 0 {
		return b.reserve(h)
	}
	if _, ended := b.calls[h.CallID]; ended {
		return ErrCallEnded
	}
	if b.wallets[h.Wallet] == nil {
		// Nothing was locked, so another transaction could claim the same key.
		return fmt.Errorf("organization %q: %w", h.Wallet.OrgID, store.ErrNotFound)
	}
	return nil
}

// repeatsClaim decides a hold whose call has the key already: sent again, because its commit wasn't confirmed, it succeeds when
// it is the same hold.
func (b *books) repeatsClaim(h Hold) error {
	known := b.holds[h.CallID]
	switch {
	case known != nil:
		return known.repeats(h)
	case h.AmountMicros > 0:
		return fmt.Errorf("%w: the call's idempotency key was claimed without a hold", ErrInvalid)
	}
	return nil
}

// clear removes a claim whose time is over. One in progress expires its hold too, so that the call that lost its key can't be
// charged beside the one that gets it; while the hold stands, the claim stands.
func (b *books) clear(claim *claimRow) {
	if !claim.exists() || claim.until() >= b.now {
		return
	}
	if hold := b.holds[claim.callID]; !claim.done && hold != nil && hold.status == holdOpen && !b.expire(hold.id) {
		return
	}
	claim.claimState = claimState{}
}

// endClaim finishes or releases the key of a call that is being settled. A key that another call has taken over is left alone.
func (b *books) endClaim(s Settlement, settled Settled) {
	claim := b.claims[claimKey{s.Call.Wallet, s.Claim.KeyHash}]
	if claim == nil || claim.callID != s.Call.ID {
		return
	}
	if !s.Keep || settled.Expired {
		claim.claimState = claimState{}
		return
	}
	claim.done, claim.finishedAt, claim.expiresAt = true, b.now, b.now+cmp.Or(s.Claim.Life, KeyLife).Milliseconds()
	claim.response = s.Response
}

// sweepClaims removes the claims of expired holds and those whose time is over, and returns how many.
func (b *books) sweepClaims() (removed int) {
	for _, claim := range b.claims {
		if !claim.exists() {
			continue
		}
		if hold := b.holds[claim.callID]; !claim.done && hold != nil && hold.status == holdExpired {
			claim.claimState = claimState{}
		} else {
			b.clear(claim)
		}
		if !claim.exists() {
			removed++
		}
	}
	return removed
}
