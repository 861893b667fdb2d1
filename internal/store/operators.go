package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
)

// Operator is a person who runs the service.
type Operator struct {
	ID, Email string // the address is in lower case and unique
	Role      string // viewer, support or administrator
	Password  string // the encoded hash; empty until a one-time link was used
	// Times are epoch milliseconds. LinkUntil is when the link ends.
	DisabledAt           sql.NullInt64
	LinkUntil            int64
	CreatedAt, UpdatedAt int64
	// Scheme is the colours of the pages, light or dark. Empty means the browser's.
	Scheme string
	// SecondFactor: the operator has one. It is only read.
	SecondFactor bool `db:"-"`
}

const roleAdministrator = "administrator"

var operators = newTable("operators o", func(o *Operator) []field {
	return []field{{`EXISTS (SELECT 1 FROM second_factors f WHERE f.org_id = '' AND f.person_id = o.id)`, computed{&o.SecondFactor}}}
})

// Operators reads and writes operators of the service and their sessions. Passwords and sessions follow the rules of [Users] and [Sessions].
type Operators struct{ db *DB }

// Add adds an operator with a one-time link. It returns [ErrConflict] if the e-mail address is in use.
func (o Operators) Add(ctx context.Context, actor string, operator Operator, link UserLink) error {
	return o.db.ExecQueued(ctx, func(tx Tx) {
		operator.CreatedAt, operator.UpdatedAt, operator.LinkUntil = tx.Now(), tx.Now(), tx.Now()+link.Lifetime
		operators.queueInsert(tx, &operator)
		tx.Queue(1, `UPDATE operators SET link_hash = $2 WHERE id = $1`, operator.ID, link.Hash[:])
		audit(tx, actor, "operator.add", operator.ID, "", operator.Role+": "+operator.Email)
	})
}

// List reads a page of the operators, oldest first.
func (o Operators) List(ctx context.Context, page Page) ([]Operator, error) {
	return readPage(ctx, o.db, "list operators", operators.scan, operators.selected+` WHERE id > ''`, "id", page)
}

// ByID reads an operator. It returns [ErrNotFound] if there is none.
func (o Operators) ByID(ctx context.Context, id string) (Operator, error) {
	return ReadRow(ctx, o.db, "read an operator", operators.scan, operators.selected+` WHERE id = $1`, id)
}

// ByEmail reads an operator by the e-mail address. It returns [ErrNotFound] if there is none.
func (o Operators) ByEmail(ctx context.Context, email string) (Operator, error) {
	return ReadRow(ctx, o.db, "read an operator", operators.scan, operators.selected+` WHERE email = $1`, email)
}

// ByLink reads the operator of a one-time link by the SHA-256 hash, if the link hasn't ended. It returns [ErrNotFound] if there is none.
func (o Operators) ByLink(ctx context.Context, hash [32]byte) (Operator, error) {
	now, err := o.db.Now(ctx)
	if err != nil {
		return Operator{}, err
	}
	return ReadRow(ctx, o.db, "read an operator", operators.scan, operators.selected+` WHERE link_hash = $1 AND link_until > $2`, hash[:], now)
}

// Change gives an operator another role, and disables or enables the operator. Nil leaves one as it is. The operator's sessions end. It returns
// [ErrNotFound], and [ErrLastAdministrator] if no administrator would be left who can sign in.
func (o Operators) Change(ctx context.Context, actor, id string, role *string, disabled *bool) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		was, others, err := lockOperator(ctx, tx, id)
		if err != nil {
			return err
		}
		is := was
		is.Role = *cmp.Or(role, &was.Role)
		if disabled != nil && *disabled != was.DisabledAt.Valid {
			is.DisabledAt = sql.NullInt64{Int64: tx.Now(), Valid: *disabled}
		}
		if was.administers() && !is.administers() && others == 0 {
			return ErrLastAdministrator
		}
		tx.Queue(1, `UPDATE operators SET role = $2, disabled_at = $3, updated_at = $4 WHERE id = $1`, id, is.Role, is.DisabledAt, tx.Now())
		queueEndOperator(tx, id)
		audit(tx, actor, "operator.change", id, "", fmt.Sprintf("%s: %s to %s, disabled=%t", was.Email, was.Role, is.Role, is.DisabledAt.Valid))
		return nil
	})
}

// Remove removes an operator with the sessions and the second factor, by the rules of [Operators.Change].
func (o Operators) Remove(ctx context.Context, actor, id string) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		was, others, err := lockOperator(ctx, tx, id)
		if err != nil {
			return err
		}
		if was.administers() && others == 0 {
			return ErrLastAdministrator
		}
		queueEndOperator(tx, id)
		queueNoSecondFactor(tx, "", id)
		tx.Queue(1, `DELETE FROM operators WHERE id = $1`, id)
		audit(tx, actor, "operator.remove", id, "", was.Role+": "+was.Email)
		return nil
	})
}

// administers reports whether the operator can sign in as an administrator.
func (o *Operator) administers() bool {
	return o.Role == roleAdministrator && o.Password != "" && !o.DisabledAt.Valid
}

