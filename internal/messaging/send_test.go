package messaging_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// The requests are those of the platforms' own documentation. The signatures were computed with Python's hmac from the rules in words.
func TestSendSpeaksEachPlatformsLanguage(t *testing.T) {
	t.Parallel()
	const text = `"Chào \"bạn\" \u003cb\u003e \u0026 👋"`
	for _, test := range []struct {
		platform           platforms.Type
		address            string
		answer             string
		path, query, token string // token: the header that carries it
		body               string
		id                 string
	}{
		{
			platform: bot.Type, answer: `{"ok":true,"result":{"message_id":7,"chat":{"id":165105353}}}`,
			path: "/bot110201543:" + secretToken + "/sendMessage",
			body: `{"chat_id":165105353,"text":` + text + `}`, id: "165105353:7",
		},
		{
			platform: bot.Type, address: "-1001", answer: `{"ok":true,"result":{"message_id":7}}`,
			path: "/bot110201543:" + secretToken + "/sendMessage",
			body: `{"chat_id":-1001,"text":` + text + `}`, id: "-1001:7",
		},
		{
			platform: bot.Type, address: "@shop", answer: `{"ok":true,"result":{"message_id":7,"chat":{"id":5}}}`,
			path: "/bot110201543:" + secretToken + "/sendMessage",
			body: `{"chat_id":"@shop","text":` + text + `}`, id: "5:7",
		},
		{
			platform: social.Messenger, answer: `{"recipient_id":"1","message_id":"m_A1"}`,
			path: "/me/messages", token: "Authorization",
			body: `{"message":{"text":` + text + `},"messaging_type":"RESPONSE","recipient":{"id":"165105353"}}`, id: "m_A1",
		},
		{
			platform: social.PhotoDM, answer: `{"recipient_id":"1","message_id":"aWdf"}`,
			path: "/me/messages", token: "Authorization",
			body: `{"message":{"text":` + text + `},"recipient":{"id":"165105353"}}`, id: "aWdf",
		},
		{
			platform: social.ChatApp, answer: `{"messages":[{"id":"wamid.A1","message_status":"accepted"}]}`,
			path: "/947042923/messages", token: "Authorization",
			body: `{"messaging_product":"whatsapp","recipient_type":"individual","text":{"body":` + text + `},"to":"165105353","type":"text"}`,
			id:   "wamid.A1",
		},
		{
			platform: social.ChatApp, address: "US.13491208655302741918", answer: `{"messages":[{"id":"wamid.A1"}]}`,
			path: "/947042923/messages", token: "Authorization",
			body: `{"messaging_product":"whatsapp","recipient":"US.13491208655302741918","recipient_type":"individual","text":{"body":` + text + `},"type":"text"}`,
			id:   "wamid.A1",
		},
		{
			platform: localchat.Type, answer: `{"error":0,"message":"Success","data":{"message_id":"cb31"}}`,
			path: "/v3.0/oa/message/cs", token: "Access_token",
			body: `{"message":{"text":` + text + `},"recipient":{"user_id":"165105353"}}`, id: "cb31",
		},
		{
			platform: marketa.Type, answer: `{"error":"","message":"","response":{"message_id":2302748948493123953}}`,
			path: "/api/v2/sellerchat/send_message",
			query: "access_token=" + secretToken + "&partner_id=2001234&shop_id=947042923" +
				"&sign=af71e80f77b60964da4eb6f6c66daca49fe2b543544e0fc5d6486f903d50ffc7&timestamp=1795219200",
			body: `{"content":{"text":` + text + `},"message_type":"text","to_id":165105353}`, id: "2302748948493123953",
		},
		{
			platform: marketb.Type, address: "100094063_2_1011822749_1_103", answer: `{"code":"0","data":{"message_id":"1zYO"}}`,
			path: "/im/message/send",
			query: "access_token=" + secretToken + "&app_key=123456&sign=B94FBD780894A198929931B4194F2C439BA9D4F84B5756089B7C13948B1342FD" +
				"&sign_method=sha256&timestamp=1795219200000",
			body: "session_id=100094063_2_1011822749_1_103&template_id=1&txt=Ch%C3%A0o+%22b%E1%BA%A1n%22+%3Cb%3E+%26+%F0%9F%91%8B", id: "100094063_2_1011822749_1_103:1zYO",
		},
	} {
		t.Run(string(test.platform)+test.address, func(t *testing.T) {
			t.Parallel()
			v := &vendor{status: 200, body: test.answer}
			out := outgoing(test.platform)
			if test.address != "" {
				out.Address = test.address
			}
			id, err := v.client(t).Send(t.Context(), out)
			require.NoError(t, err)
			require.Equal(t, test.id, id)
			require.Equal(t, "POST", v.last.method)
			require.Equal(t, "/base"+test.path, v.last.path)
			require.Equal(t, test.query, v.last.query.Encode())
			require.Equal(t, test.body, v.last.body)
			switch test.token {
			case "Authorization":
				require.Equal(t, "Bearer "+secretToken, v.last.header.Get(test.token))
			case "":
				require.Empty(t, v.last.header["Authorization"])
			default:
				require.Equal(t, secretToken, v.last.header.Get(test.token))
			}
		})
	}
}

