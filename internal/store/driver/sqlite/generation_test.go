package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
	"github.com/caddy-svc/caddy-svc/internal/store/schema"
)

var onlyIdentity, onlyRoutes = parts{identityPart: true}, parts{routePart: true}

func TestPartsChanged(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]parts{
		"INSERT INTO api_keys (id) VALUES ($1)":                    onlyIdentity,
		"INSERT OR IGNORE INTO \"org_models\" VALUES ($1)":         onlyIdentity,
		"UPDATE organizations SET plan = $1":                       onlyIdentity,
		"UPDATE OR REPLACE api_keys SET name = ''":                 onlyIdentity,
		"INSERT INTO main.api_keys DEFAULT VALUES":                 onlyIdentity,
		"DELETE FROM [channels]":                                   onlyRoutes,
		"update provider_keys set sealed = $1":                     onlyIdentity,
		"UPDATE channels SET state = $1 WHERE id = $2":             onlyRoutes,
		"DELETE\n\tFROM agents WHERE id = $1":                      onlyRoutes,
		"WITH a AS (SELECT 1) DELETE FROM channels":                onlyRoutes,
		"SELECT state FROM channels WHERE id = $1":                 {},
		"UPDATE wallets SET balance = 1":                           {},
		"INSERT INTO channel_claims SELECT id FROM channels":       {},
		"UPDATE messages SET x = (SELECT plan FROM organizations)": {},
	} {
		require.Equal(t, want, partsChanged(text), text)
	}
}

// processes are two processes on one database with one organization, whose key is found by keyHash.
type processes struct {
	all  [2]*Driver
	path string
	plan int // of the organization, as committed
	log  bytes.Buffer
}

var keyHash = sha256.Sum256([]byte("key"))

func startProcesses(t *testing.T) *processes {
	t.Helper()
	p := &processes{path: filepath.Join(t.TempDir(), "svc.db")}
	for i := range p.all {
		opened, err := Open(t.Context(), p.path, time.Now, slog.New(slog.NewTextHandler(&p.log, nil)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, opened.Close(context.Background())) })
		p.all[i] = opened
	}
	migrate(t, p.all[0])
	p.write(t, p.all[0], "INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_1', 'a', '0', 1)")
	p.write(t, p.all[0], "INSERT INTO api_keys (id, org_id, env, name, scopes, hash, hint, created_at) VALUES ('key_1', 'org_1', 'live', '', '', $1, '', 1)",
		keyHash[:])
	return p
}

func migrate(t *testing.T, d *Driver) {
	t.Helper()
	conn, done, err := d.ForMigration(t.Context())
	require.NoError(t, err)
	require.NoError(t, schema.Migrate(t.Context(), driver.SQLite, conn, schema.Versions(driver.SQLite)))
	require.NoError(t, done())
}

func (p *processes) write(t require.TestingT, by *Driver, text string, arguments ...any) {
	tx := begin(t, by)
	tx.Queue(1, text, arguments...)
	require.NoError(t, tx.Flush(context.Background()))
	require.NoError(t, tx.Commit(context.Background()))
}

func begin(t require.TestingT, by *Driver) *transaction {
	begun, err := by.writer.Begin(context.Background())
	require.NoError(t, err)
	tx, ok := begun.(*transaction)
	require.True(t, ok)
	return tx
}

// beginChange changes the plan in an open transaction.
func (p *processes) beginChange(t require.TestingT, by *Driver) *transaction {
	tx := begin(t, by)
	tx.Queue(1, "UPDATE organizations SET plan = $1", strconv.Itoa(p.plan+1))
	require.NoError(t, tx.Flush(context.Background()))
	return tx
}

// change changes the plan.
func (p *processes) change(t require.TestingT, by *Driver) {
	require.NoError(t, p.beginChange(t, by).Commit(context.Background()))
	p.plan++
}

