package billing

import (
	"context"
	"slices"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

var (
	selectWallets = listSizes.Statement(`SELECT org_id, env, balance_micros, held_micros, seq, moved_at, recall_until, kept_bytes
		FROM wallets WHERE (org_id, env) IN ({list}) ORDER BY org_id, env`, 2, 0)
	selectHolds = listSizes.Statement(`WITH wanted (org_id, env, id) AS ({list}) SELECT h.id, h.org_id, h.env, amount_micros, expires_at
		FROM wanted CROSS JOIN holds h WHERE h.org_id = wanted.org_id AND h.env = wanted.env AND h.id = wanted.id`, 3, 0)
	selectEnded = listSizes.Statement(`SELECT id, org_id, env, charged_micros, shortfall_micros FROM calls WHERE id IN {list}`, 1, 0)
)

const (
	selectDueHolds = `SELECT org_id, env, id FROM holds WHERE expires_at < $1 ORDER BY expires_at LIMIT $2`
	selectRefunded = `SELECT org_id, env FROM calls WHERE id = $1`
	selectEntry    = `SELECT id, amount_micros, balance_micros, reason, created_at, wallet_seq FROM ledger_tx
		WHERE org_id = $1 AND env = $2 AND kind = $3 AND ref = $4`
)

// queueWallets locks wallets, sorted by key, and with them all that belongs to them, until the transaction ends, and reads them.
func queueWallets(tx store.Tx, ids []WalletID, books *books) {
	store.QueueListed(tx, listSizes, selectWallets, tx.LockRows(), ids, listWallet, func(row store.Row) error {
		var id WalletID
		var w walletRow
		err := row.Scan(&id.OrgID, &id.Env, &w.balance, &w.held, &w.seq, &w.movedAt, &w.recallUntil, &w.kept)
		w.read = w.walletState
		books.wallets[id] = &w
		return err
	})
}

// listWallet appends the values of a wallet in a statement with a list of them.
func listWallet(values []any, id WalletID) []any { return append(values, id.OrgID, string(id.Env)) }

// callKey names a call with its wallet.
type callKey struct {
	wallet WalletID
	id     string
}

// queueHolds reads the holds of calls.
func queueHolds(tx store.Tx, keys []callKey, books *books) {
	arguments := func(values []any, key callKey) []any { return append(listWallet(values, key.wallet), key.id) }
	store.QueueListed(tx, listSizes, selectHolds, "", keys, arguments, func(row store.Row) error {
		hold := &holdRow{stored: true, open: true}
		err := row.Scan(&hold.id, &hold.wallet.OrgID, &hold.wallet.Env, &hold.amount, &hold.expiresAt)
		books.holds[hold.id] = hold
		return err
	})
}

// queueEnded reads the calls that have ended.
func queueEnded(tx store.Tx, keys []callKey, books *books) {
	arguments := func(values []any, key callKey) []any { return append(values, key.id) }
	store.QueueListed(tx, listSizes, selectEnded, "", keys, arguments, func(row store.Row) error {
		var id string
		var call callFigures
		err := row.Scan(&id, &call.wallet.OrgID, &call.wallet.Env, &call.settled.ChargedMicros, &call.settled.ShortfallMicros)
		books.calls[id] = call
		return err
	})
}

// readDueHolds returns the holds whose time is over, oldest first. It takes no lock: they are read again under that of their wallets.
func readDueHolds(ctx context.Context, tx store.Tx) (due []callKey, err error) {
	err = tx.Query(ctx, func(row store.Row) error {
		var key callKey
		err := row.Scan(&key.wallet.OrgID, &key.wallet.Env, &key.id)
		due = append(due, key)
		return err
	}, selectDueHolds, tx.Now(), int64(sweepLimit))
	return due, err
}

// scanWalletID scans wallets into ids.
func scanWalletID(ids *[]WalletID) func(store.Row) error {
	return func(row store.Row) error {
		var id WalletID
		err := row.Scan(&id.OrgID, &id.Env)
		*ids = append(*ids, id)
		return err
	}
}

func queueEntry(tx store.Tx, key entryKey, books *books) {
	tx.QueueQuery(func(row store.Row) error {
		entry := Entry{Wallet: key.wallet, Kind: key.kind, Ref: key.ref}
		if err := row.Scan(&entry.ID, &entry.AmountMicros, &entry.BalanceMicros, &entry.Note, &entry.At, &entry.Seq); err != nil {
			return err
		}
		books.entries[key] = entry
		return nil
	}, selectEntry, key.wallet.OrgID, string(key.wallet.Env), string(key.kind), key.ref)
}

// makeWallets creates missing wallets, sorted by key. An organization that doesn't exist gets none.
func makeWallets(tx store.Tx, ids []WalletID) {
	slices.SortFunc(ids, WalletID.compare)
	for _, id := range slices.Compact(ids) {
		tx.Queue(store.AnyRows, insertWallet, id.OrgID, string(id.Env))
	}
}

// OpenHolds counts the holds of running calls, of all wallets, but for those that are held from tranches.
func (b *Book) OpenHolds(ctx context.Context) (count int64, err error) {
	return store.ReadRow(ctx, b.db, "count open holds", store.ScanValue[int64], `SELECT (SELECT count(*) FROM holds)
		+ (SELECT count(*) FROM running_keys WHERE reserved_micros > 0)`)
}
