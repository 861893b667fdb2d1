package providers

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// spaces is an endless answer.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestLargeAnswersShareABound: the answers of a vendor that are read at the same time take maxLargeBytes, and each some KiB
// more. Small answers go on meanwhile, and what an answer took is given back.
func TestLargeAnswersShareABound(t *testing.T) {
	t.Parallel()
	var body io.Reader
	p := NewOpenAI(OpenAIConfig{BaseURL: "http://vendor", Timeouts: long, Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), ContentLength: -1}, nil
	})})
	small := func() io.Reader { return strings.NewReader(`{"choices":[{"message":{"content":"a"}}]}`) }
	large := func() io.Reader { return io.MultiReader(io.LimitReader(spaces{}, 2*smallAnswerBytes), small()) }
	const others = 40
	var open []*answerReader
	read := int64(0)
	for range others {
		reader := &answerReader{src: &cappedReader{spaces{}, maxAnswerBytes}, share: &p.largeBytes}
		n, err := io.Copy(io.Discard, reader)
		require.Error(t, err)
		read += n
		open = append(open, reader)
	}
	require.LessOrEqual(t, read, int64(maxLargeBytes+others*smallAnswerBytes))

	body = large()
	e := requireFailure(t, call1(t, p, scenario("ok", false)).err, FailureOverloaded)
	require.ErrorIs(t, e.Cause, errManyLarge)
	body = small()
	require.NoError(t, call1(t, p, scenario("ok", false)).err)
	for _, reader := range open {
		reader.close()
	}
	body = large()
	require.NoError(t, call1(t, p, scenario("ok", false)).err)
	require.Zero(t, p.largeBytes.Load())
}
