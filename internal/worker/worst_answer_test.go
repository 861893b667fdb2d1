package worker

import (
	"context"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/markup/markuptest"
	"github.com/caddy-svc/caddy-svc/providers"
)

// TestWorstAnswer guarantees that no answer of 10 KB costs a worker more than 1 s of processor time or 400 MiB, or becomes more than 20
// messages, whatever its Markdown.
func TestWorstAnswer(t *testing.T) { //nolint:paralleltest // it measures the whole process
	for name, answer := range markuptest.Worst(10 << 10) {
		h := open(t)
		h.channel(t, acme, "chn_photo", "photo_dm", helper)
		h.vendor.reply = func(context.Context, int, []string) (string, error) { return answer, nil }
		h.say(t, "chn_photo", "lan", "hello")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		used := processorTime(t)
		h.drain(t, h.worker())
		used = processorTime(t) - used
		runtime.ReadMemStats(&after)
		require.Less(t, used, 2*time.Second, name) // the race detector's part included
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20), name)
		sent := h.texts()
		t.Logf("%s: %v, %d MiB, %d messages", name, used.Round(time.Millisecond), (after.TotalAlloc-before.TotalAlloc)>>20, len(sent))
		require.NotEmpty(t, sent, name)
		require.LessOrEqual(t, len(sent), 20, name)
		require.Equal(t, []string{"answered"}, h.turns(t, acme), name)
	}
}

// processorTime is what this process has used so far.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// TestAnswerAfterAWorkersDeath guarantees that an answer whose rendering ended a worker is sent as the model wrote it, by the next one. A
// failure of the vendor changes nothing.
func TestAnswerAfterAWorkersDeath(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, h *fixture) {
		h.vendor.reply = func(_ context.Context, n int, _ []string) (string, error) {
			if n == 1 {
				return "", broken(providers.FailureOverloaded)
			}
			return "**Blue**", nil
		}
		h.say(t, bot, "lan", "Which color?")
		h.drain(t, h.worker())
		h.hurry(t)
		h.drain(t, h.worker())
		require.Equal(t, []string{"Blue"}, h.texts())

		h.say(t, bot, "lan", "Which color again?")
		first, life := h.mortal(4, false) // it reads the conversation, begins the turn, and has the answer
		h.drain(t, first)
		require.True(t, life.dead)
		h.bury(t)
		h.drain(t, h.worker())
		require.Equal(t, []string{"Blue", "**Blue**"}, h.texts())
		require.EqualValues(t, 2*answerCost, h.spent(t, acme))
	})
}
