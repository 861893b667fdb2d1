package bot

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestExtractFiles reads the files of messages: of a photo the largest size that may be stored.
func TestExtractFiles(t *testing.T) {
	t.Parallel()
	p := platformtest.New(t, Driver{}, nil)
	const sizes = `"photo":[{"file_id":"small","file_size":1493,"width":90},{"file_id":"large","file_size":8388608,"width":1280},{"file_id":"huge","file_size":9388608}]`
	for content, want := range map[string]*platforms.Attachment{
		sizes:                             {Kind: "image", Reference: "large"},
		sizes + `,"caption":"Which one?"`: {Kind: "image", Reference: "large"},
		`"photo":[{"file_id":"a"},{"file_id":"b"}]`:                                      {Kind: "image", Reference: "b"},
		`"voice":{"file_id":"v","mime_type":"audio/ogg","duration":3}`:                   {Kind: "audio", Reference: "v"},
		`"document":{"file_id":"d","file_name":"Hóa đơn.pdf"}`:                           {Kind: "file", Reference: "d", Name: "Hóa đơn.pdf"},
		`"animation":{"file_id":"g","file_name":"a.mp4"},"document":{"file_id":"other"}`: {Kind: "video", Reference: "g", Name: "a.mp4"},
		`"video_note":{"file_id":"n"}`:                                                   {Kind: "video", Reference: "n"},
		`"sticker":{"file_id":"s"}`:                                                      {Kind: "sticker", Reference: "s"},
		`"location":{"latitude":1,"longitude":2}`:                                        nil,
		`"contact":{"file_id":"x"}`:                                                      nil,
		`"voice":{"file_id":{}}`:                                                         nil,
		`"voice":{"file_id":"a b"}`:                                                      nil,
		`"text":"hello"`:                                                                 nil,
	} {
		items, err := p.Extract([]byte(`{"message":{"message_id":1,"from":{"id":5},"chat":{"id":5,"type":"private"},` + content + `}}`))
		require.NoError(t, err)
		require.Len(t, items, 1, content)
		if want == nil {
			require.Empty(t, items[0].Attachments(), content)
		} else {
			require.Equal(t, []platforms.Attachment{*want}, items[0].Attachments(), content)
		}
	}
}

// TestLocate: the platform's path becomes an address below the operator's, or none.
func TestLocate(t *testing.T) {
	t.Parallel()
	path := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/base/bot1:secret/getFile" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"ok":true,"result":{"file_id":"a","file_size":77,"file_path":"` + path + `"}}`))
	}))
	t.Cleanup(server.Close)
	source, _ := platformtest.New(t, Driver{}, map[string]string{"api_base": server.URL + "/base"}).(platforms.MediaSource)
	channel := &platforms.Channel{Type: Type, Credentials: platforms.Credentials{botToken: "1:secret"}}
	path = "photos/file_1.jpg"
	where, err := source.Locate(t.Context(), channel, "a")
	require.NoError(t, err)
	require.Equal(t, platforms.Location{Address: server.URL + "/base/file/bot1:secret/photos/file_1.jpg", Own: true, Bytes: 77}, where)
	for _, path = range []string{"", "/var/lib/bot/a", "../../getMe", "photos/../../x", "http://169.254.169.254/", "a?b", "a%2e%2e"} {
		_, err = source.Locate(t.Context(), channel, "a")
		var failure *platforms.Error
		require.ErrorAs(t, err, &failure, path)
		require.Equal(t, platforms.Unknown, failure.Class)
		require.NotContains(t, err.Error(), "secret")
	}
}
