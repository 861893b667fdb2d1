package providers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/providers/providertest"
)

const helloText = "Hello from upstream."

// vendor is a provider before a scripted upstream.
type vendor struct {
	*providertest.Upstream
	*OpenAI
}

// long is for the limits that a test doesn't want to meet.
var long = Timeouts{Connect: time.Minute, FirstByte: time.Minute, Idle: time.Minute, Response: time.Minute, MaxDuration: time.Minute}

func startVendor(t *testing.T, version int, timeouts Timeouts) vendor {
	t.Helper()
	config := OpenAIConfig{Timeouts: timeouts, FinishGrace: 2 * time.Second}
	var u *providertest.Upstream
	if version == 2 {
		var transport *http.Transport
		u, config.BaseURL, transport = providertest.StartHTTP2(t)
		config.Transport = transport
	} else {
		u, config.BaseURL = providertest.Start(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(transport.CloseIdleConnections)
		config.Transport = transport
	}
	return vendor{u, NewOpenAI(config)}
}

// eachVersion runs a test over HTTP/1.1 and HTTP/2.
func eachVersion(t *testing.T, timeouts Timeouts, f func(t *testing.T, v vendor)) {
	t.Helper()
	for version, name := range map[int]string{1: "h1", 2: "h2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, startVendor(t, version, timeouts))
		})
	}
}

func scenario(name string, stream bool) *Request {
	return &Request{
		Model:     "vendor-model",
		Messages:  []Message{{Role: "user", Content: Quote("scenario:" + name)}},
		MaxTokens: 100,
		Stream:    stream,
		APIKey:    "sk-operator-key-1",
	}
}

// whatCame is an answer read to its end.
type whatCame struct {
	text, finish string
	usage        *Usage
	err          error
}

// failed is an answer that ended in an error before any text.
func failed(err error) whatCame { return whatCame{err: err} }

func call1(t *testing.T, p Provider, req *Request) (came whatCame) {
	t.Helper()
	events, err := p.Open(t.Context(), req)
	if err != nil {
		require.Nil(t, events)
		return failed(err)
	}
	defer events.Close()
	return readOut(t, events)
}

func readOut(t *testing.T, events Events) (came whatCame) {
	t.Helper()
	for {
		event, err := events.Next()
		if err != nil {
			again, same := events.Next()
			require.Equal(t, Event{}, again)
			require.Equal(t, err, same, "the end stays the end")
			if !errors.Is(err, io.EOF) || errors.As(err, new(*Error)) {
				came.err = err
			}
			return came
		}
		require.NotEqual(t, Event{}, event, "an event says something")
		require.Empty(t, came.finish, "nothing follows the finish reason")
		came.text += event.Text
		came.finish = event.FinishReason
		if event.Usage != nil {
			came.usage = event.Usage
		}
	}
}

func requireFailure(t *testing.T, err error, want Failure) *Error {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Failure, "%v", err)
	require.NotContains(t, err.Error(), providertest.Secret)
	require.NotContains(t, err.Error(), "sk-operator-key-1")
	require.LessOrEqual(t, len(e.Detail), maxDetail)
	return e
}

