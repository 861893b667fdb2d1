package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// gate is a Webhooks with its fake queue, routes and platforms.
type gate struct {
	options map[string]map[string]string
	*Webhooks

	routes   fakeRoutes
	arrivals []inbox.Arrival
	enqueues int
	fail     error // of Enqueue
	logged   bytes.Buffer
}

// fakeRoutes are the existing channels. Routes that were read are remembered, as on PostgreSQL.
type fakeRoutes struct {
	mu         sync.Mutex // of what is remembered, and of reads: deliveries come at the same time
	byID       map[string]store.Route
	remembered map[string]store.Route
	reads      int
	fail       error
}

func (f *fakeRoutes) ByID(_ context.Context, id string) (store.Route, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	route, found := f.byID[id]
	f.learn(id, route, found)
	return route, found, f.fail
}

func (f *fakeRoutes) learn(id string, route store.Route, found bool) {
	if delete(f.remembered, id); found && f.fail == nil && route.State != store.ChannelPending && f.remembered != nil {
		route.Remembered = true
		f.remembered[id] = route
	}
}

func (f *fakeRoutes) RememberedByID(id string) (store.Route, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	route, found := f.remembered[id]
	return route, found
}

func (f *fakeRoutes) RememberedByKeys(keys []store.RouteKey) map[store.RouteKey]*store.Route {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := routesOf(f.remembered, keys)
	for _, key := range keys {
		if found[key] == nil {
			return nil
		}
	}
	return found
}

// routesOf are the routes of keys among channels.
func routesOf(channels map[string]store.Route, keys []store.RouteKey) map[store.RouteKey]*store.Route {
	found := map[store.RouteKey]*store.Route{}
	for _, key := range keys {
		for _, route := range channels {
			if route.Type == key.Type && route.ExternalID == key.ExternalID {
				found[key] = &route
			}
		}
	}
	return found
}

func (f *fakeRoutes) ByKeys(_ context.Context, keys []store.RouteKey) (map[store.RouteKey]*store.Route, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	for _, route := range routesOf(f.remembered, keys) {
		delete(f.remembered, route.ChannelID)
	}
	found := routesOf(f.byID, keys)
	for _, route := range found {
		f.learn(route.ChannelID, *route, true)
	}
	return found, f.fail
}

func (g *gate) Enqueue(_ context.Context, arrivals []inbox.Arrival) error {
	for i := range arrivals {
		route := &arrivals[i].Route
		if now, found := g.routes.byID[route.ChannelID]; route.Remembered && (!found || !route.Same(&now)) {
			return inbox.ErrRouteChanged
		}
		route.Remembered = false
	}
	g.enqueues++
	if g.fail != nil {
		return g.fail
	}
	g.arrivals = append(g.arrivals, arrivals...)
	return nil
}

const (
	testAppSecret  = "app-secret"
	testPartnerKey = "partner-key"
	testAppKey     = "123456"
	testBaseURL    = "https://svc.example"
)

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{routes: fakeRoutes{byID: map[string]store.Route{}, remembered: map[string]store.Route{}}}
	ring := handlertest.Ring(t)
	add := func(id, org string, kind platforms.Type, externalID, state string) {
		g.routes.byID[id] = store.Route{ChannelID: id, OrgID: org, Type: string(kind), ExternalID: externalID, State: state, DebounceMS: 7}
	}
	for id, secret := range map[string]string{"chn_bot1": "secret-1", "chn_bot2": "secret-2", "chn_botpending": "secret-3", "chn_botempty": ""} {
		state := store.ChannelActive
		if id == "chn_botpending" {
			state = store.ChannelPending
		}
		add(id, "org_1", bot.Type, "", state)
		route := g.routes.byID[id]
		route.Credentials = ring.Seal(handlers.Marshal(platforms.Credentials{"secretToken": secret}), vault.ChannelCredentials("org_1", id))
		g.routes.byID[id] = route
	}
	add("chn_botbare", "org_1", bot.Type, "", store.ChannelActive)
	add("chn_page1", "org_1", social.Messenger, "1001", store.ChannelActive)
	add("chn_page2", "org_2", social.Messenger, "1002", store.ChannelNeedsReauth)
	add("chn_page3", "org_3", social.Messenger, "1003", store.ChannelPending)
	add("chn_photo", "org_1", social.PhotoDM, "1001", store.ChannelActive)
	add("chn_chat", "org_1", social.ChatApp, "1555", store.ChannelActive)
	add("chn_local", "org_1", localchat.Type, "3662", store.ChannelActive)
	add("chn_ma", "org_1", marketa.Type, "94704", store.ChannelActive)
	add("chn_mb", "org_1", marketb.Type, "20240305", store.ChannelActive)
	g.options = map[string]map[string]string{
		"bot":       {},
		"social":    {"app_secret": testAppSecret, "verify_token": "hook-token"},
		"localchat": {"app_id": testAppKey, "app_secret": testAppSecret},
		"market_a":  {"partner_key": testPartnerKey},
		"market_b":  {"app_key": testAppKey, "app_secret": testAppSecret},
	}
	g.Webhooks = New(Config{BaseURL: testBaseURL}, &g.routes, g, ring, handlers.NewByteBudget(256<<20), slog.New(slog.NewJSONHandler(&g.logged, nil)))
	g.configure(t)
	return g
}

