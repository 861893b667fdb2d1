package logformat

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// plantedKey has the form of a vendor's key, which none of our patterns matches.
const plantedKey = "sk-5a1f0c9b8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b"

// logFormat provisions a format of a log from its JSON form.
func logFormat(t *testing.T, config string) zapcore.Encoder {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	loaded, err := ctx.LoadModuleByID("caddy.logging.encoders.svc", json.RawMessage(config))
	require.NoError(t, err)
	return loaded.(zapcore.Encoder)
}

// logLine is the line that the format writes for some fields, with the request among the fields of the logger itself when with
// is given.
func logLine(t *testing.T, format zapcore.Encoder, message string, with []zapcore.Field, fields ...zapcore.Field) (line map[string]any, text string) {
	t.Helper()
	if with != nil {
		format = format.Clone()
		for _, field := range with {
			field.AddTo(format)
		}
	}
	written, err := format.EncodeEntry(zapcore.Entry{Message: message}, fields)
	require.NoError(t, err)
	text = written.String()
	line = nil
	if strings.HasPrefix(text, "{") {
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
	}
	return line, text
}

// TestLogShowsNoSecret: wherever a client or an error has put a key, no line has it; what helps an operator stays.
func TestLogShowsNoSecret(t *testing.T) {
	t.Parallel()
	ours := "ck_live_" + strings.Repeat("a1B2", 8)
	for name, format := range map[string]string{"json": `{}`, "console": `{"wrap":{"format":"console"}}`, "filter": `{"wrap":{"format":"filter"}}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			encoder := logFormat(t, format)
			for where, plant := range map[string]func(r *http.Request, secret string){
				"Api-Key":                func(r *http.Request, secret string) { r.Header.Set("Api-Key", secret) },
				"X-Goog-Api-Key":         func(r *http.Request, secret string) { r.Header.Set("X-Goog-Api-Key", secret) },
				"X-Api-Key":              func(r *http.Request, secret string) { r.Header.Set("X-Api-Key", secret) },
				"Authorization":          func(r *http.Request, secret string) { r.Header.Set("Authorization", "Bearer "+secret) },
				"Authorization, bare":    func(r *http.Request, secret string) { r.Header.Set("Authorization", secret) },
				"Authorisation":          func(r *http.Request, secret string) { r.Header.Set("Authorisation", secret) },
				"not canonical":          func(r *http.Request, secret string) { r.Header["api-KEY"] = []string{secret} },
				"a header twice":         func(r *http.Request, secret string) { r.Header["Token"] = []string{"x", secret} },
				"a header's name":        func(r *http.Request, secret string) { r.Header.Set(secret, "x") },
				"Cookie":                 func(r *http.Request, secret string) { r.Header.Set("Cookie", "session="+secret) },
				"Referer":                func(r *http.Request, secret string) { r.Header.Set("Referer", "https://a.example/?token="+secret) },
				"Referer's fragment":     func(r *http.Request, secret string) { r.Header.Set("Referer", "https://a.example/#"+secret) },
				"Referer's user":         func(r *http.Request, secret string) { r.Header.Set("Referer", "https://u:"+secret+"@a.example/") },
				"?access_token=":         func(r *http.Request, secret string) { r.RequestURI += "?access_token=" + secret },
				"?key=":                  func(r *http.Request, secret string) { r.RequestURI += "?limit=5&key=" + secret },
				"a parameter twice":      func(r *http.Request, secret string) { r.RequestURI += "?key=x&key=" + secret },
				"?alone":                 func(r *http.Request, secret string) { r.RequestURI += "?" + secret },
				"?padded=":               func(r *http.Request, secret string) { r.RequestURI += "?" + secret + "==" },
				"an encoded name":        func(r *http.Request, secret string) { r.RequestURI += "?%6Bey=" + secret },
				"an encoded query":       func(r *http.Request, secret string) { r.RequestURI += "%3Fkey%3D" + secret },
				"an encoded value":       func(r *http.Request, secret string) { r.RequestURI += "?key=%20" + secret },
				"a semicolon":            func(r *http.Request, secret string) { r.RequestURI += "?limit=5;key=" + secret },
				"no question mark":       func(r *http.Request, secret string) { r.RequestURI += "&key=" + secret },
				"a matrix parameter":     func(r *http.Request, secret string) { r.RequestURI += ";key=" + secret },
				"a nested query":         func(r *http.Request, secret string) { r.RequestURI += "?next=/a?token=" + secret },
				"below a logged name":    func(r *http.Request, secret string) { r.RequestURI += "?limit.x=" + secret },
				"a fragment":             func(r *http.Request, secret string) { r.RequestURI += "#" + secret },
				"a fragment after all":   func(r *http.Request, secret string) { r.RequestURI += "?limit=5#key=" + secret },
				"the path":               func(r *http.Request, secret string) { r.RequestURI += "/" + secret + "/x" },
				"an absolute target":     func(r *http.Request, secret string) { r.RequestURI = "http://u:" + secret + "@svc.example/v1/models" },
				"an address in the path": func(r *http.Request, secret string) { r.RequestURI += "/https://u:" + secret + "@a.example/" },
				"far behind": func(r *http.Request, secret string) {
					r.RequestURI += "?a=" + strings.Repeat("b", maxLoggedURI-10) + "&k=" + secret
				},
			} {
				for _, secret := range []string{plantedKey, ours} {
					r := httptest.NewRequest(http.MethodGet, "/v1/models", nil)
					r.Header.Set("User-Agent", "curl/8.5")
					plant(r, secret)
					request := zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r, ShouldLogCredentials: true})
					for kind, text := range map[string]string{
						"field": second(logLine(t, encoder, "handled request", nil, request, zap.Int("status", 200))),
						"with":  second(logLine(t, encoder, "handled request", []zapcore.Field{request}, zap.Int("status", 200))),
						"path":  second(logLine(t, encoder, "request failed", nil, zap.String("path", r.RequestURI), zap.String("a", "/v1/models curl/8.5"))),
					} {
						require.NotContains(t, strings.ToLower(text), strings.ToLower(secret[8:28]), "%s in %s", where, kind)
						require.Contains(t, text, "/v1/models", where)
						require.Contains(t, text, "curl/8.5", where)
					}
				}
			}
		})
	}
}

func second(_ map[string]any, text string) string { return text }

// TestLogOfTexts: errors, messages and values of any type are cleaned where their form gives a secret away.
func TestLogOfTexts(t *testing.T) {
	t.Parallel()
	encoder := logFormat(t, `{}`)
	address := `Get "https://u:` + plantedKey + `@graph.example/me?fields=id&access_token=` + plantedKey + `": EOF`
	type nested struct{ Addresses []string }
	for name, field := range map[string]zapcore.Field{
		"string":     zap.String("error", address),
		"bytes":      zap.ByteString("error", []byte(address)),
		"error":      zap.Error(errors.New(address)),
		"errors":     zap.Errors("errors", []error{errors.New(address)}),
		"strings":    zap.Strings("addresses", []string{address}),
		"dictionary": zap.Dict("d", zap.String("address", address)),
		"namespace":  zap.Inline(zapcore.ObjectMarshalerFunc(func(o zapcore.ObjectEncoder) error { o.OpenNamespace("n"); o.AddString("a", address); return nil })),
		"reflected":  zap.Any("any", map[string]nested{"a": {[]string{address}}}),
		"objects":    zap.Objects("o", []zapcore.ObjectMarshalerFunc{func(o zapcore.ObjectEncoder) error { o.AddString("a", address); return nil }}),
		"header":     zap.Any("header", http.Header{"X-Api-Key": {plantedKey}, "Location": {"https://graph.example/?access_token=" + plantedKey}}),
		"response":   zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: http.Header{"Set-Cookie": {plantedKey}, "Location": {"https://graph.example/?access_token=" + plantedKey}}}),
		"bot":        zap.String("error", "POST https://graph.example/bot123456:"+plantedKey+"/sendMessage?access_token=x failed"),
		"encoded":    zap.String("error", "no route for graph.example/%3Faccess_token%3D"+plantedKey+"%26access_token="+plantedKey),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, with := range [][]zapcore.Field{nil, {field}} {
				line, text := logLine(t, encoder, "failed: "+address, with, field)
				require.NotContains(t, text, plantedKey[8:28])
				require.Contains(t, text, "graph.example")
				require.Contains(t, text, "access_token=REDACTED")
				require.Equal(t, `failed: Get "https://REDACTED@graph.example/me?fields=REDACTED&access_token=REDACTED": EOF`, line["msg"])
			}
		})
	}
}

// TestLogKeepsWhatHelps: the fields that an operator looks for are in the line as they were sent.
func TestLogKeepsWhatHelps(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/conversations?limit=20&cursor=abc&order=recent&q=where+is+my+tea", nil)
	r.Header = http.Header{
		"User-Agent": {"OpenAI/Python 2.1.0"}, "X-Forwarded-For": {"203.0.113.7", "10.0.0.1"}, "Accept": {"*/*"}, "Referer": {"https://svc.example/dashboard/keys?cursor=a&code=b"},
		"Idempotency-Key": {"order-17"}, "X-Api-Key": {"x"}, "X-Trace-0123456789": {"y"}, "Key+Of/Somebody=": {"z"},
	}
	line, _ := logLine(t, logFormat(t, `{}`), "handled request", nil,
		zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}), zap.Duration("duration", 1), zap.Bool("b", true), zap.Float64("f", 1.5),
		zap.Any("any", map[string]any{"n": 9007199254740993, "null": nil}))
	request := line["request"].(map[string]any)
	require.Equal(t, "/conversations?limit=20&cursor=abc&order=recent&q=REDACTED", request["uri"])
	require.Equal(t, map[string]any{
		"User-Agent": []any{"OpenAI/Python 2.1.0"}, "X-Forwarded-For": []any{"203.0.113.7", "10.0.0.1"}, "Accept": []any{"*/*"},
		"Referer":         []any{"https://svc.example/dashboard/keys?cursor=a&code=REDACTED"},
		"Idempotency-Key": []any{"REDACTED"}, "X-Api-Key": []any{"REDACTED"}, "more": 2.0,
	}, request["headers"])
	require.Equal(t, "192.0.2.1", request["remote_ip"])
	require.Equal(t, map[string]any{"n": 9007199254740993.0, "null": nil}, line["any"])
	require.Equal(t, true, line["b"])
	for _, uri := range []string{
		"/", "*", "/v1/chat/completions", "/webhooks/bot/chn_0abcdefghijklmnopqrstuvwxyz", "/dashboard/static/5f3c/app.css", "",
		"/hubs?hub.mode=subscribe", "https://svc.example:8443/dashboard/", "/conversations/cnv_00000000000000000000000000/messages?order=newest",
	} {
		require.Equal(t, uri, cleanURI(uri))
		require.Equal(t, uri, cleanText(uri))
	}
	for _, text := range []string{"100 % of 5 & 6?", "is it a=b?", "dial tcp 127.0.0.1:5432: connect: connection refused", "/bottles/1:2"} {
		require.Equal(t, text, cleanText(text))
	}
}

// TestLogForgesNoLine: line breaks and escapes that a client puts into its request stay inside one line.
func TestLogForgesNoLine(t *testing.T) {
	t.Parallel()
	const forged = "x\r\n{\"level\":\"info\",\"msg\":\"forged\"}\n\x1b[2J"
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Method, r.Host, r.RequestURI = forged, forged, "/"+forged+"?cursor="+forged
	r.Header = http.Header{"User-Agent": {forged}, "Referer": {forged}, forged: {forged}}
	for _, format := range []string{`{}`, `{"wrap":{"format":"console"}}`} {
		_, text := logLine(t, logFormat(t, format), "handled request", nil,
			zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}), zap.String("error", forged), zap.Error(errors.New(forged)))
		require.Equal(t, len(text)-1, strings.IndexByte(text, '\n'), text)
		require.NotContains(t, text, "\r")
		require.NotContains(t, text, "\x1b[2J")
	}
}

// TestLogIsBounded: a line stays short whatever the request has.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	crowded := http.Header{}
	for i := range 10_000 {
		crowded["X-"+strings.Repeat("a", i%30)+strconv.Itoa(i)] = []string{"x"}
	}
	for name, header := range map[string]http.Header{
		"many headers": crowded, "a long value": {"Accept": {strings.Repeat("é", 1<<20)}}, "many values": {"Via": make([]string, 10_000)},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RequestURI, r.Header = "/"+strings.Repeat("a/", 1<<20)+"?"+strings.Repeat("limit=1&", 1<<20), header
		_, text := logLine(t, logFormat(t, `{}`), "handled request", nil, zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}))
		require.Less(t, len(text), 16<<10, name)
	}
}

// FuzzCleanURI: no value of a parameter that isn't listed is left, however it is written, and cleaning twice changes nothing.
func FuzzCleanURI(f *testing.F) {
	for _, seed := range []string{"", "/a", "/a?", "?&;#", "/%3", "/a%3fb", "http://", "//a@b", "/a?limit=1&x", "/a?b=c#d"} {
		f.Add(seed, "&")
	}
	f.Fuzz(func(t *testing.T, before, sign string) {
		const secret = "QZXJVKWP01234"
		for _, name := range []string{"access_token", "key", "api-key"} {
			uri := before + "?" + sign + name + "=" + secret
			_, query, _ := strings.Cut(uri, "?")
			if strings.Contains(before, secret) || strings.Contains(query, "%") || namesLogged(query) {
				continue // the secret may stand under a listed name
			}
			clean := cleanURI(uri)
			require.NotContains(t, clean, secret, uri)
			require.Equal(t, clean, cleanText(clean))
		}
	})
}

func namesLogged(query string) bool {
	for name := range loggedParameters {
		if strings.Contains(query, name) {
			return true
		}
	}
	return false
}

// BenchmarkLogRequest compares the format with the one that it wraps.
func BenchmarkLogRequest(b *testing.B) {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions?api-version=2026", nil)
	for _, name := range []string{"Authorization", "Accept", "Accept-Encoding", "Content-Type", "Content-Length", "User-Agent", "X-Stainless-Lang", "X-Stainless-Os"} {
		r.Header.Set(name, "some/value of it")
	}
	fields := []zapcore.Field{
		zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}), zap.Duration("duration", 1), zap.Int("status", 200),
		zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"req_1"}}}),
	}
	for _, id := range []string{"svc", "json"} {
		b.Run(id, func(b *testing.B) {
			ctx, cancel := caddy.NewContext(caddy.Context{Context: b.Context()})
			defer cancel()
			loaded, err := ctx.LoadModuleByID("caddy.logging.encoders."+id, json.RawMessage(`{}`))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				line, err := loaded.(zapcore.Encoder).EncodeEntry(zapcore.Entry{Message: "handled request"}, fields)
				if err != nil {
					b.Fatal(err)
				}
				line.Free()
			}
		})
	}
}
