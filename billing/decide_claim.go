package billing

import (
	"bytes"
	"cmp"
)

// claimKey names a claim. A client's key counts within its wallet.
type claimKey struct {
	wallet WalletID
	hash   [32]byte
}

func (k claimKey) compare(other claimKey) int {
	return cmp.Or(k.wallet.compare(other.wallet), bytes.Compare(k.hash[:], other.hash[:]))
}

// claimRow is a locked claim: as read, and as the batch leaves it.
type claimRow struct {
	claimState

	key      claimKey
	read     claimState
	response []byte // kept answer of a call that this batch settled
}

// claimState is the content of a claim's row. The zero value means that there is no row.
type claimState struct {
	callID      string
	fingerprint [32]byte
	done        bool
	reserved    int64  // micros, while its call runs
	budgets     string // the names of the periods in which they are reserved
	kept        int64  // bytes of the answer, when it is done
	until       int64  // last moment at which the claim counts
}

func (s *claimState) exists() bool { return s.callID != "" }

// lostBy reports whether another call has the call's key. A call without a key has a nil claim and loses no key.
func (c *claimRow) lostBy(callID string) bool { return c != nil && c.exists() && c.callID != callID }

// claim returns the row of a key, which may not exist.
func (b *books) claim(key claimKey) *claimRow {
	claim := b.claims[key]
	if claim == nil {
		claim = &claimRow{key: key}
		b.claims[key] = claim
	}
	return claim
}

// claimAndHold decides a hold with an Idempotency-Key. finished is the call to replay.
func (b *books) claimAndHold(h Hold) (finished string, err error) {
	wallet, claim := b.wallets[h.Wallet], b.claim(claimKey{h.Wallet, h.Claim.KeyHash})
	b.clear(wallet, claim)
	if claim.exists() {
		switch {
		case claim.fingerprint != h.Claim.Fingerprint:
			return "", ErrKeyReused
		case claim.done:
			return claim.callID, nil
		case claim.callID == h.CallID:
			return "", repeats(h, h.Wallet, claim.reserved)
		}
		return "", ErrKeyInFlight
	}
	periods, err := b.reserve(h)
	if err != nil {
		return "", err
	}
	claim.claimState = claimState{
		callID: h.CallID, fingerprint: h.Claim.Fingerprint, reserved: h.AmountMicros, budgets: periods, until: b.end(h),
	}
	return "", nil
}

// clear frees an expired key. A call in progress with this key also loses its reservation.
func (b *books) clear(wallet *walletRow, claim *claimRow) (cleared bool) {
	if !claim.exists() || claim.until >= b.now || wallet == nil {
		return false
	}
	if !claim.done && claim.reserved > 0 {
		b.lose(claim.callID, claim.reserved)
	}
	b.free(wallet, claim)
	return true
}

// free ends a claim with its reservation and its kept answer. Its call can't be charged once another has the key.
func (b *books) free(wallet *walletRow, claim *claimRow) {
	b.change(claim.key.wallet, claim.budgets, -claim.reserved)
	wallet.kept -= claim.kept
	claim.claimState, claim.response = claimState{}, nil
}

// endClaim finishes or releases the key of a call that is being settled. It changes nothing if another call has the key or the key is finished. If
// the key's row is gone because the call came late, and the call keeps its answer and is charged, the key is finished without the answer, so that
// no second call is charged for it.
func (b *books) endClaim(op *settleOp, claim *claimRow, wallet *walletRow, paid int64) {
	late := !claim.exists()
	switch {
	case claim.lostBy(op.Call.ID) || claim.done:
		return
	case !op.Keep || (late && paid == 0):
		if !late && wallet != nil {
			b.free(wallet, claim)
		}
		return
	}
	if late {
		claim.callID, claim.fingerprint = op.Call.ID, op.Claim.Fingerprint
	}
	claim.done, claim.until = true, b.now+KeyLife.Milliseconds()
	if size := int64(len(op.Response)); !late && wallet != nil && wallet.kept+size <= op.keptBytes {
		claim.kept, claim.response = size, op.Response
		wallet.kept += size
	}
}
