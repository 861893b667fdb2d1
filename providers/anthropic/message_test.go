package anthropic

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
)

// Parts of streams in the forms of the API.
const (
	started  = `{"type":"message_start","message":{"model":"claude-sonnet-4-20250514","id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":3,"service_tier":"standard"}}}`
	began    = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	hello    = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`
	world    = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" World"}}`
	finished = `{"type":"content_block_stop","index":0}`
	ended    = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}`
	stopped  = `{"type":"message_stop"}`
	overload = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`
)

func stream(events ...string) string {
	var b strings.Builder
	for _, data := range events {
		b.WriteString(event("%s", data))
	}
	return b.String()
}

// The streams of the API, with everything that vendors and relays were seen to send in one.
func TestStreams(t *testing.T) {
	t.Parallel()
	reported := &providers.Usage{PromptTokens: 10, CompletionTokens: 5}
	for name, test := range map[string]struct {
		body    string
		text    string // "Hello World" if empty
		finish  string // "stop" if empty
		usage   *providers.Usage
		failure providers.Failure
	}{
		"usual": {body: stream(started, began, `{"type":"ping"}`, hello, world, finished, ended, stopped), usage: reported},
		"pings and unknown events anywhere": {body: stream(`{"type":"ping"}`, started, `{"type":"ping"}`, `{"type":"compaction_started","delta":{"type":"text_delta","text":"no"},"x":[{}]}`,
			began, hello, `{"type": "ping"}`, `{"type":"an_event_with_a_name_that_has_more_than_32_bytes"}`, world, finished, ended, `{"type":"ping"}`, stopped), usage: reported},
		"events without names, data after the end": {body: strings.ReplaceAll(stream(started, began, hello, world, ended, stopped, hello), "event: ", ": "), usage: reported},
		"thinking before the text, in a block of its own": {body: stream(started, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm","text":"no"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQ="}}`, finished,
			strings.ReplaceAll(hello, `"index":0`, `"index":1`), strings.ReplaceAll(world, `"index":0`, `"index":1`), ended, stopped), usage: reported},
		"several blocks of text, one begun with text": {body: stream(started, began, hello, finished, `{"type":"content_block_start","index":1,"content_block":{"text":" W","type":"text"}}`,
			`{"index":1,"delta":{"text":"orl","type":"text_delta"},"type":"content_block_delta"}`, `{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"d","citations":null}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"char_location","text":"no"}}}`, ended, stopped), usage: reported},
		"a text with escapes": {body: stream(started, began, strings.ReplaceAll(hello, "Hello", `\"\\}\n\ud83d\ude00`), ended, stopped), text: "\"\\}\n😀", usage: reported},
		"a tool is begun":     {body: stream(started, began, hello, world, `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}`, `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, ended, stopped), usage: reported},

		"broken off in the text":                {body: stream(started, began, hello), text: "Hello", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureUnreachable},
		"broken off before message_stop":        {body: stream(started, began, hello, world, finished, ended), usage: reported, failure: providers.FailureUnreachable},
		"nothing after pings":                   {body: stream(`{"type":"ping"}`), text: "-", failure: providers.FailureUnreachable},
		"an error first":                        {body: stream(overload), text: "-", failure: providers.FailureOverloaded},
		"an error after a ping":                 {body: stream(`{"type":"ping"}`, overload), text: "-", failure: providers.FailureOverloaded},
		"an error in the text":                  {body: stream(started, began, hello, overload), text: "Hello", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureOverloaded},
		"an error instead of message_stop":      {body: stream(started, began, hello, world, ended, overload), usage: reported, failure: providers.FailureOverloaded},
		"an error as bare JSON":                 {body: stream(started, began, hello) + overload, text: "Hello", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureOverloaded},
		"an error without its object":           {body: stream(`{"type":"error"}`), text: "-", failure: providers.FailureRefused},
		"OpenAI's error":                        {body: stream(`{"error":{"message":"Rate limit","type":"requests","code":"rate_limit_exceeded"}}`), text: "-", failure: providers.FailureRefused},
		"OpenAI's stream":                       {body: "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: [DONE]\n\n", text: "-", failure: providers.FailureRefused},
		"a whole answer to a stream's request":  {body: `{"type":"message","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}`, text: "-", failure: providers.FailureRefused},
		"OpenAI's answer to a stream's request": {body: `{"id":"x","choices":[]}`, text: "-", failure: providers.FailureRefused},
		"a terminator of OpenAI":                {body: stream(started, began, hello, world, ended) + "data: [DONE]\n\n", usage: reported, failure: providers.FailureRefused},
		"a type that is no text":                {body: stream(started, `{"type":7}`), text: "-", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureRefused},
		"a text that is none":                   {body: stream(started, strings.ReplaceAll(hello, `"Hello"`, "7")), text: "-", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureRefused},
		"a delta that is no object":             {body: stream(started, `{"type":"content_block_delta","delta":"Hello"}`), text: "-", usage: &providers.Usage{PromptTokens: 10}, failure: providers.FailureRefused},
		"a message that is no object":           {body: stream(`{"type":"message_start","message":[]}`), text: "-", failure: providers.FailureRefused},

		"the bound":                         {body: stream(started, began, hello, world, strings.ReplaceAll(ended, "end_turn", "max_tokens"), stopped), finish: "length", usage: reported},
		"only thinking fits in the bound":   {body: stream(started, strings.ReplaceAll(ended, "end_turn", "max_tokens"), stopped), text: "-", finish: "length", usage: reported},
		"the window":                        {body: stream(started, hello, world, strings.ReplaceAll(ended, "end_turn", "model_context_window_exceeded"), stopped), finish: "length", usage: reported},
		"a stop sequence":                   {body: stream(started, hello, world, strings.ReplaceAll(ended, "end_turn", "stop_sequence"), stopped), usage: reported},
		"a pause":                           {body: stream(started, hello, world, strings.ReplaceAll(ended, "end_turn", "pause_turn"), stopped), usage: reported},
		"an unknown reason":                 {body: stream(started, hello, world, strings.ReplaceAll(ended, "end_turn", "tired_of_it_all_and_of_everything_else"), stopped), usage: reported},
		"a reason that a later event omits": {body: stream(started, hello, world, strings.ReplaceAll(ended, "end_turn", "max_tokens"), `{"type":"message_delta","delta":{"stop_reason":null}}`, stopped), finish: "length", usage: reported},
		"no reason":                         {body: stream(started, hello, world, stopped), usage: &providers.Usage{PromptTokens: 10}},
		"a refusal in the text":             {body: stream(started, began, hello, `{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"no"}},"usage":{"output_tokens":5}}`, stopped), text: "Hello", finish: "content_filter", usage: reported},
		"a refusal before any output":       {body: stream(started, `{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":0}}`, stopped), text: "-", finish: "content_filter", usage: &providers.Usage{PromptTokens: 10}},

		"reads and writes of the cache": {
			body:  stream(`{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_creation_input_tokens":1500,"cache_read_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":500},"output_tokens":1}}}`, hello, world, ended, stopped),
			usage: &providers.Usage{PromptTokens: 1807, CachedPromptTokens: 300, CacheWriteTokens: 1000, LongCacheWriteTokens: 500, CompletionTokens: 5},
		},
		"writes without their lives": {
			body:  stream(`{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_creation_input_tokens":1500,"cache_creation":null,"output_tokens":1}}}`, hello, world, ended, stopped),
			usage: &providers.Usage{PromptTokens: 1507, CacheWriteTokens: 1500, CompletionTokens: 5},
		},
		"writes without their sum": {
			body:  stream(`{"type":"message_start","message":{"usage":{"input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":500},"output_tokens":1}}}`, hello, world, ended, stopped),
			usage: &providers.Usage{PromptTokens: 1507, CacheWriteTokens: 1000, LongCacheWriteTokens: 500, CompletionTokens: 5},
		},
		"all counts again at the end, cumulative": {
			body:  stream(started, hello, world, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":2,"output_tokens":90,"output_tokens_details":{"thinking_tokens":80}}}`, stopped),
			usage: &providers.Usage{PromptTokens: 16, CachedPromptTokens: 2, CacheWriteTokens: 4, CompletionTokens: 90, ReasoningTokens: 80},
		},
		"the input only at the end": {body: stream(`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`, hello, world, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10,"output_tokens":5}}`, stopped), usage: reported},
		"shrinking counts":          {body: stream(started, hello, world, ended, `{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"output_tokens":0}}`, stopped), usage: reported},
		"twice, growing":            {body: stream(started, hello, `{"type":"message_delta","delta":{},"usage":{"output_tokens":2}}`, world, ended, stopped), usage: reported},
		"in the last event":         {body: stream(started, hello, world, `{"type":"message_stop","usage":{"output_tokens":5}}`), usage: reported},
		"in floats":                 {body: stream(started, hello, world, `{"type":"message_delta","delta":{},"usage":{"input_tokens":1e1,"output_tokens":5.0}}`, stopped), usage: reported},
		"not whole":                 {body: stream(started, hello, world, `{"type":"message_delta","delta":{},"usage":{"input_tokens":99,"output_tokens":5.5}}`, stopped), usage: &providers.Usage{PromptTokens: 10}},
		"negative":                  {body: stream(started, hello, world, `{"type":"message_delta","delta":{},"usage":{"input_tokens":-99,"output_tokens":5}}`, stopped), usage: &providers.Usage{PromptTokens: 10}},
		"no usage":                  {body: stream(strings.ReplaceAll(started, "usage", "other"), hello, world, `{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`, stopped)},
		"a usage that is none":      {body: stream(strings.ReplaceAll(started, "usage", "other"), hello, world, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":[7]}`, stopped)},
	} {
		answer := providertest.Ask(t, says(t, test.body), &providers.Request{Model: "m", Stream: true, MaxTokens: 9, Messages: []providers.Message{{Role: "user", Content: []byte(`"x"`)}}})
		want := providertest.Answer{Text: test.text, FinishReason: test.finish, Usage: test.usage, Err: answer.Err}
		switch test.text {
		case "":
			want.Text = "Hello World"
		case "-":
			want.Text = ""
		}
		if test.failure != "" {
			providertest.RequireFailure(t, answer.Err, test.failure)
		} else {
			require.NoError(t, answer.Err, name)
			if want.FinishReason == "" {
				want.FinishReason = "stop"
			}
		}
		require.Equal(t, want, answer, name)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body    string
		text    string
		finish  string
		usage   *providers.Usage
		failure providers.Failure
	}{
		"usual": {
			body: `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-20250514","content":[{"type":"text","text":"Hello World"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":1500,"cache_read_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":500},"output_tokens":90,"output_tokens_details":{"thinking_tokens":80}}}`,
			text: "Hello World", usage: &providers.Usage{PromptTokens: 1807, CachedPromptTokens: 300, CacheWriteTokens: 1000, LongCacheWriteTokens: 500, CompletionTokens: 90, ReasoningTokens: 80},
		},
		"thinking and several texts": {body: `{"content":[{"type":"thinking","thinking":"hm","text":"no"},{"type":"text","text":"Hello"},{"type":"redacted_thinking","data":"x"},{"text":" Wörld","type":"text","citations":[{"text":"no"}]},{"type":"text","text":"!"}],"stop_reason":"pause_turn"}`, text: "Hello Wörld!"},
		"nothing but thoughts":       {body: `{"content":[],"stop_reason":"max_tokens","usage":{"input_tokens":7,"output_tokens":9}}`, finish: "length", usage: &providers.Usage{PromptTokens: 7, CompletionTokens: 9}},
		"a refusal":                  {body: `{"content":[],"stop_reason":"refusal","stop_details":{"category":null,"explanation":"no"},"usage":{"input_tokens":7,"output_tokens":0}}`, finish: "content_filter", usage: &providers.Usage{PromptTokens: 7}},
		"no reason":                  {body: `{"content":[{"type":"text","text":"x"}],"stop_reason":null,"usage":null}`, text: "x"},

		"an error":                  {body: overload, failure: providers.FailureOverloaded},
		"OpenAI's error":            {body: `{"error":{"message":"Invalid URL (POST /v1/messages)","type":"invalid_request_error","param":null,"code":null}}`, failure: providers.FailureRefused},
		"OpenAI's answer":           {body: `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}`, failure: providers.FailureRefused},
		"a stream":                  {body: stream(started, hello, ended, stopped), failure: providers.FailureRefused},
		"cut off":                   {body: `{"content":[{"type":"text","text":"Hello"}],"stop_reas`, failure: providers.FailureRefused},
		"content that is a text":    {body: `{"content":"Hello"}`, failure: providers.FailureRefused},
		"a text that is none":       {body: `{"content":[{"type":"text"}]}`, failure: providers.FailureRefused},
		"a block that is no object": {body: `{"content":["Hello"]}`, failure: providers.FailureRefused},
		"a list":                    {body: `[{"content":[]}]`, failure: providers.FailureRefused},
	} {
		answer := providertest.Ask(t, says(t, test.body), &providers.Request{Model: "m", MaxTokens: 9, Messages: []providers.Message{{Role: "user", Content: []byte(`"x"`)}}})
		if test.failure != "" {
			providertest.RequireFailure(t, answer.Err, test.failure)
			continue
		}
		if test.finish == "" {
			test.finish = "stop"
		}
		require.Equal(t, providertest.Answer{Text: test.text, FinishReason: test.finish, Usage: test.usage}, answer, name)
	}
}

