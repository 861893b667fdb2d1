package social

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestExtractDirect is what pages and photo accounts share.
func TestExtractDirect(t *testing.T) {
	t.Parallel()
	for object, channel := range map[string]platforms.Type{"page": Messenger, "instagram": PhotoDM} {
		of := func(event string) string {
			return `{"object":"` + object + `","entry":[{"id":"700","time":1763650000123,"messaging":[{"sender":{"id":"5678"},"recipient":{"id":"700"},"timestamp":1763650000100,` + event + `}]}]}`
		}
		fromUs := func(event string) string {
			return `{"object":"` + object + `","entry":[{"id":"700","messaging":[{"sender":{"id":"700"},"recipient":{"id":"5678"},"timestamp":1763650000100,` + event + `}]}]}`
		}
		one := func(kind platforms.Kind, id, text string) []platforms.Inbound {
			return []platforms.Inbound{{
				Type: channel, ExternalID: "700", Kind: kind, Conversation: "5678", Address: "5678", MessageID: id, Text: text, SentAt: platformtest.Unix(1763650000100),
			}}
		}
		t.Run(object, func(t *testing.T) {
			t.Parallel()
			platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
				"text":                {of(`"message":{"mid":"m_1","text":"Hello"}`), one(platforms.Text, "m_1", "Hello")},
				"quick reply":         {of(`"message":{"mid":"m_1","text":"Red","quick_reply":{"payload":"R"}}`), one(platforms.Text, "m_1", "Red")},
				"reply to a story":    {of(`"message":{"mid":"m_1","text":"Price?","reply_to":{"story":{"id":"1","url":"https://cdn.example/s"}}}`), one(platforms.Text, "m_1", "Price?")},
				"text with a picture": {of(`"message":{"mid":"m_1","text":"This?","attachments":[{"type":"image","payload":{"url":"https://cdn.example/i"}}]}`), platformtest.With(one(platforms.Text, "m_1", "This?"), platforms.Attachment{Kind: "image", Reference: "https://cdn.example/i"})},
				"pressed button":      {of(`"postback":{"mid":"m_1","title":"Get started","payload":"START"}`), one(platforms.Text, "m_1", "Get started")},
				"button without id":   {of(`"postback":{"title":"Get started","payload":"START"}`), nil},
				"button without text": {of(`"postback":{"mid":"m_1","payload":"START"}`), nil},
				"picture":             {of(`"message":{"mid":"m_1","attachments":[{"type":"image","payload":{"url":"https://cdn.example/i"}}]}`), platformtest.With(one(platforms.Media, "m_1", "image"), platforms.Attachment{Kind: "image", Reference: "https://cdn.example/i"})},
				"two files":           {of(`"message":{"mid":"m_1","attachments":[{"type":"file"},{"type":"audio"}]}`), one(platforms.Media, "m_1", "file")},
				"thumbs up":           {of(`"message":{"mid":"m_1","attachments":[{"type":"image","payload":{"sticker_id":369239263222822}}]}`), one(platforms.Media, "m_1", "sticker")},
				"story mention":       {of(`"message":{"mid":"m_1","attachments":[{"type":"story_mention"}]}`), one(platforms.Media, "m_1", "story_mention")},
				"odd attachment":      {of(`"message":{"mid":"m_1","attachments":["x"]}`), one(platforms.Media, "m_1", "attachment")},
				"unsupported":         {of(`"message":{"mid":"m_1","is_unsupported":true}`), one(platforms.Media, "m_1", "unsupported")},
				"empty message":       {of(`"message":{"mid":"m_1"}`), nil},
				"message without id":  {of(`"message":{"text":"Hello"}`), nil},
				"deleted":             {of(`"message":{"mid":"m_1","is_deleted":true,"text":"Hello"}`), one(platforms.Unsent, "m_1", "")},
				"deleted, no id":      {of(`"message":{"is_deleted":true}`), nil},
				"echo, deleted":       {fromUs(`"message":{"mid":"m_1","is_echo":true,"is_deleted":true}`), one(platforms.Unsent, "m_1", "")},
				"own, deleted":        {fromUs(`"message":{"mid":"m_1","is_deleted":true}`), one(platforms.Unsent, "m_1", "")},
				"delivery":            {of(`"delivery":{"mids":["m_1"],"watermark":1763650000100}`), nil},
				"read":                {of(`"read":{"watermark":1763650000100}`), nil},
				"reaction":            {of(`"reaction":{"mid":"m_1","action":"react","emoji":"❤"}`), nil},
				"edit":                {of(`"message_edit":{"mid":"m_1","text":"x","num_edit":1}`), one(platforms.Edited, "m_1", "x")},
				"edit of ours":        {fromUs(`"message_edit":{"mid":"m_1","text":"x","num_edit":1}`), one(platforms.Edited, "m_1", "x")},
				"edit to nothing":     {of(`"message_edit":{"mid":"m_1","text":" "}`), nil},
				"edit of nothing":     {of(`"message_edit":{"text":"x"}`), nil},
				"referral":            {of(`"referral":{"ref":"R","source":"SHORTLINK"}`), nil},
				"optin":               {of(`"optin":{"ref":"R"}`), nil},
				"hand-over":           {of(`"pass_thread_control":{"new_owner_app_id":"1"}`), nil},
				"a kind of next year": {of(`"hologram":{"mid":"m_1","text":"x"}`), nil},

				"echo":                     {fromUs(`"message":{"mid":"m_1","is_echo":true,"app_id":1517776481860111,"text":"Yes, we do"}`), one(platforms.UnmarkedEcho, "m_1", "Yes, we do")},
				"echo of ours":             {fromUs(`"message":{"mid":"m_1","is_echo":true,"app_id":1517776481860111,"metadata":"caddy-svc:msg_1","text":"Yes, we do"}`), one(platforms.AutomaticEcho, "m_1", "Yes, we do")},
				"echo of another program":  {fromUs(`"message":{"mid":"m_1","is_echo":true,"app_id":9,"metadata":"{}","text":"Yes, we do"}`), one(platforms.UnmarkedEcho, "m_1", "Yes, we do")},
				"echo of the page's inbox": {fromUs(`"message":{"mid":"m_1","is_echo":true,"app_id":263902037430900,"text":"Yes, we do"}`), one(platforms.HumanEcho, "m_1", "Yes, we do")},
				"echo of the photo inbox":  {fromUs(`"message":{"mid":"m_1","is_echo":true,"app_id":"1217981644879628","text":"Yes, we do"}`), one(platforms.HumanEcho, "m_1", "Yes, we do")},
				"customer names our mark":  {of(`"message":{"mid":"m_1","metadata":"caddy-svc:msg_1","text":"Hello"}`), one(platforms.Text, "m_1", "Hello")},
				"echo of a picture":        {fromUs(`"message":{"mid":"m_1","is_echo":true,"attachments":[{"type":"image"}]}`), platformtest.Wordless(one(platforms.UnmarkedEcho, "m_1", "image"))},
				"echo of a linked picture": {fromUs(`"message":{"mid":"m_1","is_echo":true,"attachments":[{"type":"image","payload":{"url":"https://cdn.example/1"}}]}`), platformtest.With(platformtest.Wordless(one(platforms.UnmarkedEcho, "m_1", "image")), platforms.Attachment{Kind: "image", Reference: "https://cdn.example/1"})},
				"echo of our picture":      {fromUs(`"message":{"mid":"m_1","is_echo":true,"metadata":"caddy-svc:msg_1","attachments":[{"type":"image","payload":{"url":"https://cdn.example/1"}}]}`), platformtest.Wordless(one(platforms.AutomaticEcho, "m_1", "image"))},
				"echo of something":        {fromUs(`"message":{"mid":"m_1","is_echo":true}`), platformtest.Wordless(one(platforms.UnmarkedEcho, "m_1", "attachment"))},
				"echo without id":          {fromUs(`"message":{"is_echo":true,"text":"Yes"}`), nil},
				"own text, not marked":     {fromUs(`"message":{"mid":"m_1","text":"Yes"}`), nil},
				"another app's time":       {`{"object":"` + object + `","entry":[{"id":"700","standby":[{"sender":{"id":"5678"},"message":{"mid":"m_1","text":"x"}}]}]}`, nil},
				"comment":                  {`{"object":"` + object + `","entry":[{"id":"700","changes":[{"field":"feed","value":{"item":"comment","message":"price?","from":{"id":"5678"}}}]}]}`, nil},
				"no events":                {`{"object":"` + object + `","entry":[{"id":"700","time":1}]}`, nil},
				"no account":               {`{"object":"` + object + `","entry":[{"messaging":[{"sender":{"id":"5678"},"recipient":{"id":"700"},"message":{"mid":"m_1","text":"x"}}]}]}`, nil},
				"no sender":                {`{"object":"` + object + `","entry":[{"id":"700","messaging":[{"recipient":{"id":"700"},"message":{"mid":"m_1","text":"x"}}]}]}`, nil},
				"ids as numbers, seconds":  {`{"object":"` + object + `","entry":[{"id":700,"messaging":[{"sender":{"id":5678},"recipient":{"id":700},"timestamp":"1763650000","message":{"mid":"m_1","text":"x"}}]}]}`, []platforms.Inbound{{Type: channel, ExternalID: "700", Kind: platforms.Text, Conversation: "5678", Address: "5678", MessageID: "m_1", Text: "x", SentAt: platformtest.Unix(1763650000000)}}},
				"a time that can't be":     {`{"object":"` + object + `","entry":[{"id":"700","messaging":[{"sender":{"id":"5678"},"timestamp":1,"message":{"mid":"m_1","text":"x"}}]}]}`, []platforms.Inbound{{Type: channel, ExternalID: "700", Kind: platforms.Text, Conversation: "5678", Address: "5678", MessageID: "m_1", Text: "x"}}},
				"test of the photo page":   {`{"object":"` + object + `","entry":[{"id":"0","changes":[{"field":"messages","value":{"sender":{"id":"12334"},"recipient":{"id":"23245"},"timestamp":"1763650000","message":{"mid":"random","text":"random text"}}}]}]}`, []platforms.Inbound{{Type: channel, ExternalID: "0", Kind: platforms.Text, Conversation: "12334", Address: "12334", MessageID: "random", Text: "random text", SentAt: platformtest.Unix(1763650000000)}}},
				"a message elsewhere":      {`{"object":"` + object + `","entry":[{"id":"700","changes":[{"field":"standby","value":{"sender":{"id":"5678"},"message":{"mid":"m_1","text":"x"}}}]}]}`, nil},
				"another object's content": {`{"object":"` + object + `","entry":[` + chatAppEntry("1", `{"from":"2","id":"wamid.1","type":"text","text":{"body":"x"}}`) + `]}`, nil},
			})
		})
	}
}

