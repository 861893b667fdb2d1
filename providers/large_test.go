package providers_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/providers"
	"github.com/caddy-svc/caddy-svc/providers/providertest"
	"github.com/caddy-svc/caddy-svc/providers/providertest/openaitest"
)

// endless repeats a byte for ever.
type endless byte

func (b endless) Read(p []byte) (int, error) {
	copy(p, bytes.Repeat([]byte{byte(b)}, len(p)))
	return len(p), nil
}

// TestLargeAnswersShareABound: the answers, and the events of streams, that a vendor's calls read at the same time take
// providers.MaxLargeBytes together. Small ones go on meanwhile, and what a call took is given back.
func TestLargeAnswersShareABound(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]bool{"in one piece": false, "streams": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bodies []io.Reader
			p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(*http.Request) (*http.Response, error) {
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
				return io.MultiReader(strings.NewReader(before), io.LimitReader(endless(' '), 2*providers.SmallAnswerBytes), strings.NewReader(`"a"`+after))
			}
			var others []func()
			for p.LargeBytes() < providers.MaxLargeBytes {
				other, err := p.HoldLarge(t.Context(), stream,
					providers.SmallAnswerBytes+min(providers.MaxAnswerBytes, providers.MaxLargeBytes-int(p.LargeBytes())))
				require.NoError(t, err)
				others = append(others, other)
			}

			taken := p.LargeBytes()
			bodies = []io.Reader{large(), strings.NewReader(small)}
			e := requireFailure(t, providertest.Ask(t, p, openaitest.Ask("ok", stream)).Err, providers.FailureOverloaded)
			require.ErrorIs(t, e.Cause, providers.ErrManyLarge)
			require.Equal(t, taken, p.LargeBytes(), "a call that failed gives back")
			require.NoError(t, providertest.Ask(t, p, openaitest.Ask("ok", stream)).Err)
			for _, other := range others {
				other()
				other()
			}
			require.Zero(t, p.LargeBytes())
			bodies = []io.Reader{large()}
			result := providertest.Ask(t, p, openaitest.Ask("ok", stream))
			require.NoError(t, result.Err)
			require.Equal(t, "a", result.Text)
			require.Zero(t, p.LargeBytes())
		})
	}
}

// TestLargeEventIsForgotten: a stream holds a large event until the next one, not to its end.
func TestLargeEventIsForgotten(t *testing.T) {
	t.Parallel()
	event := `data: {"choices":[{"delta":{"content":"` + strings.Repeat("a", 2*providers.SmallAnswerBytes) + `"}}]}` + "\n\n"
	p := openaitest.New(t, providers.Config{BaseURL: "http://vendor", Timeouts: openaitest.Long, Transport: openaitest.RoundTripper(func(*http.Request) (*http.Response, error) {
		body := event + `data: {"choices":[{"delta":{"content":"b"}}]}` + "\n\ndata: [DONE]\n\n"
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
	})})
	events, err := p.Open(t.Context(), openaitest.Ask("ok", true))
	require.NoError(t, err)
	defer events.Close()
	first, err := events.Next()
	require.NoError(t, err)
	require.Len(t, first.Answer(), 2*providers.SmallAnswerBytes)
	require.GreaterOrEqual(t, p.LargeBytes(), int64(providers.SmallAnswerBytes))
	second, err := events.Next()
	require.NoError(t, err)
	require.Equal(t, "b", second.Answer())
	require.Zero(t, p.LargeBytes())
}
