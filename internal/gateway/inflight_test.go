package gateway_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/gateway"
)

// TestInFlight: a store is closed only while no call uses it, and only if no new configuration has taken it meanwhile.
func TestInFlight(t *testing.T) {
	t.Parallel()
	calls := gateway.NewInFlight()
	_, leave, err := calls.Enter()
	require.NoError(t, err)
	require.Equal(t, 1, calls.Running())

	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, calls.Wait(ctx), enough, "a running call keeps Wait waiting")
	require.False(t, calls.Close(calls.Entered()), "a running call keeps it open")

	waited := make(chan error)
	go func() { waited <- calls.Wait(context.Background()) }()
	leave()
	require.NoError(t, <-waited)

	before := calls.Entered()
	_, leave, err = calls.Enter()
	require.NoError(t, err)
	leave()
	require.False(t, calls.Close(before), "somebody came meanwhile")
	require.True(t, calls.Close(calls.Entered()))
	_, _, err = calls.Enter()
	require.ErrorIs(t, err, gateway.ErrExiting)
}

// TestCut: the calls' lifetime ends with the cause that settles them as cut by the exit.
func TestCut(t *testing.T) {
	t.Parallel()
	calls := gateway.NewInFlight()
	cut, leave, err := calls.Enter()
	require.NoError(t, err)
	defer leave()
	require.NoError(t, cut.Err())
	calls.Cut()
	require.ErrorIs(t, context.Cause(cut), gateway.ErrExiting)
}