func chatAppEntry(number, messages string) string {
	return `{"id":"waba","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550783881","phone_number_id":"` + number + `"},
		"contacts":[{"profile":{"name":"Lan"},"wa_id":"84901234567","user_id":"US.13491208655302741918"}],"messages":[` + messages + `]}}]}`
}

func TestExtractChatApp(t *testing.T) {
	t.Parallel()
	of := func(content string) string {
		return `{"object":"whatsapp_business_account","entry":[` + chatAppEntry("106", `{"from":"84901234567","id":"wamid.1","timestamp":"1763650000",`+content+`}`) + `]}`
	}
	one := func(kind platforms.Kind, text string) []platforms.Inbound {
		return []platforms.Inbound{{
			Type: ChatApp, ExternalID: "106", Kind: kind, Conversation: "84901234567", Other: &platforms.OtherIDs{Alias: "US.13491208655302741918"}, Address: "84901234567", MessageID: "wamid.1",
			CustomerName: "Lan", Text: text, SentAt: platformtest.Unix(1763650000000),
		}}
	}
	change := func(field, rest string) string {
		return `{"object":"whatsapp_business_account","entry":[{"id":"106","changes":[{"field":"` + field + `","value":{"messaging_product":"whatsapp",` + rest + `}}]}]}`
	}
	edited := func(id, text string) []platforms.Inbound {
		items := one(platforms.Edited, text)
		items[0].MessageID, items[0].CustomerName = id, ""
		return items
	}
	const number = `"metadata":{"display_phone_number":"15550783881","phone_number_id":"106"},`
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":              {of(`"type":"text","text":{"body":"Xin chào"}`), one(platforms.Text, "Xin chào")},
		"template's button": {of(`"type":"button","button":{"text":"Yes","payload":"Y"}`), one(platforms.Text, "Yes")},
		"reply button":      {of(`"type":"interactive","interactive":{"type":"button_reply","button_reply":{"id":"b","title":"Blue"}}`), one(platforms.Text, "Blue")},
		"list":              {of(`"type":"interactive","interactive":{"type":"list_reply","list_reply":{"id":"b","title":"Blue","description":"d"}}`), one(platforms.Text, "Blue")},
		"form":              {of(`"type":"interactive","interactive":{"type":"nfm_reply","nfm_reply":{"response_json":"{}"}}`), one(platforms.Media, "interactive")},
		"form, filled in": {
			of(`"context":{"from":"15550783881","id":"wamid.0"},"type":"interactive","interactive":{"type":"nfm_reply","nfm_reply":{"name":"flow","body":"Sent",` +
				`"response_json":"{\"flow_token\":\"4711\",\"screen_0_City_0\":\"Huế\",\"screen_0_Days_1\":[\"0_Mon\",\"1_Tue\"],\"guests\":4,\"terms\":true,\"note\":null,\"empty\":\"\",\"a b\":{}}"}}`),
			one(platforms.Text, "screen_0_City_0: Huế\nscreen_0_Days_1: 0_Mon, 1_Tue\nguests: 4\nterms: true"),
		},
		"form, unreadable": {of(`"type":"interactive","interactive":{"type":"nfm_reply","nfm_reply":{"response_json":"x"}}`), one(platforms.Media, "interactive")},
		"form, too long": {
			of(`"type":"interactive","interactive":{"type":"nfm_reply","nfm_reply":{"response_json":"{\"a\":\"` + strings.Repeat("ế", platforms.MaxText) + `\",\"b\":\"x\"}"}}`),
			one(platforms.Text, "a: "+strings.Repeat("ế", (platforms.MaxText-len("a: "))/len("ế"))),
		},
		"caption":           {of(`"type":"image","image":{"caption":"This one?","id":"1"}`), platformtest.With(one(platforms.Text, "This one?"), platforms.Attachment{Kind: "image", Reference: "1"})},
		"caption of a file": {of(`"type":"document","document":{"caption":"My order","filename":"o.pdf"}`), one(platforms.Text, "My order")},
		"image":             {of(`"type":"image","image":{"id":"1"}`), platformtest.With(one(platforms.Media, "image"), platforms.Attachment{Kind: "image", Reference: "1"})},
		"video":             {of(`"type":"video","video":{"id":"1"}`), platformtest.With(one(platforms.Media, "video"), platforms.Attachment{Kind: "video", Reference: "1"})},
		"voice":             {of(`"type":"audio","audio":{"id":"1","voice":true}`), platformtest.With(one(platforms.Media, "audio"), platforms.Attachment{Kind: "audio", Reference: "1"})},
		"sticker":           {of(`"type":"sticker","sticker":{"id":"1"}`), platformtest.With(one(platforms.Media, "sticker"), platforms.Attachment{Kind: "sticker", Reference: "1"})},
		"location":          {of(`"type":"location","location":{"name":"Hue"}`), one(platforms.Media, "location")},
		"contacts":          {of(`"type":"contacts","contacts":[{}]`), one(platforms.Media, "contact")},
		"order":             {of(`"type":"order","order":{}`), one(platforms.Media, "order")},
		"order with a note": {
			of(`"type":"order","order":{"catalog_id":"194","text":"Without ice, please","product_items":[{"product_retailer_id":"sku","quantity":2,"item_price":3.5,"currency":"USD"}]}`),
			one(platforms.Text, "Without ice, please"),
		},
		"unsupported":       {of(`"type":"unsupported","errors":[{"code":131051}]`), one(platforms.Media, "unsupported")},
		"reaction":          {of(`"type":"reaction","reaction":{"message_id":"wamid.0","emoji":"😮"}`), nil},
		"reaction removed":  {of(`"type":"reaction","reaction":{"message_id":"wamid.0","emoji":""}`), nil},
		"edit":              {of(`"type":"edit","edit":{"original_message_id":"wamid.0","message":{"type":"text","text":{"body":"without ice"}}},"text":{"body":"x"}`), edited("wamid.0", "without ice")},
		"edit of a caption": {of(`"type":"edit","edit":{"original_message_id":"wamid.0","message":{"type":"image","image":{"caption":"this one","id":"1"}}}`), edited("wamid.0", "this one")},
		"edit without text": {of(`"type":"edit","edit":{"original_message_id":"wamid.0","message":{"type":"image","image":{"id":"1"}}}`), nil},
		"edit of nothing":   {of(`"type":"edit","edit":{"message":{"type":"text","text":{"body":"x"}}}`), nil},
		"edited in the app": {change("smb_message_echoes", number+`"message_echoes":[{"to":"84901234567","id":"wamid.F","type":"edit","edit":{"original_message_id":"wamid.E","message":{"type":"text","text":{"body":"x"}}}}]`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.Edited, Conversation: "84901234567", Address: "84901234567", MessageID: "wamid.E", Text: "x"},
		}},
		"revoke": {of(`"type":"revoke","revoke":{"original_message_id":"wamid.0"}`), []platforms.Inbound{{
			Type: ChatApp, ExternalID: "106", Kind: platforms.Unsent, Conversation: "84901234567", Other: &platforms.OtherIDs{Alias: "US.13491208655302741918"}, Address: "84901234567", MessageID: "wamid.0",
			SentAt: platformtest.Unix(1763650000000),
		}}},
		"revoke of nothing":   {of(`"type":"revoke","revoke":{}`), nil},
		"revoke in a group":   {of(`"group_id":"g1","type":"revoke","revoke":{"original_message_id":"wamid.0"}`), nil},
		"system":              {of(`"type":"system","system":{"body":"Lan changed the number","type":"user_changed_number"}`), nil},
		"a kind of next year": {of(`"type":"hologram","text":{"body":"x"}`), nil},
		"group":               {of(`"group_id":"g1","type":"text","text":{"body":"x"}`), nil},
		"text that is none":   {of(`"type":"text","text":"x"`), nil},
		"no interactive":      {of(`"type":"interactive"`), nil},

		"from itself": {change("messages", number+`"messages":[{"from":"15550783881","id":"wamid.1","type":"text","text":{"body":"x"}}]`), nil},
		"customer by user id": {change("messages", number+`"contacts":[{"profile":{"name":"Lan","username":"lan"},"user_id":"US.1349"}],"messages":[{"from_user_id":"US.1349","id":"wamid.1","type":"text","text":{"body":"x"}}]`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.Text, Conversation: "US.1349", Other: &platforms.OtherIDs{Alias: "US.1349"}, Address: "US.1349", MessageID: "wamid.1", CustomerName: "Lan", Text: "x"},
		}},
		"user id, contact with number": {of(`"from":null,"from_user_id":"US.13491208655302741918","type":"text","text":{"body":"x"}`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.Text, Conversation: "84901234567", Other: &platforms.OtherIDs{Alias: "US.13491208655302741918"}, Address: "US.13491208655302741918", MessageID: "wamid.1", CustomerName: "Lan", Text: "x", SentAt: platformtest.Unix(1763650000000)},
		}},
		"number before user id":     {of(`"from_user_id":"US.13491208655302741918","type":"text","text":{"body":"x"}`), one(platforms.Text, "x")},
		"nobody":                    {change("messages", number+`"messages":[{"id":"wamid.1","type":"text","text":{"body":"x"}}]`), nil},
		"the account is no route":   {change("messages", `"messages":[{"from":"2","id":"wamid.1","type":"text","text":{"body":"x"}}]`), nil},
		"errors only":               {change("messages", number+`"errors":[{"code":130429}]`), nil},
		"template's status":         {change("message_template_status_update", `"event":"APPROVED","message_template_id":1`), nil},
		"echoes of another field":   {change("history", number+`"message_echoes":[{"to":"2","id":"wamid.E","type":"text","text":{"body":"x"}}]`), nil},
		"messages of another field": {change("history", number+`"messages":[{"from":"2","id":"wamid.1","type":"text","text":{"body":"x"}}]`), nil},

		"typed to both ids": {change("smb_message_echoes", number+`"message_echoes":[{"to":"84901234567","to_user_id":"US.1","id":"wamid.E","type":"text","text":{"body":"staff reply"}}]`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.HumanEcho, Conversation: "84901234567", Other: &platforms.OtherIDs{Alias: "US.1"}, Address: "84901234567", MessageID: "wamid.E", Text: "staff reply"},
		}},
		"both ids, no contact": {change("messages", number+`"messages":[{"from":"84901234567","from_user_id":"US.1","id":"wamid.1","type":"text","text":{"body":"x"}}]`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.Text, Conversation: "84901234567", Other: &platforms.OtherIDs{Alias: "US.1"}, Address: "84901234567", MessageID: "wamid.1", Text: "x"},
		}},
		"typed in the app": {change("smb_message_echoes", number+`"message_echoes":[{"from":"15550783881","to":"84901234567","id":"wamid.E","timestamp":"1763650000","type":"text","text":{"body":"staff reply"}}]`), []platforms.Inbound{
			{Type: ChatApp, ExternalID: "106", Kind: platforms.HumanEcho, Conversation: "84901234567", Address: "84901234567", MessageID: "wamid.E", Text: "staff reply", SentAt: platformtest.Unix(1763650000000)},
		}},
		"picture sent in the app":  {change("smb_message_echoes", number+`"message_echoes":[{"to_user_id":"US.1","id":"wamid.E","type":"image","image":{"id":"4711"}}]`), platformtest.With([]platforms.Inbound{{Type: ChatApp, ExternalID: "106", Kind: platforms.HumanEcho, Conversation: "US.1", Other: &platforms.OtherIDs{Alias: "US.1"}, Address: "US.1", MessageID: "wamid.E", Wordless: true, Text: "image"}}, platforms.Attachment{Kind: "image", Reference: "4711"})},
		"taken back in the app":    {change("smb_message_echoes", number+`"message_echoes":[{"from":"15550783881","to":"84901234567","id":"wamid.F","timestamp":"1763650000","type":"revoke","revoke":{"original_message_id":"wamid.E"}}]`), []platforms.Inbound{{Type: ChatApp, ExternalID: "106", Kind: platforms.Unsent, Conversation: "84901234567", Address: "84901234567", MessageID: "wamid.E", SentAt: platformtest.Unix(1763650000000)}}},
		"reaction set in the app":  {change("smb_message_echoes", number+`"message_echoes":[{"to":"2","id":"wamid.E","type":"reaction","reaction":{"emoji":"😮"}}]`), nil},
		"sent to a group":          {change("smb_message_echoes", number+`"message_echoes":[{"to":"2","group_id":"g","id":"wamid.E","type":"text","text":{"body":"x"}}]`), nil},
		"messages among echoes":    {change("smb_message_echoes", number+`"messages":[{"from":"2","id":"wamid.1","type":"text","text":{"body":"x"}}]`), nil},
		"statuses that aren't bad": {change("messages", number+`"statuses":[{"id":"wamid.O","status":"sent","recipient_id":"2"},{"id":"wamid.O","status":"delivered","recipient_id":"2"},{"id":"wamid.O","status":"read","recipient_id":"2"},{"id":"wamid.O","status":"played","recipient_id":"2"},{"id":"wamid.O","status":"deleted","recipient_id":"2"}]`), nil},
	})
}

