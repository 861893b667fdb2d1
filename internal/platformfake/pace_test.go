package platformfake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
)

// TestJudgeOfRates guarantees that a message above the rate is seen, of a channel and of a customer; and that one that a busy machine reads
// late is none, nor does it hide a sender who is twice as fast.
func TestJudgeOfRates(t *testing.T) {
	t.Parallel()
	began := time.Now()
	// tooFast counts the messages that are judged as too fast of many, one each so often, to some customers in turn. late: those between
	// 1 s and 2 s are read after 2 s.
	tooFast := func(stall time.Duration, messages, customers int, each time.Duration, late bool) int {
		j := judge{stall: stall}
		for i := range messages {
			after := time.Duration(i) * each
			if late && after > time.Second && after < 2*time.Second {
				after = 2 * time.Second
			}
			j.sees(&Sent{Type: bot.Type, Address: fmt.Sprint(i % customers)}, began.Add(after))
		}
		return j.verdict.TooFast
	}
	const everyOne = 1000 // customers: none gets two
	for _, pause := range []time.Duration{0, stall} {
		require.Zero(t, tooFast(pause, 100, everyOne, 34*time.Millisecond, false), "29 a second")
		require.Positive(t, tooFast(pause, 100, everyOne, time.Second/60, false), "60 a second")
		require.Zero(t, tooFast(pause, 20, 1, time.Second, false), "one a second to one customer")
		require.Positive(t, tooFast(pause, 20, 1, time.Second/2, false), "two a second to one customer")
	}
	require.Positive(t, tooFast(0, 100, everyOne, time.Second/20, true))
	require.Zero(t, tooFast(stall, 100, everyOne, time.Second/20, true))
}
