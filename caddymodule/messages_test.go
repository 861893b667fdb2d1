package caddymodule

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

const (
	socialSecret = "social-app-secret"
	verifyToken  = "social-verify-token"
	botSecret    = "bot-secret"
)

// shop is a configuration with webhooks, an echoing model, and a store that several instances can share.
type shop struct {
	t         *testing.T
	path      string
	masterKey config.Secret
	platform  *platformfake.Server
	// In the store of the first instance.
	orgID, channelID string
	credentials      platforms.Credentials
}

func newShop(t *testing.T) *shop {
	t.Helper()
	return &shop{
		t: t, path: filepath.Join(storeFolder(t), "svc.db"), masterKey: secretFile(t, testMasterKey), platform: platformfake.Start(t),
	}
}

// caddyfile has options in the bot's block.
func (s *shop) caddyfile(options string) string {
	return fmt.Sprintf(`{
	svc {
		base_url http://localhost:8080
		store sqlite %s
		master_key %s
		provider echo {
			protocol echo
		}
		model echo/echo-1 {
			context_window 8192
			max_output_tokens 4096
			price_input 1000
			price_output 1000
		}
		platform bot {
			api_base %s/
			%s
		}
		platform social {
			app_secret %s
			verify_token %s
		}
		worker {
			concurrency 2
		}
		timing {
			lease 10s
		}
	}
}
:8080 {
	handle_errors {
		svc_error
	}
	handle /webhooks/bot/* {
		svc_webhook bot
	}
	handle /webhooks/social {
		svc_webhook social
	}
	handle /health/* {
		svc_health
	}
}
`, s.path, s.masterKey, s.platform.URL(bot.Type), options, secretFile(s.t, socialSecret), secretFile(s.t, verifyToken))
}

// start runs the configuration and, the first time, makes an organization with an agent and a bot channel.
func (s *shop) start(options string) *instance {
	s.t.Helper()
	run := provision(s.t, s.caddyfile(options))
	run.start(s.t)
	if s.orgID == "" {
		s.furnish(run.app.runtime.shared)
	}
	return run
}

func (s *shop) furnish(shared *sharedStore) {
	s.t.Helper()
	ctx, db := s.t.Context(), shared.db
	s.orgID, s.channelID = store.NewID("org"), store.NewID("chn")
	require.NoError(s.t, db.Organizations.Create(ctx, "test", store.Organization{ID: s.orgID, Name: "Acme", CreatedAt: time.Now().UnixMilli()}))
	_, err := shared.book.Credit(ctx, "test", billing.WalletID{OrgID: s.orgID, Env: store.Live}, 1_000_000, "r")
	require.NoError(s.t, err)
	agent := store.Agent{ID: store.NewID("agt"), OrgID: s.orgID, Name: "Mai", Model: "echo/echo-1"}
	require.NoError(s.t, db.Agents.Create(ctx, "test", agent))
	s.credentials = s.platform.Account(bot.Type, "4711")
	s.credentials["secretToken"] = botSecret
	text, err := json.Marshal(s.credentials)
	require.NoError(s.t, err)
	ring, err := vault.ParseRing(testMasterKey)
	require.NoError(s.t, err)
	require.NoError(s.t, db.Channels.Create(ctx, "test", store.Channel{
		ID: s.channelID, OrgID: s.orgID, Type: string(bot.Type), Name: "Bot", AgentID: agent.ID, State: store.ChannelActive,
		Credentials: ring.Seal(text, vault.ChannelCredentials(s.orgID, s.channelID)),
	}, 0))
}

