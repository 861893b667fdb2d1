package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Lifetimes of one-time links. An invited person may be on holiday; one who asked for a reset is waiting.
const (
	InviteLifetime = 7 * 24 * time.Hour
	ResetLifetime  = 24 * time.Hour
)

// Missing rights; 403 forbidden.
var (
	// ErrOwnersOnly: only an owner may make, change or remove an owner.
	ErrOwnersOnly = errors.New("only an owner may do this to an owner")
	// ErrAdministratorsOnly: only an administrator or owner may change users.
	ErrAdministratorsOnly = errors.New("only an administrator may change users")
	// ErrHigherRoleOnly: only a person of a higher role, or the operator, may reset a password.
	ErrHigherRoleOnly = errors.New("only a person of a higher role may reset this password")
)

// Link is a new one-time link. Its token is stored nowhere and can't be shown again. No mail is sent: its author gives it to the
// user.
type Link struct {
	Token string
	// Lifetime is how long the link can be used, once.
	Lifetime time.Duration
}

// Users invites, changes and removes the users of organizations. The audit log names the author of every change; an
// administrator may change all users but owners.
//
// The methods return, wrapped, a [FieldError] for a refused value, [ErrAdministratorsOnly] and [ErrOwnersOnly] for missing
// rights, [store.ErrNotFound] for an unknown user or organization, [store.ErrConflict] for an e-mail address that a user or an
// open invitation of the same organization has, [store.ErrLastOwner], or the store's error.
type Users struct{ db *store.DB }

// NewUsers works on db.
func NewUsers(db *store.DB) *Users { return &Users{db: db} }

// Invite makes an invitation, whose link sets the password and makes the user. The result is the same when the address has a
// user or an invitation in another organization, so that it reveals neither.
func (u *Users) Invite(ctx context.Context, by Authority, orgID, email string, role Role) (store.User, Link, error) {
	email, err := CleanEmail(email)
	if err != nil {
		return store.User{}, Link{}, err
	}
	if role, err = ParseRole(string(role)); err != nil {
		return store.User{}, Link{}, err
	}
	if err := by.mayHave(role); err != nil {
		return store.User{}, Link{}, err
	}
	link, row := newLink(false)
	user := store.User{ID: store.NewID("usr"), OrgID: orgID, Email: email, Role: string(role)}
	if err := u.db.Users.Invite(ctx, by.Actor, user, row); err != nil {
		return store.User{}, Link{}, fmt.Errorf("inviting a user: %w", err)
	}
	if user, err = u.db.Users.ByID(ctx, orgID, user.ID); err != nil {
		return store.User{}, Link{}, fmt.Errorf("reading the new user: %w", err)
	}
	return user, link, nil
}

// NewLink makes another one-time link for a user who has lost the link or the password, and invalidates the one before.
// Password and sessions stay as they are until the link is used, which ends all sessions. It returns [ErrHigherRoleOnly] for a
// user with a password whose role is equal or higher.
func (u *Users) NewLink(ctx context.Context, by Authority, orgID, id string) (Link, error) {
	var link Link
	err := u.db.UserLinks.Put(ctx, by.Actor, orgID, id, by.mayReset, func(user store.User) (row store.UserLink) {
		link, row = newLink(user.Active)
		return row
	})
	if err != nil {
		return Link{}, fmt.Errorf("making a link for user %q: %w", clip(id), err)
	}
	return link, nil
}

// SetRole gives a user another role and ends the user's sessions, so that none keeps the former rights.
func (u *Users) SetRole(ctx context.Context, by Authority, orgID, id string, role Role) error {
	role, err := ParseRole(string(role))
	if err != nil {
		return err
	}
	err = u.db.Users.SetRole(ctx, by.Actor, orgID, id, string(role), func(user store.User) error {
		return errors.Join(by.mayChange(user), by.mayHave(role))
	})
	if err != nil {
		return fmt.Errorf("setting the role of user %q: %w", clip(id), err)
	}
	return nil
}

// Remove removes a user from the organization and ends the user's sessions at once.
func (u *Users) Remove(ctx context.Context, by Authority, orgID, id string) error {
	if err := u.db.Users.Delete(ctx, by.Actor, orgID, id, by.mayChange); err != nil {
		return fmt.Errorf("removing user %q: %w", clip(id), err)
	}
	return nil
}

// mayChange returns an error unless the author may change the user.
func (by Authority) mayChange(user store.User) error { return by.mayHave(Role(user.Role)) }

// mayReset returns an error unless the author may make a link for the user. The link's holder can act as the user, so the link
// of a user with a password needs an author of a higher role.
func (by Authority) mayReset(user store.User) error {
	if err := by.mayChange(user); err != nil {
		return err
	}
	if user.Active && !by.Operator && by.Role.rank() <= Role(user.Role).rank() {
		return ErrHigherRoleOnly
	}
	return nil
}

// mayHave returns an error unless the author may give or take the role.
func (by Authority) mayHave(role Role) error {
	switch {
	case !by.Role.Has(Administrator):
		return ErrAdministratorsOnly
	case role == Owner && by.Role != Owner:
		return ErrOwnersOnly
	default:
		return nil
	}
}

// newLink returns a reset link for a user with a password, else an invitation.
func newLink(active bool) (Link, store.UserLink) {
	purpose, lifetime := "invite", InviteLifetime
	if active {
		purpose, lifetime = "reset", ResetLifetime
	}
	token, hash := newToken()
	return Link{Token: token, Lifetime: lifetime}, store.UserLink{Hash: hash, Purpose: purpose, Lifetime: lifetime.Milliseconds()}
}
