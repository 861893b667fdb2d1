package dashboard

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file goes to the customer from the conversation's page, where the channel takes files.
func TestSendFile(t *testing.T) {
	t.Parallel()
	const path = "/dashboard/conversations/cnv_1"
	r := newBareFixture(t)
	page := r.see(t, path)
	require.Contains(t, page, `id="file-create"`)
	require.Contains(t, element(t, page, "file-create-file"), `type="file"`)
	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "social_messenger", "photo_dm", 1))
	require.Contains(t, r.see(t, path), `accept="image/*,audio/*,video/*"`)
	r.answer("GET /channels/chn_1", http.StatusOK, strings.Replace(channelJSON, "social_messenger", "localchat", 1))
	require.NotContains(t, r.see(t, path), `id="file-create"`)

	r = newBareFixture(t)
	r.answer("POST /conversations/cnv_1/messages", http.StatusCreated, `{"id":"msg_9"}`)
	largest := strings.Repeat("x", maxSentFile)
	for name, content := range map[string]string{"cup.png": "\x89PNG\r\n\x1a\n", "large.bin": largest} {
		requireTo(t, r.uploadTo(t, path+"/files", name, content, nil), path, "file-create")
		require.Equal(t, map[string]any{
			"file": map[string]any{"name": name, "content": base64.StdEncoding.EncodeToString([]byte(content))},
		}, r.last(t, http.MethodPost).body)
	}
	for content, message := range map[string]string{"": "Choose a file", largest + "x": "more than 8 MiB"} {
		w := r.uploadTo(t, path+"/files", "x", content, nil)
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), message)
	}
	r.answer("POST /conversations/cnv_1/messages", http.StatusBadRequest,
		`{"error":{"code":"invalid_request","message":"This is no file that it takes.","field":"file","requestId":"req_1"}}`)
	w := r.uploadTo(t, path+"/files", "x", "x", nil)
	require.Contains(t, w.Body.String(), "This is no file that it takes.")
}
