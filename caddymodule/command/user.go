package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// userAnswer is a user with a new one-time link, which is shown only once.
type userAnswer struct {
	ID            string `json:"id"`
	OrgID         string `json:"orgId"`
	Email         string `json:"email"`
	Role          string `json:"role"`
	Link          string `json:"link"`
	LinkExpiresAt string `json:"linkExpiresAt"`
}

func (e *commandEnv) userAnswer(u store.User, link identity.Link) userAnswer {
	return userAnswer{
		ID: u.ID, OrgID: u.OrgID, Email: u.Email, Role: u.Role,
		Link: handlers.WelcomeURL(e.app.BaseURL, link.Token), LinkExpiresAt: moment(time.Now().Add(link.Lifetime).UnixMilli()),
	}
}

func (u userAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "user\t%s\norganization\t%s\ne-mail\t%s\nrole\t%s\nlink\t%s\nlink expires\t%s\n",
		u.ID, u.OrgID, u.Email, u.Role, u.Link, u.LinkExpiresAt)
	fmt.Fprintln(w, "No e-mail is sent: hand the link to the person yourself. Whoever opens it first sets the password; it works once.")
}

func userCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "user",
		Short: "Invites people to an organization, resets their passwords by a one-time link, lists and removes them",
	}, f.userInvite(), f.userReset(), f.userList(), f.userRemove())
}

func (e *commandEnv) users() *identity.Users { return identity.NewUsers(e.db) }

// authority returns the operator's rights: all.
func (e *commandEnv) authority() identity.Authority {
	return identity.Authority{Actor: e.actor, Role: identity.Owner, Operator: true}
}

func (f *commandFlags) userInvite() *cobra.Command {
	var email, role string
	command := &cobra.Command{
		Use:   "invite --org ORG_ID --email ADDRESS --role ROLE",
		Short: "Creates a user and shows the one-time link to set a password, only this once",
		Long: `Creates a user of an organization and shows a one-time link to set a password, only this once. No e-mail is sent: hand the link to
the person yourself. It is valid for 7 days, then the invitation ends; ` + "`caddy svc user reset`" + ` makes another link.

Roles: member (assistants, knowledge bases, conversations; reads channels and the wallet), administrator (also channels, API
keys, provider keys and members), owner (also owners). An organization's first user is best an owner.`,
		Example: "  $ caddy svc user invite --org org_… --email lan@example.com --role owner",
	}
	command.Flags().StringVar(&email, "email", "", "the e-mail `address`")
	command.Flags().StringVar(&role, "role", "", "the `role`: member, administrator or owner")
	required(command, "email", "role")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		user, link, err := e.users().Invite(ctx, e.authority(), orgID, email, identity.Role(role))
		if errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("organization %s has a user, or an open invitation, with the e-mail address %q; "+
				"`caddy svc user reset` makes a new link, `caddy svc user remove` ends it", orgID, email)
		}
		if err != nil {
			return nil, err
		}
		return e.userAnswer(user, link), nil
	})
}

func (f *commandFlags) userReset() *cobra.Command {
	var email, role string
	command := &cobra.Command{
		Use:   "reset --org ORG_ID --email ADDRESS [--role ROLE]",
		Short: "Shows a new one-time link for a user who lost the password or the link",
		Long: `Shows a new one-time link for a user who lost the password or the previous link, which ends. No e-mail is sent: hand the
link to the person yourself. The link is valid for a day, or 7 days if the user has no password yet. Until it is used, the
password and the sessions stay as they are. With --role the user also gets another role, and a new role ends the sessions.`,
		Example: "  $ caddy svc user reset --org org_… --email lan@example.com",
	}
	command.Flags().StringVar(&email, "email", "", "the user's e-mail `address`")
	command.Flags().StringVar(&role, "role", "", "another `role`: member, administrator or owner")
	required(command, "email")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		user, err := e.user(ctx, orgID, email)
		if err != nil {
			return nil, err
		}
		return e.resetUser(ctx, user, role)
	})
}

