package store

import (
	"context"
)

// User is a person of an organization.
type User struct {
	ID, OrgID string
	Email     string // in lower case, unique within the organization
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

// people are users and invitations alike.
var (
	people = newTable("people", func(u *User) []field {
		return []field{
			{"id", &u.ID},
			{"org_id", &u.OrgID},
			{"email", &u.Email},
			{"role", &u.Role},
			{"active", &u.Active},
			{"expires_at", &u.ExpiresAt},
			{"reset_by", &u.ResetBy},
			{"reset_at", &u.ResetAt},
			{"created_at", &u.CreatedAt},
			{"updated_at", &u.UpdatedAt},
		}
	})
	selectPeople = `SELECT ` + people.list("", nil) + ` FROM (
		SELECT ` + people.list("", map[string]string{"active": "TRUE", "expires_at": "0"}) + ` FROM users
		UNION ALL SELECT ` + people.list("", map[string]string{"active": "FALSE", "reset_by": "''", "reset_at": "0"}) + ` FROM invitations
	) AS people`
)

// Users reads and writes users and invitations.
type Users struct{ db *DB }

// ByID reads an organization's user or invitation, or returns [ErrNotFound].
func (u Users) ByID(ctx context.Context, orgID, id string) (User, error) {
	return ReadRow(ctx, u.db, "read a user", people.scan, selectPeople+` WHERE id = $1 AND org_id = $2`, id, orgID)
}

// ByEmail reads an organization's user or invitation by the e-mail address, or returns [ErrNotFound].
func (u Users) ByEmail(ctx context.Context, orgID, email string) (User, error) {
	return ReadRow(ctx, u.db, "read a user", people.scan, selectPeople+` WHERE email = $1 AND org_id = $2`, email, orgID)
}

// List reads a page of an organization's users, invited people among them, oldest first.
func (u Users) List(ctx context.Context, orgID string, page Page) ([]User, error) {
	return readPage(ctx, u.db, "list users", people.scan, selectPeople+` WHERE org_id = $1`, "id", page, orgID)
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
		QueueAudit(tx, AuditEntry{Actor: actor, Action: "user.remove", Target: id, OrgID: orgID, Detail: user.Role + ": " + user.Email})
		return nil
	})
}

// lockUser reads and locks a user together with the organization's owners, and refuses what allow refuses, and a role,
// "" for none, that would leave the organization without an owner who can sign in.
func lockUser(ctx context.Context, tx Tx, orgID, id, role string, allow func(User) error) (User, error) {
	var user User
	owners, found := 0, false
	err := tx.Query(ctx, func(row Row) error {
		locked := User{Active: true}
		if err := row.Scan(&locked.ID, &locked.OrgID, &locked.Email, &locked.Role); err != nil {
			return err
		}
		if locked.ID == id {
			user, found = locked, true
		} else {
			owners++
		}
		return nil
	}, `SELECT id, org_id, email, role FROM users
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
