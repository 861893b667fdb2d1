package worker

import (
	"math/rand/v2"
	"time"
)

const (
	// firstWait is the pause before the second try of a call or a send.
	firstWait = time.Second
	// longestWait bounds a pause, whatever a vendor asks for.
	longestWait = 5 * time.Minute
	// waitFactor: with maxTries the pauses are about 1, 3, 9, 27, 81, 243 and 300 s, eleven minutes in all, which
	// outlives the usual outage of a vendor and ends while an answer is still of use.
	waitFactor = 3
	// maxTries bounds how often a turn is asked, and how often a message is sent.
	maxTries = 8
	// busyStorePause is the pause of a turn whose hold the busy store refused; each try costs it two writes more.
	busyStorePause = 10 * time.Second
)

// backoff is the pause after a try that failed, where attempts tries failed before it: exponential, at least what the
// vendor wished, at most longestWait, with up to a quarter taken off or, on a wish, added, so that conversations which
// failed together don't come back together.
func backoff(attempts int64, wish time.Duration) time.Duration {
	wait := firstWait
	for range min(attempts, maxTries) {
		wait = min(wait*waitFactor, longestWait)
	}
	wait -= rand.N(wait/4 + 1) //nolint:gosec // jitter is no secret
	if wish <= wait {
		return wait
	}
	wish = min(wish, longestWait)
	return wish + rand.N(wish/4+1) //nolint:gosec // jitter is no secret
}
