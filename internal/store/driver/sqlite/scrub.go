package sqlite

import (
	"context"
	"regexp"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// erasing finds statements that delete data about customers.
var erasing = regexp.MustCompile(`(?i)\bDELETE\s+FROM\s+(?:conversations|(?:outbound_)?messages|turns|media(?:_pieces)?|sent_file(?:s|_pieces))\b`)

const (
	// scrubPauseFirst and scrubPauseMost bound the pause after an attempt that readers or writers kept from emptying the log. It doubles.
	scrubPauseFirst = 50 * time.Millisecond
	scrubPauseMost  = 10 * time.Second
	// scrubEvery is when the log is emptied at the latest, for a process that died between a deletion and its scrub.
	scrubEvery = time.Hour
	// scrubLastAttempts bounds the attempts of a process that ends.
	scrubLastAttempts = 40
)

// scrubPragmas are the settings of an attempt's connection. While it waits for readers, it blocks all writers, for busy_timeout (ms) at the
// longest.
var scrubPragmas = []string{"busy_timeout(20)", "synchronous(FULL)", "journal_size_limit(67108864)"}

// scrubber empties the write-ahead log after customers were deleted, because its old frames hold their rows. The database file needs no scrubbing:
// the writer overwrites deleted rows (secure_delete).
type scrubber struct {
	path   string
	wanted chan struct{} // has an element when a deletion was committed that no attempt has covered
	stop   chan struct{}
	done   chan struct{}
	due    bool // when done: deletions are left that no attempt has covered
}

// want has the log emptied soon. It doesn't wait.
func (s *scrubber) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

func (s *scrubber) run() {
	defer close(s.done)
	for pause := scrubEvery; ; {
		wanted := s.wanted
		if s.due { // the next attempt covers newer deletions as well
			wanted = nil
		}
		select {
		case <-wanted:
		case <-time.After(pause):
		case <-s.stop:
			s.due = s.due || len(s.wanted) > 0
			return
		}
		switch {
		case s.attempt():
			pause, s.due = scrubEvery, false
		case s.due:
			pause = min(2*pause, scrubPauseMost)
		default:
			pause, s.due = scrubPauseFirst, true
		}
	}
}

// close ends the goroutine, and repeats attempts for some seconds or until ctx ends if deletions are left. If these fail, another process
// that uses the database empties the log within the hour; if there is none, SQLite deletes the log with the last connection.
func (s *scrubber) close(ctx context.Context) {
	close(s.stop)
	<-s.done
	for range scrubLastAttempts {
		if !s.due || ctx.Err() != nil {
			return
		}
		s.due = !s.attempt()
		preciseSleep(scrubPauseFirst)
	}
}

// attempt writes the log back into the database file and truncates it, and reports whether it did. It writes most of it back while others write,
// and waits for the turn to write the rest. A fault, such as a full disk, is a reason to try again.
func (s *scrubber) attempt() (emptied bool) {
	conn, err := dial(context.Background(), s.path, scrubPragmas)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // it holds nothing
	turns, err := openWriteLock(s.path)
	if err != nil {
		return false
	}
	defer turns.close() //nolint:errcheck // lock files that were only read
	if _, err := checkpoint(conn, "PASSIVE"); err != nil {
		return false
	}
	release := turns.take(s.stop)
	defer release()
	blocked, err := checkpoint(conn, "TRUNCATE")
	return err == nil && !blocked
}

// checkpoint writes the log back in one of SQLite's modes, and reports whether others kept it from doing all of that.
func checkpoint(conn *preparedConn, mode string) (blocked bool, err error) {
	var frames, written int64
	err = conn.query("PRAGMA wal_checkpoint("+mode+")", nil, func(row driver.Row) error { return row.Scan(&blocked, &frames, &written) })
	return blocked, err
}
