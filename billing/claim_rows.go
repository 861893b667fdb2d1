package billing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectClaims = listSizes.Build(func(keys int) string {
		match := make([]string, keys)
		for i := range match {
			match[i] = fmt.Sprintf("(org_id = $%d AND env = $%d AND key_hash = $%d)", 3*i+1, 3*i+2, 3*i+3)
		}
		return `SELECT org_id, env, key_hash, fingerprint, state, call_id, lease_until, created_at, expires_at
			FROM idempotency_keys WHERE ` + strings.Join(match, " OR ") + ` ORDER BY org_id, env, key_hash`
	})
	selectClaimsOfCalls = listSizes.Statement(`SELECT org_id, env, key_hash FROM idempotency_keys
		WHERE state = 'in_progress' AND call_id IN {list}`, 1, 0)
	insertClaims = listSizes.Statement(`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, state, call_id,
		lease_until, response, created_at, finished_at, expires_at) {list}`, 11, 0)
)

const (
	selectLapsedClaims = `SELECT org_id, env, key_hash FROM idempotency_keys
		WHERE state = 'in_progress' AND lease_until < $1 ORDER BY lease_until LIMIT $2`
	selectOldClaims = `SELECT org_id, env, key_hash FROM idempotency_keys
		WHERE state = 'done' AND expires_at < $1 ORDER BY expires_at LIMIT $2`

	// The row must be as it was read: that of the same call, in the same state.
	updateClaim = `UPDATE idempotency_keys SET fingerprint = $1, state = $2, call_id = $3, lease_until = $4, response = $5,
		created_at = $6, finished_at = $7, expires_at = $8
		WHERE org_id = $9 AND env = $10 AND key_hash = $11 AND call_id = $12 AND state = $13`
	deleteClaim = `DELETE FROM idempotency_keys
		WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4 AND state = $5`
)

// Names of a claim's states in its row.
const (
	claimInProgress = "in_progress"
	claimDone       = "done"
)

func (s *claimState) name() string {
	if s.done {
		return claimDone
	}
	return claimInProgress
}

// queueClaims locks claims, sorted by key, until the transaction ends, and reads them without their transcripts.
func queueClaims(tx store.Tx, keys []claimKey, books *books) {
	for size, chunk := range store.Padded(listSizes, keys) {
		args := make([]any, 0, 3*len(chunk))
		for _, key := range chunk {
			args = append(args, key.wallet.OrgID, string(key.wallet.Env), key.hash[:])
		}
		tx.QueueQuery(func(row store.Row) error {
			var key claimKey
			var claim claimRow
			var env, state string
			var hash, fingerprint []byte
			err := row.Scan(&key.wallet.OrgID, &env, &hash, &fingerprint, &state,
				&claim.callID, &claim.leaseUntil, &claim.createdAt, &claim.expiresAt)
			if err != nil {
				return err
			}
			key.wallet.Env = store.Env(env)
			copy(key.hash[:], hash)
			copy(claim.fingerprint[:], fingerprint)
			claim.done = state == claimDone
			claim.read = claim.claimState
			books.claims[key] = &claim
			return nil
		}, selectClaims[size]+tx.LockRows(), args...)
	}
}

// collectClaimKeys scans the keys of claims into keys.
func collectClaimKeys(keys *[]claimKey) func(store.Row) error {
	return func(row store.Row) error {
		var key claimKey
		var env string
		var hash []byte
		if err := row.Scan(&key.wallet.OrgID, &env, &hash); err != nil {
			return err
		}
		key.wallet.Env = store.Env(env)
		copy(key.hash[:], hash)
		*keys = append(*keys, key)
		return nil
	}
}

// writeClaims deletes first: a call has one claim, and may exchange it for another within a batch.
func (b *books) writeClaims(tx store.Tx) {
	var deleted, updated, inserted []claimKey
	for key, claim := range b.claims {
		switch {
		case !claim.changed():
		case !claim.exists():
			deleted = append(deleted, key)
		case claim.read.exists():
			updated = append(updated, key)
		default:
			inserted = append(inserted, key)
		}
	}
	for _, keys := range [][]claimKey{deleted, updated, inserted} {
		slices.SortFunc(keys, claimKey.compare)
	}
	for _, key := range deleted {
		read := &b.claims[key].read
		tx.Queue(1, deleteClaim, key.wallet.OrgID, string(key.wallet.Env), key.hash[:], read.callID, read.name())
	}
	for _, key := range updated {
		claim := b.claims[key]
		tx.Queue(1, updateClaim, claim.fingerprint[:], claim.name(), claim.callID, claim.leaseUntil, claim.response,
			claim.createdAt, claim.finishedColumn(), claim.expiresAt,
			key.wallet.OrgID, string(key.wallet.Env), key.hash[:], claim.read.callID, claim.read.name())
	}
	store.EachExact(listSizes, inserted, func(size int, chunk []claimKey) {
		args := make([]any, 0, 11*len(chunk))
		for _, key := range chunk {
			claim := b.claims[key]
			args = append(args, key.wallet.OrgID, string(key.wallet.Env), key.hash[:], claim.fingerprint[:], claim.name(),
				claim.callID, claim.leaseUntil, claim.response, claim.createdAt, claim.finishedColumn(), claim.expiresAt)
		}
		tx.Queue(store.AnyRows, insertClaims[size], args...)
	})
}

func (s *claimState) finishedColumn() any {
	if s.done {
		return s.finishedAt
	}
	return nil
}