// requirePlan requires that each process sees the plan as committed.
func (p *processes) requirePlan(t require.TestingT) {
	for _, by := range p.all {
		record, found, err := by.hot.Key(context.Background(), keyHash)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, strconv.Itoa(p.plan), record.Plan)
	}
}

// TestGenerations guarantees that each look-up returns what was committed when it began, however the steps of writers and readers
// interleave, and whichever of them never come because a process died or a COMMIT failed.
func TestGenerations(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	rapid.Check(t, func(t *rapid.T) {
		process := func(t *rapid.T) *Driver { return p.all[rapid.IntRange(0, 1).Draw(t, "process")] }
		t.Repeat(map[string]func(*rapid.T){
			"":       func(t *rapid.T) { p.requirePlan(t) },
			"change": func(t *rapid.T) { p.change(t, process(t)) },
			"look while a change is under way": func(t *rapid.T) {
				by := process(t)
				tx := p.beginChange(t, by)
				p.requirePlan(t)
				announced := by.generations.announce(onlyIdentity)
				p.requirePlan(t)
				_, err := tx.conn.exec("COMMIT")
				require.NoError(t, err)
				p.plan++
				p.requirePlan(t)
				by.generations.settle(announced)
			},
			"die before COMMIT": func(t *rapid.T) {
				by := process(t)
				tx := p.beginChange(t, by)
				by.generations.announce(onlyIdentity)
				tx.Rollback()
			},
			"die after COMMIT": func(t *rapid.T) {
				by := process(t)
				tx := p.beginChange(t, by)
				by.generations.announce(onlyIdentity)
				_, err := tx.conn.exec("COMMIT")
				require.NoError(t, err)
				p.plan++
			},
			"settle after the next change": func(t *rapid.T) {
				by := process(t)
				tx := p.beginChange(t, by)
				announced := by.generations.announce(onlyIdentity)
				_, err := tx.conn.exec("COMMIT")
				require.NoError(t, err)
				p.plan++
				next := process(t)
				if next == by { // its connection is free again
					p.change(t, next)
					by.generations.settle(announced)
					return
				}
				later := p.beginChange(t, next)
				by.generations.settle(announced)
				p.requirePlan(t)
				require.NoError(t, later.Commit(context.Background()))
				p.plan++
			},
			"settle between the next announcement and its COMMIT": func(t *rapid.T) {
				tx := p.beginChange(t, p.all[0])
				first := p.all[0].generations.announce(onlyIdentity)
				_, err := tx.conn.exec("COMMIT")
				require.NoError(t, err)
				p.plan++
				later := p.beginChange(t, p.all[1])
				second := p.all[1].generations.announce(onlyIdentity)
				p.all[0].generations.settle(first)
				p.requirePlan(t)
				_, err = later.conn.exec("COMMIT")
				require.NoError(t, err)
				p.plan++
				p.requirePlan(t)
				p.all[1].generations.settle(second)
			},
			"change before or after the snapshot of a look-up": func(t *rapid.T) {
				by, writer := process(t), process(t)
				before := rapid.Bool().Draw(t, "before")
				by.hot.keys.recent, by.hot.keys.before = nil, nil
				_, _, err := by.hot.keys.get(by.hot, keyHash, func() (driver.KeyRecord, bool, error) {
					if before {
						p.change(t, writer)
					}
					record, found, err := by.hot.readKey(context.Background(), keyHash)
					if !before {
						p.change(t, writer)
					}
					return record, found, err
				})
				require.NoError(t, err)
			},
			"migrate": func(t *rapid.T) {
				conn, done, err := process(t).ForMigration(context.Background())
				require.NoError(t, err)
				_, err = conn.ExecContext(context.Background(), "UPDATE organizations SET plan = $1", strconv.Itoa(p.plan+1))
				require.NoError(t, err)
				p.plan++
				p.requirePlan(t)
				if rapid.Bool().Draw(t, "with a change beside") {
					p.change(t, process(t))
					p.requirePlan(t)
				}
				require.NoError(t, done())
			},
		})
	})
}

