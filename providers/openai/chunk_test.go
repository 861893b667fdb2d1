package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/jsonscan"
	"github.com/caddy-svc/caddy-svc/providers"
)

func TestReadChunkDialects(t *testing.T) {
	t.Parallel()
	type want struct {
		text, finish string
		usage        *providers.Usage
		fault        string
		malformed    bool
	}
	for name, test := range map[string]struct {
		doc  string
		want want
	}{
		"delta":               {`{"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null}],"usage":null}`, want{text: "Hi"}},
		"role only":           {`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, want{}},
		"null content":        {`{"choices":[{"delta":{"role":"assistant","content":null}}]}`, want{}},
		"all in one":          {`{"choices":[{"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`, want{text: "Hi", finish: "stop", usage: &providers.Usage{PromptTokens: 3, CompletionTokens: 1}}},
		"reasoning":           {`{"choices":[{"delta":{"reasoning_content":"hm","content":null}}],"obfuscation":"abc"}`, want{}},
		"only reasoning":      {`{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, want{}},
		"tool calls":          {`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"content\":\"no\"}"}}]}}]}`, want{}},
		"usage only":          {`{"choices":[],"usage":{"prompt_tokens":18,"completion_tokens":286,"total_tokens":304,"prompt_tokens_details":{"cached_tokens":8}}}`, want{usage: &providers.Usage{PromptTokens: 18, CompletionTokens: 286, CachedPromptTokens: 8}}},
		"zero usage":          {`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, want{usage: &providers.Usage{}}},
		"float usage":         {`{"choices":[],"usage":{"prompt_tokens":10.0,"completion_tokens":1e1}}`, want{usage: &providers.Usage{PromptTokens: 10, CompletionTokens: 10}}},
		"negative usage":      {`{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":5}}`, want{}},
		"broken usage":        {`{"choices":[],"usage":{"prompt_tokens":1.5,"completion_tokens":5}}`, want{}},
		"text usage":          {`{"choices":[],"usage":{"prompt_tokens":"7","completion_tokens":5}}`, want{}},
		"huge usage":          {`{"choices":[],"usage":{"prompt_tokens":1e300,"completion_tokens":5}}`, want{}},
		"beyond float usage":  {`{"choices":[],"usage":{"prompt_tokens":1e999,"completion_tokens":5}}`, want{}},
		"left out zero":       {`{"choices":[],"usage":{"prompt_tokens":7,"total_tokens":7}}`, want{usage: &providers.Usage{PromptTokens: 7}}},
		"gemini total":        {`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":0,"total_tokens":8}}`, want{usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 1, ReasoningTokens: 1}}},
		"cached over prompt":  {`{"usage":{"prompt_tokens":7,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}`, want{usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 1}}},
		"kimi cache":          {`{"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"cached_tokens":80}}`, want{usage: &providers.Usage{PromptTokens: 100, CompletionTokens: 10, CachedPromptTokens: 80}}},
		"both kimi caches":    {`{"usage":{"cached_tokens":80,"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":80}}}`, want{usage: &providers.Usage{PromptTokens: 100, CompletionTokens: 10, CachedPromptTokens: 80}}},
		"cached negative":     {`{"usage":{"prompt_tokens":7,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":-8}}}`, want{usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 1}}},
		"groq":                {`{"choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":4,"completion_tokens":2}}}`, want{finish: "stop", usage: &providers.Usage{PromptTokens: 4, CompletionTokens: 2}}},
		"groq error":          {`{"choices":[],"x_groq":{"error":"over capacity"}}`, want{fault: `"over capacity"`}},
		"other index":         {`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}`, want{text: "yes"}},
		"only other index":    {`{"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}`, want{}},
		"perplexity":          {`{"choices":[{"index":0,"message":{"content":"all so far"},"delta":{"content":"far"}}]}`, want{text: "far"}},
		"error null":          {`{"error":null,"choices":[{"delta":{"content":"Hi"}}]}`, want{text: "Hi"}},
		"error":               {`{"error":{"code":503},"choices":[]}`, want{fault: `{"code":503}`}},
		"xai error":           {`{"code":"c","error":"no"}`, want{fault: `{"code":"c","error":"no"}`}},
		"vllm error":          {`{"object":"error","message":"no"}`, want{fault: `{"object":"error","message":"no"}`}},
		"escaped names":       {`{"\u0063hoices":[{"\u0064elta":{"c\u006fntent":"Hi"}}]}`, want{text: "Hi"}},
		"other case":          {`{"Choices":[{"delta":{"content":"no"}}]}`, want{}},
		"repeated":            {`{"choices":[{"delta":{"content":"a"}}],"choices":[{"delta":{"content":"b","content":"c"}}]}`, want{text: "c"}},
		"refusal":             {`{"choices":[{"delta":{"refusal":"I can't."}}]}`, want{text: "I can't."}},
		"refusal of null":     {`{"choices":[{"delta":{"content":null,"refusal":"I can't."}}]}`, want{text: "I can't."}},
		"refusal, no content": {`{"choices":[{"delta":{"refusal":"I can't.","content":""}}]}`, want{text: "I can't."}},
		"refusal and content": {`{"choices":[{"delta":{"content":"Hi","refusal":"no"}}]}`, want{text: "Hi"}},
		"empty refusal":       {`{"choices":[{"delta":{"content":"Hi","refusal":""}}]}`, want{text: "Hi"}},
		"no refusal":          {`{"choices":[{"delta":{"content":"","refusal":null}}]}`, want{}},
		"refusal of a number": {`{"choices":[{"delta":{"content":null,"refusal":7}}]}`, want{}},
		"content parts":       {`{"choices":[{"delta":{"content":[{"type":"text","text":"a\u00e9"},{"text":"b","type":"text"},{"type":"text","text":""}]}}]}`, want{text: "aéb"}},
		"a pair over parts":   {`{"choices":[{"delta":{"content":[{"type":"text","text":"\ud83d"},{"type":"text","text":"\ude00"}]}}]}`, want{text: "😀"}},
		"thinking parts":      {`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}],"text":"no"},{"type":"text","text":"yes"},{"type":"reference","reference_ids":[1]}]}}]}`, want{text: "yes"}},
		"no content parts":    {`{"choices":[{"delta":{"content":[]}}]}`, want{}},
		"part without text":   {`{"choices":[{"delta":{"content":[{"type":"text"}]}}]}`, want{malformed: true}},
		"part without type":   {`{"choices":[{"delta":{"content":[{"text":"x"}]}}]}`, want{malformed: true}},
		"part of a number":    {`{"choices":[{"delta":{"content":[{"type":"text","text":1}]}}]}`, want{malformed: true}},
		"part no object":      {`{"choices":[{"delta":{"content":["x"]}}]}`, want{malformed: true}},
		"choices no array":    {`{"choices":{}}`, want{malformed: true}},
		"choice no object":    {`{"choices":[1]}`, want{malformed: true}},
		"delta no object":     {`{"choices":[{"delta":1}]}`, want{malformed: true}},
		"choices null":        {`{"choices":null,"type":"ping"}`, want{}},
		"odd finish":          {`{"choices":[{"delta":{},"finish_reason":"a b\n"}]}`, want{finish: "a b\n"}},
		"number finish":       {`{"choices":[{"delta":{},"finish_reason":1}]}`, want{}},
		"white space":         {" {\r\n\t\"choices\" : [ { \"delta\" : { \"content\" : \"Hi\" } } ] } ", want{text: "Hi"}},
		"text of an injector": {`{"choices":[{"delta":{"content":"\n\ndata: [DONE]\n\n"}}]}`, want{text: "\n\ndata: [DONE]\n\n"}},
	} {
		c, ok := readChunk([]byte(test.doc), pieces)
		require.True(t, ok, name)
		got := want{text: c.content.Text(), finish: c.finish.Text(), fault: string(c.fault), malformed: c.malformed}
		if c.counted {
			got.usage = &c.usage
		}
		require.Equal(t, test.want, got, name)
	}
}

