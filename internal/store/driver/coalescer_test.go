package driver

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// All lookups that arrive while a fetch runs are served by the next one, each key fetched once.
func TestCoalescerSharesFetches(t *testing.T) {
	t.Parallel()
	fetching, goOn := make(chan []int), make(chan struct{})
	c := &Coalescer[int, int]{Fetch: func(wanted map[int]int64) (map[int]int, error) {
		keys := slices.Collect(maps.Keys(wanted))
		fetching <- keys
		<-goOn
		found := map[int]int{}
		for _, key := range keys {
			if key < 5 {
				found[key] = key * 10
			}
		}
		return found, nil
	}}
	type answer struct {
		value int
		found bool
		err   error
	}
	ask := func(key int) <-chan answer {
		answers := make(chan answer, 1)
		mine, _, err := c.join(key) // in order; get only waits after it
		require.NoError(t, err)
		go func() {
			<-mine.done
			value, found := mine.found[key]
			answers <- answer{value, found, mine.err}
		}()
		return answers
	}
	first := ask(1)
	require.Equal(t, []int{1}, <-fetching)
	late := []<-chan answer{ask(2), ask(3), ask(2), ask(7)}
	goOn <- struct{}{}
	require.Equal(t, answer{10, true, nil}, <-first)
	keys := <-fetching
	slices.Sort(keys)
	require.Equal(t, []int{2, 3, 7}, keys)
	goOn <- struct{}{}
	require.Equal(t, answer{20, true, nil}, <-late[0])
	require.Equal(t, answer{30, true, nil}, <-late[1])
	require.Equal(t, answer{20, true, nil}, <-late[2])
	require.Equal(t, answer{0, false, nil}, <-late[3])
	c.Close()
	_, _, err := c.Get(t.Context(), 1)
	require.ErrorIs(t, err, ErrClosed)
}

// A lookup of several keys gets those that exist, and no others, from one fetch.
func TestCoalescerAnswersSeveralKeys(t *testing.T) {
	t.Parallel()
	fetching, goOn := make(chan []int), make(chan struct{})
	c := &Coalescer[int, int]{Fetch: func(wanted map[int]int64) (map[int]int, error) {
		keys := slices.Collect(maps.Keys(wanted))
		fetching <- keys
		<-goOn
		return map[int]int{1: 10, 2: 20, 3: 30}, nil
	}}
	first, _, err := c.join(1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, <-fetching)
	other, _, err := c.join(3)
	require.NoError(t, err)
	answers := make(chan map[int]int)
	go func() {
		found := map[int]int{}
		if err := c.getAll(context.Background(), []int{2, 7, 1, 2}, found); err != nil {
			found = nil
		}
		answers <- found
	}()
	for joined := false; !joined; runtime.Gosched() {
		c.mu.Lock()
		joined = len(c.next.wanted) == 4
		c.mu.Unlock()
	}
	goOn <- struct{}{}
	<-first.done
	keys := <-fetching
	slices.Sort(keys)
	require.Equal(t, []int{1, 2, 3, 7}, keys)
	goOn <- struct{}{}
	require.Equal(t, map[int]int{1: 10, 2: 20}, <-answers)
	<-other.done
	c.Close()
	require.ErrorIs(t, c.getAll(t.Context(), []int{1}, map[int]int{}), ErrClosed)
}

// A failing fetch fails all lookups of its round and no others; a lookup that is given up leaves the others alone; a round is bounded.
func TestCoalescerFaults(t *testing.T) {
	t.Parallel()
	broken, gaveUp := errors.New("broken"), errors.New("gave up")
	fetching, results := make(chan []int), make(chan error)
	c := &Coalescer[int, int]{Fetch: func(wanted map[int]int64) (map[int]int, error) {
		keys := slices.Collect(maps.Keys(wanted))
		fetching <- keys
		return nil, <-results
	}}
	failed, _, err := c.join(1)
	require.NoError(t, err)
	<-fetching
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	_, _, err = c.Get(ctx, 2)
	require.ErrorIs(t, err, gaveUp)
	next, _, err := c.join(3)
	require.NoError(t, err)
	for key := 4; len(next.wanted) < maxRound; key++ {
		_, _, err = c.join(key)
		require.NoError(t, err)
	}
	_, _, err = c.join(-1)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, c.getAll(t.Context(), []int{3, 4}, map[int]int{}), ErrBusy)

	results <- broken
	<-failed.done
	require.ErrorIs(t, failed.err, broken)
	require.Contains(t, <-fetching, 2)
	results <- nil
	<-next.done
	require.NoError(t, next.err)
	c.Close()
}
