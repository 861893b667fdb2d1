package store

import "context"

// UserLink is a one-time link that lets a user set a password.
type UserLink struct {
	Hash    [32]byte // SHA-256 of its token, which is stored nowhere
	Purpose string   // invite or reset
	// Lifetime in milliseconds, from the transaction's clock on.
	Lifetime int64
}

// UserLinks reads and writes the one-time links by which users set a password.
type UserLinks struct{ db *DB }

// Put gives a user a new link, which takes the place of the one before, when allow lets it: see
// [Users.SetRole]. link gets the user and makes the link. It returns [ErrNotFound] when the organization has no such user.
func (l UserLinks) Put(ctx context.Context, actor, orgID, id string, allow func(User) error, link func(User) UserLink) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		user, err := lockUser(ctx, tx, orgID, id, roleOwner, allow)
		if err != nil {
			return err
		}
		made := link(user)
		if user.invitation {
			tx.Queue(1, `UPDATE invitations SET hash = $3, expires_at = $4, updated_at = $5 WHERE id = $1 AND org_id = $2`,
				id, orgID, made.Hash[:], tx.Now()+made.Lifetime, tx.Now())
		} else {
			tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id = $1 AND org_id = $2`, id, orgID)
			queueLink(tx, actor, orgID, id, made)
		}
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "user.link", Target: id, OrgID: orgID, Detail: made.Purpose + ": " + user.Email})
		return nil
	})
}

func queueLink(tx Tx, actor, orgID, userID string, link UserLink) {
	tx.Queue(1, `INSERT INTO user_links (hash, user_id, org_id, created_at, expires_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)`,
		link.Hash[:], userID, orgID, tx.Now(), tx.Now()+link.Lifetime, actor)
}

// LinkRecord is a one-time link with its user.
type LinkRecord struct {
	UserID, OrgID, Purpose string
	Email                  string
	Salted                 string // a password of a user with the address, "" for none: see [UserLinks.Use]
	ExpiresAt              int64  // epoch milliseconds, as NowMS
	NowMS                  int64  // the database's clock when the link was read
}

// ByHash reads the one-time link with this SHA-256 hash, and false when there is none.
func (l UserLinks) ByHash(ctx context.Context, hash [32]byte) (record LinkRecord, found bool, err error) {
	record, err = ReadRow(ctx, l.db, "read a link", func(row Row) (record LinkRecord, err error) {
		err = row.Scan(&record.UserID, &record.OrgID, &record.Purpose, &record.ExpiresAt, &record.Email)
		return record, err
	}, `SELECT l.user_id, l.org_id, 'reset', l.expires_at, users.email
		FROM user_links l JOIN users ON users.org_id = l.org_id AND users.id = l.user_id WHERE l.hash = $1
		UNION ALL SELECT id, org_id, 'invite', expires_at, email FROM invitations WHERE hash = $1`, hash[:])
	if err != nil {
		return orAbsent(record, err)
	}
	salted, err := ReadRows(ctx, l.db, "read a salt", ScanValue[string], saltedPassword, record.Email)
	if err != nil {
		return record, false, err
	}
	record.Salted = firstOf(salted)
	record.NowMS, err = l.db.Now(ctx)
	return record, err == nil, err
}

// Use takes a one-time link, once: it sets the password, ends every session of the user and begins a new one. It
// returns [ErrNotFound] for a link that isn't there any more, or has expired, and for an invitation of an e-mail address that
// has a user in the organization by now.
//
// All users with one e-mail address, whose organizations may be several, share the salt of their passwords, so that a sign-in computes
// one hash for all. salted is the password whose salt password has: [LinkRecord].Salted. [ErrSalt] says that it has changed: read
// the link and hash again.
func (l UserLinks) Use(ctx context.Context, hash [32]byte, password, salted string, session NewSession) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var userID, orgID, author string
		link := func(row Row) error { return row.Scan(&userID, &orgID, &author) }
		err := tx.Query(ctx, link, `SELECT user_id, org_id, created_by FROM user_links WHERE hash = $1`, hash[:])
		if err != nil {
			return err
		}
		if userID == "" {
			user, err := acceptInvitation(ctx, tx, hash, password, salted)
			if err != nil {
				return err
			}
			queueSession(tx, user.OrgID, user.ID, session)
			QueueAudit(tx, AuditEntry{Actor: user.ID, Action: "user.set_password", Target: user.ID, OrgID: user.OrgID, Detail: "invite"})
			return nil
		}
		// The user first, as everywhere, so that two changes of the same user can't wait for each other.
		if err := change(ctx, tx, `SELECT id FROM users WHERE id = $1 AND org_id = $2`+tx.LockRows(), userID, orgID); err != nil {
			return err
		}
		err = change(ctx, tx, `DELETE FROM user_links WHERE hash = $1 AND org_id = $2 AND expires_at > $3 RETURNING user_id`,
			hash[:], orgID, tx.Now())
		if err != nil {
			return err
		}
		// The author of the link has made this possible, and the user is shown the author.
		tx.Queue(1, `UPDATE users SET password = $3, updated_at = $4, reset_by = $5, reset_at = $4 WHERE id = $1 AND org_id = $2`,
			userID, orgID, password, tx.Now(), author)
		queueEndSessions(tx, orgID, userID)
		queueSession(tx, orgID, userID, session)
		QueueAudit(tx, AuditEntry{Actor: author, Action: "user.set_password", Target: userID, OrgID: orgID, Detail: "reset"})
		return nil
	})
}
