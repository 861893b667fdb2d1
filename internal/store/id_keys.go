package store

import "context"

// IDKey is a key under which ids of customers and messages are sealed. It is itself sealed by its owner: the store never sees it.
type IDKey struct {
	Number int64 // from 0 in a store
	Sealed []byte
}

// IDKeys reads and writes the keys of ids.
type IDKeys struct{ db *DB }

// All reads all keys, the oldest first. A store has one, or one more each time all before were lost.
func (k IDKeys) All(ctx context.Context) ([]IDKey, error) {
	return ReadRows(ctx, k.db, "read the keys of ids", func(row Row) (key IDKey, err error) {
		err = row.Scan(&key.Number, &key.Sealed)
		return key, err
	}, `SELECT number, sealed FROM id_keys ORDER BY number`)
}

// Add stores a key in a transaction. It returns false if the store has another with its number, which may have been added by another
// process while Add waited for it.
func (k IDKeys) Add(ctx context.Context, tx Tx, key IDKey) (added bool, err error) {
	return Changed(ctx, tx, `INSERT INTO id_keys (number, sealed) VALUES ($1, $2) ON CONFLICT (number) DO NOTHING RETURNING number`,
		key.Number, key.Sealed)
}

// Reseal is [ProviderKeys.Reseal] for a key of ids.
func (k IDKeys) Reseal(ctx context.Context, number int64, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, k.db, `UPDATE id_keys SET sealed = $3 WHERE number = $1 AND sealed = $2 RETURNING number`, number, was, sealed)
}
