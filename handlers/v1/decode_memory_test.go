package v1

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, append(chatDecoders(), vendorDecoders(t)...))
}

func chatDecoders() []handlertest.ForeignDecoder {
	const valid = `"model":"m","messages":[{"role":"user","content":"x"}]`
	return []handlertest.ForeignDecoder{{
		Name: "chat", Most: handlers.MaxChatBody, Decode: func(_ *testing.T, body string) { _, _ = DecodeChat([]byte(body)) },
		Bodies: func(n int) map[string]string {
			bodies := handlertest.Within(`{`+valid+`,"x":%}`, `{"model":"m","messages":[{"role":"user","content":%}]}`, `{"model":%}`, `{"messages":%}`, `{"stop":%}`)(n)
			maps.Copy(bodies, map[string]string{
				"small messages":   `{"model":"m","messages":[` + handlertest.Times(`{"role":"user","content":""}`, `,`, min(n, 29*MaxMessages)) + `]}`,
				"too many":         `{"model":"m","messages":[` + handlertest.Times(`{"role":"user","content":""}`, `,`, n) + `]}`,
				"stops":            `{` + valid + `,"stop":[` + handlertest.Times(`""`, `,`, min(n, 3*MaxMessages)) + `]}`,
				"faulty stops":     `{` + valid + `,"stop":[` + handlertest.Times(`1`, `,`, n) + `]}`,
				"names of members": `{` + valid + `,` + handlertest.Names(min(n, 600_000), `1`) + `}`,
			})
			return bodies
		},
	}}
}

// vendorDecoders decode the answers of a model's vendor.
func vendorDecoders(t *testing.T) []handlertest.ForeignDecoder {
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
	answers := handlertest.Within(
		`{"choices":%}`, `{"choices":[{"message":{"content":%},"finish_reason":"stop"}]}`, `{"usage":%}`, `{"error":%}`,
		`{"choices":[{"message":{"content":[{"type":"text","text":%}]}}]}`,
	)
	faults := handlertest.Within(`%`, `{"x":%}`, `{"error":%}`, `{"error":{"message":%}}`, `{"error":{"details":%}}`, `{"error":{"metadata":%}}`)
	events := func(n int) map[string]string {
		bodies := handlertest.Within(
			"data: {\"x\":%}\n\n", "data: {\"choices\":[{\"delta\":{\"content\":%}}]}\n\ndata: [DONE]\n\n", "data: {\"error\":%}\n\n", "%",
		)(n)
		for name, event := range map[string]string{
			"empty events": "data: {}\n\n", "pieces": "data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n", "blank": "data:\n\n", "comments": ":\n",
			"usages": "data: {\"usage\":{\"prompt_tokens\":1}}\n\n", "lines": "data: 1\n", "returns": "\r",
		} {
			bodies[name] = "data: {\"choices\":[]}\n\n" + handlertest.Times(event, "", n)
		}
		return bodies
	}
	return []handlertest.ForeignDecoder{
		{Name: "a vendor's answer", Most: 4 << 20, Bodies: answers, Decode: ask(http.StatusOK, false, "application/json")},
		{Name: "a vendor's error", Most: 64 << 10, Bodies: faults, Decode: ask(http.StatusBadRequest, false, "application/json")},
		{Name: "a vendor's stream", Most: 4 << 20, Bodies: events, Decode: ask(http.StatusOK, true, "text/event-stream")},
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
