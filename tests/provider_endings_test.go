package tests

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ending is one way in which a provider can fail.
type ending struct {
	name string
	// play is the provider's part; the call says whether a stream was asked for.
	play func(*upstreamCall)
	// whole is the code of a call for a whole answer, stream that of a stream; empty: it is served.
	whole, stream string
	// begun: the stream's failure is an event of the stream, because text came before it.
	begun bool
	// either: no text came before, and the failure may come with its status or inside the stream.
	either bool
	// retryAfter is the Retry-After of the answer, 0 for none.
	retryAfter int
	// permanent: official clients are advised not to retry.
	permanent bool
	// charge is what is taken from the wallet for a whole answer and for a stream; -1: an estimate above 0.
	charge [2]int64
	// field is error.field.
	field string
}

// secretText is what a provider may say and no client may read.
const secretText = "Incorrect API key provided: sk-vendor-secret-1234"

func vendorError(status int, headers ...string) func(*upstreamCall) {
	return func(c *upstreamCall) {
		for i := 0; i < len(headers); i += 2 {
			c.w.Header().Set(headers[i], headers[i+1])
		}
		c.json(status, `{"error":{"message":"`+secretText+`","type":"server_error","param":null,"code":null}}`)
	}
}

// afterTwo begins the usual stream, sends two pieces and then fails; asked for a whole answer it fails at once.
func afterTwo(fail func(*upstreamCall)) func(*upstreamCall) {
	return func(c *upstreamCall) {
		if c.Body.Stream {
			c.begin()
			c.text("Hello ")
			c.text("from ")
		}
		fail(c)
	}
}

