package api

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const goodPassword = "correct horse battery"

// invite creates a user of org_1 and returns the token of the link.
func (o *fixture) invite(t *testing.T, email string, role handlers.Role) (token string) {
	t.Helper()
	answer := o.ask(t, http.StatusCreated, http.MethodPost, "/members", "user:owner", `{"email":"`+email+`","role":"`+string(role)+`"}`)
	address, err := url.Parse(answer["link"].(string))
	require.NoError(t, err)
	require.Equal(t, "https://svc.example/dashboard/welcome", strings.Split(address.String(), "#")[0])
	return address.Fragment
}

// setCookie is the session's cookie of an answer, the first one.
func setCookie(t *testing.T, w *httptest.ResponseRecorder) *http.Cookie {
	t.Helper()
	cookies := w.Result().Cookies()
	require.NotEmpty(t, cookies)
	require.Contains(t, cookies[0].Name, "svc_session")
	return cookies[0]
}

func withCookie(r *http.Request, cookie *http.Cookie) *http.Request {
	r.AddCookie(cookie)
	return r
}

// One address may have users of several organizations: the password decides, and where that is the same the person names one.
func TestSignInToOneOfSeveralOrganizations(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	token := o.invite(t, "lan@example.com", handlers.RoleMember)
	theirs := o.ask(t, http.StatusCreated, http.MethodPost, "/members", "user:stranger", `{"email":"lan@example.com","role":"member"}`)
	_, other, _ := strings.Cut(theirs["link"].(string), "#")
	signIn := func(password, more string) map[string]any {
		answer := o.ask(t, http.StatusCreated, http.MethodPost, "/session", "", `{"email":"lan@example.com","password":"`+password+`"`+more+`}`)
		return answer["organization"].(map[string]any)
	}
	for password, token := range map[string]string{goodPassword: token, "another good password": other} {
		o.ask(t, http.StatusCreated, http.MethodPost, "/session/password", "", `{"token":"`+token+`","password":"`+password+`"}`)
	}
	require.Equal(t, "org_1", signIn(goodPassword, "")["id"])
	require.Equal(t, "org_2", signIn("another good password", "")["id"])
	o.refused(t, errcode.Unauthenticated, "", http.MethodPost, "/session", "", `{"email":"lan@example.com","password":"`+goodPassword+`","organization":"org_2"}`)

	reset := o.ask(t, http.StatusCreated, http.MethodPost, "/members/"+theirs["id"].(string)+"/link", "user:stranger", "")
	_, other, _ = strings.Cut(reset["link"].(string), "#")
	o.ask(t, http.StatusCreated, http.MethodPost, "/session/password", "", `{"token":"`+other+`","password":"`+goodPassword+`"}`)
	a := o.refused(t, errcode.InvalidRequest, "organization", http.MethodPost, "/session", "", `{"email":"lan@example.com","password":"`+goodPassword+`"}`)
	require.Contains(t, a.Text, "org_1 (org_1)")
	require.Contains(t, a.Text, "org_2 (org_2)")
	require.Equal(t, "org_2", signIn(goodPassword, `,"organization":"org_2"`)["id"])
	require.Equal(t, "org_1", signIn(goodPassword, `,"organization":"org_1"`)["id"])
}

