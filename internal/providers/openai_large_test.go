package providers

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// endless repeats a byte for ever.
type endless byte

func (b endless) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{byte(b)}, len(p)))
	return len(p), nil
}

// TestLargeAnswersShareABound: the answers, and the events of streams, that a vendor's calls read at the same time take
// maxLargeBytes together. Small ones go on meanwhile, and what a call took is given back.
func TestLargeAnswersShareABound(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"in one piece": false, "streams": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []io.Reader
			p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				body := bodies[0]
				bodies = bodies[1:]
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), ContentLength: -1}, nil
			})})
			small := `{"choices":[{"message":{"content":"a"}}]}`
			if stream {
				small = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\ndata: [DONE]\n\n"
			}
			before, after, _ := strings.Cut(small, `"a"`)
			large := func() io.Reader {
				return io.MultiReader(strings.NewReader(before), io.LimitReader(endless(' '), 2*smallAnswerBytes), strings.NewReader(`"a"`+after))
			}
			var others []*call
			for p.largeBytes.Load() < maxLargeBytes {
				other := p.newCall(t.Context(), stream)
				require.NoError(t, other.hold(smallAnswerBytes+min(maxAnswerBytes, maxLargeBytes-int(p.largeBytes.Load()))))
				others = append(others, other)
			}

			taken := p.largeBytes.Load()
			bodies = []io.Reader{large(), strings.NewReader(small)}
			e := requireFailure(t, call1(t, p, scenario("ok", stream)).err, FailureOverloaded)
			require.ErrorIs(t, e.Cause, errManyLarge)
			require.Equal(t, taken, p.largeBytes.Load(), "a call that failed gives back")
			require.NoError(t, call1(t, p, scenario("ok", stream)).err)
			for _, other := range others {
				other.end()
				other.end()
			}
			require.Zero(t, p.largeBytes.Load())
			bodies = []io.Reader{large()}
			result := call1(t, p, scenario("ok", stream))
			require.NoError(t, result.err)
			require.Equal(t, "a", result.text)
			require.Zero(t, p.largeBytes.Load())
		})
	}
}

// TestLargeEventIsForgotten: a stream holds a large event until the next one, not to its end.
func TestLargeEventIsForgotten(t *testing.T) {
	t.Parallel()
	event := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("a", 2*smallAnswerBytes) + `"}}]}` + "\n\n"
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		body := event + `data: {"choices":[{"delta":{"content":"b"}}]}` + "\n\ndata: [DONE]\n\n"
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
	})})
	events, err := p.Open(t.Context(), scenario("ok", true))
	require.NoError(t, err)
	defer events.Close()
	first, err := events.Next()
	require.NoError(t, err)
	require.Len(t, first.Text, 2*smallAnswerBytes)
	require.GreaterOrEqual(t, p.largeBytes.Load(), int64(smallAnswerBytes))
	second, err := events.Next()
	require.NoError(t, err)
	require.Equal(t, "b", second.Text)
	require.Zero(t, p.largeBytes.Load())
}
