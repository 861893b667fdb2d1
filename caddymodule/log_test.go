package caddymodule

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logFormat returns the log format of a Caddyfile, or of the source that writes one.
func logFormat(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	found := regexp.MustCompile(`format filter \{\n(?:.+\n)+?\s*\}\n`).Find(text)
	require.NotEmpty(t, found, file)
	return strings.Join(strings.Fields(string(found)), " ")
}

// TestLogFormatIsTheSame guarantees that every Caddyfile of ours has the log format that TestLogShowsNoSecret checks.
func TestLogFormatIsTheSame(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"packaging/Caddyfile", "packaging/compose/front.Caddyfile", "packaging/compose/Caddyfile", "caddymodule/command/init.go"} {
		require.Equal(t, logFormat(t, "../Caddyfile.example"), logFormat(t, "../"+file), file)
	}
}

// exampleLog returns a function that writes an access log's line with the format of Caddyfile.example, wrapped around another format.
func exampleLog(t *testing.T, wrapped string) func(r *http.Request) string {
	t.Helper()
	text, err := os.ReadFile("../Caddyfile.example")
	require.NoError(t, err)
	adapted, err := adapt(strings.Replace(string(text), "format filter {", "format filter {\nwrap "+wrapped, 1))
	require.NoError(t, err)
	var config struct {
		Logging struct {
			Logs map[string]struct {
				Encoder map[string]json.RawMessage `json:"encoder"`
			} `json:"logs"`
		} `json:"logging"`
	}
	require.NoError(t, json.Unmarshal([]byte(adapted), &config))
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	for name, log := range config.Logging.Logs {
		require.Equal(t, config.Logging.Logs["default"].Encoder, log.Encoder, name)
	}
	filter := config.Logging.Logs["default"].Encoder
	require.Equal(t, `"filter"`, string(filter["format"]))
	delete(filter, "format")
	raw, err := json.Marshal(filter)
	require.NoError(t, err)
	loaded, err := ctx.LoadModuleByID("caddy.logging.encoders.filter", raw)
	require.NoError(t, err)
	return func(r *http.Request) string {
		line, err := loaded.(zapcore.Encoder).EncodeEntry(zapcore.Entry{Message: "handled request"}, []zapcore.Field{
			zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r, ShouldLogCredentials: true}), zap.Int("status", 200),
			zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: r.Header, ShouldLogCredentials: true}),
		})
		require.NoError(t, err)
		return line.String()
	}
}

// TestLogShowsNoSecret guarantees that no line of an access log has a key, wherever a client has put it, and that the path stays. Our own
// line about a failed request shows the same part of the path.
func TestLogShowsNoSecret(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "console"} {
		log := exampleLog(t, format)
		for where, plant := range map[string]func(r *http.Request, secret string){
			"a header":             func(r *http.Request, secret string) { r.Header.Set("X-Goog-Api-Key", secret) },
			"not canonical":        func(r *http.Request, secret string) { r.Header["api-KEY"] = []string{secret} },
			"a header's name":      func(r *http.Request, secret string) { r.Header.Set(secret, "x") },
			"Cookie":               func(r *http.Request, secret string) { r.Header.Set("Cookie", "session="+secret) },
			"Referer":              func(r *http.Request, secret string) { r.Header.Set("Referer", "https://a.example/?token="+secret) },
			"?access_token=":       func(r *http.Request, secret string) { r.RequestURI += "?access_token=" + secret },
			"?alone":               func(r *http.Request, secret string) { r.RequestURI += "?" + secret },
			"an encoded query":     func(r *http.Request, secret string) { r.RequestURI += "%3Fkey%3D" + secret },
			"a semicolon":          func(r *http.Request, secret string) { r.RequestURI += ";key=" + secret },
			"no question mark":     func(r *http.Request, secret string) { r.RequestURI += "&key=" + secret },
			"a path in a query":    func(r *http.Request, secret string) { r.RequestURI += "?next=/a/" + secret[:30] },
			"a fragment":           func(r *http.Request, secret string) { r.RequestURI += "#" + secret },
			"a line break":         func(r *http.Request, secret string) { r.RequestURI += "?a=\n" + secret },
			"the path":             func(r *http.Request, secret string) { r.RequestURI += "/" + secret + "/x" },
			"the path and a query": func(r *http.Request, secret string) { r.RequestURI += "/" + secret + "?a=/" + secret[:30] },
			"a user in the path":   func(r *http.Request, secret string) { r.RequestURI += "/u:" + secret[:30] + "@a.example/" },
			"where the line is cut": func(r *http.Request, secret string) {
				r.RequestURI += strings.Repeat("/", 198-len(r.RequestURI)-28) + "/" + secret
			},
			"far behind": func(r *http.Request, secret string) { r.RequestURI += strings.Repeat("/a", 1000) + "/" + secret[:30] },
		} {
			for _, secret := range []string{"sk-5a1f0c9b8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b", "ck_live_" + strings.Repeat("a1B2", 8) + "c3"} {
				r := httptest.NewRequest(http.MethodGet, "/v1/models", nil)
				plant(r, secret)
				for _, text := range []string{log(r), loggedPath(r.RequestURI)} {
					require.NotContains(t, strings.ToLower(text), strings.ToLower(secret[8:28]), where)
					require.Contains(t, text, "/v1/models", where)
				}
			}
		}
		r := httptest.NewRequest(http.MethodGet, "/v1/models", nil)
		r.RequestURI = "http://u:" + planted + "@svc.example/v1/models"
		require.NotContains(t, log(r), planted, "an absolute target")
		require.NotContains(t, loggedPath(r.RequestURI), planted)
	}
}

// TestLogKeepsPaths guarantees that the paths of our routes stay as they are.
func TestLogKeepsPaths(t *testing.T) {
	t.Parallel()
	log := exampleLog(t, "json")
	for _, path := range []string{
		"/", "/v1/chat/completions", "/webhooks/bot/chn_0abcdefghijklmnopqrstuvwxyz", "/dashboard/static/5f3c/app.css", "/v1/models/echo/echo-1",
		"/conversations/cnv_00000000000000000000000000/messages",
	} {
		r := httptest.NewRequest(http.MethodGet, path+"?order=newest", nil)
		require.Contains(t, log(r), `"uri":"`+path+`"`)
		require.Equal(t, path, loggedPath(path))
	}
}

// TestLogForgesNoLine guarantees that line breaks and escapes in a request stay inside one line, and that the line stays short, however
// many headers and whatever target the request has.
func TestLogForgesNoLine(t *testing.T) {
	t.Parallel()
	const forged = "x\r\n{\"level\":\"info\",\"msg\":\"forged\"}\n\x1b[2J"
	for _, format := range []string{"json", "console"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.Host, r.RequestURI = forged, forged, "/"+forged+"?cursor="+forged+strings.Repeat("/a", 1<<19)
		r.Header = http.Header{"User-Agent": {forged}, forged: {forged, strings.Repeat("é", 1<<20)}}
		text := exampleLog(t, format)(r)
		require.Equal(t, len(text)-1, strings.IndexByte(text, '\n'), text)
		require.NotContains(t, text, "\r")
		require.NotContains(t, text, "\x1b[2J")
		require.Less(t, len(text), 2<<10)
	}
}
