package gateway_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestPanicOfAnAdapter: a panic, wherever it comes from, fails its call, and nothing stays held. The log names the place, not
// the value of the panic.
func TestPanicOfAnAdapter(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"Open", "nothing", "Next", "Buffered", "Close"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", where, stream), func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				f := setup(t, &script{}, func(_ *gateway.Model, p *gateway.ProviderEntry) { p.Provider = brokenAdapter(where) })
				f.Logger = slog.New(slog.NewTextHandler(&log, nil))
				var sink gateway.Sink
				if stream {
					sink = newClient()
				}
				_, err := f.Call(t.Context(), request(func(r *gateway.Request) { r.Stream = stream }), sink)
				if where == "Close" || (where == "Buffered" && !stream) { // the answer was whole
					require.NoError(t, err)
				} else {
					var failure *gateway.Failure
					require.ErrorAs(t, err, &failure)
					require.Equal(t, gateway.OutcomeProviderError, failure.Outcome)
					var e *providers.Error
					require.ErrorAs(t, err, &e)
					require.Equal(t, providers.FailureBroken, e.Failure)
					require.Zero(t, f.spent(t))
				}
				switch {
				case where == "nothing", where == "Buffered" && !stream:
					require.Empty(t, log.String())
				default:
					require.Contains(t, log.String(), "the adapter of a provider panicked")
					require.Contains(t, log.String(), "brokenAdapter")
				}
				require.NotContains(t, log.String(), "hunter2")
			})
		}
	}
}

// brokenAdapter panics in the method of that name.
type brokenAdapter string

func (b brokenAdapter) at(where string) {
	if string(b) == where {
		panic("hunter2")
	}
}

func (b brokenAdapter) Open(context.Context, *providers.Request) (providers.Events, error) {
	b.at("Open")
	if b == "nothing" {
		return nil, nil //nolint:nilnil // what the contract doesn't allow
	}
	return &brokenEvents{brokenAdapter: b}, nil
}

type brokenEvents struct {
	brokenAdapter

	given bool
}

func (b *brokenEvents) Next() (providers.Event, error) {
	b.at("Next")
	if b.given {
		return providers.Event{FinishReason: "stop"}, io.EOF
	}
	b.given = true
	return providers.Event{Text: "x", Usage: &providers.Usage{}}, nil
}

func (b *brokenEvents) Buffered() bool {
	b.at("Buffered")
	return false
}

func (b *brokenEvents) Close() { b.at("Close") }
