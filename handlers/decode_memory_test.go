package handlers

import (
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/dashboard"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/verify"
)

const (
	// mostMemory is how many bytes a decoder may take for each byte of a body, all that it throws away counted, too.
	mostMemory = 8
	// anyRequest is what a request takes however small it is.
	anyRequest = 256 << 10
	// mostRuns is how often a body is decoded until one run takes no more than it may. What counts is what a decoder builds
	// each time, not the pooled buffers that a run may have to make anew: the race detector drops a quarter of them.
	mostRuns = 30
)

// requireFrugal requires that decode allocates no more than its share for a body of n bytes.
func requireFrugal(t *testing.T, name string, n int, decode func()) {
	t.Helper()
	least := uint64(math.MaxUint64)
	for range mostRuns {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decode()
		runtime.ReadMemStats(&after)
		if least = min(least, after.TotalAlloc-before.TotalAlloc); least <= uint64(mostMemory*n+anyRequest) {
			return
		}
	}
	t.Errorf("%s: %d bytes take %d, %.1f times", name, n, least, float64(least)/float64(n))
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

// foreignDecoder is a decoder of bytes that come from outside the product.
type foreignDecoder struct {
	name string
	// most is the largest body that it is given, in bytes.
	most int
	// bodies are hostile ones of about n bytes.
	bodies func(n int) map[string]string
	decode func(t *testing.T, body string)
}

// within puts each hostile value in place of % in each frame.
func within(frames ...string) func(n int) map[string]string {
	return func(n int) map[string]string {
		bodies := map[string]string{}
		for name, value := range hostile(n) {
			for _, frame := range frames {
				bodies[name+" in "+frame[:min(len(frame), 60)]] = strings.Replace(frame, "%", value, 1)
			}
		}
		return bodies
	}
}

// TestDecodersAreFrugal feeds every decoder of what others send with what a parser into trees makes many times as large.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	var all []foreignDecoder
	all = append(all, chatDecoders()...)
	all = append(all, groupDecoders(t)...)
	all = append(all, deliveryDecoders()...)
	all = append(all, visitorDecoders(t)...)
	all = append(all, dashboardDecoders()...)
	all = append(all, vendorDecoders(t)...)
	for i := range all {
		d := &all[i]
		t.Run(d.name, func(t *testing.T) { //nolint:paralleltest // as above
			for _, size := range []int{64 << 10, 512 << 10} {
				n := min(size, d.most)
				for shape, body := range d.bodies(n) {
					if len(body) > d.most {
						continue
					}
					requireFrugal(t, shape, len(body), func() { d.decode(t, body) })
				}
				if n < size {
					break
				}
			}
		})
	}
}

func chatDecoders() []foreignDecoder {
	const valid = `"model":"m","messages":[{"role":"user","content":"x"}]`
	return []foreignDecoder{{
		name: "chat", most: MaxChatBody, decode: func(_ *testing.T, body string) { _, _ = DecodeChat([]byte(body)) },
		bodies: func(n int) map[string]string {
			bodies := within(`{`+valid+`,"x":%}`, `{"model":"m","messages":[{"role":"user","content":%}]}`, `{"model":%}`, `{"messages":%}`, `{"stop":%}`)(n)
			maps.Copy(bodies, map[string]string{
				"small messages":   `{"model":"m","messages":[` + times(`{"role":"user","content":""}`, `,`, min(n, 29*MaxMessages)) + `]}`,
				"too many":         `{"model":"m","messages":[` + times(`{"role":"user","content":""}`, `,`, n) + `]}`,
				"stops":            `{` + valid + `,"stop":[` + times(`""`, `,`, min(n, 3*MaxMessages)) + `]}`,
				"faulty stops":     `{` + valid + `,"stop":[` + times(`1`, `,`, n) + `]}`,
				"names of members": `{` + valid + `,` + names(min(n, 600_000), `1`) + `}`,
			})
			return bodies
		},
	}}
}

