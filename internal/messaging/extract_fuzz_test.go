package messaging_test

import (
	"testing"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
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

// fuzzExtract fuzzes what the platform of a name makes of a body.
func fuzzExtract(f *testing.F, name string) {
	f.Helper()
	seed(f)
	for _, driver := range builtin.Platforms() {
		if d := driver.Describe(); d.Name == name {
			platform := platformtest.New(f, driver, nil)
			f.Fuzz(func(t *testing.T, body []byte) { platformtest.RequireSound(t, d, platform, body) })
		}
	}
}

func FuzzExtractBot(f *testing.F)       { fuzzExtract(f, "bot") }
func FuzzExtractSocial(f *testing.F)    { fuzzExtract(f, "social") }
func FuzzExtractLocalChat(f *testing.F) { fuzzExtract(f, "localchat") }
func FuzzExtractMarketA(f *testing.F)   { fuzzExtract(f, "market_a") }
func FuzzExtractMarketB(f *testing.F)   { fuzzExtract(f, "market_b") }
