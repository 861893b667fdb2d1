package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
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
		Long: `Brings the store's schema up to date, and makes a SQLite store if there is none. The server and every other command
do the same when they start; run this before a roll-out to have the wait at a time of your choice. Migrations only add,
so older processes may go on working on the store.`,
	}
	return f.verb(command, openOrCreate, func(_ context.Context, d *desk) (answer, error) {
		// Opening the desk has migrated.
		return migrateAnswer{Engine: string(d.location.Engine), Store: d.location.Redacted()}, nil
	})
}

// errFindings makes doctor end with status 1.
var errFindings = errors.New("the books, the queue or the master key break an invariant")

type doctorAnswer struct {
	OK bool `json:"ok"`
	billing.Report
}

func (a doctorAnswer) text(w *strings.Builder) {
	fmt.Fprint(w, a.String())
	if a.OK {
		fmt.Fprintln(w, "No findings.")
	}
}

func doctorCommand(f *commandFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Checks the books (wallets, holds, ledger, calls), the queue of messages and the master key",
		Long: `Checks the invariants of the books, such as that every wallet is the sum of its ledger, and of the queue, such as that
every message is answered at most once, and that the master key opens provider keys and the credentials of channels. It
changes nothing in them and may run beside a working server. The exit status is 1 when something is found; the findings
say where to look.`,
	}
	return f.verb(command, openExisting, func(ctx context.Context, d *desk) (answer, error) {
		report, err := billing.Checker{SweepInterval: d.app.Timing.sweepInterval()}.Check(ctx, d.db)
		if err != nil {
			return nil, err
		}
		queue, err := examineQueue(ctx, d.db)
		if err != nil {
			return nil, err
		}
		report.Invariants = append(report.Invariants, queue)
		// A doctor without the secret can still look at the books.
		if ring, err := d.app.Ring(d.repl); err != nil {
			_, _ = fmt.Fprintf(d.stderr, "svc.master_key was not checked: %v\n", err)
		} else {
			key, err := examineMasterKey(ctx, d.db, ring)
			if err != nil {
				return nil, err
			}
			report.Invariants = append(report.Invariants, key)
		}
		if !report.OK() {
			return doctorAnswer{Report: report}, errFindings
		}
		return doctorAnswer{OK: true, Report: report}, nil
	})
}

// examineQueue checks the stored part of L17 (reliability notes §1.4) in the words of the books' report.
func examineQueue(ctx context.Context, db *store.DB) (billing.Examined, error) {
	examined := billing.Examined{
		ID: "L17", Text: "every customer message is answered at most once, by an answer that was sent or says why not",
		Advice: "the conversation in GET /conversations/{id}/messages, and `caddy svc audit`",
	}
	findings, err := inbox.Check(ctx, db)
	if err != nil {
		return examined, fmt.Errorf("checking the queue: %w", err)
	}
	for _, f := range findings {
		examined.Findings = append(examined.Findings, billing.Finding{Subject: f.Subject, Detail: f.Detail})
	}
	return examined, nil
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
	return f.verb(command, openExisting, func(ctx context.Context, d *desk) (answer, error) {
		path, err := filepath.Abs(d.args[0])
		if err != nil {
			return nil, fmt.Errorf("the backup's path: %w", err)
		}
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s exists already; a backup never overwrites", path)
		}
		if err := d.db.BackupTo(ctx, path); err != nil {
			return nil, fmt.Errorf("backing up the store: %w", err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("backing up the store: %w", err)
		}
		return backupAnswer{Path: path, Bytes: info.Size()}, nil
	})
}
