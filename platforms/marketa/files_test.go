package marketa

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestExtractFiles reads the files of messages as the platform's documentation has them (open.shopee.com, webchat_push): whole addresses
// and names of files, whose address depends on the country.
func TestExtractFiles(t *testing.T) {
	t.Parallel()
	p := platformtest.New(t, Driver{}, nil)
	for content, want := range map[string]string{
		`"region":"VN","message_type":"image","content":{"url":"https://cf.shopee.vn/file/09591ecdc9f1dc7bd507817797d826fe_dynamic","file_server_id":0}`: "https://cf.shopee.vn/file/09591ecdc9f1dc7bd507817797d826fe_dynamic",
		`"region":"ID","message_type":"video","content":{"video_url":"cf03c9e1fe2c0992cdb51c3cb6eab2bd","thumb_url":"6c71_tn"}`:                          "https://cf.shopee.co.id/file/cf03c9e1fe2c0992cdb51c3cb6eab2bd",
		`"region":"??","message_type":"video","content":{"video_url":"cf03c9e1"}`:                                                                        "",
		`"region":"VN","message_type":"video","content":{"video_url":"../cf03"}`:                                                                         "",
		`"region":"VN","message_type":"sticker","content":{"url":"https://cf.shopee.vn/file/1"}`:                                                         "",
		`"region":"VN","message_type":"image","business_type":11,"content":{"url":"https://cf.shopee.vn/file/1"}`:                                        "",
		`"region":"VN","message_type":"item","content":{"item_id":9112503530}`:                                                                           "",
	} {
		items, err := p.Extract([]byte(`{"code":10,"shop_id":123456789,"data":{"type":"message","content":{"message_id":"1","from_id":5,"conversation_id":"7",` + content + `}}}`))
		require.NoError(t, err)
		require.Len(t, items, 1, content)
		if want == "" {
			require.Empty(t, items[0].Attachments(), content)
			continue
		}
		require.Len(t, items[0].Attachments(), 1, content)
		require.Equal(t, want, items[0].Attachments()[0].Reference)
		require.Equal(t, platforms.Media, items[0].Kind)
	}
}
