package gemini

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/providers"
)

// read returns everything about an event that the core uses.
func read(e *events, data string) (text string, finish string, usage any, err error) {
	piece, err := e.Event([]byte(data))
	if piece.Usage != nil {
		usage = *piece.Usage
	}
	return piece.Text.Text(), piece.FinishReason, usage, err
}

// requireSame checks that an event reads the same after another event as on its own, except for what an answer that has begun
// makes of it.
func requireSame(t require.TestingT, before, data string) {
	after := &events{}
	_, _ = after.Event([]byte(before))
	_, _ = after.Event([]byte(before))
	alone := &events{begun: after.begun}
	wantText, wantFinish, wantUsage, wantErr := read(alone, data)
	text, finish, usage, err := read(after, data)
	require.Equal(t, wantErr, err)
	require.Equal(t, []any{wantText, wantFinish, wantUsage}, []any{text, finish, usage}, "%s after %s", data, before)
	require.Equal(t, alone.begun, after.begun)
	require.True(t, utf8.ValidString(text))
	if err != nil {
		require.ErrorAs(t, err, new(*providers.Error))
	}
}

// TestUncountedText: only an event with a count has one, so that the text since is estimated; and a whole answer with text after its last count has
// counted the prompt alone.
func TestUncountedText(t *testing.T) {
	t.Parallel()
	const counted, uncounted = `{"candidates":[{"content":{"parts":[{"text":"one"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":1}}`,
		`{"candidates":[{"content":{"parts":[{"text":" two"}]},"finishReason":"STOP"}]}`
	for _, second := range []string{uncounted, strings.Replace(uncounted, `}]}`, `}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":-1}}`, 1)} {
		reader := &events{}
		_, _, usage, err := read(reader, counted)
		require.NoError(t, err)
		require.Equal(t, providers.Usage{PromptTokens: 9, CompletionTokens: 1}, usage)
		_, _, usage, err = read(reader, second)
		require.NoError(t, err)
		require.Nil(t, usage)

		answer, err := (&dialect{}).Answer([]byte("[" + counted + "," + second + "]"))
		require.NoError(t, err)
		require.Equal(t, "one two", answer.Text)
		require.Equal(t, &providers.Usage{PromptTokens: 9}, answer.Usage)
	}
	answer, err := (&dialect{}).Answer([]byte("[" + counted + "," + uncounted + "," + counted + "]"))
	require.NoError(t, err)
	require.Equal(t, &providers.Usage{PromptTokens: 9, CompletionTokens: 1}, answer.Usage)
}

const exampleEvent = `{"candidates": [{"content": {"parts": [{"text": "Hi \ud83d\udc4b"}],"role": "model"},"index": 0}],` +
	`"usageMetadata": {"promptTokenCount": 10,"candidatesTokenCount": 12,"totalTokenCount": 22,"promptTokensDetails": [{"modality": "TEXT","tokenCount": 10}]},"modelVersion": "gemini-9-flash","responseId": "r"}`

// TestSimilarEvents: a response that looks like the one before it is read as if it was the only one.
func TestSimilarEvents(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]string{
		{"", ""},
		{`"Hi \ud83d\udc4b"`, `"other"`},
		{`"Hi \ud83d\udc4b"`, `""`},
		{`"Hi \ud83d\udc4b"`, `"\ud83d"`},
		{`"Hi \ud83d\udc4b"`, `7`},
		{`"Hi \ud83d\udc4b"`, `"x","thought":true`},
		{`"index": 0`, `"finishReason":"STOP","index":0`},
		{`12,`, `13,`},
		{`12,`, `-13,`},
		{`12,`, `1.5,`},
		{`12,`, `13,"thoughtsTokenCount":40,`},
		{`"candidatesTokenCount": 12,`, ``},
		{`{"promptTokenCount": 10`, `{"promptTokenCount": "10"`},
		{`"usageMetadata"`, `"other"`},
		{`"TEXT"`, `"IMAGE"`},
		{`"r"}`, `"r","error":{"code":503}}`},
		{`"r"}`, `"s"}`},
		{`"r"}`, `"r"}x`},
		{`"r"}`, `"r"`},
		{`"Hi`, `"Hi` + "\n"},
		{`22,`, `22,,`},
		{`22,`, `022,`},
		{`22,`, `22.0,`},
		{`22,`, `1234567890123456,`},
		{`12,`, `12,"promptTokenCount":null,`},
		{`12,`, `12,"promptTokenCount":4,`},
		{`"text": "Hi`, `"text": "a"},{"text": "Hi`},
		{`}],"role"`, `},{"text":"b"}],"role"`},
		{`"candidates"`, `"promptFeedback":{"blockReason":"OTHER"},"candidates"`},
	} {
		changed := strings.Replace(exampleEvent, change[0], change[1], 1)
		requireSame(t, exampleEvent, changed)
		requireSame(t, changed, exampleEvent)
		requireSame(t, changed, changed)
	}
	const usageFirst = `{"usageMetadata":{"promptTokenCount":10},"candidates":[{"content":{"parts":[{"text":"a"}]}}]}`
	requireSame(t, usageFirst, usageFirst)
}

