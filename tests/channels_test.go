package tests

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// TestChannels guarantees that a channel takes messages only of an account that is the organization's: one that
// the API made is active when the platform names the same account for its token, else it is pending and drops what is
// delivered, until an operator approves it. An account belongs to one channel of the whole service, a plan bounds the number
// of channels, and no organization sees another's.
func TestChannels(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		r := startReceiver(t, engine)
		other := r.business.product.business(t, 0, r.Model, nil)
		for i, kind := range connected {
			t.Run(string(kind), func(t *testing.T) {
				own, foreign := fmt.Sprintf("55500%d", i), fmt.Sprintf("77700%d", i)
				create := func(b *business, account string, credentials platforms.Credentials, status int) (map[string]any, *line) {
					body := map[string]any{"type": kind, "name": account, "agentId": b.AgentID, "credentials": credentials}
					l := &line{Type: kind, External: account, baseURL: b.product.BaseURL, Token: credentials[platforms.AccessToken], Secret: credentials["secretToken"]}
					if kind != bot.Type {
						body["externalId"] = account
					}
					made := b.post(t, "/channels", body, status)
					l.ID, _ = made["id"].(string)
					return made, l
				}
				mine := r.Platform.Account(kind, own)
				made, l := create(r.business, own, mine, http.StatusCreated)
				require.Equal(t, "active", made["state"])
				want := r.BaseURL + webhookPath(kind)
				if kind == bot.Type {
					want += l.ID
				}
				require.Equal(t, want, made["webhookUrl"])
				requireQueued(t, r.deliver(t, l.from(1).says("hello")), 1)
				requireError(t, other.ask(t, http.MethodGet, "/channels/"+l.ID, nil), "forbidden")
				requireError(t, other.ask(t, http.MethodDelete, "/channels/"+l.ID, nil), "forbidden")
				requireError(t, other.ask(t, http.MethodPatch, "/channels/"+l.ID, map[string]any{"name": "x"}), "forbidden")
				if kind == bot.Type {
					return
				}
				taken := other.ask(t, http.MethodPost, "/channels", map[string]any{
					"type": kind, "name": "taken", "externalId": own, "credentials": r.Platform.Account(kind, own),
				})
				requireError(t, taken, "conflict")

				claimed, pending := create(other, foreign, r.Platform.Account(kind, "88800"+own), http.StatusCreated)
				require.Equal(t, "pending", claimed["state"])
				requireQueued(t, r.deliver(t, pending.from(1).says("dropped")), 0)
				require.Equal(t, "active", r.svc(t, "channel", "approve", pending.ID)["state"])
				requireQueued(t, r.deliver(t, pending.from(1).says("kept")), 1)
				by, _ := written(other.messages(t, other.conversation(t, pending).ID))
				require.Len(t, by, 1)

				other.call(t, http.MethodDelete, "/channels/"+pending.ID, nil, http.StatusNoContent)
				requireQueued(t, r.deliver(t, pending.from(1).says("after the end")), 0)
			})
		}
		tight := r.operator().customerOn(t, planTight, 0)
		_, tight.Key = tight.newKey(t, identity.KeyRequest{Scopes: groupScopes})
		small := &business{customer: tight, product: r.product}
		bot := func(name string) map[string]any {
			return map[string]any{"type": "bot", "name": name, "credentials": map[string]string{"secretToken": "s-0123456789abcdef", "botToken": "1:t"}}
		}
		small.post(t, "/channels", bot("one"), http.StatusCreated)
		requireError(t, small.ask(t, http.MethodPost, "/channels", bot("two")), "plan_limit_exceeded")
	})
}

// TestWorkerListener guarantees that a worker answers probes and metrics where its block says, and nowhere else.
func TestWorkerListener(t *testing.T) {
	t.Parallel()
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.App += "worker {\nlisten " + address + "\n}\n" })
	get := func(path string) (status int, text string) {
		response, err := c.clear.Get("http://" + address + path) //nolint:noctx // the client is local
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := readAll(response)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, _ := get("/health/live")
	require.Zero(t, status, "the server listens at the worker's address")
	c.worker = c.startWorker()
	c.worker.await("the worker to be ready", startWait, func() bool {
		status, _ := get("/health/ready")
		return status == http.StatusOK
	})
	status, _ = get("/health/live")
	require.Equal(t, http.StatusOK, status)
	b := c.business(t, 1_000_000, c.up.script(replying), nil)
	l := b.line(t, bot.Type)
	requireQueued(t, c.deliver(t, l.from(1).says("hello")), 1)
	c.awaitSent(l.from(1), 1)
	c.requireDelivered(b, l, 1)
	status, metrics := get("/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, metrics, "svc_")
	require.NotContains(t, metrics, b.OrgID)
	for _, path := range []string{"/", "/v1/models", "/webhooks/social", "/config/"} {
		status, _ = get(path)
		require.Equal(t, http.StatusNotFound, status, path)
	}
	c.worker.stop()
	status, _ = get("/health/live")
	require.Zero(t, status)
}

// TestQueueThatCannotWrite guarantees that a message is acknowledged only when it is stored: while writes fail the platform
// is asked to deliver again, and when it does, the message is answered once.
func TestQueueThatCannotWrite(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := startConnected(t, engine)
		b := c.business(t, 1_000_000, c.up.script(replying), nil)
		l := b.line(t, social.Messenger)
		hello := l.from(1).says("hello")
		locked := connect(t, c.location)
		run := func(statement string) {
			_, err := locked.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		if engine == store.Postgres {
			run("BEGIN")
			run("LOCK TABLE messages IN EXCLUSIVE MODE")
		} else {
			run("BEGIN IMMEDIATE")
		}
		a := c.deliver(t, hello)
		requireError(t, a, "internal_error")
		require.NotEmpty(t, a.Header.Get("Retry-After"))
		bad := l.from(1).says("hello")
		bad.Signatures = nil
		requireError(t, c.deliver(t, bad), "unauthenticated")
		run("COMMIT")
		c.await("the message to be taken", patience, func() bool { return c.deliver(t, hello).accepted() })
		require.Equal(t, []string{"Re: hello"}, c.awaitSent(l.from(1), 1))
		by, _ := c.requireDelivered(b, l, 1)
		require.Len(t, by, 1)
		b.awaitCalls(t, 1)
		c.svc(t, "doctor")
	})
}
