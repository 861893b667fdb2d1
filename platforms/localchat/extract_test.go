package localchat

import (
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	of := func(event, message string) string {
		return `{"event_name":"` + event + `","app_id":"255","sender":{"id":"6142494823000000001"},"recipient":{"id":"3662729599332560487"},"message":` + message + `,"timestamp":"1763650003354","user_id_by_app":"979"}`
	}
	fromUs := func(event, admin, message string) string {
		return `{"event_name":"` + event + `","app_id":"255","sender":{"id":"3662729599332560487"` + admin + `},"recipient":{"id":"6142494823000000001"},"message":` + message + `,"timestamp":"1763650003354"}`
	}
	one := func(kind platforms.Kind, text string) []platforms.Inbound {
		return []platforms.Inbound{{
			Type: Type, ExternalID: "3662729599332560487", Kind: kind, Conversation: "6142494823000000001", Address: "6142494823000000001",
			MessageID: "cb31", Text: text, SentAt: platformtest.Unix(1763650003354),
		}}
	}
	const text = `{"msg_id":"cb31","text":"Chào"}`
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":                {of("user_send_text", text), one(platforms.Text, "Chào")},
		"quoting":             {of("user_send_text", `{"msg_id":"cb31","text":"Chào","quote_msg_id":"1"}`), one(platforms.Text, "Chào")},
		"routed by oa_id":     {`{"event_name":"user_send_text","oa_id":"77","sender":{"id":"5"},"recipient":{"id":"88"},"message":{"msg_id":"m","text":"x"}}`, []platforms.Inbound{{Type: Type, ExternalID: "77", Kind: platforms.Text, Conversation: "5", Address: "5", MessageID: "m", Text: "x"}}},
		"numbers":             {`{"event_name":"user_send_text","sender":{"id":6142494823000000001},"recipient":{"id":3662729599332560487},"message":{"msg_id":"cb31","text":"x"},"timestamp":1763650003354}`, one(platforms.Text, "x")},
		"blank":               {of("user_send_text", `{"msg_id":"cb31","text":" "}`), nil},
		"no text":             {of("user_send_text", `{"msg_id":"cb31"}`), nil},
		"no id":               {of("user_send_text", `{"text":"x"}`), nil},
		"no message":          {of("user_send_text", `null`), nil},
		"no sender":           {`{"event_name":"user_send_text","oa_id":"77","message":{"msg_id":"m","text":"x"}}`, nil},
		"no account":          {`{"event_name":"user_send_text","sender":{"id":"5"},"message":{"msg_id":"m","text":"x"}}`, nil},
		"image":               {of("user_send_image", `{"msg_id":"cb31","attachments":[{"type":"image"}]}`), one(platforms.Event, "image")},
		"image with words":    {of("user_send_image", text), one(platforms.Event, "image")}, // only user_send_text is answered
		"gif":                 {of("user_send_gif", `{"msg_id":"cb31"}`), one(platforms.Event, "image")},
		"sticker":             {of("user_send_sticker", `{"msg_id":"cb31"}`), one(platforms.Event, "sticker")},
		"link":                {of("user_send_link", text), one(platforms.Event, "link")},
		"business card":       {of("user_send_business_card", `{"msg_id":"cb31"}`), one(platforms.Event, "contact")},
		"group":               {of("user_send_group_text", text), nil},
		"group's image":       {of("user_send_group_image", text), nil},
		"a kind of next year": {of("user_send_hologram", text), nil},
		"other case":          {of("USER_SEND_TEXT", text), nil},
		"anonymous":           {of("anonymous_send_text", text), nil},
		"received":            {of("user_received_message", text), nil},
		"seen":                {of("user_seen_message", `{"msg_ids":["cb31"]}`), nil},
		"submitted":           {of("user_submit_info", text), nil},
		"unfollow":            {`{"oa_id":"3662729599332560487","follower":{"id":"6142494823000000001"},"event_name":"unfollow","app_id":"255","timestamp":"1763650003354"}`, nil},
		"quota":               {`{"oaId":"3662729599332560487","event_name":"change_oa_daily_quota","quota":{"prev_value":"1"},"timestamp":"1763650003354"}`, nil},
		"staff wrote":         {fromUs("oa_send_text", `,"admin_id":"1"`, text), one(platforms.HumanEcho, "Chào")},
		"staff sent an image": {fromUs("oa_send_image", `,"admin_id":"1"`, `{"msg_id":"cb31"}`), platformtest.Wordless(one(platforms.HumanEcho, "image"))},
		"sent by no person":   {fromUs("oa_send_text", ``, text), one(platforms.AutomaticEcho, "Chào")},
		"automatic image":     {fromUs("oa_send_image", ``, `{"msg_id":"cb31"}`), platformtest.Wordless(one(platforms.AutomaticEcho, "image"))},
		"reacted":             {of("user_reacted_message", `{"msg_id":"cb31","react_icon":"/-heart"}`), nil},
		"location":            {of("user_send_location", `{"msg_id":"cb31","attachments":[{"type":"location","payload":{"coordinates":{"latitude":"1","longitude":"2"}}}]}`), one(platforms.Event, "location")},
		"withdraws consent": {`{"event_name":"user_withdraw","oa_id":"3662729599332560487","user_id":"6142494823000000001","timestamp":"1763650003354"}`, []platforms.Inbound{{
			Type: Type, ExternalID: "3662729599332560487", Kind: platforms.ErasureWanted, Conversation: "6142494823000000001", Address: "6142494823000000001",
			SentAt: platformtest.Unix(1763650003354),
		}}},
		"withdraws, no account": {`{"event_name":"user_withdraw","user_id":"6142494823000000001","timestamp":"1763650003354"}`, nil},
		"staff wrote a group":   {fromUs("oa_send_group_text", `,"admin_id":"1"`, text), nil},
		"staff, by oa_id": {`{"event_name":"oa_send_text","oa_id":"77","sender":{"id":"88","admin_id":"1"},"recipient":{"id":"5"},"message":{"msg_id":"m","text":"x"}}`, []platforms.Inbound{
			{Type: Type, ExternalID: "77", Kind: platforms.HumanEcho, Conversation: "5", Address: "5", MessageID: "m", Text: "x"},
		}},
	})
}
