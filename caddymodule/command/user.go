package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

func userCommand(f *commandFlags) *cobra.Command {
	const handOver = "No e-mail is sent: hand the link to the person yourself. Whoever opens it first sets the password; it works once."
	return noun(&cobra.Command{
		Use:   "user",
		Short: "Invites people to an organization, resets their passwords by a one-time link, lists, changes and removes them",
	}, f.operations("user",
		operation{
			Operation: api.InviteMember, verb: "invite",
			long: `Creates a user of an organization and shows a one-time link to set a password, only this once. No e-mail is sent: hand the link to
the person yourself. It is valid for 7 days, then the invitation ends; ` + "`caddy svc user reset`" + ` makes another link.

Roles: member (assistants, knowledge bases, conversations; reads channels and the wallet), administrator (also channels, API
keys, provider keys and members), owner (also owners). An organization's first user is best an owner.`,
			example: "  $ caddy svc user invite --org org_… --email lan@example.com --role owner", note: handOver,
		},
		operation{
			Operation: api.LinkMember, verb: "reset", byEmail: true,
			long: `Shows a new one-time link for a user who lost the password or the previous link, which ends. No e-mail is sent: hand the
link to the person yourself. The link is valid for a day, or 7 days if the user has no password yet. Until it is used, the
password and the sessions stay as they are.`,
			example: "  $ caddy svc user reset --org org_… --email lan@example.com", note: handOver,
		},
		operation{
			Operation: api.ListMembers, verb: "list", columns: []string{"id", "email", "role", "state", "createdAt"},
			long: "Lists the users of an organization. State invited: no password is set yet; expired: none was set in time.",
		},
		operation{
			Operation: api.UpdateMember, verb: "set", byEmail: true, long: "Gives a user another role, which ends the user's sessions.",
			example: "  $ caddy svc user set --org org_… --email lan@example.com --role administrator",
		},
		operation{
			Operation: api.RemoveMember, verb: "remove", byEmail: true, done: "User %s is removed.",
			long: `Removes a user with the sessions and an unused link, at once. The e-mail address is free again, for instance when an
organization has invited a person of another one. The user's actions stay in the audit log. The last owner who can sign in
can't be removed.`,
			example: "  $ caddy svc user remove --org org_… --email lan@example.com",
		},
	)...)
}

// member returns an organization's user with an e-mail address.
func (e *commandEnv) member(ctx context.Context, orgID, email string) (store.User, error) {
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
