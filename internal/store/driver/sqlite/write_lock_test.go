package sqlite

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func openTestWriteLock(t *testing.T, path string) *writeLock {
	t.Helper()
	turns, err := openWriteLock(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, turns.close()) })
	return turns
}

// A waiting process comes before one that has just had the lock and wants it again, and only one has it at a time.
func TestTurnsAlternate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	busy, patient, witness := openTestWriteLock(t, path), openTestWriteLock(t, path), openTestWriteLock(t, path)
	for range 20 {
		busy.stuck, patient.stuck = false, false
		release := busy.take(nil)
		require.False(t, busy.stuck)
		var mu sync.Mutex // the turn is one, too, but the race detector doesn't know
		var order []string
		come := func(who string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, who)
		}
		var wait sync.WaitGroup
		ended := make(chan struct{})
		wait.Go(func() {
			defer close(ended)
			release := patient.take(nil)
			come("patient")
			release()
		})
		require.Eventually(t, func() bool {
			select {
			case <-ended: // it gave up
				return true
			default:
			}
			free := tryLock(witness.next)
			if free {
				unlock(witness.next)
			}
			return !free
		}, time.Minute, turnPollFast)
		release()
		release = busy.take(nil)
		come("busy")
		release()
		wait.Wait()
		if patient.stuck || busy.stuck {
			continue // a turn of more than a second: the machine is too busy for fairness
		}
		require.Equal(t, []string{"patient", "busy"}, order)
	}
}

// A process that can't get the lock in time goes on without it, sooner the next times, and takes it again when it is free. Closing
// hurry ends the wait at once.
func TestStuckTurn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	holder, waiter := openTestWriteLock(t, path), openTestWriteLock(t, path)
	release := holder.take(nil)
	require.False(t, holder.stuck)

	hurry := make(chan struct{})
	close(hurry)
	waiter.take(hurry)()
	require.True(t, waiter.stuck)
	waiter.stuck = false
	waiter.take(nil)()
	require.True(t, waiter.stuck)
	third := openTestWriteLock(t, path)
	require.True(t, pollLock(third.next, time.Now(), nil), "next is free: who gave up keeps nobody from waiting")
	unlock(third.next)

	release()
	waiter.take(nil)()
	require.False(t, waiter.stuck)
	holder.take(nil)()
	require.False(t, holder.stuck, "and it was given back")
}

// A process that went on without the write lock and met SQLite's own comes back to the write lock, where it is first once that is
// free: beside two processes that take turns, waiting for a gap could last for ever.
func TestBackToTheWriteLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	holder, witness := openTestWriteLock(t, path), openTestWriteLock(t, path)
	open := func() *writerConn {
		w, err := newWriterConn(t.Context(), path, time.Now, nil, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		return w
	}
	locked, waiting := open(), open()
	lock, err := locked.Begin(t.Context())
	require.NoError(t, err)
	releaseTurn := holder.take(nil)
	hurry := make(chan struct{})
	close(hurry)
	release := waiting.TakeTurn(hurry)
	require.True(t, waiting.writeLock.stuck)
	waiting.hurry = nil

	begun := make(chan error, 1)
	go func() {
		tx, err := waiting.Begin(t.Context())
		if err == nil {
			tx.Rollback()
		}
		begun <- err
	}()
	releaseTurn()
	require.Eventually(t, func() bool {
		free := tryLock(witness.turn)
		if free {
			unlock(witness.turn)
		}
		return !free
	}, time.Minute, time.Millisecond, "it has the turn while it waits for the lock")
	lock.Rollback()
	require.NoError(t, <-begun)
	release()
	require.True(t, tryLock(witness.turn), "and gives it back")
	unlock(witness.turn)
}

// Network file systems are recognized by their magic number; the one this test runs on is local.
func TestNetworkFileSystems(t *testing.T) {
	t.Parallel()
	name, remote, err := networkFileSystem(t.TempDir())
	require.NoError(t, err)
	require.False(t, remote, name)
	_, _, err = networkFileSystem(filepath.Join(t.TempDir(), "missing"))
	require.Error(t, err)
}
