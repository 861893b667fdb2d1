package writer

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// panicsHere makes the test's process one whose writer panics in a caller's goroutine.
const panicsHere = "SVC_WRITER_PANICS"

// panicking is an observer that panics.
type panicking struct{}

func (panicking) ObserveBatch(Batch) { panic("observed") }

// TestCallerRunsItsTransaction guarantees that an operation is written by its caller while nothing else is, that what is submitted meanwhile is
// written by the writer's own goroutine, and that Close waits for a caller.
func TestCallerRunsItsTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := mustNew(newSlowEngine(time.Second, 0), Options{Kinds: []Kind{callKind{}}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, w.Do(t.Context(), callKind{}, &callHold{}), "no goroutine runs yet")
		go w.Run()
		synctest.Wait()

		called := make(chan error, 1)
		go func() { called <- w.Do(context.Background(), callKind{}, &callHold{}) }()
		time.Sleep(time.Second / 2) //nolint:forbidigo // on the fake clock: it commits
		submitted := w.Submit(callKind{}, &callSettlement{})
		require.NoError(t, <-called)
		<-submitted.Done()
		require.NoError(t, submitted.Err())

		go func() { called <- w.Do(context.Background(), callKind{}, &callHold{}) }()
		synctest.Wait()
		require.NoError(t, w.Close(context.Background()))
		synctest.Wait()
		require.Len(t, called, 1)
		require.NoError(t, <-called)
	})
}

// TestPanicOfACallerEndsTheProcess guarantees that a panic of the writer ends the process also where the caller's goroutine recovers it, as
// net/http's do: the writer would be stuck for ever.
func TestPanicOfACallerEndsTheProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(panicsHere) != "" {
		w := mustNew(newSlowEngine(0, 0), Options{Kinds: []Kind{callKind{}}, Logger: slog.New(slog.DiscardHandler), Observer: panicking{}})
		defer func() { recover() }() //nolint:errcheck // as net/http
		w.Do(t.Context(), callKind{}, &callHold{})
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), panicsHere+"=1")
	printed, err := child.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(printed), "panic: observed")
}
