package dashboard

import (
	"html"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
)

// A person who keeps five pages in sight, each of which asks for its parts every two seconds, and opens one page a second besides, stays below the
// bounds of the API.
func TestPeopleStayBelowTheBoundsOfTheAPI(t *testing.T) {
	t.Parallel()
	const seen, looks, opened = 5, 30, 60
	for _, page := range []string{"/dashboard/wallet", "/dashboard/conversations", "/dashboard/conversations/cnv_1", "/dashboard/knowledge/kb_1"} {
		r := newFixture(t)
		text := r.see(t, page)
		reads := len(r.asked) * opened
		for _, part := range regexp.MustCompile(`data-live="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			r.asked = nil
			require.NotEmpty(t, r.see(t, html.UnescapeString(part[1])))
			reads += len(r.asked) * looks * seen
		}
		for _, one := range r.asked {
			require.Equal(t, http.MethodGet, one.method)
		}
		require.Less(t, reads, endpoint.PersonReadsPerMinute, page)
		t.Logf("%s: %d reads a minute", page, reads)
	}
}
