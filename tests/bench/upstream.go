package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/markup/markuptest"
)

const (
	chunks           = 50
	promptTokens     = 50
	completionTokens = 150
	// floodPrompt asks for a stream of chunks of so many words each.
	floodPrompt = "Tell me everything."
	floodWords  = 8000
	// storyPrompt asks for a whole answer of storyWords words, 0.8 MiB.
	storyPrompt = "Tell me a long story."
	storyWords  = 160_000
	// worstPrompt begins the prompts that ask for Markdown of worstAnswer bytes that is hard to render, by its kind.
	worstPrompt = "Tell me the worst: "
	worstAnswer = 10 << 10
	// floodBuffer is what the kernel keeps of a flood for the vendor, in bytes. It would keep all of it, a gigabyte for 500
	// streams, which a real vendor's machine does and which makes every request on this one slower.
	floodBuffer = 64 << 10
)

// connKey is the context key of a request's connection.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// upstream is an instant vendor: it reads the request and answers at once.
type upstream struct {
	address string
	server  *http.Server
	answers atomic.Int64
	sent    sendings // to the bots' customers
	answer  []byte
	stream  []byte
	flood   []byte // a stream of 2 MB
	// anthropic and gemini are the streams of vendors that speak these APIs.
	anthropic, gemini []byte
	// whole are other answers, by a part of their prompts.
	whole map[string][]byte
	// gate lets go on the streams that wait in their middle, when it is closed.
	gate chan struct{}
}

func startUpstream() (*upstream, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	u := &upstream{address: listener.Addr().String(), answer: plainAnswer(strings.Repeat("All work and no play. ", 20)), whole: map[string][]byte{storyPrompt: plainAnswer(strings.Repeat("word ", storyWords))}, stream: streamedAnswer(" word"), flood: streamedAnswer(strings.Repeat(" word", floodWords)), anthropic: anthropicAnswer(), gemini: geminiAnswer(), gate: make(chan struct{})}
	for kind, text := range markuptest.Worst(worstAnswer) {
		u.whole[worstPrompt+kind] = plainAnswer(text)
	}
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: time.Minute, ConnContext: withConn}
	go func() { _ = u.server.Serve(listener) }()
	return u, nil
}

func (u *upstream) stop() { _ = u.server.Close() }

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.HasSuffix(r.URL.Path, "/sendMessage") || strings.HasSuffix(r.URL.Path, "/me/messages") {
		u.send(w, body)
		return
	}
	u.answers.Add(1)
	switch r.URL.Path {
	case "/v1/messages":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(u.anthropic)
		return
	case "/v1beta/models/m:streamGenerateContent":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(u.gemini)
		return
	}
	if strings.Contains(string(body), `"stream":true`) {
		w.Header().Set("Content-Type", "text/event-stream")
		rest := u.stream
		if strings.Contains(string(body), floodPrompt) {
			rest = u.flood
			if err := r.Context().Value(connKey{}).(*net.TCPConn).SetWriteBuffer(floodBuffer); err != nil {
				return
			}
		}
		if strings.Contains(string(body), slowPrompt) {
			begun := bytes.Index(rest, []byte(slowMark)) + len(slowMark)
			begun += bytes.Index(rest[begun:], []byte("\n\n")) + 2
			_, _ = w.Write(rest[:begun])
			_ = http.NewResponseController(w).Flush()
			rest = rest[begun:]
			select {
			case <-u.gate:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = w.Write(rest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for prompt, answer := range u.whole {
		if strings.Contains(string(body), prompt) {
			_, _ = w.Write(answer)
			return
		}
	}
	_, _ = w.Write(u.answer)
}

// send plays the platforms of bots and of direct messages, which deliver at once.
func (u *upstream) send(w http.ResponseWriter, body []byte) {
	var message struct {
		Chat      json.Number `json:"chat_id"`
		Recipient struct{ ID string }
		Message   json.RawMessage // none: the assistant is typing
	}
	if err := json.Unmarshal(body, &message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case message.Chat != "":
		fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%d,"chat":{"id":%s}}}`, u.sent.add(message.Chat.String()), message.Chat)
	case message.Message != nil:
		fmt.Fprintf(w, `{"recipient_id":%q,"message_id":"m%d"}`, message.Recipient.ID, u.sent.add(message.Recipient.ID))
	default:
		fmt.Fprintf(w, `{"recipient_id":%q}`, message.Recipient.ID)
	}
}

func plainAnswer(text string) []byte {
	return fmt.Appendf(nil, `{"id":"x","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,`+
		`"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`,
		text, promptTokens, completionTokens, promptTokens+completionTokens)
}

// streamedAnswer is a stream whose chunks are each a text with a number.
func streamedAnswer(text string) []byte {
	const head = `data: {"id":"x","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[`
	var b []byte
	b = append(b, head+`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`+"\n\n"...)
	for i := range chunks {
		b = fmt.Appendf(b, head+`{"index":0,"delta":{"content":"%s%d"},"finish_reason":null}]}`+"\n\n", text, i)
	}
	b = append(b, head+`{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\n"...)
	b = fmt.Appendf(b, head+`],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
		promptTokens, completionTokens, promptTokens+completionTokens)
	return append(b, "data: [DONE]\n\n"...)
}

// geminiAnswer is a stream of as many chunks and tokens as streamedAnswer's, each of which counts the tokens so far.
func geminiAnswer() []byte {
	var b []byte
	for i := range chunks {
		finish := ""
		if i == chunks-1 {
			finish = `,"finishReason": "STOP"`
		}
		completion := completionTokens * (i + 1) / chunks
		b = fmt.Appendf(b, `data: {"candidates": [{"content": {"parts": [{"text": " word%d"}],"role": "model"}%s,"index": 0}],"usageMetadata": {"promptTokenCount": %d,`+
			`"candidatesTokenCount": %d,"totalTokenCount": %d,"promptTokensDetails": [{"modality": "TEXT","tokenCount": %d}]},"modelVersion": "m","responseId": "x"}`+"\r\n\r\n",
			i, finish, promptTokens, completion, promptTokens+completion, promptTokens)
	}
	return b
}

// anthropicAnswer is a stream of as many chunks and tokens as streamedAnswer's, padded as the API pads it.
func anthropicAnswer() []byte {
	var b []byte
	event := func(kind, members string) {
		b = fmt.Appendf(b, "event: %[1]s\ndata: {\"type\":\"%[1]s\"%[2]s%[3]s}\n\n", kind, members, strings.Repeat(" ", len(b)%9))
	}
	event("message_start", fmt.Sprintf(`,"message":{"model":"m","id":"msg_x","type":"message","role":"assistant","content":[],"stop_reason":null,`+
		`"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,`+
		`"service_tier":"standard"}}`, promptTokens))
	event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	event("ping", "")
	for i := range chunks {
		event("content_block_delta", fmt.Sprintf(`,"index":0,"delta":{"type":"text_delta","text":" word%d"}`, i))
	}
	event("content_block_stop", `,"index":0`)
	event("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}`, completionTokens))
	event("message_stop", "")
	return b
}
