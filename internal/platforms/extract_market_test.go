package platforms

import (
	"strings"
	"testing"
)

func TestExtractMarketA(t *testing.T) {
	t.Parallel()
	const text = `"message_type":"text","content":{"text":"Size M?"}`
	message := func(content string) string {
		return `{"msg_id":"","data":{"type":"message","region":"VN","content":{"message_id":"2302748948493123953","shop_id":165103149,"from_id":165105353,"from_user_name":"buyer_1",
			"to_id":947151379,"to_user_name":"seller_1","conversation_id":"709122092476686867","created_timestamp":1763650001,` + content + `}},"shop_id":947042923,"code":10,"timestamp":1763650002}`
	}
	changed := func(old, now string) string { return strings.Replace(message(text), old, now, 1) }
	one := func(kind Kind, text string) []Inbound {
		return []Inbound{{
			Type: MarketA, ExternalID: "947042923", Kind: kind, Conversation: "709122092476686867", Address: "165105353", MessageID: "2302748948493123953",
			CustomerName: "buyer_1", Text: text, SentAt: unix(1763650001000),
		}}
	}
	echo := one(HumanEcho, "Size M?")
	echo[0].Address, echo[0].CustomerName = "947151379", ""
	expiring := func(shops ...string) []Inbound {
		var all []Inbound
		for _, shop := range shops {
			all = append(all, Inbound{Type: MarketA, ExternalID: shop, Kind: TokenExpiring})
		}
		return all
	}
	requireDelivered(t, ExtractMarketA, map[string]delivered{
		"text":                 {message(text), one(Text, "Size M?")},
		"shop as a string":     {changed(`"shop_id":947042923`, `"shop_id":"947042923"`), one(Text, "Size M?")},
		"seller instead":       {changed(`"shop_id":947042923`, `"seller_id":"947042923"`), one(Text, "Size M?")},
		"shop before seller":   {changed(`"shop_id":947042923`, `"seller_id":1,"shop_id":947042923`), one(Text, "Size M?")},
		"code as a string":     {changed(`"code":10`, `"code":"10"`), one(Text, "Size M?")},
		"ids as numbers":       {changed(`"2302748948493123953"`, `2302748948493123953`), one(Text, "Size M?")},
		"content in a string":  {message(`"message_type":"text","content":"{\"text\":\"Size M?\"}"`), one(Text, "Size M?")},
		"image":                {message(`"message_type":"image","content":{"url":"https://cdn.example/i"}`), one(Media, "image")},
		"item with words":      {message(`"message_type":"item","content":{"item_id":1,"text":"x"}`), one(Media, "item")},
		"no kind":              {message(`"content":{"text":"x"}`), one(Media, "attachment")},
		"text without words":   {message(`"message_type":"text","content":{}`), nil},
		"no shop":              {changed(`"shop_id":947042923`, `"x":0`), nil},
		"no message id":        {changed(`"message_id":"2302748948493123953",`, ``), nil},
		"no customer":          {changed(`"from_id":165105353,`, ``), []Inbound{{Type: MarketA, ExternalID: "947042923", Kind: Text, Conversation: "709122092476686867", MessageID: "2302748948493123953", CustomerName: "buyer_1", Text: "Size M?", SentAt: unix(1763650001000)}}},
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

func TestExtractMarketB(t *testing.T) {
	t.Parallel()
	const message = `{"data":{"session_id":"100094063_2_1011822749_1_103","message_id":"1zYOS7N0cuIqw96026","content":"{\"txt\": \"hello \\u00e0!\"}","from_account_id":"1891549323","from_account_type":1,
		"send_time":1763650000323,"template_id":1,"to_account_id":"231135951","to_account_type":2,"type":1,"site_id":"VN","process_msg":"","auto_reply":false,"status":0},"shop_id":"20240305","message_type":2}`
	changed := func(old, now string) string { return strings.Replace(message, old, now, 1) }
	one := func(kind Kind, text string) []Inbound {
		return []Inbound{{
			Type: MarketB, ExternalID: "20240305", Kind: kind, Conversation: "100094063_2_1011822749_1_103", Address: "100094063_2_1011822749_1_103",
			MessageID: "1zYOS7N0cuIqw96026", Text: text, SentAt: unix(1763650000323),
		}}
	}
	hello := one(Text, "hello à!")
	requireDelivered(t, ExtractMarketB, map[string]delivered{
		"text":                {message, hello},
		"shop as a number":    {changed(`"shop_id":"20240305"`, `"shop_id":20240305`), hello},
		"seller instead":      {changed(`"shop_id"`, `"seller_id"`), hello},
		"shop before seller":  {changed(`"shop_id"`, `"seller_id":1,"shop_id"`), hello},
		"kinds as strings":    {changed(`"message_type":2`, `"message_type":"2"`), hello},
		"sender as a string":  {changed(`"from_account_type":1`, `"from_account_type":"1"`), hello},
		"content, no string":  {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `{"txt":"hello à!"}`), hello},
		"content, no JSON":    {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `"hello"`), nil},
		"content, no text":    {changed(`\"txt\"`, `\"translateTxt\"`), nil},
		"no status, no type":  {changed(`"type":1,"site_id":"VN","process_msg":"","auto_reply":false,"status":0`, `"x":1`), hello},
		"image":               {changed(`"template_id":1`, `"template_id":3`), one(Media, "image")},
		"emoji":               {changed(`"template_id":1`, `"template_id":4`), one(Media, "sticker")},
		"video":               {changed(`"template_id":1`, `"template_id":6`), one(Media, "video")},
		"item":                {changed(`"template_id":1`, `"template_id":10006`), one(Media, "item")},
		"order asked about":   {changed(`"template_id":1`, `"template_id":10007`), one(Media, "order")},
		"voucher":             {changed(`"template_id":1`, `"template_id":10008`), one(Media, "voucher")},
		"unknown template":    {changed(`"template_id":1`, `"template_id":99999`), one(Media, "attachment")},
		"recalled":            {changed(`"status":0`, `"status":1`), nil},
		"system":              {changed(`"type":1,`, `"type":2,`), nil},
		"automatic":           {changed(`"auto_reply":false`, `"auto_reply":true`), nil},
		"automatic, a string": {changed(`"auto_reply":false`, `"auto_reply":"true"`), nil},
		"processed":           {changed(`"process_msg":""`, `"process_msg":"x"`), nil},
		"own":                 {changed(`"from_account_type":1`, `"from_account_type":2`), one(HumanEcho, "hello à!")},
		"own, automatic":      {strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"auto_reply":false`, `"auto_reply":true`, 1), nil},
		"sent by nobody":      {changed(`"from_account_type":1`, `"from_account_type":0`), nil},
		"sender unknown":      {changed(`"from_account_type":1,`, ``), nil},
		"no shop":             {changed(`"shop_id"`, `"x"`), nil},
		"no session":          {changed(`"session_id"`, `"x"`), nil},
		"no message id":       {changed(`"message_id"`, `"x"`), nil},
		"session read":        {`{"message_type":19,"seller_id":"20240305","data":{"session_id":"1"}}`, nil},
		"order":               {`{"message_type":0,"seller_id":"20240305","data":{"order_status":"pending"}}`, nil},
		"a type of next year": {changed(`"message_type":2`, `"message_type":2000`), nil},
		"token expiring":      {`{"message_type":8,"seller_id":20240305,"data":{"message":"x"}}`, []Inbound{{Type: MarketB, ExternalID: "20240305", Kind: TokenExpiring}}},
		"token of nobody":     {`{"message_type":8,"data":{"message":"x"}}`, nil},
	})
}
