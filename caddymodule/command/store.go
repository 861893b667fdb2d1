package command

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
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
