package handlers

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// From the webhook through the real store and queue to what the API shows, with no fake between.
func TestDeliveryShowsInTheAPI(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{billing.Ledger, inbox.Kind}, func(t *testing.T, db *store.DB) {
		keys := keyring{"owner": someone(identity.AllScopes()...)}
		stranger := keys["owner"]
		stranger.OrgID, stranger.KeyID = "org_2", "key_2"
		keys["stranger"] = stranger
		for _, id := range []string{"org_1", "org_2"} {
			require.NoError(t, db.Organizations.Create(t.Context(), "test", store.Organization{ID: id, Name: id, Plan: "free", CreatedAt: 1}))
		}
		ring := testRing(t)
		queue := inbox.New(db, ring)
		o := &office{platform: &fakePlatform{}}
		o.API = NewAPI(APIDeps{
			Authenticator: keys, Wallets: billing.NewBook(db), DB: db, Conversations: queue, Ring: ring,
			Models: modelSet{"echo/a": {ID: "echo/a"}}, Platforms: o.platform, Catalog: builtinPlatforms(t).Catalog, Plans: o, BaseURL: testBaseURL,
		})
		hooks := &gate{options: map[string]map[string]string{"social": {"app_secret": testAppSecret}}}
		hooks.Webhooks = NewWebhooks(WebhookConfig{BaseURL: testBaseURL, Platforms: platformsOf(t, hooks.options)}, db.Routes, queue, ring, nil, nil)

		agent := o.ask(t, http.StatusCreated, http.MethodPost, "/agents", "owner", `{"name":"Lan","model":"echo/a"}`)["id"].(string)
		channel := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", `{"agentId":"`+agent+`",`+botBody("Bot")[1:])["id"].(string)
		update := func(id int, text string) *http.Request {
			return delivery("/webhooks/bot/"+channel, "X-Bot-Api-Secret-Token", "secret_T-1", fmt.Sprintf(
				`{"message":{"message_id":%d,"from":{"id":77,"first_name":"Lan"},"chat":{"id":77,"type":"private"},"date":1763650000,"text":%q}}`, id, text))
		}
		acknowledged(t, hooks.Bot, update(1, "Chào"), 1)
		acknowledged(t, hooks.Bot, update(1, "Chào"), 1)
		acknowledged(t, hooks.Bot, update(2, "Còn hàng không?"), 1)

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

		// The page's deliveries wait for the proof that it is the organization's.
		social := everyPlatform()[1]
		created := o.ask(t, http.StatusCreated, http.MethodPost, "/channels", "owner", pageBody("Page", "1001", "token"))
		require.Equal(t, "pending", created["state"])
		acknowledged(t, hooks.Social, social.signed(social.text), 0)
		o.platform.ids = map[string][]string{"token": {"1001"}}
		o.ask(t, http.StatusOK, http.MethodPost, "/channels/"+created["id"].(string)+"/verify", "owner", "")
		acknowledged(t, hooks.Social, social.signed(social.text), 1)
		require.Len(t, o.ask(t, http.StatusOK, http.MethodGet, "/conversations", "owner", "")["data"], 2)

		// Suspended organizations' messages are kept all the same.
		require.NoError(t, db.Organizations.SetSuspended(t.Context(), "test", "org_1", true))
		acknowledged(t, hooks.Bot, update(3, "Alo?"), 1)
		require.Len(t, texts(), 4)

		o.ask(t, http.StatusNoContent, http.MethodDelete, path, "owner", "")
		o.refused(t, errcode.NotFound, "", http.MethodGet, path, "owner", "")
	})
}