// Every dialect looks the same to the gateway.
func TestOpenAIDialects(t *testing.T) {
	t.Parallel()
	usual := &Usage{PromptTokens: 11, CompletionTokens: 7}
	eachVersion(t, long, func(t *testing.T, v vendor) {
		for name, want := range map[string]whatCame{
			"ok":                       {text: helloText, finish: "stop", usage: usual},
			"ok;pt=123;ct=45;cached=8": {text: helloText, finish: "stop", usage: &Usage{123, 45, 8, 0}},
			"length":                   {text: helloText, finish: "length", usage: usual},
			"content-filter":           {text: helloText, finish: "content_filter", usage: usual},
			"empty-text":               {finish: "stop", usage: usual},
			"null-content":             {finish: "stop", usage: usual},
			"unicode":                  {text: providertest.Unicode, finish: "stop", usage: usual},
			"split-utf8":               {text: providertest.Unicode, finish: "stop", usage: usual},
			"split-pair":               {text: providertest.Unicode, finish: "stop", usage: usual},
			"content-parts":            {text: helloText, finish: "stop", usage: usual},
			"crlf":                     {text: helloText, finish: "stop", usage: usual},
			"cr":                       {text: helloText, finish: "stop", usage: usual},
			"no-space":                 {text: helloText, finish: "stop", usage: usual},
			"bom":                      {text: helloText, finish: "stop", usage: usual},
			"comments":                 {text: helloText, finish: "stop", usage: usual},
			"no-role":                  {text: helloText, finish: "stop", usage: usual},
			"role-null":                {text: helloText, finish: "stop", usage: usual},
			"role-content":             {text: helloText, finish: "stop", usage: usual},
			"role-each":                {text: helloText, finish: "stop", usage: usual},
			"finish-content":           {text: helloText, finish: "stop", usage: usual},
			"finish-each":              {text: helloText, finish: "stop", usage: usual},
			"all-in-one":               {text: helloText, finish: "stop", usage: usual},
			"reasoning":                {text: helloText, finish: "stop", usage: usual},
			"tool-calls":               {text: helloText, finish: "stop", usage: usual},
			"empty-delta":              {text: helloText, finish: "stop", usage: usual},
			"unknown-event":            {text: helloText, finish: "stop", usage: usual},
			"two-choices":              {text: helloText, finish: "stop", usage: usual},
			"no-done":                  {text: helloText, finish: "stop", usage: usual},
			"no-done-open":             {text: helloText, finish: "stop", usage: usual},
			"done-open":                {text: helloText, finish: "stop", usage: usual},
			"unfinished-lines":         {text: helloText, finish: "stop", usage: usual},
			"no-finish":                {text: helloText, finish: "stop", usage: usual},
			"gzip":                     {text: helloText, finish: "stop", usage: usual},
			"gzip;n=500":               {text: words(500), finish: "stop", usage: usual},
			"ok;n=2000":                {text: words(2000), finish: "stop", usage: usual},
			"ok;size=1048576":          {text: strings.Repeat("A", 1<<20), finish: "stop", usage: usual},
			"ok;size=8388608":          {text: strings.Repeat("A", 8<<20), finish: "stop", usage: usual},
			"ok;delay=1":               {text: helloText, finish: "stop", usage: usual},
			"no-usage":                 {text: helloText, finish: "stop"},
			"zero-usage":               {text: helloText, finish: "stop", usage: &Usage{}},
			"negative-usage":           {text: helloText, finish: "stop"},
			"fraction-usage":           {text: helloText, finish: "stop"},
			"text-usage":               {text: helloText, finish: "stop"},
			"float-usage":              {text: helloText, finish: "stop", usage: usual},
			"absurd-usage":             {text: helloText, finish: "stop", usage: &Usage{11, 4_000_000_000_000, 0, 0}},
			"usage-null":               {text: helloText, finish: "stop", usage: usual},
			"usage-on-finish":          {text: helloText, finish: "stop", usage: usual},
			"usage-groq":               {text: helloText, finish: "stop", usage: usual},
			"usage-twice":              {text: helloText, finish: "stop", usage: usual},
		} {
			for _, stream := range []bool{true, false} {
				require.Equal(t, want, call1(t, v, scenario(name, stream)), "%s stream=%v", name, stream)
			}
		}
	})
}

func words(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("w" + strconv.Itoa(i) + " ")
	}
	return b.String()
}

