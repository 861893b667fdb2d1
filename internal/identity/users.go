package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// Invite makes an invitation. Its link sets the password and makes the user. The result is the same when the address has a
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

// NewLink makes another one-time link for a user who has lost the link or the password, and invalidates the earlier link.
// Password and sessions don't change until the link is used. The use ends all sessions. It returns [ErrHigherRoleOnly] for a
// user who has a password and an equal or higher role.
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
	return store.Wrap(fmt.Sprintf("setting the role of user %q", clip(id)), err)
}

// Remove removes a user from the organization and ends the user's sessions immediately.
func (u *Users) Remove(ctx context.Context, by Authority, orgID, id string) error {
	return store.Wrap(fmt.Sprintf("removing user %q", clip(id)), u.db.Users.Delete(ctx, by.Actor, orgID, id, by.mayChange))
}

// ResetSecondFactor removes the second factor of a user who lost the device and the recovery codes, by the rules of [Users.NewLink]. It returns
// [store.ErrNotFound] also if the user has none.
func (u *Users) ResetSecondFactor(ctx context.Context, by Authority, orgID, id string) error {
	err := u.db.SecondFactors.Delete(ctx, by.Actor, orgID, id, by.mayReset)
	return store.Wrap(fmt.Sprintf("resetting the second factor of user %q", clip(id)), err)
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
	}
	return nil
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

// CreateOrganization makes an organization with a unique name of 1 to 100 code points. externalID is the operator's own id of it, as unique and
// as long; it may be empty. The caller has checked that plan is configured; it is empty when no plan is. Errors are, wrapped, a [FieldError] for
// a refused value, [store.ErrConflict] for a name or an id that is taken, or the store's.
func CreateOrganization(ctx context.Context, db *store.DB, actor, name, plan, externalID string) (store.Organization, error) {
	name, err := CleanName("name", name)
	if err != nil {
		return store.Organization{}, err
	}
	if externalID != "" {
		if externalID, err = CleanName("externalId", externalID); err != nil {
			return store.Organization{}, err
		}
	}
	organization := store.Organization{
		ID: store.NewID("org"), Name: name, Plan: plan, CreatedAt: time.Now().UnixMilli(), WaitingMinutes: store.DefaultWaitingMinutes,
		ExternalID: externalID, FirstPlan: plan, TimeZone: store.DefaultTimeZone,
	}
	if err := db.Organizations.Create(ctx, actor, organization); err != nil {
		return store.Organization{}, fmt.Errorf("creating organization %q: %w", name, err)
	}
	return organization, nil
}

// Bounds of input. Names count in Unicode code points.
const (
	MaxNameLength = 100
	MinExpiryDays = 1
	MaxExpiryDays = 3650
)

// FieldError is a value that was refused before anything was stored.
type FieldError struct {
	Field   string // as the caller spells it: name, scopes, expires_in_days, …
	Problem string // what is wrong and what is allowed
}

// Error is "field: problem".
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// CleanName trims white space and requires a name of 1 to [MaxNameLength] code points in valid UTF-8 without control
// characters, including the controls of text direction. Otherwise it returns a [FieldError] for field.
func CleanName(field, name string) (string, error) {
	name = strings.TrimSpace(name)
	switch length := utf8.RuneCountInString(name); {
	case !utf8.ValidString(name):
		return "", &FieldError{field, "is not valid UTF-8"}
	case length == 0:
		return "", &FieldError{field, "is empty"}
	case length > MaxNameLength:
		return "", &FieldError{field, fmt.Sprintf("has %d characters, at most %d are allowed", length, MaxNameLength)}
	case strings.ContainsFunc(name, func(c rune) bool { return unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) }):
		// A control of the direction of text can make the text around the name read as another one.
		return "", &FieldError{field, "contains a control character"}
	}
	return name, nil
}

// ExpiryInDays returns the moment days after now. It returns a [FieldError] unless days is 1 to 3650.
func ExpiryInDays(now time.Time, days int64) (time.Time, error) {
	if days < MinExpiryDays || days > MaxExpiryDays {
		return time.Time{}, &FieldError{"expires_in_days", fmt.Sprintf("is %d, want %d to %d", days, MinExpiryDays, MaxExpiryDays)}
	}
	return now.Add(time.Duration(days) * 24 * time.Hour), nil
}

// ExpiryAt parses an RFC 3339 moment. It may lie in the past, which lets operators try an expired key. It returns a
// [FieldError] for another text.
func ExpiryAt(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, &FieldError{"expires_at", fmt.Sprintf("%q is not an RFC 3339 time such as 2027-01-31T12:00:00Z", clip(text))}
	}
	return at, nil
}

// clip shortens input that an error quotes.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// invisible reports whether c isn't a visible character of ASCII.
func invisible(c rune) bool { return c <= ' ' || c > '~' }

// MaxEmailLength bounds an e-mail address in bytes (RFC 5321 §4.5.3.1.3).
const MaxEmailLength = 254

// CleanEmail trims white space, lowers the case, which is the stored and unique form, and requires visible ASCII with one @
// that isn't at an end. It returns a [FieldError] otherwise.
func CleanEmail(email string) (string, error) {
	email = strings.ToLower(strings.TrimSpace(email))
	local, domain, _ := strings.Cut(email, "@")
	switch {
	case email == "":
		return "", &FieldError{"email", "is empty"}
	case len(email) > MaxEmailLength:
		return "", &FieldError{"email", fmt.Sprintf("has %d bytes, at most %d are allowed", len(email), MaxEmailLength)}
	case strings.ContainsFunc(email, invisible):
		return "", &FieldError{"email", "may hold visible ASCII characters only"}
	case local == "", domain == "", strings.Contains(domain, "@"):
		return "", &FieldError{"email", "is not an e-mail address such as name@example.com"}
	}
	return email, nil
}
