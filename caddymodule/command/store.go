package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

type migrateAnswer struct {
	Engine string `json:"engine"`
	Store  string `json:"store"`
}

func (m migrateAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "The schema of the %s store %s is up to date.\n", m.Engine, m.Store)
}

func migrateCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Brings the store's schema up to date, and makes the store if there is none",
		Long: `Brings the store's schema up to date, and makes a SQLite store if there is none. Servers and workers do the same when
they start; run this before a roll-out to have the wait at a time of your choice. Migrations only add, so older processes
may go on working on the store. Other commands never change the schema, except init and import: they refuse a store of
another version.`,
	}
	return f.verb(command, openOrCreate, func(_ context.Context, e *commandEnv) (answer, error) {
		// Opening the store has migrated.
		return migrateAnswer{Engine: string(e.location.Engine), Store: e.location.Redacted()}, nil
	})
}

type backupAnswer struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

func (b backupAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Backup written: %s (%d bytes).\n", b.Path, b.Bytes)
}

func backupCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Writes a whole copy of a SQLite store while the server works",
		Long: `Writes a whole copy of a SQLite store, as it is at one moment, into a file that doesn't exist yet. The server may go
on working. To restore, stop every process of the store and put the copy in its place, without the -wal and -shm files
beside it. Provider keys of organizations in the copy can only be opened with the master key of its time: keep that,
too, but elsewhere. A PostgreSQL store is backed up with pg_dump.`,
		Example: "  $ caddy svc backup ./svc-2026-11-20.db",
		Args:    exactly("the file to write"),
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		path, err := filepath.Abs(e.args[0])
		if err != nil {
			return nil, fmt.Errorf("the backup's path: %w", err)
		}
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s exists already; a backup never overwrites", path)
		}
		if err := e.db.BackupTo(ctx, path); err != nil {
			return nil, fmt.Errorf("backing up the store: %w", err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("backing up the store: %w", err)
		}
		return backupAnswer{Path: path, Bytes: info.Size()}, nil
	})
}

type rekeyAnswer identity.Rekeyed

func (a rekeyAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "sealed anew\t%d\nalready current\t%d\ncan't be opened\t%d\nchanged meanwhile\t%d\n",
		a.Renewed, a.Current, a.Unopened, a.Overtaken)
}

func rekeyCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "rekey",
		Short: "Encrypts what is encrypted in the store anew, under the first key of master_key",
		Long: `Encrypts what is encrypted in the store anew, under the first key of master_key. To rotate:

  1. put a new key behind the old one in what master_key refers to, and have every server and worker read it
  2. put the new key in front of the old one, and have every server and worker read it
  3. run caddy svc rekey
  4. keep the old key behind the new one as long as conversations from before are needed, at least a day; then take it
     out, and have every server and worker read it

A server reads a file at caddy reload --force (without --force an unchanged Caddyfile isn't loaded again), and a variable
or a credential of systemd only at its start. A worker reads both at its start.

As long as a server or worker runs without the first key, rekey names it and changes nothing, because that process could
no longer open what is encrypted anew. A process that ended without notice is named for a minute.

Provider keys, the credentials of channels, the secrets of event endpoints and the key of customers' ids are encrypted anew.
Messages, and answers kept for an Idempotency-Key, are not: they stay readable as long as their key stands in master_key.

It can be interrupted and repeated, and runs beside a working server. Values that no key of master_key opens are left
alone and named; the exit status is then 1.`,
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		if err := requireFirstKey(ctx, e.db, ring); err != nil {
			return nil, err
		}
		done, err := identity.Rekey(ctx, e.db, ring, e.actor)
		return rekeyAnswer(done), err
	})
}

// requireFirstKey fails if a server or worker lives that doesn't have the ring's first key. The error names each.
func requireFirstKey(ctx context.Context, db *store.DB, ring *vault.Ring) error {
	living, err := db.Processes.Living(ctx)
	if err != nil {
		return err
	}
	first := ring.KeyIDs()[0]
	var without strings.Builder
	for _, process := range living {
		if !slices.Contains(process.KeyIDs, first) {
			without.WriteString("\n  " + process.Name)
		}
	}
	if without.Len() == 0 {
		return nil
	}
	return errors.New("nothing was changed, because these run without the first key of master_key and could no longer open what is " +
		"encrypted anew:" + without.String() + "\nHave each read its keys again: `caddy reload --force` for a server whose key is in a file, " +
		"a restart for a worker, and for a server whose key is in a variable or a credential of systemd. " +
		"One that has ended without notice is forgotten after a minute")
}
