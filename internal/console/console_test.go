package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// configuration has one model and two plans without limits.
type configuration struct{}

func (configuration) Models() []gateway.Model {
	return []gateway.Model{{ID: "echo/a", DisplayName: "Echo"}}
}

func (c configuration) Model(id string) (*gateway.Model, bool) {
	model := c.Models()[0]
	return &model, id == model.ID
}

func (configuration) PlanNames() []string            { return []string{"start", "business"} }
func (configuration) DefaultPlan() string            { return "start" }
func (configuration) RequestsPerMinute(string) int64 { return 0 }
func (configuration) ChannelLimit(string) int64      { return 0 }
func (configuration) KnowledgeLimit(string) int64    { return -1 }

func (configuration) HasTemplates(platforms.Type) bool { return false }

func (configuration) Templates(context.Context, *platforms.Channel, platforms.TemplateQuery) (platforms.TemplatePage, error) {
	return platforms.TemplatePage{}, nil
}

func (configuration) Identify(context.Context, *platforms.Channel) ([]string, error) { return nil, nil }

// fixture is a console over the real operations and accounts, with one organization, in the browser of an operator.
type fixture struct {
	*Console

	db      *store.DB
	book    *billing.Book
	ring    *vault.Ring
	cookies map[string]string
	// secret is that of the second factor.
	secret string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db := storetest.Open(t, store.SQLite, inbox.Kind, billing.Ledger)
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_1", Name: "Tea <House>", Plan: "start", CreatedAt: 1}))
	ring, err := vault.ParseRing("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	f := &fixture{db: db, book: billing.NewBook(db), ring: ring, cookies: map[string]string{}}
	deps := api.Deps{
		Authenticator: identity.NewOperatorKeys(db), Wallets: f.book, Book: f.book, DB: db, Conversations: inbox.New(db, ring), Ring: ring,
		Models: configuration{}, Platforms: configuration{}, Plans: configuration{}, BaseURL: "http://localhost:8080",
		Endpoints: func() []gateway.EndpointState { return nil },
	}
	server := api.NewOperator(deps)
	f.Console = New(Config{
		Operators: handlers.NewOperatorSessions(identity.NewOperators(db, ring, nil), "http://localhost:8080"),
		Ask: func(w http.ResponseWriter, r *http.Request, by *identity.Principal, orgID string, o api.Operation, in endpoint.Values) (any, error) {
			by, err := deps.Operator(r.Context(), *by, orgID)
			if err != nil {
				return nil, err
			}
			return server.Ask(w, r, by, o.Spec().ID, in)
		},
	})
	return f
}

const password = "correct horse battery"

// add adds an operator and opens their one-time link.
func (f *fixture) add(t *testing.T, role string) *httptest.ResponseRecorder {
	t.Helper()
	_, link, err := identity.AddOperator(t.Context(), f.db, "cli:test", role+"@example.com", role)
	require.NoError(t, err)
	return f.send(t, "/console/welcome", url.Values{"token": {link.Token}, "password": {password}})
}

var secret = regexp.MustCompile(`<code id="secret">(\w+)</code>`)

// signedIn is newFixture for an operator with a role and a fresh second factor.
func signedIn(t *testing.T, role string) *fixture {
	t.Helper()
	f := newFixture(t)
	require.Equal(t, http.StatusSeeOther, f.add(t, role).Code)
	f.secret = secret.FindStringSubmatch(f.opens(t, "/console/second-factor"))[1]
	w := f.send(t, "/console/second-factor", url.Values{"secret": {f.secret}, "code": {f.code(t, 0)}})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return f
}

// code returns the code of the second factor, some steps of 30 s from now.
func (f *fixture) code(t *testing.T, steps int) string {
	t.Helper()
	code, err := totp.GenerateCode(f.secret, time.Now().Add(time.Duration(30*steps)*time.Second))
	require.NoError(t, err)
	return code
}

// ages makes the last check of the second factor older.
func (f *fixture) ages(t *testing.T, by time.Duration) {
	t.Helper()
	storetest.Fill(t, f.db, fmt.Sprintf(`UPDATE operator_sessions SET second_factor_at = second_factor_at - %d`, by.Milliseconds()))
}

// send sends a request as a browser does. A nil form is a GET.
func (f *fixture) send(t *testing.T, path string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+path, http.NoBody)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, "http://localhost:8080"+path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range f.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		f.cookies[cookie.Name] = cookie.Value
		if cookie.MaxAge < 0 {
			delete(f.cookies, cookie.Name)
		}
	}
	return w
}

