package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// SessionObject is who is signed in as the API shows it: the person, the organization and the role.
type SessionObject struct {
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
func (d *Deps) passwordResetOf(ctx context.Context, user *store.User) (*passwordReset, error) {
	now, err := d.DB.Now(ctx)
	if err != nil {
		return nil, handlers.Internal(err)
	}
	if user.ResetAt == 0 || now-user.ResetAt >= resetShown.Milliseconds() {
		return nil, nil //nolint:nilnil // no reset is no fault
	}
	shown := &passwordReset{By: shownActor(user.ResetBy), At: endpoint.Timestamp(user.ResetAt)}
	author, err := d.DB.Users.ByID(ctx, user.OrgID, user.ResetBy)
	switch {
	case err == nil:
		shown.By = author.Email
	case !errors.Is(err, store.ErrNotFound):
		return nil, handlers.Internal(err)
	}
	return shown, nil
}

type sessionUser struct {
	ID       string  `json:"id"`
	Email    string  `json:"email"`
	Language *string `json:"language" enum:"en,vi" doc:"Of the dashboard's pages; null: the browser's"`
	Scheme   *string `json:"scheme" enum:"light,dark" doc:"Colours of the dashboard's pages; null: the browser's"`
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
	Code         string `json:"code,omitempty"         maxLength:"40" doc:"Of the second factor, or a recovery code, if you have switched it on"`
	Organization string `json:"organization,omitempty" maxLength:"100" doc:"Id or name: which one, where several have the person under this address and password"` //nolint:lll // a struct tag can't be broken
}

// passwordChange is the body of POST /session/password.
type passwordChange struct {
	Token    string `json:"token"    minLength:"1" maxLength:"100" doc:"What stands behind the # of the one-time link"`
	Password string `json:"password" minLength:"12" maxLength:"256" doc:"The new password"`
	Code     string `json:"code,omitempty" maxLength:"40" doc:"Of the second factor, or a recovery code, if you have switched it on"`
}

// The operations on sessions of people.
var (
	SignIn      = operation(public("signIn", "POST /session", "Sign in; sets the session's cookie"), (*Deps).signIn)
	SetPassword = operation(public("setPassword", "POST /session/password",
		"Set the password with a one-time link, and sign in"), (*Deps).setPassword)
	ChangePassword = operation(members("changePassword", "PUT /session/password", noScope,
		"Change your password; ends your other sessions"), (*Deps).changePassword)
	ListSessions = operation(members("listSessions", "GET /session/all", noScope,
		"List your sessions, newest first"), (*Deps).listSessions)
	SignOutEverywhere = operationOf(members("signOutEverywhere", "DELETE /session/all", noScope,
		"Sign out everywhere, here too"), (*Deps).signOutEverywhere)
	GetSession    = operation(members("getSession", "GET /session", noScope, "Tell who is signed in"), (*Deps).getSession)
	UpdateSession = operation(members("updateSession", "PATCH /session", noScope,
		"Change how the dashboard's pages are written for you"), (*Deps).updateSession)
	SignOut         = operationOf(public("signOut", "DELETE /session", "Sign out; without a session nothing happens"), (*Deps).signOut)
	GetSecondFactor = operation(members("getSecondFactor", "GET /session/second-factor", noScope,
		"Get whether you give a code beside your password"), (*Deps).getSecondFactor)
	BeginSecondFactor = operation(acting(members("beginSecondFactor", "POST /session/second-factor", noScope,
		"Make a secret for your authenticator app, which changes nothing yet")), (*Deps).beginSecondFactor)
	EnableSecondFactor = operation(members("enableSecondFactor", "PUT /session/second-factor", noScope,
		"Switch the second factor on with a code; ends your other sessions"), (*Deps).enableSecondFactor)
	DisableSecondFactor = operation(acting(members("disableSecondFactor", "POST /session/second-factor/disable", noScope,
		"Switch the second factor off with a code")), (*Deps).disableSecondFactor)
)

func (d *Deps) signIn(ctx context.Context, _ *identity.Principal, in *struct{ Body sessionCreation }) (*SessionObject, error) {
	e := endpoint.ExchangeFrom(ctx)
	user, err := d.Sessions.SignIn(e.W, e.R, in.Body.Email, in.Body.Password, in.Body.Organization, in.Body.Code)
	return d.sessionAfter(ctx, &user, err)
}

func (d *Deps) setPassword(ctx context.Context, _ *identity.Principal, in *struct{ Body passwordChange }) (*SessionObject, error) {
	e := endpoint.ExchangeFrom(ctx)
	user, err := d.Sessions.SetPassword(e.W, e.R, in.Body.Token, in.Body.Password, in.Body.Code)
	return d.sessionAfter(ctx, &user, err)
}

// sessionAfter returns a person's session after a change that ended with err.
func (d *Deps) sessionAfter(ctx context.Context, principal *identity.Principal, err error) (*SessionObject, error) {
	if err != nil {
		return nil, err
	}
	return d.getSession(ctx, principal, nil)
}

func (d *Deps) getSession(ctx context.Context, principal *identity.Principal, _ *struct{}) (*SessionObject, error) {
	user, err := d.DB.Users.ByID(ctx, principal.OrgID, principal.UserID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the user of a session: %w", err))
	}
	reset, resetErr := d.passwordResetOf(ctx, &user)
	organization, organizationErr := d.DB.Organizations.ByID(ctx, principal.OrgID)
	waiting, waitingErr := d.Conversations.WaitingForPeople(ctx, principal.OrgID)
	if err := errors.Join(resetErr, organizationErr, waitingErr); err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading a session: %w", err))
	}
	return &SessionObject{
		User: sessionUser{ID: user.ID, Email: user.Email, Language: endpoint.OrNull(user.Language), Scheme: endpoint.OrNull(user.Scheme)},
		Organization: sessionOrganization{
			ID: organization.ID, Name: organization.Name, Suspended: organization.SuspendedAt.Valid, Waiting: waiting,
		},
		Role: handlers.Role(user.Role), PasswordReset: reset,
	}, nil
}

