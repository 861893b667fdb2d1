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
		return `SELECT org_id, env, key_hash, fingerprint, call_id, done, reserved_micros, kept_bytes, until
			FROM idempotency_keys WHERE ` + strings.Join(match, " OR ") + ` ORDER BY org_id, env, key_hash`
	})
	insertClaims = listSizes.Statement(`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, done, reserved_micros,
		kept_bytes, until) {list}`, 9, 0)
)

const (
	selectDueClaims = `SELECT org_id, env, key_hash FROM idempotency_keys WHERE done = $1 AND until < $2 ORDER BY until LIMIT $3`

	// The row must be as it was read: that of the same call, in the same state.
	finishClaim = `UPDATE idempotency_keys SET done = $1, reserved_micros = 0, kept_bytes = $2, until = $3
		WHERE org_id = $4 AND env = $5 AND key_hash = $6 AND call_id = $7 AND done = $8`
	deleteClaim = `DELETE FROM idempotency_keys
		WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4 AND done = $5`
	insertAnswer = `INSERT INTO kept_answers (org_id, env, call_id, response) VALUES ($1, $2, $3, $4)`
	deleteAnswer = `DELETE FROM kept_answers WHERE org_id = $1 AND env = $2 AND call_id = $3`
)

// queueClaims locks claims, sorted by key, until the transaction ends, and reads them.
func queueClaims(tx store.Tx, keys []claimKey, books *books) {
	for size, chunk := range store.Padded(listSizes, keys) {
		args := make([]any, 0, 3*len(chunk))
		for _, key := range chunk {
			args = append(args, key.wallet.OrgID, string(key.wallet.Env), key.hash[:])
		}
		tx.QueueQuery(func(row store.Row) error {
			var key claimKey
			var claim claimRow
			var env string
			var hash, fingerprint []byte
			err := row.Scan(&key.wallet.OrgID, &env, &hash, &fingerprint, &claim.callID, &claim.done, &claim.reserved, &claim.kept,
				&claim.until)
			if err != nil {
				return err
			}
			key.wallet.Env = store.Env(env)
			copy(key.hash[:], hash)
			copy(claim.fingerprint[:], fingerprint)
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

// writeClaims deletes before it inserts: a key may go from a call to another within a batch, or be claimed anew by the call that had it.
func (b *books) writeClaims(tx store.Tx) {
	keys := make([]claimKey, 0, len(b.claims))
	for key, claim := range b.claims {
		if claim.claimState != claim.read {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, claimKey.compare)
	inserted := keys[:0:0]
	for _, key := range keys {
		claim, org, env := b.claims[key], key.wallet.OrgID, string(key.wallet.Env)
		read := &claim.read
		finishes := claim.done && claim.callID == read.callID
		switch {
		case finishes:
			tx.Queue(1, finishClaim, claim.done, claim.kept, claim.until, org, env, key.hash[:], read.callID, read.done)
		case read.exists():
			tx.Queue(1, deleteClaim, org, env, key.hash[:], read.callID, read.done)
			if read.kept > 0 {
				tx.Queue(1, deleteAnswer, org, env, read.callID)
			}
		}
		if claim.exists() && !finishes {
			inserted = append(inserted, key)
		}
		if len(claim.response) > 0 {
			tx.Queue(store.AnyRows, insertAnswer, org, env, claim.callID, claim.response)
		}
	}
	store.EachExact(listSizes, inserted, func(size int, chunk []claimKey) {
		args := make([]any, 0, 9*len(chunk))
		for _, key := range chunk {
			claim := b.claims[key]
			args = append(args, key.wallet.OrgID, string(key.wallet.Env), key.hash[:], claim.fingerprint[:], claim.callID, claim.done,
				claim.reserved, claim.kept, claim.until)
		}
		tx.Queue(store.AnyRows, insertClaims[size], args...)
	})
}
