package tests

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/providers/providertest/geminitest"
)

// nativeDialect is a vendor with a dialect of its own, whose scripts all have the same names:
// "cached" is an answer with cached and hidden tokens, "blocked" a prompt that the vendor refuses, "cut" a stream that ends before its
// finish reason, and "key" the error of a wrong key. Without a script it answers with usualText and the usual tokens.
type nativeDialect struct {
	protocol string
	// start starts the vendor and returns the base URL for a provider's configuration.
	start func(t testing.TB) (baseURL string)
	// cached is the charge of the script of that name. Half a micro of the cached tokens rounds up.
	cached int64
}

var nativeDialects = []nativeDialect{
	{"anthropic", startAnthropic, 75 + 10 + 4 + 961 + 2*330}, // 8 tokens are written to the cache for 5 minutes, 2 for an hour
	{"gemini", func(t testing.TB) string {
		t.Helper()
		_, baseURL := geminitest.Start(t, map[string]geminitest.Script{
			"cached": {Responses: []string{`{"candidates":[{"content":{"parts":[{"text":"Hm","thought":true},{"text":"Yes."}]},"finishReason":"MAX_TOKENS"}],` +
				`"usageMetadata":{"promptTokenCount":2006,"cachedContentTokenCount":1921,"candidatesTokenCount":300,"thoughtsTokenCount":30,"totalTokenCount":2336}}`}},
			"blocked": {Responses: []string{`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12}}`}},
			"cut": {Responses: []string{
				`{"candidates":[{"content":{"parts":[{"text":"Yes"}]}}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":1,"totalTokenCount":12}}`,
				`{"candidates":[{"content":{"parts":[{"text":" and"}]}}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":2,"thoughtsTokenCount":1,"totalTokenCount":14}}`,
			}},
			"key": {Status: 400, Body: `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`},
		})
		return baseURL
	}, 85 + 961 + 2*330},
}

// TestNativeDialects guarantees that a client gets the contract's answers from a vendor with a dialect of its own, in both forms and as
// long as the model can answer, and pays to the micro for all tokens of the vendor's report, once.
func TestNativeDialects(t *testing.T) {
	t.Parallel()
	d := deploy(t, store.SQLite, startUpstream(t))
	for _, v := range nativeDialects {
		d.App += fmt.Sprintf(`
			provider %[1]s {
				protocol %[1]s
				base_url %[2]s
				api_key {env.ACME_KEY}
			}
			model %[1]s/std {
				context_window 1000000
				max_output_tokens 65536
				price_input 1000000
				price_output 2000000
				price_cached_input 500000
				price_cache_write 1250000
				price_cache_write_long 2000000
			}
		`, v.protocol, v.start(t))
	}
	p := startProduct(t, d)
	for _, v := range nativeDialects {
		t.Run(v.protocol, func(t *testing.T) {
			t.Parallel()
			c, model := p.operator().customer(t, 100_000_000), v.protocol+"/std"
			var charges []int64
			eachForm(t, func(t *testing.T, stream bool) {
				for _, test := range []struct {
					prompt, text, finish string
					charge               int64
				}{
					{"Hello", usualText, "stop", usualCharge},
					{"script:cached", "Yes.", "length", v.cached},
					{"script:blocked", "", "content_filter", 12},
				} {
					for _, more := range []string{`"max_tokens":2000`, `"temperature":0.5`} { // a short answer, and as long as the model can answer
						done := requireAnswered(t, p.as(c).chat(t, prompt(model, test.prompt, stream, more)), model, stream)
						require.Equal(t, test.text, done.Text)
						require.Equal(t, test.finish, done.Finish)
						require.Equal(t, test.charge, done.charged(t))
						charges = append(charges, test.charge)
					}
				}
				a := p.as(c).chat(t, prompt(model, "script:key", stream))
				requireError(t, a, "provider_error")
				require.Equal(t, "false", a.Header.Get("X-Should-Retry"))
				charges = append(charges, 0)
				a = p.as(c).chat(t, prompt(model, "script:cut", stream))
				if stream {
					requireBroken(t, a, "provider_error")
					charges = append(charges, 11+2*3)
				} else {
					requireError(t, a, "provider_error")
					charges = append(charges, 0)
				}
			})
			balance := int64(100_000_000)
			for i, call := range c.awaitCalls(t, len(charges)) {
				require.Equal(t, charges[i], call.Charged)
				balance -= call.Charged
			}
			require.Equal(t, balance, c.wallet(t).BalanceMicros)
		})
	}
}
