package gemini_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/gemini"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/geminitest"
)

const operatorKey = "AIzaSy-operator-key-0123456789"

// vendor returns a provider before a vendor with the scripts.
func vendor(t testing.TB, scripts map[string]geminitest.Script) (*geminitest.Vendor, providers.Provider) {
	t.Helper()
	v, baseURL := geminitest.Start(t, scripts)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p, err := gemini.Driver{}.New(&providers.Config{BaseURL: baseURL, Transport: transport})
	require.NoError(t, err)
	return v, p
}

// ask returns a request for a script.
func ask(script string, stream bool, maxTokens int64) *providers.Request {
	return &providers.Request{
		Model: "gemini-9-flash", Stream: stream, MaxTokens: maxTokens, APIKey: operatorKey,
		Messages: []providers.Message{{Role: "user", Content: providers.Quote("script:" + script)}},
	}
}

const (
	short = 100
	long  = 65_536 // asked as the array of a stream
)

// The parts of a response.
func response(parts, finish, usage string) string {
	if finish != "" {
		finish = `,"finishReason":"` + finish + `"`
	}
	return `{"candidates":[{"content":{"parts":[` + parts + `],"role":"model"}` + finish + `,"index":0}],"usageMetadata":{` + usage + `},"modelVersion":"gemini-9-flash-001","responseId":"r"}`
}

const (
	hello = `{"text":"Hello"}`
	usual = `"promptTokenCount":11,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":18`
)

