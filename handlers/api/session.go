package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

type sessionObject struct {
	User         sessionUser         `json:"user"`
	Organization sessionOrganization `json:"organization"`
	Role         handlers.Role       `json:"role" enum:"member,administrator,owner"`
	// PasswordReset warns the person of a reset that they may not have asked for.
	PasswordReset *passwordReset `json:"passwordReset,omitempty" doc:"The last reset by another person's link, for 30 days; absent without one"`
}

// resetShown is how long a reset of the password is shown. An intruder with the person's password can't hide it.
const resetShown = 30 * 24 * time.Hour

type passwordReset struct {
	By string `json:"by" doc:"The e-mail address of the member who made the link, or operator"`
	At string `json:"at" format:"date-time"`
}

// passwordResetOf returns the reset to show to the user, or nil.
func (g *session) passwordResetOf(ctx context.Context, user *store.User) (*passwordReset, error) {
	now, err := g.DB.Now(ctx)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	if user.ResetAt == 0 || now-user.ResetAt >= resetShown.Milliseconds() {
		return nil, nil //nolint:nilnil // no reset is no fault
	}
	shown := &passwordReset{By: shownActor(user.ResetBy), At: endpoint.Timestamp(user.ResetAt)}
	author, err := g.DB.Users.ByID(ctx, user.OrgID, user.ResetBy)
	switch {
	case err == nil:
		shown.By = author.Email
	case !errors.Is(err, store.ErrNotFound):
		return nil, handlers.Internal(err)
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
	// Waiting is shown on every page of the dashboard.
	Waiting int `json:"waitingConversations" maximum:"100" doc:"How many conversations wait for a person, counted to 100"`
}

// sessionCreation is the body of POST /session.
type sessionCreation struct {
	Email        string `json:"email"    minLength:"1" maxLength:"254"`
	Password     string `json:"password" minLength:"1" maxLength:"256"`
	Organization string `json:"organization,omitempty" maxLength:"100" doc:"Id or name: which one, where several have the person under this address and password"` //nolint:lll // a struct tag can't be broken
}

// passwordChange is the body of POST /session/password.
type passwordChange struct {
	Token    string `json:"token"    minLength:"1" maxLength:"100" doc:"What stands behind the # of the one-time link"`
	Password string `json:"password" minLength:"12" maxLength:"256" doc:"The new password"`
}

type session struct{ *Deps }

func (g *session) register(s *endpoint.Server) {
	const path = "/session"
	public := func(method, path, summary string) handlers.Route {
		return handlers.Route{Method: method, Path: path, Public: true, Summary: summary}
	}
	members := operations{s, handlers.RoleMember}
	endpoint.Register(s, endpoint.Operation{ID: "signIn", Route: public(http.MethodPost, path, "Sign in; sets the session's cookie")}, g.signIn)
	endpoint.Register(s, endpoint.Operation{ID: "setPassword", Route: public(http.MethodPost, path+"/password",
		"Set the password with a one-time link, and sign in")}, g.setPassword)
	add(members, "changePassword", http.MethodPut, path+"/password", noScope, "Change your password; ends your other sessions", g.changePassword)
	add(members, "listSessions", http.MethodGet, path+"/all", noScope, "List your sessions, newest first", g.list)
	add(members, "signOutEverywhere", http.MethodDelete, path+"/all", noScope, "Sign out everywhere, here too", g.signOutEverywhere)
	add(members, "getSession", http.MethodGet, path, noScope, "Tell who is signed in", g.get)
	endpoint.Register(s, endpoint.Operation{ID: "signOut", Route: public(http.MethodDelete, path,
		"Sign out; without a session nothing happens")}, g.signOut)
}

func (g *session) signIn(
	ctx context.Context, _ *identity.Principal, in *struct{ Body sessionCreation },
) (*endpoint.JSON[sessionObject], error) {
	e := endpoint.ExchangeFrom(ctx)
	user, err := g.Sessions.SignIn(e.W, e.R, in.Body.Email, in.Body.Password, in.Body.Organization)
	if err != nil {
		return nil, err
	}
	return g.get(ctx, &user, nil)
}

func (g *session) setPassword(
	ctx context.Context, _ *identity.Principal, in *struct{ Body passwordChange },
) (*endpoint.JSON[sessionObject], error) {
	e := endpoint.ExchangeFrom(ctx)
	user, err := g.Sessions.SetPassword(e.W, e.R, in.Body.Token, in.Body.Password)
	if err != nil {
		return nil, err
	}
	return g.get(ctx, &user, nil)
}

func (g *session) get(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.JSON[sessionObject], error) {
	user, err := g.DB.Users.ByID(ctx, principal.OrgID, principal.UserID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the user of a session: %w", err))
	}
	reset, err := g.passwordResetOf(ctx, &user)
	if err != nil {
		return nil, err
	}
	organization, err := g.DB.Organizations.ByID(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the organization of a session: %w", err))
	}
	waiting, err := g.Conversations.WaitingForPeople(ctx, principal.OrgID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("counting what waits for people: %w", err))
	}
	return endpoint.Answer(sessionObject{
		User: sessionUser{ID: user.ID, Email: user.Email},
		Organization: sessionOrganization{
			ID: organization.ID, Name: organization.Name, Suspended: organization.SuspendedAt.Valid, Waiting: waiting,
		},
		Role: handlers.Role(user.Role), PasswordReset: reset,
	}), nil
}

func (g *session) signOut(ctx context.Context, _ *identity.Principal, _ *struct{}) (*endpoint.Empty, error) {
	e := endpoint.ExchangeFrom(ctx)
	if err := g.Sessions.SignOut(e.W, e.R); err != nil {
		return nil, err
	}
	return &endpoint.Empty{}, nil
}

// ownPasswordChange is the body of PUT /session/password.
type ownPasswordChange struct {
	CurrentPassword string `json:"currentPassword" minLength:"1" maxLength:"256" writeOnly:"true"`
	Password        string `json:"password" minLength:"12" maxLength:"256" writeOnly:"true" doc:"The new password. The commonest ones are refused"`
}

func (g *session) changePassword(
	ctx context.Context, principal *identity.Principal, in *struct{ Body ownPasswordChange },
) (*endpoint.JSON[sessionObject], error) {
	e := endpoint.ExchangeFrom(ctx)
	if err := g.Sessions.ChangePassword(e.W, e.R, *principal, in.Body.CurrentPassword, in.Body.Password); err != nil {
		return nil, err
	}
	return g.get(ctx, principal, nil)
}

// LiveSession is one of a person's sessions as the API shows it. It is exported for the framework, see [endpoint.PathID].
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

func (g *session) list(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.JSON[sessionList], error) {
	e := endpoint.ExchangeFrom(ctx)
	sessions, current, err := g.Sessions.List(e.R, *principal)
	if err != nil {
		return nil, err
	}
	shown := sessionList{Data: make([]LiveSession, len(sessions))}
	for i, session := range sessions {
		shown.Data[i] = LiveSession{
			Current: i == current, Client: endpoint.TextOrNull(session.Client), CreatedAt: endpoint.Timestamp(session.CreatedAt),
			SeenAt: endpoint.Timestamp(session.SeenAt), ExpiresAt: endpoint.Timestamp(session.ExpiresAt),
		}
	}
	return endpoint.Answer(shown), nil
}

func (g *session) signOutEverywhere(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.Empty, error) {
	e := endpoint.ExchangeFrom(ctx)
	if err := g.Sessions.SignOutEverywhere(e.W, e.R, *principal); err != nil {
		return nil, err
	}
	return &endpoint.Empty{}, nil
}
