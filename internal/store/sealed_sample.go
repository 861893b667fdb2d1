package store

import "context"

const (
	// sealedSample is how many values of each sort SealedSample reads.
	sealedSample = 8
	// selectSealedSample reads the beginning of values: a value names its key there. Provider keys have no order of their
	// own; there are a few for an organization at most, so they are sorted.
	selectSealedSample = `SELECT head FROM (SELECT substr(sealed, 1, 64) AS head FROM provider_keys
			ORDER BY updated_at DESC LIMIT $1) AS of_providers
		UNION ALL SELECT head FROM (SELECT substr(credentials, 1, 64) AS head FROM channels
			WHERE credentials IS NOT NULL ORDER BY id DESC LIMIT $1) AS of_channels
		UNION ALL SELECT head FROM (SELECT substr(body, 1, 64) AS head FROM messages ORDER BY id DESC LIMIT $1) AS of_customers
		UNION ALL SELECT head FROM (SELECT substr(response, 1, 64) AS head FROM idempotency_keys
			WHERE state = 'done' AND response IS NOT NULL ORDER BY expires_at DESC LIMIT $1) AS of_calls`
)

// SealedSample reads the first 64 bytes of the newest values that are sealed with the master key: at most 8 each of provider
// keys, credentials of channels, messages of customers, and answers kept for an Idempotency-Key. It takes 2 s at most.
func (db *DB) SealedSample(ctx context.Context) ([][]byte, error) {
	return ReadRows(ctx, db, "read sealed values", func(row Row) (head []byte, err error) {
		return head, row.Scan(&head)
	}, selectSealedSample, sealedSample)
}