func TestReadChunkRefusesWhatIsNoJSONObject(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		``, ` `, `null`, `[]`, `"x"`, `{`, `{}x`, `{} {}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{"a":01}`, `{"a":1.}`, `{"a":+1}`,
		`{"a":1e}`, `{"a":nul}`, `{"a":"\x"}`, "{\"a\":\"\n\"}", `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":"`, "{}\x00", `{"choices":[{"mess`,
		strings.Repeat(`{"a":`, providers.MaxDepth+1) + "1" + strings.Repeat("}", providers.MaxDepth+1),
	} {
		_, ok := readChunk([]byte(doc), pieces)
		require.False(t, ok, doc)
	}
}

// plainChunk is the obvious reading of a document, by encoding/json.
func plainChunk(data []byte, part string) (c chunk, ok bool) {
	type object = map[string]json.RawMessage
	isNull := func(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }
	var doc object
	if !json.Valid(data) || json.Unmarshal(data, &doc) != nil || doc == nil {
		return chunk{}, false
	}
	usage := func(raw json.RawMessage) (u providers.Usage, counted bool) {
		var fields object
		if isNull(raw) || json.Unmarshal(raw, &fields) != nil {
			return u, false
		}
		count := func(raw json.RawMessage) int64 {
			if isNull(raw) {
				return jsonscan.NoCount
			}
			var f float64
			if json.Unmarshal(raw, &f) != nil || f < 0 || f > 1<<53 || f != math.Floor(f) {
				return jsonscan.InvalidCount
			}
			return int64(f)
		}
		prompt, completion, total := count(fields["prompt_tokens"]), count(fields["completion_tokens"]), count(fields["total_tokens"])
		if completion == jsonscan.NoCount && prompt >= 0 && total >= prompt {
			completion = 0
		}
		if prompt < 0 || completion < 0 {
			return u, false
		}
		u = providers.Usage{PromptTokens: prompt, CompletionTokens: completion}
		if total > prompt+completion {
			u.CompletionTokens = total - prompt
		}
		cached := max(count(fields["prompt_cache_hit_tokens"]), count(fields["cached_tokens"]))
		written, reasoning := int64(jsonscan.NoCount), u.CompletionTokens-completion
		for _, name := range []string{"prompt_tokens_details", "completion_tokens_details"} {
			var details object
			if json.Unmarshal(fields[name], &details) == nil {
				cached = max(cached, count(details["cached_tokens"]))
				written = max(written, count(details["cache_write_tokens"]), count(details["cache_creation_input_tokens"]))
				reasoning = max(reasoning, count(details["reasoning_tokens"]))
			}
		}
		if cached >= 0 && cached <= prompt {
			u.CachedPromptTokens = cached
		}
		if written >= 0 && written <= prompt-u.CachedPromptTokens {
			u.CacheWriteTokens = written
		}
		u.ReasoningTokens = min(reasoning, u.CompletionTokens)
		return u, true
	}
	c.usage, c.counted = usage(doc["usage"])
	var model string
	if raw := doc["model"]; len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &model) == nil {
		c.model = jsonscan.Literal(raw)
	}
	var groq object
	if json.Unmarshal(doc["x_groq"], &groq) == nil && !c.counted {
		c.usage, c.counted = usage(groq["usage"])
	}
	switch {
	case len(doc["error"]) > 0 && doc["error"][0] == '"' && len(data) <= providers.MaxFault:
		c.fault = data
	case !isNull(doc["error"]):
		c.fault = doc["error"]
	case !isNull(groq["error"]):
		c.fault = groq["error"]
	case string(doc["object"]) == `"error"`:
		c.fault = data
	}
	if isNull(doc["choices"]) {
		return c, true
	}
	var list []json.RawMessage
	if json.Unmarshal(doc["choices"], &list) != nil {
		c.malformed = true
		return c, true
	}
	for _, raw := range list {
		var one object
		if isNull(raw) || json.Unmarshal(raw, &one) != nil {
			c.malformed = true
			continue
		}
		var index float64
		if !isNull(one["index"]) && (json.Unmarshal(one["index"], &index) != nil || index != 0) || c.chosen {
			continue
		}
		c.chosen = true
		if !c.counted {
			c.usage, c.counted = usage(one["usage"])
		}
		var finish string
		if len(one["finish_reason"]) > 0 && one["finish_reason"][0] == '"' && json.Unmarshal(one["finish_reason"], &finish) == nil {
			c.finish = providers.JSONString(one["finish_reason"])
		}
		if isNull(one[part]) {
			continue
		}
		var inner object
		if json.Unmarshal(one[part], &inner) != nil {
			c.malformed = true
			continue
		}
		c.filled = true
		var text, refusal string
		if raw := inner["content"]; isNull(raw) {
			c.content = nil
		} else if json.Unmarshal(raw, &text) == nil {
			c.content = providers.JSONString(raw)
		} else if literal, ok := plainParts(raw); ok {
			c.content = literal
		} else {
			c.content, c.malformed = literal, true
		}
		if raw := inner["refusal"]; len(c.content) <= 2 && len(raw) > 2 && raw[0] == '"' && json.Unmarshal(raw, &refusal) == nil {
			c.content = providers.JSONString(raw)
		}
	}
	return c, true
}

