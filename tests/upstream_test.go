package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

// upstream is the model provider of a product. A test writes a script for its call and puts the script's mark into
// the prompt; calls without a mark go to the vendor of openaitest, which answers as usual or as `scenario:…` says.
type upstream struct {
	*httptest.Server
	scripts sync.Map // mark → *script
	vendor  openaitest.Upstream
}

// script is what the provider does with the calls that carry its mark, and what it saw.
type script struct {
	// Mark goes into the prompt.
	Mark string
	play func(*upstreamCall)

	mu    sync.Mutex
	calls []*upstreamCall
}

// upstreamCall is one request that reached the provider.
type upstreamCall struct {
	w http.ResponseWriter
	// Gone is closed when the caller has gone.
	Gone   <-chan struct{}
	Path   string
	Header http.Header
	Raw    string
	Body   struct {
		Model         string
		Messages      []struct{ Role, Content string }
		Stream        bool
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		MaxTokens int64 `json:"max_tokens"`
	}
}

func startUpstream(t testing.TB) *upstream {
	t.Helper()
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(func() {
		u.vendor.Close()
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

var (
	mark      = regexp.MustCompile(`script-[0-9]+-`)
	markCount atomic.Int64
)

// script registers what the provider does with calls that carry the returned script's mark.
func (u *upstream) script(play func(*upstreamCall)) *script {
	s := &script{Mark: fmt.Sprintf("script-%d-", markCount.Add(1)), play: play}
	u.scripts.Store(s.Mark, s)
	return s
}

// Calls are the requests that the script has seen so far.
func (s *script) Calls() []*upstreamCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*upstreamCall(nil), s.calls...)
}

// only is the one request that the script has seen.
func (s *script) only(t testing.TB) *upstreamCall {
	t.Helper()
	calls := s.Calls()
	require.Len(t, calls, 1, "requests at the provider")
	return calls[0]
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	found, ok := u.scripts.Load(mark.FindString(string(raw)))
	if !ok {
		r.Body = io.NopCloser(bytes.NewReader(raw))
		u.vendor.ServeHTTP(w, r)
		return
	}
	call := &upstreamCall{w: w, Gone: r.Context().Done(), Path: r.URL.Path, Header: r.Header.Clone(), Raw: string(raw)}
	if err := json.Unmarshal(raw, &call.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := found.(*script)
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	s.play(call)
}

// The usual answer: at the prices of modelStd it costs 11 + 2×7 = 25 micros.
const (
	usualText   = "Hello from upstream."
	usualUsage  = `{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`
	usualCharge = 25
)

// usage is a provider's usage member.
func usage(prompt, completion int64) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, prompt, completion, prompt+completion)
}

// answer answers whole, in the form that was asked for; usage is JSON, empty for none.
func (c *upstreamCall) answer(text, usage string) {
	if !c.Body.Stream {
		c.json(http.StatusOK, completion(text, usage))
		return
	}
	c.begin()
	for word := range strings.SplitAfterSeq(text, " ") {
		c.text(word)
	}
	c.finish("stop")
	c.usage(usage)
	c.done()
}

// answerInTwo streams the first half at once and the second when the gate is open; a client that leaves before that gets no more.
func (c *upstreamCall) answerInTwo(first string, more *gate, second string) {
	c.begin()
	c.text(first)
	if !more.pass(c) {
		return
	}
	c.text(second)
	c.finish("stop")
	c.usage(usualUsage)
	c.done()
}

// completion is the body of a whole answer.
func completion(text, usage string) string {
	body := `{"id":"gen-1","object":"chat.completion","created":1700000000,"model":"acme-standard-1","choices":[{"index":0,"message":{"role":"assistant","content":` +
		quoted(text) + `},"finish_reason":"stop"}]`
	if usage != "" {
		body += `,"usage":` + usage
	}
	return body + "}"
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// json answers with a body that calls itself JSON.
func (c *upstreamCall) json(status int, body string) {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	_, _ = io.WriteString(c.w, body)
}

// begin sends the head of a stream and the role.
func (c *upstreamCall) begin() {
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	c.chunk(`{"role":"assistant","content":""}`, "null")
}

func (c *upstreamCall) chunk(delta, finish string) {
	c.raw(`data: {"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"acme-standard-1","choices":[{"index":0,"delta":` +
		delta + `,"finish_reason":` + finish + "}]}\n\n")
}

func (c *upstreamCall) text(piece string) { c.chunk(`{"content":`+quoted(piece)+`}`, "null") }

func (c *upstreamCall) finish(reason string) { c.chunk(`{}`, quoted(reason)) }

// usage sends the usage chunk, if there is a usage.
func (c *upstreamCall) usage(usage string) {
	if usage != "" {
		c.raw(`data: {"id":"gen-1","object":"chat.completion.chunk","created":1700000000,"model":"acme-standard-1","choices":[],"usage":` +
			usage + "}\n\n")
	}
}

func (c *upstreamCall) done() { c.raw("data: [DONE]\n\n") }

// raw sends bytes as they are, at once.
func (c *upstreamCall) raw(text string) {
	_, _ = io.WriteString(c.w, text)
	_ = http.NewResponseController(c.w).Flush()
}

// drop cuts the connection.
func (c *upstreamCall) drop() { panic(http.ErrAbortHandler) }

// hang answers nothing more until the caller has gone.
func (c *upstreamCall) hang() { <-c.Gone }

// gate holds something up until the test opens it, or the caller has gone.
type gate struct {
	once   sync.Once
	opened chan struct{}
	// waiting counts the calls that wait at the gate.
	waiting atomic.Int64
}

func newGate(t testing.TB) *gate {
	t.Helper()
	g := &gate{opened: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// pass waits for the gate, and is false when the caller went away first.
func (g *gate) pass(c *upstreamCall) bool {
	g.waiting.Add(1)
	select {
	case <-g.opened:
		return true
	case <-c.Gone:
		return false
	}
}
