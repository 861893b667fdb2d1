package marketb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestExtractFiles reads the addresses of pictures; videos have none.
func TestExtractFiles(t *testing.T) {
	t.Parallel()
	p := platformtest.New(t, Driver{}, nil)
	for content, want := range map[string][]platforms.Attachment{
		`"template_id":3,"content":"{\"imgUrl\":\"https://sg-live-02.slatic.net/p/0dc6.jpg\",\"width\":100}"`: {{Kind: "image", Reference: "https://sg-live-02.slatic.net/p/0dc6.jpg"}},
		`"template_id":3,"content":"{\"img_url\":\"https://sg-live-02.slatic.net/p/0dc6.jpg\"}"`:              {{Kind: "image", Reference: "https://sg-live-02.slatic.net/p/0dc6.jpg"}},
		`"template_id":3,"content":"{\"imgUrl\":\"0dc6.jpg\"}"`:                                               nil,
		`"template_id":3,"content":"x"`: nil,
		`"template_id":6,"content":"{\"txt\":\"clip.mp4\",\"url\":\"https://example.com/clip.mp4\"}"`: nil,
	} {
		items, err := p.Extract([]byte(`{"shop_id":1,"message_type":2,"data":{"session_id":"s","message_id":"m","from_account_type":1,` + content + `}}`))
		require.NoError(t, err)
		require.Len(t, items, 1, content)
		require.Equal(t, want, items[0].Attachments(), content)
	}
}
