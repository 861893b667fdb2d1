package marketb

import (
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	const message = `{"data":{"session_id":"100094063_2_1011822749_1_103","message_id":"1zYOS7N0cuIqw96026","content":"{\"txt\": \"hello \\u00e0!\"}","from_account_id":"1891549323","from_account_type":1,
		"send_time":1763650000323,"template_id":1,"to_account_id":"231135951","to_account_type":2,"type":1,"site_id":"VN","process_msg":"","auto_reply":false,"status":0},"shop_id":"20240305","message_type":2}`
	changed := func(old, now string) string { return strings.Replace(message, old, now, 1) }
	one := func(kind platforms.Kind, text string) []platforms.Inbound {
		return []platforms.Inbound{{
			Type: Type, ExternalID: "20240305", Kind: kind, Conversation: "100094063_2_1011822749_1_103", Address: "100094063_2_1011822749_1_103",
			MessageID: "1zYOS7N0cuIqw96026", Text: text, SentAt: platformtest.Unix(1763650000323),
		}}
	}
	hello := one(platforms.Text, "hello à!")
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":                 {message, hello},
		"shop as a number":     {changed(`"shop_id":"20240305"`, `"shop_id":20240305`), hello},
		"seller instead":       {changed(`"shop_id"`, `"seller_id"`), hello},
		"shop before seller":   {changed(`"shop_id"`, `"seller_id":1,"shop_id"`), hello},
		"kinds as strings":     {changed(`"message_type":2`, `"message_type":"2"`), hello},
		"sender as a string":   {changed(`"from_account_type":1`, `"from_account_type":"1"`), hello},
		"content, no string":   {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `{"txt":"hello à!"}`), hello},
		"content, no JSON":     {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `"hello"`), nil},
		"content, no text":     {changed(`\"txt\"`, `\"translateTxt\"`), nil},
		"no status, no type":   {changed(`"type":1,"site_id":"VN","process_msg":"","auto_reply":false,"status":0`, `"x":1`), hello},
		"image":                {changed(`"template_id":1`, `"template_id":3`), one(platforms.Media, "image")},
		"emoji":                {changed(`"template_id":1`, `"template_id":4`), one(platforms.Media, "sticker")},
		"video":                {changed(`"template_id":1`, `"template_id":6`), one(platforms.Media, "video")},
		"item":                 {changed(`"template_id":1`, `"template_id":10006`), one(platforms.Media, "item")},
		"order asked about":    {changed(`"template_id":1`, `"template_id":10007`), one(platforms.Media, "order")},
		"voucher":              {changed(`"template_id":1`, `"template_id":10008`), one(platforms.Media, "voucher")},
		"unknown template":     {changed(`"template_id":1`, `"template_id":99999`), one(platforms.Media, "attachment")},
		"recalled":             {changed(`"status":0`, `"status":1`), one(platforms.Unsent, "")},
		"recalled by the shop": {strings.Replace(changed(`"status":0`, `"status":1`), `"from_account_type":1`, `"from_account_type":2`, 1), one(platforms.Unsent, "")},
		"status of next year":  {changed(`"status":0`, `"status":2`), nil},
		"system":               {changed(`"type":1,`, `"type":2,`), nil},
		"automatic":            {changed(`"auto_reply":false`, `"auto_reply":true`), nil},
		"automatic, a string":  {changed(`"auto_reply":false`, `"auto_reply":"true"`), nil},
		"processed":            {changed(`"process_msg":""`, `"process_msg":"x"`), nil},
		"own":                  {changed(`"from_account_type":1`, `"from_account_type":2`), one(platforms.HumanEcho, "hello à!")},
		"own, automatic":       {strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"auto_reply":false`, `"auto_reply":true`, 1), one(platforms.AutomaticEcho, "hello à!")},
		"video, a file name":   {changed(`"template_id":1,`, `"template_id":6,"content":"{\"txt\":\"clip.mp4\",\"videoId\":\"1\"}",`), one(platforms.Media, "video")},
		"automatic, template":  {strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"auto_reply":false,`, `"auto_reply":true,"template_id":10015,`, 1), one(platforms.AutomaticEcho, "attachment")},
		"sent by nobody":       {changed(`"from_account_type":1`, `"from_account_type":0`), nil},
		"sender unknown":       {changed(`"from_account_type":1,`, ``), nil},
		"no shop":              {changed(`"shop_id"`, `"x"`), nil},
		"no session":           {changed(`"session_id"`, `"x"`), nil},
		"no message id":        {changed(`"message_id"`, `"x"`), nil},
		"session read":         {`{"message_type":19,"seller_id":"20240305","data":{"session_id":"1"}}`, nil},
		"order":                {`{"message_type":0,"seller_id":"20240305","data":{"order_status":"pending"}}`, nil},
		"a type of next year":  {changed(`"message_type":2`, `"message_type":2000`), nil},
		"token expiring":       {`{"message_type":8,"seller_id":20240305,"data":{"message":"x"}}`, []platforms.Inbound{{Type: Type, ExternalID: "20240305", Kind: platforms.TokenExpiring}}},
		"token of nobody":      {`{"message_type":8,"data":{"message":"x"}}`, nil},
	})
}
