package dashboard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPagesInVietnamese guarantees that no text of a page stays English for a person who reads Vietnamese.
func TestPagesInVietnamese(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	file, err := os.ReadFile("../ui/text/vi.json")
	require.NoError(t, err)
	var catalogue map[string]string
	require.NoError(t, json.Unmarshal(file, &catalogue))
	for _, path := range everyPage() {
		sent := httptest.NewRequest(http.MethodGet, path, nil)
		sent.Header.Set("Accept-Language", "vi-VN,en;q=0.5")
		w := r.serve(t, sent)
		requireGoodPage(t, r.dashboard, path, w)
		require.Contains(t, w.Body.String(), `<html lang="vi"`)
		for _, one := range tags(t, w.Body.String()) {
			for _, shown := range []string{strings.TrimSpace(one.text), one.attributes["aria-label"], one.attributes["data-confirm"]} {
				if translated := catalogue[shown]; translated != "" && translated != shown && len(strings.Fields(shown)) > 1 {
					t.Errorf("%s: %q is English", path, shown)
				}
			}
		}
	}
}

// TestLanguageOfPages guarantees that a person's own choice comes before the browser's, and that refusals are written in it.
func TestLanguageOfPages(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	chosen := func(language string) {
		r.answer("GET /session", http.StatusOK, `{"user":{"id":"usr_1","email":"lan@shop.example","language":`+language+
			`},"organization":{"id":"org_1","name":"Shop"},"role":"owner"}`)
	}
	chosen(`"vi"`)
	page := r.see(t, "/dashboard/account")
	require.Contains(t, page, `<html lang="vi"`)
	require.Contains(t, page, `<option value="vi" selected>Tiếng Việt</option>`)
	r.refuse("PUT /session/password", http.StatusBadRequest, "invalid_request", "password", "password is not valid: expected length >= 12.")
	w := r.submit(t, "/dashboard/account/password", url.Values{"currentPassword": {"a"}, "password": {"b"}})
	requireErrorAt(t, w.Body.String(), "account-password-password", "Ít nhất 12 ký tự.")
	r.answer("PATCH /session", http.StatusOK, `{}`)
	requireTo(t, r.submit(t, "/dashboard/account/language", url.Values{"language": {""}, "scheme": {"dark"}}), "/dashboard/account", "account-language")
	require.Equal(t, map[string]any{"language": nil, "scheme": "dark"}, r.asked[len(r.asked)-1].body)

	chosen(`"en","scheme":"dark"`)
	require.Contains(t, r.see(t, "/dashboard"), `<html lang="en" data-scheme="dark">`)
	require.Contains(t, r.see(t, "/dashboard/account"), `<option value="dark" selected>Dark</option>`)
	sent := httptest.NewRequest(http.MethodGet, "/dashboard/account", nil)
	sent.Header.Set("Accept-Language", "vi")
	require.Contains(t, r.serve(t, sent).Body.String(), `<html lang="en"`)
}