// configure builds the platforms from the gate's options.
func (g *gate) configure(t *testing.T) {
	t.Helper()
	g.config.Platforms = handlertest.PlatformsOf(t, g.options)
}

func (g *gate) Bot(w http.ResponseWriter, r *http.Request) error { return g.Receiver("bot")(w, r) }
func (g *gate) Social(w http.ResponseWriter, r *http.Request) error {
	return g.Receiver("social")(w, r)
}

func (g *gate) LocalChat(w http.ResponseWriter, r *http.Request) error {
	return g.Receiver("localchat")(w, r)
}

func (g *gate) MarketA(w http.ResponseWriter, r *http.Request) error {
	return g.Receiver("market_a")(w, r)
}

func (g *gate) MarketB(w http.ResponseWriter, r *http.Request) error {
	return g.Receiver("market_b")(w, r)
}

// delivery is one delivery with its signature.
func delivery(path, header, signature, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set(header, signature)
	return r
}

func hmacHex(key string, parts ...string) string {
	mac := hmac.New(sha256.New, []byte(key))
	io.WriteString(mac, strings.Join(parts, ""))
	return hex.EncodeToString(mac.Sum(nil))
}

// platform is one of the five with a way to sign for it.
type platform struct {
	name, path, header string
	serve              func(*gate) handlers.Handler
	sign               func(body string) string
	text               string // a delivery with one text
	want               inbox.Arrival
}

func (p platform) signed(body string) *http.Request {
	return delivery(p.path, p.header, p.sign(body), body)
}

func (p platform) String() string { return p.name }