// TestExtractFailedSends: that a send failed is known only from a status.
func TestExtractFailedSends(t *testing.T) {
	t.Parallel()
	failed := platforms.Inbound{Type: ChatApp, ExternalID: "106", Kind: platforms.FailedDelivery, Conversation: "849", Address: "849", MessageID: "wamid.OUT", SentAt: platformtest.Unix(1763650001000)}
	for errs, class := range map[string]platforms.Class{
		`[{"code":131047,"title":"Re-engagement message"}]`: platforms.TemplateRequired,
		`[{"code":"131047"}]`:                               platforms.TemplateRequired,
		`[{"code":470}]`:                                    platforms.TemplateRequired,
		`[{"code":190}]`:                                    platforms.NeedsReauth,
		`[{"code":131005},{"code":1}]`:                      platforms.NeedsReauth,
		`[{"code":131042,"error_data":{"details":"x"},"href":"https://x"}]`: platforms.NeedsReauth,
		`[{"code":131049,"message":"x"}]`:                                   platforms.Refused,
		`[{"code":130429}]`:                                                 platforms.Retry,
		`[{"code":131000}]`:                                                 platforms.Retry,
		`[]`:                                                                "",
		`null`:                                                              "",
		`"x"`:                                                               "",
	} {
		body := `{"object":"whatsapp_business_account","entry":[{"id":"w","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"106"},
			"statuses":[{"id":"wamid.OUT","status":"failed","timestamp":"1763650001","recipient_id":"849","errors":` + errs + `}]}}]}]}`
		all, err := extract(t, nil, body)
		require.NoError(t, err)
		want := failed
		want.Failure = class
		wanted := []platforms.Inbound{want}
		if class == platforms.NeedsReauth {
			wanted = append(wanted, platforms.Inbound{Type: ChatApp, ExternalID: "106", Kind: platforms.AccessRefused, SentAt: failed.SentAt})
		}
		require.Equal(t, wanted, all, errs)
	}

	body := `{"object":"whatsapp_business_account","entry":[{"id":"w","changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"106"},
		"statuses":[{"id":"wamid.OUT","status":"failed","timestamp":"1763650001","recipient_user_id":"US.1","errors":[{"code":131026}]}]}}]}]}`
	all, err := extract(t, nil, body)
	require.NoError(t, err)
	failed.Conversation, failed.Other, failed.Address, failed.Failure = "US.1", &platforms.OtherIDs{Alias: "US.1"}, "US.1", platforms.CustomerBlocked
	require.Equal(t, []platforms.Inbound{failed}, all, "the queue decides whether it closes the conversation")
}