// plainParts is the obvious reading of content that is an array.
func plainParts(raw json.RawMessage) (literal providers.JSONString, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	isText := func(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
	var inner []byte
	ok = true
	found := false
	for _, raw := range list {
		var part map[string]json.RawMessage
		var kind string
		if json.Unmarshal(raw, &part) != nil || !isText(part["type"]) || json.Unmarshal(part["type"], &kind) != nil {
			ok = false
			continue
		}
		if kind != "text" {
			continue
		}
		if !isText(part["text"]) {
			ok = false
			continue
		}
		found = true
		inner = append(inner, jsonscan.Literal(part["text"]).Inner()...)
	}
	if !found {
		return nil, ok
	}
	return providers.JSONString(`"` + string(inner) + `"`), ok
}

// requireSameChunk compares readChunk with the obvious reading.
func requireSameChunk(t require.TestingT, data []byte, part string) {
	want, wantOK := plainChunk(data, part)
	got, ok := readChunk(data, part)
	require.Equal(t, wantOK, ok)
	got.choice.malformed = false // merged into the document's
	require.Equal(t, want.content.Text(), got.content.Text())
	require.Equal(t, want.content == nil, got.content == nil)
	require.Equal(t, want.finish.Text(), got.finish.Text())
	require.Equal(t, string(want.model), string(got.model))
	require.Equal(t, string(want.fault), string(got.fault))
	require.Equal(t, want.fault == nil, got.fault == nil)
	require.Equal(t,
		[]any{want.usage, want.counted, want.chosen, want.filled, want.malformed},
		[]any{got.usage, got.counted, got.chosen, got.filled, got.malformed})
}

// Documents made of the names that count, with values of every kind in every place.
func TestReadChunkOfAnyDocument(t *testing.T) {
	t.Parallel()
	scalar := rapid.SampledFrom([]string{
		"null", "true", "false", "0", "-0", "1", "-1", "7.0", "7.5", "1e2", "1E+400", "9007199254740993", `""`, `"stop"`, `"error"`,
		`"a\u00e9\n\ud83d\udc4b"`, `"\ud800"`, "\"\xff\"", `"0"`, "[]", "{}", `"text"`, `{"type":"text","text":"b"}`,
	})
	name := rapid.SampledFrom([]string{
		"choices", "usage", "model", "error", "x_groq", "object", "index", "delta", "message", "content", "finish_reason", "prompt_tokens",
		"completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details", "cached_tokens", "prompt_cache_hit_tokens",
		"cache_write_tokens", "cache_creation_input_tokens", "reasoning_tokens", "refusal", "type", "text", "Content", `c\u0068oices`, "other", "",
	})
	space := rapid.SampledFrom([]string{"", "", "", " ", "\r\n\t"})
	var value func(t *rapid.T, depth int) string
	value = func(t *rapid.T, depth int) string {
		kind := rapid.IntRange(0, 3).Draw(t, "kind")
		if depth == 0 || kind == 0 {
			return scalar.Draw(t, "scalar")
		}
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			part := space.Draw(t, "space") + value(t, depth-1) + space.Draw(t, "space")
			if kind != 1 {
				part = space.Draw(t, "space") + `"` + name.Draw(t, "name") + `"` + space.Draw(t, "space") + ":" + part
			}
			parts = append(parts, part)
		}
		if kind == 1 {
			return "[" + strings.Join(parts, ",") + "]"
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	rapid.Check(t, func(t *rapid.T) {
		part := `{"type":` + rapid.SampledFrom([]string{`"text"`, `"thinking"`, "1"}).Draw(t, "type") + `,"text":` + scalar.Draw(t, "text") + "}"
		content := `{"content":[` + part + "," + value(t, 2) + "," + part + `],"refusal":` + scalar.Draw(t, "refusal") + `}`
		delta := rapid.SampledFrom([]string{content, value(t, 2)}).Draw(t, "delta")
		choice := `{"index":` + scalar.Draw(t, "index") + `,"delta":` + delta + `,"message":` + value(t, 3) + `,"usage":` + value(t, 2) + `,"finish_reason":` + scalar.Draw(t, "finish") + `}`
		usage := `{"prompt_tokens":` + scalar.Draw(t, "prompt") + `,"completion_tokens":` + scalar.Draw(t, "completion") + `,"total_tokens":` + scalar.Draw(t, "total") +
			`,"cached_tokens":` + scalar.Draw(t, "cached") + `,"prompt_tokens_details":{"cached_tokens":` + scalar.Draw(t, "cached") +
			`,"cache_write_tokens":` + scalar.Draw(t, "written") + `},"completion_tokens_details":{"reasoning_tokens":` + scalar.Draw(t, "reasoning") + `}}`
		for _, doc := range []string{
			value(t, 4),
			`{"choices":[` + choice + "," + value(t, 3) + `],"usage":` + usage + `,"x_groq":` + value(t, 3) + `}`,
			`{"choices":[` + value(t, 3) + "," + choice + `],"x_groq":{"usage":` + usage + `},"error":` + value(t, 1) + `}`,
		} {
			requireSameChunk(t, []byte(doc), pieces)
			requireSameChunk(t, []byte(doc), whole)
		}
	})
}

func FuzzReadChunk(f *testing.F) {
	for _, doc := range []string{
		`{"choices":[{"index":0,"delta":{"content":"Hi \ud83d\udc4b"},"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":18,"completion_tokens":2.0,"total_tokens":20,"prompt_tokens_details":{"cached_tokens":8}}}`,
		`{"error":{"message":"no"},"x_groq":{"usage":{"prompt_tokens":1,"total_tokens":3},"error":"x"},"object":"error"}`,
		`{"choices":[{"index":1},{"index":0.0,"delta":null,"message":{"content":null}},{}],"choices":[{"delta":{"content":[]}}]}`,
		`{"choices":[{"delta":{"content":[{"type":"text","text":"a"},{"type":"thinking"},{"text":"\ud83d","type":"text"}]},"usage":{"prompt_tokens":1,"prompt_cache_hit_tokens":1,"completion_tokens":2,"total_tokens":9}}]}`,
		`{"choices":[{"delta":{"content":"","refusal":"No."}}],"usage":{"prompt_tokens":9,"completion_tokens":2,"cached_tokens":1,"prompt_tokens_details":{"cache_write_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`,
		`{"choices":[1,null,{"index":"0"}],"usage":[1,-2.5e-3,true,false,null,"\u00e9"]}`,
		`{"\u0075sage":{"prompt_tokens":-0,"completion_tokens":1e2}}`, `[]`, `{"a":`, "{\"choices\":[{\"delta\":{\"content\":\"a\n\ndata: b\"}}]}",
	} {
		f.Add([]byte(doc), true)
		f.Add([]byte(doc), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, stream bool) {
		if depth := strings.Count(string(data), "{") + strings.Count(string(data), "["); depth > providers.MaxDepth {
			return
		}
		part := whole
		if stream {
			part = pieces
		}
		requireSameChunk(t, data, part)
	})
}

// FuzzStream: a stream's events, one on each line, are read as if each were the first: the memory of the last event changes nothing.
// No event of a vendor ends the process, whatever its form.
func FuzzStream(f *testing.F) {
	for _, stream := range []string{
		`{"model":"m","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n" +
			`{"model":"m","choices":[{"index":0,"delta":{"content":"b\u00e9"},"finish_reason":null}]}` + "\n" +
			`{"model":"m","choices":[{"index":0,"delta":{"content":"c","content":""},"finish_reason":null}]}` + "\n[DONE]",
		`{"choices":[{"delta":{"content":null,"refusal":"No"}}]}` + "\n" + `{"choices":[{"delta":{"content":null,"refusal":" way"}}]}`,
		`{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}` + "\n" + `{"choices":[{"delta":{"content":[{"type":"text","text":"b"}]}}]}`,
		`{"choices":[{"delta":{"content":"a"}}]}` + "\n" + `{"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}`,
		`{"choices":[{"delta":{"content":"a"}}],"usage":null}` + "\n" + `{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		`{"code":"x","error":"Overloaded"}` + "\n" + `{"error":{"code":429,"details":[{"retryDelay":"1s","violations":[{"quotaId":"PerDay"}]}]}}`,
	} {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := newDialect(nil)
		reader := d.Stream()
		for line := range bytes.Lines(stream) {
			event := bytes.TrimSpace(line)
			if len(event) == 0 {
				continue
			}
			got, err := reader.Event(bytes.Clone(event))
			want, wantErr := d.Stream().Event(event)
			require.Equal(t, wantErr, err)
			require.Equal(t, want.Text.Text(), got.Text.Text())
			require.Equal(t, []any{want.FinishReason, want.Usage, want.End}, []any{got.FinishReason, got.Usage, got.End})
			if err != nil {
				return
			}
		}
	})
}

// The documents are a usual event, one with the counts, a usual answer and a very long one.
func BenchmarkReadChunk(b *testing.B) {
	event := func(content string) string {
		return `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":` +
			content + `},"logprobs":null,"finish_reason":null}],"usage":null}`
	}
	long := func(size int) string {
		return string(providers.Quote(strings.Repeat("Xin chào, \"bạn\"! ", size/20)))
	}
	for name, doc := range map[string]string{
		"event": event(`" token"`), "1 KB": event(long(1 << 10)), "200 KB": event(long(200 << 10)),
		"usage": `{"id":"x","choices":[],"usage":{"prompt_tokens":18,"completion_tokens":286,"total_tokens":304,"prompt_tokens_details":{"cached_tokens":8}}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			data := []byte(doc)
			for b.Loop() {
				if _, ok := readChunk(data, pieces); !ok {
					b.Fatal("not read")
				}
			}
		})
	}
}
