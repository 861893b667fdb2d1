package gateway

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaces: an organization and a provider leave places to the others, and every place can be given back.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var p load
	for range 4 {
		require.True(t, p.take("greedy", "a", 8, 8))
	}
	require.False(t, p.take("greedy", "a", 8, 8), "as many as are left")
	require.True(t, p.take("modest", "a", 8, 8))
	require.False(t, p.take("other", "a", 5, 8), "the provider has its share")
	require.True(t, p.take("other", "b", 5, 8))
	require.True(t, p.take("third", "b", 5, 8))
	require.True(t, p.take("fourth", "b", 5, 8))
	require.False(t, p.take("fifth", "b", 5, 8), "none is left")
	for range 4 {
		p.give("greedy", "a")
	}
	p.give("modest", "a")
	for _, org := range []string{"other", "third", "fourth"} {
		p.give(org, "b")
	}
	require.Empty(t, p.running)
}

// TestShare: a provider among others leaves a quarter; one alone has all.
func TestShare(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 4: 3, 32: 24, 1000: 750} {
		entries := []ProviderEntry{{Name: "a"}}
		alone, err := NewCatalog(nil, entries)
		require.NoError(t, err)
		require.Equal(t, n, alone.share(n), fmt.Sprint(n))
		two, err := NewCatalog(nil, append(entries, ProviderEntry{Name: "b"}))
		require.NoError(t, err)
		require.Equal(t, want, two.share(n), fmt.Sprint(n))
	}
}
