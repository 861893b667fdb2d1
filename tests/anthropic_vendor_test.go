package tests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// anthropicAnswer is an answer of Anthropic's in both forms.
type anthropicAnswer struct {
	// thought is hidden. pieces are the text.
	thought string
	pieces  []string
	stop    string
	// begun is the usage at the beginning of a stream, usage that at the end.
	begun, usage string
	// cut ends a stream before message_stop, and a whole answer in its middle.
	cut bool
}

// whole is the body of the whole answer.
func (a anthropicAnswer) whole() string {
	body := fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"std-20260101","content":[{"type":"thinking","thinking":%s,"signature":"x"},`+
		`{"type":"text","text":%s}],"stop_reason":%q,"stop_sequence":null,"usage":%s}`, quoted(a.thought), quoted(strings.Join(a.pieces, "")), a.stop, a.usage)
	if a.cut {
		return body[:len(body)/2]
	}
	return body
}

// stream is the body of the stream, padded as the API pads it.
func (a anthropicAnswer) stream() string {
	var b strings.Builder
	event := func(kind, members string) {
		fmt.Fprintf(&b, "event: %s\ndata: {\"type\":%q%s   }\n\n", kind, kind, members)
	}
	event("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"std-20260101","content":[],"stop_reason":null,"usage":`+a.begun+`}`)
	event("ping", "")
	event("content_block_start", `,"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`)
	event("content_block_delta", `,"index":0,"delta":{"type":"thinking_delta","thinking":`+quoted(a.thought)+`}`)
	event("content_block_stop", `,"index":0`)
	event("content_block_start", `,"index":1,"content_block":{"type":"text","text":""}`)
	for _, piece := range a.pieces {
		event("content_block_delta", `,"index":1,"delta":{"type":"text_delta","text":`+quoted(piece)+`}`)
	}
	event("content_block_stop", `,"index":1`)
	event("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":%s`, a.stop, a.usage))
	if !a.cut {
		event("message_stop", "")
	}
	return b.String()
}

// startAnthropic starts a vendor with Anthropic's API, which has the scripts of [nativeDialect], and returns its base URL.
func startAnthropic(t testing.TB) (baseURL string) {
	t.Helper()
	const cached = `{"input_tokens":75,"cache_creation_input_tokens":10,"cache_read_input_tokens":1921,"output_tokens":330,` +
		`"cache_creation":{"ephemeral_5m_input_tokens":8,"ephemeral_1h_input_tokens":2},"output_tokens_details":{"thinking_tokens":30}}`
	answers := map[string]anthropicAnswer{
		"": {pieces: []string{"Hello ", "from upstream."}, stop: "end_turn", begun: `{"input_tokens":11,"output_tokens":2}`, usage: `{"input_tokens":11,"output_tokens":7}`},
		"cached": {
			thought: "Hm", pieces: []string{"Yes."}, stop: "max_tokens", begun: strings.Replace(cached, "330", "8", 1), usage: cached,
		},
		"blocked": {stop: "refusal", begun: `{"input_tokens":12,"output_tokens":1}`, usage: `{"input_tokens":12,"output_tokens":0}`},
		"cut":     {pieces: []string{"Yes", " and"}, stop: "end_turn", begun: `{"input_tokens":11,"output_tokens":1}`, usage: `{"output_tokens":3}`, cut: true},
	}
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, script, _ := strings.Cut(string(body), "script:")
		script, _, _ = strings.Cut(script, `"`)
		stream := strings.Contains(string(body), `"stream":true`)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case script == "key" || r.Header.Get("X-Api-Key") != operatorKey:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_1"}`)
		case r.URL.Path != "/v1/messages" || r.Header.Get("Anthropic-Version") != "2023-06-01" || !strings.Contains(string(body), `"max_tokens":`):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"no"},"request_id":"req_1"}`)
		case stream:
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, answers[script].stream())
		default:
			_, _ = io.WriteString(w, answers[script].whole())
		}
	}))
	t.Cleanup(vendor.Close)
	return vendor.URL
}