// groupDecoders are the operations with a body, each of whose members is hostile in turn.
func groupDecoders(t *testing.T) (all []foreignDecoder) {
	o := newOffice(t)
	description := o.huma.OpenAPI()
	for path, item := range description.Paths {
		for _, operation := range []*huma.Operation{item.Post, item.Put, item.Patch, item.Delete} {
			if operation == nil || operation.RequestBody == nil || strings.HasPrefix(path, widgetPath) {
				continue // visitors' operations are only served through the widget
			}
			schema := operation.RequestBody.Content["application/json"].Schema
			if schema.Ref != "" {
				schema = description.Components.Schemas.SchemaFromRef(schema.Ref)
			}
			frames := []string{`{"x":%}`}
			for name, property := range schema.Properties {
				frames = append(frames, `{"`+name+`":%}`)
				if property.Items != nil && property.Items.Ref != "" {
					for inner := range description.Components.Schemas.SchemaFromRef(property.Items.Ref).Properties {
						frames = append(frames, `{"`+name+`":[{"`+inner+`":%}]}`)
					}
				}
			}
			address := strings.NewReplacer("{id}", "a_none", "{docId}", "a_none", "{provider}", "none").Replace(path)
			all = append(all, foreignDecoder{
				name: operation.OperationID, most: int(min(operation.MaxBodyBytes-1, 256<<10)), bodies: within(frames...),
				decode: func(t *testing.T, body string) {
					w := served(o.Serve, request(operation.Method, address, "owner", body))
					require.NotContains(t, w.Body.String(), "no operation", "the address is wrong")
				},
			})
		}
	}
	require.Greater(t, len(all), 15)
	slices.SortFunc(all, func(a, b foreignDecoder) int { return strings.Compare(a.name, b.name) })
	return all
}

func deliveryDecoders() (all []foreignDecoder) {
	const chatApp = `{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{%s:%%}}]}]}`
	for _, platform := range []struct {
		name, platform string
		frames         []string
	}{
		{"bot", "bot", []string{
			`{"x":%}`, `{"message":%}`, `{"message":{"text":%,"chat":{}}}`, `{"message":{"chat":%}}`, `{"my_chat_member":%}`,
		}},
		{"localchat", "localchat", []string{`{"event_name":%}`, `{"timestamp":%}`, `{"sender":%}`, `{"message":%}`}},
		{"market a", "market_a", []string{
			`{"code":10,"data":%}`, `{"code":10,"data":{"type":"message","content":%}}`, `{"code":12,"data":{"shop_expire_soon":%}}`,
		}},
		{"market b", "market_b", []string{`{"message_type":2,"data":%}`, `{"message_type":2,"data":{"content":%}}`}},
		{"social", "social", []string{
			`{"object":%}`, `{"object":"page","entry":%}`, `{"object":"page","entry":[{"id":"1","messaging":%}]}`,
			`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":%}]}]}`,
			`{"object":"page","entry":[{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"attachments":%}}]}]}`, `{"object":"page","entry":[{"changes":%}]}`,
			fmt.Sprintf(chatApp, `"messages"`), fmt.Sprintf(chatApp, `"contacts"`), fmt.Sprintf(chatApp, `"statuses"`),
		}},
	} {
		all = append(all, foreignDecoder{
			name: "delivery of " + platform.name, most: MaxWebhookBody,
			decode: func(t *testing.T, body string) {
				_, _ = builtinPlatforms(t).Platform(platform.platform).Extract([]byte(body))
			},
			bodies: func(n int) map[string]string {
				bodies := within(platform.frames...)(n)
				maps.Copy(bodies, crowded(n))
				return bodies
			},
		})
	}
	return append(all, foreignDecoder{
		name: "signature of localchat", most: MaxWebhookBody, bodies: within(`{"timestamp":%}`, `{"x":%}`, `{"timestamp":"1","timestamp":%}`),
		decode: func(t *testing.T, body string) {
			h := http.Header{"X-Localchat-Event-Signature": {"mac=" + strings.Repeat("0", 64)}}
			require.Error(t, verify.LocalChat(h, "", "app", "secret", []byte(body)))
		},
	})
}

