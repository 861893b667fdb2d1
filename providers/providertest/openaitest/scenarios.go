package openaitest

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Scenarios returns the names of all scenarios in order, without the statuses: any three digits are one, too.
func Scenarios() []string {
	var names []string
	for name := range changes {
		names = append(names, name)
	}
	for name := range answers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Unicode is the answer of the scenarios unicode and split-utf8.
const Unicode = "Xin chào 👋🏽 — مرحبا 🇻🇳 日本語 \u200d👩‍👩‍👧‍👦 ́é \"q\" \\ \n\ttab </script>\n\ndata: [DONE]\n\n"

// changes are the scenarios that answer 200 in the usual form, with a change.
var changes = map[string]func(*script){
	"ok":             func(*script) {},
	"length":         func(s *script) { s.finish = "length" },
	"content-filter": func(s *script) { s.finish = "content_filter" },
	"unicode":        func(s *script) { s.pieces = runes(Unicode) },
	"empty-text":     func(s *script) { s.pieces = nil },

	// Dialects.
	"crlf":           func(s *script) { s.lineEnd = "\r\n" },
	"cr":             func(s *script) { s.lineEnd = "\r" },
	"no-space":       func(s *script) { s.tag = "data:" },
	"bom":            func(s *script) { s.mark = true },
	"comments":       func(s *script) { s.comments = true },
	"split-utf8":     func(s *script) { s.pieces, s.splitRunes = []string{Unicode}, true },
	"no-role":        func(s *script) { s.role = roleNowhere },
	"role-null":      func(s *script) { s.role = roleNull },
	"role-content":   func(s *script) { s.role = roleWithContent },
	"role-each":      func(s *script) { s.role = roleOnEach },
	"finish-content": func(s *script) { s.finishOnPiece = true },
	"finish-each":    func(s *script) { s.finishEachPiece = true },
	"all-in-one": func(s *script) {
		s.pieces = []string{strings.Join(s.pieces, "")}
		s.role, s.finishOnPiece, s.usagePlace = roleWithContent, true, usageOnFinish
	},
	"reasoning": func(s *script) { s.between = s.event(`{"reasoning_content":"thinking ","content":null}`, "", "") },
	"tool-calls": func(s *script) {
		s.between = s.event(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "", "")
	},
	"empty-delta":   func(s *script) { s.between = s.event(`{}`, "", "") },
	"unknown-event": func(s *script) { s.between = `{"type":"ping"}` },
	"two-choices":   func(s *script) { s.otherChoice = true },
	"no-done":       func(s *script) { s.done = false },
	"no-done-open":  func(s *script) { s.done, s.linger = false, true },
	"done-open":     func(s *script) { s.linger = true },
	"no-finish":     func(s *script) { s.finish = "" },
	"refusal":       func(s *script) { s.textIn = "refusal" },
	"azure-filter": func(s *script) {
		s.first = `data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}` + "\n\n"
	},
	"content-parts":    func(s *script) { s.inParts = true },
	"split-pair":       func(s *script) { s.pieces, s.splitPairs = []string{Unicode}, true },
	"half-pair":        func(s *script) { s.pieces, s.splitPairs, s.halfPair = []string{"Hello 👋"}, true, true },
	"null-content":     func(s *script) { s.content, s.pieces = "null", nil },
	"gzip":             func(s *script) { s.encoding = "gzip" },
	"unfinished-lines": func(s *script) { s.done, s.tail = false, "data: [DONE]" },

	// Usage.
	"no-usage":       func(s *script) { s.usage = "" },
	"zero-usage":     func(s *script) { s.usage = `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}` },
	"negative-usage": func(s *script) { s.usage = `{"prompt_tokens":-5,"completion_tokens":7,"total_tokens":2}` },
	"absurd-usage": func(s *script) {
		s.usage = `{"prompt_tokens":11,"completion_tokens":4000000000000,"total_tokens":4000000000011}`
	},
	"float-usage":     func(s *script) { s.usage = `{"prompt_tokens":11.0,"completion_tokens":7.0,"total_tokens":18.0}` },
	"fraction-usage":  func(s *script) { s.usage = `{"prompt_tokens":11.5,"completion_tokens":7,"total_tokens":18}` },
	"text-usage":      func(s *script) { s.usage = `{"prompt_tokens":"11","completion_tokens":7}` },
	"usage-null":      func(s *script) { s.usagePlace = usageNull },
	"usage-on-finish": func(s *script) { s.usagePlace = usageOnFinish },
	"usage-groq":      func(s *script) { s.usagePlace = usageOnXGroq },
	"usage-choice":    func(s *script) { s.usagePlace = usageInChoice },
	"usage-twice":     func(s *script) { s.usagePlace = usageFirstWins },

	// Answers that are none.
	"html":          func(s *script) { s.contentType, s.document, s.raw = "text/html", maintenance, maintenance },
	"garbage":       func(s *script) { s.document, s.raw = `{"id":"x","choices":[{"mess`, `{"id":"x","choices":[{"mess` },
	"empty-body":    func(s *script) { s.document, s.raw = " ", " " },
	"empty-choices": func(s *script) { s.document = `{"choices":[]}`; s.raw = s.document },
	"json-answer":   func(s *script) { s.raw = s.answer() },
	"deflate":       func(s *script) { s.encoding = "deflate" },
	"content-number": func(s *script) {
		s.content = `7`
		s.raw = "data: " + s.event(`{"content":7}`, "", "") + "\n\n"
	},

	// Faults in the middle of a stream; with another answer instead of it.
	"reset":      func(s *script) { s.fault = func(*exchange) bool { panic(http.ErrAbortHandler) } },
	"rst":        func(s *script) { s.fault = func(x *exchange) bool { x.cutConnection(); return false } },
	"truncate":   func(s *script) { s.truncated = true; s.fault = func(x *exchange) bool { return !x.stream } },
	"stall":      func(s *script) { s.fault = func(x *exchange) bool { x.upstream.hang(x.ctx); return false } },
	"heartbeats": func(s *script) { s.fault = func(x *exchange) bool { x.heartbeats(); return false } },
	"bad-event":  func(s *script) { s.fault = func(x *exchange) bool { x.event(s, `{"id": oops`); return false } },
	"error-event": func(s *script) {
		s.failWith(`{"error":{"message":"upstream exploded ` + Secret + `","type":"server_error","code":500}}`)
	},
	"overloaded-event": func(s *script) {
		s.failWith(`{"error":{"message":"Overloaded ` + Secret + `","type":"overloaded_error"}}`)
	},
	"error-bare": func(s *script) {
		s.document = `[{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}]`
		s.fault = func(x *exchange) bool { x.write(s.document); return !x.stream }
	},
	"error-after-finish": func(s *script) {
		s.tail, s.done = `data: {"error":{"message":"late","code":500}}`+"\n\n", false
	},
	"unending-line": func(s *script) {
		s.fault = func(x *exchange) bool { x.unendingLine(); return false }
	},
}

const maintenance = "<html><body>Down for maintenance</body></html>"

// failWith sends one error event and ends.
func (s *script) failWith(event string) {
	s.document = event
	s.fault = func(x *exchange) bool {
		if x.stream {
			x.event(s, event)
		}
		return !x.stream
	}
}

func runes(text string) (pieces []string) {
	for _, r := range text {
		pieces = append(pieces, string(r))
	}
	return pieces
}

// answers are the scenarios that don't answer in the usual form at all.
var answers = map[string]func(*exchange){
	"hang":               func(x *exchange) { x.upstream.hang(x.ctx) },
	"hang-after-headers": func(x *exchange) { x.begin("text/event-stream", ""); x.flush(); x.upstream.hang(x.ctx) },
	"heartbeats-only":    func(x *exchange) { x.begin("text/event-stream", ""); x.flush(); x.heartbeats() },
	"drop":               func(*exchange) { panic(http.ErrAbortHandler) },
	"empty-after-finish": func(x *exchange) {
		x.begin("text/event-stream", "")
		s := newScript(x.options)
		x.event(s, s.event(`{"content":"Hello from upstream."}`, "stop", ""))
		for x.pause() {
			x.write(": ping\n\n")
			x.event(s, s.event(`{"content":""}`, "", `,"usage":null`))
		}
	},
	"usage-late": func(x *exchange) {
		x.begin("text/event-stream", "")
		s := newScript(x.options)
		x.event(s, s.event(`{"content":"Hello from upstream."}`, "stop", ""))
		if !x.pause() {
			return
		}
		x.event(s, s.event("", "", `,"usage":{"prompt_tokens":1,"completion_tokens":1}`))
		if x.pause() {
			s.finish = ""
			x.ending(s)
		}
	},
	"redirect": func(x *exchange) {
		x.w.Header().Set("Location", "/v1/chat/completions?redirected=1")
		x.w.WriteHeader(http.StatusFound)
	},
	"error-first": func(x *exchange) {
		x.send(http.StatusOK, "text/event-stream", `data: {"error":{"message":"Overloaded","type":"overloaded_error"}}`+"\n\n")
	},
	"error-200": func(x *exchange) {
		x.send(http.StatusOK, "application/json", `{"error":{"message":"Rate limited","code":429,"metadata":{"provider_name":"x"}}}`)
	},
	"error-hang": func(x *exchange) {
		x.begin("application/json", "")
		x.w.WriteHeader(http.StatusTooManyRequests)
		x.flush()
		x.upstream.hang(x.ctx)
	},
	"quota": func(x *exchange) {
		x.send(http.StatusTooManyRequests, "application/json", `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`)
	},
	"gemini-rate": func(x *exchange) {
		x.send(http.StatusTooManyRequests, "application/json", `[{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 34.6s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}]`)
	},
	"context-openai": func(x *exchange) {
		x.send(http.StatusBadRequest, "application/json", `{"error":{"message":"This model's maximum context length is 128 tokens. However, your messages resulted in 500 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`)
	},
	"context-vllm": func(x *exchange) {
		x.send(http.StatusBadRequest, "application/json", `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}`)
	},
	"context-anthropic": func(x *exchange) {
		x.send(http.StatusBadRequest, "application/json", `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}`)
	},
	"context-gemini": func(x *exchange) {
		x.send(http.StatusBadRequest, "application/json", `[{"error":{"code":400,"message":"The input token count (218152) exceeds the maximum number of tokens allowed (65536).","status":"INVALID_ARGUMENT"}}]`)
	},
}

// serveStatus answers with an error status.
func (x *exchange) serveStatus(status int) {
	h := x.w.Header()
	if v, ok := x.options["ra"]; ok {
		h.Set("Retry-After", v)
	}
	if v, ok := x.options["ra_ms"]; ok {
		h.Set("Retry-After-Ms", v)
	}
	const says = `"message":"upstream says no: Incorrect API key provided: ` + Secret + `"`
	if body := x.options["json"]; body != "" {
		x.send(status, "application/json", body)
		return
	}
	switch x.options["body"] {
	case "html":
		x.send(status, "text/html", maintenance)
	case "empty":
		x.w.WriteHeader(status)
	case "array":
		x.send(status, "application/json", `[{"error":{`+says+`}}]`)
	case "text":
		x.send(status, "application/json", `{"error":"model not found"}`)
	case "vllm":
		x.send(status, "application/json", `{"object":"error",`+says+`}`)
	default:
		x.send(status, "application/json", `{"error":{`+says+`,"type":"server_error","param":null,"code":null}}`)
	}
}

// heartbeats sends comments until the client is gone.
func (x *exchange) heartbeats() {
	if x.options["delay"] == "" {
		x.options["delay"] = "1"
	}
	for x.pause() {
		select {
		case <-x.upstream.closed:
			return
		default:
		}
		x.write(": ping\n\n")
		x.flush()
	}
}

// unendingLine sends a data line until the client is gone.
func (x *exchange) unendingLine() {
	x.write("data: ")
	block := strings.Repeat("A", 64<<10)
	for x.ctx.Err() == nil {
		x.write(block)
	}
}

// cutConnection resets the TCP connection. Over HTTP/2, where it isn't ours, it resets the stream.
func (x *exchange) cutConnection() {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
