package platforms

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// seed gives every extractor a delivery of each kind: what one platform sends must not upset another's reader.
func seed(f *testing.F) {
	f.Helper()
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"message":`, `{"object":"page","entry":[{}]}`, `{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"a\u0000\ud800b"}}]}]}`,
		"{\"object\":\"instagram\",\"entry\":[{\"id\":1,\"changes\":[{\"field\":\"messages\",\"value\":{\"sender\":{\"id\":\"2\"},\"timestamp\":\"1\",\"message\":{\"mid\":\"m\",\"text\":\"\xff\"}}}]}]}",
		`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"1"},"recipient":{"id":"2"},"message":{"mid":"m","is_echo":true,"attachments":[{"type":"image","payload":{"sticker_id":1}}]}},{"sender":{"id":"2"},"postback":{"mid":"m","title":"t"}}]}]}`,
		`{"object":"whatsapp_business_account","entry":[` + chatAppEntry("1", `{"from":"2","id":"m","timestamp":"1763650000","type":"interactive","interactive":{"list_reply":{"title":"t"}}},{"from_user_id":"US.1","id":"n","type":"image","image":{"caption":"c"}}`) + `]}`,
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
func requireSound(t *testing.T, body []byte, all []Inbound, err error, types ...Type) {
	t.Helper()
	if err != nil {
		require.ErrorIs(t, err, ErrMalformed)
		require.Empty(t, all)
		require.False(t, json.Valid(body) && strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{"), "an object is never malformed")
		return
	}
	require.True(t, json.Valid(body))
	require.LessOrEqual(t, len(all), len(body), "bounded by the body")
	for _, in := range all {
		require.Contains(t, types, in.Type)
		require.Equal(t, in.Type == Bot, in.ExternalID == "")
		require.Equal(t, in.Kind == Blocked || in.Kind == TokenExpiring, in.MessageID == "")
		require.Equal(t, in.Kind == TokenExpiring, in.Conversation == "")
		for _, id := range []string{in.ExternalID, in.Conversation, in.Address, in.MessageID} {
			require.LessOrEqual(t, len(id), 2*MaxID+1) // the bot platform's message ids are two
		}
		for _, s := range []string{in.ExternalID, in.Conversation, in.Address, in.MessageID, in.CustomerName, in.Text, in.Code} {
			require.True(t, utf8.ValidString(s) && !strings.ContainsRune(s, 0), "%q", s)
		}
		require.LessOrEqual(t, len(in.Text), MaxText)
		require.LessOrEqual(t, len(in.CustomerName), MaxName)
		require.False(t, in.SentAt.Before(unix(0)) && !in.SentAt.IsZero())
		switch in.Kind {
		case Text, Media, HumanEcho:
			require.NotEmpty(t, strings.TrimSpace(in.Text))
			require.Empty(t, in.Code)
		case FailedDelivery:
			require.Contains(t, []string{"", "template_required", "channel_needs_reauth"}, in.Code)
		case Blocked, TokenExpiring:
			require.Empty(t, in.Text+in.Code)
		default:
			require.Fail(t, "no kind")
		}
	}
}

func FuzzExtractBot(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := ExtractBot(body)
		requireSound(t, body, all, err, Bot)
	})
}

func FuzzExtractSocial(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := social(body)
		requireSound(t, body, all, err, SocialMessenger, PhotoDM, ChatApp)
	})
}

func FuzzExtractLocalChat(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := ExtractLocalChat(body)
		requireSound(t, body, all, err, LocalChat)
	})
}

func FuzzExtractMarketA(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := ExtractMarketA(body)
		requireSound(t, body, all, err, MarketA)
	})
}

func FuzzExtractMarketB(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := ExtractMarketB(body)
		requireSound(t, body, all, err, MarketB)
	})
}
