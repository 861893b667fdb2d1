// Package schema is the tables of the store and their migrations.
//
// Every version only expands, because old and new processes share a database during a roll-out, and a released version never
// changes. To add one, write its DDL below the last one in versions.go, append it to [Versions], and add its tables and
// columns to package archive, whose tests name what is missing. DDL is written in PostgreSQL's words; [Dialect] translates it.
package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// VersionTable is where goose keeps which migrations have run.
const VersionTable = "schema_versions"

// migrateLockSeconds bounds how long Migrate waits on PostgreSQL for another process that migrates; it asks once a second.
const migrateLockSeconds = 300

// migrateAgain is the mean pause before a migration that got no lock on a table is tried again.
const migrateAgain = time.Second

// Migrate brings a database to the last of versions. Several processes may call it at once, see store.DB.Migrate. If a
// version is missing and refusal is not nil, Migrate returns it.
func Migrate(ctx context.Context, engine driver.Engine, conn *sql.DB, versions []Version, refusal error) error {
	dialect := goose.DialectSQLite3
	options := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(VersionTable),
		goose.WithLogger(goose.NopLogger()),
		goose.WithGoMigrations(gooseMigrations(engine, versions, refusal)...),
	}
	if engine == driver.Postgres {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrateLockSeconds))
		if err != nil {
			return fmt.Errorf("make the lock: %w", err)
		}
		options = append(options, goose.WithSessionLocker(indexBuilder{SessionLocker: locker, versions: versions}))
	}
	provider, err := goose.NewProvider(dialect, conn, nil, options...)
	if err != nil {
		return fmt.Errorf("collect the versions: %w", err)
	}
	until := time.Now().Add(migrateLockSeconds * time.Second)
	for _, number := range stops(versions) {
		if err := migrateTo(ctx, provider, number, until); err != nil {
			return err
		}
	}
	return nil
}

// stops returns the versions at which a migration ends and begins anew: before each that builds indexes on columns of a version
// before it, and the last.
func stops(versions []Version) []int64 {
	var all []int64
	for i, version := range versions {
		if version.afterColumns {
			all = append(all, versions[i-1].Number)
		}
	}
	return append(all, versions[len(versions)-1].Number)
}

// migrateTo brings a database to a version. A lock on a table that isn't to be had is asked for again.
func migrateTo(ctx context.Context, provider *goose.Provider, number int64, until time.Time) error {
	for {
		_, err := provider.UpTo(ctx, number)
		if driver.PostgresCode(err) != driver.LockNotAvailable || time.Now().After(until) {
			return err //nolint:wrapcheck // goose says what it did
		}
		if ended := repeat.Pause(ctx, repeat.Around(migrateAgain)); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

func gooseMigrations(engine driver.Engine, versions []Version, refusal error) []*goose.Migration {
	list := make([]*goose.Migration, len(versions))
	for i, m := range versions {
		run := func(ctx context.Context, tx *sql.Tx) error { return m.run(ctx, tx, engine, refusal) }
		list[i] = goose.NewGoMigration(m.Number, &goose.GoFunc{RunTx: run}, nil)
	}
	return list
}

// run applies the migration in goose's transaction, which on SQLite holds the write lock from its beginning. A process that had
// to wait for that lock finds the version applied and does nothing.
func (m Version) run(ctx context.Context, tx *sql.Tx, engine driver.Engine, refusal error) error {
	applied, err := m.applied(ctx, tx)
	if err != nil || applied {
		return err
	}
	if refusal != nil {
		return refusal
	}
	if m.DDL != "" {
		if _, err := tx.ExecContext(ctx, m.DDL); err != nil {
			return fmt.Errorf("version %d: %w", m.Number, err)
		}
	}
	for _, table := range m.rebuilds {
		if err := table.apply(ctx, tx); err != nil {
			return fmt.Errorf("version %d: %w", m.Number, err)
		}
	}
	for _, index := range m.indexes {
		if err := index.createMissing(ctx, tx, engine); err != nil {
			return fmt.Errorf("version %d: %w", m.Number, err)
		}
	}
	return nil
}

// applied reports, in a transaction or without one, whether the version has been applied.
func (m Version) applied(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (bool, error) {
	var rows int
	row := conn.QueryRowContext(ctx, "SELECT count(*) FROM "+VersionTable+" WHERE version_id = $1", m.Number)
	if err := row.Scan(&rows); err != nil {
		return false, fmt.Errorf("look for version %d: %w", m.Number, err)
	}
	return rows > 0, nil
}

// Newest returns the schema version that this program brings a store to.
func Newest(engine driver.Engine) int64 {
	all := Versions(engine)
	return all[len(all)-1].Number
}

// ProgressTable exists while an import is under way, and no longer: it holds how far that is, and marks the store as
// incomplete. It is no part of the schema.
const ProgressTable = "import_progress"

const progressDDL = `CREATE TABLE ` + ProgressTable + ` (
	archive TEXT   NOT NULL PRIMARY KEY,
	block   BIGINT NOT NULL,
	digest  TEXT   NOT NULL
) {table}`

// CreateProgress returns the statement that makes ProgressTable.
func CreateProgress(engine driver.Engine) string { return Dialect(engine, progressDDL) }

// ImportUnfinished reports whether an import is under way in the store, or was interrupted.
func ImportUnfinished(ctx context.Context, engine driver.Engine, reader *sql.DB) (bool, error) {
	text := `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1`
	if engine == driver.Postgres {
		text = `SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = $1`
	}
	var found int64
	if err := reader.QueryRowContext(ctx, text, ProgressTable).Scan(&found); err != nil {
		return false, driver.WrapError("look for an unfinished import", err)
	}
	return found > 0, nil
}
