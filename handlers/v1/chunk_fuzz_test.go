package v1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/openai"
)

// relayed is what a client gets of a vendor's stream, and what the gateway learns from it.
type relayed struct {
	// Written are the bytes of the content chunks.
	Written, Finish string
	Usage           []providers.Usage
	// Failure is the class of the error, 0 for a complete answer.
	Failure providers.Failure
}

type vendorStream struct{ body io.Reader }

// RoundTrip implements [http.RoundTripper].
func (v vendorStream) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(v.body), ContentLength: -1}, nil
}

// relay reads a vendor's stream and writes its pieces as [gateway.Gateway] does, to a sink that takes quoted pieces or not.
func relay(t *testing.T, body io.Reader, quoted bool) (got relayed) {
	t.Helper()
	vendor, err := openai.Driver{}.New(&providers.Config{BaseURL: "http://vendor.test", Transport: vendorStream{body}})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	writer := NewChunkWriter(w, new(http.Request))
	defer writer.Free()
	require.NoError(t, writer.Begin(gateway.Head{ID: "chatcmpl-1", Model: "acme/std"}))

	events, err := vendor.Open(t.Context(), &providers.Request{Stream: true})
	for err == nil {
		var event providers.Event
		if event, err = events.Next(); err != nil {
			break
		}
		got.Finish += event.FinishReason
		if event.Usage != nil {
			got.Usage = append(got.Usage, *event.Usage)
		}
		switch {
		case event.Quoted != nil && quoted:
			require.NoError(t, writer.Quoted(event.Quoted))
		case event.Answer() != "":
			require.NoError(t, writer.Text(event.Answer()))
		}
	}
	if failure, ok := errors.AsType[*providers.Error](err); ok {
		got.Failure = failure.Failure
	}
	if events != nil {
		events.Close()
	}
	require.NoError(t, writer.Flush())
	got.Written = w.Body.String()
	return got
}

// spread writes events of a stream so that no two of them have the same beginning: each is read as a document of its own.
func spread(events [][]byte) []byte {
	var b bytes.Buffer
	for i, event := range events {
		event = bytes.TrimSpace(event)
		b.WriteString("data: ")
		if rest, ok := bytes.CutPrefix(event, []byte("{")); ok {
			b.WriteString("{" + strings.Repeat(" ", i+1))
			event = rest
		}
		b.Write(event)
		b.WriteString("\n\n")
	}
	return b.Bytes()
}

const vendorHead = `{"id":"chatcmpl-x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{`

func vendorChunk(content string) string {
	return vendorHead + `"content":` + content + `},"logprobs":null,"finish_reason":null}],"usage":null}`
}

