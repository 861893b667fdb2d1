package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// committed is a load with an answer for each call of commits that end at these moments; the answers of one commit take
// 30 ms to arrive.
func committed(calls int, ends ...time.Duration) *offered {
	o := &offered{}
	for _, end := range ends {
		for i := range calls {
			o.ended = append(o.ended, attempt{at: end + 30*time.Millisecond*time.Duration(i)/time.Duration(calls)})
		}
	}
	return o
}

// TestGoodputCountsWholeCommits guarantees that halves in which the store did the same show the same goodput, wherever
// its commits happen to end, and that a half in which it did less shows less.
func TestGoodputCountsWholeCommits(t *testing.T) {
	t.Parallel()
	const commit, half, calls = 1200 * time.Millisecond, 10 * time.Second, 128
	for phase := time.Duration(0); phase < commit; phase += 10 * time.Millisecond {
		var ends, stalled []time.Duration
		for end := phase - 5*commit; end < 2*half+commit; end += commit {
			ends = append(ends, end)
			if end < half || end >= half+3*time.Second {
				stalled = append(stalled, end)
			}
		}
		steady, pausing := committed(calls, ends...), committed(calls, stalled...)
		first, second := steady.goodput(0, half, commit), steady.goodput(half, 2*half, commit)
		require.InEpsilon(t, calls/commit.Seconds(), first, .05, "the phase is %s", phase)
		require.InEpsilon(t, first, second, .05, "the phase is %s", phase)
		require.Less(t, pausing.goodput(half, 2*half, commit), .85*first, "the phase is %s", phase)
	}
	require.Zero(t, committed(calls, -commit).goodput(0, half, commit), "nothing was answered")
	stopped := committed(calls, 0, commit, 2*commit, 3*commit, 4*commit) // no commit ends in the second half of the part
	require.Less(t, stopped.goodput(0, half, commit), .7*calls/commit.Seconds())
}
