package openai_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

func requireFailure(t *testing.T, err error, want providers.Failure) *providers.Error {
	t.Helper()
	return providertest.RequireFailure(t, err, want, openaitest.Secret, openaitest.OperatorKey)
}

const helloText = "Hello from upstream."

// Every dialect looks the same to the gateway.
func TestDialects(t *testing.T) {
	t.Parallel()
	usual := &providers.Usage{PromptTokens: 11, CompletionTokens: 7}
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		for name, want := range map[string]providertest.Answer{
			"ok":                          {Text: helloText, FinishReason: "stop", Usage: usual},
			"ok;pt=123;ct=45;cached=8":    {Text: helloText, FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 123, CompletionTokens: 45, CachedPromptTokens: 8, ReasoningTokens: 3}},
			"length":                      {Text: helloText, FinishReason: "length", Usage: usual},
			"content-filter":              {Text: helloText, FinishReason: "content_filter", Usage: usual},
			"ok;finish=model_length":      {Text: helloText, FinishReason: "length", Usage: usual},
			"ok;finish=MAX_TOKENS":        {Text: helloText, FinishReason: "length", Usage: usual},
			"ok;finish=max_output_tokens": {Text: helloText, FinishReason: "length", Usage: usual},
			"ok;finish=model_context_window_exceeded": {Text: helloText, FinishReason: "length", Usage: usual},
			"ok;finish=sensitive":                     {Text: helloText, FinishReason: "content_filter", Usage: usual},
			"ok;finish=content_filtered":              {Text: helloText, FinishReason: "content_filter", Usage: usual},
			"ok;finish=refusal":                       {Text: helloText, FinishReason: "content_filter", Usage: usual},
			"ok;finish=SAFETY":                        {Text: helloText, FinishReason: "content_filter", Usage: usual},
			"refusal":                                 {Text: helloText, FinishReason: "stop", Usage: usual},
			"azure-filter":                            {Text: helloText, FinishReason: "stop", Usage: usual},
			"empty-text":                              {FinishReason: "stop", Usage: usual},
			"null-content":                            {FinishReason: "stop", Usage: usual},
			"unicode":                                 {Text: openaitest.Unicode, FinishReason: "stop", Usage: usual},
			"split-utf8":                              {Text: openaitest.Unicode, FinishReason: "stop", Usage: usual},
			"split-pair":                              {Text: openaitest.Unicode, FinishReason: "stop", Usage: usual},
			"content-parts":                           {Text: helloText, FinishReason: "stop", Usage: usual},
			"crlf":                                    {Text: helloText, FinishReason: "stop", Usage: usual},
			"cr":                                      {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-space":                                {Text: helloText, FinishReason: "stop", Usage: usual},
			"bom":                                     {Text: helloText, FinishReason: "stop", Usage: usual},
			"comments":                                {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-role":                                 {Text: helloText, FinishReason: "stop", Usage: usual},
			"role-null":                               {Text: helloText, FinishReason: "stop", Usage: usual},
			"role-content":                            {Text: helloText, FinishReason: "stop", Usage: usual},
			"role-each":                               {Text: helloText, FinishReason: "stop", Usage: usual},
			"finish-content":                          {Text: helloText, FinishReason: "stop", Usage: usual},
			"finish-each":                             {Text: helloText, FinishReason: "stop", Usage: usual},
			"all-in-one":                              {Text: helloText, FinishReason: "stop", Usage: usual},
			"reasoning":                               {Text: helloText, FinishReason: "stop", Usage: usual},
			"tool-calls":                              {Text: helloText, FinishReason: "stop", Usage: usual},
			"empty-delta":                             {Text: helloText, FinishReason: "stop", Usage: usual},
			"unknown-event":                           {Text: helloText, FinishReason: "stop", Usage: usual},
			"two-choices":                             {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-done":                                 {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-done-open":                            {Text: helloText, FinishReason: "stop", Usage: usual},
			"done-open":                               {Text: helloText, FinishReason: "stop", Usage: usual},
			"unfinished-lines":                        {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-finish":                               {Text: helloText, FinishReason: "stop", Usage: usual},
			"gzip":                                    {Text: helloText, FinishReason: "stop", Usage: usual},
			"gzip;n=500":                              {Text: words(500), FinishReason: "stop", Usage: usual},
			"ok;n=2000":                               {Text: words(2000), FinishReason: "stop", Usage: usual},
			"ok;size=1048576":                         {Text: strings.Repeat("A", 1<<20), FinishReason: "stop", Usage: usual},
			"ok;size=8388608":                         {Text: strings.Repeat("A", 8<<20), FinishReason: "stop", Usage: usual},
			"ok;delay=1":                              {Text: helloText, FinishReason: "stop", Usage: usual},
			"no-usage":                                {Text: helloText, FinishReason: "stop"},
			"zero-usage":                              {Text: helloText, FinishReason: "stop", Usage: &providers.Usage{}},
			"negative-usage":                          {Text: helloText, FinishReason: "stop"},
			"fraction-usage":                          {Text: helloText, FinishReason: "stop"},
			"text-usage":                              {Text: helloText, FinishReason: "stop"},
			"float-usage":                             {Text: helloText, FinishReason: "stop", Usage: usual},
			"absurd-usage":                            {Text: helloText, FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 11, CompletionTokens: 4_000_000_000_000}},
			"usage-null":                              {Text: helloText, FinishReason: "stop", Usage: usual},
			"usage-on-finish":                         {Text: helloText, FinishReason: "stop", Usage: usual},
			"usage-groq":                              {Text: helloText, FinishReason: "stop", Usage: usual},
			"usage-choice":                            {Text: helloText, FinishReason: "stop", Usage: usual},
			"usage-twice":                             {Text: helloText, FinishReason: "stop", Usage: usual},
		} {
			for _, stream := range []bool{true, false} {
				require.Equal(t, want, providertest.Ask(t, v, openaitest.Ask(name, stream)), "%s stream=%v", name, stream)
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
func TestFailures(t *testing.T) {
	t.Parallel()
	type want struct {
		failure   providers.Failure
		permanent bool
		inOpen    bool
	}
	refused, unreachable := want{providers.FailureRefused, false, true}, want{providers.FailureUnreachable, false, true}
	overloaded := want{providers.FailureOverloaded, false, true}
	tooLong := want{providers.FailureContextTooLong, true, true}
	both := map[string]want{
		"400":               {providers.FailureRefused, true, true},
		"401":               {providers.FailureRefused, true, true},
		"401;body=html":     {providers.FailureRefused, true, true},
		"401;body=array":    {providers.FailureRefused, true, true},
		"402":               {providers.FailureRefused, true, true},
		"403":               {providers.FailureRefused, true, true},
		"404;body=text":     {providers.FailureRefused, true, true},
		"404;body=vllm":     {providers.FailureRefused, true, true},
		"422":               {providers.FailureRefused, true, true},
		"redirect":          {providers.FailureRefused, true, true},
		"quota":             {providers.FailureRefused, true, true},
		"408":               {providers.FailureTimeout, false, true},
		"504;body=html":     {providers.FailureTimeout, false, true},
		"413":               {providers.FailureRequestTooLarge, true, true},
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
	for _, word := range []string{"error", "abort", "network_error"} {
		both["ok;finish="+word] = refused
	}
	both["ok;finish=insufficient_system_resource"] = overloaded
	streams := map[string]want{
		"json-answer":         refused,
		"reset;at=0":          {providers.FailureUnreachable, false, false}, // the role came
		"reset":               {providers.FailureUnreachable, false, false},
		"rst":                 {providers.FailureUnreachable, false, false},
		"truncate":            {providers.FailureUnreachable, false, false},
		"bad-event":           {providers.FailureRefused, false, false},
		"error-event":         {providers.FailureRefused, false, false},
		"overloaded-event":    {providers.FailureOverloaded, false, false},
		"error-bare":          {providers.FailureOverloaded, false, false},
		"error-after-finish":  {providers.FailureRefused, false, false},
		"unending-line":       {providers.FailureRefused, false, false},
		"reset;at=4":          {providers.FailureUnreachable, false, false},
		"gzip-then-not;at=99": {providers.FailureRefused, false, true}, // no such scenario: 501
	}
	others := map[string]want{
		"truncate":         unreachable,
		"reset":            unreachable,
		"rst":              unreachable,
		"error-event":      refused,
		"overloaded-event": overloaded,
		"error-bare":       overloaded,
	}
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		check := func(name string, stream bool, want want) {
			if name == "error-first" && !stream {
				return // it is a stream's event
			}
			events, err := v.Open(t.Context(), openaitest.Ask(name, stream))
			if strings.HasPrefix(name, "ok;finish=") {
				want.inOpen = !stream
			}
			require.Equal(t, want.inOpen, err != nil, "%s stream=%v: %v", name, stream, err)
			if err == nil {
				came := providertest.Read(t, events)
				events.Close()
				require.Empty(t, came.FinishReason, name)
				err = came.Err
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

func TestRequest(t *testing.T) {
	t.Parallel()
	openaitest.EachVersion(t, openaitest.Long, func(t *testing.T, v openaitest.Vendor) {
		temperature, topP := 0.7, 1e-7
		tricky := providers.JSONString(`"caf\u00e9 \ud83d\udc4b raw é / \/ \u0000"`)
		req := &providers.Request{
			Model: `odd "model"`, MaxTokensField: "max_completion_tokens", MaxTokens: 4096,
			Messages: []providers.Message{
				{Role: "system", Content: providers.Quote("S")},
				{Role: "user", Content: tricky},
				{Role: "assistant", Content: providers.Quote("")},
				{Role: "tool", Content: providers.Quote("  spaces \n")},
			},
			Temperature: &temperature, TopP: &topP, Stop: []string{"\n\n", "END"}, Stream: true, APIKey: "sk-k",
		}
		sent := req.Messages
		require.NoError(t, providertest.Ask(t, v, req).Err)
		require.Nil(t, req.Messages, "the adapter keeps nothing of a prompt that the vendor has")
		req.Messages = sent
		req.Stream, req.APIKey, req.Stop, req.Temperature, req.TopP, req.MaxTokensField = false, "", nil, nil, nil, ""
		require.NoError(t, providertest.Ask(t, v, req).Err)

		seen := v.Requests()
		require.Len(t, seen, 2)
		messages := `"messages":[{"role":"system","content":"S"},{"role":"user","content":` + string(tricky) +
			`},{"role":"assistant","content":""},{"role":"user","content":"  spaces \n"}]`
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

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	v := openaitest.StartVendor(t, 1, openaitest.Long)
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
		err := providertest.Ask(t, v, openaitest.Ask(name, false)).Err
		var e *providers.Error
		require.ErrorAs(t, err, &e, name)
		require.Equal(t, want, e.RetryAfter, name)
	}
}

func TestBadBaseURL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "api.example.com", "ftp://x/v1", "http://", ":", "http://[::1"} {
		_, err := openai.Driver{}.New(&providers.Config{BaseURL: base})
		require.ErrorContains(t, err, "the base URL of the provider")
		if base != "" && base != ":" {
			require.NotContains(t, err.Error(), base, "a user part of it would be a secret")
		}
	}
}

// TestModel: the vendor's name of the model comes with the answer's first step, and is left out if it could not be printed.
func TestModel(t *testing.T) {
	t.Parallel()
	for member, want := range map[string]string{
		`"model":"m-2026-08-07",`: "m-2026-08-07", `"model":"m\u002d2",`: "m-2", `"model":null,`: "", `"model":7,`: "", ``: "", `"model":"",`: "",
		`"model":"a prompt",`: "", `"model":"` + strings.Repeat("m", 300) + `",`: "",
	} {
		for _, stream := range []bool{false, true} {
			body := `{` + member + `"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`
			if stream {
				body = `data: {` + member + `"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n" +
					`data: {"model":"another","choices":[{"delta":{"content":"x"}}]}` + "\n\ndata: [DONE]\n\n"
				if want == "" {
					body = strings.ReplaceAll(body, `"model":"another",`, "")
				}
			}
			vendor := openaitest.BodyOf(t, body)
			for range 2 { // the second name is the same
				events, err := vendor.Open(t.Context(), openaitest.Ask("ok", stream))
				require.NoError(t, err)
				event, err := events.Next()
				require.NoError(t, err)
				require.Equal(t, "x", event.Answer())
				require.Equal(t, want, event.Model, "%s, stream %v", member, stream)
				events.Close()
			}
		}
	}
}

// A recorded stream, cut in two at every byte, is always the same answer; cut short at any byte it is never a
// complete one unless the finish reason was in it.
func TestStreamCutAnywhere(t *testing.T) {
	t.Parallel()
	const recorded = "\uFEFF: hello\r\n\r\n" +
		`data: {"id":"c","object":"chat.completion.chunk","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"n"}` + "\r\n\r\n" +
		`data: {"id":"c","choices":[{"index":0,"delta":{"content":"Ch\u00e0o 👋"},"finish_reason":null}],"usage":null}` + "\n\n" +
		`data:{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":null}` + "\r\r" +
		`data: {"id":"c","choices":[],"usage":{"prompt_tokens":18,"completion_tokens":286,"total_tokens":304}}` + "\n\ndata: [DONE]\n\n"
	want := providertest.Answer{Text: "Chào 👋", FinishReason: "length", Usage: &providers.Usage{PromptTokens: 18, CompletionTokens: 286}}
	finished := strings.Index(recorded, "\r\r") // the finish reason is known from the blank line on
	for cut := range len(recorded) {
		require.Equal(t, want, providertest.Ask(t, openaitest.BodyOf(t, recorded[:cut], recorded[cut:]), openaitest.Ask("ok", true)), "cut at %d", cut)
		short := providertest.Ask(t, openaitest.BodyOf(t, recorded[:cut]), openaitest.Ask("ok", true))
		if cut < finished {
			require.Error(t, short.Err, "short at %d", cut)
			require.Empty(t, short.FinishReason)
		} else if short.Err == nil {
			require.Equal(t, want.FinishReason, short.FinishReason)
		}
	}
}