// TestAnswers has the answers of the notes' tables: each is the same as a stream and as the array of a stream, and the answers that
// are one response also without a stream.
func TestAnswers(t *testing.T) {
	t.Parallel()
	count := &providers.Usage{PromptTokens: 11, CompletionTokens: 7, ReasoningTokens: 2}
	usage := func(prompt, completion, cached, reasoning int64) *providers.Usage {
		return &providers.Usage{PromptTokens: prompt, CompletionTokens: completion, CachedPromptTokens: cached, ReasoningTokens: reasoning}
	}
	one := func(parts, finish, usage string) []string { return []string{response(parts, finish, usage)} }
	type row struct {
		responses []string
		want      providertest.Answer
	}
	rows := map[string]row{
		"pieces": {
			[]string{response(hello, "", usual), response(`{"text":" there"}`, "", usual), response(`{"text":"!"}`, "STOP", usual)},
			providertest.Answer{Text: "Hello there!", FinishReason: "stop", Usage: count},
		},
		"growing-usage": {
			[]string{
				response(hello, "", `"promptTokenCount":11,"candidatesTokenCount":1,"totalTokenCount":12`),
				response(hello, "", `"promptTokenCount":11,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":16`), response(hello, "STOP", usual),
			},
			providertest.Answer{Text: "HelloHelloHello", FinishReason: "stop", Usage: count},
		},
		"no-parts-at-the-end": {
			[]string{response(hello, "", usual), `{"candidates":[{"content":{"role":"model"},"finishReason":"STOP"}],"usageMetadata":{` + usual + `}}`},
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: count},
		},
		"no-content-at-the-end": {
			[]string{response(hello, "", usual), `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{` + usual + `}}`},
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: count},
		},
		"usage-alone-at-the-end": {
			[]string{response(hello, "STOP", `"promptTokenCount":11`), `{"usageMetadata":{` + usual + `}}`},
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: count},
		},
		"signature-at-the-end": {
			[]string{response(hello, "", usual), response(`{"text":"","thoughtSignature":"c2ln"}`, "STOP", usual)},
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: count},
		},
		"thoughts": {
			[]string{response(`{"text":"Hm","thought":true}`, "", usual), response(`{"thought":true,"text":"hm"},`+hello, "", usual), response(hello, "STOP", usual)},
			providertest.Answer{Text: "HelloHello", FinishReason: "stop", Usage: count},
		},
		"several-parts": {
			one(hello+`,{"text":" \ud83d"},{"functionCall":{"name":"f","args":{"text":"no"}}},{"text":"\ude00","thought":false}`, "STOP", usual),
			providertest.Answer{Text: "Hello 😀", FinishReason: "stop", Usage: count},
		},
		"early-stop": {
			[]string{response(hello, "STOP", usual), response(` {"text":" again"}`, "STOP", usual), response(`{"text":"."}`, "MAX_TOKENS", usual)},
			providertest.Answer{Text: "Hello again.", FinishReason: "length", Usage: count},
		},
		"second-candidate": {
			[]string{strings.Replace(response(hello, "STOP", usual), `}],"usageMetadata"`, `},{"content":{"parts":[{"text":"no"}]},"index":1}],"usageMetadata"`, 1)},
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: count},
		},
		"empty-text": {one(`{"text":""}`, "STOP", usual), providertest.Answer{FinishReason: "stop", Usage: count}},

		// Usage.
		"cached-inside": {
			one(hello, "STOP", `"promptTokenCount":2006,"cachedContentTokenCount":1920,"candidatesTokenCount":300,"totalTokenCount":2306,"promptTokensDetails":[{"modality":"TEXT","tokenCount":2006}]`),
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(2006, 300, 1920, 0)},
		},
		"tools-beside": {
			one(hello, "STOP", `"promptTokenCount":10,"toolUsePromptTokenCount":5,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":20`),
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(15, 5, 0, 2)},
		},
		"only-thoughts": {
			[]string{`{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS","index":0}],"usageMetadata":{"promptTokenCount":21,"thoughtsTokenCount":60,"totalTokenCount":81}}`},
			providertest.Answer{FinishReason: "length", Usage: usage(21, 60, 0, 60)},
		},
		"thoughts-in-the-total": {
			one(hello, "STOP", `"promptTokenCount":102,"candidatesTokenCount":758,"totalTokenCount":1725`),
			providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(102, 1623, 0, 0)},
		},
		"small-total":  {one(hello, "STOP", `"promptTokenCount":11,"candidatesTokenCount":7,"totalTokenCount":3`), providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(11, 7, 0, 0)}},
		"float-usage":  {one(hello, "STOP", `"promptTokenCount":11.0,"candidatesTokenCount":0.7e1,"totalTokenCount":18`), providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(11, 7, 0, 0)}},
		"large-cached": {one(hello, "STOP", `"promptTokenCount":11,"cachedContentTokenCount":12,"candidatesTokenCount":7`), providertest.Answer{Text: "Hello", FinishReason: "stop", Usage: usage(11, 7, 0, 0)}},
	}
	for name, counts := range map[string]string{
		"no-usage": ``, "negative-usage": `"promptTokenCount":11,"candidatesTokenCount":-7`, "fraction-usage": `"promptTokenCount":11.5,"candidatesTokenCount":7`,
		"text-usage": `"promptTokenCount":11,"candidatesTokenCount":"7"`, "no-prompt": `"candidatesTokenCount":7,"totalTokenCount":7`, "huge-usage": `"promptTokenCount":1e99`,
		"null-usage": `"promptTokenCount":null,"candidatesTokenCount":7`,
	} {
		rows[name] = row{one(hello, "STOP", counts), providertest.Answer{Text: "Hello", FinishReason: "stop"}}
	}
	for reason, want := range map[string]string{
		"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
		"PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "IMAGE_SAFETY": "content_filter", "IMAGE_PROHIBITED_CONTENT": "content_filter",
		"LANGUAGE": "stop", "OTHER": "stop", "MALFORMED_FUNCTION_CALL": "stop", "UNEXPECTED_TOOL_CALL": "stop", "TOO_MANY_TOOL_CALLS": "stop",
		"SOMETHING_NEW_THAT_NOBODY_HAS_EVER_SEEN": "stop",
	} {
		name := "finish-" + strings.ToLower(strings.ReplaceAll(reason, "_", "-"))
		rows[name] = row{one(hello, reason, usual), providertest.Answer{Text: "Hello", FinishReason: want, Usage: count}}
		if want != "stop" {
			rows[name+"-without-text"] = row{
				[]string{`{"candidates":[{"finishReason":"` + reason + `"}],"usageMetadata":{` + usual + `}}`}, providertest.Answer{FinishReason: want, Usage: count},
			}
		}
	}
	for _, reason := range []string{"SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "JAILBREAK"} {
		rows["blocked-"+strings.ToLower(strings.ReplaceAll(reason, "_", "-"))] = row{
			[]string{`{"candidates":[],"promptFeedback":{"safetyRatings":[],"blockReason":"` + reason + `"},"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12}}`},
			providertest.Answer{FinishReason: "content_filter", Usage: usage(12, 0, 0, 0)},
		}
	}
	scripts := map[string]geminitest.Script{}
	for name, row := range rows {
		scripts[name] = geminitest.Script{Responses: row.responses}
	}
	_, p := vendor(t, scripts)
	for name, row := range rows {
		require.Equal(t, row.want, providertest.Ask(t, p, ask(name, true, short)), "%s as a stream", name)
		require.Equal(t, row.want, providertest.Ask(t, p, ask(name, false, long)), "%s as an array", name)
		if len(row.responses) == 1 {
			require.Equal(t, row.want, providertest.Ask(t, p, ask(name, false, short)), "%s as one response", name)
		}
	}
}