// deliver is what the bot platform does when a customer writes; header carries the secret.
func (s *shop) deliver(server *httptest.Server, header string, message int, text string) (*http.Response, string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"update_id":%[1]d,"message":{"message_id":%[1]d,"date":%[2]d,"chat":{"id":5,"type":"private"},`+
		`"from":{"id":5,"is_bot":false,"first_name":"An"},"text":%[3]q}}`, message, time.Now().Unix(), text)
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, server.URL+"/webhooks/bot/"+s.channelID, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set(header, botSecret)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	return resp, string(answer)
}

const botHeader = "X-Bot-Api-Secret-Token"

// requireAccepted checks the acknowledgement of a delivery.
func requireAccepted(t *testing.T, resp *http.Response, body string) {
	t.Helper()
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	require.JSONEq(t, `{"ok":true,"queued":1}`, body)
}

// waiting are the messages of all the shop's conversations.
func (s *shop) waiting(run *instance) []inbox.Message {
	s.t.Helper()
	queue := run.app.runtime.queue
	conversations, err := queue.Conversations(s.t.Context(), s.orgID, inbox.ConversationFilter{}, store.Page{})
	require.NoError(s.t, err)
	var all []inbox.Message
	for _, c := range conversations {
		messages, err := queue.Messages(s.t.Context(), s.orgID, c.ID, store.Page{})
		require.NoError(s.t, err)
		all = append(all, messages...)
	}
	return all
}

func TestWebhooks(t *testing.T) {
	s := newShop(t)
	run := s.start("")
	server := run.server(t, ":8080")

	resp, body := s.deliver(server, botHeader, 1, "Green tea?")
	requireAccepted(t, resp, body)
	resp, body = s.deliver(server, botHeader, 1, "Green tea?")
	requireAccepted(t, resp, body)
	messages := s.waiting(run)
	require.Len(t, messages, 1, "delivered twice, kept once")
	require.Equal(t, "Green tea?", messages[0].Text)

	resp, body = s.deliver(server, "X-Other", 2, "Who?")
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")

	hub := "/webhooks/social?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
	resp, body = ask(t, http.MethodGet, server.URL+hub+verifyToken, nil)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "1158201444", body)
	resp, body = ask(t, http.MethodGet, server.URL+hub+"wrong", nil)
	requireContract(t, resp, body, http.StatusForbidden, "forbidden")
	resp, body = ask(t, http.MethodPost, server.URL+"/webhooks/social", http.Header{"X-Hub-Signature-256": {"sha256=00"}})
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
}

// TestWebhookOptions guarantees that a platform's header and ack reach its handler.
func TestWebhookOptions(t *testing.T) {
	s := newShop(t)
	run := s.start("header X-Other\nack empty")
	server := run.server(t, ":8080")
	resp, body := s.deliver(server, "X-Other", 1, "Green tea?")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Empty(t, body)
	resp, body = s.deliver(server, botHeader, 2, "Green tea?")
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	require.Len(t, s.waiting(run), 1)
}

// TestWebhookFaultsSayWhenToComeBack guarantees that a delivery which could not be taken asks the platform for another.
func TestWebhookFaultsSayWhenToComeBack(t *testing.T) {
	s := newShop(t)
	run := s.start("")
	server := run.server(t, ":8080")
	shared := run.app.runtime.shared
	require.True(t, shared.calls.Close(shared.calls.Entered()), "the process ends")
	resp, body := s.deliver(server, botHeader, 1, "Green tea?")
	requireContract(t, resp, body, http.StatusInternalServerError, "internal_error")
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
}

// TestReloadWithWebhooks guarantees that a reload neither loses a delivery nor takes it twice, whichever configuration's
// server it reaches.
func TestReloadWithWebhooks(t *testing.T) {
	s := newShop(t)
	old := s.start("")
	oldServer := old.server(t, ":8080")
	resp, body := s.deliver(oldServer, botHeader, 1, "Green tea?")
	requireAccepted(t, resp, body)

	reloaded := s.start("header X-Other")
	newServer := reloaded.server(t, ":8080")
	require.Same(t, old.app.runtime.shared, reloaded.app.runtime.shared)
	require.NoError(t, old.app.Stop())
	require.NoError(t, old.app.Cleanup())
	resp, body = s.deliver(oldServer, botHeader, 2, "Or black?")
	requireAccepted(t, resp, body)
	resp, body = s.deliver(newServer, "X-Other", 2, "Or black?")
	requireAccepted(t, resp, body)
	resp, body = s.deliver(newServer, botHeader, 3, "Who?")
	requireContract(t, resp, body, http.StatusUnauthorized, "unauthenticated")
	require.Len(t, s.waiting(reloaded), 2)
}

// worker adds a worker to a configuration and runs it until the test ends.
func (s *shop) worker(grace caddy.Duration) (*instance, *WorkerApp) {
	s.t.Helper()
	adapted, err := adapt(s.caddyfile(""))
	require.NoError(s.t, err)
	var config caddy.Config
	require.NoError(s.t, json.Unmarshal([]byte(adapted), &config))
	raw, err := json.Marshal(WorkerApp{GracePeriod: grace})
	require.NoError(s.t, err)
	config.AppsRaw[workerAppName] = raw
	ctx, err := caddy.ProvisionContext(&config)
	require.NoError(s.t, err)
	app, err := ctx.AppIfConfigured(appName)
	require.NoError(s.t, err)
	site, err := ctx.AppIfConfigured("http")
	require.NoError(s.t, err)
	worker, err := ctx.AppIfConfigured(workerAppName)
	require.NoError(s.t, err)
	return &instance{app: app.(*App), http: site.(*caddyhttp.App)}, worker.(*WorkerApp)
}

// TestWorkerApp guarantees that the worker answers what a webhook took, whichever of the apps starts first, and that it
// stops.
func TestWorkerApp(t *testing.T) {
	s := newShop(t)
	run, worker := s.worker(0)
	server := run.server(t, ":8080")
	require.NoError(t, worker.Start(), "before the app it works for")
	resp, body := ask(t, http.MethodGet, server.URL+"/health/ready", nil)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, body)
	run.start(t)
	s.furnish(run.app.runtime.shared)
	resp, body = s.deliver(server, botHeader, 1, "Green tea?")
	requireAccepted(t, resp, body)
	sent := s.platform.WaitSent(t, 1)
	require.Equal(t, "5", sent[0].Address)
	require.Contains(t, sent[0].Text, "Green tea?")
	require.Equal(t, s.credentials["botToken"], sent[0].Token)
	resp, body = ask(t, http.MethodGet, server.URL+"/health/ready", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)

	require.NoError(t, worker.Stop())
	require.NoError(t, worker.err)
	resp, body = ask(t, http.MethodGet, server.URL+"/health/ready", nil)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "nobody works: %s", body)
	resp, body = s.deliver(server, botHeader, 2, "Or black?")
	requireAccepted(t, resp, body)
	depth, err := run.app.runtime.queue.Depth(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, depth.Due, "for another worker")
	require.Zero(t, depth.Leased)
	require.Len(t, s.platform.Sent(), 1)
}

// TestWorkerAppWithoutItsApp guarantees that a worker which is stopped before its app is ready ends, as after a start
// that failed.
func TestWorkerAppWithoutItsApp(t *testing.T) {
	_, worker := newShop(t).worker(0)
	require.NoError(t, worker.Start())
	require.NoError(t, worker.Stop())
	require.NoError(t, worker.err)
}

func TestWorkerAppRefuses(t *testing.T) {
	app, err := json.Marshal(goodApp(t))
	require.NoError(t, err)
	for want, apps := range map[string]caddy.ModuleMap{
		"svc_worker needs the app svc, which is not configured": {workerAppName: json.RawMessage(`{}`)},
		"svc_worker.grace_period: 25h0m0s is out of range":      {appName: app, workerAppName: json.RawMessage(`{"grace_period":"25h"}`)},
		"unknown field": {appName: app, workerAppName: json.RawMessage(`{"grace":"1s"}`)},
	} {
		off := false
		err := caddy.Validate(&caddy.Config{
			Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
			AppsRaw: apps,
		})
		require.ErrorContains(t, err, want)
	}
}
