package handlers

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/caddy-svc/caddy-svc/internal/platforms"
)

const (
	// mostMemory is how many bytes a decoder may take for each byte of a body, all that it throws away counted, too.
	mostMemory = 8
	// withFramework is mostMemory for the endpoint groups: the race detector drops the framework's pooled buffers, which then
	// count anew. Without it the whole stays below mostMemory.
	withFramework = 12
	// anyRequest is what a request takes however small it is.
	anyRequest = 256 << 10
)

// requireFrugal runs decode and requires that it allocates no more than its share for a body of n bytes.
func requireFrugal(t *testing.T, name string, most, n int, decode func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	decode()
	runtime.ReadMemStats(&after)
	took := after.TotalAlloc - before.TotalAlloc
	t.Logf("%s: %d bytes take %d, %.1f times", name, n, took, float64(took)/float64(n))
	if took > uint64(most*n+anyRequest) {
		t.Errorf("%s: %d bytes take %d", name, n, took)
	}
}

// times is about n bytes of a piece, with a separator.
func times(piece, separator string, n int) string {
	return strings.TrimSuffix(strings.Repeat(piece+separator, n/(len(piece)+len(separator))), separator)
}

// names are members with distinct short names, about n bytes of them.
func names(n int, value string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for rest := i; ; rest /= len(letters) {
			b.WriteByte(letters[rest%len(letters)])
			if rest < len(letters) {
				break
			}
		}
		b.WriteString(`":` + value)
	}
	return b.String()
}

// hostile are values that a parser into trees makes many times as large.
func hostile(n int) map[string]string {
	return map[string]string{
		"empty arrays":  `[` + times(`[]`, `,`, n) + `]`,
		"empty objects": `[` + times(`{}`, `,`, n) + `]`,
		"small objects": `[` + times(`{"a":{}}`, `,`, n) + `]`,
		"numbers":       `[` + times(`1`, `,`, n) + `]`,
		"large numbers": `[` + times(`1e17`, `,`, n) + `]`,
		"texts":         `[` + times(`""`, `,`, n) + `]`,
		"short texts":   `[` + times(`"ab"`, `,`, n) + `]`,
		"deep":          `[` + times(strings.Repeat(`[`, 50)+strings.Repeat(`]`, 50), `,`, n) + `]`,
		"names":         `{` + names(min(n, 600_000), `1`) + `}`,
		"some names":    `[` + times(`{`+names(700, `1`)+`}`, `,`, n) + `]`,
		"objects":       `{` + names(min(n, 600_000), `{}`) + `}`,
		"one text":      `"` + strings.Repeat("a", n) + `"`,
		"escapes":       `"` + strings.Repeat(`\u00e0`, n/6) + `"`,
		"white space":   strings.Repeat(" ", n) + "1",
	}
}

func TestDecodingChatsIsFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const n = 4 << 20
	const valid = `"model":"m","messages":[{"role":"user","content":"x"}]`
	bodies := map[string]string{
		"small messages":   `{"model":"m","messages":[` + times(`{"role":"user","content":""}`, `,`, 29*MaxMessages) + `]}`,
		"too many":         `{"model":"m","messages":[` + times(`{"role":"user","content":""}`, `,`, n) + `]}`,
		"faulty messages":  `{"model":"m","messages":[` + times(`{}`, `,`, n) + `]}`,
		"no messages":      `{"model":"m","messages":[` + times(`1`, `,`, n) + `]}`,
		"stops":            `{` + valid + `,"stop":[` + times(`""`, `,`, 3*MaxMessages) + `]}`,
		"too many stops":   `{` + valid + `,"stop":[` + times(`"ab"`, `,`, n) + `]}`,
		"faulty stops":     `{` + valid + `,"stop":[` + times(`1`, `,`, n) + `]}`,
		"names of members": `{` + valid + `,` + names(600_000, `1`) + `}`,
	}
	for name, value := range hostile(n) {
		bodies["unknown: "+name] = `{` + valid + `,"x":` + value + `}`
		bodies["content: "+name] = `{"model":"m","messages":[{"role":"user","content":` + value + `}]}`
		bodies["model: "+name] = `{"model":` + value + `}`
	}
	for name, body := range bodies {
		text := []byte(body)
		requireFrugal(t, name, mostMemory, len(text), func() { _, _ = DecodeChat(text) })
	}
}

func TestDecodingGroupsIsFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	o := newOffice(t)
	const n = MaxAPIBody - 1000
	for name, value := range hostile(n) {
		for _, body := range []string{
			`{"name":"Lan","model":"none","x":` + value + `}`, `{"name":` + value + `}`, `{"model":"none","knowledgeBaseIds":` + value + `}`,
		} {
			requireFrugal(t, name, withFramework, len(body), func() {
				served(o.Serve, request(http.MethodPost, "/agents", "owner", body))
			})
		}
		for _, body := range []string{`{"messages":` + value + `}`, `{"messages":[{"role":"user","content":` + value + `}]}`} {
			requireFrugal(t, "playground: "+name, withFramework, len(body), func() {
				served(o.Serve, request(http.MethodPost, "/agents/agt_none/playground", "owner", body))
			})
		}
	}
}

func TestExtractingDeliveriesIsFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	const n = 1 << 20
	extractors := map[string]func([]byte) ([]platforms.Inbound, error){
		"bot": platforms.ExtractBot, "localchat": platforms.ExtractLocalChat, "market a": platforms.ExtractMarketA, "market b": platforms.ExtractMarketB,
		"social": func(body []byte) ([]platforms.Inbound, error) {
			return platforms.ExtractSocial(body, platforms.Objects{})
		},
	}
	for platform, extract := range extractors {
		for name, value := range hostile(n) {
			for _, body := range []string{
				`{"x":` + value + `}`, `{"message":` + value + `}`, `{"message":{"text":` + value + `,"chat":` + value + `}}`,
				`{"object":"page","entry":` + value + `}`, `{"object":"page","entry":[{"messaging":` + value + `}]}`,
				`{"object":"page","entry":[{"changes":` + value + `}]}`,
				`{"object":"whatsapp_business_account","entry":[{"changes":[{"value":{"messages":` + value + `}}]}]}`,
				`{"code":10,"data":` + value + `}`, `{"code":10,"data":{"content":` + value + `}}`, `{"timestamp":` + value + `}`,
			} {
				text := []byte(body)
				requireFrugal(t, platform+": "+name+" in "+body[:min(40, len(body))], mostMemory, len(text), func() { _, _ = extract(text) })
			}
		}
	}
}
