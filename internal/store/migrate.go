package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// versionTable is where goose keeps which migrations have run.
const versionTable = "schema_versions"

// migrateLockSeconds bounds how long Migrate waits on PostgreSQL for another process that migrates; it asks once a second.
const migrateLockSeconds = 300

// migrations answers every version of the schema, oldest first: its number and its DDL for an engine. A version that
// was released never changes.
func migrations(engine Engine) []migration {
	return []migration{
		{version: 1, ddl: ddlV1(engine)},
		{version: 2, ddl: dialectDDL(engine, schemaV2)},
	}
}

type migration struct {
	version int64
	ddl     string
}

// Migrate brings the tables to the newest version. It is expand-only, so that older processes go on working, and does
// nothing when all is done. Several processes may call it at once: on PostgreSQL an advisory lock lets one work; on
// SQLite the transaction that takes the write lock looks again whether its version has been applied meanwhile.
func (db *DB) Migrate(ctx context.Context) error {
	conn, err := openForMigration(db.location)
	if err != nil {
		return fmt.Errorf("store: migrate: %w", err)
	}
	if db.location.Engine == SQLite {
		// Taking the turn keeps the processes from meeting at all; correctness doesn't hang on it.
		turns, err := openTurnstile(db.location.DSN)
		if err != nil {
			return errors.Join(fmt.Errorf("store: migrate: %w", err), conn.Close())
		}
		defer turns.close() //nolint:errcheck // a lock file that was only read
		defer turns.take(ctx.Done())()
	}
	err = migrate(ctx, db.location.Engine, conn, migrations(db.location.Engine))
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return sqlError("store: migrate", err)
	}
	return nil
}

func migrate(ctx context.Context, engine Engine, conn *sql.DB, versions []migration) error {
	dialect := goose.DialectSQLite3
	options := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(versionTable),
		goose.WithLogger(goose.NopLogger()),
		goose.WithGoMigrations(gooseMigrations(versions)...),
	}
	if engine == Postgres {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrateLockSeconds))
		if err != nil {
			return fmt.Errorf("make the lock: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	provider, err := goose.NewProvider(dialect, conn, nil, options...)
	if err != nil {
		return fmt.Errorf("collect the versions: %w", err)
	}
	_, err = provider.Up(ctx)
	return err
}

func gooseMigrations(versions []migration) []*goose.Migration {
	list := make([]*goose.Migration, len(versions))
	for i, m := range versions {
		list[i] = goose.NewGoMigration(m.version, &goose.GoFunc{RunTx: m.run}, nil)
	}
	return list
}

// run applies the migration in goose's transaction, which on SQLite holds the write lock from its beginning. Who had
// to wait for that lock finds the version applied and leaves it at that.
func (m migration) run(ctx context.Context, tx *sql.Tx) error {
	var applied int
	row := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+versionTable+" WHERE version_id = $1", m.version)
	if err := row.Scan(&applied); err != nil {
		return fmt.Errorf("look for version %d: %w", m.version, err)
	}
	if applied > 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, m.ddl); err != nil {
		return fmt.Errorf("version %d: %w", m.version, err)
	}
	return nil
}