// TestEventsOfAnyForm makes documents of the names that count, with values of every kind in every place, before an event of the
// same form.
func TestEventsOfAnyForm(t *testing.T) {
	t.Parallel()
	value := rapid.SampledFrom([]string{`null`, `"x"`, `"\ud800"`, `7`, `-1`, `[]`, `{}`, `true`, `[{}]`, `{"text":"a"}`, `1e2`, `"STOP"`, `"OTHER"`, ``})
	rapid.Check(t, func(t *rapid.T) {
		document := func(name string) string {
			v := func(of string) string { return value.Draw(t, name+" "+of) }
			return rapid.SampledFrom([]string{
				fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s,"thought":%s}]},"index":0}],"usageMetadata":{"promptTokenCount":%s,"thoughtsTokenCount":%s}}`, v("text"), v("thought"), v("prompt"), v("thoughts")),
				fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%s}]},"index":0}],"modelVersion":%s}`, v("text"), v("model")),
				fmt.Sprintf(`{"usageMetadata":%s,"candidates":[{"content":{"parts":[{"text":%s}]}}],"usageMetadata":{"promptTokenCount":%s}}`, v("usage"), v("text"), v("prompt")),
				fmt.Sprintf(`{"candidates":[{"content":{"parts":%s},"finishReason":%s}],"promptFeedback":%s}`, v("parts"), v("finish"), v("feedback")),
				fmt.Sprintf(`{"candidates":%s,"error":%s}`, v("candidates"), v("error")),
			}).Draw(t, name)
		}
		requireSame(t, document("before"), document("event"))
	})
}

func FuzzEvents(f *testing.F) {
	f.Add(exampleEvent, strings.Replace(exampleEvent, "12", "13", 1))
	f.Add(exampleEvent, strings.Replace(exampleEvent, `"index"`, `"finishReason":"MAX_TOKENS","index"`, 1))
	f.Add(`{"candidates":[],"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":12,"totalTokenCount":12}}`, `{"error":{"code":503,"status":"UNAVAILABLE"}}`)
	f.Add(`{"candidates":[{"content":{"parts":[{"text":"a"},{"thought":true,"text":"b"},{"text":"\ud83d"}]}}]}`, `[{"error":{"code":429}}]`)
	f.Fuzz(func(t *testing.T, before, data string) {
		requireSame(t, before, data)
		for _, body := range []string{data, "[" + before + "," + data + "]"} {
			if event, err := (&dialect{}).Answer([]byte(body)); err == nil {
				require.True(t, utf8.ValidString(event.Text))
			}
		}
	})
}

// TestEventsAllocateNothing: the most frequent event of a stream costs no memory.
func TestEventsAllocateNothing(t *testing.T) { //nolint:paralleltest // allocations of other tests would count
	e := &events{}
	events := [][]byte{[]byte(exampleEvent), []byte(strings.Replace(exampleEvent, "12", "345", 1)), []byte(strings.Replace(exampleEvent, `"r"`, `"s"`, 1))}
	for _, data := range events {
		_, err := e.Event(data)
		require.NoError(t, err)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for _, data := range events {
			if _, err := e.Event(data); err != nil {
				panic(err)
			}
		}
	}))
}

// TestContentsAreNotCopied: a long prompt is expensive to copy.
func TestContentsAreNotCopied(t *testing.T) {
	t.Parallel()
	messages := []providers.Message{{Role: "system", Content: providers.Quote("S")}, {Role: "user", Content: providers.Quote("U")}, {Role: "user", Content: providers.Quote("V")}}
	parts, err := (&dialect{}).Body(&providers.Request{Messages: messages, MaxTokens: 1})
	require.NoError(t, err)
	found := 0
	for _, part := range parts {
		for _, m := range messages {
			if &part[0] == &m.Content[0] {
				found++
			}
		}
	}
	require.Len(t, messages, found)
}

// BenchmarkEvents reads an event as the one before it, and an event of another form.
func BenchmarkEvents(b *testing.B) {
	for name, data := range map[string][2]string{
		"similar": {exampleEvent, strings.Replace(exampleEvent, "12", "13", 1)}, "other": {exampleEvent, strings.Replace(exampleEvent, `"r"`, `"s"`, 1)},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			e, docs := &events{}, [][]byte{[]byte(data[0]), []byte(data[1])}
			for i := 0; b.Loop(); i++ {
				if _, err := e.Event(docs[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
