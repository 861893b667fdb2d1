package billing

import (
	"context"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	claimTypes    = []string{"text", "text", "bytea"}
	claimRowTypes = append(slices.Clip(claimTypes), "bytea", "text", "bigint", "bigint")

	selectRunning = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, reserved_micros, expires_at FROM wanted CROSS JOIN running_keys k`+isWanted, wantedTypes...)
	selectFinished = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, kept_bytes, until FROM wanted CROSS JOIN idempotency_keys k`+isWanted, wantedTypes...)
	wantedTypes = append([]string{"bigint"}, claimTypes...)

	insertRunning = listSizes.Rows(`INSERT INTO running_keys (org_id, env, key_hash, fingerprint, call_id, reserved_micros, expires_at) {list}`,
		claimRowTypes...)
	insertFinished = listSizes.Rows(`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, kept_bytes, until) {list}`,
		claimRowTypes...)
	insertAnswers = listSizes.Rows(`INSERT INTO kept_answers (org_id, env, call_id, response) {list}`, "text", "text", "text", "bytea")
)

const (
	isWanted = ` WHERE k.org_id = wanted.org_id AND k.env = wanted.env AND k.key_hash = wanted.key_hash`

	selectDueRunning  = `SELECT org_id, env, key_hash FROM running_keys WHERE expires_at < $1 ORDER BY expires_at LIMIT $2`
	selectDueFinished = `SELECT org_id, env, key_hash FROM idempotency_keys WHERE until < $1 ORDER BY until LIMIT $2`

	// The row must be as it was read: that of the same call.
	deleteRunning  = `DELETE FROM running_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteFinished = `DELETE FROM idempotency_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteAnswer   = `DELETE FROM kept_answers WHERE org_id = $1 AND env = $2 AND call_id = $3`
)

// queueClaims reads claims in progress, or those of calls that have ended. The lock of their wallets protects both.
func queueClaims(tx store.Tx, done bool, keys []claimKey, books *books) {
	statement := selectRunning
	if done {
		statement = selectFinished
	}
	numbers := make([]int64, len(keys))
	for i := range keys {
		numbers[i] = int64(i)
	}
	statement.QueueLookup(tx, func(row store.Row) error {
		claim := &claimRow{claimState: claimState{done: done}}
		amount := &claim.reserved
		if done {
			amount = &claim.kept
		}
		var i int
		var fingerprint []byte
		if err := row.Scan(&i, &fingerprint, &claim.callID, amount, &claim.until); err != nil {
			return err
		}
		copy(claim.fingerprint[:], fingerprint)
		claim.read = claim.claimState
		books.claims[keys[i]] = claim
		return nil
	}, append([]any{numbers}, claimColumns(keys)...)...)
}

// claimColumns returns the key of each claim as columns.
func claimColumns(keys []claimKey) []any {
	orgs, envs, hashes := make([]string, len(keys)), make([]string, len(keys)), make([][]byte, len(keys))
	for i := range keys {
		orgs[i], envs[i], hashes[i] = keys[i].wallet.OrgID, string(keys[i].wallet.Env), keys[i].hash[:]
	}
	return []any{orgs, envs, hashes}
}

// readDueClaims returns the keys of claims whose time is over, oldest first. It takes no lock: they are read again under that of their wallets.
func readDueClaims(ctx context.Context, tx store.Tx, text string) (due []claimKey, err error) {
	err = tx.Query(ctx, func(row store.Row) error {
		var key claimKey
		var env string
		var hash []byte
		err := row.Scan(&key.wallet.OrgID, &env, &hash)
		key.wallet.Env = store.Env(env)
		copy(key.hash[:], hash)
		due = append(due, key)
		return err
	}, text, tx.Now(), int64(sweepLimit))
	return due, err
}

// writeClaims deletes each changed claim as it was read before it inserts those that stand, so that a key may go from a call to another.
func (b *books) writeClaims(tx store.Tx) {
	keys := make([]claimKey, 0, len(b.claims))
	for key, claim := range b.claims {
		if claim.claimState != claim.read {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, claimKey.compare)
	var running, finished, kept []claimKey
	for i, key := range keys {
		claim := b.claims[key]
		if read := &claim.read; read.exists() {
			text := deleteRunning
			if read.done {
				text = deleteFinished
			}
			tx.Queue(1, text, key.wallet.OrgID, string(key.wallet.Env), keys[i].hash[:], read.callID)
			if read.kept > 0 {
				tx.Queue(1, deleteAnswer, key.wallet.OrgID, string(key.wallet.Env), read.callID)
			}
		}
		switch {
		case !claim.exists():
		case !claim.done:
			running = append(running, key)
		default:
			finished = append(finished, key)
			if claim.kept > 0 {
				kept = append(kept, key)
			}
		}
	}
	b.insertClaims(tx, insertRunning, running)
	b.insertClaims(tx, insertFinished, finished)
	b.insertAnswers(tx, kept)
}

// insertClaims inserts claims into one of the two tables.
func (b *books) insertClaims(tx store.Tx, insert store.RowStatement, keys []claimKey) {
	fingerprints, calls := make([][]byte, len(keys)), make([]string, len(keys))
	amounts, ends := make([]int64, len(keys)), make([]int64, len(keys))
	for i, key := range keys {
		claim := b.claims[key]
		amounts[i] = claim.reserved
		if claim.done {
			amounts[i] = claim.kept
		}
		fingerprints[i], calls[i], ends[i] = claim.fingerprint[:], claim.callID, claim.until
	}
	insert.Queue(tx, append(claimColumns(keys), fingerprints, calls, amounts, ends)...)
}

func (b *books) insertAnswers(tx store.Tx, keys []claimKey) {
	calls, answers := make([]string, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		calls[i], answers[i] = b.claims[key].callID, b.claims[key].response
	}
	columns := claimColumns(keys)
	insertAnswers.Queue(tx, columns[0], columns[1], calls, answers)
}
