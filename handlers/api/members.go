package api

import (
	"context"
	"errors"

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

func (d *Deps) showMember(user *store.User) MemberObject {
	state := "invited"
	switch {
	case user.Active:
		state = "active"
	case user.ExpiresAt <= d.Now().UnixMilli():
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

func (d *Deps) showLinkedMember(user *store.User, link identity.Link) *endpoint.JSON[linkedMember] {
	return endpoint.Answer(linkedMember{
		MemberObject: d.showMember(user), Link: handlers.WelcomeURL(d.BaseURL, link.Token),
		LinkExpiresAt: endpoint.Timestamp(d.Now().Add(link.Lifetime).UnixMilli()),
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

// The operations on members.
var (
	InviteMember = operation(administrators("inviteMember", "POST /members", noScope,
		"Invite a person; answers a one-time link"), (*Deps).inviteMember)
	ListMembers = operation(administrators("listMembers", "GET /members", noScope,
		"List the members, oldest first"), (*Deps).listMembers)
	GetMember    = operation(administrators("getMember", "GET /members/{id}", noScope, "Get a member"), (*Deps).getMember)
	UpdateMember = operation(administrators("updateMember", "PATCH /members/{id}", noScope,
		"Change a member's role"), (*Deps).updateMember)
	RemoveMember = operation(administrators("removeMember", "DELETE /members/{id}", noScope,
		"Remove a member, who is signed out at once"), (*Deps).removeMember)
	LinkMember = operation(administrators("linkMember", "POST /members/{id}/link", noScope,
		"Make a new one-time link for a member who lost theirs, or the password"), (*Deps).linkMember)
)

var memberOperations = []Operation{InviteMember, ListMembers, GetMember, UpdateMember, RemoveMember, LinkMember}

func (d *Deps) inviteMember(
	ctx context.Context, principal *identity.Principal, in *struct{ Body memberCreation },
) (*endpoint.JSON[linkedMember], error) {
	user, link, err := d.users().Invite(ctx, principal.Authority(), principal.OrgID, in.Body.Email, in.Body.Role)
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
		return nil, d.refuseMember(ctx, principal, "", err)
	}
	return d.showLinkedMember(&user, link), nil
}

func (d *Deps) listMembers(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[MemberObject], error) {
	return listRows(ctx, principal, in, d.DB.Users.List, func(row *store.User) string { return row.ID }, d.showMember)
}

func (d *Deps) getMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[MemberObject], error) {
	return getRow(ctx, d, principal, store.OwnedUsers, in.ID, d.DB.Users.ByID, d.showMember)
}

func (d *Deps) updateMember(ctx context.Context, principal *identity.Principal, in *idAndBody[memberChange]) (*endpoint.JSON[MemberObject], error) {
	if in.Body.Role != nil {
		if err := d.users().SetRole(ctx, principal.Authority(), principal.OrgID, in.ID, *in.Body.Role); err != nil {
			return nil, d.refuseMember(ctx, principal, in.ID, err)
		}
	}
	return d.getMember(ctx, principal, &in.PathID)
}

func (d *Deps) removeMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.Empty, error) {
	if err := d.users().Remove(ctx, principal.Authority(), principal.OrgID, in.ID); err != nil {
		return nil, d.refuseMember(ctx, principal, in.ID, err)
	}
	return &endpoint.Empty{}, nil
}

func (d *Deps) linkMember(ctx context.Context, principal *identity.Principal, in *endpoint.PathID) (*endpoint.JSON[linkedMember], error) {
	link, err := d.users().NewLink(ctx, principal.Authority(), principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuseMember(ctx, principal, in.ID, err)
	}
	user, err := d.DB.Users.ByID(ctx, principal.OrgID, in.ID)
	if err != nil {
		return nil, d.refuse(ctx, principal, store.OwnedUsers, in.ID, err)
	}
	return d.showLinkedMember(&user, link), nil
}

func (d *Deps) users() *identity.Users { return identity.NewUsers(d.DB) }

// refuseMember returns the public form of an error of [identity.Users].
func (d *Deps) refuseMember(ctx context.Context, principal *identity.Principal, id string, err error) error {
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
		return d.refuse(ctx, principal, store.OwnedUsers, id, err)
	}
}