func everyPlatform() []platform {
	timestampOf := func(body string) string {
		_, after, _ := strings.Cut(body, `"timestamp":`)
		if end := strings.IndexAny(after, "},"); end >= 0 {
			after = after[:end]
		}
		return strings.Trim(strings.TrimSpace(after), `"`)
	}
	return []platform{
		{
			name: "bot", path: "/webhooks/bot/chn_bot1", header: "X-Bot-Api-Secret-Token",
			serve: func(g *gate) handlers.Handler { return g.Bot }, sign: func(string) string { return "secret-1" },
			text: `{"update_id":1,"message":{"message_id":5,"from":{"id":77,"is_bot":false,"first_name":"Lan"},` +
				`"chat":{"id":77,"type":"private"},"date":1763650000,"text":"Chào"}}`,
			want: inbox.Arrival{Route: store.Route{ChannelID: "chn_bot1"}, Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: "77", Address: "77", CustomerName: "Lan", MessageID: "77:5", Text: "Chào", SentAt: 1763650000000,
			}}},
		},
		{
			name: "social", path: "/webhooks/social", header: "X-Hub-Signature-256",
			serve: func(g *gate) handlers.Handler { return g.Social }, sign: func(body string) string { return "sha256=" + hmacHex(testAppSecret, body) },
			text: pageEvent("1001", "m1", "Chào"),
			want: inbox.Arrival{Route: store.Route{ChannelID: "chn_page1"}, Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: "55", Address: "55", MessageID: "m1", Text: "Chào", SentAt: 1763650000100,
			}}},
		},
		{
			name: "localchat", path: "/webhooks/localchat", header: "X-Localchat-Event-Signature",
			serve: func(g *gate) handlers.Handler { return g.LocalChat },
			sign: func(body string) string {
				if !strings.Contains(body, `"timestamp":`) {
					return "mac=" + strings.Repeat("0", 64)
				}
				sum := sha256.Sum256([]byte(testAppKey + body + timestampOf(body) + testAppSecret))
				return "mac=" + hex.EncodeToString(sum[:])
			},
			text: `{"app_id":"255","sender":{"id":"6142"},"recipient":{"id":"3662"},"event_name":"user_send_text",` +
				`"message":{"text":"Chào","msg_id":"cb31"},"timestamp":"1699003881354"}`,
			want: inbox.Arrival{Route: store.Route{ChannelID: "chn_local"}, Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: "6142", Address: "6142", MessageID: "cb31", Text: "Chào", SentAt: 1699003881354,
			}}},
		},
		{
			name: "market_a", path: "/webhooks/market-a", header: "Authorization",
			serve: func(g *gate) handlers.Handler { return g.MarketA },
			sign:  func(body string) string { return hmacHex(testPartnerKey, testBaseURL, "/webhooks/market-a|", body) },
			text: `{"msg_id":"","data":{"type":"message","content":{"message_id":"2302748948493123953","shop_id":165103149,"from_id":165105353,` +
				`"from_user_name":"lan","to_id":9,"message_type":"text","content":{"text":"Chào"},"conversation_id":"7091",` +
				`"created_timestamp":1726044721}},"shop_id":94704,"code":10,"timestamp":1726044722}`,
			want: inbox.Arrival{Route: store.Route{ChannelID: "chn_ma"}, Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: "7091", Address: "165105353", Other: &platforms.OtherIDs{Business: "9"}, Unsure: true, CustomerName: "lan", MessageID: "2302748948493123953", Text: "Chào", SentAt: 1726044721000,
			}}},
		},
		{
			name: "market_b", path: "/webhooks/market-b", header: "Authorization",
			serve: func(g *gate) handlers.Handler { return g.MarketB },
			sign:  func(body string) string { return hmacHex(testAppSecret, testAppKey, body) },
			text: `{"data":{"session_id":"100_2","message_id":"1zYO","content":"{\"txt\":\"Chào\"}","from_account_id":"1891","from_account_type":1,` +
				`"send_time":1596550789323,"template_id":1,"type":1,"process_msg":"","auto_reply":false,"status":0},"seller_id":20240305,"message_type":2}`,
			want: inbox.Arrival{Route: store.Route{ChannelID: "chn_mb"}, Items: []inbox.Item{{
				Kind: platforms.Text, CustomerRef: "100_2", Address: "100_2", MessageID: "100_2:1zYO", Text: "Chào", SentAt: 1596550789323,
			}}},
		},
	}
}

func pageEvent(page, mid, text string) string {
	return `{"object":"page","entry":[` + pageEntry(page, mid, text) + `]}`
}

func pageEntry(page, mid, text string) string {
	return fmt.Sprintf(`{"id":%q,"time":1763650000123,"messaging":[{"sender":{"id":"55"},"recipient":{"id":%q},"timestamp":1763650000100,`+
		`"message":{"mid":%q,"text":%q}}]}`, page, page, mid, text)
}

func acknowledged(t *testing.T, h handlers.Handler, r *http.Request, queued int) {
	t.Helper()
	require.Equal(t, `{"ok":true,"queued":`+strconv.Itoa(queued)+`}`, handlertest.OkText(t, h, r))
}

func each(t *testing.T, test func(t *testing.T, p platform, g *gate)) {
	t.Helper()
	for _, p := range everyPlatform() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p, newGate(t))
		})
	}
}

// countingQueue is safe for concurrent use.
type countingQueue struct {
	mu    sync.Mutex
	items int
}

func (q *countingQueue) Enqueue(_ context.Context, arrivals []inbox.Arrival) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, arrival := range arrivals {
		q.items += len(arrival.Items)
	}
	return nil
}

// frozenRoutes is safe for concurrent use, and remembers nothing.
type frozenRoutes map[string]store.Route

func (f frozenRoutes) ByID(_ context.Context, id string) (store.Route, bool, error) {
	route, found := f[id]
	return route, found, nil
}

func (f frozenRoutes) ByKeys(ctx context.Context, keys []store.RouteKey) (map[store.RouteKey]*store.Route, error) {
	return (&fakeRoutes{byID: f}).ByKeys(ctx, keys)
}

func (frozenRoutes) RememberedByID(string) (store.Route, bool) { return store.Route{}, false }

func (frozenRoutes) RememberedByKeys([]store.RouteKey) map[store.RouteKey]*store.Route { return nil }
