package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
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

// Begin begins a session of a user after a check of the password. It returns [ErrNotFound] if the user's password is no longer record's. A
// renewed password, unless empty, replaces it. The login's attempts in its windows are given back, and expired sessions are deleted.
func (s Sessions) Begin(ctx context.Context, record LoginRecord, renewed string, session NewSession, login Login) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		// Setting the password, even to the same value, delays a concurrent change until it can end this session.
		err := change(ctx, tx, `UPDATE users SET password = $4 WHERE id = $1 AND org_id = $2 AND password = $3 RETURNING id`,
			record.UserID, record.OrgID, record.Password, cmp.Or(renewed, record.Password))
		if err != nil {
			return err
		}
		tx.Queue(AnyRows, `DELETE FROM sessions WHERE expires_at <= $1`, tx.Now())
		queueSession(tx, record.OrgID, record.UserID, session)
		login.queueGiveBack(tx)
		audit(tx, record.UserID, "session.begin", record.UserID, record.OrgID, "")
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
	NowMS         int64 `db:"-"` // the database's clock when the session was read
	Plan          string
	SuspendedAt   sql.NullInt64
	// SuspensionReason is [Organization].SuspensionReason.
	SuspensionReason string
	BudgetVersion    int64 // as in [KeyRecord]
	HasOrgModels     bool  // as in [KeyRecord]
}

// ByHash reads the session with this SHA-256 hash, and false when there is none. Nothing is cached.
func (s Sessions) ByHash(ctx context.Context, hash [32]byte) (record SessionRecord, found bool, err error) {
	record, err = ReadRow(ctx, s.db, "read a session", ScanFields[SessionRecord](),
		`SELECT u.id, u.org_id, u.role, s.seen_at, s.expires_at, o.plan, o.suspended_at, o.suspension_reason, o.budget_version,
			EXISTS (SELECT 1 FROM org_models m WHERE m.org_id = u.org_id)
		FROM sessions s JOIN users u ON u.id = s.user_id JOIN organizations o ON o.id = u.org_id WHERE s.hash = $1`, hash[:])
	if err == nil {
		record.NowMS, err = s.db.Now(ctx)
	}
	return orAbsent(record, err)
}

// Touch stores that a session is in use. It changes nothing for a session that has ended.
func (s Sessions) Touch(ctx context.Context, hash [32]byte) error {
	return s.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(AnyRows, `UPDATE sessions SET seen_at = $2 WHERE hash = $1 AND seen_at < $2`, hash[:], tx.Now())
	})
}

// End deletes a session. A session that doesn't exist is no error.
func (s Sessions) End(ctx context.Context, hash [32]byte) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var userID, orgID string
		err := tx.Query(ctx, func(row Row) error { return row.Scan(&userID, &orgID) },
			`DELETE FROM sessions WHERE hash = $1 RETURNING user_id, org_id`, hash[:])
		if err != nil || userID == "" {
			return err
		}
		audit(tx, userID, "session.end", userID, orgID, "")
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
	return ReadRows(ctx, s.db, "list sessions", ScanFields[LiveSession](), `SELECT hash, client, created_at, seen_at, expires_at FROM sessions
		WHERE user_id = $1 AND org_id = $2 AND expires_at > $3 AND seen_at > $4 ORDER BY created_at DESC, hash LIMIT 100`,
		userID, orgID, now, now-idle)
}

// EndAll deletes all sessions of a user.
func (s Sessions) EndAll(ctx context.Context, orgID, userID string) error {
	return s.db.ExecQueued(ctx, func(tx Tx) {
		queueEndSessions(tx, orgID, userID)
		audit(tx, userID, "session.end_all", userID, orgID, "")
	})
}

// Logins checks logins: the records that passwords are compared with, and the windows that bound the attempts.
type Logins struct{ db *DB }

// LoginRecord is a user's password, for a login to check.
type LoginRecord struct {
	UserID, OrgID string
	OrgName       string
	Password      string // the encoded hash
}

// ByEmail reads the users with an e-mail address, in order of id. An organization has one with the address, or none.
func (l Logins) ByEmail(ctx context.Context, email string) ([]LoginRecord, error) {
	return ReadRows(ctx, l.db, "read logins", ScanFields[LoginRecord](), loginColumns+` WHERE users.email = $1 ORDER BY users.id`, email)
}

// ByID reads the password of an organization's user, or returns [ErrNotFound].
func (l Logins) ByID(ctx context.Context, orgID, userID string) (LoginRecord, error) {
	return ReadRow(ctx, l.db, "read a login", ScanFields[LoginRecord](), loginColumns+` WHERE users.id = $1 AND users.org_id = $2`, userID, orgID)
}

const loginColumns = `SELECT users.id, users.org_id, o.name, users.password FROM users JOIN organizations o ON o.id = users.org_id`

// loginWindow is how long a window of logins is, in milliseconds; windows are aligned to the database's clock.
const loginWindow = 60_000

