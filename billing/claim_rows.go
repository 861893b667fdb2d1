package billing

import (
	"context"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectRunning = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, reserved_micros, expires_at FROM wanted CROSS JOIN running_keys k`+isWanted, wantedTypes...)
	selectFinished = listSizes.Rows(`WITH wanted (i, org_id, env, key_hash) AS ({list})
		SELECT i, fingerprint, call_id, kept_bytes, until FROM wanted CROSS JOIN idempotency_keys k`+isWanted, wantedTypes...)
	wantedTypes = []string{"bigint", "text", "text", "bytea"}

	insertRunning = listSizes.Statement(`INSERT INTO running_keys (org_id, env, key_hash, fingerprint, call_id, reserved_micros, expires_at)
		{list}`, 7, 0)
	insertFinished = listSizes.Statement(`INSERT INTO idempotency_keys (org_id, env, key_hash, fingerprint, call_id, kept_bytes, until) {list}`,
		7, 0)
	insertAnswers = listSizes.Statement(`INSERT INTO kept_answers (org_id, env, call_id, response) {list}`, 4, 0)
)

const (
	isWanted = ` WHERE k.org_id = wanted.org_id AND k.env = wanted.env AND k.key_hash = wanted.key_hash`

	selectDueRunning  = `SELECT org_id, env, key_hash FROM running_keys WHERE expires_at < $1 ORDER BY expires_at LIMIT $2`
	selectDueFinished = `SELECT org_id, env, key_hash FROM idempotency_keys WHERE until < $1 ORDER BY until LIMIT $2`

	// A row is deleted only if it still is of the call that was read.
	deleteRunning  = `DELETE FROM running_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteFinished = `DELETE FROM idempotency_keys WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND call_id = $4`
	deleteAnswer   = `DELETE FROM kept_answers WHERE org_id = $1 AND env = $2 AND call_id = $3`
)

// queueClaims reads claims in progress, or, with done, claims of calls that have ended. The lock of their wallets protects both.
func queueClaims(tx store.Tx, done bool, keys []claimKey, books *books) {
	if len(keys) == 0 {
		return
	}
	numbers, orgs := make([]int64, len(keys)), make([]string, len(keys))
	envs, hashes := make([]string, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		numbers[i], orgs[i], envs[i], hashes[i] = int64(i), key.wallet.OrgID, string(key.wallet.Env), keys[i].hash[:]
	}
	statement := selectRunning
	if done {
		statement = selectFinished
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
		claim.key, claim.read = keys[i], claim.claimState
		books.claims[keys[i]] = claim
		return nil
	}, numbers, orgs, envs, hashes)
}

// readDueClaims returns the keys of claims whose time is over, oldest first. It locks nothing: they are read again under the locks of their wallets.
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

// writeClaims deletes the rows of changed claims before it inserts new rows, so that a key may go from a call to another.
func (b *books) writeClaims(tx store.Tx) {
	changed := make([]*claimRow, 0, len(b.claims))
	for _, claim := range b.claims {
		if claim.claimState != claim.read {
			changed = append(changed, claim)
		}
	}
	slices.SortFunc(changed, func(a, b *claimRow) int { return a.key.compare(b.key) })
	var running, finished, kept []*claimRow
	for _, claim := range changed {
		claim.delete(tx)
		switch {
		case !claim.exists():
		case !claim.done:
			running = append(running, claim)
		default:
			finished = append(finished, claim)
			if claim.kept > 0 {
				kept = append(kept, claim)
			}
		}
	}
	row := func(values []any, c *claimRow, amount int64) []any {
		return append(values, c.key.wallet.OrgID, string(c.key.wallet.Env), c.key.hash[:], c.fingerprint[:], c.callID, amount, c.until)
	}
	store.QueueList(tx, listSizes, insertRunning, false, running, func(values []any, c *claimRow) []any { return row(values, c, c.reserved) })
	store.QueueList(tx, listSizes, insertFinished, false, finished, func(values []any, c *claimRow) []any { return row(values, c, c.kept) })
	store.QueueList(tx, listSizes, insertAnswers, false, kept, func(values []any, c *claimRow) []any {
		return append(values, c.key.wallet.OrgID, string(c.key.wallet.Env), c.callID, c.response)
	})
}

// delete deletes the rows of a claim that were read.
func (c *claimRow) delete(tx store.Tx) {
	org, env := c.key.wallet.OrgID, string(c.key.wallet.Env)
	switch {
	case !c.read.exists():
	case c.read.done:
		tx.Queue(1, deleteFinished, org, env, c.key.hash[:], c.read.callID)
	default:
		tx.Queue(1, deleteRunning, org, env, c.key.hash[:], c.read.callID)
	}
	if c.read.kept > 0 {
		tx.Queue(1, deleteAnswer, org, env, c.read.callID)
	}
}
