package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reports replays pipelines, F for a failed one, and returns the index of the one that opened the breaker, or -1.
func reports(b *breaker, pipelines string) int {
	for i, p := range pipelines {
		if b.report(p == 'F') {
			return i
		}
	}
	return -1
}

func TestBreakerOpensWhenHalfOfTheLastTenFailed(t *testing.T) {
	t.Parallel()
	for pipelines, opens := range map[string]int{
		"FFFF":                      -1,
		"FFFFF":                     4,
		"..........FFFFF":           14,
		"F.F.F.F.F":                 8,
		"F..F..F..F..F..F..F..F..F": -1,
		"FFFF......F......":         -1,
		"FFFF.....F":                9,
	} {
		b := new(breaker)
		require.Equal(t, opens, reports(b, pipelines), pipelines)
		require.Equal(t, opens >= 0, b.open.Load(), pipelines)
	}
}

func TestBreakerOpensOnce(t *testing.T) {
	t.Parallel()
	b := new(breaker)
	require.Equal(t, 4, reports(b, "FFFFF"))
	require.Equal(t, -1, reports(b, "FFFFF..F"), "pipelines that were under way when it opened")
	require.False(t, b.trip())
	require.True(t, b.open.Load())
}

func TestBreakerIsOnTrialWhenItCloses(t *testing.T) {
	t.Parallel()
	b := new(breaker)
	require.True(t, b.trip())
	b.close()
	require.False(t, b.open.Load())
	require.Zero(t, reports(b, "F"), "one more failure opens it again")
	b.close()
	require.Equal(t, -1, reports(b, "..........FFFF"), "ten good ones end the trial")
	require.True(t, b.report(true))
}

// For any pipelines: the breaker opens exactly when at least five of the last ten, the one included, failed.
func TestBreakerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := new(breaker)
		var last []bool
		for _, failed := range rapid.SliceOf(rapid.Bool()).Draw(t, "failed") {
			last = append(last, failed)
			last = last[max(0, len(last)-10):]
			failures := 0
			for _, f := range last {
				if f {
					failures++
				}
			}
			require.Equal(t, failures >= 5, b.report(failed))
			if failures >= 5 {
				return
			}
		}
	})
}