// What isn't a good answer fails, before the answer where that is possible.
func TestOpenAIFailures(t *testing.T) {
	t.Parallel()
	type want struct {
		failure   Failure
		permanent bool
		inOpen    bool
	}
	refused, unreachable := want{FailureRefused, false, true}, want{FailureUnreachable, false, true}
	overloaded := want{FailureOverloaded, false, true}
	tooLong := want{FailureContextTooLong, true, true}
	both := map[string]want{
		"400":               {FailureRefused, true, true},
		"401":               {FailureRefused, true, true},
		"401;body=html":     {FailureRefused, true, true},
		"401;body=array":    {FailureRefused, true, true},
		"402":               {FailureRefused, true, true},
		"403":               {FailureRefused, true, true},
		"404;body=text":     {FailureRefused, true, true},
		"404;body=vllm":     {FailureRefused, true, true},
		"422":               {FailureRefused, true, true},
		"redirect":          {FailureRefused, true, true},
		"quota":             {FailureRefused, true, true},
		"408":               {FailureTimeout, false, true},
		"504;body=html":     {FailureTimeout, false, true},
		"413":               {FailureRequestTooLarge, true, true},
		"429":               overloaded,
		"429;body=empty":    overloaded,
		"503;body=html":     overloaded,
		"529":               overloaded,
		"gemini-rate":       overloaded,
		"error-200":         overloaded,
		"error-first":       overloaded,
		"500":               refused,
		"502;body=html":     refused,
		"201":               refused,
		"html":              refused,
		"garbage":           refused,
		"empty-body":        refused,
		"empty-choices":     refused,
		"deflate":           refused,
		"content-number":    refused,
		"drop":              unreachable,
		"context-openai":    tooLong,
		"context-vllm":      tooLong,
		"context-anthropic": tooLong,
		"context-gemini":    tooLong,
	}
	streams := map[string]want{
		"json-answer":         refused,
		"reset;at=0":          {FailureUnreachable, false, false}, // the role came
		"reset":               {FailureUnreachable, false, false},
		"rst":                 {FailureUnreachable, false, false},
		"truncate":            {FailureUnreachable, false, false},
		"bad-event":           {FailureRefused, false, false},
		"error-event":         {FailureRefused, false, false},
		"overloaded-event":    {FailureOverloaded, false, false},
		"error-bare":          {FailureOverloaded, false, false},
		"error-after-finish":  {FailureRefused, false, false},
		"unending-line":       {FailureRefused, false, false},
		"reset;at=4":          {FailureUnreachable, false, false},
		"gzip-then-not;at=99": {FailureRefused, false, true}, // no such scenario: 501
	}
	others := map[string]want{
		"truncate":         unreachable,
		"reset":            unreachable,
		"rst":              unreachable,
		"error-event":      refused,
		"overloaded-event": overloaded,
		"error-bare":       overloaded,
	}
	eachVersion(t, long, func(t *testing.T, v vendor) {
		check := func(name string, stream bool, want want) {
			if name == "error-first" && !stream {
				return // it is a stream's event
			}
			events, err := v.Open(t.Context(), scenario(name, stream))
			require.Equal(t, want.inOpen, err != nil, "%s stream=%v: %v", name, stream, err)
			if err == nil {
				came := readOut(t, events)
				events.Close()
				require.Empty(t, came.finish, name)
				err = came.err
			}
			e := requireFailure(t, err, want.failure)
			require.Equal(t, want.permanent, e.Permanent, "%s stream=%v", name, stream)
		}
		for name, want := range both {
			check(name, true, want)
			check(name, false, want)
		}
		for name, want := range streams {
			check(name, true, want)
		}
		for name, want := range others {
			check(name, false, want)
		}
	})
}

// A stream goes on for minutes after its prompt was sent: the prompt's memory is free by then, which a budget counts on.
func TestSentPromptIsNotKept(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		req := scenario("", true)
		text := Quote(strings.Repeat("a", 1<<20))
		freed := make(chan struct{})
		runtime.AddCleanup(&text[0], func(done chan struct{}) { close(done) }, freed)
		req.Messages[0].Content = text
		var sent atomic.Int32
		req.Sent = func() { sent.Add(1) }
		events, err := v.Open(t.Context(), req)
		require.NoError(t, err)
		require.EqualValues(t, 1, sent.Load())
		require.Eventually(t, func() bool {
			runtime.GC()
			select {
			case <-freed:
				return true
			default:
				return false
			}
		}, 10*time.Second, time.Millisecond)
		came := readOut(t, events)
		require.NoError(t, came.err)
		events.Close()
	})
}

