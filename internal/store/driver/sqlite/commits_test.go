package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// noticePatience is how long a test waits for a notice that comes within commitPause on a machine with time.
const noticePatience = 30 * time.Second

// requireNotice waits for a notice of a commit.
func requireNotice(t *testing.T, committed <-chan struct{}) {
	t.Helper()
	select {
	case <-committed:
	case <-time.After(noticePatience):
		require.Fail(t, "nobody noticed the commit")
	}
}

// commitWhenTold commits a change after each line of the input, until it ends.
func commitWhenTold(path string) error {
	d, err := Open(context.Background(), path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		begun, err := d.writer.Begin(context.Background())
		if err != nil {
			return err
		}
		begun.Queue(1, "UPDATE organizations SET name = $1", lines.Text())
		if err := begun.Commit(context.Background()); err != nil {
			return err
		}
	}
	return d.Close(context.Background())
}

// TestCommitsOfAnotherProcessAreNoticed guarantees that a process that sleeps is woken by the commit of another one: on Linux by the
// system, which has to cost nothing while nobody commits, and elsewhere by looking.
func TestCommitsOfAnotherProcessAreNoticed(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childRole+"=commits when told", childFile+"="+p.path)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)

	for n := range 3 {
		committed := p.all[0].Committed()
		require.Equal(t, runtime.GOOS == "linux", p.all[0].commits.reads != nil, "the system tells of commits")
		_, err := fmt.Fprintln(input, n)
		require.NoError(t, err)
		requireNotice(t, committed)
	}
	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
}

// TestCommitsAreNoticedByLooking: where the system reports nothing, commits are looked for.
func TestCommitsAreNoticedByLooking(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	require.NoError(t, os.Remove(p.path+".generation")) // nothing to report on has this name
	for range 2 {
		committed := p.all[0].Committed()
		require.Nil(t, p.all[0].commits.reads)
		p.change(t, p.all[1])
		requireNotice(t, committed)
	}
}

// TestNoticesArePaced: of many commits each is noticed, at most one notice in each commitPause.
func TestNoticesArePaced(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	committed, began := p.all[0].Committed(), time.Now()
	for n := range 4 {
		p.change(t, p.all[n%2])
		requireNotice(t, committed)
		committed = p.all[0].Committed()
		require.GreaterOrEqual(t, time.Since(began), time.Duration(n)*commitPause)
	}
}

// TestWhatIsNoticed: a transaction that changed nothing is no news, and neither is the sign of life of a process.
func TestWhatIsNoticed(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	before := p.all[0].generations.commits()
	commits := func() uint64 { return p.all[0].generations.commits() - before }
	for _, text := range []string{
		"UPDATE organizations SET plan = plan WHERE id = 'org_2'",
		"DELETE FROM organizations WHERE id = 'org_2' RETURNING id",
		"INSERT INTO processes (id, name, key_ids, seen_at) VALUES ('one', 'one', '', 1)",
		"DELETE FROM processes WHERE seen_at < 5",
	} {
		tx := begin(t, p.all[1])
		require.NoError(t, tx.Query(t.Context(), nil, "SELECT id FROM organizations WHERE id = 'org_2'"))
		require.NoError(t, tx.Query(t.Context(), nil, text))
		require.NoError(t, tx.Commit(t.Context()))
		require.Zero(t, commits(), text)
	}
	tx := begin(t, p.all[1])
	require.NoError(t, tx.Query(t.Context(), func(driver.Row) error { return nil }, "UPDATE organizations SET plan = '5' RETURNING id"))
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 1, commits())
	p.write(t, p.all[1], "DELETE FROM api_keys")
	require.EqualValues(t, 2, commits())
}

// TestReaderKeepsItsQueries: a query is prepared once, sees each commit and each change of a table, and may be read twice at a time; the
// kept ones are bounded.
func TestReaderKeepsItsQueries(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	reader := p.all[0].Reader()
	reader.SetMaxOpenConns(1)
	const text = "SELECT plan FROM organizations WHERE id = $1 LIMIT $2"
	kept := func() (conn *preparedConn) {
		lent, err := reader.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, lent.Raw(func(raw any) error { conn = raw.(*preparedConn); return nil }))
		require.NoError(t, lent.Close())
		return conn
	}
	for range 3 {
		var plan string
		require.NoError(t, reader.QueryRowContext(t.Context(), text, "org_1", 1).Scan(&plan))
		require.Equal(t, strconv.Itoa(p.plan), plan)
		p.change(t, p.all[1])
	}
	query := kept().statements[text]
	require.NotNil(t, query)
	p.write(t, p.all[1], "ALTER TABLE organizations ADD COLUMN more TEXT") // a schema of another process

	tx, err := reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	for range 2 {
		rows, err := tx.QueryContext(t.Context(), text, "org_1", 1)
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		require.True(t, rows.Next())
		require.NoError(t, rows.Err())
	}
	require.NoError(t, tx.Rollback())
	require.Same(t, query, kept().statements[text])
	require.False(t, query.open)

	for n := range 2 * maxReads {
		var got int
		require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT "+strconv.Itoa(n)).Scan(&got))
		require.Equal(t, n, got)
		require.LessOrEqual(t, len(kept().statements), maxReads)
	}
}
