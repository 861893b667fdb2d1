package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// How long a one-time link holds. A person may be on holiday when invited; who asks for a reset is waiting for it.
const (
	InviteLifetime = 7 * 24 * time.Hour
	ResetLifetime  = 24 * time.Hour
)

// The rights that are lacking; 403 forbidden.
var (
	// ErrOwnersOnly: only an owner may make, change or remove an owner.
	ErrOwnersOnly = errors.New("only an owner may do this to an owner")
	// ErrAdministratorsOnly: only an administrator or owner may change users.
	ErrAdministratorsOnly = errors.New("only an administrator may change users")
	// ErrHigherRoleOnly: only a person of a higher role, or the operator, may reset a password.
	ErrHigherRoleOnly = errors.New("only a person of a higher role may reset this password")
)

// Link is a new one-time link. Its token is nowhere else and can't be shown again. No mail is sent: whoever made the link
// gives it to the user.
type Link struct {
	Token string
	// Lifetime is how long it can be used, once.
	Lifetime time.Duration
}

// Users invites, changes and removes the people of organizations. Every change stands in the audit log under the name of
// who makes it; an administrator may change everybody but owners (design §6 "roles").
//
// Its methods return a [FieldError] for a refused value, [ErrAdministratorsOnly] and [ErrOwnersOnly] for a lack of rights,
// [store.ErrNotFound] for a user or organization that isn't there, [store.ErrConflict] for an e-mail address that a user or
// an open invitation of the same organization has, and [store.ErrLastOwner]; each wrapped; and else the store's error.
type Users struct{ db *store.DB }

// NewUsers works on db.
func NewUsers(db *store.DB) *Users { return &Users{db: db} }

// Invite invites a person, who becomes a user by the link, which sets the password. It makes no difference whether the
// address has a user, or an invitation, in another organization: else the result would say so. An address has one user, so
// the link of such an invitation is [ErrLinkUsed].
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

// NewLink makes another one-time link for a user who has lost theirs, or the password. The password and the sessions stay
// as they are until the link is used, which ends all sessions; the link before can't be used any more. The password of a user
// with an equal or higher role is [ErrHigherRoleOnly].
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

// SetRole gives a user another role and ends the user's sessions, so that none goes on with the rights of before.
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

// Remove takes a user out of the organization, whose sessions end at once.
func (u *Users) Remove(ctx context.Context, by Authority, orgID, id string) error {
	if err := u.db.Users.Delete(ctx, by.Actor, orgID, id, by.mayChange); err != nil {
		return fmt.Errorf("removing user %q: %w", clip(id), err)
	}
	return nil
}

// mayChange refuses who may not change the user.
func (by Authority) mayChange(user store.User) error { return by.mayHave(Role(user.Role)) }

// mayReset refuses an author who may not make a link for the user. A person with the link acts as the user, so that the link
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

// mayHave refuses who may not give or take the role.
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

// newLink makes a link for a user who has a password, or not yet.
func newLink(active bool) (Link, store.UserLink) {
	purpose, lifetime := "invite", InviteLifetime
	if active {
		purpose, lifetime = "reset", ResetLifetime
	}
	token, hash := newToken()
	return Link{Token: token, Lifetime: lifetime}, store.UserLink{Hash: hash, Purpose: purpose, Lifetime: lifetime.Milliseconds()}
}
