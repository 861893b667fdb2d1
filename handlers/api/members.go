package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MemberObject is a user as the API shows it. It is exported for the framework, see [endpoint.PathID].
type MemberObject struct {
	ID        string        `json:"id"`
	Email     string        `json:"email"`
	Role      handlers.Role `json:"role"      enum:"member,administrator,owner"`
	State     string        `json:"state"     enum:"invited,expired,active" doc:"invited: no password was set yet. expired: none was set in time; a new link or a new invitation of the address begins anew"` //nolint:lll // a struct tag can't be broken
	ExpiresAt *string       `json:"expiresAt" format:"date-time" doc:"When the invitation expires, or did; null: the person is active"`
	CreatedAt string        `json:"createdAt" format:"date-time"`
	UpdatedAt string        `json:"updatedAt" format:"date-time"`
}

func (g *members) show(user *store.User) MemberObject {
	state := "invited"
	switch {
	case user.Active:
		state = "active"
	case user.ExpiresAt <= g.Now().UnixMilli():
		state = "expired"
	}
	return MemberObject{
		ID: user.ID, Email: user.Email, Role: handlers.Role(user.Role), State: state, ExpiresAt: endpoint.TimestampOrNull(user.ExpiresAt),
		CreatedAt: endpoint.Timestamp(user.CreatedAt), UpdatedAt: endpoint.Timestamp(user.UpdatedAt),
	}
}

// linkedMember is a user with a new one-time link, which is shown this once.
type linkedMember struct {
	MemberObject

	Link          string `json:"link"          doc:"To set a password, once. No e-mail is sent: hand it to the person"`
	LinkExpiresAt string `json:"linkExpiresAt" format:"date-time"`
}

func (g *members) showLinked(user *store.User, link identity.Link) *endpoint.JSON[linkedMember] {
	return endpoint.Answer(linkedMember{
		MemberObject: g.show(user), Link: handlers.WelcomeURL(g.BaseURL, link.Token),
		LinkExpiresAt: endpoint.Timestamp(g.Now().Add(link.Lifetime).UnixMilli()),
	})
}

// memberCreation is the body of POST /members.
type memberCreation struct {
	Email string        `json:"email" minLength:"1" maxLength:"254" doc:"Unique here; if a user elsewhere has it, the link can't be used"`
	Role  handlers.Role `json:"role"  enum:"member,administrator,owner"`
}

// memberChange is the body of PATCH /members/{id}.
type memberChange struct {
	Role *handlers.Role `json:"role,omitempty" enum:"member,administrator,owner" doc:"Another role ends the person's sessions"`
}

type members struct{ *Deps }

func (g *members) register(s *endpoint.Server) {
	const all, one = "/members", "/members/{id}"
	administrators := operations{s, handlers.RoleAdministrator}
	add(administrators, "inviteMember", http.MethodPost, all, noScope, "Invite a person; answers a one-time link", g.invite)
	add(administrators, "listMembers", http.MethodGet, all, noScope, "List the members, oldest first", g.list)
	add(administrators, "getMember", http.MethodGet, one, noScope, "Get a member", g.get)
	add(administrators, "updateMember", http.MethodPatch, one, noScope, "Change a member's role", g.update)
	add(administrators, "removeMember", http.MethodDelete, one, noScope, "Remove a member, who is signed out at once", g.remove)
	add(administrators, "linkMember", http.MethodPost, one+"/link", noScope,
		"Make a new one-time link for a member who lost theirs, or the password", g.link)
}

func (g *members) invite(
	ctx context.Context, principal *identity.Principal, in *struct{ Body memberCreation },
) (*endpoint.JSON[linkedMember], error) {
	user, link, err := g.users().Invite(ctx, principal.Authority(), principal.OrgID, in.Body.Email, in.Body.Role)
	if errors.Is(err, store.ErrConflict) {
		return nil, &handlers.Error{
			Code: errcode.Conflict, Cause: err,
			Message: "The organization has a user, or an open invitation, with this e-mail address already.",
		}
	}
	if errors.Is(err, store.ErrLimit) {
		return nil, noRoom(store.MaxMembers, "members and invitations", err)
	}
	if err != nil {
		return nil, g.refusal(ctx, principal, "", err)
	}
	return g.showLinked(&user, link), nil
}

func (g *members) list(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[MemberObject], error) {
	return listRows(ctx, principal, in, g.DB.Users.List, func(row *store.User) string { return row.ID }, g.show)
}

func (g *members) get(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[MemberObject], error) {
	return getRow(ctx, g.Deps, principal, store.OwnedUsers, in.ID, g.DB.Users.ByID, g.show)
}

func (g *members) update(ctx context.Context, principal *identity.Principal, in *idAndBody[memberChange]) (*endpoint.JSON[MemberObject], error) {
	if in.Body.Role != nil {
		if err := g.users().SetRole(ctx, principal.Authority(), principal.OrgID, in.ID, *in.Body.Role); err != nil {
			return nil, g.refusal(ctx, principal, in.ID, err)
		}
	}
	return g.get(ctx, principal, &in.PathID)
}

func (g *members) remove(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if err := g.users().Remove(ctx, principal.Authority(), principal.OrgID, in.ID); err != nil {
		return nil, g.refusal(ctx, principal, in.ID, err)
	}
	return &endpoint.Empty{}, nil
}

func (g *members) link(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[linkedMember], error) {
	link, err := g.users().NewLink(ctx, principal.Authority(), principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refusal(ctx, principal, in.ID, err)
	}
	user, err := g.DB.Users.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, g.refuse(ctx, principal, store.OwnedUsers, in.ID, err)
	}
	return g.showLinked(&user, link), nil
}

func (g *members) users() *identity.Users { return identity.NewUsers(g.DB) }

// refusal returns the public form of an error of [identity.Users].
func (g *members) refusal(ctx context.Context, principal *identity.Principal, id string, err error) error {
	_, badValue := errors.AsType[*identity.FieldError](err)
	switch {
	case badValue:
		return handlers.BadField(err)
	case errors.Is(err, identity.ErrOwnersOnly):
		return &handlers.Error{Code: errcode.Forbidden, Message: "Only an owner may make, change or remove an owner.", Cause: err}
	case errors.Is(err, identity.ErrHigherRoleOnly):
		return &handlers.Error{
			Code: errcode.Forbidden, Cause: err,
			Message: "Only a person of a higher role, or the operator, may reset this password. Change your own with PUT /session/password.",
		}
	case errors.Is(err, identity.ErrAdministratorsOnly):
		return &handlers.Error{Code: errcode.Forbidden, Message: "This needs the role administrator.", Cause: err}
	case errors.Is(err, store.ErrLastOwner):
		return &handlers.Error{
			Code: errcode.Conflict, Message: "This is the organization's last owner. Make another member an owner first.", Cause: err,
		}
	default:
		return g.refuse(ctx, principal, store.OwnedUsers, id, err)
	}
}
