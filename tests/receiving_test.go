package tests

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// connected are the channel types that a platform serves.
var connected = []platforms.Type{
	bot.Type, social.Messenger, social.PhotoDM, social.ChatApp, localchat.Type, marketa.Type, marketb.Type,
}

// groupScopes are those that a business's key has beside the usual ones.
var groupScopes = []string{
	"models:read", "chat:write", "wallet:read", "agents:read", "agents:write", "channels:read", "channels:write",
	"conversations:read", "conversations:write", "event_endpoints:read", "event_endpoints:write",
}

// receiving makes a deployment that receives the platforms' webhooks and sends to the scripted ones.
func (d *deployment) receiving(t testing.TB, platform *platformfake.Server) *deployment {
	t.Helper()
	d.Platform = platform
	var app strings.Builder
	block := func(name string, lines ...string) {
		fmt.Fprintf(&app, "platform %s {\n%s\n}\n", name, strings.Join(lines, "\n"))
	}
	block("bot", "api_base "+platform.URL(bot.Type))
	block("social", "app_secret {env.SOCIAL_APP_SECRET}", "verify_token {env.SOCIAL_VERIFY_TOKEN}", "api_base "+oneSocial(t, platform))
	block("localchat", "app_id "+localchatAppID, "app_secret {env.LOCALCHAT_APP_SECRET}",
		"api_base "+platform.URL(localchat.Type))
	block("market_a", "partner_id "+marketAPartnerID, "partner_key {env.MARKET_A_PARTNER_KEY}", "api_base "+platform.URL(marketa.Type))
	block("market_b", "app_key "+marketBAppKey, "app_secret {env.MARKET_B_APP_SECRET}", "api_base "+platform.URL(marketb.Type))
	app.WriteString("customer_files any\n") // the platform's links to files are of this machine
	d.App += app.String()
	d.env = append(d.env, "SOCIAL_APP_SECRET="+socialAppSecret, "SOCIAL_VERIFY_TOKEN="+socialVerifyToken,
		"LOCALCHAT_APP_SECRET="+localchatAppSecret, "MARKET_A_PARTNER_KEY="+marketAPartnerKey, "MARKET_B_APP_SECRET="+marketBAppSecret)
	for path, platform := range map[string]string{
		"bot/*": "bot", "social": "social", "localchat": "localchat", "market-a": "market_a", "market-b": "market_b",
	} {
		d.Routes += fmt.Sprintf("handle /webhooks/%s {\nsvc_webhook %s\n}\n", path, platform)
	}
	for _, group := range []string{"agents", "channels", "conversations"} {
		d.Routes += fmt.Sprintf("handle /%s* {\nsvc_api\n}\n", group)
	}
	return d
}

// oneSocial serves the three channel types of the social platform under one address, as the platform does. Which one a
// request is for says its token.
func oneSocial(t testing.TB, platform *platformfake.Server) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			for _, kind := range []platforms.Type{social.Messenger, social.PhotoDM, social.ChatApp} {
				if strings.Contains(r.In.Header.Get("Authorization"), "-"+string(kind)+"-") {
					target, err := url.Parse(platform.URL(kind))
					if failOn(t, err) {
						r.SetURL(target)
					}
				}
			}
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as the platform cut it
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Transport:    &http.Transport{DisableKeepAlives: true},
	}
	server := httptest.NewUnstartedServer(proxy)
	server.Config.ErrorLog = proxy.ErrorLog
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// assistantSettings are members of an agent of the API, beside name, model and instructions.
type assistantSettings map[string]any

// business is a customer of the service with an assistant that answers on channels.
type business struct {
	*customer
	product *product
	AgentID string
	// Model is what the provider does for the assistant: every request of it reaches this script.
	Model *script
}

var businesses atomic.Int64

// business makes an organization with credits, a key for all groups, and an assistant whose calls go to model.
func (p *product) business(t testing.TB, micros int64, model *script, settings assistantSettings) *business {
	t.Helper()
	c := p.operator().customer(t, micros)
	c.KeyID, c.Key = c.newKey(t, identity.KeyRequest{Scopes: groupScopes})
	b := &business{customer: c, product: p, Model: model}
	agent := map[string]any{"name": "Mai", "model": modelStd, "instructions": "You are Mai. " + model.Mark}
	maps.Copy(agent, settings)
	b.AgentID = b.post(t, "/agents", agent, 201)["id"].(string)
	return b
}

// line is a channel as its platform sees it.
type line struct {
	Type platforms.Type
	// ID is the channel's, External the platform's name of the account; the bot platform has none.
	ID, External string
	// Secret is that of the bot platform's webhook, Token what the platform is called with.
	Secret, Token string

	baseURL string
	number  int64
}

