package marketa

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	const text = `"message_type":"text","content":{"text":"Size M?"}`
	message := func(content string) string {
		return `{"msg_id":"","data":{"type":"message","region":"VN","content":{"message_id":"2302748948493123953","shop_id":165103149,"from_id":165105353,"from_user_name":"buyer_1",
			"to_id":947151379,"to_user_name":"seller_1","conversation_id":"709122092476686867","created_timestamp":1763650001,` + content + `}},"shop_id":947042923,"code":10,"timestamp":1763650002}`
	}
	changed := func(old, now string) string { return strings.Replace(message(text), old, now, 1) }
	one := func(kind platforms.Kind, text string) []platforms.Inbound {
		return []platforms.Inbound{{
			Type: Type, ExternalID: "947042923", Kind: kind, Conversation: "709122092476686867", Address: "165105353", MessageID: "2302748948493123953",
			CustomerName: "buyer_1", Text: text, Other: &platforms.OtherIDs{Business: "947151379"}, Unsure: true, SentAt: platformtest.Unix(1763650001000),
		}}
	}
	echo := one(platforms.HumanEcho, "Size M?")
	echo[0].Address, echo[0].Other, echo[0].Unsure, echo[0].CustomerName = "947151379", &platforms.OtherIDs{Business: "165105353"}, false, ""
	automatic := slices.Clone(echo)
	automatic[0].Kind = platforms.AutomaticEcho
	expiring := func(shops ...string) []platforms.Inbound {
		var all []platforms.Inbound
		for _, shop := range shops {
			all = append(all, platforms.Inbound{Type: Type, ExternalID: shop, Kind: platforms.TokenExpiring})
		}
		return all
	}
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":                 {message(text), one(platforms.Text, "Size M?")},
		"shop as a string":     {changed(`"shop_id":947042923`, `"shop_id":"947042923"`), one(platforms.Text, "Size M?")},
		"seller instead":       {changed(`"shop_id":947042923`, `"seller_id":"947042923"`), one(platforms.Text, "Size M?")},
		"shop before seller":   {changed(`"shop_id":947042923`, `"seller_id":1,"shop_id":947042923`), one(platforms.Text, "Size M?")},
		"code as a string":     {changed(`"code":10`, `"code":"10"`), one(platforms.Text, "Size M?")},
		"ids as numbers":       {changed(`"2302748948493123953"`, `2302748948493123953`), one(platforms.Text, "Size M?")},
		"content in a string":  {message(`"message_type":"text","content":"{\"text\":\"Size M?\"}"`), one(platforms.Text, "Size M?")},
		"image":                {message(`"message_type":"image","content":{"url":"https://cdn.example/i"}`), platformtest.With(one(platforms.Media, "image"), platforms.Attachment{Kind: "image", Reference: "https://cdn.example/i"})},
		"item with words":      {message(`"message_type":"item","content":{"item_id":1,"text":"x"}`), one(platforms.Media, "item")},
		"no kind":              {message(`"content":{"text":"x"}`), one(platforms.Media, "attachment")},
		"text without words":   {message(`"message_type":"text","content":{}`), nil},
		"no shop":              {changed(`"shop_id":947042923`, `"x":0`), nil},
		"no message id":        {changed(`"message_id":"2302748948493123953",`, ``), nil},
		"no customer":          {changed(`"from_id":165105353,`, ``), []platforms.Inbound{{Type: Type, ExternalID: "947042923", Kind: platforms.Text, Conversation: "709122092476686867", MessageID: "2302748948493123953", Other: &platforms.OtherIDs{Business: "947151379"}, CustomerName: "buyer_1", Text: "Size M?", SentAt: platformtest.Unix(1763650001000)}}},
		"automatic, no sender": {changed(`"shop_id":165103149`, `"status":"offwork_autoreply"`), automatic},
		"notification":         {changed(`"type":"message"`, `"type":"notification"`), nil},
		"bundle":               {changed(`"type":"message"`, `"type":"bundle_message"`), nil},
		"receiver's shop":      {changed(`"shop_id":165103149`, `"shop_id":947042923`), one(platforms.Text, "Size M?")},
		"own, by sender":       {changed(`"shop_id":165103149`, `"from_shop_id":947042923`), echo},
		"authorized":           {`{"code":1,"shop_id":947042923,"data":{"success":1}}`, nil},
		"authorization ended":  {`{"code":2,"shop_id":947042923,"data":{}}`, nil},
		"order":                {`{"code":3,"shop_id":947042923,"data":{"ordersn":"1","status":"READY_TO_SHIP"}}`, nil},
		"news":                 {`{"code":5,"shop_id":947042923,"data":{"actions":[]}}`, nil},
		"a code of next year":  {changed(`"code":10`, `"code":1000`), nil},
		"no code":              {changed(`"code":10`, `"x":10`), nil},
		"expiring shops":       {`{"code":12,"timestamp":1763650002,"data":{"merchant_expire_soon":[1],"shop_expire_soon":[947042923,"42342345656"],"expire_before":1764254802,"page_no":1,"total_page":1}}`, expiring("947042923", "42342345656")},
		"expiring, odd shops":  {`{"code":12,"data":{"shop_expire_soon":[null,{},7]}}`, expiring("7")},
		"expiring, named once": {`{"code":12,"shop_id":947042923,"data":{}}`, expiring("947042923")},
		"expiring, nobody":     {`{"code":12,"data":{"shop_expire_soon":[]}}`, nil},
	})
}

