package api

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// apiNow is the time of a test's clock.
func apiNow() time.Time { return time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC) }

// fixture is an API over a database with two organizations. The keys are "owner" and "stranger", with all scopes, of org_1
// and org_2; "none" without scopes, "test" of the test environment and "suspended", all three of org_1. The login sessions (see
// [request]) are "user:member", "user:administrator" and "user:owner" of org_1, "user:stranger", an owner, of org_2, and
// "user:suspended", an owner of a suspended organization.
type fixture struct {
	*endpoint.Server
	*Deps

	platform *fakePlatform
	inbox    *fakeInbox
	plan     int64      // how many channels the plan allows
	now      *time.Time // the database's clock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	// Its clock stands still, so that no window of a minute ends while a slow test counts in it.
	now := time.Now()
	db := storetest.OpenAt(t, storetest.Migrated(t, store.SQLite), store.Options{
		Kinds: []store.Kind{billing.Ledger}, Clock: func() time.Time { return now },
	})
	for _, id := range []string{"org_1", "org_2"} {
		require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: id, Name: id, Plan: "free", CreatedAt: 1}))
	}
	require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{
		ID: "org_3", Name: "org_3", Plan: "free", CreatedAt: 1, SuspendedAt: sql.NullInt64{Int64: 1, Valid: true},
	}))
	signIn(t, db, "org_1", "member", identity.Member)
	signIn(t, db, "org_1", "administrator", identity.Administrator)
	signIn(t, db, "org_1", "owner", identity.Owner)
	signIn(t, db, "org_2", "stranger", identity.Owner)
	signIn(t, db, "org_3", "suspended", identity.Owner)
	keys := handlertest.Keyring{"none": handlertest.Someone(), "owner": handlertest.Someone(identity.AllScopes()...)}
	stranger := keys["owner"]
	stranger.OrgID, stranger.KeyID = "org_2", "key_2"
	keys["stranger"] = stranger
	test := keys["owner"]
	test.Env = store.Test
	keys["test"] = test
	suspended := keys["owner"]
	suspended.Suspended = true
	keys["suspended"] = suspended
	some := keys["owner"]
	some.HasOrgModels = true
	keys["some models"] = some

	o := &fixture{platform: &fakePlatform{}, inbox: &fakeInbox{}, now: &now}
	o.Deps = &Deps{
		Authenticator: keys, Wallets: billing.NewBook(db), Book: billing.NewBook(db), DB: db, Conversations: o.inbox, Ring: handlertest.Ring(t),
		Models: modelSet{"echo/a": {ID: "echo/a"}, "echo/b": {ID: "echo/b"}}, Platforms: o.platform, Catalog: handlertest.BuiltinPlatforms(t).Catalog, Plans: o,
		Providers: []string{"echo"}, BaseURL: "https://svc.example", Now: apiNow,
	}
	o.Server = serve(o.Deps)
	return o
}

// signIn creates the user usr_<name> with a session whose token is sessionToken(name).
func signIn(t *testing.T, db *store.DB, orgID, name string, role identity.Role) {
	t.Helper()
	user := store.User{ID: "usr_" + name, OrgID: orgID, Email: name + "@example.com", Role: string(role)}
	link := store.UserLink{Hash: sha256.Sum256([]byte(name)), Purpose: "invite", Lifetime: 60_000}
	require.NoError(t, db.Users.Invite(t.Context(), "test", user, link))
	session := store.NewSession{Hash: sha256.Sum256([]byte(sessionToken(name))), Lifetime: 60_000}
	require.NoError(t, db.UserLinks.Use(t.Context(), link.Hash, noPassword, "", session))
}

// noPassword is a hash that no password has.
const noPassword = "$argon2id$v=19$m=8,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

