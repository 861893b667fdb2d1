package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

// The roles of operators, as they are stored.
const (
	OperatorViewer        = "viewer"        // reads everything but texts of customers
	OperatorSupport       = "support"       // helps organizations; moves no money, and can't become a user of theirs or make a key of theirs
	OperatorAdministrator = "administrator" // has all scopes
)

// OperatorRoleScopes returns the scopes of a role; none for an unknown role.
func OperatorRoleScopes(role string) OperatorScopes {
	all := OperatorScopesOf(AllOperatorScopes()...)
	const reads OperatorScopes = 0x55555555 // the even bits
	switch role {
	case OperatorAdministrator:
		return all
	case OperatorSupport:
		return all&reads | OperatorScopesOf("organizations:write", "api_keys:write", "channels:write", "queue:write", "doctor:write")
	case OperatorViewer:
		return all & reads
	}
	return 0
}

// How long a second factor counts, for pages and before money moves.
const (
	SecondFactorLifetime = 8 * time.Hour
	MoneyFactorLifetime  = 10 * time.Minute
)

// OperatorSession is a session of an operator, who may still lack the second factor.
type OperatorSession struct{ store.OperatorSession }

// Fresh reports whether the operator gave the second factor within the time.
func (s OperatorSession) Fresh(within time.Duration) bool {
	return s.SecondFactorAt > 0 && s.Now-s.SecondFactorAt < within.Milliseconds()
}

// Principal returns the operator with the rights of the role, or without any right while the second factor isn't fresh.
func (s OperatorSession) Principal() Principal {
	principal := operatorPrincipal(s.ID, OperatorActor+s.Email, OperatorRoleScopes(s.Role))
	if !s.Fresh(SecondFactorLifetime) {
		principal.OperatorScopes = 0
	}
	if s.Role != OperatorAdministrator {
		principal.Scopes = 0 // who makes an API key can spend credits with it
	}
	principal.NeedsCode = !s.Fresh(MoneyFactorLifetime)
	return principal
}

// Operators are the accounts of the people who run the service, with their sessions, which are read at each use: an operator who is removed or
// disabled, or has another role, loses the session at the next request, on every node. Passwords are hashed, counted and compared like the passwords
// of users. Without a second factor a session has no rights. A process needs one.
type Operators struct{ logins }

// NewOperators works on db. ring seals the secrets of second factors. Each hash of a password needs one of processors; nil doesn't bound them.
func NewOperators(db *store.DB, ring *vault.Ring, processors *semaphore.Weighted) *Operators {
	return &Operators{newLogins(db, ring, processors)}
}

// SignIn checks an operator's password and returns the token of a new session, which needs [Operators.SecondFactor], or, for an operator
// without one, [Operators.EnableSecondFactor]. It returns [ErrWrongPassword], also for an operator who doesn't exist or is disabled, a
// [ThrottledError], [ErrBusy], or the store's error.
func (o *Operators) SignIn(ctx context.Context, email, password string, from Client) (token string, _ OperatorSession, err error) {
	email, err = CleanEmail(email)
	if err != nil || CheckPassword(password) != nil {
		return "", OperatorSession{}, ErrWrongPassword // no operator has these
	}
	operator, err := o.db.Operators.ByEmail(ctx, email)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", OperatorSession{}, fmt.Errorf("reading an operator: %w", err)
	}
	var records []store.LoginRecord
	if err == nil {
		records = []store.LoginRecord{{UserID: operator.ID, Password: operator.Password}}
	}
	login, _, by, err := o.passwords.try(ctx, o.db, "operator "+email, password, from, records,
		func(*store.LoginRecord) bool { return !operator.DisabledAt.Valid })
	if err != nil {
		return "", OperatorSession{}, err
	}
	renewed, err := o.passwords.renew(ctx, operator.Password, password, by)
	if err != nil {
		return "", OperatorSession{}, err
	}
	token, session := newSession(from)
	err = o.db.Operators.Begin(ctx, OperatorActor+email, operator, renewed, session, login)
	if errors.Is(err, store.ErrNotFound) { // changed or removed since it was read
		err = ErrWrongPassword
	}
	return o.begun(ctx, token, err)
}

// begun returns a new session after a change that ended with err.
func (o *Operators) begun(ctx context.Context, token string, err error) (string, OperatorSession, error) {
	if err != nil {
		return "", OperatorSession{}, fmt.Errorf("beginning a session: %w", err)
	}
	session, err := o.Session(ctx, token)
	return token, session, err
}