// A person uses the link, gets the cookie, reads the session, signs out, signs in with the password, and signs out elsewhere.
func TestSignInAndOut(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	token := o.invite(t, "lan@example.com", handlers.RoleMember)
	link := `{"token":"` + token + `","password":"` + goodPassword + `"}`
	o.refused(t, errcode.InvalidRequest, "password", http.MethodPost, "/session/password", "", `{"token":"`+token+`","password":"short"}`)
	o.refused(t, errcode.InvalidRequest, "token", http.MethodPost, "/session/password", "", strings.Replace(link, token, token[1:], 1))

	w := handlertest.Served(o.Serve, request(http.MethodPost, "/session/password", "", link))
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	require.Regexp(t, `^\{"user":\{"id":"usr_[a-z0-9]+","email":"lan@example.com","language":null,"scheme":null\},"organization":\{"id":"org_1","name":"org_1","suspended":false,"waitingConversations":0\},"role":"member"\}$`,
		w.Body.String())
	cookie := setCookie(t, w)
	require.Regexp(t, `^__Host-svc_session=[A-Za-z0-9_-]{43}; Path=/; Max-Age=604800; HttpOnly; Secure; SameSite=Lax$`, w.Header().Get("Set-Cookie"))
	require.NotContains(t, w.Body.String(), cookie.Value)
	require.Equal(t, w.Body.String(), handlertest.OkText(t, o.Serve, withCookie(handlertest.Get("/session"), cookie)))
	o.refused(t, errcode.InvalidRequest, "token", http.MethodPost, "/session/password", "", link)

	// A second sign-in of the same browser takes the first one's place; another browser has its own.
	login := `{"email":" Lan@Example.com","password":"` + goodPassword + `"}`
	again := setCookie(t, handlertest.Served(o.Serve, withCookie(request(http.MethodPost, "/session", "", login), cookie)))
	handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, withCookie(handlertest.Get("/session"), cookie))
	elsewhere := setCookie(t, handlertest.Served(o.Serve, request(http.MethodPost, "/session", "", login)))
	handlertest.OkText(t, o.Serve, withCookie(handlertest.Get("/session"), again))

	out := handlertest.Served(o.Serve, withCookie(httptest.NewRequest(http.MethodDelete, "/session", nil), again))
	require.Equal(t, http.StatusNoContent, out.Code)
	require.Regexp(t, `^__Host-svc_session=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax$`, out.Header().Get("Set-Cookie"))
	handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, withCookie(handlertest.Get("/session"), again))
	handlertest.OkText(t, o.Serve, withCookie(handlertest.Get("/session"), elsewhere))
	require.Equal(t, http.StatusNoContent, handlertest.Served(o.Serve, httptest.NewRequest(http.MethodDelete, "/session", nil)).Code)

	a := handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, request(http.MethodPost, "/session", "", strings.Replace(login, "horse", "cow", 1)))
	require.NotEmpty(t, a.Header.Get("Www-Authenticate"))
	require.Empty(t, a.Header.Get("Set-Cookie"))
}

// Public routes require neither key nor session, and refuse requests that another site makes a browser send.
func TestPublicRoutes(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	before := o.snapshot(t)
	for _, route := range o.Routes() {
		if !route.Public {
			continue
		}
		require.Empty(t, route.Role)
		require.Empty(t, route.Scope)
		if groupOf(route.Path) == "/widget" { // TestWidgetOperationsAreServedByTheWidget
			continue
		}
		require.Equal(t, "/session", groupOf(route.Path), "who may use it without a name?")
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
			r := request(route.Method, route.Path, "user:owner", bodyFor(route))
			r.Header.Set(name, value)
			handlertest.RefusedWith(t, errcode.Forbidden, o.Serve, r)
		}
	}
	require.Equal(t, before, o.snapshot(t))
	handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, request(http.MethodPost, "/session", "owner", `{"email":"nobody@example.com","password":"a key is no password"}`))
}

