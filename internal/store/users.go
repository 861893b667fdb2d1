package store

import (
	"context"
	"unicode"
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
	// ResetBy is the author of the link by which the password was reset last, and ResetAt the time. They are empty and 0 if there was none.
	ResetBy string
	ResetAt int64
	// Language is the language of the pages that the user has chosen, Scheme their colours, light or dark. Empty means the browser's.
	Language, Scheme string
	// CreatedAt and UpdatedAt are epoch milliseconds, the transaction's clock when they are written.
	CreatedAt, UpdatedAt int64

	invitation bool // a row of invitations, not of users
}

const roleOwner = "owner"

// people are users and invitations alike.
var (
	people            = newTable[User]("people", nil)
	selectUsers       = `SELECT ` + people.list("", map[string]string{"active": "TRUE", "expires_at": "0"}) + ` FROM users`
	selectInvitations = `SELECT ` + people.list("", map[string]string{
		"active": "FALSE", "reset_by": "''", "reset_at": "0", "language": "''", "scheme": "''",
	}) + ` FROM invitations`
	selectPeople = `SELECT ` + people.list("", nil) + ` FROM (` + selectUsers + ` UNION ALL ` + selectInvitations + `) AS people`
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

// FoundUser is a user, or an invited person, with the name of the organization.
type FoundUser struct {
	User

	OrgName string
}

// Search reads a page of the users of all organizations with addresses that begin with email, invited people among them, oldest first.
func (u Users) Search(ctx context.Context, email string, page Page) ([]FoundUser, error) {
	part, arguments := ` WHERE id > $1`, []any{page.After, page.Rows()}
	if email != "" {
		part += ` AND email >= $3 AND email < $4`
		arguments = append(arguments, email, email+string(unicode.MaxRune))
	}
	part += ` ORDER BY id LIMIT $2`
	return ReadRows(ctx, u.db, "search users", ScanFields[FoundUser](),
		`SELECT `+people.list("people.", nil)+`, (SELECT o.name FROM organizations o WHERE o.id = people.org_id) FROM (
			SELECT `+people.list("", nil)+` FROM (`+selectUsers+part+`) AS people
			UNION ALL SELECT `+people.list("", nil)+` FROM (`+selectInvitations+part+`) AS people
		) AS people ORDER BY people.id LIMIT $2`, arguments...)
}

// SetRole changes a user's role, ends the user's sessions and deletes an unused one-time link, because its author may have fewer rights
// than the new role. allow checks the user as the transaction has read it; it may run more than once, and SetRole returns its error. The
// same role again changes nothing. SetRole returns [ErrNotFound] if the organization has no such user, and [ErrLastOwner].
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
		audit(tx, actor, "user.set_role", id, orgID, user.Role+" to "+role+": "+user.Email)
		return nil
	})
}

// SetLook sets the language and the colours of the user's pages. It returns [ErrNotFound] if the organization has no such user.
func (u Users) SetLook(ctx context.Context, orgID, id, language, scheme string) error {
	return u.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		const set = `UPDATE users SET language = $3, scheme = $4 WHERE id = $1 AND org_id = $2 RETURNING id`
		return change(ctx, tx, set, id, orgID, language, scheme)
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
		queueNoSecondFactor(tx, orgID, id)
		table := "users"
		if user.invitation {
			table = "invitations"
		}
		tx.Queue(1, `DELETE FROM `+table+` WHERE id = $1 AND org_id = $2`, id, orgID)
		audit(tx, actor, "user.remove", id, orgID, user.Role+": "+user.Email)
		return nil
	})
}