// TestBrokenAnswers has the answers that are none. An answer that is cut off is never complete.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	overloaded := `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`
	refused, unreachable, tooBusy := providers.FailureRefused, providers.FailureUnreachable, providers.FailureOverloaded
	rows := map[string]struct {
		script              geminitest.Script
		stream, array, once providers.Failure // empty: the script isn't for this form
	}{
		"no-finish":            {geminitest.Script{Responses: []string{response(hello, "", usual), response(hello, "", usual)}}, unreachable, refused, ""},
		"unspecified-finish":   {geminitest.Script{Responses: []string{response(hello, "FINISH_REASON_UNSPECIFIED", usual)}}, unreachable, refused, ""},
		"only-usage":           {geminitest.Script{Responses: []string{`{"usageMetadata":{` + usual + `}}`}}, unreachable, refused, refused},
		"error-at-first":       {geminitest.Script{Responses: []string{overloaded}}, tooBusy, tooBusy, tooBusy},
		"error-in-an-array":    {geminitest.Script{Responses: []string{"[" + overloaded + "]"}}, tooBusy, tooBusy, tooBusy},
		"error-after-text":     {geminitest.Script{Responses: []string{response(hello, "", usual), overloaded}}, tooBusy, tooBusy, tooBusy},
		"error-after-finish":   {geminitest.Script{Responses: []string{response(hello, "STOP", usual), overloaded}}, tooBusy, tooBusy, tooBusy},
		"bare-error":           {geminitest.Script{Responses: []string{response(hello, "", usual)}, Raw: overloaded}, tooBusy, refused, ""},
		"bare-error-array":     {geminitest.Script{Responses: []string{response(hello, "", usual)}, Raw: "[" + overloaded + "]"}, tooBusy, refused, ""},
		"bare-json":            {geminitest.Script{Responses: []string{response(hello, "", usual)}, Raw: `{"x":1}`}, refused, refused, ""},
		"error-of-another":     {geminitest.Script{Responses: []string{`{"error":{"message":"no","type":"invalid_request_error","code":"model_not_found"}}`}}, refused, refused, refused},
		"error-text":           {geminitest.Script{Responses: []string{`{"error":"quota"}`}}, refused, refused, refused},
		"number":               {geminitest.Script{Responses: []string{`7`}}, refused, refused, refused},
		"cut":                  {geminitest.Script{Responses: []string{`{"candidates":[{"content":{"parts":[{"text":"He`}}, refused, refused, refused},
		"openai":               {geminitest.Script{Responses: []string{`{"choices":[{"message":{"content":"Hello"},"delta":{"content":"Hello"},"finish_reason":"stop"}]}`}}, unreachable, refused, refused},
		"text-number":          {geminitest.Script{Responses: []string{response(`{"text":7}`, "STOP", usual)}}, refused, refused, refused},
		"part-text":            {geminitest.Script{Responses: []string{response(`"Hello"`, "STOP", usual)}}, refused, refused, refused},
		"parts-object":         {geminitest.Script{Responses: []string{`{"candidates":[{"content":{"parts":{}},"finishReason":"STOP"}]}`}}, refused, refused, refused},
		"content-text":         {geminitest.Script{Responses: []string{`{"candidates":[{"content":"Hello","finishReason":"STOP"}]}`}}, refused, refused, refused},
		"candidate-text":       {geminitest.Script{Responses: []string{`{"candidates":["Hello"]}`}}, refused, refused, refused},
		"candidates-object":    {geminitest.Script{Responses: []string{`{"candidates":{}}`}}, refused, refused, refused},
		"no-candidates":        {geminitest.Script{Responses: []string{`{"candidates":[],"promptFeedback":{"safetyRatings":[]}}`}}, unreachable, refused, refused},
		"null-everywhere":      {geminitest.Script{Responses: []string{`{"candidates":null,"promptFeedback":null,"usageMetadata":null,"error":null}`}}, unreachable, refused, refused},
		"html":                 {geminitest.Script{Responses: []string{`<html><body>Down</body></html>`}}, refused, refused, refused},
		"deep":                 {geminitest.Script{Responses: []string{strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)}}, refused, refused, refused},
		"nothing-but-a-finish": {geminitest.Script{Responses: []string{response("", "", usual)}}, unreachable, refused, refused},
	}
	for _, reason := range []string{"LANGUAGE", "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "SOMETHING_NEW"} {
		row := rows["number"]
		row.script = geminitest.Script{Responses: []string{`{"candidates":[{"content":{"parts":[{"text":"Hm","thought":true},{"text":""}]},"finishReason":"` + reason + `"}]}`}}
		rows["without-text-"+strings.ToLower(strings.ReplaceAll(reason, "_", "-"))] = row
	}
	scripts := map[string]geminitest.Script{}
	for name, row := range rows {
		scripts[name] = row.script
	}
	_, p := vendor(t, scripts)
	for name, row := range rows {
		for form, test := range map[string]struct {
			want providers.Failure
			req  *providers.Request
		}{"stream": {row.stream, ask(name, true, short)}, "array": {row.array, ask(name, false, long)}, "response": {row.once, ask(name, false, short)}} {
			if test.want == "" {
				continue
			}
			answer := providertest.Ask(t, p, test.req)
			require.Error(t, answer.Err, "%s, %s", name, form)
			require.Empty(t, answer.FinishReason, "%s, %s", name, form)
			e := providertest.RequireFailure(t, answer.Err, test.want, operatorKey)
			require.True(t, e.Elsewhere, "%s, %s", name, form)
		}
	}
}

