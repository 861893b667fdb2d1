package handlertest

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// ScriptedCall is a gateway that plays an answer and keeps the request.
type ScriptedCall struct {
	Request *gateway.Request
	// Pieces are streamed with a flush after each; Fail ends the call after them.
	Pieces []string
	Fail   error
	Result gateway.Result
}

// Call implements v1.Gateway.
func (s *ScriptedCall) Call(_ context.Context, req *gateway.Request, sink gateway.Sink) (*gateway.Result, error) {
	s.Request = req
	if sink != nil {
		if err := sink.Begin(gateway.Head{ID: s.Result.ID, Created: s.Result.Created, Model: s.Result.Model, Replayed: s.Result.Replayed}); err != nil {
			return nil, err
		}
		for _, piece := range s.Pieces {
			if err := errors.Join(sink.Text(piece), sink.Flush()); err != nil {
				return nil, err
			}
		}
	}
	if s.Fail != nil {
		return nil, s.Fail
	}
	return &s.Result, nil
}

// Completed returns the result of a call with usage and text that must be escaped.
func Completed() gateway.Result {
	return gateway.Result{
		ID: "chatcmpl-1", Created: 1_700_000_000, Model: `acme/"std"`, Text: "one \"two\"\n\u2028</script>", FinishReason: "stop",
		Usage: billing.Usage{PromptTokens: 3, CompletionTokens: 4}, ChargedMicros: 9_007_199_254_740_993,
	}
}

// Events splits a stream into its data and checks its framing: each event is one data line and a blank line.
func Events(t *testing.T, w *httptest.ResponseRecorder) (data []string) {
	t.Helper()
	body := w.Body.String()
	require.True(t, strings.HasSuffix(body, "\n\n"))
	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		require.NotContains(t, event, "\n")
		text, ok := strings.CutPrefix(event, "data: ")
		require.True(t, ok, "not a data line: %q", event)
		data = append(data, text)
	}
	return data
}

// Failed returns a failure whose cause must not be shown.
func Failed(outcome gateway.Outcome) *gateway.Failure {
	return &gateway.Failure{Outcome: outcome, Message: "public text", Cause: errors.New("vendor text sk-secret")}
}
