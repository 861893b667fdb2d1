package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
)

// OperatorKey is a key of an operator of the service. The raw key is stored nowhere. Times are epoch milliseconds.
type OperatorKey struct {
	ID, Name  string
	Scopes    []string `db:"words"` // words without spaces
	Hash      [32]byte // SHA-256 of the raw key
	Hint      string   // what may be shown of the raw key
	CreatedBy string   // the actor that made the key
	CreatedAt int64
	// UsedAt is the time of the last use, to a minute.
	ExpiresAt, RevokedAt, UsedAt sql.NullInt64
}

var operatorKeys = newTable[OperatorKey]("operator_keys", nil)

// OperatorKeys reads and writes the keys of operators.
type OperatorKeys struct{ db *DB }

// Create adds a key. maker is the id of the key that makes it, or else of no key. The new key expires no later than its maker: a key without
// an expiry gets the maker's, and Create returns [ErrOutlives] for a later expiry or if the maker is revoked. It returns [ErrConflict] if the
// name is in use, and [ErrLimit] if there are [MaxOperatorKeys].
func (k OperatorKeys) Create(ctx context.Context, actor, maker string, key OperatorKey) error {
	return k.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := checkCount(ctx, tx, MaxOperatorKeys, `SELECT count(*) FROM operator_keys WHERE revoked_at IS NULL`); err != nil {
			return err
		}
		expiresAt, err := expiryWithin(ctx, tx, key.ExpiresAt, `operator_keys WHERE id = $1`, maker)
		if err != nil {
			return err
		}
		key.CreatedAt, key.CreatedBy, key.ExpiresAt = tx.Now(), actor, expiresAt
		operatorKeys.queueInsert(tx, &key)
		audit(tx, actor, "operator_key.create", key.ID, "", key.Name+": "+strings.Join(key.Scopes, " "))
		return nil
	})
}

// List reads a page of the keys, revoked ones too, oldest first.
func (k OperatorKeys) List(ctx context.Context, page Page) ([]OperatorKey, error) {
	return readPage(ctx, k.db, "list operator keys", operatorKeys.scan, operatorKeys.selected+` WHERE id > ''`, "id", page)
}

// ByID reads a key, also a revoked one. It returns [ErrNotFound] if there is none.
func (k OperatorKeys) ByID(ctx context.Context, id string) (OperatorKey, error) {
	return ReadRow(ctx, k.db, "read an operator key", operatorKeys.scan, operatorKeys.selected+` WHERE id = $1`, id)
}

// ByHash reads the key with this SHA-256 hash, a zero one if there is none, and the database's clock. Nothing is cached.
func (k OperatorKeys) ByHash(ctx context.Context, hash [32]byte) (key OperatorKey, now int64, err error) {
	key, err = ReadRow(ctx, k.db, "read an operator key", operatorKeys.scan, operatorKeys.selected+` WHERE hash = $1`, hash[:])
	if errors.Is(err, ErrNotFound) {
		return OperatorKey{}, 0, nil
	}
	if err == nil {
		now, err = k.db.Now(ctx)
	}
	return key, now, err
}

// Touch stores that a key is in use.
func (k OperatorKeys) Touch(ctx context.Context, id string) error {
	return k.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(AnyRows, `UPDATE operator_keys SET used_at = $2 WHERE id = $1`, id, tx.Now())
	})
}

// Revoke revokes a key from the next request on. It returns [ErrNotFound] if there is none. It changes nothing for a revoked key.
func (k OperatorKeys) Revoke(ctx context.Context, actor, id string) error {
	return revoke(ctx, k.db, AuditEntry{Actor: actor, Action: "operator_key.revoke", Target: id}, "operator_keys", "id = $1", id)
}

// How long an Idempotency-Key of the operator's interface counts: while its request runs, or if its process ended, and after its answer, in
// milliseconds.
const (
	operatorRequestRuns     = 5 * 60 * 1000
	operatorRequestLifetime = 24 * 60 * 60 * 1000
)

// OperatorRequest is a request with an Idempotency-Key to the operator's interface.
type OperatorRequest struct {
	// Hash is the SHA-256 of the operator's key and the Idempotency-Key, Fingerprint of the request.
	Hash, Fingerprint [32]byte
	// Status is the status of the answer, and Answer its sealed body. 0 means that the request runs, or that its process ended.
	Status int64
	Answer []byte
}

// OperatorRequests reads and writes requests with an Idempotency-Key.
type OperatorRequests struct{ db *DB }

// Begin stores that a request runs. If a request with the hash is stored already, it returns that one and true. It returns [ErrConflict] if that
// one has another fingerprint. Of several processes with the same request, exactly one gets false.
func (o OperatorRequests) Begin(ctx context.Context, request OperatorRequest) (stored OperatorRequest, found bool, err error) {
	err = o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		stored, found = request, false
		tx.Queue(AnyRows, `DELETE FROM operator_requests WHERE until <= $1`, tx.Now())
		begun, err := Changed(ctx, tx, `INSERT INTO operator_requests (hash, fingerprint, status, until) VALUES ($1, $2, 0, $3)
			ON CONFLICT (hash) DO NOTHING RETURNING until`, request.Hash[:], request.Fingerprint[:], tx.Now()+operatorRequestRuns)
		if err != nil || begun {
			return err
		}
		found = true
		var fingerprint []byte
		err = tx.Query(ctx, func(row Row) error { return row.Scan(&fingerprint, &stored.Status, &stored.Answer) },
			`SELECT fingerprint, status, answer FROM operator_requests WHERE hash = $1`, request.Hash[:])
		if err == nil && !bytes.Equal(fingerprint, request.Fingerprint[:]) {
			return ErrConflict
		}
		return err
	})
	return stored, found, err
}

// End stores the answer to a request, or forgets a request without one, so that it may run again.
func (o OperatorRequests) End(ctx context.Context, request OperatorRequest) error {
	return o.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		if request.Status == 0 {
			tx.Queue(AnyRows, `DELETE FROM operator_requests WHERE hash = $1 AND fingerprint = $2`, request.Hash[:], request.Fingerprint[:])
			return nil
		}
		tx.Queue(AnyRows, `UPDATE operator_requests SET status = $3, answer = $4, until = $5 WHERE hash = $1 AND fingerprint = $2`,
			request.Hash[:], request.Fingerprint[:], request.Status, request.Answer, tx.Now()+operatorRequestLifetime)
		return nil
	})
}
