package handlers

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The cookie of a login session; [identity.SessionLifetime] and [identity.SessionIdle] bound the session. Browsers accept a name
// with __Host- over https only, for exactly this host, and let no other site set it. Over plain http, which is allowed on this
// machine only, it has the other name.
const (
	SessionCookie      = "__Host-svc_session"
	LocalSessionCookie = "svc_session"
)

// The cookie of a device that a person has signed in from, by the same rules. It is no login: with it, failed logins
// from elsewhere don't keep its person out there.
const (
	localDeviceCookie = "svc_device"         // with the same prefix over https
	deviceLifetime    = 400 * 24 * time.Hour // browsers keep no cookie longer
)

// busyRetryAfter is the Retry-After of a request that comes while too many passwords are being checked.
const busyRetryAfter = time.Second

// Sessions signs people in and out over HTTP: the cookie, and when it counts. The endpoint groups and the dashboard share
// it. All its errors are public ones. It is safe for concurrent use.
//
// A person can sign in over https, or over plain http when the request names this machine itself (localhost, a loopback
// address): everywhere else the cookie could be read on the way, and sign-in is refused with that reason. A request counts
// as https if its connection has TLS or if base_url is https, which is for a proxy that ends TLS.
type Sessions struct {
	cookies[identity.Principal]

	sessions *identity.Sessions
}

// cookies are the cookies of a session S and of a device, see [SessionCookie].
type cookies[S any] struct {
	https bool
	// session and device are the names over plain http.
	session, device string
	people          interface {
		// End ends the session of a token. One that doesn't exist is no error.
		End(ctx context.Context, token string) error
		// Device returns a token for the device from which a person has just signed in.
		Device(ctx context.Context, session S) (string, error)
	}
}

// securePrefix begins the names of cookies over https.
const securePrefix = "__Host-"

// NewSessions returns the HTTP side of sessions. baseURL is the service's own address.
func NewSessions(sessions *identity.Sessions, baseURL string) *Sessions {
	secure := strings.HasPrefix(baseURL, "https://")
	return &Sessions{cookies[identity.Principal]{secure, LocalSessionCookie, localDeviceCookie, sessions}, sessions}
}

// Allowed refuses requests that can't have a session: those over plain http that isn't local (forbidden, with the reason).
func (c cookies[S]) Allowed(r *http.Request) error {
	_, err := c.prefix(r)
	return err
}

// SignIn checks the password and sets the cookie of a new session. A session that the request came with ends. organization chooses if several have
// the user, and code is for a user with a second factor. The error is invalid_request with the field organization or code if one is needed,
// unauthenticated, rate_limited, or forbidden for plain http and for a request that another site made.
func (s *Sessions) SignIn(w http.ResponseWriter, r *http.Request, email, password, organization, code string) (identity.Principal, error) {
	return s.begin(w, r, func() (string, identity.Principal, error) {
		return s.sessions.Begin(r.Context(), email, password, organization, s.client(r, code))
	})
}

// SetPassword uses a one-time link of an invitation or a reset: it sets the password and signs the user in, as SignIn does. It returns
// invalid_request with the field token, password or code.
func (s *Sessions) SetPassword(w http.ResponseWriter, r *http.Request, link, password, code string) (identity.Principal, error) {
	return s.begin(w, r, func() (string, identity.Principal, error) {
		return s.sessions.BeginWithLink(r.Context(), link, password, s.client(r, code))
	})
}

// begin signs a person in and sets the cookies. A session that the request came with ends.
func (c cookies[S]) begin(w http.ResponseWriter, r *http.Request, begin func() (string, S, error)) (session S, err error) {
	if err := c.mayChange(r); err != nil {
		return session, err
	}
	token, begun, err := begin()
	if err != nil {
		return session, loginRefusal(err)
	}
	if err := c.people.End(r.Context(), c.token(r)); err != nil {
		return session, Internal(err)
	}
	c.set(w, r, c.session, token, identity.SessionLifetime)
	c.rememberDevice(w, r, begun)
	return begun, nil
}

// mayChange refuses a request that can't have a session, or that another site made.
func (c cookies[S]) mayChange(r *http.Request) error {
	if err := c.Allowed(r); err != nil {
		return err
	}
	return sameOrigin(r)
}

