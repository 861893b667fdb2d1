package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// From a webhook through the real store and queue to the answers of the API, without fakes.
func TestDeliveryShowsInTheAPI(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind, billing.Ledger}, func(t *testing.T, db *store.DB) {
		keys := handlertest.Keyring{"owner": handlertest.Someone(identity.AllScopes()...)}
		stranger := keys["owner"]
		stranger.OrgID, stranger.KeyID = "org_2", "key_2"
		keys["stranger"] = stranger
		for _, id := range []string{"org_1", "org_2"} {
			require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: id, Name: id, Plan: "free", CreatedAt: 1}))
		}
		ring := handlertest.Ring(t)
		queue := inbox.New(db, ring)
		o := &fixture{platform: &fakePlatform{}}
		o.Deps = &Deps{
			Authenticator: keys, Wallets: billing.NewBook(db), DB: db, Conversations: queue, Ring: ring,
			Models: modelSet{"echo/a": {ID: "echo/a"}}, Platforms: o.platform, Catalog: handlertest.BuiltinPlatforms(t).Catalog, Plans: o, BaseURL: "https://svc.example",
		}
		o.Server = serve(o.Deps)
		set := handlertest.PlatformsOf(t, map[string]map[string]string{"social": {"app_secret": "app-secret"}})
		hooks := webhook.New(webhook.Config{BaseURL: "https://svc.example", Platforms: set}, db.Routes, queue, ring, nil, nil)

		agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
		channel := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", `{"agentId":"`+agent+`",`+botBody("Bot")[1:])["id"].(string)
		update := func(id int, text string) *http.Request {
			return delivered("/webhooks/bot/"+channel, "X-Bot-Api-Secret-Token", "secret_T-1-0123456789", fmt.Sprintf(
				`{"message":{"message_id":%d,"from":{"id":77,"first_name":"Lan"},"chat":{"id":77,"type":"private"},"date":1763650000,"text":%q}}`, id, text))
		}
		queues(t, hooks.Receiver("bot"), update(1, "Chào"), 1)
		queues(t, hooks.Receiver("bot"), update(1, "Chào"), 1)
		queues(t, hooks.Receiver("bot"), update(2, "Còn hàng không?"), 1)

		list := o.ask(t, http.StatusOK, http.MethodGet, "/conversations?channelId="+channel, "owner", "")["data"].([]any)
		require.Len(t, list, 1)
		conversation := list[0].(map[string]any)
		require.Equal(t, "Lan", conversation["customerName"])
		require.Equal(t, "assistant", conversation["state"])
		path := "/conversations/" + conversation["id"].(string)
		texts := func() (texts []string) {
			for _, m := range o.ask(t, http.StatusOK, http.MethodGet, path+"/messages", "owner", "")["data"].([]any) {
				texts = append(texts, m.(map[string]any)["text"].(string))
			}
			return texts
		}
		require.Equal(t, []string{"Chào", "Còn hàng không?"}, texts())
		require.Equal(t, "human", o.ask(t, http.StatusOK, http.MethodPost, path+"/handover", "owner", "")["state"])
		sent := o.ask(t, http.StatusCreated, http.MethodPost, path+"/messages", "owner", `{"text":"Dạ còn ạ"}`)
		require.Equal(t, "pending", sent["state"])
		require.Equal(t, []string{"Chào", "Còn hàng không?", "Dạ còn ạ"}, texts())
		next := o.ask(t, http.StatusOK, http.MethodGet, path+"/messages?limit=2", "owner", "")["nextCursor"].(string)
		page := o.ask(t, http.StatusOK, http.MethodGet, path+"/messages?limit=2&cursor="+next, "owner", "")
		require.Equal(t, sent["id"], page["data"].([]any)[0].(map[string]any)["id"])
		require.Nil(t, page["nextCursor"])
		require.Equal(t, "assistant", o.ask(t, http.StatusOK, http.MethodPost, path+"/handback", "owner", "")["state"])

		for _, route := range o.Routes() {
			if groupOf(route.Path) == "/conversations" && route.Path != "/conversations" {
				o.refused(t, errcode.Forbidden, "", route.Method, "/conversations/"+conversation["id"].(string)+route.Path[len("/conversations/{id}"):],
					"stranger", bodyFor(route))
			}
		}
		require.Empty(t, o.ask(t, http.StatusOK, http.MethodGet, "/conversations", "stranger", "")["data"])

		// Deliveries of the page are not accepted before the organization has proven that the page is its own.
		social := func() *http.Request {
			const body = `{"object":"page","entry":[{"id":"1001","time":1763650000123,"messaging":[{"sender":{"id":"55"},` +
				`"recipient":{"id":"1001"},"timestamp":1763650000100,"message":{"mid":"m1","text":"Chào"}}]}]}`
			mac := hmac.New(sha256.New, []byte("app-secret"))
			io.WriteString(mac, body)
			return delivered("/webhooks/social", "X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)), body)
		}
		created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "1001", "token"))
		require.Equal(t, "pending", created["state"])
		queues(t, hooks.Receiver("social"), social(), 0)
		o.platform.ids = map[string][]string{"token": {"1001"}}
		o.ask(t, http.StatusOK, http.MethodPost, "/channels/"+created["id"].(string)+"/verify", "owner", "")
		queues(t, hooks.Receiver("social"), social(), 1)
		require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/conversations", "owner", "")["data"], 2)

		// Messages of a suspended organization are stored, too.
		require.NoError(t, db.Organizations.SetSuspended(t.Context(), "test", "org_1", true, ""))
		queues(t, hooks.Receiver("bot"), update(3, "Alo?"), 1)
		require.Len(t, texts(), 4)

		o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
		o.refused(t, errcode.NotFound, "", http.MethodGet, path, "owner", "")
	})
}

func delivered(path, header, signature, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set(header, signature)
	return r
}

func queues(t *testing.T, h handlers.Handler, r *http.Request, texts int) {
	t.Helper()
	require.Equal(t, fmt.Sprintf(`{"ok":true,"queued":%d}`, texts), handlertest.OkText(t, h, r))
}
