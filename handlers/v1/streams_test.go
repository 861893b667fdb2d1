package v1

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
)

func TestStreamsLimitEachOrganization(t *testing.T) {
	t.Parallel()
	var s Streams
	closeFirst, err := s.Open("a", 2)
	require.NoError(t, err)
	closeSecond, err := s.Open("a", 2)
	require.NoError(t, err)
	_, err = s.Open("a", 2)
	a := handlertest.Written(t, err, "")
	require.Equal(t, "rate_limited", a.Code())
	require.EqualValues(t, 1, a.Fields["retryAfter"])
	closeOther, err := s.Open("b", 2)
	require.NoError(t, err)
	require.Equal(t, 3, s.Count())

	closeFirst()
	closeFirst()
	require.Equal(t, 2, s.Count(), "closing twice counts once")
	closeThird, err := s.Open("a", 2)
	require.NoError(t, err)
	_, err = s.Open("a", 1)
	require.Error(t, err, "a lowered limit holds at once")
	for range 5 {
		_, err = s.Open("a", 0)
		require.NoError(t, err, "0 is no limit")
	}
	closeSecond()
	closeThird()
	closeOther()
	require.NotContains(t, s.open, "b", "an organization without streams takes no memory")
}

func TestStreamsUnderConcurrency(t *testing.T) {
	t.Parallel()
	var s Streams
	var open, most atomic.Int64
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			for range 100 {
				closeStream, err := s.Open("a", 7)
				if err != nil {
					continue
				}
				if n := open.Add(1); n > 7 {
					most.Store(n)
				}
				open.Add(-1)
				closeStream()
			}
		})
	}
	wait.Wait()
	require.Zero(t, most.Load())
	require.Zero(t, s.Count())
	require.Empty(t, s.open)
}