// ChangePassword sets another password for the signed-in person, and ends the person's other sessions. It returns invalid_request with the field
// currentPassword or password, and rate_limited.
func (s *Sessions) ChangePassword(w http.ResponseWriter, r *http.Request, principal identity.Principal, current, password string) error {
	err := s.sessions.ChangePassword(r.Context(), s.token(r), current, password)
	if errors.Is(err, identity.ErrWrongPassword) {
		return InvalidRequest("currentPassword", "This is not your current password.")
	}
	if err != nil {
		return loginRefusal(err)
	}
	s.rememberDevice(w, r, principal)
	return nil
}

// EnableSecondFactor stores the secret of an [identity.Enrolment] for the signed-in person after a code of it, ends the person's other sessions,
// and returns the recovery codes, which are shown this once. It returns invalid_request with the field code, conflict, and rate_limited.
func (s *Sessions) EnableSecondFactor(r *http.Request, principal identity.Principal, secret, code string) ([]string, error) {
	codes, err := s.sessions.EnableSecondFactor(r.Context(), principal, s.token(r), secret, code)
	return codes, loginRefusal(err)
}

// DisableSecondFactor removes the second factor of the signed-in person after one more code. It returns the errors of EnableSecondFactor.
func (s *Sessions) DisableSecondFactor(r *http.Request, principal identity.Principal, code string) error {
	return loginRefusal(s.sessions.DisableSecondFactor(r.Context(), principal, code))
}

// SignOutEverywhere ends all sessions of the signed-in person and removes the cookie.
func (s *Sessions) SignOutEverywhere(w http.ResponseWriter, r *http.Request, principal identity.Principal) error {
	if err := s.Allowed(r); err != nil {
		return err
	}
	if err := s.sessions.EndAll(r.Context(), principal); err != nil {
		return Internal(err)
	}
	s.set(w, r, s.session, "", -time.Second)
	return nil
}

// List returns the sessions of the signed-in person, the newest first, and the index of this one, or -1.
func (s *Sessions) List(r *http.Request, principal identity.Principal) ([]store.LiveSession, int, error) {
	list, current, err := s.sessions.List(r.Context(), principal, s.token(r))
	if err != nil {
		return nil, 0, Internal(err)
	}
	return list, current, nil
}

// client describes the program that signs in, from its request.
func (c cookies[S]) client(r *http.Request, code string) identity.Client {
	return identity.Client{Address: ClientAddress(r), Agent: r.UserAgent(), Device: c.get(r, c.device), Code: code}
}

// rememberDevice sets the cookie of the person's device. Its failure doesn't fail the sign-in.
func (c cookies[S]) rememberDevice(w http.ResponseWriter, r *http.Request, session S) {
	if token, err := c.people.Device(r.Context(), session); err == nil {
		c.set(w, r, c.device, token, deviceLifetime)
	}
}

// Principal returns the principal of the session. The error is unauthenticated without a session, and forbidden for an unsafe
// method that another site made the browser send. It checks neither the organization's suspension nor the role.
func (s *Sessions) Principal(r *http.Request) (identity.Principal, error) {
	token := s.token(r)
	if token == "" {
		return identity.Principal{}, &Error{
			Code: errcode.Unauthenticated, Cause: identity.ErrNoSession,
			Message: "There is no API key and no login session. Send a key as Authorization: Bearer <API_KEY> or as X-Api-Key, or sign in.",
		}
	}
	if err := sameOrigin(r); err != nil {
		return identity.Principal{}, err
	}
	principal, err := s.sessions.Authenticate(r.Context(), token)
	return principal, loginRefusal(err)
}

// SignOut ends the session immediately on every node, and removes the cookie. Without a session it does nothing.
func (c cookies[S]) SignOut(w http.ResponseWriter, r *http.Request) error {
	if err := c.mayChange(r); err != nil {
		return err
	}
	if err := c.people.End(r.Context(), c.token(r)); err != nil {
		return Internal(err)
	}
	c.set(w, r, c.session, "", -time.Second)
	return nil
}

// token returns the value of the session's cookie, or empty.
func (c cookies[S]) token(r *http.Request) string { return c.get(r, c.session) }

