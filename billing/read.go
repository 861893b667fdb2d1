package billing

import (
	"context"
	"fmt"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectWallets = listSizes.Statement(`SELECT org_id, env, balance_micros, held_micros FROM wallets
		WHERE (org_id, env) IN ({list}) ORDER BY org_id, env`, 2, 0)
	selectHolds = listSizes.Statement(`SELECT id, org_id, env, amount_micros, status, expires_at FROM holds WHERE id IN {list}`, 1, 0)
	selectCalls = listSizes.Statement(`SELECT id, org_id, env, charged_micros, extra_micros, shortfall_micros FROM calls
		WHERE id IN {list}`, 1, 0)
)

const (
	selectDueHolds = `SELECT id, org_id, env FROM holds WHERE status = 'open' AND expires_at < $1
		ORDER BY expires_at LIMIT $2`
	selectEntry = `SELECT t.id, e.amount_micros, t.balance_micros, t.reason, t.created_at
		FROM ledger_tx t JOIN ledger_entries e ON e.tx_id = t.id AND e.seq = 0
		WHERE t.kind = $1 AND t.org_id = $2 AND t.env = $3 AND t.ref = $4`
)

// queueWallets locks wallets, sorted by key, and with them all that belongs to them, until the transaction ends, and reads them.
func queueWallets(tx store.Tx, ids []WalletID, books *books) {
	for size, chunk := range store.Padded(listSizes, ids) {
		tx.QueueQuery(func(row store.Row) error {
			var id WalletID
			var env string
			var wallet walletRow
			if err := row.Scan(&id.OrgID, &env, &wallet.balance, &wallet.held); err != nil {
				return err
			}
			id.Env = store.Env(env)
			wallet.readBalance, wallet.readHeld = wallet.balance, wallet.held
			books.wallets[id] = &wallet
			return nil
		}, selectWallets[size]+tx.LockRows(), walletArguments(chunk)...)
	}
}

// walletArguments are the values of a list of wallets in a statement.
func walletArguments(ids []WalletID) []any {
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id.OrgID, string(id.Env))
	}
	return args
}

func queueHolds(tx store.Tx, ids []string, books *books) {
	queueByIDs(tx, selectHolds, ids, func(row store.Row) error {
		var hold holdRow
		var env, status string
		if err := row.Scan(&hold.id, &hold.wallet.OrgID, &env, &hold.amount, &status, &hold.expiresAt); err != nil {
			return err
		}
		hold.wallet.Env = store.Env(env)
		hold.status, hold.readStatus = holdStatus(status), holdStatus(status)
		books.holds[hold.id] = &hold
		return nil
	})
}

func queueCalls(tx store.Tx, ids []string, books *books) {
	queueByIDs(tx, selectCalls, ids, func(row store.Row) error {
		var id, env string
		var call callFigures
		settled := &call.settled
		err := row.Scan(&id, &call.wallet.OrgID, &env,
			&settled.ChargedMicros, &settled.ExtraMicros, &settled.ShortfallMicros)
		if err != nil {
			return err
		}
		call.wallet.Env = store.Env(env)
		books.calls[id] = call
		return nil
	})
}

func queueByIDs(tx store.Tx, texts store.ListStatement, ids []string, each func(store.Row) error) {
	for size, chunk := range store.Padded(listSizes, ids) {
		tx.QueueQuery(each, texts[size], store.Arguments(chunk)...)
	}
}

// readDueHolds calls each with every hold whose time is over, oldest first. It takes no lock: the holds are read again under
// the lock of their wallets.
func readDueHolds(ctx context.Context, tx store.Tx, each func(id string, wallet WalletID)) error {
	return tx.Query(ctx, func(row store.Row) error {
		var id, org, env string
		if err := row.Scan(&id, &org, &env); err != nil {
			return err
		}
		each(id, WalletID{org, store.Env(env)})
		return nil
	}, selectDueHolds, tx.Now(), int64(sweepLimit))
}

func queueEntry(tx store.Tx, key entryKey, books *books) {
	tx.QueueQuery(func(row store.Row) error {
		entry := Entry{Wallet: key.wallet, Kind: key.kind, Ref: key.ref}
		if err := row.Scan(&entry.ID, &entry.AmountMicros, &entry.BalanceMicros, &entry.Note, &entry.At); err != nil {
			return err
		}
		books.entries[key] = entry
		return nil
	}, selectEntry, string(key.kind), key.wallet.OrgID, string(key.wallet.Env), key.ref)
}

// makeWallets creates missing wallets, sorted by key. An organization that doesn't exist gets none.
func makeWallets(tx store.Tx, ids []WalletID) {
	slices.SortFunc(ids, WalletID.compare)
	for _, id := range slices.Compact(ids) {
		tx.Queue(store.AnyRows, insertWallet, id.OrgID, string(id.Env))
	}
}

// OpenHolds counts the holds of all wallets that are neither settled nor voided nor expired.
func (b *Book) OpenHolds(ctx context.Context) (count int64, err error) {
	err = b.db.Reader().QueryRowContext(ctx, `SELECT count(*) FROM holds WHERE status = 'open'`).Scan(&count)
	if err != nil {
		return 0, fmt.Errorf("counting open holds: %w", err)
	}
	return count, nil
}
