package handlers

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Large bodies that are being decoded never keep a small one waiting, and a wait in vain ends with a hint to retry.
func TestDecodingSlots(t *testing.T) {
	t.Parallel()
	budget := NewByteBudget(1 << 20)
	var large, small []func()
	for range cap(budget.decodes.large) {
		done, err := budget.Decoding(t.Context(), largeDecode)
		require.NoError(t, err)
		large = append(large, done)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	refused := func(size int) {
		t.Helper()
		_, err := budget.Decoding(gone, size)
		a := sent(err)
		require.Equal(t, http.StatusInternalServerError, a.Code)
		require.Equal(t, "1", a.Header().Get("Retry-After"))
	}
	refused(largeDecode)
	for range cap(budget.decodes.all) - len(large) {
		done, err := budget.Decoding(t.Context(), largeDecode-1)
		require.NoError(t, err)
		small = append(small, done)
	}
	refused(1)
	large[0]()
	done, err := budget.Decoding(t.Context(), largeDecode)
	require.NoError(t, err)
	done()
	for _, done := range append(large[1:], small...) {
		done()
	}
	require.Empty(t, budget.decodes.all)
	require.Empty(t, budget.decodes.large)
	_, err = (*ByteBudget)(nil).Decoding(gone, 1)
	require.NoError(t, err, "nil has no bound")
}