func TestOpenAIRequest(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		temperature, topP := 0.7, 1e-7
		tricky := JSONString(`"caf\u00e9 \ud83d\udc4b raw é / \/ \u0000"`)
		req := &Request{
			Model: `odd "model"`, MaxTokensField: "max_completion_tokens", MaxTokens: 4096,
			Messages: []Message{
				{Role: "system", Content: Quote("S")},
				{Role: "user", Content: tricky},
				{Role: "assistant", Content: Quote("")},
				{Role: "tool", Content: Quote("  spaces \n")},
			},
			Temperature: &temperature, TopP: &topP, Stop: []string{"\n\n", "END"}, Stream: true, APIKey: "sk-k",
		}
		sent := req.Messages
		require.NoError(t, call1(t, v, req).err)
		require.Nil(t, req.Messages, "the adapter keeps nothing of a prompt that the vendor has")
		req.Messages = sent
		req.Stream, req.APIKey, req.Stop, req.Temperature, req.TopP, req.MaxTokensField = false, "", nil, nil, nil, ""
		require.NoError(t, call1(t, v, req).err)

		seen := v.Requests()
		require.Len(t, seen, 2)
		messages := `"messages":[{"role":"system","content":"S"},{"role":"user","content":` + string(tricky) +
			`},{"role":"assistant","content":""},{"role":"tool","content":"  spaces \n"}]`
		require.Equal(t, `{"model":"odd \"model\"",`+messages+`,"temperature":0.7,"top_p":1e-07,"max_completion_tokens":4096,`+
			`"stop":["\n\n","END"],"stream":true,"stream_options":{"include_usage":true}}`, string(seen[0].Body))
		require.Equal(t, `{"model":"odd \"model\"",`+messages+`,"max_tokens":4096}`, string(seen[1].Body))
		for i, r := range seen {
			require.True(t, json.Valid(r.Body))
			require.Equal(t, "POST", r.Method)
			require.Equal(t, "/v1/chat/completions", r.Path)
			want := http.Header{
				"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"},
				"User-Agent": {"caddy-svc"}, "Content-Length": {strconv.Itoa(len(r.Body))}, "Authorization": {"Bearer sk-k"},
			}
			if i == 1 {
				want.Set("Accept", "application/json")
				want.Del("Authorization")
			}
			require.Equal(t, want, r.Header)
		}
	})
}

func TestOpenAIRetryAfter(t *testing.T) {
	t.Parallel()
	v := startVendor(t, 1, long)
	for name, want := range map[string]time.Duration{
		"429":                 0,
		"429;ra=7":            7 * time.Second,
		"503;ra=7":            7 * time.Second,
		"529;ra=0":            time.Second,
		"429;ra=-3":           time.Second,
		"429;ra=3600":         time.Minute,
		"429;ra=soon":         0,
		"429;ra=2.5":          2500 * time.Millisecond,
		"429;ra=7;ra_ms=1500": 1500 * time.Millisecond,
		"429;ra_ms=NaN;ra=3":  3 * time.Second,
		"429;ra=Fri,%2031%20Dec%202049%2023:59:59%20GMT": time.Minute,
		"429;ra=Fri,%2031%20Dec%202010%2023:59:59%20GMT": time.Second,
		"gemini-rate": 34 * time.Second,
		"500;ra=7":    0,
	} {
		err := call1(t, v, scenario(name, false)).err
		var e *Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, want, e.RetryAfter, name)
	}
}

