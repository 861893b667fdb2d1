package store

import (
	"context"
	"errors"
)

// User is a person of an organization.
type User struct {
	ID, OrgID string
	Email     string // in lower case, unique over all organizations
	Role      string // member, administrator or owner
	// Active users have a password; the others are invited and have never used their link.
	Active bool
	// ExpiresAt is until when a person who is not Active can use the invitation, in epoch milliseconds; else 0.
	ExpiresAt int64
	// ResetBy is the author of the link by which the password was reset last, and ResetAt the time; "" and 0 without one.
	ResetBy string
	ResetAt int64
	// CreatedAt and UpdatedAt are epoch milliseconds, the transaction's clock when they are written.
	CreatedAt, UpdatedAt int64

	invitation bool // a row of invitations, not of users
}

const roleOwner = "owner"

func scanUser(row Row) (user User, err error) {
	err = row.Scan(&user.ID, &user.OrgID, &user.Email, &user.Role, &user.Active, &user.CreatedAt, &user.UpdatedAt,
		&user.ExpiresAt, &user.ResetBy, &user.ResetAt)
	return user, err
}

// Users reads and writes users and invitations.
type Users struct{ db *DB }

// ByID reads an organization's user, or a person who is invited, or [ErrNotFound].
func (u Users) ByID(ctx context.Context, orgID, id string) (User, error) {
	return ReadRow(ctx, u.db, "read a user", scanUser, people+` WHERE id = $1 AND org_id = $2`, id, orgID)
}

// ByEmail reads an organization's user, or a person who is invited, by the e-mail address, or [ErrNotFound].
func (u Users) ByEmail(ctx context.Context, orgID, email string) (User, error) {
	return ReadRow(ctx, u.db, "read a user", scanUser, people+` WHERE email = $1 AND org_id = $2`, email, orgID)
}

// List reads a page of an organization's users, invited people among them, oldest first.
func (u Users) List(ctx context.Context, orgID string, page Page) ([]User, error) {
	return readPage(ctx, u.db, "list users", scanUser, people+` WHERE org_id = $1`, "id", page, orgID)
}

// SetRole changes a user's role, ends the user's sessions and takes back an unused one-time link, whose author may have
// fewer rights than the new role. allow gets the user as it is in the transaction; it may run more than once, and its
// error ends the change and is returned. A user who has the role already stays as it is. It
// returns [ErrNotFound] when the organization has no such user, and [ErrLastOwner].
func (u Users) SetRole(ctx context.Context, actor, orgID, id, role string, allow func(User) error) error {
	return u.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		user, err := lockUser(ctx, tx, orgID, id, role, allow)
		if err != nil || user.Role == role {
			return err
		}
		if user.invitation {
			tx.Queue(1, `UPDATE invitations SET role = $3, hash = NULL, updated_at = $4 WHERE id = $1 AND org_id = $2`, id, orgID, role, tx.Now())
		} else {
			tx.Queue(1, `UPDATE users SET role = $3, updated_at = $4 WHERE id = $1 AND org_id = $2`, id, orgID, role, tx.Now())
			queueEndSessions(tx, orgID, id)
			tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id = $1 AND org_id = $2`, id, orgID)
		}
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "user.set_role", Target: id, OrgID: orgID, Detail: user.Role + " to " + role + ": " + user.Email,
		})
		return nil
	})
}

// Delete removes a user with the sessions and the link, by the rules of [Users.SetRole].
func (u Users) Delete(ctx context.Context, actor, orgID, id string, allow func(User) error) error {
	return u.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		user, err := lockUser(ctx, tx, orgID, id, "", allow)
		if err != nil {
			return err
		}
		queueEndSessions(tx, orgID, id)
		tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id = $1 AND org_id = $2`, id, orgID)
		table := "users"
		if user.invitation {
			table = "invitations"
		}
		tx.Queue(1, `DELETE FROM `+table+` WHERE id = $1 AND org_id = $2`, id, orgID)
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "user.remove", Target: id, OrgID: orgID, Detail: user.Role + ": " + user.Email,
		})
		return nil
	})
}