// TestRequest guarantees that every accepted request of the contract is accepted by the vendor, in the same words, and that the
// key is in the header only.
func TestRequest(t *testing.T) {
	t.Parallel()
	v, p := vendor(t, nil)
	temperature, topP := 0.7, 1e-7
	tricky := `"caf\u00e9 \ud83d\udc4b raw é / \/ \u0000"`
	message := func(role, text string) providers.Message {
		return providers.Message{Role: role, Content: providers.Quote(text)}
	}
	user := []providers.Message{message("user", "U")}
	const turn = `"contents":[{"role":"user","parts":[{"text":"U"}]}],"generationConfig":`
	for name, test := range map[string]struct {
		req  providers.Request
		want string
	}{
		"all": {
			providers.Request{
				Messages:    []providers.Message{message("system", "S1"), message("system", ""), message("system", "S2"), {Role: "user", Content: providers.JSONString(tricky)}, message("assistant", "A")},
				Temperature: &temperature, TopP: &topP, MaxTokens: 4096, Stop: []string{"\n\n", `"END"`}, Thinking: "low",
			},
			`{"systemInstruction":{"parts":[{"text":"S1"},{"text":"S2"}]},"contents":[{"role":"user","parts":[{"text":` + tricky + `}]},{"role":"model","parts":[{"text":"A"}]}],` +
				`"generationConfig":{"maxOutputTokens":4096,"temperature":0.7,"topP":1e-07,"stopSequences":["\n\n","\"END\""],"thinkingConfig":{"thinkingLevel":"low"}}}`,
		},
		"least":           {providers.Request{Messages: user, MaxTokens: 1}, `{` + turn + `{"maxOutputTokens":1}}`},
		"no stops":        {providers.Request{Messages: user, MaxTokens: 1, Stop: []string{}}, `{` + turn + `{"maxOutputTokens":1}}`},
		"thinking off":    {providers.Request{Messages: user, MaxTokens: 1, Thinking: "0"}, `{` + turn + `{"maxOutputTokens":1,"thinkingConfig":{"thinkingBudget":0}}}`},
		"thinking budget": {providers.Request{Messages: user, MaxTokens: 1, Thinking: "512"}, `{` + turn + `{"maxOutputTokens":1,"thinkingConfig":{"thinkingBudget":512}}}`},
		"adjacent roles": {
			providers.Request{Messages: []providers.Message{message("user", "U1"), message("tool", "T"), message("assistant", ""), message("user", "U2"), message("assistant", "A1"), message("assistant", "A2"), message("system", "S"), message("user", " ")}, MaxTokens: 1},
			`{"contents":[{"role":"user","parts":[{"text":"U1"},{"text":"T"},{"text":"U2"}]},{"role":"model","parts":[{"text":"A1"},{"text":"A2"}]},{"role":"user","parts":[{"text":"S"},{"text":" "}]}],"generationConfig":{"maxOutputTokens":1}}`,
		},
		"only system": {
			providers.Request{Messages: []providers.Message{message("system", "S1"), message("system", "S2"), message("user", "")}, MaxTokens: 1},
			`{"contents":[{"role":"user","parts":[{"text":"S1"},{"text":"S2"}]}],"generationConfig":{"maxOutputTokens":1}}`,
		},
		"empty system":    {providers.Request{Messages: []providers.Message{message("system", ""), message("user", "U")}, MaxTokens: 1}, `{` + turn + `{"maxOutputTokens":1}}`},
		"assistant first": {providers.Request{Messages: []providers.Message{message("assistant", "A"), message("user", "U")}, MaxTokens: 1}, `{"contents":[{"role":"model","parts":[{"text":"A"}]},{"role":"user","parts":[{"text":"U"}]}],"generationConfig":{"maxOutputTokens":1}}`},
	} {
		test.req.Model, test.req.APIKey = "gemini-9-flash", operatorKey
		before := len(v.Requests())
		messages := test.req.Messages
		require.NoError(t, providertest.Ask(t, p, &test.req).Err, name)
		test.req.Messages, test.req.Stream = messages, true
		require.NoError(t, providertest.Ask(t, p, &test.req).Err, name)
		for i, seen := range v.Requests()[before:] {
			require.Equal(t, test.want, seen.Body, name)
			require.Equal(t, []string{"/v1beta/models/gemini-9-flash:generateContent", "/v1beta/models/gemini-9-flash:streamGenerateContent?alt=sse"}[i], seen.URI)
			require.Equal(t, operatorKey, seen.Header.Get("X-Goog-Api-Key"))
			require.Empty(t, seen.Header.Get("Authorization"))
		}
	}
}

