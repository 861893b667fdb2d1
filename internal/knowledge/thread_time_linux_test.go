package knowledge

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOthersWorkIsNotCounted guarantees that a document isn't refused for the work of others on a busy machine.
func TestOthersWorkIsNotCounted(t *testing.T) {
	t.Parallel()
	const work = 50 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	done := make(chan time.Duration)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		began := threadTime()
		for threadTime()-began < work {
		}
		done <- threadTime() - began
	}()
	require.GreaterOrEqual(t, <-done, work, "work is counted")
	require.Less(t, threadTime()-before, work, "the work of another thread is not")
}
