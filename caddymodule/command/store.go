package command

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/archive"
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
	return f.verb(&cobra.Command{
		Use:   "migrate",
		Short: "Brings the store's schema up to date, and makes the store if there is none",
		Long: `Brings the store's schema up to date, and makes a SQLite store if there is none. Servers and workers do the same when
they start; run this before a roll-out to have the wait at a time of your choice. Migrations only add, so older processes
may go on working on the store. Other commands never change the schema, except init and import: they refuse a store of
another version.`,
	}, openOrCreate, func(_ context.Context, e *commandEnv) (answer, error) {
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
	return f.verb(&cobra.Command{
		Use:   "backup FILE",
		Short: "Writes a whole copy of a SQLite store while the server works",
		Long: `Writes a whole copy of a SQLite store, as it is at one moment, into a file that doesn't exist yet. The server may go
on working. To restore, stop every process of the store and put the copy in its place, without the -wal and -shm files
beside it. Provider keys of organizations in the copy can only be opened with the master key of its time: keep that,
too, but elsewhere. A PostgreSQL store is backed up with pg_dump.`,
		Example: "  $ caddy svc backup ./svc-2026-11-20.db",
		Args:    exactly("the file to write"),
	}, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
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
	return f.verb(&cobra.Command{
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

Provider keys, the credentials of channels, the secrets of event endpoints and of second factors, and the key of customers' ids are encrypted anew.
Messages, and answers kept for an Idempotency-Key, are not: they stay readable as long as their key stands in master_key.

It can be interrupted and repeated, and runs beside a working server. Values that no key of master_key opens are left
alone and named; the exit status is then 1.`,
	}, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
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

// standardStream as the name of an archive is standard output or input.
const standardStream = "-"

type exportAnswer struct {
	// Path is "-" for standard output.
	Path    string           `json:"path"`
	Archive string           `json:"archive"`
	Rows    int64            `json:"rows"`
	Tables  map[string]int64 `json:"tables"`
}

func (a exportAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Archive %s written to %s (%d rows). The store that imports it needs the same master_key.\n", a.Archive, a.Path, a.Rows)
}

func exportCommand(f *commandFlags) *cobra.Command {
	return f.verb(&cobra.Command{
		Use:   "export FILE|-",
		Short: "Writes the whole store as one archive, for an import into another store of either engine",
		Long: `Writes the whole store, as it is at one moment, as one archive into a file that doesn't exist yet, or to standard output.
It is compressed if the file's name ends in .gz. caddy svc import fills an empty store of either engine with it, which
moves an installation from SQLite to PostgreSQL, or back. The operator's guide has the steps.

Servers and workers may go on working, but changes from then on are not in the archive: for the final move, stop them
first. Calls that are running move with their holds, which expire in the new store. During the export, a SQLite store
needs as much free space beside it as its own size.

Provider keys, credentials and messages stay encrypted in the archive: the other side needs the same master_key, older
keys in it included. Organizations, wallets and the books can be read by whoever has the file.

With - the result is written to standard error, and --json is refused. An interrupted export is begun again.`,
		Example: `  $ caddy svc export ./svc-2026-11-21.archive.gz
  $ caddy svc export - | ssh db2 caddy svc import -`,
		Args: exactly("the file to write, or - for standard output"),
	}, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		path := e.args[0]
		if path == standardStream && f.json {
			return nil, errors.New("--json: standard output takes either the archive or the result; name a file")
		}
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		progress := &archiveReport{w: e.stderr, verb: "exported"}
		options := archive.ExportOptions{Probes: ring.Probes(), Progress: progress.report}
		if path == standardStream {
			summary, err := e.export(ctx, e.stdout, options)
			if err != nil {
				return nil, err
			}
			var line strings.Builder
			exportAnswer{Path: "standard output", Archive: summary.ID, Rows: summary.Total()}.text(&line)
			_, err = io.WriteString(e.stderr, line.String())
			return nil, err
		}
		summary, err := e.exportFile(ctx, path, options)
		if err != nil {
			return nil, err
		}
		return exportAnswer{Path: path, Archive: summary.ID, Rows: summary.Total(), Tables: summary.Rows}, nil
	})
}

// export writes an archive of the store.
func (e *commandEnv) export(ctx context.Context, to io.Writer, options archive.ExportOptions) (summary archive.Summary, err error) {
	if summary, err = archive.Export(ctx, e.db, to, options); err != nil {
		err = fmt.Errorf("exporting the store: %w", err)
	}
	return summary, err
}

// exportFile exports to a new file, which only this user can read.
func (e *commandEnv) exportFile(ctx context.Context, path string, options archive.ExportOptions) (summary archive.Summary, err error) {
	err = createFile(path, "creating the archive", 0o600, func(file io.Writer) (err error) {
		if !strings.HasSuffix(path, ".gz") {
			summary, err = e.export(ctx, file, options)
			return err
		}
		compressed := gzip.NewWriter(file)
		if summary, err = e.export(ctx, compressed, options); err != nil {
			return err
		}
		return compressed.Close()
	})
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%s exists already; an export never overwrites", path)
	}
	return summary, err
}

const reportEvery = 2 * time.Second

// archiveReport writes the progress of an export or import for people: at each new table, and every [reportEvery].
type archiveReport struct {
	w    io.Writer
	verb string

	last archive.Progress
	at   time.Time
}

func (r *archiveReport) report(progress archive.Progress) {
	if progress.Table == r.last.Table && time.Since(r.at) < reportEvery {
		return
	}
	r.last, r.at = progress, time.Now()
	_, _ = fmt.Fprintf(r.w, "%d rows %s, at %s\n", progress.Rows, r.verb, progress.Table)
}

type importAnswer struct {
	Archive string           `json:"archive"`
	Engine  string           `json:"engine"`
	Store   string           `json:"store"`
	Rows    int64            `json:"rows"`
	Tables  map[string]int64 `json:"tables"`
}

func (a importAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "Archive %s is in the %s store %s (%d rows). Now run caddy svc doctor.\n", a.Archive, a.Engine, a.Store, a.Rows)
}

func importCommand(f *commandFlags) *cobra.Command {
	return f.verb(&cobra.Command{
		Use:   "import FILE|-",
		Short: "Fills an empty store with an archive of caddy svc export",
		Long: `Fills an empty store of either engine with an archive of caddy svc export, compressed or not, from a file or standard
input. No server or worker may use the store meanwhile. A SQLite file is created if there is none.

It imports the whole archive or nothing: if it is interrupted, even by kill -9, or the archive is damaged or cut off, the
store stays empty. Run the command again; it starts over. During the import, a SQLite store needs as much free space
beside it as its own size.

The configuration must have the master_key of the exporting side with its older keys, which is checked first.`,
		Example: `  $ caddy svc import ./svc-2026-11-21.archive.gz --config ./Caddyfile.postgres
  $ caddy svc doctor --config ./Caddyfile.postgres`,
		Args: exactly("the archive to read, or - for standard input"),
	}, openOrCreate, func(ctx context.Context, e *commandEnv) (answer, error) {
		ring, err := e.ring()
		if err != nil {
			return nil, err
		}
		stream := e.stdin
		if path := e.args[0]; path != standardStream {
			file, err := os.Open(path)
			if err != nil {
				return nil, fmt.Errorf("opening the archive: %w", err)
			}
			defer file.Close() //nolint:errcheck // it was only read
			stream = file
		}
		if stream, err = plainArchive(stream); err != nil {
			return nil, err
		}
		progress := &archiveReport{w: e.stderr, verb: "imported"}
		summary, err := archive.Import(ctx, e.db, stream, archive.ImportOptions{
			Admit:    func(header archive.Header) error { return ring.OpenProbes(header.Probes) },
			Progress: progress.report,
		})
		if err != nil {
			return nil, importFault(err)
		}
		return importAnswer{
			Archive: summary.ID, Engine: string(e.location.Engine), Store: e.location.Redacted(),
			Rows: summary.Total(), Tables: summary.Rows,
		}, nil
	})
}

// plainArchive decompresses a stream if it is compressed.
func plainArchive(stream io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(stream)
	if magic, _ := buffered.Peek(2); string(magic) != "\x1f\x8b" { // RFC 1952 §2.3.1; what ends earlier is no archive anyway
		return buffered, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, fmt.Errorf("reading the compressed archive: %w", err)
	}
	return plain, nil
}

// importFault adds what to do to the error of an import.
func importFault(err error) error {
	what := "nothing was imported; run the same command again"
	switch {
	case errors.Is(err, vault.ErrUnknownKey):
		what = "give this configuration the master_key of the store that was exported, with every older key in it; nothing was imported"
	case errors.Is(err, archive.ErrNotEmpty):
		what = "an import needs a new database, or for SQLite a file that doesn't exist; if one has just ended here, all is done: caddy svc doctor"
	case errors.Is(err, archive.ErrOtherVersion):
		what = "import it with a program of the version that wrote it, and upgrade that store if it is the older one; nothing was imported"
	case errors.Is(err, archive.ErrDamaged):
		what = "nothing was imported; run the same command with a whole copy of the archive"
	}
	return fmt.Errorf("importing the archive: %w\n%s", err, what)
}