func TestOpenAICloseEndsTheCall(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		events, err := v.Open(t.Context(), scenario("ok;gate=never;hold=2", true))
		require.NoError(t, err)
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, "Hello", event.Text)
		<-v.Reached("never")
		read := make(chan error)
		go func() {
			for {
				if _, err := events.Next(); err != nil {
					read <- err
					return
				}
			}
		}()
		events.Close()
		events.Close()
		requireFailure(t, <-read, FailureCanceled)
		require.True(t, v.Requests()[0].Aborted())
	})
}

func TestOpenAICanceledByTheCaller(t *testing.T) {
	t.Parallel()
	gone := errors.New("the client is gone")
	eachVersion(t, long, func(t *testing.T, v vendor) {
		// Before the call.
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		_, err := v.Open(ctx, scenario("ok", true))
		require.ErrorIs(t, requireFailure(t, err, FailureCanceled), gone)
		require.Empty(t, v.Requests())
		// Before the answer, and in the middle of it.
		for name, stream := range map[string]bool{"hang": true, "hang;x=1": false, "stall": true, "truncate;gate=g": false} {
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := make(chan struct{})
			go func() {
				v.Await(t, "scenario:"+name+`"`, 1)
				cancel(gone)
				close(stop)
			}()
			events, err := v.Open(ctx, scenario(name, stream))
			if err == nil {
				err = readOut(t, events).err
				events.Close()
			}
			<-stop
			require.ErrorIs(t, requireFailure(t, err, FailureCanceled), gone, name)
			require.True(t, v.Find(name + `"`)[0].Aborted(), name)
		}
	})
}

// A stream hands each event out when it comes, and says whether the next one is there.
func TestOpenAIStreamIsIncremental(t *testing.T) {
	t.Parallel()
	eachVersion(t, long, func(t *testing.T, v vendor) {
		for _, name := range []string{"ok", "gzip", "comments", "crlf", "cr"} {
			events, err := v.Open(t.Context(), scenario(name+";gate="+name+";hold=1", true))
			require.NoError(t, err)
			event, err := events.Next()
			require.NoError(t, err)
			require.Equal(t, "Hello", event.Text)
			<-v.Reached(name)
			require.False(t, events.Buffered(), name)
			v.Release(name)
			came := readOut(t, events)
			require.NoError(t, came.err)
			require.Equal(t, " from upstream.", came.text)
			events.Close()
		}
	})
}

func TestOpenAIBadBaseURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "api.example.com", "ftp://x/v1", "http://", ":", "http://[::1"} {
		e := requireFailure(t, call1(t, NewOpenAI(OpenAIConfig{BaseURL: base}), scenario("ok", true)).err, FailureRefused)
		require.True(t, e.Permanent)
	}
	for base, want := range map[string]string{
		"https://x/v1":                 "https://x/v1/chat/completions",
		"https://x/v1/":                "https://x/v1/chat/completions",
		"https://x":                    "https://x/chat/completions",
		"https://x/a%2Fb/v1?version=1": "https://x/a%2Fb/v1/chat/completions?version=1",
	} {
		require.Equal(t, want, NewOpenAI(OpenAIConfig{BaseURL: base}).endpoint.String())
	}
}

// countDials counts the connections a provider makes.
func countDials(p *OpenAI) *atomic.Int64 {
	var dials atomic.Int64
	var dialer net.Dialer
	p.transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return dialer.DialContext(ctx, network, address)
	}
	return &dials
}

// chunked is a body that comes in the given reads.
type chunked struct{ parts []string }

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; c.parts[0] == "" {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func (c *chunked) Close() error { return nil }

// bodyOf is a provider whose vendor streams the given reads.
func bodyOf(parts ...string) *OpenAI {
	return NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: &chunked{parts}, ContentLength: -1}, nil
	})})
}