// opens returns a page.
func (f *fixture) opens(t *testing.T, path string) string {
	t.Helper()
	w := f.send(t, path, nil)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	return w.Body.String()
}

// moves sends a form that leads to another page, and opens that.
func (f *fixture) moves(t *testing.T, path string, form url.Values) string {
	t.Helper()
	w := f.send(t, path, form)
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	return f.opens(t, w.Header().Get("Location"))
}

// The way in: the link, the enrolment with its recovery codes, the password, the page that was asked for; and out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.send(t, "/console/queue", nil)
	require.Equal(t, "/console/sign-in?next=%2Fconsole%2Fqueue", w.Header().Get("Location"))
	require.Equal(t, "/console/second-factor", f.add(t, "viewer").Header().Get("Location"))
	require.Contains(t, f.cookies, "svc_console")
	page := f.opens(t, "/console/second-factor")
	require.Contains(t, page, `src="data:image/png;base64,`)
	require.NotContains(t, page, "/console/organizations", "without the second factor there is nothing to go to")
	w = f.send(t, "/console/organizations", nil)
	require.Equal(t, "/console/second-factor?next=%2Fconsole%2Forganizations", w.Header().Get("Location"))

	f.secret = secret.FindStringSubmatch(page)[1]
	w = f.send(t, "/console/second-factor?next=/console/queue", url.Values{"code": {"000000"}, "secret": {f.secret}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), f.secret, "the same secret again")
	w = f.send(t, "/console/second-factor?next=/console/queue", url.Values{"code": {f.code(t, -1)}, "secret": {f.secret}})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Contains(t, w.Body.String(), `id="recovery-codes"`)
	require.Contains(t, w.Body.String(), `href="/console/queue"`)
	require.NotContains(t, f.opens(t, "/console/second-factor"), `id="recovery-codes"`, "recovery codes are shown once")

	f.ages(t, identity.SecondFactorLifetime)
	w = f.send(t, "/console/queue", nil)
	require.Equal(t, "/console/second-factor?next=%2Fconsole%2Fqueue", w.Header().Get("Location"), "after 8 hours it is asked for again")
	w = f.send(t, "/console/second-factor?next=https://evil.example", url.Values{"code": {f.code(t, 0)}})
	require.Equal(t, "/console", w.Header().Get("Location"), w.Body)
	require.Contains(t, f.moves(t, "/console/sign-out", url.Values{}), "You are signed out.")
	require.Equal(t, http.StatusSeeOther, f.send(t, "/console", nil).Code)

	w = f.send(t, "/console/sign-in?next=/console/queue", url.Values{"email": {"viewer@example.com"}, "password": {"wrong horse battery"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Contains(t, w.Body.String(), `value="viewer@example.com"`)
	require.NotContains(t, w.Body.String(), "wrong horse")
	w = f.send(t, "/console/sign-in?next=/console/queue", url.Values{"email": {"viewer@example.com"}, "password": {password}})
	require.Equal(t, "/console/second-factor?next=%2Fconsole%2Fqueue", w.Header().Get("Location"))
}

// Forms are charged to the memory of all bodies: a stranger's to the address, an operator's to the operator.
func TestFormsAreCharged(t *testing.T) {
	t.Parallel()
	f := signedIn(t, "administrator")
	form := url.Values{"reason": {strings.Repeat("a", 10_000)}}
	for path, limit := range map[string]int64{"/console/sign-in": 8 * 70_000, "/console/organizations/org_1/suspend": 4 * 70_000} {
		f.Bodies = handlers.NewByteBudget(limit) // 70,000 bytes, of which a page takes 65,536
		w := f.send(t, path, form)
		require.Contains(t, []int{http.StatusTooManyRequests, http.StatusInternalServerError}, w.Code, w.Body)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
		require.Zero(t, f.Bodies.Used(), "given back")
	}
	f.Bodies = nil
	require.Contains(t, f.opens(t, "/console/organizations/org_1"), "Active")
}

// The colours of pages are each operator's own choice.
func TestColours(t *testing.T) {
	t.Parallel()
	f := signedIn(t, "viewer")
	require.Contains(t, f.opens(t, "/console"), `<html lang="en">`)
	for sent, want := range map[string]string{"dark": `<html lang="en" data-scheme="dark">`, "light": `<html lang="en" data-scheme="light">`, "blue": `<html lang="en">`} {
		require.Contains(t, f.moves(t, "/console/second-factor/colours", url.Values{"scheme": {sent}}), "Saved.")
		require.Contains(t, f.opens(t, "/console"), want)
	}
}

// A request of another site changes nothing.
func TestAnotherSitesForm(t *testing.T) {
	t.Parallel()
	f := signedIn(t, "administrator")
	r := httptest.NewRequest(http.MethodPost, "http://localhost:8080/console/organizations/org_1/suspend", strings.NewReader("reason=x"))
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, f.opens(t, "/console/organizations/org_1"), "Active")
}

var forms = regexp.MustCompile(`<form id="([a-z-]+)`)

// Each role has the pages, and the forms that it may send; other forms are refused when they are sent all the same.
func TestRights(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]struct {
		forms   string
		suspend int
		credit  int
		become  int // make a key, or a person's link
	}{
		"viewer":  {"", http.StatusForbidden, http.StatusForbidden, http.StatusForbidden},
		"support": {"plan-set organization-suspend", http.StatusSeeOther, http.StatusForbidden, http.StatusForbidden},
		"administrator": {
			"credit take plan-set organization-suspend key-create member-invite", http.StatusSeeOther, http.StatusSeeOther, http.StatusOK,
		},
	} {
		f := signedIn(t, role)
		for _, p := range pages() {
			if p.Template != "" && !p.Public {
				page := f.opens(t, strings.Replace(p.Path, "{id}", "org_1", 1))
				require.NotContains(t, page, "<House>")
			}
		}
		var seen []string
		for _, tab := range []string{"", "/keys", "/people"} {
			for _, match := range forms.FindAllStringSubmatch(f.opens(t, "/console/organizations/org_1"+tab), -1) {
				if match[1] != "sign-out" {
					seen = append(seen, match[1])
				}
			}
		}
		require.Equal(t, want.forms, strings.Join(seen, " "), role)
		credit := url.Values{"amountMicros": {"5"}, "reference": {"BANK 1"}}
		require.Equal(t, want.credit, f.send(t, "/console/organizations/org_1/credit-confirmed", credit).Code, role)
		for tab, form := range map[string]url.Values{
			"/keys": {"environment": {"live"}, "scopes": {"models:read"}}, "/people": {"email": {"mai@example.com"}, "role": {"owner"}},
		} {
			require.Equal(t, want.become, f.send(t, "/console/organizations/org_1"+tab, form).Code, role+tab)
		}
		require.Equal(t, want.suspend, f.send(t, "/console/organizations/org_1/suspend", url.Values{"reason": {"card fraud"}}).Code, role)
	}
}