// lockUser reads and locks a user together with the organization's owners. It returns the error of allow, and [ErrLastOwner] if the new
// role, or no role for an empty one, would leave the organization without an owner who can sign in.
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
		user.invitation = true
		into := []any{&user.ID, &user.OrgID, &user.Email, &user.Role, &user.CreatedAt, &user.UpdatedAt, &user.ExpiresAt}
		err = queryRow(ctx, tx, into, `SELECT id, org_id, email, role, created_at, updated_at, expires_at FROM invitations
			WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
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

const (
	// invitationKept is for how long an invitation that has expired is still shown, in milliseconds.
	invitationKept = 23 * dayMillis
	dayMillis      = 24 * 60 * 60 * 1000
)

// Invite invites a person, with the link to set a password. Whether other organizations have invited the
// address, or have a user with it, makes no difference. It returns [ErrConflict] when the
// organization itself has a user or an open invitation with the address, [ErrLimit] when it has [MaxMembers], and [ErrNotFound] for
// an unknown organization. An
// invitation of the address that has expired gives way, and invitations that expired long ago are deleted.
func (u Users) Invite(ctx context.Context, actor string, user User, link UserLink) error {
	return u.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		now := tx.Now()
		tx.Queue(AnyRows, `DELETE FROM invitations WHERE org_id = $1 AND email = $2 AND expires_at <= $3`, user.OrgID, user.Email, now)
		tx.Queue(AnyRows, `DELETE FROM invitations WHERE expires_at <= $1`, now-invitationKept)
		// Before the organization is locked: the use of an open invitation waits for that lock.
		open, err := Changed(ctx, tx, `SELECT id FROM invitations WHERE org_id = $1 AND email = $2`+tx.LockRows(), user.OrgID, user.Email)
		if err != nil {
			return err
		}
		taken, err := Changed(ctx, tx, `SELECT id FROM users WHERE email = $1 AND org_id = $2`, user.Email, user.OrgID)
		if err != nil {
			return err
		}
		if open || taken {
			return ErrConflict
		}
		if err := checkRoom(ctx, tx, user.OrgID, MaxMembers, `SELECT count(*) FROM (SELECT id FROM users WHERE org_id = $1
				UNION ALL SELECT id FROM invitations WHERE org_id = $1) AS members`); err != nil {
			return err
		}
		tx.Queue(1, `INSERT INTO invitations (id, org_id, email, role, hash, created_at, updated_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $6, $7)`,
			user.ID, user.OrgID, user.Email, user.Role, link.Hash[:], now, now+link.Lifetime)
		audit(tx, actor, "user.invite", user.ID, user.OrgID, user.Role+": "+user.Email)
		return nil
	})
}

// acceptInvitation makes the user of an open invitation, or returns [ErrNotFound] when the link is none of an open
// invitation, or its organization has a user with the address. Other users with the address must have the password salted, see
// [UserLinks.Use].
func acceptInvitation(ctx context.Context, tx Tx, hash [32]byte, password, salted string) (user User, err error) {
	const open = `SELECT email, org_id FROM invitations WHERE hash = $1 AND expires_at > $2`
	var email, orgID string
	if err := queryRow(ctx, tx, []any{&email, &orgID}, open, hash[:], tx.Now()); err != nil {
		return user, err
	}
	// Other uses of invitations of the address wait, in all organizations.
	if _, err := QueryValues[string](ctx, tx, `SELECT id FROM invitations WHERE email = $1 ORDER BY id`+tx.LockRows(), email); err != nil {
		return user, err
	}
	taken, err := Changed(ctx, tx, `SELECT id FROM users WHERE email = $1 AND org_id = $2`, email, orgID)
	if err == nil && taken {
		err = ErrNotFound
	}
	if err != nil {
		return user, err
	}
	shared, err := QueryValues[string](ctx, tx, saltedPassword, email)
	if err == nil && shared[0] != salted {
		err = ErrSalt
	}
	if err != nil {
		return user, err
	}
	err = queryRow(ctx, tx, []any{&user.ID, &user.OrgID, &user.Email, &user.Role, &user.CreatedAt},
		`DELETE FROM invitations WHERE hash = $1 AND expires_at > $2 RETURNING id, org_id, email, role, created_at`, hash[:], tx.Now())
	if err != nil {
		return user, err
	}
	return user, change(ctx, tx, `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (org_id, email) DO NOTHING RETURNING id`,
		user.ID, user.OrgID, user.Email, user.Role, password, user.CreatedAt, tx.Now())
}

// saltedPassword reads the password with the salt that all users with the address $1 share, or an empty text if there are no such users.
const saltedPassword = `SELECT COALESCE((SELECT password FROM users WHERE email = $1 ORDER BY id LIMIT 1), '')`

// UserLink is a one-time link that lets a user set a password.
type UserLink struct {
	Hash    [32]byte // SHA-256 of its token, which is stored nowhere
	Purpose string   // invite or reset
	// Lifetime in milliseconds, from the transaction's clock on.
	Lifetime int64
}

// UserLinks reads and writes one-time links, which let users set a password.
type UserLinks struct{ db *DB }

// Put gives a user a new link, which replaces the old one, if allow permits it: see [Users.SetRole]. link makes the link of the user. Put
// returns [ErrNotFound] if the organization has no such user.
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
			tx.Queue(1, `INSERT INTO user_links (hash, user_id, org_id, created_at, expires_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)`,
				made.Hash[:], id, orgID, tx.Now(), tx.Now()+made.Lifetime, actor)
		}
		audit(tx, actor, "user.link", id, orgID, made.Purpose+": "+user.Email)
		return nil
	})
}

// LinkRecord is a one-time link with its user.
type LinkRecord struct {
	UserID, OrgID, Purpose string
	Email                  string
	Salted                 string `db:"-"` // a password of a user with the address, "" for none: see [UserLinks.Use]
	ExpiresAt              int64  // epoch milliseconds, as NowMS
	NowMS                  int64  `db:"-"` // the database's clock when the link was read
}

// ByHash reads a one-time link by its SHA-256 hash, and false if there is none.
func (l UserLinks) ByHash(ctx context.Context, hash [32]byte) (record LinkRecord, found bool, err error) {
	record, err = ReadRow(ctx, l.db, "read a link", ScanFields[LinkRecord](),
		`SELECT l.user_id, l.org_id, 'reset', users.email, l.expires_at
		FROM user_links l JOIN users ON users.org_id = l.org_id AND users.id = l.user_id WHERE l.hash = $1
		UNION ALL SELECT id, org_id, 'invite', email, expires_at FROM invitations WHERE hash = $1`, hash[:])
	if err != nil {
		return orAbsent(record, err)
	}
	record.Salted, err = ReadRow(ctx, l.db, "read a salt", ScanValue[string], saltedPassword, record.Email)
	if err == nil {
		record.NowMS, err = l.db.Now(ctx)
	}
	return record, err == nil, err
}

// Use uses up a one-time link: it sets the password, ends every session of the user and begins a new one. It returns [ErrNotFound] for a
// link that doesn't exist or has expired, and for an invitation of an e-mail address that has a user in the organization by now.
//
// All users with one e-mail address share the salt of their passwords, also in several organizations, so that a sign-in computes one hash
// for all. salted is the password that password shares its salt with: [LinkRecord].Salted. After [ErrSalt] the caller reads the link and
// hashes again.
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
			audit(tx, user.ID, "user.set_password", user.ID, user.OrgID, "invite")
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
		audit(tx, author, "user.set_password", userID, orgID, "reset")
		return nil
	})
}