// lockOperator reads and locks an operator together with all administrators. others is the number of other administrators who can sign in.
func lockOperator(ctx context.Context, tx Tx, id string) (operator Operator, others int, err error) {
	err = tx.Query(ctx, func(row Row) error {
		var locked Operator
		if err := row.Scan(&locked.ID, &locked.Email, &locked.Role, &locked.Password, &locked.DisabledAt); err != nil {
			return err
		}
		if locked.ID == id {
			operator = locked
		} else if locked.administers() {
			others++
		}
		return nil
	}, `SELECT id, email, role, password, disabled_at FROM operators WHERE id = $1 OR role = 'administrator' ORDER BY id`+tx.LockRows(), id)
	if err == nil && operator.ID == "" {
		err = ErrNotFound
	}
	return operator, others, err
}

func queueEndOperator(tx Tx, id string) {
	tx.Queue(AnyRows, `DELETE FROM operator_sessions WHERE operator_id = $1`, id)
}

// PutLink gives an operator a new one-time link, which replaces the old one. It returns [ErrNotFound] if there is no such operator.
func (o Operators) PutLink(ctx context.Context, actor, id string, link UserLink) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, `UPDATE operators SET link_hash = $2, link_until = $3 WHERE id = $1 RETURNING id`,
			id, link.Hash[:], tx.Now()+link.Lifetime)
		if err != nil {
			return err
		}
		audit(tx, actor, "operator.link", id, "", "")
		return nil
	})
}

// SetPassword replaces the password was of an operator who isn't disabled, uses up a link, and begins a session in the place of all
// others. It returns [ErrNotFound] if the operator, the password or the link is another one by now.
func (o Operators) SetPassword(ctx context.Context, actor, id, was, password string, link [32]byte, session NewSession) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, `UPDATE operators SET password = $3, link_hash = NULL, updated_at = $4
			WHERE id = $1 AND password = $2 AND disabled_at IS NULL AND link_until > $4 AND link_hash = $5 RETURNING id`,
			id, was, password, tx.Now(), link[:])
		if err != nil {
			return err
		}
		queueEndOperator(tx, id)
		queueOperatorSession(tx, id, session)
		audit(tx, actor, "operator.set_password", id, "", "")
		return nil
	})
}

// Begin begins a session of an operator after a check of the password, as [Sessions.Begin] does. It returns [ErrNotFound] if the operator is
// removed or disabled, or has another password by now.
func (o Operators) Begin(ctx context.Context, actor string, operator Operator, renewed string, session NewSession, login Login) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, `UPDATE operators SET password = $3 WHERE id = $1 AND password = $2 AND disabled_at IS NULL RETURNING id`,
			operator.ID, operator.Password, cmp.Or(renewed, operator.Password))
		if err != nil {
			return err
		}
		tx.Queue(AnyRows, `DELETE FROM operator_sessions WHERE expires_at <= $1`, tx.Now())
		queueOperatorSession(tx, operator.ID, session)
		login.queueGiveBack(tx)
		audit(tx, actor, "operator.sign_in", operator.ID, "", "")
		return nil
	})
}

func queueOperatorSession(tx Tx, id string, session NewSession) {
	tx.Queue(1, `INSERT INTO operator_sessions (hash, operator_id, client, created_at, seen_at, expires_at, second_factor_at)
		VALUES ($1, $2, $3, $4, $4, $5, 0)`, session.Hash[:], id, session.Client, tx.Now(), tx.Now()+session.Lifetime)
}

// OperatorSession is a session of an operator. Times are epoch milliseconds, Now the database's clock when it was read.
type OperatorSession struct {
	Operator

	SeenAt, ExpiresAt, SecondFactorAt, Now int64
}

// Session reads the session with this SHA-256 hash of an operator who isn't disabled. It returns [ErrNotFound] if there is none. Nothing is
// cached.
func (o Operators) Session(ctx context.Context, hash [32]byte) (OperatorSession, error) {
	session, err := ReadRow(ctx, o.db, "read a session", func(row Row) (session OperatorSession, err error) {
		err = scanFields(row, append(operators.fields(&session.Operator), field{"", computed{&session.SeenAt}},
			field{"", computed{&session.ExpiresAt}}, field{"", computed{&session.SecondFactorAt}}))
		return session, err
	}, `SELECT `+operators.list("o.", nil)+`, s.seen_at, s.expires_at, s.second_factor_at
		FROM operator_sessions s JOIN operators o ON o.id = s.operator_id WHERE s.hash = $1 AND o.disabled_at IS NULL`, hash[:])
	if err == nil {
		session.Now, err = o.db.Now(ctx)
	}
	return session, err
}

// Touch stores that a session is in use, or, with a code, that its operator has just given the second factor.
func (o Operators) Touch(ctx context.Context, hash [32]byte, code bool) error {
	return o.db.ExecQueued(ctx, func(tx Tx) {
		tx.Queue(AnyRows, `UPDATE operator_sessions SET seen_at = $2, second_factor_at = CASE WHEN $3 THEN $2 ELSE second_factor_at END
			WHERE hash = $1`, hash[:], tx.Now(), code)
	})
}

// SetScheme sets the colours of the operator's pages.
func (o Operators) SetScheme(ctx context.Context, id, scheme string) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		return change(ctx, tx, `UPDATE operators SET scheme = $2 WHERE id = $1 RETURNING id`, id, scheme)
	})
}

// End ends a session. A session that doesn't exist is no error.
func (o Operators) End(ctx context.Context, hash [32]byte) error {
	return o.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		ended, err := QueryValues[string](ctx, tx, `DELETE FROM operator_sessions WHERE hash = $1 RETURNING operator_id`, hash[:])
		for _, id := range ended {
			audit(tx, id, "operator.sign_out", id, "", "")
		}
		return err
	})
}