// TestPromptWithoutText: contents must not be empty.
func TestPromptWithoutText(t *testing.T) {
	t.Parallel()
	v, p := vendor(t, nil)
	for _, roles := range [][]string{{"user"}, {"system"}, {"system", "assistant", "tool"}} {
		req := ask("x", false, short)
		req.Messages = nil
		for _, role := range roles {
			req.Messages = append(req.Messages, providers.Message{Role: role, Content: providers.Quote("")})
		}
		e := providertest.RequireFailure(t, providertest.Ask(t, p, req).Err, providers.FailureInvalid)
		require.Equal(t, "messages", e.Invalid.Field)
		require.False(t, e.Elsewhere)
	}
	require.Empty(t, v.Requests())
}

// TestAddress: a model's name is one segment of the path, whatever its characters are.
func TestAddress(t *testing.T) {
	t.Parallel()
	v, p := vendor(t, nil)
	for model, want := range map[string]string{
		"gemini-2.5-flash": "gemini-2.5-flash", "models/x": "models%2Fx", "../../files": "..%2F..%2Ffiles", "..": "..", "a?key=b#c": "a%3Fkey=b%23c", "a b%2f\\é": "a%20b%252f%5C%C3%A9",
	} {
		for form, req := range map[string]*providers.Request{
			":generateContent": ask("usual-answer", false, 32_768), ":streamGenerateContent": ask("usual-answer", false, 32_769), ":streamGenerateContent?alt=sse": ask("usual-answer", true, 32_769),
		} {
			req.Model, req.Messages[0].Content = model, providers.Quote("Hello")
			before := len(v.Requests())
			require.NoError(t, providertest.Ask(t, p, req).Err, model)
			require.Equal(t, "/v1beta/models/"+want+form, v.Requests()[before].URI)
		}
	}
	for _, base := range []string{"", "generativelanguage.googleapis.com", "ftp://x/v1beta", ":"} {
		_, err := gemini.Driver{}.New(&providers.Config{BaseURL: base})
		require.ErrorContains(t, err, "the base URL of the provider")
	}
}