// What a tenant sets never chooses another path or host, and what can't be sent is refused without a call.
func TestSendRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		platform platforms.Type
		change   func(*platforms.Outgoing)
		want     platforms.Class
	}{
		"blank text":         {bot.Type, func(o *platforms.Outgoing) { o.Text = " \n" }, platforms.Refused},
		"no address":         {bot.Type, func(o *platforms.Outgoing) { o.Address = "" }, platforms.Refused},
		"path in token":      {bot.Type, func(o *platforms.Outgoing) { o.Credentials["botToken"] = "1:a/../../x" }, platforms.NeedsReauth},
		"query in token":     {bot.Type, func(o *platforms.Outgoing) { o.Credentials["botToken"] = "1:a?b" }, platforms.NeedsReauth},
		"host in token":      {bot.Type, func(o *platforms.Outgoing) { o.Credentials["botToken"] = "@evil.example" }, platforms.NeedsReauth},
		"line in token":      {social.PhotoDM, func(o *platforms.Outgoing) { o.Credentials[platforms.AccessToken] = "a\r\nX: y" }, platforms.NeedsReauth},
		"no token":           {localchat.Type, func(o *platforms.Outgoing) { o.Credentials[platforms.AccessToken] = "" }, platforms.NeedsReauth},
		"path in id":         {social.ChatApp, func(o *platforms.Outgoing) { o.ExternalID = "../me" }, platforms.Refused},
		"dots as id":         {social.ChatApp, func(o *platforms.Outgoing) { o.ExternalID = ".." }, platforms.Refused},
		"no id":              {social.ChatApp, func(o *platforms.Outgoing) { o.ExternalID = "" }, platforms.Refused},
		"shop is no number":  {marketa.Type, func(o *platforms.Outgoing) { o.ExternalID = "1&x=2" }, platforms.Refused},
		"buyer is no number": {marketa.Type, func(o *platforms.Outgoing) { o.Address = "1,2" }, platforms.Refused},
		"widget":             {messaging.Widget, func(*platforms.Outgoing) {}, platforms.Refused},
		"unknown type":       {"pigeon", func(*platforms.Outgoing) {}, platforms.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &vendor{status: 200}
			out := outgoing(test.platform)
			test.change(&out)
			_, err := v.client(t).Send(t.Context(), out)
			failure := requireFailure(t, err)
			require.Equal(t, test.want, failure.Class)
			require.False(t, failure.Refreshable)
			require.Empty(t, v.last.method)
		})
	}
}

func TestMarketplacesNeedTheOperatorsApplication(t *testing.T) {
	t.Parallel()
	v := &vendor{status: 200}
	for _, platform := range []platforms.Type{marketa.Type, marketb.Type} {
		client := setOf(t, messaging.Config{})
		_, err := client.Send(t.Context(), outgoing(platform))
		require.Equal(t, platforms.Refused, requireFailure(t, err).Class)
	}
	require.Empty(t, v.last.method)
}

func TestSendToAllPlatforms(t *testing.T) {
	t.Parallel()
	server := platformfake.Start(t)
	client := server.Client(t)
	for i, platform := range sendingTypes {
		out := outgoing(platform)
		out.Credentials = server.Account(platform, "947042923")
		id, err := client.Send(t.Context(), out)
		require.NoError(t, err)
		sent := server.WaitSent(t, i+1)[i]
		require.NotZero(t, sent.At)
		sent.At = time.Time{}
		token := out.Credentials[platforms.AccessToken] + out.Credentials["botToken"]
		require.Equal(t, platformfake.Sent{
			Type: platform, ExternalID: "947042923", Address: "165105353", Text: out.Text, Token: token, MessageID: id,
		}, sent)
	}
}

// Every fault of the scripted platforms, with all of them.
func TestSendMeetsFaults(t *testing.T) {
	t.Parallel()
	type faults map[string]platformfake.Fault
	all := faults{
		"unauthorized": platformfake.Unauthorized, "too many": platformfake.TooMany, "temporary": platformfake.Temporary,
		"server error": platformfake.ServerError, "window": platformfake.WindowExpired, "blocked": platformfake.CustomerBlocked,
		"rejected": platformfake.Rejected, "drop before": platformfake.DropBefore, "drop after": platformfake.DropAfter,
		"garbage": platformfake.Garbage, "truncated": platformfake.Truncated, "redirect": platformfake.Redirect,
	}
	usual := map[string]platforms.Class{
		"unauthorized": platforms.NeedsReauth, "too many": platforms.Retry, "temporary": platforms.Retry,
		"server error": platforms.Unknown, "window": platforms.WindowExpired, "blocked": platforms.CustomerBlocked,
		"rejected": platforms.Refused, "drop before": platforms.Unknown, "drop after": platforms.Unknown,
		"garbage": platforms.Unknown, "truncated": platforms.Unknown, "redirect": platforms.Refused,
	}
	other := map[platforms.Type]map[string]platforms.Class{
		bot.Type:       {"window": platforms.Refused},
		social.ChatApp: {"window": platforms.TemplateRequired},
		marketa.Type:   {"window": platforms.Refused, "blocked": platforms.Refused},
		marketb.Type:   {"blocked": platforms.Refused},
	}
	codes := map[platforms.Class]string{
		platforms.NeedsReauth: "channel_needs_reauth", platforms.WindowExpired: "service_window_expired",
		platforms.TemplateRequired: "template_required",
	}
	for _, platform := range sendingTypes {
		for name, fault := range all {
			t.Run(string(platform)+" "+name, func(t *testing.T) {
				t.Parallel()
				server := platformfake.Start(t)
				server.Script("165105353", fault)
				_, err := server.Client(t).Send(t.Context(), outgoing(platform))
				failure := requireFailure(t, err)
				want, special := other[platform][name]
				if !special {
					want = usual[name]
				}
				require.Equal(t, want, failure.Class, failure.Error())
				require.Equal(t, codes[want], messaging.Code(failure.Class))
				require.Equal(t, want == platforms.NeedsReauth && refreshable(platform), failure.Refreshable)
				require.Equal(t, 1, server.Attempts(""), "no request is sent twice")
				if len(server.Sent()) > 0 {
					require.Equal(t, platforms.Unknown, failure.Class, "a delivered message must not be sent again")
				}
			})
		}
	}
}
