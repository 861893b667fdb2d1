package writer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func lazyWrite() *PendingWrite {
	write := newPendingWrite(0, nil)
	write.class = lazy
	return write
}

// TestLazyWrites: an operation without a waiting caller goes with the next transaction, and starts one itself only after
// a second, when a whole batch of its sort is in line, or when the queue is closed.
func TestLazyWrites(t *testing.T) {
	t.Parallel()
	t.Run("after a second", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			require.NoError(t, q.push(lazyWrite()))
			time.Sleep(lazyWait - 1) //nolint:forbidigo // on the fake clock
			synctest.Wait()
			require.False(t, q.waiting())
			time.Sleep(time.Nanosecond) //nolint:forbidigo // on the fake clock
			synctest.Wait()
			require.True(t, q.waiting())
			require.Len(t, q.take(nil), 1)
			require.False(t, q.waiting())
		})
	})
	t.Run("with company", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		require.NoError(t, q.push(lazyWrite()))
		require.False(t, q.waiting())
		require.NoError(t, q.push(newPendingWrite(0, nil)))
		require.True(t, q.waiting())
		require.Len(t, q.take(nil), 2)
		require.Nil(t, q.ripening, "nothing is left to wait for")
	})
	t.Run("as a whole batch", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		for range maxBatch - 1 {
			require.NoError(t, q.push(lazyWrite()))
		}
		require.False(t, q.waiting())
		require.NoError(t, q.push(lazyWrite()))
		require.True(t, q.waiting())
		require.Len(t, q.take(nil), maxBatch)
	})
	t.Run("at the end", func(t *testing.T) {
		t.Parallel()
		q := newQueue()
		require.NoError(t, q.push(lazyWrite()))
		q.close()
		require.True(t, q.waiting())
		require.Len(t, q.take(nil), 1)
	})
}
