package bot

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

func TestExtract(t *testing.T) {
	t.Parallel()
	const (
		lan     = `"message_id":501,"from":{"id":1111111,"is_bot":false,"first_name":"Lan","last_name":"N","username":"lan_n","language_code":"vi"},"chat":{"id":1111111,"first_name":"Lan","type":"private"},"date":1763650000`
		private = `"chat":{"id":1111111,"type":"private"},"date":1763650000`
	)
	message := func(kind platforms.Kind, text string) []platforms.Inbound {
		return []platforms.Inbound{{
			Type: Type, Kind: kind, Conversation: "1111111", Address: "1111111", MessageID: "1111111:501",
			CustomerName: "Lan N", Text: text, SentAt: platformtest.Unix(1763650000000),
		}}
	}
	blocked := []platforms.Inbound{{Type: Type, Kind: platforms.Blocked, Conversation: "1111111", Address: "1111111", SentAt: platformtest.Unix(1763650000000)}}
	of := func(rest string) string { return `{"update_id":10001,"message":{` + lan + `,` + rest + `}}` }
	platformtest.RequireDeliveries(t, platformtest.New(t, Driver{}, nil), platformtest.Deliveries{
		"text":                 {of(`"text":"Do you ship to Hue?"`), message(platforms.Text, "Do you ship to Hue?")},
		"command":              {of(`"text":"/start promo42","entities":[{"offset":0,"length":6,"type":"bot_command"}]`), message(platforms.Text, "/start promo42")},
		"reply to a message":   {of(`"text":"this one","reply_to_message":{"message_id":400,"from":{"id":9,"is_bot":true},"text":"Which?"}`), message(platforms.Text, "this one")},
		"forwarded":            {of(`"text":"look","forward_origin":{"type":"user","sender_user":{"id":9,"is_bot":true}}`), message(platforms.Text, "look")},
		"caption of a photo":   {of(`"caption":"This one?","photo":[{"file_id":"a"},{"file_id":"b"}]`), platformtest.With(message(platforms.Text, "This one?"), platforms.Attachment{Kind: "image", Reference: "b"})},
		"text before caption":  {of(`"text":"a","caption":"b"`), message(platforms.Text, "a")},
		"photo":                {of(`"photo":[{"file_id":"a"}]`), platformtest.With(message(platforms.Media, "image"), platforms.Attachment{Kind: "image", Reference: "a"})},
		"first of an album":    {of(`"media_group_id":"13370000000000001","photo":[{"file_id":"a","width":90,"height":67}],"caption":"Which of these?"`), platformtest.With(message(platforms.Text, "Which of these?"), platforms.Attachment{Kind: "image", Reference: "a"})},
		"rest of an album":     {of(`"media_group_id":"13370000000000001","photo":[{"file_id":"b","width":90,"height":67}]`), platformtest.With(message(platforms.Media, "image"), platforms.Attachment{Kind: "image", Reference: "b"})},
		"photo, blank caption": {of(`"photo":[{"file_id":"a"}],"caption":"  "`), platformtest.With(message(platforms.Media, "image"), platforms.Attachment{Kind: "image", Reference: "a"})},
		"animation":            {of(`"animation":{},"document":{}`), message(platforms.Media, "animation")},
		"video note":           {of(`"video_note":{}`), message(platforms.Media, "video")},
		"voice":                {of(`"voice":{"file_id":"a"}`), platformtest.With(message(platforms.Media, "audio"), platforms.Attachment{Kind: "audio", Reference: "a"})},
		"document":             {of(`"document":{"file_id":"a"}`), platformtest.With(message(platforms.Media, "file"), platforms.Attachment{Kind: "file", Reference: "a"})},
		"sticker":              {of(`"sticker":{"emoji":"👍"}`), message(platforms.Media, "sticker")},
		"venue":                {of(`"venue":{},"location":{}`), message(platforms.Media, "location")},
		"contact":              {of(`"contact":{}`), message(platforms.Media, "contact")},
		"poll":                 {of(`"poll":{}`), message(platforms.Media, "poll")},
		"story":                {of(`"story":{}`), message(platforms.Media, "attachment")},
		"service message":      {of(`"new_chat_title":"x"`), nil},
		"no text at all":       {`{"message":{` + lan + `}}`, nil},

		"in a topic of the chat": {of(`"message_thread_id":42,"is_topic_message":true,"text":"x"`), inTopic(message(platforms.Text, "x"), "1111111:42")},
		"in a thread, no topic":  {of(`"message_thread_id":42,"text":"x"`), message(platforms.Text, "x")},
		"in an odd topic":        {of(`"message_thread_id":"4x","is_topic_message":true,"text":"x"`), message(platforms.Text, "x")},
		"id above 2^53": {`{"message":{"message_id":9007199254740993,"from":{"id":9007199254740995},"chat":{"id":9007199254740995,"type":"private"},"text":"x"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "9007199254740995", Address: "9007199254740995", MessageID: "9007199254740995:9007199254740993", Text: "x"},
		}},
		"the same id in another chat": {`{"message":{"message_id":501,"from":{"id":2222222,"first_name":"Minh"},"chat":{"id":2222222,"type":"private"},"date":1763650000,"text":"x"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "2222222", Address: "2222222", MessageID: "2222222:501", CustomerName: "Minh", Text: "x", SentAt: platformtest.Unix(1763650000000)},
		}},
		"user name only, no chat type": {`{"message":{"message_id":1,"from":{"id":5,"username":"five"},"chat":{"id":5},"text":"x"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "5", Address: "5", MessageID: "5:1", CustomerName: "five", Text: "x"},
		}},
		"no chat type, as gateways of the platform write it": {`{"update_id":10077,"message":{"message_id":577,"from":{"is_bot":false,"first_name":"Lan"},"chat":{"id":1111111,"first_name":"Lan"},"date":1763650000,"text":"still open?"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "1111111", Address: "1111111", MessageID: "1111111:577", CustomerName: "Lan", Text: "still open?", SentAt: platformtest.Unix(1763650000000)},
		}},
		"no chat type, written as a string": {`{"message":{"message_id":"1","from":{"id":"6"},"chat":{"id":"5"},"text":"x"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "5", Address: "5", MessageID: "5:1", Text: "x"},
		}},
		"blocked, no chat type": {`{"my_chat_member":{"chat":{"id":1111111},"date":1763650000,"from":{"first_name":"Lan"},"new_chat_member":{"status":"kicked"}}}`, blocked},
		"an odd neighbour field": {`{"update_id":"x","message":{"message_id":1,"from":{"id":5,"first_name":7},"chat":{"id":5,"type":"private"},"date":{},"text":"x"}}`, []platforms.Inbound{
			{Type: Type, Kind: platforms.Text, Conversation: "5", Address: "5", MessageID: "5:1", Text: "x"},
		}},

		"group":                 {`{"message":{"message_id":1,"from":{"id":5},"chat":{"id":-100,"type":"group"},"text":"x"}}`, nil},
		"supergroup":            {`{"message":{"message_id":1,"from":{"id":5},"chat":{"id":-100123,"type":"supergroup"},"text":"@shop_bot x"}}`, nil},
		"group without a type":  {`{"message":{"message_id":1,"from":{"id":5},"chat":{"id":-100},"text":"x"}}`, nil},
		"group of its own id":   {`{"message":{"message_id":1,"from":{"id":-100},"chat":{"id":-100},"text":"x"}}`, nil},
		"kicked, no type":       {`{"my_chat_member":{"chat":{"id":-100},"from":{"id":5},"new_chat_member":{"status":"kicked"}}}`, nil},
		"chat of id 0":          {`{"message":{"message_id":1,"from":{"id":0},"chat":{"id":0},"text":"x"}}`, nil},
		"chat named by letters": {`{"message":{"message_id":1,"from":{"id":"@shop"},"chat":{"id":"@shop"},"text":"x"}}`, nil},
		"group, positive id":    {`{"message":{"message_id":1,"from":{"id":5},"chat":{"id":5,"type":"group"},"text":"x"}}`, nil},
		"another bot":           {`{"message":{"message_id":1,"from":{"id":5,"is_bot":true},"chat":{"id":5,"type":"private"},"text":"x"}}`, nil},
		"another bot, media":    {`{"message":{"message_id":1,"from":{"id":5,"is_bot":true},"chat":{"id":5,"type":"private"},"photo":[{}]}}`, nil},
		"no message id":         {`{"message":{"from":{"id":5},"chat":{"id":5,"type":"private"},"text":"x"}}`, nil},
		"no chat":               {`{"message":{"message_id":1,"from":{"id":5},"text":"x"}}`, nil},
		"edited":                {`{"edited_message":{` + lan + `,"edit_date":1763650100,"text":"x"}}`, message(platforms.Edited, "x")},
		"edited caption":        {`{"edited_message":{` + lan + `,"caption":"x","photo":[{"file_id":"a"}]}}`, message(platforms.Edited, "x")},
		"location that moves":   {`{"edited_message":{` + lan + `,"location":{}}}`, nil},
		"edited in a group":     {`{"edited_message":{"message_id":1,"from":{"id":5},"chat":{"id":-100,"type":"group"},"text":"x"}}`, nil},
		"channel post":          {`{"channel_post":{"message_id":7,"chat":{"id":-1001,"type":"channel"},"text":"x"}}`, nil},
		"edited channel post":   {`{"edited_channel_post":{"message_id":7,"chat":{"id":-1001,"type":"channel"},"text":"x"}}`, nil},
		"business message":      {`{"business_message":{` + lan + `,"text":"x"}}`, nil},
		"guest message":         {`{"guest_message":{` + lan + `,"text":"x"}}`, nil},
		"reaction":              {`{"message_reaction":{` + private + `,"message_id":501,"new_reaction":[{"type":"emoji","emoji":"👍"}]}}`, nil},
		"inline query":          {`{"inline_query":{"id":"1","from":{"id":1111111},"query":"x"}}`, nil},
		"pressed inline button": {`{"callback_query":{"id":"1","from":{"id":1111111},"data":"x","message":{` + lan + `,"text":"x"}}}`, nil},
		"a kind of next year":   {`{"update_id":1,"hologram":{` + lan + `,"text":"x"}}`, nil},

		"blocked":              {`{"my_chat_member":{` + private + `,"from":{"id":1111111},"old_chat_member":{"status":"member"},"new_chat_member":{"status":"kicked","until_date":0}}}`, blocked},
		"unblocked":            {`{"my_chat_member":{` + private + `,"from":{"id":1111111},"old_chat_member":{"status":"kicked"},"new_chat_member":{"status":"member"}}}`, nil},
		"kicked from a group":  {`{"my_chat_member":{"chat":{"id":-100,"type":"group"},"from":{"id":5},"new_chat_member":{"status":"kicked"}}}`, nil},
		"somebody else kicked": {`{"chat_member":{` + private + `,"from":{"id":1111111},"new_chat_member":{"status":"kicked"}}}`, nil},
	})
}

func inTopic(items []platforms.Inbound, address string) []platforms.Inbound {
	items[0].Address = address
	return items
}

// TestTopics answers a question where it was asked, if the customer's chat with the bot has topics.
func TestTopics(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, string(body))
		_, _ = w.Write([]byte(`{"ok":true,"result":{"message_id":502}}`))
	}))
	defer server.Close()
	p := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL})
	credentials := platforms.Credentials{botToken: "110201543:bot-token-0123456789"}
	out := &platforms.Outgoing{Type: Type, Conversation: "1111111", Address: "1111111:42", Text: "hello", Credentials: credentials}
	id, err := p.Send(t.Context(), out)
	require.NoError(t, err)
	require.Equal(t, "1111111:502", id, "ids are the chat's")
	id, err = p.(platforms.FileSender).SendFile(t.Context(), out, &platforms.File{
		Kind: platforms.FileImage, Name: "a.png", MediaType: "image/png", Content: []byte("x"),
	})
	require.NoError(t, err)
	require.Equal(t, "1111111:502", id)
	_ = p.(platforms.Signaler).Signal(t.Context(), &platforms.Signal{Type: Type, Address: "1111111:42", Credentials: credentials})
	out.Address = "1111111"
	_, err = p.Send(t.Context(), out)
	require.NoError(t, err)
	require.JSONEq(t, `{"chat_id":1111111,"message_thread_id":42,"text":"hello"}`, asked[0])
	require.Regexp(t, `(?s)name=chat_id.*\s1111111\s.*name=message_thread_id.*\s42\s.*name=photo`, asked[1])
	require.JSONEq(t, `{"chat_id":1111111,"message_thread_id":42,"action":"typing"}`, asked[2])
	require.JSONEq(t, `{"chat_id":1111111,"text":"hello"}`, asked[3])
}

func BenchmarkExtract(b *testing.B) {
	body := []byte(`{"update_id":10001,"message":{"message_id":501,"from":{"id":1111111,"is_bot":false,"first_name":"Lan","last_name":"N","username":"lan_n","language_code":"vi"},"chat":{"id":1111111,"first_name":"Lan","last_name":"N","username":"lan_n","type":"private"},"date":1763650000,"text":"Hello, do you ship to Hue?"}}`)
	platform := platformtest.New(b, Driver{}, nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if all, err := platform.Extract(body); err != nil || len(all) != 1 {
			b.Fatal(len(all), err)
		}
	}
}