// pushed is a message as the marketplace pushes it since April 2025 (open.shopee.com, webchat_push): shop_id inside the content
// is the receiver's. %-verbs: sender's shop, receiver's shop, status, kind, content.
const pushed = `{"msg_id":"","data":{"type":"message","region":"VN","content":{"message_id":"2302748948493123953","request_id":"8f1c","shop_id":%[2]d,
	"from_id":165105353,"from_user_name":"buyer_1","from_shop_id":%[1]d,"to_id":947151379,"to_user_name":"seller_1","to_shop_id":%[2]d,
	"message_type":%[4]q,"content":%[5]s,"status":%[3]q,"conversation_id":"709122092476686867","created_timestamp":1763650001,"region":"VN",
	"is_in_chatbot_session":false,"source_content":{"item_id":2750045823},"quoted_msg":[],"business_type":0,"sub_account_id":0,"sub_account_name":7}},
	"shop_id":947042923,"code":10,"timestamp":1763650002}`

// The sender's shop alone says whose message it is: a buyer may have a shop, and content.shop_id is the receiver's.
func TestExtractPushed(t *testing.T) {
	t.Parallel()
	const shop, elsewhere = 947042923, 31337
	const words, picture = `{"text":"Size M?"}`, `{"url":"https://cf.shopee.vn/file/1"}`
	push := func(from, to int, status, kind, content string) string {
		return fmt.Sprintf(pushed, from, to, status, kind, content)
	}
	of := func(kind platforms.Kind, text string) platforms.Inbound {
		return platforms.Inbound{
			Type: Type, ExternalID: "947042923", Kind: kind, Conversation: "709122092476686867", Address: "165105353", MessageID: "2302748948493123953",
			CustomerName: "buyer_1", Text: text, Other: &platforms.OtherIDs{Business: "947151379"}, SentAt: platformtest.Unix(1763650001000),
		}
	}
	own := func(kind platforms.Kind, text string, failure platforms.Class) platforms.Inbound {
		in := of(kind, text)
		in.Address, in.Other, in.CustomerName, in.Failure = "947151379", &platforms.OtherIDs{Business: "165105353"}, "", failure
		return in
	}
	all := func(of ...platforms.Inbound) []platforms.Inbound { return of }
	text := all(of(platforms.Text, "Size M?"))
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"buyer without a shop":    {push(0, shop, "normal", "text", words), text},
		"buyer with a shop":       {push(elsewhere, shop, "normal", "text", words), text},
		"to another shop of ours": {push(elsewhere, elsewhere, "normal", "text", words), text},
		"allowed after review":    {push(0, shop, "censored_whitelist", "text", words), text},
		"a status of next year":   {push(0, shop, "hologram", "text", words), text},
		"never reached the shop":  {push(0, shop, "blocked", "text", words), nil},
		"censored":                {push(0, shop, "censored_blacklist", "text", words), nil},
		"image":                   {push(0, shop, "normal", "image", picture), platformtest.With(all(of(platforms.Media, "image")), platforms.Attachment{Kind: "image", Reference: "https://cf.shopee.vn/file/1"})},
		"image with words":        {push(0, shop, "normal", "image_with_text", words), text},
		"image without words":     {push(0, shop, "normal", "image_with_text", picture), platformtest.With(all(of(platforms.Media, "image_with_text")), platforms.Attachment{Kind: "image", Reference: "https://cf.shopee.vn/file/1"})},
		"asks for a person":       {push(0, shop, "normal", "faq_liveagent", `{"text":"Chat with a person","pass_through_data":"x"}`), all(of(platforms.Text, "Chat with a person"))},
		"frequent question":       {push(0, shop, "normal", "faq", words), all(of(platforms.Media, "faq"))},
		"bundle":                  {push(0, shop, "normal", "bundle_message", `{"messages":["1","2"]}`), all(of(platforms.Media, "bundle_message"))},
		"affiliate": {
			strings.Replace(push(0, shop, "normal", "text", words), `"business_type":0`, `"business_type":11`, 1),
			all(of(platforms.Event, "affiliate_message")),
		},
		"a person of the shop":     {push(shop, 0, "user_chat", "text", words), all(own(platforms.HumanEcho, "Size M?", ""))},
		"a person's image":         {push(shop, 0, "web_chat", "image", picture), platformtest.With(platformtest.Wordless(all(own(platforms.HumanEcho, "image", ""))), platforms.Attachment{Kind: "image", Reference: "https://cf.shopee.vn/file/1"})},
		"automatic image":          {push(shop, 0, "auto_reply", "image", picture), platformtest.Wordless(all(own(platforms.AutomaticEcho, "image", "")))},
		"automatic reply":          {push(shop, 0, "auto_reply", "text", words), all(own(platforms.AutomaticEcho, "Size M?", ""))},
		"automatic reply at night": {push(shop, 0, "offwork_autoreply", "text", words), all(own(platforms.AutomaticEcho, "Size M?", ""))},
		"own, never delivered": {
			push(shop, 0, "blocked", "text", words),
			all(own(platforms.FailedDelivery, "", platforms.Refused), own(platforms.HumanEcho, "Size M?", "")),
		},
		"own, censored": {
			push(shop, 0, "censored_blacklist", "text", words),
			all(own(platforms.FailedDelivery, "", platforms.Refused), own(platforms.HumanEcho, "Size M?", "")),
		},
		"answered by the platform": {`{"msg_id":"","code":10,"shop_id":947042923,"timestamp":1763650002,"data":{"type":"notification","region":"VN","content":{"msg_id":null,
			"user_id":165105353,"conversation_id":"709122092476686867","type":"shopee_chatbot_replied"}}}`, nil},
	})
}
