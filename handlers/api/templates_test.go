package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// HasTemplates and Templates: the fake platform has none. See eachTemplated.
func (p *fakePlatform) HasTemplates(platforms.Type) bool { return false }

func (p *fakePlatform) Templates(context.Context, *platforms.Channel, platforms.TemplateQuery) (platforms.TemplatePage, error) {
	return platforms.TemplatePage{}, platforms.Refusef("no templates")
}

func (f *fakeInbox) SendTemplate(
	ctx context.Context, actor, orgID, id, text string, _ []byte, _ *inbox.SendKey,
) ([]inbox.Message, bool, error) {
	sent, err := f.SendAsHuman(ctx, actor, orgID, id, []string{text})
	return sent, false, err
}

const ready = `{"name":"order_ready","language":"en_US","category":"marketing","body":"Dear {{1}}, order {{2}} is ready.","variables":["1","2"],"needs":null}`

// eachTemplated runs a test with a customer of the chat app whose account has templates. The customer has written long ago.
func eachTemplated(t *testing.T, run func(t *testing.T, o *staffed, platform *platformfake.Server, conversation string)) {
	t.Helper()
	eachStaffed(t, func(t *testing.T, o *staffed) {
		platform := platformfake.Start(t)
		o.Platforms = platform.Client(t)
		o.setCredentials(t, platform.Account(social.ChatApp, "1"))
		platform.SetTemplates("1",
			platformfake.Template{Name: "order_ready", Language: "en_US", Body: "Dear {{1}}, order {{2}} is ready."},
			platformfake.Template{Name: "order_ready", Language: "vi", Body: "Xin chào {{name}}"},
			platformfake.Template{Name: "picture", Language: "en_US", Body: "Look", Others: `[{"type":"HEADER","format":"IMAGE"}]`},
			platformfake.Template{Name: "paused", Language: "en_US", Body: "Look", Status: "PAUSED"},
		)
		conversation, _ := o.fail(t, "8490", inbox.OutboundFailed, "template_required")
		o.Now = func() time.Time { return time.Now().Add(25 * time.Hour) }
		run(t, o, platform, conversation)
	})
}

func (o *staffed) setCredentials(t *testing.T, credentials platforms.Credentials) {
	t.Helper()
	plain, err := json.Marshal(credentials)
	require.NoError(t, err)
	require.NoError(t, o.DB.Channels.Update(t.Context(), "test", "org_1", o.channelID, store.ChannelChange{
		Credentials: o.Ring.Seal(plain, vault.ChannelCredentials("org_1", o.channelID)),
	}))
}

func TestListTemplates(t *testing.T) {
	t.Parallel()
	eachTemplated(t, func(t *testing.T, o *staffed, platform *platformfake.Server, _ string) {
		path := "/channels/" + o.channelID + "/templates"
		require.JSONEq(t, `{"data":[`+ready+`,
			{"name":"order_ready","language":"vi","category":"marketing","body":"Xin chào {{name}}","variables":["name"],"needs":null},
			{"name":"picture","language":"en_US","category":"marketing","body":"Look","variables":[],"needs":"a picture, video, file or place in its header"}
		],"nextCursor":null}`, handlertest.OkText(t, o.Serve, keyed(http.MethodGet, path, "owner")))
		require.Contains(t, handlertest.OkText(t, o.Serve, keyed(http.MethodGet, path+"?name=pic", "owner")), `"data":[{"name":"picture"`)
		o.refused(t, errcode.Forbidden, "", http.MethodGet, path, "stranger", "")
		o.refused(t, errcode.InsufficientScope, "", http.MethodGet, path, "reader", "")
		o.refused(t, errcode.InvalidRequest, "cursor", http.MethodGet, path+"?cursor=a%20b", "owner", "")
		o.refused(t, errcode.NotFound, "", http.MethodGet, "/channels/chn_x/templates", "owner", "")

		var many []platformfake.Template
		for i := range 60 {
			many = append(many, platformfake.Template{Name: fmt.Sprintf("t%02d", i), Language: "en", Body: "Hello"})
		}
		platform.SetTemplates("1", many...)
		o.Now = func() time.Time { return time.Now().Add(25*time.Hour + templatesLife) }
		var names []string
		for cursor := ""; ; {
			page := o.ask(t, http.StatusOK, http.MethodGet, path+cursor, "owner", "")
			require.LessOrEqual(t, len(page["data"].([]any)), platforms.MaxTemplates)
			for _, one := range page["data"].([]any) {
				names = append(names, one.(map[string]any)["name"].(string))
			}
			if page["nextCursor"] == nil {
				break
			}
			cursor = "?cursor=" + page["nextCursor"].(string)
		}
		require.Len(t, names, 60)
		require.Equal(t, "t59", names[59])
	})
}