// Buffered is true only if the next event is there as a whole; a guess would hold back what the client waits for.
func TestOpenAIBuffered(t *testing.T) {
	t.Parallel()
	piece := func(text string) string { return `data: {"choices":[{"delta":{"content":"` + text + `"}}]}` + "\n\n" }
	silent := `data: {"choices":[{"delta":{"role":"assistant"}}]}` + "\n\n: comment\n\n"
	events, err := bodyOf(
		piece("a")+piece("b")+silent+"data: {\"cho", // b is there, c isn't
		`ices":[{"delta":{"content":"c"}}]}`+"\n\n"+silent,
		silent+piece("d")+"data: [DONE]\n\n",
	).Open(t.Context(), scenario("ok", true))
	require.NoError(t, err)
	defer events.Close()
	for _, want := range []struct {
		text, finish string
		more         bool
	}{{"a", "", true}, {"b", "", false}, {"c", "", false}, {"d", "", true}, {"", "stop", true}} {
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, Event{Text: want.text, FinishReason: want.finish}, event)
		require.Equal(t, want.more, events.Buffered(), want.text)
		require.Equal(t, want.more, events.Buffered(), "asking changes nothing")
	}
	_, err = events.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestOpenAIWholeAnswerIsBuffered(t *testing.T) {
	t.Parallel()
	v := startVendor(t, 1, long)
	events, err := v.Open(t.Context(), scenario("ok", false))
	require.NoError(t, err)
	defer events.Close()
	require.True(t, events.Buffered())
}

// A Content-Encoding that is a lie, or an answer that is broken inside of it.
func TestOpenAIBrokenGzip(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Failure{
		"data: plain\n\n":                              FailureRefused,
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff":     FailureUnreachable, // cut short
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x07": FailureUnreachable, // a reserved block type
		"": FailureUnreachable,
	} {
		for _, stream := range []bool{true, false} {
			p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: &chunked{[]string{body}}, ContentLength: -1}, nil
			})})
			requireFailure(t, call1(t, p, scenario("ok", stream)).err, want)
		}
	}
}

// A recorded stream, cut in two at every byte, is always the same answer; cut short at any byte it is never a
// complete one unless the finish reason was in it.
func TestOpenAIStreamCutAnywhere(t *testing.T) {
	t.Parallel()
	const recorded = "\uFEFF: hello\r\n\r\n" +
		`data: {"id":"c","object":"chat.completion.chunk","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"n"}` + "\r\n\r\n" +
		`data: {"id":"c","choices":[{"index":0,"delta":{"content":"Ch\u00e0o 👋"},"finish_reason":null}],"usage":null}` + "\n\n" +
		`data:{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}` + "\r\r" +
		`data: {"id":"c","choices":[],"usage":{"prompt_tokens":18,"completion_tokens":286,"total_tokens":304}}` + "\n\ndata: [DONE]\n\n"
	want := whatCame{"Chào 👋", "length", &Usage{18, 286, 0, 0}, nil}
	finished := strings.Index(recorded, "\r\r") // the finish reason is known from the blank line on
	for cut := range len(recorded) {
		require.Equal(t, want, call1(t, bodyOf(recorded[:cut], recorded[cut:]), scenario("ok", true)), "cut at %d", cut)
		short := call1(t, bodyOf(recorded[:cut]), scenario("ok", true))
		if cut < finished {
			require.Error(t, short.err, "short at %d", cut)
			require.Empty(t, short.finish)
		} else if short.err == nil {
			require.Equal(t, want.finish, short.finish)
		}
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://api.example.com/v1":     "https://api.example.com/v1/chat/completions",
		"https://api.example.com/v1/":    "https://api.example.com/v1/chat/completions",
		"http://127.0.0.1:11434":         "http://127.0.0.1:11434/chat/completions",
		"http://127.0.0.1:11434/":        "http://127.0.0.1:11434/chat/completions",
		"http://host/openai/deployments": "http://host/openai/deployments/chat/completions",
	} {
		u, err := endpoint(base)
		require.NoError(t, err)
		require.Equal(t, want, u.String())
		require.Equal(t, "/", u.RequestURI()[:1])
	}
}
