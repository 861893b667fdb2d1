package store

import "context"

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
		QueueAudit(tx, AuditEntry{
			Actor: actor, Action: "user.invite", Target: user.ID, OrgID: user.OrgID, Detail: user.Role + ": " + user.Email,
		})
		return nil
	})
}

// lockInvitation reads and locks an invitation, or returns [ErrNotFound].
func lockInvitation(ctx context.Context, tx Tx, orgID, id string) (user User, err error) {
	into := []any{&user.ID, &user.OrgID, &user.Email, &user.Role, &user.CreatedAt, &user.UpdatedAt, &user.ExpiresAt}
	err = queryRow(ctx, tx, into, `SELECT id, org_id, email, role, created_at, updated_at, expires_at FROM invitations
		WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
	user.invitation = true
	return user, err
}

// lockInvitations makes other uses of invitations of the address wait, in whichever organization, and returns the organization of
// the open invitation with the hash, or [ErrNotFound].
func lockInvitations(ctx context.Context, tx Tx, hash [32]byte) (email, orgID string, err error) {
	const open = `SELECT email, org_id FROM invitations WHERE hash = $1 AND expires_at > $2`
	if err := queryRow(ctx, tx, []any{&email, &orgID}, open, hash[:], tx.Now()); err != nil {
		return "", "", err
	}
	_, err = QueryValues[string](ctx, tx, `SELECT id FROM invitations WHERE email = $1 ORDER BY id`+tx.LockRows(), email)
	return email, orgID, err
}

// acceptInvitation makes the user of an open invitation, or returns [ErrNotFound] when the link is none of an open
// invitation, or its organization has a user with the address. Other users with the address must have the password salted, see
// [UserLinks.Use].
func acceptInvitation(ctx context.Context, tx Tx, hash [32]byte, password, salted string) (user User, err error) {
	email, orgID, err := lockInvitations(ctx, tx, hash)
	if err != nil {
		return user, err
	}
	taken, err := Changed(ctx, tx, `SELECT id FROM users WHERE email = $1 AND org_id = $2`, email, orgID)
	if err == nil && taken {
		err = ErrNotFound
	}
	if err == nil {
		err = checkSalted(ctx, tx, email, salted)
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

// checkSalted returns [ErrSalt] unless salted is the password that a new one of a user with the address shares its salt with.
func checkSalted(ctx context.Context, tx Tx, email, salted string) error {
	passwords, err := QueryValues[string](ctx, tx, saltedPassword, email)
	if err == nil && firstOf(passwords) != salted {
		err = ErrSalt
	}
	return err
}

// saltedPassword reads the password whose salt all users with the address $1 share.
const saltedPassword = `SELECT password FROM users WHERE email = $1 ORDER BY id LIMIT 1`

func firstOf(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}