// TestExtractLateErrors reads statuses as the platform sends them: with the mark of the message, with the code of an account, twice,
// and without a message.
func TestExtractLateErrors(t *testing.T) {
	t.Parallel()
	status := func(mark, code string) string {
		return `{"id":"wamid.HBgLODQ5","status":"failed","timestamp":"1763650001","recipient_id":"849",` + mark + `"errors":[{"code":` + code +
			`,"title":"x","message":"x","error_data":{"details":"x"},"href":"https://developers.facebook.com/docs/whatsapp/cloud-api/support/error-codes/"}]}`
	}
	change := func(members string) string {
		return `{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[{"field":"messages","value":{"messaging_product":"whatsapp",` +
			`"metadata":{"display_phone_number":"15550783881","phone_number_id":"106"},` + members + `}}]}]}`
	}
	failed := func(class platforms.Class, mark string) platforms.Inbound {
		in := platforms.Inbound{
			Type: ChatApp, ExternalID: "106", Kind: platforms.FailedDelivery, Conversation: "849", Address: "849", MessageID: "wamid.HBgLODQ5",
			Failure: class, SentAt: platformtest.Unix(1763650001000),
		}
		if mark != "" {
			in.Other = &platforms.OtherIDs{Mark: mark}
		}
		return in
	}
	refused := platforms.Inbound{Type: ChatApp, ExternalID: "106", Kind: platforms.AccessRefused}
	reported := refused
	reported.SentAt = platformtest.Unix(1763650001000)
	all := func(of ...platforms.Inbound) []platforms.Inbound { return of }
	const mark, foreign = `"biz_opaque_callback_data":"caddy-svc:msg_1.0",`, `"biz_opaque_callback_data":"campaign-7",`
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"window":              {change(`"statuses":[` + status(mark, "131047") + `]`), all(failed(platforms.TemplateRequired, "msg_1.0"))},
		"another's mark":      {change(`"statuses":[` + status(foreign, "131051") + `]`), all(failed(platforms.Refused, ""))},
		"pair rate":           {change(`"statuses":[` + status(mark, "131056") + `]`), all(failed(platforms.Retry, "msg_1.0"))},
		"account locked":      {change(`"statuses":[` + status(mark, "131031") + `]`), all(failed(platforms.NeedsReauth, "msg_1.0"), reported)},
		"payment, twice":      {change(`"statuses":[` + status(mark, "131042") + `,` + status("", "131042") + `]`), all(failed(platforms.NeedsReauth, "msg_1.0"), reported, failed(platforms.NeedsReauth, ""))},
		"without a message":   {change(`"errors":[{"code":131031,"title":"Account locked"}]`), all(refused)},
		"rate, no message":    {change(`"errors":[{"code":130429,"title":"Rate limit hit"}]`), nil},
		"delivered":           {change(`"statuses":[` + strings.Replace(status(mark, "1"), "failed", "delivered", 1) + `]`), nil},
		"quality of a number": {`{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[{"field":"phone_number_quality_update","value":{"display_phone_number":"15550783881","event":"FLAGGED","current_limit":"TIER_10K"}}]}]}`, nil},
		"paused template":     {`{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[{"field":"message_template_status_update","value":{"event":"PAUSED","message_template_id":594425479261596,"message_template_name":"promo","message_template_language":"en","reason":"NONE"}}]}]}`, nil},
	})
}

