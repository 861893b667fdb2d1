package marketb

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
			MessageID: "100094063_2_1011822749_1_103:1zYOS7N0cuIqw96026", Text: text, SentAt: platformtest.Unix(1763650000323),
		}}
	}
	hello := one(platforms.Text, "hello à!")
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":               {message, hello},
		"shop as a number":   {changed(`"shop_id":"20240305"`, `"shop_id":20240305`), hello},
		"seller instead":     {changed(`"shop_id"`, `"seller_id"`), hello},
		"shop before seller": {changed(`"shop_id"`, `"seller_id":1,"shop_id"`), hello},
		"kinds as strings":   {changed(`"message_type":2`, `"message_type":"2"`), hello},
		"sender as a string": {changed(`"from_account_type":1`, `"from_account_type":"1"`), hello},
		"content, no string": {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `{"txt":"hello à!"}`), hello},
		"content, no JSON":   {changed(`"{\"txt\": \"hello \\u00e0!\"}"`, `"hello"`), nil},
		"content, no text":   {changed(`\"txt\"`, `\"translateTxt\"`), nil},
		"no status, no type": {changed(`"type":1,"site_id":"VN","process_msg":"","auto_reply":false,"status":0`, `"x":1`), hello},
		"image":              {changed(`"template_id":1`, `"template_id":3`), one(platforms.Media, "image")},
		"emoji":              {changed(`"template_id":1`, `"template_id":4`), one(platforms.Media, "sticker")},
		"video":              {changed(`"template_id":1`, `"template_id":6`), one(platforms.Media, "video")},
		"item":               {changed(`"template_id":1`, `"template_id":10006`), one(platforms.Media, "item")},
		"order asked about":  {changed(`"template_id":1`, `"template_id":10007`), one(platforms.Media, "order")},
		"voucher":            {changed(`"template_id":1`, `"template_id":10008`), one(platforms.Media, "voucher")},
		"unknown template":   {changed(`"template_id":1`, `"template_id":99999`), one(platforms.Media, "attachment")},
		"recalled":           {changed(`"status":0`, `"status":1`), one(platforms.Unsent, "")},
		"recalled elsewhere": {strings.Replace(changed(`"status":0`, `"status":1`), `100094063_2_1011822749_1_103`, `7`, 1), []platforms.Inbound{{
			Type: Type, ExternalID: "20240305", Kind: platforms.Unsent, Conversation: "7", Address: "7", MessageID: "7:1zYOS7N0cuIqw96026",
			SentAt: platformtest.Unix(1763650000323),
		}}},
		"recalled by the shop": {strings.Replace(changed(`"status":0`, `"status":1`), `"from_account_type":1`, `"from_account_type":2`, 1), one(platforms.Unsent, "")},
		"status of next year":  {changed(`"status":0`, `"status":2`), nil},
		"system":               {changed(`"type":1,`, `"type":2,`), nil},
		"automatic":            {changed(`"auto_reply":false`, `"auto_reply":true`), nil},
		"automatic, a string":  {changed(`"auto_reply":false`, `"auto_reply":"true"`), nil},
		"processed":            {changed(`"process_msg":""`, `"process_msg":"x"`), nil},
		"own":                  {changed(`"from_account_type":1`, `"from_account_type":2`), one(platforms.HumanEcho, "hello à!")},
		"own, automatic":       {strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"auto_reply":false`, `"auto_reply":true`, 1), one(platforms.AutomaticEcho, "hello à!")},
		"video, a file name":   {changed(`"template_id":1,`, `"template_id":6,"content":"{\"txt\":\"clip.mp4\",\"videoId\":\"1\"}",`), one(platforms.Media, "video")},
		"automatic, template":  {strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"auto_reply":false,`, `"auto_reply":true,"template_id":10015,`, 1), platformtest.Wordless(one(platforms.AutomaticEcho, "attachment"))},
		"own picture": {
			strings.Replace(changed(`"from_account_type":1`, `"from_account_type":2`), `"template_id":1,`, `"template_id":3,"content":"{\"imgUrl\":\"https://sg-live-02.slatic.net/p/0dc6.jpg\"}",`, 1),
			platformtest.With(platformtest.Wordless(one(platforms.HumanEcho, "image")), platforms.Attachment{Kind: "image", Reference: "https://sg-live-02.slatic.net/p/0dc6.jpg"}),
		},
		"sent by nobody":      {changed(`"from_account_type":1`, `"from_account_type":0`), nil},
		"sender unknown":      {changed(`"from_account_type":1,`, ``), nil},
		"no shop":             {changed(`"shop_id"`, `"x"`), nil},
		"no session":          {changed(`"session_id"`, `"x"`), nil},
		"no message id":       {changed(`"message_id"`, `"x"`), nil},
		"session read":        {`{"message_type":19,"seller_id":"20240305","data":{"session_id":"1"}}`, nil},
		"order":               {`{"message_type":0,"seller_id":"20240305","data":{"order_status":"pending"}}`, nil},
		"a type of next year": {changed(`"message_type":2`, `"message_type":2000`), nil},
		"token expiring":      {`{"message_type":8,"seller_id":20240305,"data":{"message":"x"}}`, []platforms.Inbound{{Type: Type, ExternalID: "20240305", Kind: platforms.TokenExpiring}}},
		"token of nobody":     {`{"message_type":8,"data":{"message":"x"}}`, nil},
	})
}

// TestMessageIDs: the platform's ids of messages are unique within their session only. What was sent has the same id as its echo, and
// the signal that it was read names the platform's own.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	var asked url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm() == nil {
			asked = r.Form
		}
		_, _ = w.Write([]byte(`{"code":"0","data":{"message_id":"1zYOS7N0cuIqw96026"}}`))
	}))
	defer server.Close()
	p := platformtest.New(t, Driver{}, map[string]string{"app_key": "123456", "app_secret": "secret", "api_base": server.URL})
	credentials := platforms.Credentials{platforms.AccessToken: "access-0123456789"}
	id, err := p.Send(t.Context(), &platforms.Outgoing{Type: Type, ExternalID: "20240305", Address: "100094063", Text: "hello", Credentials: credentials})
	require.NoError(t, err)
	require.Equal(t, "100094063:1zYOS7N0cuIqw96026", id)
	echo, err := p.Extract([]byte(`{"message_type":2,"shop_id":"20240305","data":{"session_id":"100094063","message_id":"1zYOS7N0cuIqw96026",
		"from_account_type":2,"template_id":1,"content":{"txt":"hello"}}}`))
	require.NoError(t, err)
	require.Equal(t, id, echo[0].MessageID)
	require.NoError(t, p.(platforms.Signaler).Signal(t.Context(), &platforms.Signal{
		Type: Type, ExternalID: "20240305", Conversation: "100094063", Address: "100094063", MessageID: id, Credentials: credentials,
	}))
	require.Equal(t, "1zYOS7N0cuIqw96026", asked.Get("last_read_message_id"))
}
