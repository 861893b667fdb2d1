package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ErrKeyReused is returned for an Idempotency-Key that was used with other content: 409 idempotency_key_reused. The first call
// keeps the key.
var ErrKeyReused = errors.New("the idempotency key was used with other content")

// ErrKeyInFlight is returned for an Idempotency-Key whose call is running: the duplicate may wait with [Book.ClaimBusy] and
// hold again; 409 conflict when the call doesn't end in time.
var ErrKeyInFlight = errors.New("a call with the same idempotency key is in progress")

// ErrNoRoom is returned when the kept answer of an Idempotency-Key is larger than [Hold.Room] allows.
var ErrNoRoom = errors.New("there is no room for the kept answer")

// KeyLife is how long the outcome of a finished call is kept for replays.
const KeyLife = 24 * time.Hour

// Claim is the use of an Idempotency-Key by a call. A key counts within its wallet: other organizations, and the other
// environment of the same one, are independent.
type Claim struct {
	// KeyHash is the SHA-256 of the client's key.
	KeyHash [32]byte
	// Fingerprint identifies the request's content: equal content has equal fingerprints.
	Fingerprint [32]byte
}

// Replay is the outcome of an earlier call with the same key and content.
type Replay struct {
	// CallID is the earlier call's.
	CallID string
	// Response is the sealed transcript that its settlement kept; nil when there was no room for it.
	Response []byte
	BYOK     bool
	Settled  Settled
}

// ClaimBusy reports whether a call with this key is in progress and its lease is valid, by the database's clock. It is a cheap
// read for a waiting duplicate: after false the next [Book.Hold] replays the call or takes the key over. The error is one of
// reading, or [ErrInvalid].
func (b *Book) ClaimBusy(ctx context.Context, wallet WalletID, keyHash [32]byte) (bool, error) {
	if err := wallet.validate(); err != nil {
		return false, err
	}
	var busy bool
	err := b.db.Reader().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM running_keys
		WHERE org_id = $1 AND env = $2 AND key_hash = $3 AND expires_at >= `+
		clockSQL[b.db.Engine()]+`)`, wallet.OrgID, string(wallet.Env), keyHash[:]).Scan(&busy)
	if err != nil {
		return false, fmt.Errorf("read claim: %w", err)
	}
	return busy, nil
}

// clockSQL reads the database's clock in epoch milliseconds, as the store's transactions do. SQLite has only the machine's.
var clockSQL = map[store.Engine]string{
	store.SQLite:   `CAST(unixepoch('subsec') * 1000 AS INTEGER)`,
	store.Postgres: `floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
}

// finishedKey is the row of a key whose call has ended.
const finishedKey = ` WHERE k.org_id = $1 AND k.env = $2 AND k.key_hash = $3 AND k.call_id = $4`

// replay reads the finished call that a hold met. The transcript may be large: it is read outside the writer, and only when
// [Hold.Room] allows its length. found is false if the row has expired since.
func (b *Book) replay(ctx context.Context, hold Hold, callID string) (replay *Replay, found bool, err error) {
	key := []any{hold.Wallet.OrgID, string(hold.Wallet.Env), hold.Claim.KeyHash[:], callID}
	if hold.Room != nil {
		var bytes int64
		err := b.db.Reader().QueryRowContext(ctx, `SELECT k.kept_bytes FROM idempotency_keys k`+finishedKey, key...).Scan(&bytes)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("read the length of finished call %s: %w", callID, err)
		case !hold.Room(bytes):
			return nil, true, ErrNoRoom
		}
	}
	replay = &Replay{CallID: callID}
	settled := &replay.Settled
	var byok sql.NullBool
	err = b.db.Reader().QueryRowContext(ctx, `SELECT a.response, c.byok, coalesce(c.charged_micros, 0), coalesce(c.shortfall_micros, 0)
		FROM idempotency_keys k LEFT JOIN calls c ON c.id = k.call_id
			LEFT JOIN kept_answers a ON a.org_id = k.org_id AND a.env = k.env AND a.call_id = k.call_id`+finishedKey, key...,
	).Scan(&replay.Response, &byok, &settled.ChargedMicros, &settled.ShortfallMicros)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err == nil && !byok.Valid:
		err = errors.New("its row is missing (doctor: L10)")
	}
	if err != nil {
		return nil, false, fmt.Errorf("read finished call %s: %w", callID, err)
	}
	replay.BYOK = byok.Bool
	return replay, true, nil
}
