package social

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestExtractFiles reads the files of messages, as the platform's documentation and production traffic have them. What isn't the
// customer's own, and mentions in stories, isn't fetched.
func TestExtractFiles(t *testing.T) {
	t.Parallel()
	p := platformtest.New(t, Driver{}, nil)
	const link = "https://scontent.xx.fbcdn.net/v/t1.15752-9/1.jpg?_nc_cat=1&oh=03_Q7&oe=6A2B3C4D"
	direct := func(message string) string {
		return `{"object":"page","entry":[{"id":"1001","messaging":[{"sender":{"id":"55"},"recipient":{"id":"1001"},"timestamp":1763650000100,` + message + `}]}]}`
	}
	app := func(message string) string {
		return `{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},` +
			`"messages":[{"from":"84","id":"wamid.1","timestamp":"1763650000",` + message + `}]}}]}]}`
	}
	many := strings.TrimSuffix(strings.Repeat(`{"type":"image","payload":{"url":"`+link+`"}},`, 30), ",")
	var ten []platforms.Attachment
	for range platforms.MaxAttachments {
		ten = append(ten, platforms.Attachment{Kind: "image", Reference: link})
	}
	for name, c := range map[string]struct {
		body string
		want []platforms.Attachment
	}{
		"album": {
			direct(`"message":{"mid":"m","attachments":[{"type":"image","payload":{"url":"` + link + `"}},{"type":"video","payload":{"url":"` + link + `x"}}]}`),
			[]platforms.Attachment{{Kind: "image", Reference: link}, {Kind: "video", Reference: link + "x"}},
		},
		"with a text":      {direct(`"message":{"mid":"m","text":"This?","attachments":[{"type":"file","payload":{"url":"` + link + `"}}]}`), []platforms.Attachment{{Kind: "file", Reference: link}}},
		"sticker":          {direct(`"message":{"mid":"m","attachments":[{"type":"image","payload":{"url":"` + link + `","sticker_id":369239263222822}}]}`), []platforms.Attachment{{Kind: "sticker", Reference: link}}},
		"new sticker type": {direct(`"message":{"mid":"m","attachments":[{"type":"sticker","payload":{"url":"` + link + `","sticker_id":3}}]}`), []platforms.Attachment{{Kind: "sticker", Reference: link}}},
		"too many":         {direct(`"message":{"mid":"m","attachments":[` + many + `]}`), ten},
		"story mention":    {direct(`"message":{"mid":"m","attachments":[{"type":"story_mention","payload":{"url":"` + link + `"}}]}`), nil},
		"shared reel":      {direct(`"message":{"mid":"m","attachments":[{"type":"ig_reel","payload":{"url":"` + link + `"}}]}`), nil},
		"shared post":      {direct(`"message":{"mid":"m","attachments":[{"type":"share","payload":{"url":"` + link + `"}}]}`), nil},
		"no address":       {direct(`"message":{"mid":"m","attachments":[{"type":"image","payload":{"url":7}},{"type":"image"}]}`), nil},
		"too long":         {direct(`"message":{"mid":"m","attachments":[{"type":"image","payload":{"url":"https://a/` + strings.Repeat("a", 2048) + `"}}]}`), nil},
		"echo":             {direct(`"message":{"mid":"m","is_echo":true,"attachments":[{"type":"image","payload":{"url":"` + link + `"}}]}`), []platforms.Attachment{{Kind: "image", Reference: link}}},
		"app image":        {app(`"type":"image","image":{"caption":"This one?","mime_type":"image/jpeg","sha256":"x","id":"1003383421387256"}`), []platforms.Attachment{{Kind: "image", Reference: "1003383421387256"}}},
		"app voice":        {app(`"type":"audio","audio":{"mime_type":"audio/ogg; codecs=opus","id":"5","voice":true}`), []platforms.Attachment{{Kind: "audio", Reference: "5"}}},
		"app document":     {app(`"type":"document","document":{"filename":"Hóa đơn.pdf","id":"6"}`), []platforms.Attachment{{Kind: "file", Reference: "6", Name: "Hóa đơn.pdf"}}},
		"app video":        {app(`"type":"video","video":{"id":"7"}`), []platforms.Attachment{{Kind: "video", Reference: "7"}}},
		"app sticker":      {app(`"type":"sticker","sticker":{"id":"8","animated":false}`), []platforms.Attachment{{Kind: "sticker", Reference: "8"}}},
		"app path":         {app(`"type":"image","image":{"id":"../me"}`), nil},
		"app location":     {app(`"type":"location","location":{"id":"8"}`), nil},
	} {
		items, err := p.Extract([]byte(c.body))
		require.NoError(t, err, name)
		require.Len(t, items, 1, name)
		require.Equal(t, c.want, items[0].Attachments(), name)
		require.NoError(t, Driver{}.Describe().CheckInbound(&items[0]), name)
	}
	// A delivery of many small ones takes little memory.
	one := `{"sender":{"id":"2"},"message":{"mid":"m","attachments":[{"type":"image","payload":{"url":"a://b"}}]}},`
	items, err := p.Extract([]byte(`{"object":"page","entry":[{"id":"1","messaging":[` + strings.TrimSuffix(strings.Repeat(one, 2000), ",") + `]}]}`))
	require.NoError(t, err)
	attached := 0
	for i := range items {
		attached += len(items[i].Attachments())
	}
	require.Len(t, items, 2000)
	require.Equal(t, 1000, attached)
}

// TestLocate: the chat app gives an address that wants the token; nothing else names files by ids.
func TestLocate(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer token":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"token","code":190}}`))
		case r.URL.Path == "/77" && r.URL.Query().Get("phone_number_id") == "106540352242922":
			_, _ = w.Write([]byte(`{"messaging_product":"whatsapp","url":"https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=77","file_size":303833,"id":"77"}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":{"message":"Unsupported get request","code":100,"error_subcode":33}}`))
		}
	}))
	t.Cleanup(server.Close)
	source, _ := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL}).(platforms.MediaSource)
	channel := &platforms.Channel{Type: ChatApp, ExternalID: "106540352242922", Credentials: platforms.Credentials{platforms.AccessToken: "token"}}
	where, err := source.Locate(t.Context(), channel, "77")
	require.NoError(t, err)
	require.Equal(t, platforms.Location{
		Address: "https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=77", Authorization: "Bearer token", Bytes: 303833,
	}, where)
	refused := func(class platforms.Class, channel *platforms.Channel, id string) {
		_, err := source.Locate(t.Context(), channel, id)
		var failure *platforms.Error
		require.ErrorAs(t, err, &failure)
		require.Equal(t, class, failure.Class)
	}
	refused(platforms.Refused, channel, "78")
	refused(platforms.Refused, channel, "../me")
	page := *channel
	page.Type = Messenger
	refused(platforms.Refused, &page, "77")
	ended := *channel
	ended.Credentials = platforms.Credentials{platforms.AccessToken: "other"}
	refused(platforms.NeedsReauth, &ended, "77")
}
