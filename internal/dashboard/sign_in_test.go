package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Signing in hands the cookie on and leads to what was asked for, if that is one of our pages.
func TestSignIn(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mu.Lock()
	r.answers["POST /session"] = scriptedAnswer{status: http.StatusCreated, body: `{}`, header: http.Header{"Set-Cookie": {"__Host-svc_session=new; Path=/"}}}
	r.mu.Unlock()
	for next, to := range map[string]string{
		"": "/dashboard", "/dashboard/wallet?environment=test": "/dashboard/wallet?environment=test", "/dashboard": "/dashboard",
		"https://evil.example/dashboard": "/dashboard", "//evil.example/dashboard": "/dashboard", "/dashboardx": "/dashboard",
		"/v1/models": "/dashboard", "javascript:alert(1)": "/dashboard", "/dashboard\\..//evil.example": "/dashboard",
		"/\\evil.example": "/dashboard", "%zz": "/dashboard", "/dashboard/../v1": "/dashboard",
	} {
		w := r.submit(t, "/dashboard/login?next="+url.QueryEscape(next), url.Values{"email": {"lan@shop.example"}, "password": {"correct horse"}})
		require.Equal(t, http.StatusSeeOther, w.Code, next)
		require.Equal(t, to, w.Header().Get("Location"), next)
		require.Equal(t, "__Host-svc_session=new; Path=/", w.Header().Get("Set-Cookie"))
	}
	for _, one := range r.asked {
		require.Equal(t, http.MethodPost, one.method, "nobody is signed in yet")
		require.Equal(t, map[string]any{"email": "lan@shop.example", "password": "correct horse"}, one.body)
	}
}

// A wrong password is reported at the form, which keeps the address and never the password. After too many tries the form says when
// to come back.
func TestSignInRefused(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	typed := url.Values{"email": {"lan@shop.example"}, "password": {"wrong horse"}}
	r.refuse("POST /session", http.StatusUnauthorized, "unauthenticated", "", "The e-mail address or the password is wrong.")
	w := r.submit(t, "/dashboard/login?next=/dashboard/keys", typed)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Contains(t, w.Body.String(), "The e-mail address or the password is wrong.")
	holds(t, w.Body.String(), "login-email", "lan@shop.example")
	require.NotContains(t, w.Body.String(), "wrong horse")
	require.NotContains(t, element(t, w.Body.String(), "login"), "action", "it is sent to the same address, with next in it")

	r.mu.Lock()
	r.answers["POST /session"] = scriptedAnswer{
		status: http.StatusTooManyRequests,
		body:   `{"error":{"code":"rate_limited","message":"Too many logins have failed. Try again later.","retryAfter":30,"requestId":"req_1"}}`,
	}
	r.mu.Unlock()
	w = r.submit(t, "/dashboard/login", typed)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "30", w.Header().Get("Retry-After"))
	require.Contains(t, w.Body.String(), "Too many logins have failed.")
}

// Where signing in is impossible the pages say why, and have no form for a password.
func TestSignInImpossible(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const why = "Signing in needs https."
	r.dashboard.config.SignInRefusal = func(r *http.Request) string {
		if r.Host == "svc.example" {
			return why
		}
		return ""
	}
	for _, path := range []string{"/dashboard/login", "/dashboard/welcome"} {
		for _, host := range []string{"svc.example", "localhost:8080"} {
			asked := httptest.NewRequest(http.MethodGet, path, nil)
			asked.Host = host
			page := r.serve(t, asked).Body.String()
			if host == "svc.example" {
				require.Contains(t, page, why)
				require.NotContains(t, page, `type="password"`)
			} else {
				require.NotContains(t, page, why)
				require.Contains(t, page, `type="password"`)
			}
		}
	}
}

func TestWelcome(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.answer("POST /session/password", http.StatusCreated, `{}`)
	typed := url.Values{"token": {" tok_1 "}, "password": {" a long password "}}
	w := r.submit(t, "/dashboard/welcome", typed)
	require.Equal(t, "/dashboard", w.Header().Get("Location"))
	require.Equal(t, map[string]any{"token": "tok_1", "password": " a long password "}, r.last(t, http.MethodPost).body)
	for _, c := range []struct{ field, message string }{{"token", "The link was used or has expired."}, {"password", "password is too short."}} {
		r.refuse("POST /session/password", http.StatusBadRequest, "invalid_request", c.field, c.message)
		w = r.submit(t, "/dashboard/welcome", typed)
		requireErrorAt(t, w.Body.String(), "welcome-"+c.field, c.message)
		require.NotContains(t, w.Body.String(), "a long password")
	}
}