// get returns the value of a cookie, or empty. Of two cookies with the name neither counts: another site may have planted one.
func (c cookies[S]) get(r *http.Request, name string) string {
	prefix, err := c.prefix(r)
	found := r.CookiesNamed(prefix + name)
	if err != nil || len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// set sets a cookie. A negative age removes it.
func (c cookies[S]) set(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	prefix, err := c.prefix(r)
	if err != nil {
		return
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // G124: without Secure on this machine's own plain http only, see Sessions
		Name: prefix + name, Value: value, Path: "/", MaxAge: int(age / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: prefix == securePrefix,
	})
}

// prefix returns the beginning of the names of cookies for a request. The error is that of [Sessions.Allowed].
func (c cookies[S]) prefix(r *http.Request) (string, error) {
	switch {
	case c.https || r.TLS != nil:
		return securePrefix, nil
	case local(r.Host):
		return "", nil
	default:
		return "", &Error{
			Code: errcode.Forbidden,
			Message: "Signing in needs https: over plain http the session could be read on the way. " +
				"Use an https address, or http://localhost on the machine itself.",
		}
	}
}

// local reports whether the host of a request is this machine by its name: a browser resolves it to itself.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.IsLoopback()
}

// sameOrigin refuses requests with an unsafe method that another site made the browser send.
func sameOrigin(r *http.Request) error {
	var protection http.CrossOriginProtection
	if err := protection.Check(r); err != nil {
		return &Error{Code: errcode.Forbidden, Message: "The request comes from another site.", Cause: err}
	}
	return nil
}

// NeedsCode returns the error of an operator with a second factor that is too old: invalid_request with the field code.
func NeedsCode() error { return loginRefusal(identity.ErrCodeNeeded) }

// publicForm is the public form of an error.
type publicForm struct {
	err    error
	public Error
}

// publicError returns the public form of an error with its cause, or nil.
func publicError(forms []publicForm, err error) *Error {
	for _, form := range forms {
		if errors.Is(err, form.err) {
			form.public.Cause = err
			return &form.public
		}
	}
	return nil
}

// loginErrors are the public forms of the errors of sign-ins and second factors.
var loginErrors = []publicForm{
	{identity.ErrWrongPassword, Error{Code: errcode.Unauthenticated, Message: "The e-mail address or the password is wrong."}},
	{identity.ErrLinkUsed, *InvalidRequest("token", "The link was used or has expired, or its e-mail address can't be used here. "+
		"Ask for a new link, or for an invitation of another address.")},
	{identity.ErrNoSession, Error{Code: errcode.Unauthenticated, Message: "The login session has ended. Sign in again."}},
	{identity.ErrBusy, Error{
		Code: errcode.RateLimited, RetryAfter: busyRetryAfter,
		Message: "Too many people are signing in at this moment. Retry shortly.",
	}},
	{identity.ErrCodeNeeded, *InvalidRequest("code", "Enter the six digits that your authenticator app shows, or a recovery code.")},
	{identity.ErrWrongCode, *InvalidRequest("code", "This is wrong. Enter the six digits that your authenticator app shows now, "+
		"on a device that sets its time automatically, or an unused recovery code.")},
	{identity.ErrCodeUsed, *InvalidRequest("code", "These digits were used already. Wait for the next ones, up to 30 seconds.")},
	{identity.ErrNoRecoveryCodes, *InvalidRequest("code", "The authenticator app doesn't show this, and all recovery codes are used. "+
		"Have your second factor reset.")},
	{identity.ErrNoSecondFactor, Error{Code: errcode.Conflict, Message: "There is no second factor. Set one up."}},
	{store.ErrConflict, Error{Code: errcode.Conflict, Message: "There is a second factor already. Switch it off first."}},
}

// loginRefusal returns the public form of an error of [identity.Sessions] or [identity.Operators].
func loginRefusal(err error) error {
	if err == nil {
		return nil
	}
	if throttled, ok := errors.AsType[*identity.ThrottledError](err); ok {
		return &Error{
			Code: errcode.RateLimited, RetryAfter: throttled.RetryAfter, Cause: err,
			Message: "Too many logins have failed. Try again later.",
		}
	}
	if several, ok := errors.AsType[*identity.SeveralOrganizationsError](err); ok {
		return InvalidRequest("organization", "Which organization? The address and the password are yours in %s.", several.Names())
	}
	if clock, ok := errors.AsType[*identity.ClockError](err); ok {
		message := "These digits are right for a clock that is about %d minutes ahead. Have the device that shows them set its time " +
			"automatically, and try again."
		if clock.Ahead < 0 {
			message = "These digits are right for a clock that is about %d minutes behind. Have the device that shows them set its time " +
				"automatically, and try again."
		}
		return InvalidRequest("code", message, int(math.Ceil(clock.Ahead.Abs().Minutes())))
	}
	if refusal := publicError(loginErrors, err); refusal != nil {
		return refusal
	}
	return BadField(err)
}