// line connects a channel of the business as the operator.
func (b *business) line(t testing.TB, kind platforms.Type) *line {
	t.Helper()
	return b.lineTo(t, kind, b.AgentID)
}

// lineTo is line for another assistant, or none.
func (b *business) lineTo(t testing.TB, kind platforms.Type, agentID string) *line {
	t.Helper()
	return b.lineWith(t, kind, agentID, nil)
}

// lineWith is lineTo for a channel with credentials of its own besides the platform's.
func (b *business) lineWith(t testing.TB, kind platforms.Type, agentID string, own platforms.Credentials) *line {
	t.Helper()
	n := businesses.Add(1)
	l := &line{Type: kind, baseURL: b.product.BaseURL, number: n}
	account := fmt.Sprintf("%d", 947_000_000+n)
	credentials := maps.Clone(b.product.Platform.Account(kind, account))
	maps.Copy(credentials, own)
	if kind == bot.Type {
		l.Secret, l.Token = credentials["secretToken"], credentials["botToken"]
	} else {
		l.External, l.Token = account, credentials[platforms.AccessToken]
	}
	in := endpoint.Values{"type": string(kind), "name": fmt.Sprintf("%s %d", kind, n), "credentials": map[string]any{}}
	for name, value := range credentials {
		in["credentials"].(map[string]any)[name] = value
	}
	if l.External != "" {
		in["externalId"] = l.External
	}
	if agentID != "" {
		in["agentId"] = agentID
	}
	l.ID = b.connect(t, in)
	return l
}

// from is a customer of the line, and of no other.
func (l *line) from(customer int) sender {
	return sender{line: l, Customer: fmt.Sprintf("%d%07d", 100+l.number, customer)}
}

// worker is the companion process of a product: it reads the same Caddyfile.
type worker struct {
	process
	product *product
}

// startWorker runs the companion binary beside the product. At the test's end it is stopped before the product.
func (p *product) startWorker() *worker {
	p.t.Helper()
	w := p.prepareWorker()
	w.start()
	return w
}

// prepareWorker is a worker that start may run.
func (p *product) prepareWorker() *worker {
	return &worker{process: process{t: p.t, what: "worker"}, product: p}
}

func (w *worker) start() {
	w.t.Helper()
	binary, err := workerBinary()
	require.NoError(w.t, err)
	w.run(w.product.Dir, w.product.environment(), w.stop, binary, "--config", w.product.configFile())
	w.awaitLog()
}

// awaitLog waits for the first line of the worker's log: from then on it handles signals.
func (w *worker) awaitLog() {
	w.t.Helper()
	w.await("the worker to come up", startWait, func() bool { return w.log.tail(1) != "" })
}

// startInCaddy runs the worker of the server's own binary.
func (w *worker) startInCaddy() {
	w.t.Helper()
	w.run(w.product.Dir, w.product.environment(), w.stop, w.product.program(), "svc-worker", "--config", w.product.configFile())
	w.awaitLog()
}

// stop ends the worker, which must happen in order.
func (w *worker) stop() {
	w.t.Helper()
	if !w.killed {
		w.terminate()
	}
	w.wait()
}

// connectedProduct is what most tests of messages need: a product with its worker, scripted platforms and a model.
type connectedProduct struct {
	*product
	up       *upstream
	platform *platformfake.Server
	worker   *worker
}

// in is the same for a subtest, which may end by itself.
func (c *connectedProduct) in(t *testing.T) *connectedProduct {
	t.Helper()
	p, other := *c.product, *c
	p.t, other.product = t, &p
	return &other
}

// startConnected starts a product and its worker on a fresh store.
func startConnected(t *testing.T, engine store.Engine) *connectedProduct {
	t.Helper()
	c := prepareConnected(t, engine)
	c.worker = c.startWorker()
	return c
}

// prepareConnected is startConnected without the worker.
func prepareConnected(t *testing.T, engine store.Engine) *connectedProduct {
	t.Helper()
	return prepareConnectedWith(t, engine, func(*deployment) {})
}

// prepareConnectedWith is prepareConnected with a change to the deployment.
func prepareConnectedWith(t *testing.T, engine store.Engine, change func(*deployment)) *connectedProduct {
	t.Helper()
	c := &connectedProduct{up: startUpstream(t), platform: platformfake.Start(t)}
	d := deploy(t, engine, c.up).receiving(t, c.platform)
	change(d)
	c.product = startProduct(t, d)
	return c
}
