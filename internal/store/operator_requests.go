package store

import (
	"bytes"
	"context"
)

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
		err := tx.Query(ctx, func(Row) error { return nil }, `DELETE FROM operator_requests WHERE until <= $1 RETURNING until`, tx.Now())
		if err != nil {
			return err
		}
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
