package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// The variables that make a re-executed test binary the second process of a test: what it does, and to which file.
const (
	childRole = "SVC_STORE_CHILD"
	childPath = "SVC_STORE_CHILD_PATH"
)

// saturation is how many goroutines of a child write in a closed loop.
const saturation = 128

// runChild is the main function of a child. It ends when its standard input does.
func runChild(role, path string) int {
	owner, found := strings.CutPrefix(role, "saturate:")
	var err error
	switch {
	case found:
		err = saturate(owner, path)
	case role == "hold":
		err = holdTurn(path)
	default:
		err = fmt.Errorf("no such role: %s", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		return 1
	}
	return 0
}

// holdTurn takes the turn, says so, and keeps it.
func holdTurn(path string) error {
	release, err := store.HoldTurn(path)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("held\n"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return release()
}

// saturate writes rows from many goroutines and prints each row's id after it was acknowledged.
func saturate(owner, path string) error {
	kind := &items{name: "items"}
	location, err := store.ParseLocation(store.SQLite, path)
	if err != nil {
		return err
	}
	db, err := store.Open(context.Background(), location, store.Options{Kinds: []store.Kind{kind}})
	if err != nil {
		return err
	}
	acknowledged := make(chan int64, saturation)
	var stop atomic.Bool
	var writers sync.WaitGroup
	failures := make(chan error, saturation)
	ids := atomic.Int64{}
	ids.Store(int64(os.Getpid()) << 32)
	for range saturation {
		writers.Go(func() {
			for !stop.Load() {
				id := ids.Add(1)
				row := &insert{ID: id, Owner: owner}
				if err := storetest.Insist(func() error { return db.Do(context.Background(), kind, row) }); err != nil {
					failures <- err
					return
				}
				acknowledged <- id
			}
		})
	}
	go func() {
		io.Copy(io.Discard, os.Stdin) // its end is the signal
		stop.Store(true)
		writers.Wait()
		close(acknowledged)
	}()
	for id := range acknowledged {
		// One write(2) each, so that a kill loses no line of an earlier acknowledgement.
		if _, err := os.Stdout.WriteString(strconv.FormatInt(id, 10) + "\n"); err != nil {
			return err
		}
	}
	close(failures)
	for err := range failures {
		return err
	}
	return db.Close(context.Background())
}

// child is a second process on the same file.
type child struct {
	command *exec.Cmd
	stdin   io.Closer
	lines   chan string // what it printed; closed when it has ended
	seen    []string    // lines received by the test
}

func startChild(t *testing.T, role, path string) *child {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childRole+"="+role, childPath+"="+path)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	c := &child{command: command, stdin: stdin, lines: make(chan string)}
	go func() {
		defer close(c.lines)
		for printed := bufio.NewReader(stdout); ; {
			line, err := printed.ReadString('\n')
			if err != nil {
				return // a line that was cut by a kill was not acknowledged in full
			}
			c.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(c.kill)
	return c
}

// wait receives n more lines.
func (c *child) wait(t *testing.T, n int) {
	t.Helper()
	for range n {
		line, ok := <-c.lines
		require.True(t, ok, "the child ended early")
		c.seen = append(c.seen, line)
	}
}

// rest receives what is left until the child ends, and answers how it ended.
func (c *child) rest() error {
	for line := range c.lines {
		c.seen = append(c.seen, line)
	}
	return c.command.Wait()
}

func (c *child) kill() {
	if c.command.ProcessState != nil {
		return
	}
	c.command.Process.Kill() // it may have ended
	c.rest()                 // killed
}

func openItems(t *testing.T) (*store.DB, store.Kind, string) {
	t.Helper()
	kind := &items{name: "items"}
	location := storetest.Location(t, store.SQLite)
	db := storetest.OpenAt(t, location, store.Options{Kinds: []store.Kind{kind}})
	createItems(t, db)
	return db, kind, location.DSN
}

// While one process saturates the file with 128 clients, another one's single writes go on, in turns with the other's
// transactions: without the write lock it got one write a second.
func TestSecondProcessMakesProgress(t *testing.T) {
	t.Parallel()
	db, kind, path := openItems(t)
	busy := startChild(t, "saturate:child", path)
	busy.wait(t, 10*saturation)
	const writes = 200
	progress := make(chan error, 1)
	go func() {
		for id := range int64(writes) {
			row := &insert{ID: id, Owner: "parent"}
			if err := storetest.Insist(func() error { return db.Do(context.WithoutCancel(t.Context()), kind, row) }); err != nil {
				progress <- fmt.Errorf("after %d writes: %w", id, err)
				return
			}
		}
		progress <- nil
	}()
	before := len(busy.seen)
	for done := false; !done; {
		select {
		case err := <-progress:
			require.NoError(t, err)
			done = true
		case line := <-busy.lines:
			busy.seen = append(busy.seen, line)
		}
	}
	meanwhile := len(busy.seen) - before
	require.Greater(t, meanwhile, writes, "the busy process wrote on meanwhile, in larger batches")
	require.Less(t, meanwhile, 10*writes*saturation, "the busy process had ten transactions for each write of the other one")
	require.NoError(t, busy.stdin.Close())
	require.NoError(t, busy.rest())
	var rows int
	require.NoError(t, db.Reader().QueryRow(`SELECT count(*) FROM items WHERE owner = 'child'`).Scan(&rows))
	require.Equal(t, len(busy.seen), rows)
}

// Killing either of two busy processes at any moment loses no acknowledged write, harms no file, and leaves the other
// one writing.
func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	db, _, path := openItems(t)
	busy := map[string]*child{"a": startChild(t, "saturate:a", path), "b": startChild(t, "saturate:b", path)}
	acknowledged := 0
	verify := func(c *child) {
		t.Helper()
		for _, line := range c.seen {
			var owner string
			require.NoError(t, db.Reader().QueryRow(`SELECT owner FROM items WHERE id = $1`, line).Scan(&owner), "acknowledged and lost: %s", line)
		}
		acknowledged += len(c.seen)
	}
	for round := range 6 {
		victim, other := "a", "b"
		if round%2 == 1 {
			victim, other = "b", "a"
		}
		busy[victim].wait(t, 300)
		require.NoError(t, busy[victim].command.Process.Kill())
		require.Error(t, busy[victim].rest())
		verify(busy[victim])
		busy[other].wait(t, 300) // goes on
		busy[victim] = startChild(t, "saturate:"+victim, path)
	}
	for _, c := range busy {
		c.wait(t, 1)
		require.NoError(t, c.stdin.Close())
		require.NoError(t, c.rest())
		verify(c)
	}
	require.GreaterOrEqual(t, countItems(t, db), acknowledged)
	var integrity string
	require.NoError(t, db.Reader().QueryRow(`PRAGMA integrity_check`).Scan(&integrity))
	require.Equal(t, "ok", integrity)
}

// A stopped process that holds the turn does not stop the others: they write without it.
func TestStoppedProcessHoldsNobody(t *testing.T) {
	t.Parallel()
	db, kind, path := openItems(t)
	holder := startChild(t, "hold", path)
	holder.wait(t, 1)
	require.NoError(t, holder.command.Process.Signal(syscall.SIGSTOP))
	for id := range int64(50) {
		require.NoError(t, db.Do(t.Context(), kind, &insert{ID: id}))
	}
	require.NoError(t, holder.command.Process.Signal(syscall.SIGCONT))
	require.NoError(t, holder.stdin.Close())
	require.NoError(t, holder.rest())
	require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 50}))
}