// Over plain http there are sessions on this machine only, under the other cookie's name; elsewhere the error names the reason.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	sessions := handlers.NewSessions(identity.NewSessions(o.DB, o.Ring, nil), "http://localhost:8080")
	for host, name := range map[string]string{
		"localhost": handlers.LocalSessionCookie, "localhost:8080": handlers.LocalSessionCookie, "LOCALHOST": handlers.LocalSessionCookie, "127.0.0.1:80": handlers.LocalSessionCookie,
		"127.9.9.9": handlers.LocalSessionCookie, "[::1]:8080": handlers.LocalSessionCookie, "[::1]": handlers.LocalSessionCookie,
		"svc.example": "", "192.168.1.5:8080": "", "localhost.evil.example": "", "localhost.": "", "127.0.0.1.evil.example": "", "": "", "0.0.0.0": "",
	} {
		r := handlertest.Get("/session")
		r.Host = host
		r.AddCookie(&http.Cookie{Name: handlers.LocalSessionCookie, Value: sessionToken("owner")})
		principal, err := sessions.Principal(r)
		if name == "" {
			require.Equal(t, errcode.Unauthenticated, handlers.AsError(err).Code, host)
			w := httptest.NewRecorder()
			_, err = sessions.SignIn(w, r, "owner@example.com", goodPassword, "", "")
			require.Equal(t, errcode.Forbidden, handlers.AsError(err).Code, host)
			require.Contains(t, handlers.AsError(err).Message, "needs https", host)
			require.Equal(t, errcode.Forbidden, handlers.AsError(sessions.Allowed(r)).Code)
			require.Equal(t, errcode.Forbidden, handlers.AsError(sessions.SignOut(w, r)).Code)
			require.Empty(t, w.Header().Get("Set-Cookie"))
			continue
		}
		require.NoError(t, err, host)
		require.NoError(t, sessions.Allowed(r))
		require.Equal(t, "usr_owner", principal.UserID)
	}
	r := handlertest.Get("/session")
	r.Host, r.TLS = "svc.example", new(tls.ConnectionState)
	r.AddCookie(&http.Cookie{Name: handlers.SessionCookie, Value: sessionToken("owner")})
	_, err := sessions.Principal(r)
	require.NoError(t, err, "over TLS every name will do")

	r = handlertest.Get("/session")
	r.Host = "localhost"
	w := httptest.NewRecorder()
	require.NoError(t, sessions.SignOut(w, r))
	require.Equal(t, "svc_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax", w.Header().Get("Set-Cookie"))
}

// Failures are counted under the client's network, whichever of its addresses they come from.
func TestThrottledSignIn(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	attempt := func(address string) handlertest.Answer {
		r := request(http.MethodPost, "/session", "", `{"email":"nobody@example.com","password":"a wrong password"}`)
		r.RemoteAddr = address
		return handlertest.Checked(t, handlertest.Served(o.Serve, r))
	}
	var last handlertest.Answer
	for i := range 14 {
		last = attempt(fmt.Sprintf("[2001:db8:1:2%02x::%d]:%d", i, i, 1000+i))
		if last.Code() == string(errcode.RateLimited) {
			break
		}
		require.Equal(t, string(errcode.Unauthenticated), last.Code())
	}
	require.Equal(t, string(errcode.RateLimited), last.Code())
	require.Equal(t, http.StatusTooManyRequests, last.Status)
	require.NotEmpty(t, last.Header.Get("Retry-After"))
	require.Equal(t, string(errcode.Unauthenticated), attempt("[2001:db8:1:300::1]:1000").Code(), "of another network")
}

