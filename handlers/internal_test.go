package handlers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// Internal tests can't use package handlertest, which imports this package.

// sent returns the answer that WriteError writes for err.
func sent(err error) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	WriteError(w, httptest.NewRequest(http.MethodGet, "/", nil), err, "")
	return w
}

func mustBeInvalid(t *testing.T, err error) *Error {
	t.Helper()
	e := AsError(err)
	require.Equal(t, errcode.InvalidRequest, e.Code, "%v", err)
	return e
}

// from returns r with the principal of an organization, or with a client's address when orgID is "".
func from(r *http.Request, orgID, address string) *http.Request {
	if orgID != "" {
		return r.WithContext(WithPrincipal(r.Context(), identity.Principal{OrgID: orgID}))
	}
	return WithClientAddress(r, address)
}

// readBody is ReadBody for the account of the request.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, budget *ByteBudget) ([]byte, func(), error) {
	return ReadBody(w, r, limit, budget, AccountOf(r))
}

// readDeadlines records the read deadlines of a connection.
type readDeadlines struct {
	http.ResponseWriter

	read []time.Time
}

func (d *readDeadlines) SetReadDeadline(at time.Time) error {
	d.read = append(d.read, at)
	return nil
}

// TestBusySignIn guarantees that a person who finds no place for a password may try again, and that nobody's guesses are our failures.
func TestBusySignIn(t *testing.T) {
	t.Parallel()
	refusal := AsError(loginRefusal(fmt.Errorf("checking a password: %w", identity.ErrBusy)))
	require.Equal(t, errcode.RateLimited, refusal.Code)
	require.Equal(t, time.Second, refusal.RetryAfter)
}