// UseLink sets the password by a one-time link of [Operators.Add] or [Operators.ResetPassword], ends all sessions of the operator and begins a
// new one, as [Operators.SignIn] does. It returns [ErrLinkUsed], a [FieldError] for the password (the link stays valid), [ErrBusy], or the
// store's error.
func (o *Operators) UseLink(ctx context.Context, link, password string, from Client) (token string, _ OperatorSession, err error) {
	linkHash, ok := tokenHash(link)
	if !ok {
		return "", OperatorSession{}, ErrLinkUsed
	}
	operator, err := o.db.Operators.ByLink(ctx, linkHash)
	if errors.Is(err, store.ErrNotFound) {
		return "", OperatorSession{}, ErrLinkUsed
	}
	if err != nil {
		return "", OperatorSession{}, fmt.Errorf("reading a link: %w", err)
	}
	if err := CheckNewPassword(password); err != nil {
		return o.begun(ctx, "", err)
	}
	hash, err := o.passwords.hash(ctx, password, "", knownUser(operator.ID))
	if err != nil {
		return o.begun(ctx, "", fmt.Errorf("hashing a password: %w", err))
	}
	token, session := newSession(from)
	err = o.db.Operators.SetPassword(ctx, OperatorActor+operator.Email, operator.ID, operator.Password, hash, linkHash, session)
	if errors.Is(err, store.ErrNotFound) {
		err = ErrLinkUsed
	}
	return o.begun(ctx, token, err)
}

// Session returns the session of a token; [ErrNoSession] if it doesn't exist or has ended, or its operator is removed or disabled.
func (o *Operators) Session(ctx context.Context, token string) (OperatorSession, error) {
	hash, ok := tokenHash(token)
	if !ok {
		return OperatorSession{}, ErrNoSession
	}
	session, err := o.db.Operators.Session(ctx, hash)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return OperatorSession{}, fmt.Errorf("reading a session: %w", err)
	}
	unused := time.Duration(session.Now-session.SeenAt) * time.Millisecond
	if err != nil || session.ExpiresAt <= session.Now || unused >= SessionIdle {
		return OperatorSession{}, ErrNoSession
	}
	if unused >= seenEvery {
		_ = o.db.Operators.Touch(ctx, hash, false) // a use that isn't noted ends the session earlier, never later
	}
	return OperatorSession{session}, nil
}

func (s OperatorSession) person() person { return person{id: s.ID, actor: OperatorActor + s.Email} }

// SecondFactor checks a code for a session, which has the operator's rights from then on. Its errors are [ErrNoSession], [ErrNoSecondFactor],
// [ErrWrongCode], [ErrCodeUsed], [ErrNoRecoveryCodes], a [ClockError], a [ThrottledError], or the store's.
func (o *Operators) SecondFactor(ctx context.Context, token, code string) error {
	session, err := o.Session(ctx, token)
	if err != nil {
		return err
	}
	if err := o.factors.check(ctx, session.person(), code); err != nil {
		return err
	}
	hash, _ := tokenHash(token)
	return o.db.Operators.Touch(ctx, hash, true)
}

// EnableSecondFactor stores the secret of an [Enrolment] after a code of it, and returns the recovery codes, which are shown this once. The
// session has the operator's rights from then on. It returns [store.ErrConflict] if the operator has a second factor already, and the errors of
// [Operators.SecondFactor].
func (o *Operators) EnableSecondFactor(ctx context.Context, token, secret, code string) ([]string, error) {
	session, err := o.Session(ctx, token)
	if err != nil {
		return nil, err
	}
	return o.factors.enable(ctx, session.person(), token, secret, code)
}

// Device returns a token for the device from which an operator has just signed in, as [Sessions.Device] does.
func (o *Operators) Device(_ context.Context, session OperatorSession) (string, error) {
	return newDevice(session.Password), nil
}

// SetScheme sets the colours of the operator's pages.
func (o *Operators) SetScheme(ctx context.Context, session OperatorSession, scheme string) error {
	return o.db.Operators.SetScheme(ctx, session.ID, scheme)
}

// End ends a session. A session that doesn't exist is no error.
func (o *Operators) End(ctx context.Context, token string) error {
	hash, ok := tokenHash(token)
	if !ok {
		return nil
	}
	return o.db.Operators.End(ctx, hash)
}

// AddOperator adds an operator with a one-time link, which sets the password. It returns a [FieldError], [store.ErrConflict] for an address that
// is in use, or the store's error.
func AddOperator(ctx context.Context, db *store.DB, actor, email, role string) (store.Operator, Link, error) {
	email, err := CleanEmail(email)
	if err != nil {
		return store.Operator{}, Link{}, err
	}
	operator := store.Operator{ID: store.NewID("opr"), Email: email, Role: role}
	link, row := newLink(false)
	if err := db.Operators.Add(ctx, actor, operator, row); err != nil {
		return store.Operator{}, Link{}, fmt.Errorf("adding an operator: %w", err)
	}
	operator, err = db.Operators.ByID(ctx, operator.ID)
	return operator, link, err
}

// LinkOperator makes another one-time link for an operator who lost the password or the link. The earlier link ends; the password stays until
// the link is used. It returns [store.ErrNotFound] or the store's error.
func LinkOperator(ctx context.Context, db *store.DB, actor, id string) (Link, error) {
	link, row := newLink(true)
	return link, db.Operators.PutLink(ctx, actor, id, row)
}