// A person's browser can sign in after others have used up the account's failures, and the device's cookie alone is no session.
func TestKnownDeviceSignsIn(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	link := `{"token":"` + o.invite(t, "lan@example.com", handlers.RoleMember) + `","password":"` + goodPassword + `"}`
	w := handlertest.Served(o.Serve, request(http.MethodPost, "/session/password", "", link))
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 2)
	device := cookies[1]
	require.Regexp(t, `^__Host-svc_device=[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}; Path=/; Max-Age=34560000; HttpOnly; Secure; SameSite=Lax$`,
		w.Header()["Set-Cookie"][1])
	require.Equal(t, "192.0.2.7", handlers.ClientAddress(handlers.WithClientAddress(handlertest.Get("/"), "192.0.2.7")))
	attempt := func(password string, cookies ...*http.Cookie) *httptest.ResponseRecorder {
		r := handlers.WithClientAddress(request(http.MethodPost, "/session", "", `{"email":"lan@example.com","password":"`+password+`"}`), "192.0.2.7")
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		return handlertest.Served(o.Serve, r)
	}
	for range 14 {
		if attempt("a wrong password").Code == http.StatusTooManyRequests {
			break
		}
	}
	require.Equal(t, http.StatusTooManyRequests, attempt(goodPassword).Code)
	forged := &http.Cookie{Name: device.Name, Value: strings.Repeat("x", 22) + device.Value[22:]}
	require.Equal(t, http.StatusTooManyRequests, attempt(goodPassword, forged).Code)
	require.Equal(t, http.StatusTooManyRequests, attempt(goodPassword, device, device).Code, "one of two was planted")
	require.Equal(t, http.StatusCreated, attempt(goodPassword, device).Code)
	o.refused(t, errcode.Unauthenticated, "", http.MethodGet, "/session", "", "")
	require.Equal(t, http.StatusUnauthorized, handlertest.Served(o.Serve, withCookie(handlertest.Get("/session"), device)).Code)
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"192.0.2.1:4711": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[2001:db8:1:203:3::4]:80": "2001:db8:1:200::/56", "2001:db8:1:2ff::9": "2001:db8:1:200::/56",
		"::ffff:192.0.2.1": "192.0.2.1", "fe80::1%eth0": "fe80::/56", "@": "", "": "", "unix": "",
	} {
		r := handlertest.Get("/session")
		r.RemoteAddr = given
		require.Equal(t, want, handlers.ClientAddress(r), given)
		r.RemoteAddr = "198.51.100.1:1"
		known := handlers.ClientAddress(handlers.WithClientAddress(r, given))
		if given == "" {
			want = "198.51.100.1"
		}
		require.Equal(t, want, known, given)
	}
}

// Persons of a suspended organization can sign in and out; every other answer names the suspension.
func TestSuspendedPeople(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	link := store.UserLink{Hash: sha256.Sum256([]byte(sessionToken("link"))), Purpose: "reset", Lifetime: 60_000}
	require.NoError(t, o.DB.UserLinks.Put(t.Context(), "test", "org_3", "usr_suspended",
		func(store.User) error { return nil }, func(store.User) store.UserLink { return link }))
	w := handlertest.Served(o.Serve, request(http.MethodPost, "/session/password", "", `{"token":"`+sessionToken("link")+`","password":"`+goodPassword+`"}`))
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	require.Contains(t, w.Body.String(), `"suspended":true`)
	cookie := setCookie(t, w)
	handlertest.RefusedWith(t, errcode.OrganizationSuspended, o.Serve, withCookie(handlertest.Get("/agents"), cookie))
	out := handlertest.Served(o.Serve, withCookie(httptest.NewRequest(http.MethodDelete, "/session", nil), cookie))
	require.Equal(t, http.StatusNoContent, out.Code)
}

// /v1 takes API keys only.
func TestSessionsNeverWorkOnV1(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	auth := &handlers.Auth{Authenticator: o.Authenticator, Scopes: []identity.Scope{identity.ModelsRead}}
	handlertest.RefusedWith(t, errcode.Unauthenticated, func(w http.ResponseWriter, r *http.Request) error {
		_, err := auth.Serve(w, r)
		return err
	}, request(http.MethodGet, "/v1/models", "user:owner", ""))
	for _, route := range slices.Concat(v1.Routes(), webhook.Routes(handlertest.BuiltinPlatforms(t).Catalog)) {
		require.Empty(t, route.Role, route.Path)
	}
}

// A change is recorded under the name of the person.
func TestActorOfASession(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "user:member", `{"name":"Mai","model":"echo/a"}`)
	log, err := o.DB.AuditLog.List(t.Context(), "org_1", store.Page{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "usr_member", log[0].Actor)
	require.Equal(t, "agent.create", log[0].Action)
}

