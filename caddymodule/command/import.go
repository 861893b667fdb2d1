package command

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/store/archive"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

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
	command := &cobra.Command{
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
	}
	return f.verb(command, openOrCreate, func(ctx context.Context, e *commandEnv) (answer, error) {
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