func (e *commandEnv) resetUser(ctx context.Context, user store.User, role string) (answer, error) {
	if role != "" {
		err := e.users().SetRole(ctx, e.authority(), user.OrgID, user.ID, identity.Role(role))
		if err != nil {
			return nil, lastOwner(err, user)
		}
		user.Role = role
	}
	link, err := e.users().NewLink(ctx, e.authority(), user.OrgID, user.ID)
	if err != nil {
		return nil, err
	}
	return e.userAnswer(user, link), nil
}

// user returns an organization's user with an e-mail address.
func (e *commandEnv) user(ctx context.Context, orgID, email string) (store.User, error) {
	address, err := identity.CleanEmail(email)
	if err != nil {
		return store.User{}, err
	}
	user, err := e.db.Users.ByEmail(ctx, orgID, address)
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, fmt.Errorf("organization %s has no user with the e-mail address %q; `caddy svc user list` shows them", orgID, address)
	}
	return user, err
}

// lastOwner adds what to do to [store.ErrLastOwner], and returns other errors unchanged.
func lastOwner(err error, user store.User) error {
	if errors.Is(err, store.ErrLastOwner) {
		return fmt.Errorf("%s is the last owner of organization %s; make another user an owner first", user.Email, user.OrgID)
	}
	return err
}

type listedUser struct {
	ID        string `json:"id"`
	OrgID     string `json:"orgId"`
	Email     string `json:"email"`
	Role      string `json:"role"`
	State     string `json:"state"` // active, invited or expired
	CreatedAt string `json:"createdAt"`
}

func newListedUser(u store.User) listedUser {
	listed := listedUser{ID: u.ID, OrgID: u.OrgID, Email: u.Email, Role: u.Role, State: "active", CreatedAt: moment(u.CreatedAt)}
	switch {
	case u.Active:
	case u.ExpiresAt <= time.Now().UnixMilli():
		listed.State = "expired"
	default:
		listed.State = "invited"
	}
	return listed
}

func (u listedUser) cells() []string { return []string{u.ID, u.Email, u.Role, u.State, u.CreatedAt} }

func (f *commandFlags) userList() *cobra.Command {
	command := &cobra.Command{
		Use:   "list --org ORG_ID",
		Short: "Lists the users of an organization",
		Long:  "Lists the users of an organization. State invited: no password is set yet; expired: none was set in time.",
	}
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		users, err := allPages(func(page store.Page) ([]store.User, error) { return e.db.Users.List(ctx, orgID, page) },
			func(u store.User) string { return u.ID })
		if err != nil {
			return nil, fmt.Errorf("listing users: %w", err)
		}
		return newList("ID\tE-MAIL\tROLE\tSTATE\tCREATED", users, newListedUser), nil
	})
}

type removedUserAnswer struct {
	ID      string `json:"id"`
	OrgID   string `json:"orgId"`
	Email   string `json:"email"`
	Removed bool   `json:"removed"`
}

func (a removedUserAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "User %s (%s) is removed.\n", a.ID, a.Email)
}

func (f *commandFlags) userRemove() *cobra.Command {
	var email string
	command := &cobra.Command{
		Use:   "remove --org ORG_ID --email ADDRESS",
		Short: "Removes a user, and frees the e-mail address",
		Long: `Removes a user with the sessions and an unused link, at once. The e-mail address is free again, for instance when an
organization has invited a person of another one. The user's actions stay in the audit log. The last owner who can sign in
can't be removed.`,
		Example: "  $ caddy svc user remove --org org_… --email lan@example.com",
	}
	command.Flags().StringVar(&email, "email", "", "the user's e-mail `address`")
	required(command, "email")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		user, err := e.user(ctx, orgID, email)
		if err != nil {
			return nil, err
		}
		if err := e.users().Remove(ctx, e.authority(), user.OrgID, user.ID); err != nil {
			return nil, lastOwner(err, user)
		}
		return removedUserAnswer{ID: user.ID, OrgID: user.OrgID, Email: user.Email, Removed: true}, nil
	})
}