// TestOneDeliveryManyTenants: each entry, event, change and message goes its own way, in order, whatever its
// neighbours are.
func TestOneDeliveryManyTenants(t *testing.T) {
	t.Parallel()
	body := `{"object":"page","entry":[
		{"id":"700","messaging":[
			{"sender":{"id":"1"},"message":{"mid":"a","text":"one"}},
			{"sender":{"id":"700"},"recipient":{"id":"1"},"message":{"mid":"b","is_echo":true,"text":"two"}},
			{"sender":{"id":"1"},"read":{"watermark":1}},
			{"sender":{"id":2.5},"message":{"mid":"c","text":"odd"}},
			"odd", null, {"message":17},
			{"sender":{"id":"3"},"message":{"mid":"d","text":"three"}}]},
		"odd",
		{"id":"800","messaging":[{"sender":{"id":"1"},"message":{"mid":"a","text":"one"}}]},
		{"id":"700","messaging":[{"sender":{"id":"1"},"message":{"mid":"a","text":"one"}}]}]}`
	all, err := extract(t, nil, body)
	require.NoError(t, err)
	require.Equal(t, []string{"700/1/a/one", "700/1/b/two", "700/3/d/three", "800/1/a/one", "700/1/a/one"}, summary(all))

	body = `{"object":"whatsapp_business_account","entry":[` +
		chatAppEntry("106", `{"from":"1","id":"a","type":"text","text":{"body":"one"}},{"from":"2","id":"b","type":"text","text":{"body":"two"}}`) + `,{"id":"w","changes":[
		{"field":"account_update","value":{"event":"x"}},
		{"field":"messages","value":{"metadata":{"phone_number_id":"107"},"messages":[{"from":"1","id":"c","type":"text","text":{"body":"three"}}]}},
		{"field":"messages","value":{"metadata":{"phone_number_id":"108"},"messages":"odd"}},
		{"field":"messages","value":{"metadata":{"phone_number_id":"106"},"messages":[{"from":"1","id":"d","type":"text","text":{"body":"four"}}],"statuses":[{"id":"o","status":"failed","recipient_id":"1"}]}}]}]}`
	all, err = extract(t, nil, body)
	require.NoError(t, err)
	require.Equal(t, []string{"106/1/a/one", "106/2/b/two", "107/1/c/three", "106/1/d/four", "106/1/o/"}, summary(all))
}

