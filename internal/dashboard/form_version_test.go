package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Saving a form that was changed elsewhere meanwhile shows that, loses nothing, and replaces the change only when saved once more.
func TestStaleForm(t *testing.T) {
	t.Parallel()
	const seen, now = "2026-11-21T10:00:00.000Z", "2026-11-21T10:00:07.000Z"
	for _, c := range []struct {
		path, api, json, form string
		typed                 url.Values
	}{
		{"/dashboard/agents/agt_1", "/agents/agt_1", agentJSON, "agent-edit", url.Values{"name": {"Mai"}, "instructions": {"all new"}, "model": {"echo/a"}}},
		{"/dashboard/channels/chn_1", "/channels/chn_1", channelJSON, "channel-edit", url.Values{"name": {"Page 2"}, "agentId": {""}}},
	} {
		t.Run(c.form, func(t *testing.T) {
			t.Parallel()
			r := newBareFixture(t)
			hidden := func(version string) string { return `<input type="hidden" name="updatedAt" value="` + version + `">` }
			require.Contains(t, r.see(t, c.path), hidden(seen))
			r.answer("PATCH "+c.api, http.StatusOK, c.json)
			r.answer("GET "+c.api, http.StatusOK, strings.Replace(c.json, `"updatedAt":"`+seen, `"updatedAt":"`+now, 1))
			c.typed.Set("updatedAt", seen)

			w := r.submit(t, c.path, c.typed)
			require.Equal(t, http.StatusConflict, w.Code)
			require.Contains(t, w.Body.String(), "Another person changed this meanwhile.")
			element(t, w.Body.String(), c.form+"-error")
			require.Contains(t, w.Body.String(), hidden(now))
			for name, values := range c.typed {
				if name != "updatedAt" {
					holds(t, w.Body.String(), c.form+"-"+name, values[0])
				}
			}
			require.Zero(t, r.count(http.MethodPatch))

			c.typed.Set("updatedAt", now)
			requireTo(t, r.submit(t, c.path, c.typed), c.path, c.form)
			require.NotContains(t, r.last(t, http.MethodPatch).body, "updatedAt")

			r.refuse("PATCH "+c.api, http.StatusBadRequest, "invalid_request", "name", "name is too long.")
			r.answer("GET "+c.api, http.StatusOK, strings.Replace(c.json, `"updatedAt":"`+seen, `"updatedAt":"`+now, 1))
			require.Contains(t, r.submit(t, c.path, c.typed).Body.String(), hidden(now))
			c.typed.Del("updatedAt")
			require.Equal(t, http.StatusBadRequest, r.submit(t, c.path, c.typed).Code, "a form without a version passes")
		})
	}
}
