package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestPadded guarantees that a list keeps its order in pieces of the sizes, and that the last piece is filled with the last item.
func TestPadded(t *testing.T) {
	t.Parallel()
	sizes := store.ListSizes{8, 4, 1}
	items := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	var got [][]int
	for size, piece := range store.Padded(sizes, items) {
		require.Len(t, piece, sizes[size])
		got = append(got, piece)
	}
	require.Equal(t, [][]int{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 10, 10}}, got)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, items)
}

// TestPaddedCopiesOnce guarantees that a long list costs in proportion to its length.
func TestPaddedCopiesOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	items, large := make([]int, 500), store.ListSizes{1024, 1}
	allocated := testing.AllocsPerRun(10, func() {
		for range store.Padded(large, items) {
			continue
		}
	})
	require.LessOrEqual(t, allocated, 8.0)
}
