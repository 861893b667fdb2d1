package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var selectTranches = listSizes.Statement(`SELECT id, org_id, env, owner, left_micros, spare, lease_until
	FROM tranches WHERE (org_id, env) IN ({list}) ORDER BY id`, 2, 0)

const (
	insertTranche = `INSERT INTO tranches (org_id, env, id, owner, left_micros, spare, lease_until) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	// The tranche must be as it was read, so that a writer without the lock of its wallet is detected and not overwritten.
	updateTranche = `UPDATE tranches SET left_micros = $1, spare = $2, lease_until = $3
		WHERE org_id = $4 AND env = $5 AND id = $6 AND left_micros = $7`
	deleteTranche = `DELETE FROM tranches WHERE org_id = $1 AND env = $2 AND id = $3 AND left_micros = $4`

	selectDueTranches = `SELECT DISTINCT org_id, env FROM tranches WHERE lease_until < $1 LIMIT $2`
	// One statement, so of one moment.
	selectSpendable = `SELECT w.balance_micros - w.held_micros, (SELECT CAST(coalesce(sum(left_micros), 0) AS BIGINT)
			FROM tranches t WHERE t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
	selectSpare = `SELECT w.balance_micros - w.held_micros, EXISTS (SELECT 1 FROM tranches t
			WHERE t.spare AND t.org_id = w.org_id AND t.env = w.env)
		FROM wallets w WHERE w.org_id = $1 AND w.env = $2`
)

// queueTranches reads the tranches of locked wallets. They change only under that lock.
func queueTranches(tx store.Tx, wallets []WalletID, books *books) {
	store.QueueListed(tx, listSizes, selectTranches, "", wallets, listWallet, func(row store.Row) error {
		t := &trancheRow{stored: true}
		err := row.Scan(&t.id, &t.wallet.OrgID, &t.wallet.Env, &t.owner, &t.left, &t.spare, &t.leaseUntil)
		if err != nil {
			return err
		}
		t.read = t.trancheState
		wallet := books.wallets[t.wallet]
		if wallet == nil {
			return fmt.Errorf("tranche %s has no wallet", t.id)
		}
		wallet.tranches = append(wallet.tranches, t)
		return nil
	})
}

// readDueTranches returns the wallets with tranches whose lease is over. It takes no lock: the tranches are read again under it.
func readDueTranches(ctx context.Context, tx store.Tx) (wallets []WalletID, err error) {
	err = tx.Query(ctx, scanWalletID(&wallets), selectDueTranches, tx.Now(), int64(sweepLimit))
	return wallets, err
}

// writeTranches inserts, updates and deletes the tranches that the batch changed.
func (b *books) writeTranches(tx store.Tx) {
	var changed []*trancheRow
	for _, wallet := range b.wallets {
		for _, t := range wallet.tranches {
			if t.stored && (t.ended || t.read != t.trancheState) || !t.stored && !t.ended {
				changed = append(changed, t)
			}
		}
	}
	slices.SortFunc(changed, func(a, b *trancheRow) int { return a.wallet.compare(b.wallet) })
	for _, t := range changed {
		org, env := t.wallet.OrgID, string(t.wallet.Env)
		switch {
		case !t.stored:
			tx.Queue(store.AnyRows, insertTranche, org, env, t.id, t.owner, t.left, t.spare, t.leaseUntil)
		case t.ended:
			tx.Queue(1, deleteTranche, org, env, t.id, t.read.left)
		default:
			tx.Queue(1, updateTranche, t.left, t.spare, t.leaseUntil, org, env, t.id, t.read.left)
		}
	}
}
