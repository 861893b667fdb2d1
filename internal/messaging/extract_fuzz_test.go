package messaging_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// seed gives every extractor a delivery of each kind: what one platform sends must not upset another's reader.
func seed(f *testing.F) {
	f.Helper()
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"message":`, `{"object":"page","entry":[{}]}`, `{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"a\u0000\ud800b"}}]}]}`,
		"{\"object\":\"instagram\",\"entry\":[{\"id\":1,\"changes\":[{\"field\":\"messages\",\"value\":{\"sender\":{\"id\":\"2\"},\"timestamp\":\"1\",\"message\":{\"mid\":\"m\",\"text\":\"\xff\"}}}]}]}",
		`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"1"},"recipient":{"id":"2"},"message":{"mid":"m","is_echo":true,"attachments":[{"type":"image","payload":{"sticker_id":1}}]}},{"sender":{"id":"2"},"postback":{"mid":"m","title":"t"}}]}]}`,
		`{"object":"whatsapp_business_account","entry":[{"id":"waba","changes":[{"field":"messages","value":{"metadata":{"display_phone_number":"15550783881","phone_number_id":"1"},"contacts":[{"profile":{"name":"Lan"},"wa_id":"84901234567"}],"messages":[{"from":"2","id":"m","timestamp":"1763650000","type":"interactive","interactive":{"list_reply":{"title":"t"}}},{"from_user_id":"US.1","id":"n","type":"image","image":{"caption":"c"}}]}}]}]}`,
		`{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},"statuses":[{"id":"m","status":"failed","recipient_id":"2","errors":[{"code":131026}]}]}},{"field":"smb_message_echoes","value":{"metadata":{"phone_number_id":"1"},"message_echoes":[{"to":"2","id":"m","type":"text","text":{"body":"x"}}]}}]}]}`,
		`{"message":{"message_id":1,"from":{"id":5,"first_name":"a","last_name":"b"},"chat":{"id":5,"type":"private"},"date":1763650000,"caption":"x","photo":[{}]}}`,
		`{"my_chat_member":{"chat":{"id":5,"type":"private"},"from":{"id":5},"new_chat_member":{"status":"kicked"}}}`,
		`{"event_name":"user_send_text","sender":{"id":"2"},"recipient":{"id":"1"},"message":{"msg_id":"m","text":"x"},"timestamp":"1763650003354"}`,
		`{"event_name":"oa_send_image","oa_id":"1","sender":{"admin_id":"1"},"recipient":{"id":"2"},"message":{"msg_id":"m"}}`,
		`{"code":10,"shop_id":1,"data":{"type":"message","content":{"message_id":"m","from_id":2,"conversation_id":"3","message_type":"text","content":"{\"text\":\"\\u0000x\"}"}}}`,
		`{"code":12,"data":{"shop_expire_soon":[1,"2",null]}}`,
		`{"message_type":2,"shop_id":1,"data":{"session_id":"s","message_id":"m","from_account_type":1,"template_id":1,"content":"{\"txt\":\"x\"}"}}`,
		`{"message_type":8,"seller_id":1}`,
	} {
		f.Add([]byte(body))
	}
}

// requireSound is what holds for anything taken out of any body.
func requireSound(t *testing.T, body []byte, all []platforms.Inbound, err error, types ...platforms.Type) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, platforms.ErrMalformed)
		require.Empty(t, all)
		require.False(t, json.Valid(body) && strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{"), "an object is never malformed")
		return
	}
	require.True(t, json.Valid(body))
	require.LessOrEqual(t, len(all), len(body), "bounded by the body")
	for _, in := range all {
		require.Contains(t, types, in.Type)
		require.Equal(t, in.Type == bot.Type, in.ExternalID == "")
		require.Equal(t, in.Kind == platforms.Blocked || in.Kind == platforms.TokenExpiring, in.MessageID == "")
		require.Equal(t, in.Kind == platforms.TokenExpiring, in.Conversation == "")
		for _, id := range []string{in.ExternalID, in.Conversation, in.Address, in.MessageID} {
			require.LessOrEqual(t, len(id), 2*platforms.MaxID+1) // the bot platform's message ids are two
		}
		for _, s := range []string{in.ExternalID, in.Conversation, in.Address, in.MessageID, in.CustomerName, in.Text, string(in.Failure)} {
			require.True(t, utf8.ValidString(s) && !strings.ContainsRune(s, 0), "%q", s)
		}
		require.LessOrEqual(t, len(in.Text), platforms.MaxText)
		require.LessOrEqual(t, len(in.CustomerName), platforms.MaxName)
		require.False(t, in.SentAt.Before(platformtest.Unix(0)) && !in.SentAt.IsZero())
		switch in.Kind {
		case platforms.Text, platforms.Media, platforms.HumanEcho:
			require.NotEmpty(t, strings.TrimSpace(in.Text))
			require.Empty(t, string(in.Failure))
		case platforms.FailedDelivery:
			require.Contains(t, append(platforms.Classes(), ""), in.Failure)
		case platforms.Blocked, platforms.TokenExpiring:
			require.Empty(t, in.Text+string(in.Failure))
		default:
			require.Fail(t, "no kind")
		}
	}
}

func FuzzExtractBot(f *testing.F) {
	seed(f)
	extract := extractors(f)["bot"]
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := extract(body)
		requireSound(t, body, all, err, bot.Type)
	})
}

func FuzzExtractSocial(f *testing.F) {
	seed(f)
	extract := extractors(f)["social"]
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := extract(body)
		requireSound(t, body, all, err, social.Messenger, social.PhotoDM, social.ChatApp)
	})
}

func FuzzExtractLocalChat(f *testing.F) {
	seed(f)
	extract := extractors(f)["localchat"]
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := extract(body)
		requireSound(t, body, all, err, localchat.Type)
	})
}

func FuzzExtractMarketA(f *testing.F) {
	seed(f)
	extract := extractors(f)["market_a"]
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := extract(body)
		requireSound(t, body, all, err, marketa.Type)
	})
}

func FuzzExtractMarketB(f *testing.F) {
	seed(f)
	extract := extractors(f)["market_b"]
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := extract(body)
		requireSound(t, body, all, err, marketb.Type)
	})
}