// A platform's error is reported with our code and message. The platform isn't called for a channel that has no credentials.
func TestListTemplatesFails(t *testing.T) {
	t.Parallel()
	eachTemplated(t, func(t *testing.T, o *staffed, platform *platformfake.Server, _ string) {
		path := "/channels/" + o.channelID + "/templates"
		for _, c := range []struct {
			fault platformfake.Fault
			code  errcode.Code
		}{
			{platformfake.Unauthorized, errcode.ChannelNeedsReauth},
			{platformfake.TooManyFor(7 * time.Second), errcode.ProviderOverloaded},
			{platformfake.Temporary, errcode.ProviderOverloaded},
			{platformfake.ServerError, errcode.ProviderError},
			{platformfake.Garbage, errcode.ProviderError},
			{platformfake.Rejected, errcode.ProviderError},
		} {
			platform.Script("templates of 1", c.fault)
			a := o.refused(t, c.code, "", http.MethodGet, path, "owner", "")
			require.NotContains(t, a.Text, platformfake.Secret)
		}
		require.Equal(t, store.ChannelActive, o.ask(t, http.StatusOK, http.MethodGet, "/channels/"+o.channelID, "owner", "")["state"])
		platform.Script("templates of 1", platformfake.Hang)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		handlertest.RefusedWith(t, errcode.ProviderTimeout, o.Serve, keyed(http.MethodGet, path, "owner").WithContext(ctx))

		require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", o.channelID, store.ChannelNeedsReauth))
		o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodGet, path, "owner", "")
		require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", o.channelID, store.ChannelPending))
		o.refused(t, errcode.Conflict, "", http.MethodGet, path, "owner", "")
		require.NoError(t, o.DB.Channels.Create(t.Context(), "test", store.Channel{
			ID: "chn_bot", OrgID: "org_1", Type: string(bot.Type), Name: "Bot", State: store.ChannelActive,
		}, 0))
		require.Contains(t, o.refused(t, errcode.Conflict, "", http.MethodGet, "/channels/chn_bot/templates", "owner", "").Text, "no templates")
		require.NoError(t, o.DB.Channels.Create(t.Context(), "test", store.Channel{
			ID: "chn_bare", OrgID: "org_1", Type: string(social.ChatApp), Name: "Bare", ExternalID: "2", State: store.ChannelActive,
		}, 0))
		o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodGet, "/channels/chn_bare/templates", "owner", "")
	})
}

// After the window a text is refused and a template is accepted. It is shown as its text, and ends the conversation's attention.
func TestSendTemplate(t *testing.T) {
	t.Parallel()
	eachTemplated(t, func(t *testing.T, o *staffed, _ *platformfake.Server, id string) {
		path := "/conversations/" + id
		body := `{"template":{"name":"order_ready","language":"en_US","variables":[{"name":"2","value":"7"},{"name":"1","value":"Lan"}]}}`
		require.Equal(t, "template_required", o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["attention"])
		o.refused(t, errcode.TemplateRequired, "", http.MethodPost, path+"/messages", "owner", `{"text":"Hello"}`)
		o.refused(t, errcode.Forbidden, "", http.MethodPost, path+"/messages", "stranger", body)
		o.refused(t, errcode.InsufficientScope, "", http.MethodPost, path+"/messages", "reader", body)

		r := request(http.MethodPost, path+"/messages", "owner", body)
		r.Header.Set("Idempotency-Key", "k1")
		first := handlertest.Served(o.Serve, r)
		require.Equal(t, http.StatusCreated, first.Code, first.Body.String())
		require.Contains(t, first.Body.String(), `"kind":"template","text":"Dear Lan, order 7 is ready.","state":"pending"`)
		require.Nil(t, o.ask(t, http.StatusOK, http.MethodGet, path, "owner", "")["attention"])

		r = request(http.MethodPost, path+"/messages", "owner", body)
		r.Header.Set("Idempotency-Key", "k1")
		again := handlertest.Served(o.Serve, r)
		require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
		require.JSONEq(t, first.Body.String(), again.Body.String())
		r = request(http.MethodPost, path+"/messages", "owner", strings.Replace(body, "Lan", "Mai", 1))
		r.Header.Set("Idempotency-Key", "k1")
		handlertest.RefusedWith(t, errcode.IdempotencyKeyReused, o.Serve, r)

		leases, err := o.Lease(t.Context(), inbox.Places{Free: 1}, time.Hour)
		require.NoError(t, err)
		work, err := o.Open(t.Context(), leases[0], 10)
		require.NoError(t, err)
		require.Len(t, work.Outbound, 1, "once")
		require.JSONEq(t, `{"name":"order_ready","language":"en_US","variables":[{"name":"1","value":"Lan"},{"name":"2","value":"7"}]}`,
			string(work.Outbound[0].Template))

		messageID := work.Outbound[0].ID
		require.NoError(t, o.Sending(t.Context(), leases[0], messageID))
		require.NoError(t, o.SendFailed(t.Context(), leases[0], messageID, inbox.OutboundFailed, "template_paused", inbox.SendFailure{}))
		resent := o.ask(t, http.StatusOK, http.MethodPost, path+"/messages/"+messageID+"/resend", "owner", `{"mayArriveTwice":false}`)
		require.Equal(t, "pending", resent["state"], "the window doesn't matter to a template")
	})
}

