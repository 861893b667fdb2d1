package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var selectTranches = listSizes.Statement(`SELECT id, org_id, env, owner, status, taken_micros, drawn_micros, returned_micros, lease_until
	FROM tranches WHERE status <> 'ended' AND (org_id, env) IN ({list}) ORDER BY id`, 2, 0)

const (
	insertTranche = `INSERT INTO tranches (id, org_id, env, owner, status, taken_micros, drawn_micros, returned_micros,
		lease_until, created_at, ended_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`
	// The tranche must be as it was read, so that a writer without the lock of its wallet is detected and not overwritten.
	updateTranche = `UPDATE tranches SET status = $1, taken_micros = $2, drawn_micros = $3, returned_micros = $4, lease_until = $5,
		ended_at = $6 WHERE id = $7 AND status = $8 AND taken_micros = $9 AND drawn_micros = $10 AND returned_micros = $11`
	selectDueTranches = `SELECT org_id, env FROM tranches WHERE status <> 'ended' AND lease_until < $1
		ORDER BY org_id, env LIMIT $2`
	selectRecalled = `SELECT id FROM tranches WHERE owner = $1 AND status = 'recalled'`
	// One statement, so of one moment.
	selectSpendable = `SELECT w.balance_micros - w.held_micros, (SELECT CAST(coalesce(sum(taken_micros - drawn_micros - returned_micros), 0)
			AS BIGINT) FROM tranches t WHERE t.status <> 'ended' AND t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
	selectAsked = `SELECT w.balance_micros - w.held_micros, (SELECT count(*) FROM tranches t
			WHERE t.status <> 'ended' AND t.status <> 'drained' AND t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
)

// queueTranches reads the tranches of locked wallets. They change only under that lock.
func queueTranches(tx store.Tx, wallets []WalletID, books *books) {
	for size, chunk := range store.Padded(listSizes, wallets) {
		tx.QueueQuery(func(row store.Row) error {
			tranche := &trancheRow{}
			var env, status string
			err := row.Scan(&tranche.id, &tranche.wallet.OrgID, &env, &tranche.owner, &status,
				&tranche.taken, &tranche.drawn, &tranche.returned, &tranche.leaseUntil)
			if err != nil {
				return err
			}
			tranche.wallet.Env, tranche.status = store.Env(env), trancheStatus(status)
			tranche.read = tranche.trancheState
			wallet := books.wallets[tranche.wallet]
			if wallet == nil {
				return fmt.Errorf("tranche %s has no wallet", tranche.id)
			}
			wallet.tranches = append(wallet.tranches, tranche)
			return nil
		}, selectTranches[size], walletArguments(chunk)...)
	}
}

// readRecalled returns which tranches of a process have been recalled.
func readRecalled(ctx context.Context, db *store.DB, owner string) (ids []string, err error) {
	rows, err := db.Reader().QueryContext(ctx, selectRecalled, owner)
	if err != nil {
		return nil, fmt.Errorf("read recalled tranches: %w", err)
	}
	defer rows.Close() //nolint:errcheck // a fault of reading shows in rows.Err
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("read recalled tranches: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read recalled tranches: %w", err)
	}
	return ids, nil
}

// readDueTranches returns the wallets with tranches whose lease is over. It takes no lock: the tranches are read again under it.
func readDueTranches(ctx context.Context, tx store.Tx) (wallets []WalletID, err error) {
	err = tx.Query(ctx, func(row store.Row) error {
		var org, env string
		if err := row.Scan(&org, &env); err != nil {
			return err
		}
		wallets = append(wallets, WalletID{org, store.Env(env)})
		return nil
	}, selectDueTranches, tx.Now(), int64(sweepLimit))
	return wallets, err
}

// writeTranches inserts new tranches and updates the others that the batch changed.
func (b *books) writeTranches(tx store.Tx) {
	ended := func(t *trancheRow) any {
		if t.status == trancheEnded {
			return b.now
		}
		return nil
	}
	for _, t := range b.newTranches {
		tx.Queue(store.AnyRows, insertTranche, t.id, t.wallet.OrgID, string(t.wallet.Env), t.owner, string(t.status),
			t.taken, t.drawn, t.returned, t.leaseUntil, b.now, ended(t))
	}
	var changed []*trancheRow
	for _, wallet := range b.wallets {
		for _, t := range wallet.tranches {
			if t.read != (trancheState{}) && t.read != t.trancheState {
				changed = append(changed, t)
			}
		}
	}
	slices.SortFunc(changed, func(a, b *trancheRow) int { return a.wallet.compare(b.wallet) })
	for _, t := range changed {
		tx.Queue(1, updateTranche, string(t.status), t.taken, t.drawn, t.returned, t.leaseUntil, ended(t),
			t.id, string(t.read.status), t.read.taken, t.read.drawn, t.read.returned)
	}
}
