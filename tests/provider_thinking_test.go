package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestLongThought guarantees that a client whose model thinks for long gets its status and the role chunk meanwhile, whether
// the vendor has sent headers or not, and afterwards the rest of an answer or one error event. Over HTTP/1.1 and HTTP/2.
func TestLongThought(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := deploy(t, store.SQLite, up)
	d.TLS, d.Early = true, "200ms"
	p := startProduct(t, d)
	c := p.operator().customer(t, 1_000_000)
	answers := func(call *upstreamCall) { call.answer(usualText, usualUsage) }
	thoughts := map[string]struct {
		// before and after are the vendor's steps around its thinking.
		before, after func(*upstreamCall)
		// code is that of a failure.
		code string
	}{
		"before the headers": {before: func(*upstreamCall) {}, after: answers},
		"in reasoning": {
			before: func(call *upstreamCall) {
				call.begin()
				call.chunk(`{"reasoning_content":"hm"}`, "null")
			},
			after: func(call *upstreamCall) {
				call.text(usualText)
				call.finish("stop")
				call.usage(usualUsage)
				call.done()
			},
		},
		"then a refusal": {
			before: func(*upstreamCall) {},
			after:  func(call *upstreamCall) { call.json(429, `{"error":{"message":"slow down"}}`) },
			code:   "provider_overloaded",
		},
		"then a break": {before: (*upstreamCall).begin, after: (*upstreamCall).drop, code: "provider_error"},
	}
	calls := 0
	for protocol, as := range map[string]*client{"h1": p.as(c), "h2": p.asOverTLS(c)} {
		for name, thought := range thoughts {
			calls++
			t.Run(protocol+" "+name, func(t *testing.T) {
				before := c.wallet(t).BalanceMicros
				g := newGate(t)
				s := up.script(func(call *upstreamCall) {
					thought.before(call)
					if g.pass(call) {
						thought.after(call)
					}
				})
				live := openStream(t, as, prompt(modelStd, s.Mark, true))
				role, err := live.next()
				require.NoError(t, err)
				require.Contains(t, role, `"delta":{"role":"assistant","content":""}`)
				g.open() // the vendor goes on only after the client has read the role chunk
				a := live.rest()
				a.Body = append([]byte("data: "+role+"\n\n"), a.Body...)
				if thought.code != "" {
					requireBroken(t, a, thought.code)
					c.awaitCalls(t, calls)
					require.Equal(t, before, c.wallet(t).BalanceMicros)
					return
				}
				done := requireStream(t, a, modelStd)
				require.Equal(t, usualText, done.Text)
				require.EqualValues(t, usualCharge, done.charged(t))
			})
		}
	}
}

// TestPairsAndParts guarantees that a character whose surrogates come in two chunks reaches the client whole, and so does the text
// of a content that is an array, without the thinking in it.
func TestPairsAndParts(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	as := p.as(p.operator().customer(t, 1_000_000))
	const parts = `[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":" there"},{"type":"text","text":"!"}]`
	s := up.script(func(call *upstreamCall) {
		if !call.Body.Stream {
			call.json(http.StatusOK, strings.Replace(completion(usualText, usualUsage), quoted(usualText), parts, 1))
			return
		}
		call.begin()
		call.chunk(`{"content":"Hi \ud83d"}`, "null")
		call.chunk(`{"content":""}`, "null")
		call.chunk(`{"content":"\ude00"}`, "null")
		call.chunk(`{"content":`+parts+`}`, "null")
		call.chunk(`{"content":"\ud83d"}`, "null")
		call.finish("stop")
		call.usage(usualUsage)
		call.done()
	})
	require.Equal(t, "Hi 😀 there!\uFFFD", requireStream(t, as.chat(t, prompt(modelStd, s.Mark, true)), modelStd).Text)
	require.Equal(t, " there!", requireCompletion(t, as.chat(t, prompt(modelStd, s.Mark, false)), modelStd).Text)
}

// TestReasoningInTheTotal guarantees that reasoning which a vendor counts only in its total is paid, and that the usage in the
// client's answer adds up.
func TestReasoningInTheTotal(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	for total, output := range map[int64]int64{18: 7, 12: 7, 48: 37} {
		s := up.script(func(call *upstreamCall) {
			call.answer(usualText, fmt.Sprintf(`{"prompt_tokens":11,"completion_tokens":7,"total_tokens":%d}`, total))
		})
		eachForm(t, func(t *testing.T, stream bool) {
			done := requireAnswered(t, p.as(c).chat(t, prompt(modelStd, s.Mark, stream)), modelStd, stream)
			require.EqualValues(t, 11, done.Usage.Prompt)
			require.Equal(t, output, done.Usage.Completion)
			require.Equal(t, 11+output, done.Usage.Total)
			require.Equal(t, 11+2*output, done.charged(t))
		})
	}
}
