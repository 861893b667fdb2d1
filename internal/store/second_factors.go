package store

import (
	"context"
	"fmt"
	"strings"
)

// SecondFactor is what checks the codes that a person gives beside the password.
type SecondFactor struct {
	// OrgID is empty for an operator of the service.
	OrgID, PersonID string
	Secret          []byte // sealed by its owner
	// Step is the time step of the last code that was used.
	Step int64
	// Recovery are the SHA-256, in hexadecimal, of the recovery codes that weren't used.
	Recovery  []string `db:"words"`
	CreatedAt int64    // epoch milliseconds
}

var secondFactors = newTable[SecondFactor]("second_factors", nil)

// SecondFactors reads and writes second factors.
type SecondFactors struct{ db *DB }

// Of reads a person's second factor. It returns [ErrNotFound] if there is none.
func (s SecondFactors) Of(ctx context.Context, orgID, personID string) (SecondFactor, error) {
	return ReadRow(ctx, s.db, "read a second factor", secondFactors.scan,
		secondFactors.selected+` WHERE org_id = $1 AND person_id = $2`, orgID, personID)
}

// Add stores a person's second factor, and ends the person's sessions except for the session with the hash kept, which counts as one with a
// code. It returns [ErrConflict] if the person has a second factor already, and [ErrNotFound] if the session has ended.
func (s SecondFactors) Add(ctx context.Context, actor string, factor SecondFactor, kept [32]byte) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		ended := `DELETE FROM sessions WHERE user_id = $1 AND hash <> $2`
		seen := `SELECT user_id FROM sessions WHERE hash = $1 AND user_id = $2 AND created_at <= $3`
		if factor.OrgID == "" {
			ended = `DELETE FROM operator_sessions WHERE operator_id = $1 AND hash <> $2`
			seen = `UPDATE operator_sessions SET second_factor_at = $3 WHERE hash = $1 AND operator_id = $2 RETURNING operator_id`
		}
		if err := change(ctx, tx, seen, kept[:], factor.PersonID, tx.Now()); err != nil {
			return err
		}
		tx.Queue(AnyRows, ended, factor.PersonID, kept[:])
		factor.CreatedAt = tx.Now()
		secondFactors.queueInsert(tx, &factor)
		audit(tx, actor, "second_factor.enable", factor.PersonID, factor.OrgID, "")
		return nil
	})
}

// UseStep stores that the code of a time step is used. It reports false if it, or a later one, was used before, here or on another node.
func (s SecondFactors) UseStep(ctx context.Context, orgID, personID string, step int64) (first bool, err error) {
	return execChanged(ctx, s.db, `UPDATE second_factors SET step = $3 WHERE org_id = $1 AND person_id = $2 AND step < $3 RETURNING person_id`,
		orgID, personID, step)
}

// UseRecovery uses up a recovery code. It reports false if it was used before, here or on another node.
func (s SecondFactors) UseRecovery(ctx context.Context, actor, orgID, personID, hash string) (first bool, err error) {
	return Write(ctx, s.db, func(ctx context.Context, tx Tx) (bool, error) {
		var codes string
		err := queryRow(ctx, tx, []any{&codes},
			`SELECT recovery FROM second_factors WHERE org_id = $1 AND person_id = $2`+tx.LockRows(), orgID, personID)
		if err != nil || !strings.Contains(codes, hash) {
			return false, err
		}
		kept := strings.Fields(strings.Replace(codes, hash, "", 1))
		tx.Queue(1, `UPDATE second_factors SET recovery = $3 WHERE org_id = $1 AND person_id = $2`, orgID, personID, strings.Join(kept, " "))
		audit(tx, actor, "second_factor.recover", personID, orgID, fmt.Sprintf("%d recovery codes left", len(kept)))
		return true, nil
	})
}

// Delete removes a person's second factor. allow checks a user by the rules of [Users.SetRole]; nil checks nothing. It returns [ErrNotFound]
// if there is none.
func (s SecondFactors) Delete(ctx context.Context, actor, orgID, personID string, allow func(User) error) error {
	return s.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if allow != nil {
			if _, err := lockUser(ctx, tx, orgID, personID, roleOwner, allow); err != nil {
				return err
			}
		}
		err := change(ctx, tx, `DELETE FROM second_factors WHERE org_id = $1 AND person_id = $2 RETURNING person_id`, orgID, personID)
		if err != nil {
			return err
		}
		if orgID == "" { // who holds a session now must set up another one before anything else
			tx.Queue(AnyRows, `DELETE FROM operator_sessions WHERE operator_id = $1`, personID)
		}
		audit(tx, actor, "second_factor.disable", personID, orgID, "")
		return nil
	})
}

func queueNoSecondFactor(tx Tx, orgID, personID string) {
	tx.Queue(AnyRows, `DELETE FROM second_factors WHERE org_id = $1 AND person_id = $2`, orgID, personID)
}

// Each calls each with every second factor, as [ProviderKeys.Each] does.
func (s SecondFactors) Each(ctx context.Context, each func(SecondFactor) error) error {
	return eachRow(ctx, s.db, "list second factors", secondFactors.scan,
		secondFactors.selected+` WHERE (org_id, person_id) > ($1, $2) ORDER BY org_id, person_id LIMIT $3`,
		func(factor *SecondFactor) []any { return []any{factor.OrgID, factor.PersonID} }, each)
}

// Reseal is [ProviderKeys.Reseal] for the secret of a second factor.
func (s SecondFactors) Reseal(ctx context.Context, orgID, personID string, was, sealed []byte) (replaced bool, err error) {
	return execChanged(ctx, s.db, `UPDATE second_factors SET secret = $4 WHERE org_id = $1 AND person_id = $2 AND secret = $3 RETURNING person_id`,
		orgID, personID, was, sealed)
}

// CountFailed writes a wrong code to the audit log. The caller bounds how many there are.
func (s SecondFactors) CountFailed(ctx context.Context, orgID, personID string) error {
	return s.db.ExecQueued(ctx, func(tx Tx) { audit(tx, "login", "second_factor.fail", personID, orgID, "") })
}