// A person changes the password with the current one, which ends the other sessions, sees the sessions and ends all of them.
func TestOwnPasswordAndSessions(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	link := `{"token":"` + o.invite(t, "lan@example.com", handlers.RoleMember) + `","password":"` + goodPassword + `"}`
	first := setCookie(t, handlertest.Served(o.Serve, request(http.MethodPost, "/session/password", "", link)))
	credentials := `{"email":"lan@example.com","password":"` + goodPassword + `"}`
	r := request(http.MethodPost, "/session", "", credentials)
	r.Header.Set("User-Agent", "Browser\u2028 of Lan")
	second := setCookie(t, handlertest.Served(o.Serve, r))
	alive := func(cookie *http.Cookie) bool {
		return handlertest.Served(o.Serve, withCookie(handlertest.Get("/session"), cookie)).Code == http.StatusOK
	}
	put := func(current, password string) *httptest.ResponseRecorder {
		body := `{"currentPassword":"` + current + `","password":"` + password + `"}`
		return handlertest.Served(o.Serve, withCookie(request(http.MethodPut, "/session/password", "", body), first))
	}
	listed := handlertest.OkText(t, o.Serve, withCookie(handlertest.Get("/session/all"), second))
	require.Equal(t, 2, strings.Count(listed, `"createdAt"`))
	require.Equal(t, 1, strings.Count(listed, `"current":true,"client":"Browser of Lan"`), listed)
	require.NotContains(t, listed, second.Value)

	const another = "another good password"
	require.Contains(t, put("not my password", another).Body.String(), `"field":"currentPassword"`)
	require.Contains(t, put(goodPassword, "password1234").Body.String(), `"field":"password"`)
	require.True(t, alive(second))
	w := put(goodPassword, another)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.NotContains(t, w.Body.String(), "passwordReset", "nobody else did it")
	require.Contains(t, w.Header().Get("Set-Cookie"), "__Host-svc_device=", "the device's old cookie ended with the old password")
	require.True(t, alive(first))
	require.False(t, alive(second))
	require.Equal(t, http.StatusUnauthorized, handlertest.Served(o.Serve, request(http.MethodPost, "/session", "", credentials)).Code)
	third := setCookie(t, handlertest.Served(o.Serve, request(http.MethodPost, "/session", "", strings.Replace(credentials, goodPassword, another, 1))))
	for range 14 { // an intruder with the session guesses no faster
		w = put("not my password", goodPassword)
		if w.Code == http.StatusTooManyRequests {
			break
		}
	}
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	w = handlertest.Served(o.Serve, withCookie(request(http.MethodDelete, "/session/all", "", ""), third))
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Contains(t, w.Header().Get("Set-Cookie"), "__Host-svc_session=; ")
	require.False(t, alive(first) || alive(third))
}

// TestLanguage guarantees that a person chooses the language of their own pages only.
func TestLanguage(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	language := func(body string) any {
		return o.ask(t, http.StatusOK, http.MethodPatch, "/session", "user:member", body)["user"].(map[string]any)["language"]
	}
	require.Nil(t, language(`{}`))
	require.Equal(t, "vi", language(`{"language":"vi"}`))
	require.Equal(t, "vi", language(`{}`))
	require.Nil(t, o.ask(t, http.StatusOK, http.MethodGet, "/session", "user:owner", "")["user"].(map[string]any)["language"])
	o.refused(t, errcode.InvalidRequest, "language", http.MethodPatch, "/session", "user:member", `{"language":"fr"}`)
	require.Nil(t, language(`{"language":null}`))

	user := o.ask(t, http.StatusOK, http.MethodPatch, "/session", "user:member", `{"language":"vi","scheme":"dark"}`)["user"].(map[string]any)
	require.Equal(t, []any{"vi", "dark"}, []any{user["language"], user["scheme"]})
	user = o.ask(t, http.StatusOK, http.MethodPatch, "/session", "user:member", `{"scheme":null}`)["user"].(map[string]any)
	require.Equal(t, []any{"vi", nil}, []any{user["language"], user["scheme"]})
	o.refused(t, errcode.InvalidRequest, "scheme", http.MethodPatch, "/session", "user:member", `{"scheme":"blue"}`)
}