// TestConcurrentLookups guarantees the same for look-ups and changes at the same time: none returns less than was committed when it
// began.
func TestConcurrentLookups(t *testing.T) {
	t.Parallel()
	const changes, readers = 200, 3
	p := startProcesses(t)
	var committed atomic.Int64
	var all errgroup.Group
	for _, by := range p.all {
		for range readers {
			all.Go(func() error {
				for committed.Load() < changes {
					least := committed.Load()
					record, found, err := by.hot.Key(context.Background(), keyHash)
					if err != nil || !found {
						return fmt.Errorf("found %t: %w", found, err)
					}
					plan, err := strconv.ParseInt(record.Plan, 10, 64)
					if err != nil || plan < least {
						return fmt.Errorf("plan %q was read after %d was committed: %w", record.Plan, least, err)
					}
				}
				return nil
			})
		}
	}
	for i := range changes {
		p.change(t, p.all[i%2])
		committed.Store(int64(p.plan))
	}
	require.NoError(t, all.Wait())
	number, settled := p.all[0].generations.settled(identityPart)
	require.True(t, settled, number)
}

// TestKilledWriter guarantees that a process that is killed between its announcement and its COMMIT, or after its COMMIT, leaves
// look-ups right, which read until the next change.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"announces", "commits"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			p := startProcesses(t)
			p.requirePlan(t)
			_, kill := startChild(t, moment, p.path, moment)
			if moment == "commits" {
				p.plan++
			}
			p.requirePlan(t)
			kill()
			p.requirePlan(t)
			_, settled := p.all[0].generations.settled(identityPart)
			require.False(t, settled)
			changeSilently(t, p.path, "UPDATE organizations SET plan = '7'")
			p.plan = 7
			p.requirePlan(t)

			p.write(t, p.all[1], "INSERT INTO rate_windows (org_id, window_start, count) VALUES ('org_1', 0, 1)")
			_, settled = p.all[0].generations.settled(identityPart)
			require.True(t, settled, "whoever writes next makes it even")
			p.requirePlan(t)
			p.change(t, p.all[1])
			p.requirePlan(t)
		})
	}
}

// TestReplacedGenerationFile: a process whose generation file was deleted, as by who restores a backup, says so and remembers nothing any
// more: it can't see what processes with another file announce.
func TestReplacedGenerationFile(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	p.requirePlan(t)
	require.NoError(t, os.Remove(p.path+".generation"))
	other, err := Open(t.Context(), p.path, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close(context.Background())) }()
	for _, d := range p.all {
		for i := 0; !d.generations.replaced.Load(); i++ { // a look-up notices it, once a second
			require.Less(t, i, 1000)
			_, found, err := d.hot.Key(t.Context(), keyHash)
			require.NoError(t, err)
			require.True(t, found)
			for of := range d.hot.keys.before { // as if a second had passed
				delete(d.hot.keys.before, of)
			}
			d.hot.keys.recent, d.hot.keys.since = nil, time.Time{}
		}
	}
	require.Equal(t, 2, strings.Count(p.log.String(), "was deleted or replaced"))
	for range 3 {
		p.change(t, other)
		p.requirePlan(t)
	}
	require.False(t, other.generations.replaced.Load())
}