// lockUser reads and locks a user together with the organization's owners, and refuses what allow refuses, and a role,
// "" for none, that would leave the organization without an owner who can sign in.
func lockUser(ctx context.Context, tx Tx, orgID, id, role string, allow func(User) error) (User, error) {
	var user User
	owners, found := 0, false
	err := tx.Query(ctx, func(row Row) error {
		var locked User
		if err := row.Scan(&locked.ID, &locked.OrgID, &locked.Email, &locked.Role, &locked.Active); err != nil {
			return err
		}
		if locked.ID == id {
			user, found = locked, true
		} else if locked.Active {
			owners++
		}
		return nil
	}, `SELECT id, org_id, email, role, password <> '' FROM users
		WHERE org_id = $1 AND (id = $2 OR role = 'owner') ORDER BY id`+tx.LockRows(), orgID, id)
	if err == nil && !found {
		user, err = lockInvitation(ctx, tx, orgID, id)
	}
	if err != nil {
		return User{}, err
	}
	if err := allow(user); err != nil {
		return User{}, err
	}
	if user.Role == roleOwner && user.Active && role != roleOwner && owners == 0 {
		return User{}, ErrLastOwner
	}
	return user, nil
}

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
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "user.link", Target: id, OrgID: orgID, Detail: made.Purpose + ": " + user.Email,
		})
		return nil
	})
}

func queueLink(tx Tx, actor, orgID, userID string, link UserLink) {
	tx.Queue(1, `INSERT INTO user_links (hash, user_id, org_id, purpose, created_at, expires_at, created_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		link.Hash[:], userID, orgID, link.Purpose, tx.Now(), tx.Now()+link.Lifetime, actor)
}

// LinkRecord is a one-time link with its user.
type LinkRecord struct {
	UserID, OrgID, Purpose string
	Email                  string
	ExpiresAt              int64 // epoch milliseconds, as NowMS
	NowMS                  int64 // the database's clock when the link was read
}

// ByHash reads the one-time link with this SHA-256 hash, and false when there is none.
func (l UserLinks) ByHash(ctx context.Context, hash [32]byte) (record LinkRecord, found bool, err error) {
	record, err = ReadRow(ctx, l.db, "read a link", func(row Row) (record LinkRecord, err error) {
		err = row.Scan(&record.UserID, &record.OrgID, &record.Purpose, &record.ExpiresAt, &record.Email)
		return record, err
	}, `SELECT l.user_id, l.org_id, l.purpose, l.expires_at, u.email
		FROM user_links l JOIN users u ON u.id = l.user_id WHERE l.hash = $1
		UNION ALL SELECT id, org_id, 'invite', expires_at, email FROM invitations WHERE hash = $1`, hash[:])
	if err == nil {
		record.NowMS, err = l.db.Now(ctx)
	}
	if errors.Is(err, ErrNotFound) {
		return LinkRecord{}, false, nil
	}
	return record, err == nil, err
}

// Use takes a one-time link, once: it sets the password, ends every session of the user and begins a new one. It
// returns [ErrNotFound] for a link that isn't there any more, or has expired, and for an invitation of an e-mail address that
// has a user by now, in any organization.
func (l UserLinks) Use(ctx context.Context, hash [32]byte, password string, session NewSession) error {
	return l.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		var userID, orgID, purpose, author string
		link := func(row Row) error { return row.Scan(&userID, &orgID, &purpose, &author) }
		err := tx.Query(ctx, link, `SELECT user_id, org_id, purpose, created_by FROM user_links WHERE hash = $1`, hash[:])
		if err != nil {
			return err
		}
		if userID == "" {
			user, err := acceptInvitation(ctx, tx, hash, password)
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
		actor := userID
		if purpose == "reset" {
			// The author of the link has made this possible, and the user is shown the author.
			if author != "" {
				actor = author
			}
			tx.Queue(1, `UPDATE users SET reset_by = $3, reset_at = $4 WHERE id = $1 AND org_id = $2`, userID, orgID, author, tx.Now())
		}
		tx.Queue(1, `UPDATE users SET password = $3, updated_at = $4 WHERE id = $1 AND org_id = $2`, userID, orgID, password, tx.Now())
		queueEndSessions(tx, orgID, userID)
		queueSession(tx, orgID, userID, session)
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "user.set_password", Target: userID, OrgID: orgID, Detail: purpose})
		return nil
	})
}