func sessionToken(name string) string {
	hash := sha256.Sum256([]byte("session of " + name))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

func (o *fixture) ChannelLimit(string) int64    { return o.plan }
func (*fixture) RequestsPerMinute(string) int64 { return 60 }
func (*fixture) PlanNames() []string            { return []string{"free", "pro"} }
func (*fixture) DefaultPlan() string            { return "free" }

type modelSet map[string]*gateway.Model

func (s modelSet) Models() (models []gateway.Model) {
	for _, id := range slices.Sorted(maps.Keys(s)) {
		models = append(models, *s[id])
	}
	return models
}

func (s modelSet) Model(id string) (*gateway.Model, bool) {
	model, ok := s[id]
	return model, ok
}

// fakePlatform identifies the account of a token.
type fakePlatform struct {
	ids   map[string][]string // by access token
	calls int
}

func (p *fakePlatform) Identify(ctx context.Context, channel *platforms.Channel) ([]string, error) {
	p.calls++
	if _, bounded := ctx.Deadline(); !bounded {
		return nil, errors.New("a question without a deadline")
	}
	ids, known := p.ids[channel.Credentials[platforms.AccessToken]]
	if !known {
		return nil, errors.New("401")
	}
	return ids, nil
}

// fakeInbox keeps conversations of any organization.
type fakeInbox struct {
	conversations []inbox.Conversation
	messages      []inbox.Message
	drafts        []inbox.Draft
	sent          []string
	actor         string
	fail          error
}

func (f *fakeInbox) LongWaits(context.Context, int64) ([]inbox.LongWait, error) {
	return []inbox.LongWait{{OrgID: "org_1", Name: "One", Customers: 2}, {OrgID: "org_2", Name: "Two", Customers: 1}}, f.fail
}

func (f *fakeInbox) Conversations(_ context.Context, orgID string, filter inbox.ConversationFilter, page store.Page) (found []inbox.Conversation, _ error) {
	for _, c := range f.conversations {
		if c.OrgID == orgID && c.ID > page.After && len(found) < page.Rows() &&
			(filter.ChannelID == "" || filter.ChannelID == c.ChannelID) && (filter.State == "" || filter.State == c.State) &&
			(!filter.Attention || c.Attention != "") && (!filter.Waiting || c.Attention != "" || c.State == inbox.StateHuman && c.UnansweredSince > 0) && (filter.Code == "" || filter.Code == c.Attention) {
			found = append(found, c)
		}
	}
	if filter.Recent {
		slices.Reverse(found)
	}
	return found, f.fail
}

func (f *fakeInbox) WaitingForPeople(_ context.Context, orgID string) (count int, _ error) {
	for _, c := range f.conversations {
		if c.OrgID == orgID && (c.Attention != "" || c.State == inbox.StateHuman && c.UnansweredSince > 0) {
			count++
		}
	}
	return count, f.fail
}

func (f *fakeInbox) find(orgID, id string) (*inbox.Conversation, error) {
	for i := range f.conversations {
		if c := &f.conversations[i]; c.ID == id && c.OrgID == orgID {
			return c, f.fail
		}
	}
	return &inbox.Conversation{}, store.ErrNotFound
}

func (f *fakeInbox) Conversation(_ context.Context, orgID, id string) (inbox.Conversation, error) {
	c, err := f.find(orgID, id)
	return *c, err
}

func (f *fakeInbox) Messages(_ context.Context, orgID, id string, page store.Page) (found []inbox.Message, _ error) {
	if _, err := f.find(orgID, id); err != nil {
		return nil, err
	}
	for _, m := range f.messages {
		if m.ID > page.After && len(found) < page.Rows() {
			found = append(found, m)
		}
	}
	return found, f.fail
}

func (f *fakeInbox) LatestMessages(ctx context.Context, orgID, id string, page store.Page) ([]inbox.Message, error) {
	found, err := f.Messages(ctx, orgID, id, page)
	slices.Reverse(found)
	return found, err
}

func (f *fakeInbox) SendAsHuman(_ context.Context, actor, orgID, id string, parts []string) (sent []inbox.Message, _ error) {
	if _, err := f.find(orgID, id); err != nil {
		return nil, err
	}
	f.actor = actor
	for i, part := range parts {
		f.sent = append(f.sent, part)
		sent = append(sent, inbox.Message{
			ID: "msg_" + string(rune('1'+i)), Author: inbox.AuthorHuman, Kind: inbox.KindText, Text: part,
			State: inbox.OutboundPending, At: apiNow().UnixMilli(),
		})
	}
	return sent, nil
}

func (f *fakeInbox) setState(actor, orgID, id, state string) error {
	c, err := f.find(orgID, id)
	if err == nil {
		c.State, f.actor = state, actor
	}
	return err
}

func (f *fakeInbox) HandOver(_ context.Context, actor, orgID, id string) error {
	return f.setState(actor, orgID, id, inbox.StateHuman)
}

func (f *fakeInbox) HandBack(_ context.Context, actor, orgID, id string) error {
	return f.setState(actor, orgID, id, inbox.StateAssistant)
}

func (f *fakeInbox) TurnPlaces(_ context.Context, orgID string, turnIDs []string) (map[string]inbox.TurnPlace, error) {
	places := map[string]inbox.TurnPlace{}
	for _, id := range turnIDs {
		if orgID == "org_1" && id == "trn_1" {
			places[id] = inbox.TurnPlace{AgentID: "agt_1", ConversationID: "cnv_1"}
		}
	}
	return places, f.fail
}

func (f *fakeInbox) DeleteConversation(_ context.Context, actor, orgID, id string) error {
	return f.setState(actor, orgID, id, "deleted")
}

// request is a request with a key and, unless it is empty, a body. The key "user:<name>" is the session of that user instead,
// and "" is neither.
func request(method, path, key, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if name, ok := strings.CutPrefix(key, "user:"); ok {
		r.AddCookie(&http.Cookie{Name: handlers.SessionCookie, Value: sessionToken(name)})
	} else if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	return r
}

func keyed(method, path, key string) *http.Request { return request(method, path, key, "") }

// ask checks the status and the headers of an answer, and returns its JSON.
func (o *fixture) ask(t *testing.T, status int, method, path, key, body string) map[string]any {
	t.Helper()
	w := handlertest.Served(o.Serve, request(method, path, key, body))
	require.Equal(t, status, w.Code, w.Body.String())
	require.NotEmpty(t, w.Header().Get("X-Request-Id"))
	if status == http.StatusNoContent {
		require.Empty(t, w.Body.String())
		return nil
	}
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	var object map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &object))
	require.NotContains(t, object, "$schema")
	return object
}