// crowded are deliveries of the smallest things that mean something, or nearly so, in all lists that may be in each other.
func crowded(n int) map[string]string {
	const chatApp = `{"object":"whatsapp_business_account","entry":[%]}`
	change := func(inner string) string {
		return `{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},` + inner + `}}]}`
	}
	lists := map[string][2]string{
		"messages":         {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"x"}}`},
		"escaped messages": {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"\n"},"message":{"mid":"\n","text":"\u00e0"}}`},
		"broken messages":  {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"` + strings.Repeat("a\xff", 100) + `"}}`},
		"long messages":    {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"sender":{"id":"2"},"message":{"mid":"m","text":"` + strings.Repeat("\xff", 1000) + `"}}`},
		"wrong kinds":      {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"message":{"text":1,"text":1,"text":1,"mid":[],"mid":{}}}`},
		"null and again":   {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"message":null,"message":{},"postback":null,"postback":{}}`},
		"odd times":        {`{"object":"page","entry":[{"id":"1","messaging":[%]}]}`, `{"timestamp":"x"}`},
		"entries":          {`{"object":"page","entry":[%]}`, `{"id":"1","messaging":[{"sender":{"id":"2"},"message":{"mid":"m","text":"x"}}],"changes":[{}]}`},
		"empty entries":    {`{"object":"page","entry":[%]}`, `{"messaging":[{}],"changes":[{}]}`},
		"voices":           {strings.Replace(chatApp, "%", change(`"messages":[%]`), 1), `{"from":"2","id":"m","type":"voice"}`},
		"shortest": {
			strings.Replace(strings.Replace(chatApp, "%", change(`"message_echoes":[%]`), 1), `"messages"`, `"smb_message_echoes"`, 1),
			`{"to":1,"id":1,"type":"voice"}`,
		},
		"empty changes": {chatApp, change(`"messages":[{}],"contacts":[{}],"statuses":[{"errors":[{},{}]}]`)},
		"contacts":      {strings.Replace(chatApp, "%", change(`"contacts":[%]`), 1), `{"wa_id":"1","profile":{"name":"x"}}`},
		"failures":      {strings.Replace(chatApp, "%", change(`"statuses":[%]`), 1), `{"status":"failed","recipient_id":"1","id":"m","errors":[{"code":131026}]}`},
		"causes":        {strings.Replace(chatApp, "%", change(`"statuses":[{"status":"failed","errors":[%]}]`), 1), `{"code":1}`},
		"updates":       {`{"message":{%}}`, `"text":"\n","photo":{},"chat":{"id":"\n"}`},
		"shops":         {`{"code":12,"data":{"shop_expire_soon":[%]}}`, `1`},
		"packed":        {`{"code":10,"data":{"type":"message","content":"{\"message_type\":\"text\",\"x\":[%]}"}}`, `\u005b\u005d`},
	}
	bodies := map[string]string{}
	for name, list := range lists {
		bodies[name] = strings.Replace(list[0], "%", times(list[1], `,`, n), 1)
	}
	statuses := make([]string, 0, n/70)
	for i := range n / 70 {
		statuses = append(statuses, fmt.Sprintf(`{"status":"failed","recipient_id":"1","id":"m","errors":[{"code":%d}]}`, i))
	}
	bodies["many codes"] = strings.Replace(chatApp, "%", change(`"statuses":[`+strings.Join(statuses, ",")+`]`), 1)
	contacts := make([]string, 0, n/50)
	for i := range n / 50 {
		contacts = append(contacts, fmt.Sprintf(`{"wa_id":"%d","user_id":"u%d","profile":{"name":"x"}}`, i, i))
	}
	bodies["many contacts"] = strings.Replace(chatApp, "%", change(`"contacts":[`+strings.Join(contacts, ",")+`]`), 1)
	return bodies
}

func visitorDecoders(t *testing.T) []foreignDecoder {
	s := openSite(t)
	token := s.begin(t, `{}`)
	serve := func(path, origin, token string) func(t *testing.T, body string) {
		return func(t *testing.T, body string) {
			w := served(s.Serve, visitorRequest(http.MethodPost, path, origin, token, body))
			require.NotContains(t, []int{http.StatusForbidden, http.StatusNotFound}, w.Code, w.Body.String())
		}
	}
	return []foreignDecoder{
		{"a visitor's session", maxPublicBody, within(`{"token":%}`, `{"x":%}`), serve("/widget/chn_1/session", shop, "")},
		{"a visitor's message", maxVisitorBody, within(`{"id":%}`, `{"text":%}`, `{"id":"m","x":%}`), serve("/widget/chn_1/messages", "", token)},
	}
}

