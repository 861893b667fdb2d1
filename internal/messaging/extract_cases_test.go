package messaging_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// extractors are the built-in platforms by name.
func extractors(t testing.TB) map[string]func([]byte) ([]platforms.Inbound, error) {
	t.Helper()
	all := map[string]func([]byte) ([]platforms.Inbound, error){}
	for _, driver := range builtin.Platforms() {
		all[driver.Describe().Name] = platformtest.New(t, driver, nil).Extract
	}
	return all
}

// TestMalformed: what is no JSON object is the sender's fault (400); an object of another form holds nothing.
func TestMalformed(t *testing.T) {
	t.Parallel()
	for platform, extract := range extractors(t) {
		for _, body := range []string{
			``, ` `, `{`, `{"a":1,`, `{"a":1}}`, `{"a":1} x`, `null`, `[]`, `[{}]`, `"{}"`, `1`, `true`, `not JSON`, "\xff", "\xef\xbb\xbf{}",
			`{"message":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`,
		} {
			all, err := extract([]byte(body))
			require.ErrorIs(t, err, platforms.ErrMalformed, "%s: %.40s", platform, body)
			require.Empty(t, all)
		}
		for _, body := range []string{
			`{}`, "\r\n\t {} \n", `{"x":1}`, `{"message":null,"entry":null,"data":null}`, `{"message":"x","entry":"x","data":"x"}`,
			`{"message":[1],"entry":[1],"data":[1]}`, `{"message":1,"entry":{"id":1},"data":1,"object":1,"code":[],"message_type":{}}`,
			`{"object":"page"}`, `{"object":"page","entry":[]}`, `{"object":"user","entry":[{"id":"1","messaging":[{}]}]}`,
			`{"object":"instagram","entry":[null,1,"x",[],{},{"id":{}}]}`, `{"event_name":"user_send_text"}`, `{"code":10,"shop_id":1}`,
		} {
			all, err := extract([]byte(body))
			require.NoError(t, err, "%s: %s", platform, body)
			require.Empty(t, all, "%s: %s", platform, body)
		}
	}
}

// TestText is one message of each platform around any text, written in any way JSON allows.
func TestText(t *testing.T) {
	t.Parallel()
	extractors := extractors(t)
	long := strings.Repeat("ả", platforms.MaxText/3) // three bytes each
	require.Len(t, long, platforms.MaxText-1)
	for name, c := range map[string]struct{ written, want string }{
		"plain":                 {`Chào shop`, "Chào shop"},
		"escaped":               {`Ch\u00e0o \"shop\" \/ \ud83d\ude00 <b>\n`, "Chào \"shop\" / \U0001F600 <b>\n"},
		"NUL stripped":          {`a\u0000b\u0000`, "ab"},
		"broken UTF-8 replaced": {"bad \xff\xfe byte", "bad \uFFFD\uFFFD byte"},
		"half a surrogate":      {`\ud83d!`, "\uFFFD!"},
		"blanks around":         {`  hi `, "  hi "},
		"a number":              {`12345678901234567890`, "12345678901234567890"},
		"the longest":           {long, long},
		"cut at a character":    {long + "ả" + long, long},
		"blank":                 {` \n\t`, ""},
		"empty":                 {``, ""},
		"only NUL":              {`\u0000`, ""},
	} {
		for platform, body := range map[string]string{
			"bot":               `{"message":{"message_id":1,"from":{"id":5},"chat":{"id":5,"type":"private"},"text":"%"}}`,
			"bot, caption":      `{"message":{"message_id":1,"from":{"id":5},"chat":{"id":5,"type":"private"},"caption":"%"}}`,
			"social, messenger": `{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"%"}}]}]}`,
			"social, chat app": `{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},
				"messages":[{"from":"2","id":"m","type":"text","text":{"body":"%"}}]}}]}]}`,
			"localchat": `{"event_name":"user_send_text","sender":{"id":"2"},"recipient":{"id":"1"},"message":{"msg_id":"m","text":"%"}}`,
			"market_a":  `{"code":10,"shop_id":1,"data":{"type":"message","content":{"message_id":"m","from_id":2,"conversation_id":"3","message_type":"text","content":{"text":"%"}}}}`,
			"market_b":  `{"message_type":2,"shop_id":1,"data":{"session_id":"s","message_id":"m","from_account_type":1,"template_id":1,"content":{"txt":"%"}}}`,
		} {
			extract := extractors[strings.Split(platform, ",")[0]]
			all, err := extract([]byte(strings.Replace(body, "%", c.written, 1)))
			require.NoError(t, err, "%s, %s", platform, name)
			if c.want == "" {
				require.Empty(t, all, "%s, %s", platform, name)
				continue
			}
			require.Len(t, all, 1, "%s, %s", platform, name)
			require.Equal(t, platforms.Text, all[0].Kind)
			require.Equal(t, c.want, all[0].Text, "%s, %s", platform, name)
		}
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	catalog, err := messaging.NewCatalog(builtin.Platforms())
	require.NoError(t, err)
	known := []string{"bot", "social_messenger", "photo_dm", "chat_app", "localchat", "market_a", "market_b", "widget"}
	require.Equal(t, known, catalog.TypeNames())
	for _, name := range known {
		_, ok := catalog.Find(name)
		require.True(t, ok)
	}
	for _, name := range []string{"", "Bot", "market-a"} {
		_, ok := catalog.Find(name)
		require.False(t, ok)
	}
}
