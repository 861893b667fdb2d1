package store

import (
	"context"
	"database/sql"
)

// NewSession is a login session that begins.
type NewSession struct {
	Hash [32]byte // SHA-256 of its token, which is stored nowhere
	// Lifetime in milliseconds, from the transaction's clock on.
	Lifetime int64
	Client   string // what the client calls itself
}

// Sessions reads and writes login sessions.
type Sessions struct{ db *DB }

// Begin begins a session of the user whose password was checked: when it isn't record's any more it returns
// [ErrNotFound]. renewed, unless it is "", takes the password's place. What the login has taken of its windows is given back,
// and sessions that have expired are deleted.
func (s Sessions) Begin(ctx context.Context, record LoginRecord, renewed string, session NewSession, login Login) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		password := record.Password
		if renewed != "" {
			password = renewed
		}
		// Setting the password, if only to what it is, holds off a change until this session is there to be ended by it.
		err := change(ctx, tx, `UPDATE users SET password = $4 WHERE id = $1 AND org_id = $2 AND password = $3 RETURNING id`,
			record.UserID, record.OrgID, record.Password, password)
		if err != nil {
			return err
		}
		tx.Queue(AnyRows, `DELETE FROM sessions WHERE expires_at <= $1`, tx.Now())
		queueSession(tx, record.OrgID, record.UserID, session)
		login.queueGiveBack(tx)
		QueueAudit(tx, AuditEntry{Actor: record.UserID, Action: "session.begin", Target: record.UserID, OrgID: record.OrgID})
		return nil
	})
}

func queueSession(tx Tx, orgID, userID string, session NewSession) {
	tx.Queue(1, `INSERT INTO sessions (hash, user_id, org_id, created_at, seen_at, expires_at, client)
		VALUES ($1, $2, $3, $4, $4, $5, $6)`,
		session.Hash[:], userID, orgID, tx.Now(), tx.Now()+session.Lifetime, session.Client)
}

func queueEndSessions(tx Tx, orgID, userID string) {
	tx.Queue(AnyRows, `DELETE FROM sessions WHERE user_id = $1 AND org_id = $2`, userID, orgID)
}

// SessionRecord is a session with the state of its user and organization that decides about a request.
type SessionRecord struct {
	UserID, OrgID string
	Role          string
	SeenAt        int64 // epoch milliseconds, as ExpiresAt and NowMS
	ExpiresAt     int64
	NowMS         int64 // the database's clock when the session was read
	Plan          string
	SuspendedAt   sql.NullInt64
	HasOrgModels  bool // as in [KeyRecord]
}

// ByHash reads the session with this SHA-256 hash, and false when there is none. Nothing is cached.
func (s Sessions) ByHash(ctx context.Context, hash [32]byte) (record SessionRecord, found bool, err error) {
	record, err = ReadRow(ctx, s.db, "read a session", func(row Row) (record SessionRecord, err error) {
		err = row.Scan(&record.UserID, &record.OrgID, &record.Role, &record.SeenAt, &record.ExpiresAt,
			&record.Plan, &record.SuspendedAt, &record.HasOrgModels)
		return record, err
	}, `SELECT u.id, u.org_id, u.role, s.seen_at, s.expires_at, o.plan, o.suspended_at,
			EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = u.org_id)
		FROM sessions s JOIN users u ON u.id = s.user_id JOIN organizations o ON o.id = u.org_id WHERE s.hash = $1`, hash[:])
	if err == nil {
		record.NowMS, err = s.db.Now(ctx)
	}
	return orAbsent(record, err)
}

// Touch notes that a session is in use. One that has ended stays so.
func (s Sessions) Touch(ctx context.Context, hash [32]byte) error {
	return s.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		tx.Queue(AnyRows, `UPDATE sessions SET seen_at = $2 WHERE hash = $1 AND seen_at < $2`, hash[:], tx.Now())
		return nil
	})
}

// End deletes a session; one that isn't there is no fault.
func (s Sessions) End(ctx context.Context, hash [32]byte) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var userID, orgID string
		err := tx.Query(ctx, func(row Row) error { return row.Scan(&userID, &orgID) },
			`DELETE FROM sessions WHERE hash = $1 RETURNING user_id, org_id`, hash[:])
		if err != nil || userID == "" {
			return err
		}
		QueueAudit(tx, AuditEntry{Actor: userID, Action: "session.end", Target: userID, OrgID: orgID})
		return nil
	})
}

// LiveSession is a session as its user may see it. Times are epoch milliseconds.
type LiveSession struct {
	Hash                         [32]byte
	Client                       string // what the client called itself when the session began
	CreatedAt, SeenAt, ExpiresAt int64
}

// Live reads the newest 100 sessions of a user that haven't ended, and were used within the last idle milliseconds.
func (s Sessions) Live(ctx context.Context, orgID, userID string, idle int64) ([]LiveSession, error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	return ReadRows(ctx, s.db, "list sessions", func(row Row) (session LiveSession, err error) {
		var hash []byte
		err = row.Scan(&hash, &session.Client, &session.CreatedAt, &session.SeenAt, &session.ExpiresAt)
		copy(session.Hash[:], hash)
		return session, err
	}, `SELECT hash, client, created_at, seen_at, expires_at FROM sessions
		WHERE user_id = $1 AND org_id = $2 AND expires_at > $3 AND seen_at > $4 ORDER BY created_at DESC, hash LIMIT 100`,
		userID, orgID, now, now-idle)
}

// EndAll deletes all sessions of a user.
func (s Sessions) EndAll(ctx context.Context, orgID, userID string) error {
	return s.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		queueEndSessions(tx, orgID, userID)
		QueueAudit(tx, AuditEntry{Actor: userID, Action: "session.end_all", Target: userID, OrgID: orgID})
		return nil
	})
}
