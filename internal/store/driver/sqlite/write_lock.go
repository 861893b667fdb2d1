package sqlite

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How long a writer waits for the write lock. A turn lasts about 5 ms and one fsync; a process that holds one for a
// second is stopped, or waits for a disk that makes all processes wait. While the turn stays stuck the next writes probe it only briefly.
const (
	turnPatience      = time.Second
	stuckTurnPatience = 10 * time.Millisecond
	turnPollFast      = 100 * time.Microsecond
	turnPollSlow      = time.Millisecond
	turnPollFastUntil = 20 * time.Millisecond
)

// writeLock makes the writers of several processes (and of several pools of one process) take turns on one SQLite file. SQLite's own lock is not
// fair: a waiting writer sleeps up to 100 ms and never meets the gap between two transactions of a busy one, which left a second process one write
// a second.
//
// Two advisory locks: turn is held while writing, next while waiting for turn. After a write, a process that has more to write must first win
// next, which a waiting process holds, and so comes after it. The locks give fairness and nothing else. A process that can't get the turn in time
// tries to write without it, and comes back if SQLite's own lock is also held.
//
// The wait polls with LOCK_NB instead of blocking in flock(2), which only a signal ends: a blocked call would outlive Close for as long as a
// stopped process holds the turn. The sleep between two polls is a system call, because the runtime's timers are a millisecond coarse in an idle
// process. It happens only while another process writes.
type writeLock struct {
	turn, next *os.File
	stuck      bool // the last wait ended without the turn
}

// openWriteLock opens the two lock files beside a database file and creates them when they are missing. They are
// never deleted: a deleted one would be another lock for the next process that opens it.
func openWriteLock(path string) (*writeLock, error) {
	turn, err := openLock(path + ".turn")
	if err != nil {
		return nil, err
	}
	next, err := openLock(path + ".next")
	if err != nil {
		return nil, errors.Join(err, turn.Close())
	}
	return &writeLock{turn: turn, next: next}, nil
}

func openLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // it stands beside the database
	if err != nil {
		return nil, fmt.Errorf("open the lock file of the database: %w", err)
	}
	return file, nil
}

// take waits for the turn until it has it, patience ends, or hurry is closed. The returned release function is never nil;
// release is called once.
func (t *writeLock) take(hurry <-chan struct{}) (release func()) {
	deadline := time.Now().Add(turnPatience)
	if t.stuck {
		deadline = time.Now().Add(stuckTurnPatience)
	}
	t.stuck = !t.win(deadline, hurry)
	if t.stuck {
		return func() {}
	}
	return func() { unlock(t.turn) }
}

// win gets next, then turn, then releases next.
func (t *writeLock) win(deadline time.Time, hurry <-chan struct{}) bool {
	if !pollLock(t.next, deadline, hurry) {
		return false
	}
	defer unlock(t.next)
	return pollLock(t.turn, deadline, hurry)
}

func (t *writeLock) close() error {
	return errors.Join(t.turn.Close(), t.next.Close())
}

func pollLock(file *os.File, deadline time.Time, hurry <-chan struct{}) bool {
	if tryLock(file) {
		return true
	}
	for start := time.Now(); ; {
		select {
		case <-hurry:
			return false
		default:
		}
		now := time.Now()
		if !now.Before(deadline) {
			return false
		}
		pause := turnPollFast
		if now.Sub(start) > turnPollFastUntil {
			pause = turnPollSlow
		}
		preciseSleep(pause)
		if tryLock(file) {
			return true
		}
	}
}

func tryLock(file *os.File) bool {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

func unlock(file *os.File) {
	// Unlocking one's own open file fails only if it is closed, and then the lock is gone.
	unix.Flock(int(file.Fd()), unix.LOCK_UN) //nolint:errcheck // see above
}

// preciseSleep sleeps for about the pause, or shorter when a signal comes.
func preciseSleep(pause time.Duration) {
	interval := unix.NsecToTimeval(pause.Nanoseconds())
	unix.Select(0, nil, nil, nil, &interval) //nolint:errcheck // an early end is no harm
}
