package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// sessionObject is who is signed in.
type sessionObject struct {
	User         sessionUser         `json:"user"`
	Organization sessionOrganization `json:"organization"`
	Role         Role                `json:"role" enum:"member,administrator,owner"`
	// PasswordReset warns the person of a reset that they may not have asked for.
	PasswordReset *passwordReset `json:"passwordReset,omitempty" doc:"The last reset by another person's link, for 30 days; absent without one"`
}

// resetShown is how long a reset of the password is shown. An intruder who signs in as the person can't remove it.
const resetShown = 30 * 24 * time.Hour

type passwordReset struct {
	By string `json:"by" doc:"The e-mail address of the member who made the link, or operator"`
	At string `json:"at" format:"date-time"`
}

// passwordResetOf is the reset that the user is shown, or nil.
func (a *API) passwordResetOf(ctx context.Context, user *store.User) (*passwordReset, error) {
	now, err := a.DB.Now(ctx)
	if err != nil {
		return nil, Internal(err)
	}
	if user.ResetAt == 0 || now-user.ResetAt >= resetShown.Milliseconds() {
		return nil, nil //nolint:nilnil // no reset is no fault
	}
	shown := &passwordReset{By: shownActor(user.ResetBy), At: timestamp(user.ResetAt)}
	author, err := a.DB.Users.ByID(ctx, user.OrgID, user.ResetBy)
	switch {
	case err == nil:
		shown.By = author.Email
	case !errors.Is(err, store.ErrNotFound):
		return nil, Internal(err)
	}
	return shown, nil
}

type sessionUser struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

type sessionOrganization struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Suspended bool   `json:"suspended"`
}

// sessionCreation is the body of POST /session.
type sessionCreation struct {
	Email    string `json:"email"    minLength:"1" maxLength:"254"`
	Password string `json:"password" minLength:"1" maxLength:"256"`
}

// passwordChange is the body of POST /session/password.
type passwordChange struct {
	Token    string `json:"token"    minLength:"1" maxLength:"100" doc:"What stands behind the # of the one-time link"`
	Password string `json:"password" minLength:"12" maxLength:"256" doc:"The new password"`
}

func (a *API) registerSession() {
	const path = "/session"
	register(a, operation{id: "signIn", Route: Route{
		Method: http.MethodPost, Path: path, Public: true, Summary: "Sign in; sets the session's cookie",
	}}, a.signIn)
	register(a, operation{id: "setPassword", Route: Route{
		Method: http.MethodPost, Path: path + "/password", Public: true,
		Summary: "Set the password with a one-time link, and sign in",
	}}, a.setPassword)
	register(a, operation{id: "changePassword", status: http.StatusOK, Route: Route{
		Method: http.MethodPut, Path: path + "/password", Role: RoleMember,
		Summary: "Change your password; ends your other sessions",
	}}, a.changePassword)
	register(a, operation{id: "listSessions", Route: Route{
		Method: http.MethodGet, Path: "/session/all", Role: RoleMember, Summary: "List your sessions, newest first",
	}}, a.listSessions)
	register(a, operation{id: "signOutEverywhere", Route: Route{
		Method: http.MethodDelete, Path: "/session/all", Role: RoleMember, Summary: "Sign out everywhere, here too",
	}}, a.signOutEverywhere)
	register(a, operation{id: "getSession", Route: Route{
		Method: http.MethodGet, Path: path, Role: RoleMember, Summary: "Tell who is signed in",
	}}, a.getSession)
	register(a, operation{id: "signOut", Route: Route{
		Method: http.MethodDelete, Path: path, Public: true, Summary: "Sign out; without a session nothing happens",
	}}, a.signOut)
}

func (a *API) signIn(
	ctx context.Context, _ *identity.Principal, in *struct{ Body sessionCreation },
) (*jsonBody[sessionObject], error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	user, err := a.Sessions.SignIn(e.w, e.r, in.Body.Email, in.Body.Password)
	if err != nil {
		return nil, err
	}
	return a.getSession(ctx, &user, nil)
}