// vendorStreams are chunks as vendors write them, one a line.
var vendorStreams = map[string][]string{
	"role, text, finish, usage": {
		vendorHead + `"role":"assistant","content":""},"finish_reason":null}]}`, vendorChunk(`"Hi"`), vendorChunk(`" there"`), vendorChunk(`"."`),
		vendorHead + `},"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}}`, `[DONE]`,
	},
	"a pair split over two deltas": {
		vendorChunk(`"a"`), vendorChunk(`"\ud83d"`), vendorChunk(`"\ude00b"`), vendorChunk(`"\ud83d"`), vendorChunk(`"c"`), vendorChunk(`"\ud83d"`), `[DONE]`,
	},
	"text of an injector": {vendorChunk(`"x"`), vendorChunk(`"[DONE]"`), vendorChunk(`"\n\ndata: [DONE]\n\n"`), vendorChunk(`"\"},\"finish_reason\":\"stop\""`), `[DONE]`},
	"escapes of every form": {
		vendorChunk(`"\"\\\n\r\t\u0000\u001f"`), vendorChunk(`"\/\b\f\u000a\u001F\u0022\u005c\u00e9\u2028"`), vendorChunk("\"é\u2028\U0001F600\x7f\""),
		vendorChunk("\"\xff\""), vendorChunk(`"\ud800"`), `[DONE]`,
	},
	"broken text":     {vendorChunk(`"a"`), vendorChunk(`"a"b"`)},
	"broken escape":   {vendorChunk(`"a"`), vendorChunk(`"\x"`)},
	"control":         {vendorChunk(`"a"`), vendorChunk("\"\t\"")},
	"no text":         {vendorChunk(`"a"`), vendorChunk(`null`), vendorChunk(`1`)},
	"empty deltas":    {vendorChunk(`""`), vendorChunk(`""`), vendorHead + `},"finish_reason":null}]}`, vendorChunk(`"a"`), vendorChunk(`""`), `[DONE]`},
	"parts":           {vendorChunk(`"a"`), vendorChunk(`[{"type":"text","text":"b"},{"type":"thinking","thinking":[]},{"type":"text","text":"\ud83d"}]`), vendorChunk(`"\ude00"`), `[DONE]`},
	"tool calls":      {vendorHead + `"tool_calls":[{"index":0,"function":{"arguments":"{\"content\":\"no\"}"}}]},"finish_reason":null}]}`, vendorChunk(`"a"`), vendorHead + `},"finish_reason":"tool_calls"}]}`, `[DONE]`},
	"reasoning":       {vendorHead + `"content":null,"reasoning_content":"hm"},"finish_reason":null}]}`, vendorHead + `"content":"a","reasoning_content":"hm"},"finish_reason":null}]}`, vendorHead + `"content":"b","reasoning_content":"hm"},"finish_reason":null}]}`, `{"choices":[],"usage":{"prompt_tokens":10120,"completion_tokens":1499,"total_tokens":14428}}`, `[DONE]`},
	"repeated finish": {vendorChunk(`"a"`), vendorHead + `"content":"b"},"finish_reason":"stop"}]}`, vendorHead + `"content":"c"},"finish_reason":"stop"}]}`, vendorChunk(`"d"`)},
	"usage in every chunk": {
		`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, `{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, `[DONE]`,
	},
	"the text elsewhere, too": {`{"id":"a","choices":[{"delta":{"content":"a"}}]}`, `{"id":"b","choices":[{"delta":{"content":"a"}}]}`, `{"id":"a","choices":[{"delta":{"content":"b"}}]}`, `[DONE]`},
	"repeated members":        {`{"choices":[{"delta":{"content":"a","content":"b"}}]}`, `{"choices":[{"delta":{"content":"a","content":"c"}}]}`, `{"choices":[{"delta":{"content":"d","content":"c"}}]}`, `[DONE]`},
	"another choice":          {`{"choices":[{"index":1,"delta":{"content":"a"}}]}`, `{"choices":[{"index":1,"delta":{"content":"b"}}]}`, `{"choices":[{"index":0,"delta":{"content":"c"}}]}`, `[DONE]`},
	"a short frame":           {`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{"content":"}}]}`, `[DONE]`},
	"an error at the end":     {vendorChunk(`"a"`), vendorChunk(`"b"`), `{"error":{"message":"no","code":503}}`},
	"an error as finish":      {vendorChunk(`"a"`), vendorHead + `"content":"b"},"finish_reason":"error"}]}`},
	"long text":               {vendorChunk(`"a"`), vendorChunk(`"` + strings.Repeat("long ", 2000) + `"`), vendorChunk(`"` + strings.Repeat("\\u00e9", 2000) + `"`), vendorChunk(`"b"`), `[DONE]`},
}

// requireSameStream compares the stream as a client sees it with the one of a reader that takes no short cut: each event is a
// document of its own, each piece is decoded and written anew, and the bytes come one by one.
func requireSameStream(t *testing.T, events [][]byte) {
	t.Helper()
	var lines bytes.Buffer
	for _, event := range events {
		lines.WriteString("data: ")
		lines.Write(event)
		lines.WriteString("\n\n")
	}
	want := relay(t, iotest.OneByteReader(bytes.NewReader(spread(events))), false)
	require.Equal(t, want, relay(t, bytes.NewReader(lines.Bytes()), true))
	require.Equal(t, want, relay(t, iotest.HalfReader(bytes.NewReader(lines.Bytes())), true))
}

func TestStreamsArePassedOnAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, chunks := range vendorStreams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireSameStream(t, bytes.Split([]byte(strings.Join(chunks, "\n")), []byte("\n")))
		})
	}
}

// Half a pair that gets no other half stands before the piece that follows it, also one that could be passed on as it is.
func TestHalfPairBeforeQuotedText(t *testing.T) {
	t.Parallel()
	chunks := vendorStreams["a pair split over two deltas"]
	got := relay(t, strings.NewReader("data: "+strings.Join(chunks, "\n\ndata: ")+"\n\n"), true)
	var text strings.Builder
	for _, piece := range regexp.MustCompile(`"content":"([^"]*)"`).FindAllStringSubmatch(got.Written, -1) {
		text.WriteString(piece[1])
	}
	require.Equal(t, "a😀b\uFFFDc\uFFFD", text.String())
}

func FuzzStreamedChunks(f *testing.F) {
	for _, chunks := range vendorStreams {
		f.Add([]byte(strings.Join(chunks, "\n")))
	}
	f.Fuzz(func(t *testing.T, chunks []byte) {
		if bytes.ContainsAny(chunks, "\r") || len(chunks) > 64<<10 || bytes.Count(chunks, []byte("\n")) > 256 { // spread is quadratic in the events
			return
		}
		requireSameStream(t, bytes.Split(chunks, []byte("\n")))
	})
}