// dashboardDecoders are what the pages read by themselves, before an API that reads nothing.
func dashboardDecoders() []foreignDecoder {
	pages := dashboard.New(dashboard.Config{Bodies: NewByteBudget(1 << 30), API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/session" && r.Method == http.MethodGet {
			io.WriteString(w, `{"role":"owner","organization":{"id":"org_1","name":"Shop"},"user":{"id":"usr_1"}}`)
			return
		}
		io.WriteString(w, `{}`)
	})})
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
			"fields": times(`a`, `&`, n), "few fields": times(`a=b`, `&`, min(n, 3900)), "escaped": "x=" + strings.Repeat("%0a", n/3),
			"one field": "x=" + strings.Repeat("a", n), "names": times("%41", "&", min(n, 3900)), "long name": strings.Repeat("%41", n/3) + "=1",
		}
	}
	part := func(header, content string) string { return "--x\r\n" + header + "\r\n\r\n" + content + "\r\n" }
	const disposition = `Content-Disposition: form-data; name="a"`
	parts := func(n int) map[string]string {
		file := part(`Content-Disposition: form-data; name="file"; filename="a"`, strings.Repeat("\xff", n))
		return map[string]string{
			"a file": file + "--x--\r\n", "a field": part(disposition, strings.Repeat("a", n)) + "--x--\r\n",
			"parts":      times(part(disposition, ""), "", n) + "--x--\r\n",
			"headers":    part(times("a:b", "\r\n", n)+"\r\n"+disposition, "") + "--x--\r\n",
			"parameters": times(part(disposition+strings.Repeat(";a=b", 400), ""), "", n) + "--x--\r\n",
			"no end":     strings.Repeat("--x\r\n", n/5), "open": part(disposition, strings.Repeat("\r\n", n/2)),
		}
	}
	return []foreignDecoder{
		{"a form without a session", 1 << 20, fields, post("/dashboard/login", "application/x-www-form-urlencoded")},
		{"a form", 2 << 20, fields, post("/dashboard/agents", "application/x-www-form-urlencoded")},
		{"a form with files", 8 << 20, parts, post("/dashboard/knowledge/kb_1/documents", "multipart/form-data; boundary=x")},
		{
			"a try of an assistant", 1 << 20, within(`{"messages":%}`, `{"messages":[{"role":"user","content":%}]}`, `%`),
			post("/dashboard/agents/agt_1/playground/stream", "application/json"),
		},
	}
}

// vendorDecoders are what a model's vendor answers.
func vendorDecoders(t *testing.T) []foreignDecoder {
	var answer struct {
		status          int
		mediaType, body string
	}
	vendor, err := openai.Driver{}.New(&providers.Config{BaseURL: "https://vendor.example/v1", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		_, err := io.Copy(io.Discard, r.Body)
		return &http.Response{
			StatusCode: answer.status, Header: http.Header{"Content-Type": {answer.mediaType}}, Request: r, ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(answer.body)), ContentLength: int64(len(answer.body)),
		}, err
	})})
	require.NoError(t, err)
	ask := func(status int, stream bool, mediaType string) func(t *testing.T, body string) {
		return func(_ *testing.T, body string) {
			answer.status, answer.mediaType, answer.body = status, mediaType, body
			events, err := vendor.Open(t.Context(), &providers.Request{
				Model: "m", MaxTokensField: "max_tokens", MaxTokens: 1, Stream: stream,
				Messages: []providers.Message{{Role: "user", Content: providers.JSONString(`"x"`)}},
			})
			if err != nil {
				return
			}
			defer events.Close()
			for err == nil {
				_, err = events.Next()
			}
		}
	}
	answers := within(
		`{"choices":%}`, `{"choices":[{"message":{"content":%},"finish_reason":"stop"}]}`, `{"usage":%}`, `{"error":%}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":%}]}}]}`,
	)
	faults := within(`%`, `{"x":%}`, `{"error":%}`, `{"error":{"message":%}}`, `{"error":{"details":%}}`, `{"error":{"metadata":%}}`)
	events := func(n int) map[string]string {
		bodies := within(
			"data: {\"x\":%}\n\n", "data: {\"choices\":[{\"delta\":{\"content\":%}}]}\n\ndata: [DONE]\n\n", "data: {\"error\":%}\n\n", "%",
		)(n)
		for name, event := range map[string]string{
			"empty events": "data: {}\n\n", "pieces": "data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n", "blank": "data:\n\n", "comments": ":\n",
			"usages": "data: {\"usage\":{\"prompt_tokens\":1}}\n\n", "lines": "data: 1\n", "returns": "\r",
		} {
			bodies[name] = "data: {\"choices\":[]}\n\n" + times(event, "", n)
		}
		return bodies
	}
	return []foreignDecoder{
		{"a vendor's answer", 4 << 20, answers, ask(http.StatusOK, false, "application/json")},
		{"a vendor's error", 64 << 10, faults, ask(http.StatusBadRequest, false, "application/json")},
		{"a vendor's stream", 4 << 20, events, ask(http.StatusOK, true, "text/event-stream")},
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
