package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBackoffGrowsFromOneSecondToFiveMinutes(t *testing.T) {
	t.Parallel()
	for attempts, top := range []time.Duration{
		time.Second, 3 * time.Second, 9 * time.Second, 27 * time.Second, 81 * time.Second, 243 * time.Second,
		5 * time.Minute, 5 * time.Minute,
	} {
		for range 50 {
			wait := backoff(int64(attempts), 0)
			require.LessOrEqual(t, wait, top)
			require.GreaterOrEqual(t, wait, top*3/4)
		}
	}
	require.LessOrEqual(t, backoff(1<<40, 0), longestWait)
}

func TestBackoffHonoursTheVendorsWish(t *testing.T) {
	t.Parallel()
	for range 50 {
		wait := backoff(0, 20*time.Second)
		require.GreaterOrEqual(t, wait, 20*time.Second)
		require.LessOrEqual(t, wait, 25*time.Second)
		require.LessOrEqual(t, backoff(0, time.Hour), longestWait*5/4)
		require.GreaterOrEqual(t, backoff(5, time.Second), 243*time.Second*3/4)
	}
}
