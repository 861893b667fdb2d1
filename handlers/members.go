package handlers

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// MemberObject is a user as the API shows it. It is exported for the framework, see [PathID].
type MemberObject struct {
	ID        string  `json:"id"`
	Email     string  `json:"email"`
	Role      Role    `json:"role"      enum:"member,administrator,owner"`
	State     string  `json:"state"     enum:"invited,expired,active" doc:"invited: no password was set yet. expired: none was set in time; a new link or a new invitation of the address begins anew"` //nolint:lll // a struct tag can't be broken
	ExpiresAt *string `json:"expiresAt" format:"date-time" doc:"When the invitation expires, or did; null: the person is active"`
	CreatedAt string  `json:"createdAt" format:"date-time"`
	UpdatedAt string  `json:"updatedAt" format:"date-time"`
}

func (a *API) showMember(user *store.User) MemberObject {
	state := "invited"
	switch {
	case user.Active:
		state = "active"
	case user.ExpiresAt <= a.Now().UnixMilli():
		state = "expired"
	}
	return MemberObject{
		ID: user.ID, Email: user.Email, Role: Role(user.Role), State: state, ExpiresAt: timestampOrNull(user.ExpiresAt),
		CreatedAt: timestamp(user.CreatedAt), UpdatedAt: timestamp(user.UpdatedAt),
	}
}

// linkedMember is a user with a new one-time link, which is shown this once.
type linkedMember struct {
	MemberObject

	Link          string `json:"link"          doc:"To set a password, once. No e-mail is sent: hand it to the person"`
	LinkExpiresAt string `json:"linkExpiresAt" format:"date-time"`
}

func (a *API) showLinked(user *store.User, link identity.Link) *jsonBody[linkedMember] {
	return &jsonBody[linkedMember]{linkedMember{
		MemberObject: a.showMember(user), Link: WelcomeURL(a.BaseURL, link.Token),
		LinkExpiresAt: timestamp(a.Now().Add(link.Lifetime).UnixMilli()),
	}}
}

// memberCreation is the body of POST /members.
type memberCreation struct {
	Email string `json:"email" minLength:"1" maxLength:"254" doc:"Unique in the organization; if another has a user with it, the link can't be used"`
	Role  Role   `json:"role"  enum:"member,administrator,owner"`
}

// memberChange is the body of PATCH /members/{id}.
type memberChange struct {
	Role *Role `json:"role,omitempty" enum:"member,administrator,owner" doc:"Another role ends the person's sessions"`
}

type memberUpdate struct {
	PathID

	Body memberChange
}

func (a *API) registerMembers() {
	route := func(method, path, summary string) Route {
		return Route{Method: method, Path: path, Role: RoleAdministrator, Summary: summary}
	}
	const all, one = "/members", "/members/{id}"
	register(a, operation{id: "inviteMember", Route: route(http.MethodPost, all, "Invite a person; answers a one-time link")}, a.inviteMember)
	register(a, operation{id: "listMembers", Route: route(http.MethodGet, all, "List the members, oldest first")}, a.listMembers)
	register(a, operation{id: "getMember", Route: route(http.MethodGet, one, "Get a member")}, a.getMember)
	register(a, operation{id: "updateMember", Route: route(http.MethodPatch, one, "Change a member's role")}, a.updateMember)
	register(a, operation{id: "removeMember", Route: route(http.MethodDelete, one, "Remove a member, who is signed out at once")}, a.removeMember)
	register(a, operation{id: "linkMember", Route: route(http.MethodPost, one+"/link",
		"Make a new one-time link for a member who lost theirs, or the password")}, a.linkMember)
}

func (a *API) inviteMember(
	ctx context.Context, caller *identity.Principal, in *struct{ Body memberCreation },
) (*jsonBody[linkedMember], error) {
	user, link, err := a.users().Invite(ctx, caller.Authority(), caller.OrgID, in.Body.Email, in.Body.Role)
	if errors.Is(err, store.ErrConflict) {
		return nil, &Error{
			Code: errcode.Conflict, Cause: err,
			Message: "The organization has a user, or an open invitation, with this e-mail address already.",
		}
	}
	if err != nil {
		return nil, a.memberRefusal(ctx, caller, "", err)
	}
	return a.showLinked(&user, link), nil
}

func (a *API) listMembers(
	ctx context.Context, caller *identity.Principal, in *struct{ PageQuery },
) (*jsonBody[listObject[MemberObject]], error) {
	page, err := in.page()
	if err != nil {
		return nil, err
	}
	users, err := a.DB.Users.List(ctx, caller.OrgID, page)
	if err != nil {
		return nil, Internal(err)
	}
	return listed(in.PageQuery, users, func(row *store.User) string { return row.ID }, a.showMember), nil
}

func (a *API) getMember(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[MemberObject], error) {
	user, err := a.DB.Users.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedUsers, in.ID, err)
	}
	return &jsonBody[MemberObject]{a.showMember(&user)}, nil
}

func (a *API) updateMember(ctx context.Context, caller *identity.Principal, in *memberUpdate) (*jsonBody[MemberObject], error) {
	if in.Body.Role != nil {
		if err := a.users().SetRole(ctx, caller.Authority(), caller.OrgID, in.ID, *in.Body.Role); err != nil {
			return nil, a.memberRefusal(ctx, caller, in.ID, err)
		}
	}
	return a.getMember(ctx, caller, &in.PathID)
}

func (a *API) removeMember(ctx context.Context, caller *identity.Principal, in *PathID) (*noBody, error) {
	if err := a.users().Remove(ctx, caller.Authority(), caller.OrgID, in.ID); err != nil {
		return nil, a.memberRefusal(ctx, caller, in.ID, err)
	}
	return &noBody{}, nil
}

func (a *API) linkMember(ctx context.Context, caller *identity.Principal, in *PathID) (*jsonBody[linkedMember], error) {
	link, err := a.users().NewLink(ctx, caller.Authority(), caller.OrgID, in.ID)
	if err != nil {
		return nil, a.memberRefusal(ctx, caller, in.ID, err)
	}
	user, err := a.DB.Users.ByID(ctx, caller.OrgID, in.ID)
	if err != nil {
		return nil, a.refuse(ctx, caller, store.OwnedUsers, in.ID, err)
	}
	return a.showLinked(&user, link), nil
}

func (a *API) users() *identity.Users { return identity.NewUsers(a.DB) }

// memberRefusal is the answer to an error of [identity.Users].
func (a *API) memberRefusal(ctx context.Context, caller *identity.Principal, id string, err error) error {
	_, badValue := errors.AsType[*identity.FieldError](err)
	switch {
	case badValue:
		return badField(err)
	case errors.Is(err, identity.ErrOwnersOnly):
		return &Error{Code: errcode.Forbidden, Message: "Only an owner may make, change or remove an owner.", Cause: err}
	case errors.Is(err, identity.ErrHigherRoleOnly):
		return &Error{
			Code: errcode.Forbidden, Cause: err,
			Message: "Only a person of a higher role, or the operator, may reset this password. Change your own with PUT /session/password.",
		}
	case errors.Is(err, identity.ErrAdministratorsOnly):
		return &Error{Code: errcode.Forbidden, Message: "This needs the role administrator.", Cause: err}
	case errors.Is(err, store.ErrLastOwner):
		return &Error{
			Code: errcode.Conflict, Message: "This is the organization's last owner. Make another member an owner first.", Cause: err,
		}
	default:
		return a.refuse(ctx, caller, store.OwnedUsers, id, err)
	}
}
