package sqlite

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// run commits statements.
func (d *Driver) run(t *testing.T, texts ...string) {
	t.Helper()
	release := d.writer.TakeTurn(nil)
	defer release()
	tx, err := d.writer.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Savepoint())
	for _, text := range texts {
		tx.Queue(-1, text)
	}
	require.NoError(t, tx.Release(t.Context(), true))
	require.NoError(t, tx.Commit(t.Context()))
}

func openScrubbed(t *testing.T, path string) *Driver {
	t.Helper()
	d, err := Open(t.Context(), path, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return d
}

// hold begins a read, which keeps the log from being emptied until the returned function is called.
func (d *Driver) hold(t *testing.T) (release func()) {
	t.Helper()
	reading, err := d.reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	count := func() (n int) {
		require.NoError(t, reading.QueryRowContext(t.Context(), `SELECT count(*) FROM messages`).Scan(&n))
		return n
	}
	was := count()
	return func() {
		t.Helper()
		require.Equal(t, was, count(), "the reader still reads what it began with")
		require.NoError(t, reading.Rollback())
	}
}

// The log is emptied after a deletion of what is stored about customers, and after no other write. Readers put it off and are not
// disturbed, and nobody waits for them: the next attempt comes by itself.
func TestScrub(t *testing.T) {
	t.Parallel()
	d := openScrubbed(t, filepath.Join(t.TempDir(), "svc.db"))
	d.run(t, `CREATE TABLE messages (body TEXT)`, `CREATE TABLE sessions (body TEXT)`, `INSERT INTO messages VALUES ('one'), ('two')`)
	d.run(t, `DELETE FROM sessions`)
	require.Empty(t, d.scrubber.wanted)
	release := d.hold(t)
	d.run(t, `DELETE FROM messages WHERE body = 'one'`)
	for range 20 {
		d.run(t, `INSERT INTO sessions VALUES ('written while the log can''t be emptied')`)
	}
	require.NotZero(t, d.WALBytes())
	release()
	require.Eventually(t, func() bool { return d.WALBytes() == 0 }, time.Minute, time.Millisecond)
	require.NoError(t, d.Close(t.Context()))
}

// A process that ends empties the log first, though another process has the database open.
func TestScrubBeforeTheEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "svc.db")
	other, d := openScrubbed(t, path), openScrubbed(t, path)
	d.run(t, `CREATE TABLE messages (body TEXT)`, `INSERT INTO messages VALUES ('one')`)
	release := other.hold(t)
	d.run(t, `DELETE FROM messages`)
	closed := make(chan error)
	go func() { closed <- d.Close(context.Background()) }()
	<-d.scrubber.done
	require.NotZero(t, other.WALBytes())
	release()
	require.NoError(t, <-closed)
	require.Zero(t, other.WALBytes())
	require.NoError(t, other.Close(t.Context()))
}