// refused checks code and field of a refusal.
func (o *fixture) refused(t *testing.T, code errcode.Code, field, method, path, key, body string) handlertest.Answer {
	t.Helper()
	a := handlertest.RefusedWith(t, code, o.Serve, request(method, path, key, body))
	if field == "" {
		require.NotContains(t, a.Fields, "field", a.Text)
	} else {
		require.Equal(t, field, a.Fields["field"], a.Text)
	}
	return a
}

func TestWallet(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	require.Equal(t, `{"environment":"live","balanceMicros":"0","heldMicros":"0"}`, handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet", "owner")))
	_, err := billing.NewBook(o.DB).Credit(t.Context(), "test", billing.WalletID{OrgID: "org_1", Env: store.Live}, 5_000_000, "ref")
	require.NoError(t, err)
	require.Equal(t, `{"environment":"live","balanceMicros":"5000000","heldMicros":"0"}`, handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet", "owner")))
	require.Equal(t, `{"environment":"test","balanceMicros":"0","heldMicros":"0"}`, handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet?env=live", "test")))

	o.Wallets = handlertest.WalletsFunc(func(_ context.Context, id billing.WalletID) (billing.Wallet, error) {
		if id.OrgID == "org_2" {
			return billing.Wallet{}, errors.New("disk I/O error")
		}
		return billing.Wallet{BalanceMicros: 9_007_199_254_740_993, HeldMicros: 17}, nil
	})
	require.Equal(t, `{"environment":"live","balanceMicros":"9007199254740993","heldMicros":"17"}`,
		handlertest.OkText(t, o.Serve, keyed(http.MethodGet, "/wallet", "owner")))
	require.NotContains(t, handlertest.RefusedWith(t, errcode.InternalError, o.Serve, keyed(http.MethodGet, "/wallet", "stranger")).Text, "disk")
}

func TestUnknownAddressesOfTheAPI(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	for _, r := range []*http.Request{
		keyed(http.MethodPost, "/wallet", "owner"), keyed(http.MethodHead, "/wallet", "owner"), keyed(http.MethodGet, "/wallet/", "owner"),
		keyed(http.MethodGet, "/wallets", "owner"), keyed(http.MethodGet, "/wallet/x", "owner"), keyed(http.MethodGet, "/Wallet", "owner"),
		keyed(http.MethodGet, "//wallet", "owner"), keyed(http.MethodGet, "/agents/../wallet", "owner"), keyed(http.MethodOptions, "/agents", "owner"),
		keyed(http.MethodPut, "/agents/agt_1", "owner"), keyed(http.MethodPatch, "/conversations/cnv_1", "owner"),
		keyed(http.MethodPut, "/conversations", "owner"), keyed(http.MethodGet, "/channels/chn_1/verify", "owner"),
		keyed(http.MethodGet, "/docs", "owner"), keyed(http.MethodGet, "/openapi.json", "owner"), keyed(http.MethodGet, "/schemas/x.json", "owner"),
		handlertest.Get("/nothing"),
	} {
		a := handlertest.RefusedWith(t, errcode.NotFound, o.Serve, r)
		require.Empty(t, a.Header.Get("Location"))
		require.Empty(t, a.Header.Get("Allow"))
	}
}