// TestListedModels: the vendor's names have a prefix that requests don't have.
func TestListedModels(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]providers.ListedModel{
		`{"models":[{"name":"models/gemini-2.5-flash","version":"001","inputTokenLimit":1048576},{"name":"models/gemini-9-flash"}]}`: {{Name: "gemini-2.5-flash"}, {Name: "gemini-9-flash"}},
		`{"models":[]}`: nil, `{"data":[{"id":"x"}]}`: nil, `[]`: nil, `<html>`: nil,
	} {
		var seen *http.Request
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r
			_, _ = io.WriteString(w, body)
		}))
		transport := &http.Transport{}
		p, err := gemini.Driver{}.New(&providers.Config{BaseURL: server.URL + "/v1beta", Transport: transport})
		require.NoError(t, err)
		models, err := p.(providers.Lister).ListModels(t.Context(), operatorKey)
		require.Equal(t, want, models)
		require.Equal(t, want == nil && !strings.HasPrefix(body, `{"models"`), err != nil, "%v", err)
		require.Equal(t, "GET /v1beta/models?pageSize=1000", seen.Method+" "+seen.RequestURI)
		require.Equal(t, operatorKey, seen.Header.Get("X-Goog-Api-Key"))
		transport.CloseIdleConnections()
		server.Close()
	}
}

// TestModel: the vendor's name of the model comes with the answer's first text.
func TestModel(t *testing.T) {
	t.Parallel()
	_, p := vendor(t, map[string]geminitest.Script{"named": {Responses: []string{response(hello, "", usual), response(hello, "STOP", usual)}}})
	for _, stream := range []bool{true, false} {
		events, err := p.Open(t.Context(), ask("named", stream, short))
		require.NoError(t, err)
		event, err := events.Next()
		require.NoError(t, err)
		require.Equal(t, "gemini-9-flash-001", event.Model)
		events.Close()
	}
}

// TestCutAnywhere: a stream that is cut short at any byte is never a complete answer unless its finish reason was in it.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	last := response(`{"text":" there"}`, "STOP", usual)
	recorded := "data: " + response(`{"text":"Ch\u00e0o 👋"}`, "", usual) + "\r\n\r\ndata: " + last
	want := providertest.Answer{Text: "Chào 👋 there", FinishReason: "stop", Usage: &providers.Usage{PromptTokens: 11, CompletionTokens: 7, ReasoningTokens: 2}}
	for cut := range len(recorded) + 1 {
		p, err := gemini.Driver{}.New(&providers.Config{BaseURL: "http://vendor", Transport: answers(recorded[:cut])})
		require.NoError(t, err)
		answer := providertest.Ask(t, p, ask("x", true, short))
		if cut < len(recorded) {
			require.Error(t, answer.Err, "cut at %d", cut)
			require.Empty(t, answer.FinishReason)
		} else {
			require.Equal(t, want, answer)
		}
	}
}

// answers is a transport that answers every request with itself.
type answers string

// RoundTrip implements [http.RoundTripper].
func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(a))), ContentLength: -1}, nil
}
