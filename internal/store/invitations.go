package store

import "context"

const (
	// inviteDays is for how many days an invitation can be used after it was made, or its link renewed.
	inviteDays = 7
	// invitationKept is for how long an invitation that has expired is still shown, in milliseconds.
	invitationKept = 23 * dayMillis
	dayMillis      = 24 * 60 * 60 * 1000
)

// people are users and invitations alike. Processes of older versions keep an invited person as a user without a
// password, whose invitation ends as others do.
const people = `SELECT id, org_id, email, role, active, created_at, updated_at, expires_at, reset_by, reset_at FROM (
		SELECT id, org_id, email, role, password <> '' AS active, created_at, updated_at,
			CASE WHEN password = '' THEN created_at + 604800000 ELSE 0 END AS expires_at, reset_by, reset_at FROM users
		UNION ALL
		SELECT id, org_id, email, role, FALSE AS active, created_at, updated_at, expires_at, '' AS reset_by, 0 AS reset_at
		FROM invitations
	) AS people`

// Invite invites a person, with the link to set a password. Whether other organizations have invited the
// address, or have a user with it, makes no difference here: [UserLinks.Use] decides. It returns [ErrConflict] when the
// organization itself has a user or an open invitation with the address, [ErrLimit] when it has [MaxMembers], and [ErrNotFound] for
// an unknown organization. An
// invitation of the address that has expired gives way, and invitations that expired long ago are deleted.
func (u Users) Invite(ctx context.Context, actor string, user User, link UserLink) error {
	return u.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		now := tx.Now()
		since := now - inviteDays*dayMillis
		const stale = `email = $1 AND org_id = $2 AND password = '' AND created_at <= $3`
		tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id IN (SELECT id FROM users WHERE `+stale+`)`, user.Email, user.OrgID, since)
		tx.Queue(AnyRows, `DELETE FROM users WHERE `+stale, user.Email, user.OrgID, since)
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

// acceptInvitation makes the user of an open invitation, or returns [ErrNotFound] when the link is none of an open
// invitation, or the address has a user by now, in any organization: the first acceptance takes the address. An
// unused invitation that an older process keeps as a user gives the address up and becomes an invitation like others.
func acceptInvitation(ctx context.Context, tx Tx, hash [32]byte, password string) (user User, err error) {
	err = queryRow(ctx, tx, []any{&user.ID, &user.OrgID, &user.Email, &user.Role, &user.CreatedAt},
		`DELETE FROM invitations WHERE hash = $1 AND expires_at > $2 RETURNING id, org_id, email, role, created_at`, hash[:], tx.Now())
	if err != nil {
		return user, err
	}
	tx.Queue(AnyRows, `INSERT INTO invitations (id, org_id, email, role, hash, created_at, updated_at, expires_at)
		SELECT u.id, u.org_id, u.email, u.role, l.hash, u.created_at, u.updated_at, u.created_at + 604800000
		FROM users u LEFT JOIN user_links l ON l.user_id = u.id WHERE u.email = $1 AND u.password = '' ON CONFLICT DO NOTHING`, user.Email)
	tx.Queue(AnyRows, `DELETE FROM user_links WHERE user_id IN (SELECT id FROM users WHERE email = $1 AND password = '')`, user.Email)
	tx.Queue(AnyRows, `DELETE FROM users WHERE email = $1 AND password = ''`, user.Email)
	return user, change(ctx, tx, `INSERT INTO users (id, org_id, email, role, password, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (email) DO NOTHING RETURNING id`,
		user.ID, user.OrgID, user.Email, user.Role, password, user.CreatedAt, tx.Now())
}
