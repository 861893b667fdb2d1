package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proposed answer is read, changed, sent or discarded on the conversation's page; sent unchanged, it goes out as it was made.
func TestProposedAnswer(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	r.answer("GET /conversations/cnv_1", http.StatusOK, strings.Replace(conversationJSON, `"attention":null`, `"attention":"draft_waiting"`, 1))
	r.answer("GET /conversations/cnv_1/drafts", http.StatusOK, listOf(`{"id":"trn_1","text":"Good day.\n\nTea?","createdAt":"2026-11-21T10:01:00.000Z"}`))
	page := r.see(t, "/dashboard/conversations/cnv_1")
	holds(t, page, "draft-send-text", "Good day.\n\nTea?")
	require.Contains(t, element(t, page, "draft-discard"), `data-confirm="Discard the proposed answer?`)
	require.Contains(t, page, `href="/dashboard/conversations/cnv_1#draft"`)
	require.NotContains(t, page, `id="conversation-retry"`)
	require.NotContains(t, page, "Needs somebody.")

	const send = "/conversations/cnv_1/drafts/trn_1/send"
	r.answer("POST "+send, http.StatusCreated, `{}`)
	for typed, body := range map[string]map[string]any{
		"Good day.\r\n\r\nTea?": {}, "Coffee?": {"text": "Coffee?"},
	} {
		w := r.submit(t, "/dashboard/conversations/cnv_1/draft", url.Values{"draftId": {"trn_1"}, "text": {typed}})
		requireTo(t, w, "/dashboard/conversations/cnv_1", "draft-send")
		require.Equal(t, body, r.last(t, http.MethodPost).body)
	}
	r.refuse("POST "+send, http.StatusConflict, "conflict", "", "This proposed answer doesn't wait any more.")
	refused := r.submit(t, "/dashboard/conversations/cnv_1/draft", url.Values{"draftId": {"trn_1"}, "text": {"My own words"}}).Body.String()
	require.Contains(t, refused, "This proposed answer doesn&#39;t wait any more.")
	holds(t, refused, "draft-send-text", "My own words")

	r.answer("DELETE /conversations/cnv_1/drafts/trn_1", http.StatusNoContent, ``)
	requireTo(t, r.submit(t, "/dashboard/conversations/cnv_1/discard", url.Values{"draftId": {"trn_1"}}), "/dashboard/conversations/cnv_1", "draft-discard")

	// It ended while the page was made.
	r.answer("GET /conversations/cnv_1/drafts", http.StatusOK, listOf())
	require.NotContains(t, r.see(t, "/dashboard/conversations/cnv_1"), `id="draft-send"`)
}
