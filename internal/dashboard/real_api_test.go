package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// oneModel is a configuration with one model and no limits, where no platform answers.
type oneModel struct{}

func (oneModel) Models() []gateway.Model { return []gateway.Model{{ID: "echo/a", DisplayName: "Echo"}} }

func (m oneModel) Model(id string) (*gateway.Model, bool) {
	model := m.Models()[0]
	return &model, id == model.ID
}

func (oneModel) ChannelLimit(string) int64 { return 0 }

func (oneModel) RequestsPerMinute(string) int64 { return 0 }

func (oneModel) PlanNames() []string { return nil }
func (oneModel) DefaultPlan() string { return "" }

func (oneModel) KnowledgeLimit(string) int64 { return -1 }

func (oneModel) HasTemplates(platforms.Type) bool { return false }

func (oneModel) Templates(context.Context, *platforms.Channel, platforms.TemplateQuery) (platforms.TemplatePage, error) {
	return platforms.TemplatePage{}, errors.New("no templates")
}

func (oneModel) Identify(context.Context, *platforms.Channel) ([]string, error) {
	return nil, errors.New("no platform answers")
}

// overRealAPI returns a dashboard over the real API, and its database with one organization.
func overRealAPI(t *testing.T) (*Dashboard, *store.DB) {
	t.Helper()
	db := storetest.Open(t, store.SQLite, inbox.Kind, billing.Ledger)
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_1", Name: "Shop", Plan: "free", CreatedAt: 1}))
	ring, err := vault.ParseRing("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	require.NoError(t, err)
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	server := api.New(api.Deps{
		Catalog:       catalog,
		Authenticator: identity.NewAuthenticator(db.APIKeys), Wallets: billing.NewBook(db), Book: billing.NewBook(db), DB: db, Conversations: inbox.New(db, ring), Ring: ring,
		Models: oneModel{}, Platforms: oneModel{}, Plans: oneModel{}, Providers: []string{"acme"}, BaseURL: "http://localhost:8080",
	})
	return New(Config{
		Person: server.Person,
		Ask: func(w http.ResponseWriter, r *http.Request, person *identity.Principal, o api.Operation, in endpoint.Values) (any, error) {
			return server.Ask(w, r, person, o.Spec().ID, in)
		},
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := server.Serve(w, r); err != nil {
				handlers.WriteError(w, r, err, "")
			}
		}),
		BaseURL: "http://localhost:8080", Providers: []string{"acme"}, ChannelTypes: catalog.Declared(),
	}), db
}

// browser keeps the cookies of a person, as it must for http://localhost:8080.
type browser struct {
	*Dashboard

	cookies map[string]string
}

func (b *browser) ask(t *testing.T, method, path string, typed url.Values) (status int, location, page string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://localhost:8080"+path, strings.NewReader(typed.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		b.cookies[cookie.Name] = cookie.Value
		if cookie.MaxAge < 0 {
			delete(b.cookies, cookie.Name)
		}
	}
	return w.Code, w.Header().Get("Location"), w.Body.String()
}

func (b *browser) opens(t *testing.T, path string) string {
	t.Helper()
	status, _, page := b.ask(t, http.MethodGet, path, nil)
	require.Equal(t, http.StatusOK, status, "%s: %s", path, page)
	return page
}