// LoginBound is how often a subject may fail to log in within a minute.
type LoginBound struct {
	Subject [32]byte // SHA-256 of an e-mail address, of a client's address, or of both
	Most    int64
	Hourly  bool // within an hour, not a minute
}

// Login is an attempt that [Logins.Take] has counted.
type Login struct {
	counted []countedLogin
	// RetryAfter is 0, or the milliseconds until the next window when a bound was reached.
	RetryAfter int64
}

// countedLogin is a window in which an attempt counts.
type countedLogin struct {
	subject [32]byte
	window  int64
}

// Take counts an attempt to log in before the password is checked, so that concurrent attempts on any node can't pass a bound together. It
// counts the bounds in their order up to the first that is reached; a refused attempt doesn't count in the bounds after it.
// [Sessions.Begin] gives a successful attempt back, and [Logins.GiveBack] an attempt that was not made.
func (l Logins) Take(ctx context.Context, bounds []LoginBound) (Login, error) {
	return Write(ctx, l.db, func(ctx context.Context, tx Tx) (login Login, err error) {
		minute := tx.Now() / loginWindow * loginWindow
		for _, bound := range bounds {
			window, end := minute, minute+loginWindow
			if bound.Hourly {
				window = hourOf(tx)
				end = window
			}
			count, err := countLogin(ctx, tx, bound.Subject, window)
			if err != nil {
				return login, err
			}
			if count > bound.Most {
				login.RetryAfter = end - tx.Now()
				return login, nil
			}
			login.counted = append(login.counted, countedLogin{bound.Subject, window})
		}
		// The window before may still be given back to by another node.
		tx.Queue(AnyRows, `DELETE FROM login_windows WHERE window_start < $1`, minute-loginWindow)
		return login, nil
	})
}

// countLogin counts an attempt in a window, and returns the new number.
func countLogin(ctx context.Context, tx Tx, subject [32]byte, window int64) (count int64, err error) {
	err = tx.Query(ctx, func(row Row) error { return row.Scan(&count) },
		`INSERT INTO login_windows (subject, window_start, count) VALUES ($1, $2, 1)
		ON CONFLICT (subject, window_start) DO UPDATE SET count = login_windows.count + 1 RETURNING count`, subject[:], window)
	return count, err
}

// GiveBack uncounts an attempt without a check of its password.
func (l Logins) GiveBack(ctx context.Context, login Login) error {
	return l.db.ExecQueued(ctx, login.queueGiveBack)
}

func (l Login) queueGiveBack(tx Tx) {
	for _, counted := range l.counted {
		tx.Queue(AnyRows, `UPDATE login_windows SET count = count - 1 WHERE subject = $1 AND window_start = $2 AND count > 0`,
			counted.subject[:], counted.window)
	}
}

// failureWindow is within how long failed logins of a user are counted for the audit log, in milliseconds.
const failureWindow = 60 * 60_000

// hourOf returns the window of the hour. It is named by its end, so that the windows of logins, which pass in minutes, don't take it away.
func hourOf(tx Tx) int64 { return (tx.Now()/failureWindow + 1) * failureWindow }

// CountFailed counts a failed login by the SHA-256 of its e-mail address. The 1st, 10th, 100th, 1,000th and so on within an hour of a user
// is in the audit log, with the client's address, so that a flood leaves only a few rows, the first one immediately. records are the users
// with the address; without one it is only counted.
func (l Logins) CountFailed(ctx context.Context, subject [32]byte, records []LoginRecord, address string) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		count, err := countLogin(ctx, tx, subject, hourOf(tx))
		if err != nil {
			return err
		}
		round := int64(1)
		for round < count {
			round *= 10
		}
		if round != count {
			return nil
		}
		for _, record := range records {
			audit(tx, "login", "session.fail", record.UserID, record.OrgID,
				fmt.Sprintf("failed login number %d of this hour, from %s", count, address))
		}
		return nil
	})
}

// ChangePassword sets another password for a user after a check of the old one, and ends the user's links and sessions except for the
// session with the hash kept. The attempts of the check are given back. It returns [ErrNotFound] if the user's password is no longer
// record's.
func (l Logins) ChangePassword(ctx context.Context, record LoginRecord, password string, kept [32]byte, login Login) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, `UPDATE users SET password = $4, updated_at = $5 WHERE id = $1 AND org_id = $2 AND password = $3 RETURNING id`,
			record.UserID, record.OrgID, record.Password, password, tx.Now())
		if err != nil {
			return err
		}
		tx.Queue(AnyRows, `DELETE FROM sessions WHERE user_id = $1 AND org_id = $2 AND hash <> $3`, record.UserID, record.OrgID, kept[:])
		tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id = $1 AND org_id = $2`, record.UserID, record.OrgID)
		login.queueGiveBack(tx)
		audit(tx, record.UserID, "user.set_password", record.UserID, record.OrgID, "change")
		return nil
	})
}
