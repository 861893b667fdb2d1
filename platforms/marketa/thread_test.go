package marketa

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/platformtest"
)

// TestReadThread reads a list of messages as the marketplace's get_message gives it: what the shop's people wrote, with the phone or the
// browser, is a person's; what was sent through the interface, or by the marketplace itself, is not; the buyer's isn't wanted.
func TestReadThread(t *testing.T) {
	t.Parallel()
	message := func(id, fromShop, source, status, text string) string {
		return `{"message_id":"` + id + `","from_id":947151379,"to_id":165105353,"from_shop_id":` + fromShop + `,"to_shop_id":0,"message_type":"text","content":{"text":"` +
			text + `"},"conversation_id":"709122092476686867","created_timestamp":1763650001,"region":"VN","status":"` + status + `","source":"` + source + `","source_content":{},"quoted_msg":null}`
	}
	answer := `{"error":"","message":"","request_id":"x","response":{"messages":[` +
		message("1", "947042923", "ios", "normal", "Size M is here") + "," +
		message("2", "0", "android", "normal", "Size M?") + "," +
		message("3", "947042923", "openapi", "normal", "Our answer") + "," +
		message("4", "947042923", "web", "auto_reply", "We are closed") + "," +
		message("5", "947042923", "server", "normal", "Welcome") + `,7,{"message_id":"6"}],"page_result":{"page_size":25,"next_offset":"1"}}}`
	var asked *url.URL
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	p := platformtest.New(t, Driver{}, map[string]string{"partner_id": "2001234", "partner_key": "key", "api_base": server.URL})
	thread := &platforms.Thread{
		Type: Type, ExternalID: "947042923", Conversation: "709122092476686867", Credentials: platforms.Credentials{platforms.AccessToken: "token"},
	}
	found, err := p.(platforms.ThreadReader).ReadThread(t.Context(), thread)
	require.NoError(t, err)
	want := func(kind platforms.Kind, id, text string) platforms.Inbound {
		return platforms.Inbound{
			Type: Type, ExternalID: "947042923", Kind: kind, Conversation: "709122092476686867", Address: "165105353", Other: &platforms.OtherIDs{Business: "947151379"}, MessageID: id, Text: text,
			SentAt: platformtest.Unix(1763650001000),
		}
	}
	require.Equal(t, []platforms.Inbound{
		want(platforms.HumanEcho, "1", "Size M is here"), want(platforms.AutomaticEcho, "3", "Our answer"),
		want(platforms.AutomaticEcho, "4", "We are closed"), want(platforms.AutomaticEcho, "5", "Welcome"),
	}, found)
	require.Equal(t, "/api/v2/sellerchat/get_message", asked.Path)
	require.Equal(t, "709122092476686867", asked.Query().Get("conversation_id"))
	require.Equal(t, "25", asked.Query().Get("page_size"))
	require.NotEmpty(t, asked.Query().Get("sign"))

	thread.Conversation = "../7"
	asked = nil
	_, err = p.(platforms.ThreadReader).ReadThread(t.Context(), thread)
	require.Error(t, err)
	require.Nil(t, asked, "what is no number is not asked for")
}