// A person's way through the real API: the link, a key, a colleague, the way out.
func TestOverTheRealAPI(t *testing.T) {
	t.Parallel()
	dashboard, db := overRealAPI(t)
	b := &browser{dashboard, make(map[string]string)}
	_, link, err := identity.NewUsers(db).Invite(t.Context(), identity.Authority{Actor: "test", Role: identity.Owner}, "org_1", "lan@shop.example", identity.Owner)
	require.NoError(t, err)

	_, location, _ := b.ask(t, http.MethodGet, "/dashboard/keys", nil)
	require.Equal(t, "/dashboard/login?next=%2Fdashboard%2Fkeys", location)
	status, _, page := b.ask(t, http.MethodPost, "/dashboard/welcome", url.Values{"token": {link.Token}, "password": {"short"}})
	require.Equal(t, http.StatusBadRequest, status)
	element(t, page, "welcome-password-error")
	holds(t, page, "welcome-token", link.Token)
	status, location, _ = b.ask(t, http.MethodPost, "/dashboard/welcome", url.Values{"token": {link.Token}, "password": {"correct horse battery"}})
	require.Equal(t, http.StatusSeeOther, status)
	require.Equal(t, "/dashboard", location)
	require.Len(t, b.cookies, 2, "the session's and the device's")

	for _, p := range pages(nil) {
		if p.Template != "" && !strings.Contains(p.Path, "{") {
			b.opens(t, p.Path)
		}
	}
	require.Contains(t, b.opens(t, "/dashboard"), "First steps")

	wrong := url.Values{"name": {"Shop"}, "environment": {"live"}, "scopes": {"models:read", "wallet:read"}, "expiresInDays": {"soon"}}
	status, _, page = b.ask(t, http.MethodPost, "/dashboard/keys", wrong)
	require.Equal(t, http.StatusBadRequest, status)
	element(t, page, "key-create-expiresInDays-error")
	holds(t, page, "key-create-expiresInDays", "soon")
	holds(t, page, "key-create-name", "Shop")
	require.Equal(t, 2, strings.Count(page, " checked"), "what was chosen is kept")
	wrong.Set("expiresInDays", "30")
	status, _, page = b.ask(t, http.MethodPost, "/dashboard/keys", wrong)
	require.Equal(t, http.StatusOK, status, page)
	require.Regexp(t, `<code id="new-key">ck_live_[A-Za-z0-9]+</code>`, page)
	status, _, page = b.ask(t, http.MethodPost, "/dashboard/keys", wrong)
	require.Equal(t, http.StatusConflict, status)
	element(t, page, "key-create-error")
	id := regexp.MustCompile(`key-revoke-(key_[a-z0-9]+)"`).FindStringSubmatch(page)[1]
	_, location, _ = b.ask(t, http.MethodPost, "/dashboard/keys/revoke", url.Values{"id": {id}})
	require.Contains(t, b.opens(t, location), "Revoked")

	for path, form := range map[string]url.Values{
		"/dashboard/members":       {"email": {"nobody at all"}, "role": {"member"}},
		"/dashboard/organization":  {"retentionDays": {"3"}},
		"/dashboard/provider-keys": {"provider": {"acme"}, "key": {""}},
	} {
		status, _, page = b.ask(t, http.MethodPost, path, form)
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Contains(t, page, `class="error"`, path)
	}
	_, location, _ = b.ask(t, http.MethodPost, "/dashboard/provider-keys", url.Values{"provider": {"acme"}, "key": {"sk-0123456789abcdef"}})
	require.NotContains(t, b.opens(t, location), "sk-0123456789")
	_, _, page = b.ask(t, http.MethodPost, "/dashboard/members", url.Values{"email": {"mai@shop.example"}, "role": {"member"}})
	colleague := regexp.MustCompile(`welcome#([^<]+)</code>`).FindStringSubmatch(page)[1]
	mai := &browser{dashboard, make(map[string]string)}
	status, _, page = mai.ask(t, http.MethodPost, "/dashboard/welcome", url.Values{"token": {colleague}, "password": {"another long password"}})
	require.Equal(t, http.StatusSeeOther, status, page)
	status, _, page = mai.ask(t, http.MethodGet, "/dashboard/keys", nil)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, page, "This needs the role administrator.")
	require.Contains(t, b.opens(t, "/dashboard/audit"), "lan@shop.example")

	_, location, _ = b.ask(t, http.MethodPost, "/dashboard/logout", nil)
	require.Equal(t, "/dashboard/login?done=logout", location)
	require.Len(t, b.cookies, 1, "the device is known")
	status, _, page = b.ask(t, http.MethodPost, "/dashboard/login", url.Values{"email": {"lan@shop.example"}, "password": {"wrong horse battery"}})
	require.Equal(t, http.StatusUnauthorized, status)
	holds(t, page, "login-email", "lan@shop.example")
	_, location, _ = b.ask(t, http.MethodPost, "/dashboard/login?next=/dashboard/wallet", url.Values{"email": {"lan@shop.example"}, "password": {"correct horse battery"}})
	require.Equal(t, "/dashboard/wallet", location)
	b.opens(t, location)
}