// TestSecondFactorOverHTTP: a person switches the second factor on and off, and each refusal names the field and what to do.
func TestSecondFactorOverHTTP(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	token := o.invite(t, "lan@example.com", handlers.RoleOwner)
	lan := setCookie(t, handlertest.Served(o.Serve, request(http.MethodPost, "/session/password", "", `{"token":"`+token+`","password":"`+goodPassword+`"}`)))
	ask := func(status int, method, path, body string) map[string]any {
		t.Helper()
		w := handlertest.Served(o.Serve, withCookie(request(method, path, "", body), lan))
		require.Equal(t, status, w.Code, w.Body.String())
		answer := map[string]any{}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		return answer
	}
	refused := func(message string, status int, method, path, body string) {
		t.Helper()
		fault := ask(status, method, path, body)["error"].(map[string]any)
		require.Contains(t, fault["message"], message)
		if status == http.StatusBadRequest {
			require.Equal(t, "code", fault["field"])
		}
	}
	code := func(off time.Duration, secret any) string {
		code, err := totp.GenerateCode(secret.(string), o.now.Add(off))
		require.NoError(t, err)
		return code
	}
	const path, off = "/session/second-factor", "/session/second-factor/disable"
	refused("There is no second factor", http.StatusConflict, http.MethodPost, off, `{"code":"123456"}`)
	secret := ask(http.StatusOK, http.MethodPost, path, "")["secret"]
	enable := func(code string) string { return fmt.Sprintf(`{"secret":%q,"code":%q}`, secret, code) }
	refused("This is wrong", http.StatusBadRequest, http.MethodPut, path, enable("12345"))
	refused("about 5 minutes behind", http.StatusBadRequest, http.MethodPut, path, enable(code(-5*time.Minute, secret)))
	require.Equal(t, map[string]any{"enabled": false, "recoveryCodes": 0.0}, ask(http.StatusOK, http.MethodGet, path, ""))
	codes := ask(http.StatusOK, http.MethodPut, path, enable(code(0, secret)))["codes"].([]any)
	refused("There is a second factor already", http.StatusConflict, http.MethodPut, path, enable(code(30*time.Second, secret)))

	signIn := func(code string) string {
		return fmt.Sprintf(`{"email":"lan@example.com","password":%q,"code":%q}`, goodPassword, code)
	}
	refused("Enter the six digits", http.StatusBadRequest, http.MethodPost, "/session", signIn(""))
	lan = setCookie(t, handlertest.Served(o.Serve, request(http.MethodPost, "/session", "", signIn(codes[0].(string)))))
	require.Equal(t, map[string]any{"enabled": true, "recoveryCodes": 9.0}, ask(http.StatusOK, http.MethodGet, path, ""))
	refused("were used already", http.StatusBadRequest, http.MethodPost, off, `{"code":"`+code(0, secret)+`"}`)
	require.Equal(t, map[string]any{"enabled": false, "recoveryCodes": 0.0}, ask(http.StatusOK, http.MethodPost, off, `{"code":"`+code(30*time.Second, secret)+`"}`))
	require.Equal(t, "owner", ask(http.StatusCreated, http.MethodPost, "/session", signIn(""))["role"])
}