// A process that holds SQLite's own lock is waited for, and then the operation ends with ErrBusy: nothing happened.
func TestLockedFileIsBusy(t *testing.T) {
	t.Parallel()
	db, kind, path := openItems(t)
	location, err := store.ParseLocation(store.SQLite, path)
	require.NoError(t, err)
	other := storetest.OpenAt(t, location, store.Options{})
	atGate := closeGate(t, other)
	require.ErrorIs(t, db.Do(t.Context(), kind, &insert{ID: 1}), store.ErrBusy)
	require.NoError(t, atGate.open())
	require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 1}))
}

// A full disk fails what was being written, what shared its transaction included, and nothing after it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	kind := &items{name: "items"}
	db := storetest.Open(t, store.SQLite, kind)
	db.Unhurried()
	createItems(t, db)
	atGate := closeGate(t, db)
	companion := db.Submit(kind, &insert{ID: 1})
	full := make(chan error, 1)
	go func() {
		full <- db.Exec(context.Background(), func(ctx context.Context, tx store.Tx) error {
			// The bound holds for this connection, which is given up when the transaction is lost.
			if err := tx.Query(ctx, func(store.Row) error { return nil }, `PRAGMA max_page_count = 1`); err != nil {
				return err
			}
			tx.Queue(1, `INSERT INTO items (id, owner) VALUES (2, $1)`, strings.Repeat("x", 1<<20))
			return nil
		})
	}()
	require.Eventually(t, func() bool { return db.Queued() == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, atGate.open())
	require.ErrorContains(t, <-full, "full")
	<-companion.Done()
	kept := countItems(t, db)
	if companion.Err() == nil { // the machine was slow, and they had a transaction each
		kept--
	}
	require.Zero(t, kept, "an operation that failed left a row")
	require.NoError(t, db.Do(t.Context(), kind, &insert{ID: 3}))
}
