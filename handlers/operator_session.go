package handlers

import (
	"net/http"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// OperatorSessions signs operators in and out over HTTP, as [Sessions] does for people of organizations, with cookies of their own. All its
// errors are answers of the contract. It is safe for concurrent use.
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