// The name of the answering model is passed on, a long one isn't.
func TestModel(t *testing.T) {
	t.Parallel()
	piece, err := (&events{}).Event([]byte(started))
	require.NoError(t, err)
	require.Equal(t, "claude-sonnet-4-20250514", piece.Model)
	whole, err := (&dialect{}).Answer([]byte(`{"model":"claude","content":[]}`))
	require.NoError(t, err)
	require.Equal(t, "claude", whole.Model)
	long := vendor(t, nil, func(*http.Request) (int, string) {
		return 200, `{"model":"` + strings.Repeat("a", 256) + `","content":[]}`
	})
	events, err := long.Open(t.Context(), &providers.Request{Model: "m", MaxTokens: 9, Messages: []providers.Message{message("user", "Hi")}})
	require.NoError(t, err)
	defer events.Close()
	answered, err := events.Next()
	require.NoError(t, err)
	require.Equal(t, "stop", answered.FinishReason)
	require.Empty(t, answered.Model)
}

// TestUncountedText: an event that doesn't count the output says nothing about the text since its last count.
func TestUncountedText(t *testing.T) {
	t.Parallel()
	for _, counts := range []string{`{"input_tokens":10}`, `{"input_tokens":10,"output_tokens":null}`, `{"input_tokens":10,"output_tokens":-1}`} {
		e := &events{}
		var piece providers.Piece
		for _, data := range []string{started, hello, `{"type":"message_delta","delta":{},"usage":{"output_tokens":2}}`, world, `{"type":"message_delta","delta":{},"usage":` + counts + `}`} {
			var err error
			piece, err = e.Event([]byte(data))
			require.NoError(t, err)
		}
		if piece.Usage != nil {
			require.Equal(t, &providers.Usage{PromptTokens: 10}, piece.Usage, counts)
		}
	}
}