// announceAndWait changes the plan and waits to be killed, before COMMIT or after it.
func announceAndWait(path string, commits bool) error {
	d, err := Open(context.Background(), path, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	begun, err := d.writer.Begin(context.Background())
	if err != nil {
		return err
	}
	tx, ok := begun.(*transaction)
	if !ok {
		return errors.New("the writer has another transaction")
	}
	tx.Queue(1, "UPDATE organizations SET plan = '1'")
	if err := tx.Flush(context.Background()); err != nil {
		return err
	}
	d.generations.announce(onlyIdentity)
	if commits {
		if _, err := tx.conn.exec("COMMIT"); err != nil {
			return err
		}
	}
	fmt.Println(map[bool]string{true: "commits", false: "announces"}[commits])
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestRememberedLookups guarantees that a look-up doesn't read the database again while nothing changes.
func TestRememberedLookups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes
		p := startProcesses(t)
		p.requirePlan(t)
		changeSilently(t, p.path, "UPDATE organizations SET plan = '7'")
		p.requirePlan(t)

		time.Sleep(rememberedFor + 1) //nolint:forbidigo // on the fake clock
		p.plan = 7
		p.requirePlan(t)
	})
}

// changeSilently changes the database like a program that doesn't know of generations.
func changeSilently(t *testing.T, path, text string) {
	t.Helper()
	stranger, err := openPool(path, writerPragmas)
	require.NoError(t, err)
	defer func() { require.NoError(t, stranger.Close()) }()
	_, err = stranger.ExecContext(t.Context(), text)
	require.NoError(t, err)
}

// TestUnknownKeysAreNotRemembered guarantees that neither unknown keys nor many known ones fill the memory.
func TestUnknownKeysAreNotRemembered(t *testing.T) {
	t.Parallel()
	r := &hotReader{generations: &generations{mapped: new(generationFile)}}
	found := lookups[int, string]{of: identityPart}
	for key := range 3 * maxRemembered {
		_, ok, err := found.get(r, key, func() (string, bool, error) { return "", false, nil })
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.Empty(t, found.recent)
	for key := range 3 * maxRemembered {
		value, ok, err := found.get(r, key, func() (string, bool, error) { return strconv.Itoa(key), true, nil })
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, strconv.Itoa(key), value)
	}
	require.LessOrEqual(t, len(found.recent)+len(found.before), 2*maxRemembered)
}

// TestClosedLookups guarantees that a closed database finds nothing, not even what it remembers.
func TestClosedLookups(t *testing.T) {
	t.Parallel()
	p := startProcesses(t)
	p.requirePlan(t)
	opened, err := Open(t.Context(), p.path, time.Now, slog.New(slog.NewTextHandler(&p.log, nil)))
	require.NoError(t, err)
	_, found, err := opened.hot.Key(t.Context(), keyHash)
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, opened.Close(t.Context()))
	_, _, err = opened.hot.Key(t.Context(), keyHash)
	require.ErrorIs(t, err, driver.ErrClosed)
	_, err = opened.hot.Models(t.Context(), "org_1")
	require.ErrorIs(t, err, driver.ErrClosed)
	_, _, err = opened.hot.ProviderKey(t.Context(), driver.ProviderKeyID{OrgID: "org_1", Provider: "openai"})
	require.ErrorIs(t, err, driver.ErrClosed)
	_, _, err = opened.hot.Route(t.Context(), "chn_1")
	require.ErrorIs(t, err, driver.ErrClosed)
	require.ErrorIs(t, opened.hot.Routes(t.Context(), nil, nil), driver.ErrClosed)
}

// startChild starts a process that says said once it has done what its role is: end lets it go, kill doesn't.
func startChild(t *testing.T, role, path, said string) (end, kill func()) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childRole+"="+role, childFile+"="+path)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	hold, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, said+"\n", line)
	end = func() {
		require.NoError(t, hold.Close())
		require.NoError(t, child.Wait())
	}
	kill = func() {
		require.NoError(t, child.Process.Kill())
		require.ErrorContains(t, child.Wait(), "killed")
	}
	return end, kill
}

// connectSilently connects to a database file until the input ends.
func connectSilently(path string) error {
	conn, err := openPool(path, readerPragmas)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it only read
	if err := conn.PingContext(context.Background()); err != nil {
		return err
	}
	var tables int
	if err := conn.QueryRowContext(context.Background(), "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	fmt.Println("connected")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