// TestOperatorSessionsOverHTTP: an operator's cookie is no tenant's and the other way round, and nothing without the second factor has rights.
func TestOperatorSessionsOverHTTP(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	cli := identity.CommandLine("cli:lan")
	added, err := AddOperator.Run(t.Context(), o.Deps, &cli, endpoint.Values{"email": "lan@example.com", "role": "administrator"})
	require.NoError(t, err)
	_, link, _ := strings.Cut(added.(*linkedOperator).Link, "#")
	sessions := handlers.NewOperatorSessions(identity.NewOperators(o.DB, o.Ring, nil), "https://console.example")
	post := func(cookies ...*http.Cookie) *http.Request {
		r := request(http.MethodPost, "/console", "", "")
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		return r
	}
	foreign := post()
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	_, err = sessions.UseLink(httptest.NewRecorder(), foreign, link, goodPassword)
	require.Equal(t, errcode.Forbidden, handlers.AsError(err).Code)
	w := httptest.NewRecorder()
	session, err := sessions.UseLink(w, post(), link, goodPassword)
	require.NoError(t, err)
	require.Zero(t, session.Principal().OperatorScopes)
	cookie := w.Result().Cookies()[0]
	require.Equal(t, "__Host-svc_console", cookie.Name)
	require.True(t, cookie.Secure && cookie.HttpOnly)

	for _, name := range []string{handlers.SessionCookie, cookie.Name} {
		handlertest.RefusedWith(t, errcode.Unauthenticated, o.Serve, withCookie(request(http.MethodGet, "/session", "", ""), &http.Cookie{Name: name, Value: cookie.Value}))
		_, err = sessions.Session(post(&http.Cookie{Name: name, Value: sessionToken("owner")}))
		require.Equal(t, errcode.Unauthenticated, handlers.AsError(err).Code)
	}
	secret, err := identity.NewEnrolment("svc", "lan@example.com")
	require.NoError(t, err)
	code, err := totp.GenerateCode(secret.Secret, *o.now)
	require.NoError(t, err)
	codes, err := sessions.EnableSecondFactor(post(cookie), secret.Secret, code)
	require.NoError(t, err)
	session, err = sessions.Session(post(cookie))
	require.NoError(t, err)
	principal := session.Principal()
	_, err = ListOrganizations.Run(t.Context(), o.Deps, &principal, endpoint.Values{})
	require.NoError(t, err)
	principal.NeedsCode = true // ten minutes later
	_, err = ListOrganizations.Run(t.Context(), o.Deps, &principal, endpoint.Values{})
	require.NoError(t, err)
	for _, money := range []Operation{CreditWallet, AdjustWallet, RefundCall, CreateOperatorKey} {
		_, err = money.Run(t.Context(), o.Deps, &principal, endpoint.Values{
			"id": "call_1", "amountMicros": "1", "reference": "r", "reason": "r", "name": "n", "scopes": []any{"wallet:write"},
		})
		require.Equal(t, "code", handlers.AsError(err).Field)
	}
	require.Equal(t, "code", handlers.AsError(sessions.SecondFactor(post(cookie), code)).Field)
	require.NoError(t, sessions.SecondFactor(post(cookie), codes[0]))
	_, err = sessions.SignIn(httptest.NewRecorder(), post(), "lan@example.com", "another password")
	require.Equal(t, errcode.Unauthenticated, handlers.AsError(err).Code)

	id := endpoint.Values{"id": session.ID}
	for _, refused := range []error{
		second(RemoveOperator.Run(t.Context(), o.Deps, &cli, id)),
		second(UpdateOperator.Run(t.Context(), o.Deps, &cli, endpoint.Values{"id": session.ID, "role": "viewer"})),
		second(UpdateOperator.Run(t.Context(), o.Deps, &cli, endpoint.Values{"id": session.ID, "disabled": true})),
	} {
		require.Equal(t, errcode.Conflict, handlers.AsError(refused).Code)
		require.Contains(t, refused.Error(), "last administrator")
	}
	require.Equal(t, errcode.Forbidden, handlers.AsError(second(RemoveOperator.Run(t.Context(), o.Deps, &principal, id))).Code, "for the command line alone")
	require.NoError(t, sessions.SignOut(httptest.NewRecorder(), post(cookie)))
	_, err = sessions.Session(post(cookie))
	require.Equal(t, errcode.Unauthenticated, handlers.AsError(err).Code)
}

func second(_ any, err error) error { return err }
