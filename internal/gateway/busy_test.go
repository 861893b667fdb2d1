package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestRefusedHold guarantees that a call whose hold the store refused because too much waits says when to come back; any
// other fault has no opinion.
func TestRefusedHold(t *testing.T) {
	t.Parallel()
	f := new(call).failure(t.Context(), fmt.Errorf("hold credits: %w", store.ErrBusy))
	require.Equal(t, OutcomeInternalError, f.Outcome)
	require.Equal(t, store.RetryAfter, f.RetryAfter)
	require.Zero(t, new(call).failure(t.Context(), errors.New("disk I/O error")).RetryAfter)
	gone, leave := context.WithCancel(t.Context())
	leave()
	require.Equal(t, OutcomeClientGone, new(call).failure(gone, store.ErrBusy).Outcome)
}
