package repeat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTask: a task runs at once and at jittered intervals after each run, and never again once it is stopped.
func TestTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval, work = 8 * time.Second, time.Minute
		var begins []time.Time
		begin := time.Now()
		task := Start(interval, func(context.Context) {
			begins = append(begins, time.Now())
			time.Sleep(work) //nolint:forbidigo // on the fake clock
		})
		time.Sleep(10 * (work + 9*time.Second)) //nolint:forbidigo // on the fake clock
		task.Stop()
		task.Stop()
		runs := len(begins)
		time.Sleep(time.Hour) //nolint:forbidigo // on the fake clock
		require.Len(t, begins, runs)

		require.GreaterOrEqual(t, runs, 10)
		require.Equal(t, begin, begins[0])
		for i := range runs - 1 {
			pause := begins[i+1].Sub(begins[i]) - work
			require.GreaterOrEqual(t, pause, 7*time.Second)
			require.LessOrEqual(t, pause, 9*time.Second)
		}
	})
}

// TestStopDuringRun: Stop ends the context of the run, and returns after the run.
func TestStopDuringRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		task := Start(time.Hour, func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second) //nolint:forbidigo // on the fake clock
			ended = true
		})
		synctest.Wait()
		require.False(t, ended)
		task.Stop()
		require.True(t, ended)
	})
	(*Task)(nil).Stop()
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		require.NoError(t, Pause(t.Context(), 0))
		require.NoError(t, Pause(t.Context(), -time.Second))
		require.NoError(t, Pause(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(begin))

		cause := errors.New("the end")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		require.ErrorIs(t, Pause(ctx, time.Hour), cause)
		require.Equal(t, 2*time.Second, time.Since(begin))
	})
}

func TestJitter(t *testing.T) {
	t.Parallel()
	for range 1000 {
		around := Around(time.Second)
		require.GreaterOrEqual(t, around, 750*time.Millisecond)
		require.LessOrEqual(t, around, 1250*time.Millisecond)
		require.LessOrEqual(t, Jitter(3), time.Duration(3))
	}
	require.Zero(t, Jitter(0))
}

// TestEveryChange: the function runs again after a change, and after a while without one; at the interval while it wants to, or where
// changes can't be told.
func TestEveryChange(t *testing.T) {
	t.Parallel()
	const interval, most = 8 * time.Second, time.Hour
	for name, one := range map[string]struct {
		again, blind bool
		want         int // runs within 144 minutes
	}{
		"rests": {want: 3}, "goes on": {again: true, want: 1080}, "blind": {blind: true, want: 1080},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var changed chan struct{}
				if !one.blind {
					changed = make(chan struct{})
				}
				var runs int
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					EveryChange(ctx, interval, most, func() <-chan struct{} { return changed }, func(context.Context) bool {
						runs++
						return one.again
					})
				}()
				time.Sleep(144 * time.Minute) //nolint:forbidigo // on the fake clock
				synctest.Wait()
				require.InEpsilon(t, one.want, runs, .15)
				if !one.again && !one.blind {
					before, old := runs, changed
					changed = make(chan struct{})
					close(old)
					time.Sleep(2 * interval) //nolint:forbidigo // on the fake clock
					synctest.Wait()
					require.Equal(t, before+1, runs)
				}
				cancel()
				<-ended
			})
		})
	}
}