// endings are docs/contract.md#provider-failures and docs/billing.md#what-each-ending-costs: what the provider does, what the
// client sees, what it costs.
var endings = []ending{
	{name: "400", play: vendorError(400), whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "401", play: vendorError(401), whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "403", play: vendorError(403), whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "404", play: vendorError(404), whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "408", play: vendorError(408), whole: "provider_timeout", stream: "provider_timeout"},
	{name: "413", play: vendorError(413), whole: "invalid_request", stream: "invalid_request", field: "messages", permanent: true},
	{name: "429", play: vendorError(429), whole: "provider_overloaded", stream: "provider_overloaded", retryAfter: 5},
	{name: "429 with a wish", play: vendorError(429, "Retry-After", "7"), whole: "provider_overloaded", stream: "provider_overloaded", retryAfter: 7},
	{name: "429 with a big wish", play: vendorError(429, "Retry-After", "3600"), whole: "provider_overloaded", stream: "provider_overloaded", retryAfter: 60},
	{name: "429 out of quota", play: func(c *upstreamCall) {
		c.json(429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`)
	}, whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "500", play: vendorError(500), whole: "provider_error", stream: "provider_error"},
	{name: "502", play: vendorError(502), whole: "provider_error", stream: "provider_error"},
	{name: "503", play: vendorError(503, "Retry-After", "2"), whole: "provider_overloaded", stream: "provider_overloaded", retryAfter: 2},
	{name: "504", play: vendorError(504), whole: "provider_timeout", stream: "provider_timeout"},
	{name: "529", play: vendorError(529), whole: "provider_overloaded", stream: "provider_overloaded", retryAfter: 5},
	{name: "302", play: func(c *upstreamCall) {
		c.w.Header().Set("Location", "/elsewhere")
		c.w.WriteHeader(http.StatusFound)
	}, whole: "provider_error", stream: "provider_error", permanent: true},
	{name: "context length", play: func(c *upstreamCall) {
		c.json(400, `{"error":{"message":"This model's maximum context length is 128 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`)
	}, whole: "context_too_long", stream: "context_too_long", field: "messages", permanent: true},
	{name: "HTML with 200", play: func(c *upstreamCall) {
		c.w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(c.w, "<html>"+secretText+"</html>")
	}, whole: "provider_error", stream: "provider_error"},
	{name: "HTML with 500", play: func(c *upstreamCall) {
		http.Error(c.w, "<html>"+secretText+"</html>", http.StatusInternalServerError)
	}, whole: "provider_error", stream: "provider_error"},
	{name: "empty 200", play: func(*upstreamCall) {}, whole: "provider_error", stream: "provider_error"},
	{name: "garbage JSON", play: func(c *upstreamCall) {
		if c.Body.Stream {
			c.w.Header().Set("Content-Type", "text/event-stream")
			c.raw("data: {\"id\":\"x\",\"choices\":[{\"mess\n\n")
			return
		}
		c.json(200, `{"id":"x","choices":[{"mess`)
	}, whole: "provider_error", stream: "provider_error", either: true},
	{name: "no choices", play: func(c *upstreamCall) {
		if c.Body.Stream {
			c.w.Header().Set("Content-Type", "text/event-stream")
			c.usage(usualUsage)
			return
		}
		c.json(200, `{"id":"x","object":"chat.completion","choices":[],"usage":`+usualUsage+`}`)
	}, whole: "provider_error", stream: "provider_error", either: true}, // nothing came before the end
	{name: "drops before headers", play: (*upstreamCall).drop, whole: "provider_error", stream: "provider_error"},
	{name: "drops after headers", play: func(c *upstreamCall) {
		if c.Body.Stream {
			c.begin()
		} else {
			c.w.Header().Set("Content-Type", "application/json")
			c.w.Header().Set("Content-Length", "5000")
			c.raw(completion("Hel", usualUsage)[:60])
		}
		c.drop()
	}, whole: "provider_error", stream: "provider_error", either: true},
	{name: "breaks mid-stream", play: afterTwo((*upstreamCall).drop), whole: "provider_error", stream: "provider_error", begun: true},
	{name: "ends mid-stream", play: afterTwo(func(c *upstreamCall) {
		if !c.Body.Stream {
			c.drop()
		}
	}), whole: "provider_error", stream: "provider_error", begun: true},
	{name: "an error event mid-stream", play: afterTwo(func(c *upstreamCall) {
		if !c.Body.Stream {
			c.drop()
		}
		c.raw(`data: {"error":{"message":"` + secretText + `","type":"server_error","code":"server_error"}}` + "\n\n")
	}), whole: "provider_error", stream: "provider_error", begun: true},
	{name: "an overload event mid-stream", play: afterTwo(func(c *upstreamCall) {
		if !c.Body.Stream {
			c.drop()
		}
		c.raw(`data: {"error":{"message":"` + secretText + `","code":503,"status":"UNAVAILABLE"}}` + "\n\n")
	}), whole: "provider_error", stream: "provider_overloaded", begun: true},
	{name: "garbage mid-stream", play: afterTwo(func(c *upstreamCall) {
		if !c.Body.Stream {
			c.drop()
		}
		c.raw("data: {\"id\": oops\n\n")
		c.done()
	}), whole: "provider_error", stream: "provider_error", begun: true},
	{name: "breaks after reporting usage", play: func(c *upstreamCall) {
		if c.Body.Stream {
			c.begin()
			c.text("Hello ")
			c.raw(`data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":` + usage(11, 7) + "}\n\n")
		}
		c.drop()
	}, whole: "provider_error", stream: "provider_error", begun: true, charge: [2]int64{0, usualCharge}},
	{name: "zero usage", play: func(c *upstreamCall) { c.answer(usualText, usage(0, 0)) }, charge: [2]int64{-1, -1}},
	{name: "no usage", play: func(c *upstreamCall) { c.answer(usualText, "") }, charge: [2]int64{-1, -1}},
	{name: "negative usage", play: func(c *upstreamCall) { c.answer(usualText, usage(-5, 7)) }, charge: [2]int64{-1, -1}},
	{name: "absurd usage", play: func(c *upstreamCall) { c.answer(usualText, usage(11, 1<<40)) }, charge: [2]int64{-1, -1}},
	{name: "fractional usage", play: func(c *upstreamCall) {
		c.answer(usualText, `{"prompt_tokens":11.5,"completion_tokens":7,"total_tokens":18}`)
	}, charge: [2]int64{-1, -1}},
	{name: "usage of strings", play: func(c *upstreamCall) {
		c.answer(usualText, `{"prompt_tokens":"11","completion_tokens":"7"}`)
	}, charge: [2]int64{-1, -1}},
}

// TestProviderEndings guarantees the second half of the list of bad input: whatever the provider does, the client
// gets the contract's error in the place where it can read it, never the vendor's words; the wallet loses exactly what
// docs/billing.md#what-each-ending-costs says and keeps nothing on hold. Over HTTP/1.1 and HTTP/2, on both stores.
func TestProviderEndings(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		up := startUpstream(t)
		d := deploy(t, engine, up)
		d.TLS = true
		p := startProduct(t, d)
		c := p.operator().customer(t, 100_000_000)
		calls := 0
		for protocol, as := range map[string]*client{"h1": p.as(c), "h2": p.asOverTLS(c)} {
			for _, e := range endings {
				t.Run(protocol+" "+e.name, func(t *testing.T) {
					s := up.script(e.play)
					eachForm(t, func(t *testing.T, stream bool) {
						before := c.wallet(t).BalanceMicros
						a := as.chat(t, prompt(modelStd, s.Mark, stream))
						calls++
						e.require(t, a, stream)
						require.NotContains(t, string(a.Body), "sk-vendor")
						row := c.awaitCalls(t, calls)[calls-1]
						paid := before - c.wallet(t).BalanceMicros
						require.Equal(t, row.Charged, paid)
						e.requireCharge(t, a, stream, paid)
					})
				})
			}
		}
		require.NotContains(t, p.log.String(), "sk-vendor", "the vendor's words are for nobody") // S20
	})
}

func (e ending) require(t *testing.T, a answer, stream bool) {
	t.Helper()
	code := e.whole
	if stream {
		code = e.stream
	}
	if code == "" {
		requireAnswered(t, a, modelStd, stream)
		return
	}
	if stream && (e.begun || e.either && a.Status == http.StatusOK) {
		requireBroken(t, a, code)
		return
	}
	got := requireError(t, a, code)
	if stream && e.either {
		return
	}
	require.Equal(t, e.retryAfter, got.RetryAfter)
	require.Equal(t, e.field, got.Field)
	require.Equal(t, e.permanent, a.Header.Get("X-Should-Retry") == "false", "x-should-retry of %s", a.Body)
	if code == "context_too_long" {
		require.Contains(t, got.Message, "maximum context length")
	}
}

func (e ending) requireCharge(t *testing.T, a answer, stream bool, paid int64) {
	t.Helper()
	want := e.charge[0]
	if stream {
		want = e.charge[1]
	}
	if want < 0 {
		require.Positive(t, paid)
	} else {
		require.Equal(t, want, paid)
	}
	if e.whole == "" {
		require.Equal(t, paid, requireAnswered(t, a, modelStd, stream).charged(t))
	}
}

// TestProviderTimeouts guarantees that no silence of a provider lasts: connecting, the first byte, a whole answer and the
// pause inside a stream each have their limit, and end as 504 provider_timeout, inside the stream once it has begun. Nothing is charged.
func TestProviderTimeouts(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.First, d.Idle, d.Response = "4s", "4s", "4s" // longer than a loaded machine needs to pass an answer on
	p := startProduct(t, d)
	c := p.operator().customer(t, 100_000_000)
	as := p.as(c)
	silent := up.script((*upstreamCall).hang)
	headersOnly := up.script(func(call *upstreamCall) {
		call.w.Header().Set("Content-Type", "text/event-stream")
		call.w.WriteHeader(http.StatusOK)
		call.raw("")
		call.hang()
	})
	comments := up.script(func(call *upstreamCall) {
		call.w.Header().Set("Content-Type", "text/event-stream")
		call.w.WriteHeader(http.StatusOK)
		call.raw("")
		call.hang()
	})
	stalls := up.script(func(call *upstreamCall) {
		call.begin()
		call.text("Hello ")
		call.hang()
	})
	// Silence after the closing chunk isn't a failure: the answer is whole.
	quiet := up.script(func(call *upstreamCall) {
		call.begin()
		call.text(usualText)
		call.raw(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":` + usualUsage + "}\n\n")
		call.hang()
	})
	bodies := []string{
		prompt(modelStd, silent.Mark, false), prompt(modelStd, silent.Mark, true), prompt(modelStd, headersOnly.Mark, true),
		prompt(modelStd, comments.Mark, true), prompt(modelStd, stalls.Mark, true), prompt(modelStd, quiet.Mark, true),
		prompt(modelDead, "hi", false), prompt(modelDead, "hi", true),
	}
	answers := make([]answer, len(bodies))
	together(len(bodies), func(i int) { // the silences last side by side
		var err error
		answers[i], err = as.tryChat(bodies[i])
		failOn(t, err)
	})
	requireError(t, answers[0], "provider_timeout")
	requireError(t, answers[1], "provider_timeout")
	for _, a := range answers[2:4] {
		if a.Status == http.StatusOK {
			requireBroken(t, a, "provider_timeout")
		} else {
			requireError(t, a, "provider_timeout")
		}
	}
	requireBroken(t, answers[4], "provider_timeout")
	done := requireStream(t, answers[5], modelStd)
	require.EqualValues(t, usualCharge, done.charged(t))
	requireError(t, answers[6], "provider_error")
	requireError(t, answers[7], "provider_error")
	c.awaitCalls(t, len(bodies))
	require.EqualValues(t, 100_000_000-usualCharge, c.wallet(t).BalanceMicros)
}

// TestDialects guarantees that every stream a provider may send reaches the client in the one order of docs/contract.md#stream,
// with the text unchanged to the byte.
func TestDialects(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000_000)
	head := func(call *upstreamCall) {
		call.w.Header().Set("Content-Type", "text/event-stream")
		call.w.WriteHeader(http.StatusOK)
	}
	const unicode = "Xin chào 👋🏽 — مرحبا 🇻🇳 日本語 \u200d👩‍👩‍👧‍👦 ́é \"q\" \\ \n\ttab </script> data: [DONE]\n\n"
	chunkOf := func(content string) string {
		return `{"choices":[{"index":0,"delta":{"content":` + quoted(content) + `},"finish_reason":null}]}`
	}
	const closing = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	const usageChunk = `{"choices":[],"usage":` + usualUsage + `}`
	huge := strings.Repeat("A", 8<<20)

	dialects := map[string]struct {
		text string
		play func(call *upstreamCall)
	}{
		"CRLF": {usualText, func(call *upstreamCall) {
			head(call)
			for _, data := range []string{chunkOf(usualText), closing, usageChunk, "[DONE]"} {
				call.raw("data: " + data + "\r\n\r\n")
			}
		}},
		"CR": {usualText, func(call *upstreamCall) {
			head(call)
			for _, data := range []string{chunkOf(usualText), closing, usageChunk, "[DONE]"} {
				call.raw("data: " + data + "\r\r")
			}
		}},
		"no space": {usualText, func(call *upstreamCall) {
			head(call)
			for _, data := range []string{chunkOf(usualText), closing, usageChunk, "[DONE]"} {
				call.raw("data:" + data + "\n\n")
			}
		}},
		"comments, ids and events": {usualText, func(call *upstreamCall) {
			head(call)
			call.raw(": PROCESSING\n\nevent: message\nid: 1\nretry: 100\n")
			for _, data := range []string{chunkOf(usualText), closing, usageChunk, "[DONE]"} {
				call.raw("id: 5\nevent: x\ndata: " + data + "\n\n: ping\n\n")
			}
		}},
		"a byte order mark": {usualText, func(call *upstreamCall) {
			head(call)
			call.raw("\ufeff")
			for _, data := range []string{chunkOf(usualText), closing, usageChunk, "[DONE]"} {
				call.raw("data: " + data + "\n\n")
			}
		}},
		"split UTF-8": {unicode, func(call *upstreamCall) {
			head(call)
			for _, data := range []string{chunkOf(unicode), closing, usageChunk, "[DONE]"} {
				for _, b := range []byte("data: " + data + "\n\n") {
					call.raw(string([]byte{b}))
				}
			}
		}},
		"a line of 8 MiB": {huge, func(call *upstreamCall) {
			head(call)
			for _, data := range []string{chunkOf(huge), closing, usageChunk, "[DONE]"} {
				call.raw("data: " + data + "\n\n")
			}
		}},
		"2,000 pieces": {strings.Repeat("piece ", 2000), func(call *upstreamCall) {
			call.begin()
			for range 2000 {
				call.text("piece ")
			}
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		}},
		"role with content": {usualText, func(call *upstreamCall) {
			head(call)
			call.chunk(`{"role":"assistant","content":`+quoted(usualText)+`}`, "null")
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		}},
		"role in each chunk, null content": {usualText, func(call *upstreamCall) {
			head(call)
			call.chunk(`{"role":"assistant","content":null}`, "null")
			for word := range strings.SplitAfterSeq(usualText, " ") {
				call.chunk(`{"role":"assistant","content":`+quoted(word)+`}`, "null")
			}
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		}},
		"content and usage on the closing chunk": {usualText, func(call *upstreamCall) {
			call.begin()
			call.raw(`data: {"choices":[{"index":0,"delta":{"content":` + quoted(usualText) + `},"finish_reason":"stop"}],"usage":` + usualUsage + "}\n\n")
			call.done()
		}},
		"usage null until the end": {usualText, func(call *upstreamCall) {
			head(call)
			call.raw(`data: {"choices":[{"index":0,"delta":{"content":` + quoted(usualText) + `},"finish_reason":null}],"usage":null}` + "\n\n")
			call.raw(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n")
			call.usage(usualUsage)
			call.done()
		}},
		"no [DONE]": {usualText, func(call *upstreamCall) {
			call.begin()
			call.text(usualText)
			call.finish("stop")
			call.usage(usualUsage)
		}},
		"[DONE] without a closing chunk": {usualText, func(call *upstreamCall) {
			call.begin()
			call.text(usualText)
			call.usage(usualUsage)
			call.done()
		}},
		"reasoning, empty deltas, another choice, svc and error null": {usualText, func(call *upstreamCall) {
			call.begin()
			call.chunk(`{"reasoning_content":"thinking"}`, "null")
			call.chunk(`{}`, "null")
			call.raw(`data: {"error":null,"svc":{"charged_micros":"0"},"choices":[{"index":0,"delta":{"content":` + quoted(usualText) + `}},{"index":1,"delta":{"content":"other"}}]}` + "\n\n")
			call.finish("stop")
			call.usage(usualUsage)
			call.done()
		}},
	}
	for name, dialect := range dialects {
		t.Run(name, func(t *testing.T) {
			s := up.script(dialect.play)
			done := requireStream(t, p.as(c).chat(t, prompt(modelStd, s.Mark, true)), modelStd)
			require.Equal(t, dialect.text, done.Text, "the text differs: %.200q", done.Text)
			require.Equal(t, "stop", done.Finish)
			require.EqualValues(t, 11, done.Usage.Prompt)
			require.EqualValues(t, 7, done.Usage.Completion)
			require.EqualValues(t, usualCharge, done.charged(t))
		})
	}
	t.Run("finish_reason length", func(t *testing.T) {
		s := up.script(func(call *upstreamCall) {
			if !call.Body.Stream {
				call.json(http.StatusOK, strings.Replace(completion(usualText, usualUsage), `"stop"`, `"length"`, 1))
				return
			}
			call.begin()
			call.text(usualText)
			call.finish("length")
			call.usage(usualUsage)
			call.done()
		})
		eachForm(t, func(t *testing.T, stream bool) {
			require.Equal(t, "length", requireAnswered(t, p.as(c).chat(t, prompt(modelStd, s.Mark, stream)), modelStd, stream).Finish)
		})
	})
	t.Run("null content of a whole answer", func(t *testing.T) {
		s := up.script(func(call *upstreamCall) {
			call.json(http.StatusOK, strings.Replace(completion(usualText, usualUsage), quoted(usualText), "null", 1))
		})
		require.Empty(t, requireCompletion(t, p.as(c).chat(t, prompt(modelStd, s.Mark, false)), modelStd).Text)
	})
}

// TestStreamIsLive guarantees that tokens are never held back: each piece is readable at the client before the provider
// sends the next one, over HTTP/1.1 and HTTP/2, and when the site compresses what it serves.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.TLS = true
	d.Routes += "encode gzip\n"
	p := startProduct(t, d)
	c := p.operator().customer(t, 1_000_000)
	compressed := *p.as(c)
	compressed.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // it asks for gzip
	for protocol, as := range map[string]*client{"h1": p.as(c), "h2": p.asOverTLS(c), "gzip": &compressed} {
		t.Run(protocol, func(t *testing.T) {
			gates := []*gate{newGate(t), newGate(t), newGate(t), newGate(t)}
			s := up.script(func(call *upstreamCall) {
				call.begin()
				for _, g := range gates {
					call.text("piece ")
					if !g.pass(call) {
						return
					}
				}
				call.finish("stop")
				call.usage(usualUsage)
				call.done()
			})
			live := openStream(t, as, prompt(modelStd, s.Mark, true))
			require.Equal(t, protocol == "gzip", live.response.Uncompressed)
			for _, g := range gates {
				live.readUntil(t, `"content":"piece "`)
				g.open() // only what was read lets the provider go on
			}
			live.readUntil(t, "[DONE]")
		})
	}
}