func summary(all []platforms.Inbound) []string {
	lines := make([]string, 0, len(all))
	for _, in := range all {
		lines = append(lines, strings.Join([]string{in.ExternalID, in.Conversation, in.MessageID, in.Text}, "/"))
	}
	return lines
}

// TestLargestDelivery: 1,000 messages of as many tenants come out whole and in order.
func TestLargestDelivery(t *testing.T) {
	t.Parallel()
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprintf("%d/c%d/m%d/text %d", i, i%7+1, i, i))
	}
	all, err := extract(t, nil, string(largestDelivery()))
	require.NoError(t, err)
	require.Equal(t, want, summary(all))
}

func largestDelivery() []byte {
	entries := make([]string, 0, 1000)
	for i := range 1000 {
		entries = append(entries, fmt.Sprintf(`{"id":"%d","time":1763650000123,"messaging":[{"sender":{"id":"c%d"},"recipient":{"id":"%d"},"timestamp":1763650000100,"message":{"mid":"m%d","text":"text %d"}}]}`, i, i%7+1, i, i, i))
	}
	return []byte(`{"object":"page","entry":[` + strings.Join(entries, ",") + `]}`)
}

func TestObjects(t *testing.T) {
	t.Parallel()
	own := map[string]string{"object[page]": "p", "object[photo_dm]": "d", "object[chat_app]": "c"}
	direct := `[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"x"}}]}]`
	chat := `[` + chatAppEntry("1", `{"from":"2","id":"m","type":"text","text":{"body":"x"}}`) + `]`
	for _, c := range []struct {
		object, entry string
		options       map[string]string
		want          platforms.Type
	}{
		{"page", direct, nil, Messenger},
		{"instagram", direct, nil, PhotoDM},
		{"whatsapp_business_account", chat, nil, ChatApp},
		{"p", direct, own, Messenger},
		{"d", direct, own, PhotoDM},
		{"c", chat, own, ChatApp},
		{"d", direct, map[string]string{"object[photo_dm]": "d"}, PhotoDM},
		{"page", direct, map[string]string{"object[photo_dm]": "d"}, Messenger},
	} {
		all, err := extract(t, c.options, `{"object":"`+c.object+`","entry":`+c.entry+`}`)
		require.NoError(t, err)
		require.Len(t, all, 1, c.object)
		require.Equal(t, c.want, all[0].Type, c.object)
	}
	for _, object := range []string{"page", "instagram", "whatsapp_business_account", "user", "permissions", "PAGE", ""} {
		all, err := extract(t, own, `{"object":"`+object+`","entry":`+direct+`}`)
		require.NoError(t, err)
		require.Empty(t, all, object)
	}
}

func extract(t testing.TB, options map[string]string, body string) ([]platforms.Inbound, error) {
	t.Helper()
	return platformtest.New(t, Driver{}, options).Extract([]byte(body))
}

func BenchmarkExtract(b *testing.B) {
	body := largestDelivery()
	platform := platformtest.New(b, Driver{}, nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if all, err := platform.Extract(body); err != nil || len(all) != 1000 {
			b.Fatal(len(all), err)
		}
	}
}
