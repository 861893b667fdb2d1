package widget

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCleanOrigins(t *testing.T) {
	t.Parallel()
	for text, clean := range map[string]string{
		"https://example.com":            "https://example.com",
		"https://Example.COM/":           "https://example.com",
		"HTTPS://example.com":            "https://example.com",
		"https://example.com:443":        "https://example.com",
		"https://example.com:8443":       "https://example.com:8443",
		"http://localhost:8080":          "http://localhost:8080",
		"http://localhost:80":            "http://localhost",
		"http://127.0.0.1:3000":          "http://127.0.0.1:3000",
		"http://[::1]:3000":              "http://[::1]:3000",
		"http://[0:0::1]":                "http://[::1]",
		"https://xn--bnh-mi-bya.example": "https://xn--bnh-mi-bya.example",
		"https://*.example.com":          "https://*.example.com",
		"https://*.Shop.example.com/":    "https://*.shop.example.com",
	} {
		got, err := cleanOrigin(text)
		require.NoError(t, err, text)
		require.Equal(t, clean, got)
		again, err := cleanOrigin(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again, "a clean origin stays")
	}
	for _, text := range []string{
		"", " ", "*", "null", "example.com", "//example.com", "https://", "https:example.com", "ftp://example.com", "javascript:alert(1)",
		"https://*", "https://*.", "https://*.com", "http://*.example.com", "https://*.example.com:8443", "https://a.*.example.com",
		"https://*.co.uk", "https://*.github.io", "https://*.*.example.com", "https://*example.com", "https://*.127.0.0.1", "https://exa mple.com", "https://example.com/path",
		"https://example.com?", "https://example.com?q=1", "https://example.com#", "https://user@example.com", "https://u:p@example.com",
		"https://example.com:0", "https://example.com:65536", "https://example.com:0443", "https://example.com:", "https://example.com:x",
		"https://bánh.example", "https://example..com", "https://.example.com", "https://example.com.", "https://-a.example",
		"https://a-.example", "https://example.com;script-src *", "https://example.com 'unsafe-inline'", "https://example.com\r\nX: y",
		"https://[fe80::1%25eth0]", "https://under_score.example", "https://" + strings.Repeat("a", 64) + ".example",
		"https://" + strings.Repeat("a.", 150) + "example",
	} {
		_, err := cleanOrigin(text)
		require.Error(t, err, "%q", text)
	}
}

func TestAllowedOrigins(t *testing.T) {
	t.Parallel()
	allowed := []string{"https://shop.vn", "http://localhost:8080", "https://*.example.com"}
	for _, origin := range []string{
		"https://shop.vn", "http://localhost:8080", "https://a.example.com", "https://a.b.example.com", "https://xn--a.example.com",
	} {
		require.True(t, allows(allowed, origin), origin)
	}
	for _, origin := range []string{
		"", "null", "https://evil-example.com", "https://evilexample.com", "https://example.com", "https://.example.com",
		"http://a.example.com", "https://a.example.com:8443", "https://a.example.com.evil.org", "https://example.com.evil.org",
		"https://evil.org/.example.com", "https://evil.org#.example.com", "https://evil.org?.example.com", "https://u@a.example.com",
		"https://evil.org\\.example.com", "https://evil.org .example.com", "https://*.example.com", "https://A.example.com",
		"https://shop.vn/", "https://shop.vn.", "http://shop.vn", "https://SHOP.vn", "https://shop.vn:443", "http://localhost", "http://localhost:80801",
		"https://..example.com", "https://a..example.com",
	} {
		require.False(t, allows(allowed, origin), "%q", origin)
	}
	require.False(t, allows(nil, "https://shop.vn"))
	require.False(t, allows([]string{""}, "https://shop.vn"))
}

// FuzzOrigins: what is allowed by a wildcard is a subdomain, and a clean origin can't break out of a header.
func FuzzOrigins(f *testing.F) {
	for _, text := range []string{"https://a.example.com", "https://evil-example.com", "https://*.example.com", "null", "https://[::1]:1", "http://x:80"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if allows([]string{"https://*.example.com"}, text) {
			require.Regexp(t, `^https://([a-z0-9-]+\.)+example\.com$`, text)
		}
		clean, err := cleanOrigin(text)
		if err != nil {
			return
		}
		require.Regexp(t, `^https?://(\*\.)?(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:[0-9]+)?$`, clean)
		again, err := cleanOrigin(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
		if !strings.Contains(clean, "*") {
			require.True(t, allows([]string{clean}, clean))
		}
	})
}

func TestOriginHeader(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodPost, "http://svc.example:8080/", http.NoBody)
	require.Empty(t, originOf(r))
	r.Header["Origin"] = []string{"https://shop.vn"}
	require.Equal(t, "https://shop.vn", originOf(r))
	r.Header["Origin"] = []string{"https://shop.vn", "https://shop.vn"}
	require.Equal(t, "null", originOf(r))
	require.True(t, fromItself(r, "http://svc.example:8080"))
	require.True(t, fromItself(r, "https://svc.example:8080"), "TLS may end before us")
	for _, origin := range []string{"null", "", "https://svc.example", "https://svc.example:8080.evil.org", "svc.example:8080", "https://"} {
		require.False(t, fromItself(r, origin), origin)
	}
}
