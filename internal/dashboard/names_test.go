package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A customer's name can't turn the text around it: it is shown without controls of the direction of text, and by itself.
func TestCustomersNamesTurnNothing(t *testing.T) {
	t.Parallel()
	r := newBareFixture(t)
	named := strings.Replace(conversationJSON, `"Lan"`, `"\u202eLan\u2066 \u200fA"`, 1)
	r.answer("GET /conversations", http.StatusOK, listOf(named))
	r.answer("GET /conversations/cnv_1", http.StatusOK, named)
	require.Contains(t, r.see(t, "/dashboard/conversations"), "<bdi>Lan A</bdi>")
	for _, path := range []string{"/dashboard/conversations", "/dashboard/conversations/cnv_1"} {
		page := r.see(t, path)
		require.Contains(t, page, "Lan A")
		require.False(t, strings.ContainsAny(page, "\u202e\u2066\u200f"), path)
	}
}