// TestCallsByKey: the calls of an organization can be filtered, and the form keeps the filter.
func TestCallsByKey(t *testing.T) {
	t.Parallel()
	f := signedIn(t, "viewer")
	for id, key := range map[string]string{"call_a": "key_a", "call_b": "key_b"} {
		_, err := f.book.Settle(t.Context(), billing.Settlement{Call: billing.Call{
			ID: id, KeyID: key, Model: "echo/a", Provider: "echo", UsageSource: billing.UsageProvider, Outcome: "completed",
			Wallet: billing.WalletID{OrgID: "org_1", Env: store.Live},
		}})
		require.NoError(t, err)
	}
	page := f.opens(t, "/console/organizations/org_1/calls?keyId=key_a&from=2026-01-01&outcome=completed")
	require.Contains(t, page, `data-id="call_a"`)
	require.NotContains(t, page, `data-id="call_b"`)
	require.Contains(t, page, `value="key_a"`)
	require.Contains(t, f.opens(t, "/console/organizations/org_1/calls?model=echo/b"), "There is none like that.")
}

var value = regexp.MustCompile(`id="balance-(\w+)" data-micros="(-?\d+)"`)

// Money moves in two steps, the first of which shows the balance before and after. The second needs a code when the last is 10 minutes old. A
// reference moves money once, an undo names its credit, and no wallet goes below zero.
func TestMoney(t *testing.T) {
	t.Parallel()
	f := signedIn(t, "administrator")
	const here = "/console/organizations/org_1"
	wallet := billing.WalletID{OrgID: "org_1", Env: store.Live}
	balance := func() int64 {
		now, err := f.book.Wallet(t.Context(), wallet)
		require.NoError(t, err)
		return now.BalanceMicros
	}
	checks := func(w *httptest.ResponseRecorder, now, change, after string) {
		t.Helper()
		require.Equal(t, [][]string{{"now", now}, {"change", change}, {"after", after}}, func() (all [][]string) {
			for _, match := range value.FindAllStringSubmatch(w.Body.String(), -1) {
				all = append(all, match[1:])
			}
			return all
		}(), w.Body)
	}
	credit := url.Values{"amountMicros": {"5.50"}, "reference": {"BANK 1"}}
	w := f.send(t, here+"/credit", url.Values{"amountMicros": {"-1"}, "reference": {"BANK 1"}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), `id="credit-amountMicros-error"`)
	w = f.send(t, here+"/credit", url.Values{"amountMicros": {"5.50"}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), `id="credit-reference-error"`)
	checks(f.send(t, here+"/credit", credit), "0", "5500000", "5500000")
	require.Zero(t, balance())

	f.ages(t, identity.MoneyFactorLifetime)
	w = f.send(t, here+"/credit", credit)
	require.Contains(t, w.Body.String(), `id="credit-confirm-code"`)
	for _, code := range []string{"", "000000"} {
		credit.Set("code", code)
		w = f.send(t, here+"/credit-confirmed", credit)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), `id="credit-confirm-code-error"`)
		require.Contains(t, w.Body.String(), `value="BANK 1"`)
	}
	require.Zero(t, balance())
	credit.Set("code", f.code(t, 1))
	require.Contains(t, f.moves(t, here+"/credit-confirmed", credit), "The wallet has the credit.")
	f.moves(t, here+"/credit-confirmed", credit)
	require.EqualValues(t, 5_500_000, balance(), "the same reference once")
	credit.Set("amountMicros", "6")
	require.Equal(t, http.StatusConflict, f.send(t, here+"/credit-confirmed", credit).Code)

	take := url.Values{"amountMicros": {"6"}, "reference": {"fix 1"}, "reason": {"wrong"}}
	w = f.send(t, here+"/take", take)
	checks(w, "5500000", "-6000000", "-500000")
	require.Contains(t, w.Body.String(), "never goes below zero")
	require.Equal(t, http.StatusPaymentRequired, f.send(t, here+"/take-confirmed", take).Code)
	require.EqualValues(t, 5_500_000, balance())

	page := f.opens(t, here+"/ledger")
	undo := url.Values{}
	for _, match := range regexp.MustCompile(`name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		undo.Set(match[1], match[2])
	}
	checks(f.send(t, here+"/ledger/undo", undo), "5500000", "-5500000", "0")
	require.Contains(t, f.moves(t, here+"/ledger/undo-confirmed", undo), "Undo of BANK 1")
	require.Zero(t, balance())
}
