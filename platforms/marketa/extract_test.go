package marketa

import (
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
			CustomerName: "buyer_1", Text: text, SentAt: platformtest.Unix(1763650001000),
		}}
	}
	echo := one(platforms.HumanEcho, "Size M?")
	echo[0].Address, echo[0].CustomerName = "947151379", ""
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
		"image":                {message(`"message_type":"image","content":{"url":"https://cdn.example/i"}`), one(platforms.Media, "image")},
		"item with words":      {message(`"message_type":"item","content":{"item_id":1,"text":"x"}`), one(platforms.Media, "item")},
		"no kind":              {message(`"content":{"text":"x"}`), one(platforms.Media, "attachment")},
		"text without words":   {message(`"message_type":"text","content":{}`), nil},
		"no shop":              {changed(`"shop_id":947042923`, `"x":0`), nil},
		"no message id":        {changed(`"message_id":"2302748948493123953",`, ``), nil},
		"no customer":          {changed(`"from_id":165105353,`, ``), []platforms.Inbound{{Type: Type, ExternalID: "947042923", Kind: platforms.Text, Conversation: "709122092476686867", MessageID: "2302748948493123953", CustomerName: "buyer_1", Text: "Size M?", SentAt: platformtest.Unix(1763650001000)}}},
		"notification":         {changed(`"type":"message"`, `"type":"notification"`), nil},
		"bundle":               {changed(`"type":"message"`, `"type":"bundle_message"`), nil},
		"own, by shop":         {changed(`"shop_id":165103149`, `"shop_id":947042923`), echo},
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