// signedIn returns the browser of an owner.
func signedIn(t *testing.T, dashboard *Dashboard, db *store.DB) *browser {
	t.Helper()
	b := &browser{dashboard, make(map[string]string)}
	_, link, err := identity.NewUsers(db).Invite(t.Context(), identity.Authority{Actor: "test", Role: identity.Owner}, "org_1", "lan@shop.example", identity.Owner)
	require.NoError(t, err)
	status, _, page := b.ask(t, http.MethodPost, "/dashboard/welcome", url.Values{"token": {link.Token}, "password": {"correct horse battery"}})
	require.Equal(t, http.StatusSeeOther, status, page)
	return b
}

// addAgents adds agents with 99,000 control characters, which JSON escapes to 6 bytes each, as instructions.
func addAgents(t *testing.T, db *store.DB, count int) (last string) {
	t.Helper()
	for i := range count {
		last = store.NewID("agt")
		require.NoError(t, db.Agents.Create(t.Context(), "test", store.Agent{
			ID: last, OrgID: "org_1", Name: "Agent " + strconv.Itoa(i), Model: "echo/a", Instructions: strings.Repeat("\x01", 99_000),
		}))
	}
	return last
}

// A member can't lock the others out of the lists by what the agents are told.
func TestPagesOfManyLongInstructions(t *testing.T) {
	t.Parallel()
	dashboard, db := overRealAPI(t)
	b := signedIn(t, dashboard, db)
	last := addAgents(t, db, 50)
	require.Contains(t, b.opens(t, "/dashboard/agents"), "Agent 49")
	require.Contains(t, b.opens(t, "/dashboard/channels?type=bot"), "Agent 49")
	status, _, page := b.ask(t, http.MethodPost, "/dashboard/agents/"+last+"/delete", nil)
	require.Equal(t, http.StatusSeeOther, status, page)
}

// Pages that are not read are charged to their organization. Then it is refused, before a form is acted on, and others are served.
func TestPagesAreCharged(t *testing.T) {
	t.Parallel()
	dashboard, db := overRealAPI(t)
	b := signedIn(t, dashboard, db)
	last := addAgents(t, db, 1)
	budget := handlers.NewByteBudget(2 << 20) // 512 KiB for one organization alone
	dashboard.Bodies = budget
	client := handlertest.OpenNoWindow(t, handlertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = "localhost:8080"
		dashboard.ServeHTTP(w, r)
	})))
	var cookies []string
	for name, value := range b.cookies {
		cookies = append(cookies, name+"="+value)
	}
	open := func() string {
		return client.Status(client.Send(http.MethodGet, "/dashboard/agents/"+last, "", "Cookie", strings.Join(cookies, "; ")))
	}
	pages := 0
	for ; open() == "200"; pages++ {
		require.Less(t, pages, 6, "each has 99,000 bytes or more")
	}
	require.GreaterOrEqual(t, pages, 2)
	require.Greater(t, budget.Used(), int64(pages)*99_000)
	status, _, _ := b.ask(t, http.MethodGet, "/dashboard/agents/"+last, nil)
	require.Equal(t, http.StatusTooManyRequests, status)
	room := handlers.NewRoom(budget, handlers.Account{Owner: "org_1"})
	for size := int64(1 << 10); room.Grow(size); size += 1 << 10 { // what is left of the share
		require.Less(t, size, int64(1<<20))
	}
	status, _, page := b.ask(t, http.MethodPost, "/dashboard/agents/"+last+"/delete", nil)
	require.Equal(t, http.StatusTooManyRequests, status, page)
	room.Close()
	stranger := &browser{dashboard, make(map[string]string)}
	require.Contains(t, stranger.opens(t, "/dashboard/login"), "Sign in")

	client.Close()
	require.Eventually(t, func() bool { return budget.Used() == 0 }, 10*time.Second, time.Millisecond)
	b.opens(t, "/dashboard/agents/"+last)
}