func (a *API) setPassword(
	ctx context.Context, _ *identity.Principal, in *struct{ Body passwordChange },
) (*jsonBody[sessionObject], error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	user, err := a.Sessions.SetPassword(e.w, e.r, in.Body.Token, in.Body.Password)
	if err != nil {
		return nil, err
	}
	return a.getSession(ctx, &user, nil)
}

func (a *API) getSession(ctx context.Context, caller *identity.Principal, _ *struct{}) (*jsonBody[sessionObject], error) {
	user, err := a.DB.Users.ByID(ctx, caller.OrgID, caller.UserID)
	if err != nil {
		return nil, Internal(fmt.Errorf("reading the user of a session: %w", err))
	}
	reset, err := a.passwordResetOf(ctx, &user)
	if err != nil {
		return nil, err
	}
	organization, err := a.DB.Organizations.ByID(ctx, caller.OrgID)
	if err != nil {
		return nil, Internal(fmt.Errorf("reading the organization of a session: %w", err))
	}
	return &jsonBody[sessionObject]{sessionObject{
		User:         sessionUser{ID: user.ID, Email: user.Email},
		Organization: sessionOrganization{ID: organization.ID, Name: organization.Name, Suspended: organization.SuspendedAt.Valid},
		Role:         Role(user.Role), PasswordReset: reset,
	}}, nil
}

func (a *API) signOut(ctx context.Context, _ *identity.Principal, _ *struct{}) (*noBody, error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.Sessions.SignOut(e.w, e.r); err != nil {
		return nil, err
	}
	return &noBody{}, nil
}

// ownPasswordChange is the body of PUT /session/password.
type ownPasswordChange struct {
	CurrentPassword string `json:"currentPassword" minLength:"1" maxLength:"256" writeOnly:"true"`
	Password        string `json:"password" minLength:"12" maxLength:"256" writeOnly:"true" doc:"The new password. The commonest ones are refused"`
}

func (a *API) changePassword(
	ctx context.Context, caller *identity.Principal, in *struct{ Body ownPasswordChange },
) (*jsonBody[sessionObject], error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.Sessions.ChangePassword(e.w, e.r, *caller, in.Body.CurrentPassword, in.Body.Password); err != nil {
		return nil, err
	}
	return a.getSession(ctx, caller, nil)
}

// LiveSession is one of a person's sessions as the API shows it. It is exported for the framework, see [PathID].
type LiveSession struct {
	Current   bool    `json:"current"   doc:"The session that asks"`
	Client    *string `json:"client"    doc:"What the browser called itself when the session began; null: nothing"`
	CreatedAt string  `json:"createdAt" format:"date-time"`
	SeenAt    string  `json:"seenAt"    format:"date-time" doc:"When it was used last, to a minute"`
	ExpiresAt string  `json:"expiresAt" format:"date-time"`
}

// sessionList holds the newest 100 sessions.
type sessionList struct {
	Data []LiveSession `json:"data" nullable:"false"`
}

func (a *API) listSessions(ctx context.Context, caller *identity.Principal, _ *struct{}) (*jsonBody[sessionList], error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	sessions, current, err := a.Sessions.List(e.r, *caller)
	if err != nil {
		return nil, err
	}
	shown := sessionList{Data: make([]LiveSession, len(sessions))}
	for i, session := range sessions {
		shown.Data[i] = LiveSession{
			Current: i == current, Client: textOrNull(session.Client), CreatedAt: timestamp(session.CreatedAt),
			SeenAt: timestamp(session.SeenAt), ExpiresAt: timestamp(session.ExpiresAt),
		}
	}
	return &jsonBody[sessionList]{shown}, nil
}

func (a *API) signOutEverywhere(ctx context.Context, caller *identity.Principal, _ *struct{}) (*noBody, error) {
	e, err := exchangeFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.Sessions.SignOutEverywhere(e.w, e.r, *caller); err != nil {
		return nil, err
	}
	return &noBody{}, nil
}
