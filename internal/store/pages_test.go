package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// A page that takes too long is read again with fewer rows, and the next ones are as small.
func TestReadPages(t *testing.T) {
	t.Parallel()
	var asked []int
	left := 2
	require.NoError(t, store.ReadPages(t.Context(), 1000, func(rows int) (bool, error) {
		asked = append(asked, rows)
		if rows > 300 {
			return false, fmt.Errorf("read: %w", context.DeadlineExceeded)
		}
		left--
		return left >= 0, nil
	}))
	require.Equal(t, []int{1000, 500, 250, 250, 250}, asked)
}

// Nothing is tried for ever: not below the smallest page, not after the caller's own deadline, not after another fault.
func TestReadPagesGivesUp(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("broken")
	for _, c := range []struct {
		ctx   context.Context
		fault error
		asked []int
	}{
		{t.Context(), context.DeadlineExceeded, []int{240, 120, 60}},
		{over, context.DeadlineExceeded, []int{240}},
		{t.Context(), broken, []int{240}},
	} {
		var asked []int
		require.ErrorIs(t, store.ReadPages(c.ctx, 240, func(rows int) (bool, error) {
			asked = append(asked, rows)
			return true, c.fault
		}), c.fault)
		require.Equal(t, c.asked, asked)
	}
}