// A piece of text costs no memory, with any padding, and is compared instead of parsed from the second one on.
func TestTextCostsNoMemory(t *testing.T) {
	e := &events{}
	lines := [][]byte{[]byte(hello), []byte(strings.TrimSuffix(world, "}") + "      }"), []byte(`{"type":"ping"}`)}
	read := func() {
		for _, line := range lines {
			if _, err := e.Event(line); err != nil {
				t.Fatal(err)
			}
		}
	}
	read()
	for _, line := range lines[:2] {
		require.NotNil(t, e.textOf(line))
	}
	require.Zero(t, testing.AllocsPerRun(100, read))
}

// What is compared with the previous event has the same meaning as when it is parsed.
func FuzzEvents(f *testing.F) {
	for _, line := range []string{started, began, hello, world, finished, ended, stopped, overload} {
		f.Add([]byte(hello + "\n" + line + "\n" + world))
	}
	f.Add([]byte(hello + "\n" + strings.TrimSuffix(world, "}}") + `,"x":"}}"}}`))
	f.Add([]byte(hello + "\n" + hello + "}"))
	f.Add([]byte(hello + "\n" + strings.TrimSuffix(hello, `"}}`) + "\\\"} }"))
	f.Fuzz(func(t *testing.T, lines []byte) {
		e := &events{}
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			fresh := &events{tokens: e.tokens, finish: e.finish}
			want, failure := fresh.Event(line)
			piece, err := e.Event(line)
			require.Equal(t, failure, err)
			require.Equal(t, want, piece)
			if piece.Text != nil {
				require.True(t, json.Valid(piece.Text), "%s", piece.Text)
			}
			if u := piece.Usage; u != nil {
				require.GreaterOrEqual(t, u.PromptTokens, u.CachedPromptTokens+u.CacheWriteTokens+u.LongCacheWriteTokens)
				require.GreaterOrEqual(t, u.CacheWriteTokens, int64(0))
				require.GreaterOrEqual(t, u.CompletionTokens, u.ReasoningTokens)
			}
		}
		_, _ = (&dialect{}).Answer(lines)
	})
}
