package store

import (
	"context"
	"fmt"
)

// Logins checks logins: the records that passwords are compared with, and the windows that bound the attempts.
type Logins struct{ db *DB }

// LoginRecord is a user's password, for a login to check.
type LoginRecord struct {
	UserID, OrgID string
	OrgName       string
	Password      string // the encoded hash
}

// ByEmail reads the users with an e-mail address, at most one of an organization, in order of id.
func (l Logins) ByEmail(ctx context.Context, email string) ([]LoginRecord, error) {
	return ReadRows(ctx, l.db, "read logins", scanLogin, loginColumns+` WHERE users.email = $1 ORDER BY users.id`, email)
}

// ByID reads the password of an organization's user, or returns [ErrNotFound].
func (l Logins) ByID(ctx context.Context, orgID, userID string) (LoginRecord, error) {
	return ReadRow(ctx, l.db, "read a login", scanLogin, loginColumns+` WHERE users.id = $1 AND users.org_id = $2`, userID, orgID)
}

const loginColumns = `SELECT users.id, users.org_id, o.name, users.password FROM users JOIN organizations o ON o.id = users.org_id`

func scanLogin(row Row) (record LoginRecord, err error) {
	err = row.Scan(&record.UserID, &record.OrgID, &record.OrgName, &record.Password)
	return record, err
}

// loginWindow is how long a window of logins is, in milliseconds; windows are aligned to the database's clock.
const loginWindow = 60_000

// LoginBound is how often a subject may fail to log in within a minute.
type LoginBound struct {
	Subject [32]byte // SHA-256 of an e-mail address, of a client's address, or of both
	Most    int64
}

// Login is an attempt as it was counted in its windows.
type Login struct {
	window   int64
	subjects [][32]byte
	// RetryAfter is 0, or the milliseconds until the next window when a bound was reached.
	RetryAfter int64
}

// Take counts an attempt to log in before it is made, so that attempts at the same moment, on any node, can't pass
// a bound together. Bounds are taken in their order up to the first that is reached: what is refused there counts in none
// of those after it. An attempt that succeeds is given back by [Sessions.Begin], one that was not made by [Logins.GiveBack].
func (l Logins) Take(ctx context.Context, bounds []LoginBound) (login Login, err error) {
	err = l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		login = Login{window: tx.Now() / loginWindow * loginWindow}
		for _, bound := range bounds {
			var count int64
			err := tx.Query(ctx, func(row Row) error { return row.Scan(&count) },
				`INSERT INTO login_windows (subject, window_start, count) VALUES ($1, $2, 1)
				ON CONFLICT (subject, window_start) DO UPDATE SET count = login_windows.count + 1 RETURNING count`,
				bound.Subject[:], login.window)
			if err != nil {
				return err
			}
			if count > bound.Most {
				login.RetryAfter = login.window + loginWindow - tx.Now()
				return nil
			}
			login.subjects = append(login.subjects, bound.Subject)
		}
		// The window before may still be given back to by another node.
		tx.Queue(AnyRows, `DELETE FROM login_windows WHERE window_start < $1`, login.window-loginWindow)
		return nil
	})
	return login, err
}

// GiveBack takes back an attempt whose password was not checked.
func (l Logins) GiveBack(ctx context.Context, login Login) error {
	return l.db.Exec(ctx, func(_ context.Context, tx Tx) error {
		login.queueGiveBack(tx)
		return nil
	})
}

func (l Login) queueGiveBack(tx Tx) {
	for _, subject := range l.subjects {
		tx.Queue(AnyRows, `UPDATE login_windows SET count = count - 1 WHERE subject = $1 AND window_start = $2 AND count > 0`,
			subject[:], l.window)
	}
}

// failureWindow is within how long failed logins of a user are counted for the audit log, in milliseconds.
const failureWindow = 60 * 60_000

// CountFailed counts a login that failed, by the SHA-256 of its e-mail address. The 1st, 10th, 100th, 1,000th and so on
// within an hour of a user is in the audit log, with the client's address: a flood leaves a few rows, and the first of them at
// once. records are the users with the address; without one it is only counted.
func (l Logins) CountFailed(ctx context.Context, subject [32]byte, records []LoginRecord, address string) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var count int64
		// The window is named by its end, so that the windows of logins, which pass in minutes, don't take it away.
		end := (tx.Now()/failureWindow + 1) * failureWindow
		err := tx.Query(ctx, func(row Row) error { return row.Scan(&count) },
			`INSERT INTO login_windows (subject, window_start, count) VALUES ($1, $2, 1)
			ON CONFLICT (subject, window_start) DO UPDATE SET count = login_windows.count + 1 RETURNING count`, subject[:], end)
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
			QueueAudit(tx, AuditEntry{
				Actor: "login", Action: "session.fail", Target: record.UserID, OrgID: record.OrgID,
				Detail: fmt.Sprintf("failed login number %d of this hour, from %s", count, address),
			})
		}
		return nil
	})
}

// ChangePassword sets another password for the user whose password was checked, and ends the user's links and sessions but
// the one with the hash kept. What the check has taken of its windows is given back. It returns [ErrNotFound] when the
// password isn't record's any more.
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
		QueueAudit(tx, AuditEntry{
			Actor: record.UserID, Action: "user.set_password", Target: record.UserID, OrgID: record.OrgID, Detail: "change",
		})
		return nil
	})
}