// A template that the platform would refuse is refused before it is queued, with the field that is wrong.
func TestSendTemplateIsRefused(t *testing.T) {
	t.Parallel()
	eachTemplated(t, func(t *testing.T, o *staffed, platform *platformfake.Server, id string) {
		path := "/conversations/" + id + "/messages"
		template := func(name, language, variables string) string {
			return `{"template":{"name":"` + name + `","language":"` + language + `","variables":[` + variables + `]}}`
		}
		const one = `{"name":"1","value":"Lan"}`
		for _, c := range []struct{ body, field string }{
			{`{}`, "text"},
			{`{"text":"Hello","template":{"name":"picture","language":"en_US"}}`, "template"},
			{template("unknown", "en_US", ""), "template.name"},
			{template("order_ready", "de", ""), "template.name"},
			{template("order", "en_US", ""), "template.name"},
			{template("paused", "en_US", ""), "template.name"},
			{template("picture", "en_US", ""), "template.name"},
			{template("order_ready", "en_US", one), "template.variables"},
			{template("order_ready", "en_US", one+`,{"name":"2","value":"7"},{"name":"3","value":"8"}`), "template.variables"},
			{template("order_ready", "en_US", one+`,{"name":"2","value":" "}`), "template.variables[1].value"},
			{template("order_ready", "en_US", one+`,{"name":"2","value":"a\nb"}`), "template.variables[1].value"},
			{template("order_ready", "en_US", one+`,{"name":"2","value":""}`), "template.variables[1].value"},
			{template("order_ready", "en_US", one+`,{"name":"2","value":"`+strings.Repeat("x", 1025)+`"}`), "template.variables[1].value"},
			{template("order_ready", "en_US", one+","+one), "template.variables[1].name"},
			{template("order_ready", "vi", one), "template.variables"},
			{template("", "vi", one), "template.name"},
			{`{"template":{"name":"order_ready"}}`, "template.language"},
		} {
			o.refused(t, errcode.InvalidRequest, c.field, http.MethodPost, path, "owner", c.body)
		}
		good := template("order_ready", "vi", `{"name":"name","value":"Lan"}`)
		platform.Script("templates of 1", platformfake.Temporary)
		o.refused(t, errcode.ProviderOverloaded, "", http.MethodPost, path, "owner", good)
		_, err := o.Lease(t.Context(), inbox.Places{Free: 1}, time.Hour)
		require.NoError(t, err)
		require.NoError(t, o.DB.Channels.SetState(t.Context(), "test", "org_1", o.channelID, store.ChannelNeedsReauth))
		o.refused(t, errcode.ChannelNeedsReauth, "", http.MethodPost, path, "owner", good)
		messages, err := o.Messages(t.Context(), "org_1", id, store.Page{Limit: 100})
		require.NoError(t, err)
		require.Len(t, messages, 2, "nothing was queued")
	})
}

func TestSendTemplateOnAnotherChannel(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	id, _ := o.withConversation(t, bot.Type, 0)
	o.refused(t, errcode.InvalidRequest, "template", http.MethodPost, "/conversations/"+id+"/messages", "owner", `{"template":{"name":"a","language":"en"}}`)
	require.Empty(t, o.inbox.sent)
}