func TestSignOut(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mu.Lock()
	r.answers["DELETE /session"] = scriptedAnswer{status: http.StatusNoContent, header: http.Header{"Set-Cookie": {"__Host-svc_session=; Max-Age=0"}}}
	r.mu.Unlock()
	w := r.submit(t, "/dashboard/logout", nil)
	requireTo(t, w, "/dashboard/login", "logout")
	require.Equal(t, "__Host-svc_session=; Max-Age=0", w.Header().Get("Set-Cookie"))
	require.Contains(t, r.see(t, "/dashboard/login?done=logout"), "You are signed out.")
	require.Equal(t, "/dashboard/login", r.open(t, "/dashboard/logout").Header().Get("Location"))
}

// Where several organizations have the person, the form asks which one, and sends what was chosen.
func TestSignInAsksForTheOrganization(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	require.NotContains(t, r.see(t, "/dashboard/login"), "login-organization")
	typed := url.Values{"email": {"lan@shop.example"}, "password": {"correct horse"}}
	r.refuse("POST /session", http.StatusBadRequest, "invalid_request", "organization", "Which organization? The address and the password are yours in A (org_1), B (org_2).")
	w := r.submit(t, "/dashboard/login", typed)
	require.Equal(t, http.StatusBadRequest, w.Code)
	element(t, w.Body.String(), "login-organization-error")
	require.Contains(t, w.Body.String(), "yours in A (org_1), B (org_2).")

	typed.Set("organization", "B")
	r.answer("POST /session", http.StatusCreated, `{}`)
	w = r.submit(t, "/dashboard/login", typed)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "B", r.asked[len(r.asked)-1].body["organization"])
	r.refuse("POST /session", http.StatusUnauthorized, "unauthenticated", "", "The e-mail address or the password is wrong.")
	holds(t, r.submit(t, "/dashboard/login", typed).Body.String(), "login-organization", "B")
}

// A person with a second factor is asked for a code once the password is right, also behind a one-time link.
func TestSignInAsksForTheCode(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, c := range []struct{ path, form, asked string }{
		{"/dashboard/login", "login", "POST /session"}, {"/dashboard/welcome", "welcome", "POST /session/password"},
	} {
		require.NotContains(t, r.see(t, c.path), c.form+"-code")
		typed := url.Values{"email": {"lan@shop.example"}, "token": {"t"}, "password": {"correct horse"}}
		r.refuse(c.asked, http.StatusBadRequest, "invalid_request", "code", "Enter the six digits.")
		requireErrorAt(t, r.submit(t, c.path, typed).Body.String(), c.form+"-code", "Enter the six digits.")
		typed.Set("code", "123456")
		r.answer(c.asked, http.StatusCreated, `{}`)
		require.Equal(t, http.StatusSeeOther, r.submit(t, c.path, typed).Code)
		require.Equal(t, "123456", r.asked[len(r.asked)-1].body["code"])
	}
}

// On the account page a person switches the second factor on with the code of a new secret, gets the recovery codes once, and switches it off.
func TestSecondFactorOfTheAccount(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	const path = "/dashboard/account"
	r.answer("GET /session/second-factor", http.StatusOK, `{"enabled":false,"recoveryCodes":0}`)
	require.Contains(t, r.see(t, path), `action="/dashboard/account/begin"`)
	r.answer("POST /session/second-factor", http.StatusOK, `{"secret":"JBSWY3DP","uri":"otpauth://totp/svc:lan?secret=JBSWY3DP&issuer=svc"}`)
	page := r.submit(t, path+"/begin", nil).Body.String()
	require.Contains(t, page, `<img src="data:image/png;base64,iVBOR`)
	require.Equal(t, 2, strings.Count(page, "JBSWY3DP"), "for people, and in the form")
	typed := url.Values{"secret": {"JBSWY3DP"}, "code": {"123456"}}
	r.refuse("PUT /session/second-factor", http.StatusBadRequest, "invalid_request", "code", "The code is wrong.")
	page = r.submit(t, path+"/enable", typed).Body.String()
	requireErrorAt(t, page, "account-enable-code", "The code is wrong.")
	require.Equal(t, 2, strings.Count(page, "JBSWY3DP"))
	r.answer("PUT /session/second-factor", http.StatusOK, `{"enabled":true,"recoveryCodes":10,"codes":["aaaa-bbbb"]}`)
	r.answer("GET /session/second-factor", http.StatusOK, `{"enabled":true,"recoveryCodes":10}`)
	require.Contains(t, r.submit(t, path+"/enable", typed).Body.String(), "<code>aaaa-bbbb</code>")
	page = r.see(t, path)
	require.NotContains(t, page, "aaaa-bbbb")
	require.Contains(t, page, "Recovery codes left: 10.")
	r.answer("POST /session/second-factor/disable", http.StatusOK, `{}`)
	requireTo(t, r.submit(t, path+"/disable", url.Values{"code": {"123456"}}), path, "account-disable")
}
