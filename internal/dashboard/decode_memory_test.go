package dashboard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
)

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, dashboardDecoders())
}

// dashboardDecoders are what the pages read by themselves, before an API that reads nothing.
func dashboardDecoders() []handlertest.ForeignDecoder {
	pages := overHTTP(New(Config{Bodies: handlers.NewByteBudget(1 << 30), API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/session" && r.Method == http.MethodGet {
			io.WriteString(w, `{"role":"owner","organization":{"id":"org_1","name":"Shop"},"user":{"id":"usr_1"}}`)
			return
		}
		io.WriteString(w, `{}`)
	})}))
	post := func(path, mediaType string) func(t *testing.T, body string) {
		return func(t *testing.T, body string) {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", mediaType)
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, r)
			require.NotContains(t, []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusMethodNotAllowed}, w.Code)
		}
	}
	fields := func(n int) map[string]string {
		return map[string]string{
			"fields": handlertest.Times(`a`, `&`, n), "few fields": handlertest.Times(`a=b`, `&`, min(n, 3900)), "escaped": "x=" + strings.Repeat("%0a", n/3),
			"one field": "x=" + strings.Repeat("a", n), "names": handlertest.Times("%41", "&", min(n, 3900)), "long name": strings.Repeat("%41", n/3) + "=1",
		}
	}
	part := func(header, content string) string { return "--x\r\n" + header + "\r\n\r\n" + content + "\r\n" }
	const disposition = `Content-Disposition: form-data; name="a"`
	parts := func(n int) map[string]string {
		file := part(`Content-Disposition: form-data; name="file"; filename="a"`, strings.Repeat("\xff", n))
		return map[string]string{
			"a file": file + "--x--\r\n", "a field": part(disposition, strings.Repeat("a", n)) + "--x--\r\n",
			"parts":      handlertest.Times(part(disposition, ""), "", n) + "--x--\r\n",
			"headers":    part(handlertest.Times("a:b", "\r\n", n)+"\r\n"+disposition, "") + "--x--\r\n",
			"parameters": handlertest.Times(part(disposition+strings.Repeat(";a=b", 400), ""), "", n) + "--x--\r\n",
			"no end":     strings.Repeat("--x\r\n", n/5), "open": part(disposition, strings.Repeat("\r\n", n/2)),
		}
	}
	return []handlertest.ForeignDecoder{
		{Name: "a form without a session", Most: 1 << 20, Bodies: fields, Decode: post("/dashboard/login", "application/x-www-form-urlencoded")},
		{Name: "a form", Most: 2 << 20, Bodies: fields, Decode: post("/dashboard/agents", "application/x-www-form-urlencoded")},
		{Name: "a form with files", Most: 8 << 20, Bodies: parts, Decode: post("/dashboard/knowledge/kb_1/documents", "multipart/form-data; boundary=x")},
		{
			Name: "a try of an assistant", Most: 1 << 20, Bodies: handlertest.Within(`{"messages":%}`, `{"messages":[{"role":"user","content":%}]}`, `%`),
			Decode: post("/dashboard/agents/agt_1/playground/stream", "application/json"),
		},
	}
}