// sessionChange is the body of PATCH /session.
type sessionChange struct {
	Language clearable[string] `json:"language,omitzero" enum:"en,vi" doc:"Of the dashboard's pages; null, the default: the browser's"`
	Scheme   clearable[string] `json:"scheme,omitzero" enum:"light,dark" doc:"Colours of the dashboard's pages; null, the default: the browser's"`
}

func (d *Deps) updateSession(ctx context.Context, principal *identity.Principal, in *struct{ Body sessionChange }) (*SessionObject, error) {
	user, err := d.DB.Users.ByID(ctx, principal.OrgID, principal.UserID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the user of a session: %w", err))
	}
	in.Body.Language.set(&user.Language)
	in.Body.Scheme.set(&user.Scheme)
	if err := d.DB.Users.SetLook(ctx, principal.OrgID, principal.UserID, user.Language, user.Scheme); err != nil {
		return nil, handlers.Internal(fmt.Errorf("setting the look of a user's pages: %w", err))
	}
	return d.getSession(ctx, principal, nil)
}

func (d *Deps) signOut(ctx context.Context, _ *identity.Principal, _ *struct{}) (*endpoint.Empty, error) {
	e := endpoint.ExchangeFrom(ctx)
	return &endpoint.Empty{}, d.Sessions.SignOut(e.W, e.R)
}

// ownPasswordChange is the body of PUT /session/password.
type ownPasswordChange struct {
	CurrentPassword string `json:"currentPassword" minLength:"1" maxLength:"256" writeOnly:"true"`
	Password        string `json:"password" minLength:"12" maxLength:"256" writeOnly:"true" doc:"The new password. The commonest ones are refused"`
}

func (d *Deps) changePassword(ctx context.Context, principal *identity.Principal, in *struct{ Body ownPasswordChange }) (*SessionObject, error) {
	e := endpoint.ExchangeFrom(ctx)
	err := d.Sessions.ChangePassword(e.W, e.R, *principal, in.Body.CurrentPassword, in.Body.Password)
	return d.sessionAfter(ctx, principal, err)
}