// WelcomeURL returns the address of a one-time link. The token stands behind the #, a part that browsers don't send and logs don't
// have.
func WelcomeURL(baseURL, token string) string { return baseURL + "/dashboard/welcome#" + token }

// OperatorSessions signs operators in and out over HTTP, as [Sessions] does for people of organizations, with cookies of their own. All its
// errors are public ones. It is safe for concurrent use.
type OperatorSessions struct {
	cookies[identity.OperatorSession]

	operators *identity.Operators
}

// NewOperatorSessions returns the HTTP side of operators' sessions. baseURL is the address of the console.
func NewOperatorSessions(operators *identity.Operators, baseURL string) *OperatorSessions {
	secure := strings.HasPrefix(baseURL, "https://")
	return &OperatorSessions{cookies[identity.OperatorSession]{secure, "svc_console", "svc_console_device", operators}, operators}
}

// SignIn checks the password and sets the cookie of a new session. A session that the request came with ends. Without the second factor
// ([OperatorSessions.SecondFactor], [OperatorSessions.EnableSecondFactor]) the session has no rights.
func (s *OperatorSessions) SignIn(w http.ResponseWriter, r *http.Request, email, password string) (identity.OperatorSession, error) {
	return s.begin(w, r, func() (string, identity.OperatorSession, error) {
		return s.operators.SignIn(r.Context(), email, password, s.client(r, ""))
	})
}

// UseLink sets the password by a one-time link, and signs the operator in as SignIn does. It returns invalid_request with the field token or
// password.
func (s *OperatorSessions) UseLink(w http.ResponseWriter, r *http.Request, link, password string) (identity.OperatorSession, error) {
	return s.begin(w, r, func() (string, identity.OperatorSession, error) {
		return s.operators.UseLink(r.Context(), link, password, s.client(r, ""))
	})
}

// ConsoleWelcome returns the path of a one-time link at the console, see [WelcomeURL].
func ConsoleWelcome(token string) string { return "/console/welcome#" + token }

// Session returns the session of a request. The error is unauthenticated without one, and forbidden for an unsafe method that another site made
// the browser send.
func (s *OperatorSessions) Session(r *http.Request) (identity.OperatorSession, error) {
	if err := sameOrigin(r); err != nil {
		return identity.OperatorSession{}, err
	}
	token := s.token(r)
	if token == "" {
		return identity.OperatorSession{}, &Error{
			Code: errcode.Unauthenticated, Message: "There is no login session. Sign in.", Cause: identity.ErrNoSession,
		}
	}
	session, err := s.operators.Session(r.Context(), token)
	return session, loginRefusal(err)
}

// SecondFactor checks a code of the app or a recovery code, and gives the session the operator's rights for a time. It returns invalid_request
// with the field code.
func (s *OperatorSessions) SecondFactor(r *http.Request, code string) error {
	if err := s.mayChange(r); err != nil {
		return err
	}
	return loginRefusal(s.operators.SecondFactor(r.Context(), s.token(r), code))
}

// EnableSecondFactor stores the secret of an [identity.Enrolment] after a code of it, and returns the recovery codes, which are shown this once.
func (s *OperatorSessions) EnableSecondFactor(r *http.Request, secret, code string) ([]string, error) {
	if err := s.mayChange(r); err != nil {
		return nil, err
	}
	codes, err := s.operators.EnableSecondFactor(r.Context(), s.token(r), secret, code)
	return codes, loginRefusal(err)
}

// SetScheme sets the colours of the operator's pages, light or dark. Empty means the browser's.
func (s *OperatorSessions) SetScheme(r *http.Request, session identity.OperatorSession, scheme string) error {
	if err := s.mayChange(r); err != nil {
		return err
	}
	if err := s.operators.SetScheme(r.Context(), session, scheme); err != nil {
		return Internal(err)
	}
	return nil
}
