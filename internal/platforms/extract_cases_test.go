package platforms

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// delivered is what a delivery holds by the notes on the platform (notes/platforms.md §2); nothing where want is nil.
type delivered struct {
	body string
	want []Inbound
}

func requireDelivered(t *testing.T, extract func([]byte) ([]Inbound, error), cases map[string]delivered) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := extract([]byte(c.body))
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func social(body []byte) ([]Inbound, error) { return ExtractSocial(body, Objects{}) }

func extractors() map[string]func([]byte) ([]Inbound, error) {
	return map[string]func([]byte) ([]Inbound, error){
		"bot": ExtractBot, "social": social, "localchat": ExtractLocalChat, "market a": ExtractMarketA, "market b": ExtractMarketB,
	}
}

// unix is a time as extraction returns it, from milliseconds since 1970.
func unix(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

// TestMalformed: what is no JSON object is the sender's fault (400); an object of another form holds nothing (design §6).
func TestMalformed(t *testing.T) {
	t.Parallel()
	for platform, extract := range extractors() {
		for _, body := range []string{
			``, ` `, `{`, `{"a":1,`, `{"a":1}}`, `{"a":1} x`, `null`, `[]`, `[{}]`, `"{}"`, `1`, `true`, `not JSON`, "\xff", "\xef\xbb\xbf{}",
			`{"message":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`,
		} {
			all, err := extract([]byte(body))
			require.ErrorIs(t, err, ErrMalformed, "%s: %.40s", platform, body)
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
	long := strings.Repeat("ả", MaxText/3) // three bytes each
	require.Len(t, long, MaxText-1)
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
			"market a":  `{"code":10,"shop_id":1,"data":{"type":"message","content":{"message_id":"m","from_id":2,"conversation_id":"3","message_type":"text","content":{"text":"%"}}}}`,
			"market b":  `{"message_type":2,"shop_id":1,"data":{"session_id":"s","message_id":"m","from_account_type":1,"template_id":1,"content":{"txt":"%"}}}`,
		} {
			extract := extractors()[strings.Split(platform, ",")[0]]
			all, err := extract([]byte(strings.Replace(body, "%", c.written, 1)))
			require.NoError(t, err, "%s, %s", platform, name)
			if c.want == "" {
				require.Empty(t, all, "%s, %s", platform, name)
				continue
			}
			require.Len(t, all, 1, "%s, %s", platform, name)
			require.Equal(t, Text, all[0].Kind)
			require.Equal(t, c.want, all[0].Text, "%s, %s", platform, name)
		}
	}
}

// TestIdentifier: digits stay as they are, and what can't be an id is none.
func TestIdentifier(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		`1`: "1", `-1001234567890`: "-1001234567890", `9007199254740993`: "9007199254740993", `"9007199254740993"`: "9007199254740993",
		`123456789012345678901234567890`: "123456789012345678901234567890", `"0012"`: "0012", `"m_\u0041\/b"`: "m_A/b", `"à"`: "à",
		`"` + strings.Repeat("x", MaxID) + `"`: strings.Repeat("x", MaxID), `"` + strings.Repeat("x", MaxID+1) + `"`: "", strings.Repeat("1", MaxID+1): "",
		`""`: "", `null`: "", `true`: "", `1.5`: "", `1e3`: "", `-`: "", `{}`: "", `[1]`: "", `"a\u0000"`: "", "\"a\xff\"": "", `"\ud800"`: "",
	} {
		require.Equal(t, want, idOf([]byte(written)), "%.60s", written)
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]time.Time{
		`1763650000`: unix(1763650000000), `"1763650000"`: unix(1763650000000), `1763650000123`: unix(1763650000123), `"1763650000123"`: unix(1763650000123),
		`1262304000`: unix(1262304000000), `1262303999`: {}, `0`: {}, `1`: {}, `-1763650000`: {}, `99999999999999`: unix(99999999999999), `100000000000000`: {},
		`9223372036854775807`: {}, `92233720368547758070`: {}, `1.763650000e9`: {}, `""`: {}, `"now"`: {}, `null`: {}, `{}`: {},
	} {
		require.Equal(t, want, momentOf([]byte(written)).time(), written)
	}
}

func TestFlagAndGiven(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]bool{
		`true`: true, `1`: true, `"true"`: true, `"1"`: true, `false`: false, `0`: false, `null`: false, `{}`: false,
	} {
		require.Equal(t, want, flagOf([]byte(written)), written)
	}
	for written, want := range map[string]bool{`{}`: true, `[1]`: true, `0`: true, `null`: false, ``: false} {
		require.Equal(t, want, given([]byte(written)), written)
	}
}

// TestMediaName: platforms name what a message is; anything else must not reach the conversation.
func TestMediaName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"image": "image", "story_mention": "story_mention", "": "attachment", "Image": "attachment", "<b>": "attachment", "a b": "attachment",
		strings.Repeat("a", 32): strings.Repeat("a", 32), strings.Repeat("a", 33): "attachment",
	} {
		require.Equal(t, want, mediaName(name))
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Type{"bot", "social_messenger", "photo_dm", "chat_app", "localchat", "market_a", "market_b", "widget"}, Types())
	for _, known := range Types() {
		require.True(t, known.Known())
	}
	require.False(t, Type("").Known())
	require.False(t, Type("Bot").Known())
	require.False(t, Type("market-a").Known())
}