// LiveSession is one of a person's sessions as the API shows it. It is exported for huma, see [endpoint.PathID].
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

func (d *Deps) listSessions(ctx context.Context, principal *identity.Principal, _ *struct{}) (*sessionList, error) {
	e := endpoint.ExchangeFrom(ctx)
	sessions, current, err := d.Sessions.List(e.R, *principal)
	if err != nil {
		return nil, err
	}
	shown := sessionList{Data: make([]LiveSession, len(sessions))}
	for i, session := range sessions {
		shown.Data[i] = LiveSession{
			Current: i == current, Client: endpoint.OrNull(session.Client), CreatedAt: endpoint.Timestamp(session.CreatedAt),
			SeenAt: endpoint.Timestamp(session.SeenAt), ExpiresAt: endpoint.Timestamp(session.ExpiresAt),
		}
	}
	return &shown, nil
}

func (d *Deps) signOutEverywhere(ctx context.Context, principal *identity.Principal, _ *struct{}) (*endpoint.Empty, error) {
	e := endpoint.ExchangeFrom(ctx)
	return &endpoint.Empty{}, d.Sessions.SignOutEverywhere(e.W, e.R, *principal)
}

// SecondFactorState is whether a person gives a code beside the password.
type SecondFactorState struct {
	Enabled       bool `json:"enabled"`
	RecoveryCodes int  `json:"recoveryCodes" maximum:"10" doc:"How many recovery codes are left"`
}

func (d *Deps) getSecondFactor(ctx context.Context, principal *identity.Principal, _ *struct{}) (*SecondFactorState, error) {
	factor, err := d.DB.SecondFactors.Of(ctx, principal.OrgID, principal.UserID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, handlers.Internal(err)
	}
	return &SecondFactorState{err == nil, len(factor.Recovery)}, nil
}

// SecondFactorSecret is a new secret for an authenticator app.
type SecondFactorSecret struct {
	Secret string `json:"secret" doc:"To type into the authenticator app, and to send back with a code of it"`
	URI    string `json:"uri"    doc:"otpauth://…, for a link or a QR code"`
}

func (d *Deps) beginSecondFactor(ctx context.Context, principal *identity.Principal, _ *struct{}) (*SecondFactorSecret, error) {
	user, err := d.DB.Users.ByID(ctx, principal.OrgID, principal.UserID)
	if err != nil {
		return nil, handlers.Internal(fmt.Errorf("reading the user of a session: %w", err))
	}
	_, host, _ := strings.Cut(d.BaseURL, "://")
	secret, err := identity.NewEnrolment(cmp.Or(host, "caddy-svc"), user.Email)
	return new(SecondFactorSecret(secret)), err
}

type secondFactorEnabling struct {
	Secret string `json:"secret" minLength:"1" maxLength:"100" writeOnly:"true" doc:"Of POST /session/second-factor"`
	Code   string `json:"code"   minLength:"1" maxLength:"40" doc:"The six digits that the app shows"`
}

// EnabledSecondFactor is a second factor that was just switched on.
type EnabledSecondFactor struct {
	SecondFactorState

	Codes []string `json:"codes" doc:"The recovery codes, each for one sign-in without the app. They are shown this once"`
}

func (d *Deps) enableSecondFactor(
	ctx context.Context, principal *identity.Principal, in *struct{ Body secondFactorEnabling },
) (*EnabledSecondFactor, error) {
	codes, err := d.Sessions.EnableSecondFactor(endpoint.ExchangeFrom(ctx).R, *principal, in.Body.Secret, in.Body.Code)
	return &EnabledSecondFactor{SecondFactorState{true, len(codes)}, codes}, err
}

type secondFactorDisabling struct {
	Code string `json:"code" minLength:"1" maxLength:"40" doc:"The six digits that the app shows, or a recovery code"`
}

func (d *Deps) disableSecondFactor(
	ctx context.Context, principal *identity.Principal, in *struct{ Body secondFactorDisabling },
) (*SecondFactorState, error) {
	return &SecondFactorState{}, d.Sessions.DisableSecondFactor(endpoint.ExchangeFrom(ctx).R, *principal, in.Body.Code)
}
