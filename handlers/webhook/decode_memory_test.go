package webhook

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/verify"
)

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, deliveryDecoders())
}

func deliveryDecoders() (all []handlertest.ForeignDecoder) {
	const chatApp = `{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{%s:%%}}]}]}`
	for _, platform := range []struct {
		name, platform string
		frames         []string
	}{
		{"bot", "bot", []string{
			`{"x":%}`, `{"message":%}`, `{"message":{"text":%,"chat":{}}}`, `{"message":{"chat":%}}`, `{"my_chat_member":%}`,
		}},
		{"localchat", "localchat", []string{`{"event_name":%}`, `{"timestamp":%}`, `{"sender":%}`, `{"message":%}`}},
		{"market a", "market_a", []string{
			`{"code":10,"data":%}`, `{"code":10,"data":{"type":"message","content":%}}`, `{"code":12,"data":{"shop_expire_soon":%}}`,
		}},
		{"market b", "market_b", []string{`{"message_type":2,"data":%}`, `{"message_type":2,"data":{"content":%}}`}},
		{"social", "social", []string{
			`{"object":%}`, `{"object":"page","entry":%}`, `{"object":"page","entry":[{"id":"1","messaging":%}]}`,
			`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":%}]}]}`,
			`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"attachments":%}}]}]}`, `{"object":"page","entry":[{"changes":%}]}`,
			fmt.Sprintf(chatApp, `"messages"`), fmt.Sprintf(chatApp, `"contacts"`), fmt.Sprintf(chatApp, `"statuses"`),
		}},
	} {
		all = append(all, handlertest.ForeignDecoder{
			Name: "delivery of " + platform.name, Most: MaxBody,
			Decode: func(t *testing.T, body string) {
				_, _ = handlertest.BuiltinPlatforms(t).Platform(platform.platform).Extract([]byte(body))
			},
			Bodies: func(n int) map[string]string {
				bodies := handlertest.Within(platform.frames...)(n)
				maps.Copy(bodies, crowded(n))
				return bodies
			},
		})
	}
	return append(all, handlertest.ForeignDecoder{
		Name: "signature of localchat", Most: MaxBody, Bodies: func(n int) map[string]string {
			bodies := handlertest.Within(`{"timestamp":%}`, `{"x":%}`, `{"timestamp":"1","timestamp":%}`)(n)
			bodies["many members"] = "{" + handlertest.Times(`"x":1`, ",", n) + "}"
			return bodies
		},
		Decode: func(t *testing.T, body string) {
			h := http.Header{"X-Localchat-Event-Signature": {"mac=" + strings.Repeat("0", 64)}}
			require.Error(t, verify.LocalChat(h, "", "app", "secret", []byte(body)))
		},
	})
}

// crowded are deliveries of the smallest elements, valid or nearly so, in all lists that can be nested.
func crowded(n int) map[string]string {
	const chatApp = `{"object":"whatsapp_business_account","entry":[%]}`
	change := func(inner string) string {
		return `{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},` + inner + `}}]}`
	}
	lists := map[string][2]string{
		"messages":         {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"x"}}`},
		"escaped messages": {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"\n"},"message":{"mid":"\n","text":"\u00e0"}}`},
		"broken messages":  {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"` + strings.Repeat("a\xff", 100) + `"}}`},
		"long messages":    {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"` + strings.Repeat("\xff", 1000) + `"}}`},
		"wrong kinds":      {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"message":{"text":1,"text":1,"text":1,"mid":[],"mid":{}}}`},
		"null and again":   {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"message":null,"message":{},"postback":null,"postback":{}}`},
		"odd times":        {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"timestamp":"x"}`},
		"entries":          {`{"object":"page","entry":[%]}`, `{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"x"}}],"changes":[{}]}`},
		"empty entries":    {`{"object":"page","entry":[%]}`, `{"messaging":[{}],"changes":[{}]}`},
		"voices":           {strings.Replace(chatApp, "%", change(`"messages":[%]`), 1), `{"from":"2","id":"m","type":"voice"}`},
		"shortest": {
			strings.Replace(strings.Replace(chatApp, "%", change(`"message_echoes":[%]`), 1), `"messages"`, `"smb_message_echoes"`, 1),
			`{"to":1,"id":1,"type":"voice"}`,
		},
		"empty changes": {chatApp, change(`"messages":[{}],"contacts":[{}],"statuses":[{"errors":[{},{}]}]`)},
		"contacts":      {strings.Replace(chatApp, "%", change(`"contacts":[%]`), 1), `{"wa_id":"1","profile":{"name":"x"}}`},
		"failures":      {strings.Replace(chatApp, "%", change(`"statuses":[%]`), 1), `{"status":"failed","recipient_id":"1","id":"m","errors":[{"code":131026}]}`},
		"causes":        {strings.Replace(chatApp, "%", change(`"statuses":[{"status":"failed","errors":[%]}]`), 1), `{"code":1}`},
		"updates":       {`{"message":{%}}`, `"text":"\n","photo":{},"chat":{"id":"\n"}`},
		"shops":         {`{"code":12,"data":{"shop_expire_soon":[%]}}`, `1`},
		"packed":        {`{"code":10,"data":{"type":"message","content":"{\"message_type\":\"text\",\"x\":[%]}"}}`, `\u005b\u005d`},
	}
	bodies := map[string]string{}
	for name, list := range lists {
		bodies[name] = strings.Replace(list[0], "%", handlertest.Times(list[1], `,`, n), 1)
	}
	statuses := make([]string, 0, n/70)
	for i := range n / 70 {
		statuses = append(statuses, fmt.Sprintf(`{"status":"failed","recipient_id":"1","id":"m","errors":[{"code":%d}]}`, i))
	}
	bodies["many codes"] = strings.Replace(chatApp, "%", change(`"statuses":[`+strings.Join(statuses, ",")+`]`), 1)
	contacts := make([]string, 0, n/50)
	for i := range n / 50 {
		contacts = append(contacts, fmt.Sprintf(`{"wa_id":"%d","user_id":"u%d","profile":{"name":"x"}}`, i, i))
	}
	bodies["many contacts"] = strings.Replace(chatApp, "%", change(`"contacts":[`+strings.Join(contacts, ",")+`]`), 1)
	return bodies
}
