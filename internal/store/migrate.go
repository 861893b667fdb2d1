package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// versionTable is where goose keeps which migrations have run.
const versionTable = "schema_versions"

// migrateLockSeconds bounds how long Migrate waits on PostgreSQL for another process that migrates; it asks once a second.
const migrateLockSeconds = 300

const (
	// migrateLockTimeout bounds how long a statement of a migration waits for a table. Everybody who comes after it waits
	// behind it, so that is also what a migration may add to a write of an old node; it is far below writeTime.
	migrateLockTimeout = time.Second
	// migrateAgain is the mean pause before a migration that got no lock on a table is tried again.
	migrateAgain = time.Second
)

// errOtherDatabase: the two addresses of a location don't lead to the same place.
var errOtherDatabase = errors.New("the direct address leads to another database or server than the first one")

// migrations answers every version of the schema, oldest first: its number and its DDL for an engine. A version that
// was released never changes.
func migrations(engine Engine) []migration {
	return []migration{
		{version: 1, ddl: ddlV1(engine)},
		{version: 2, ddl: dialectDDL(engine, schemaV2)},
		{version: 3, ddl: ddlV3(engine)},
		{version: 4, ddl: dialectDDL(engine, schemaV4), indexes: indexesV4()},
		{version: 5, ddl: ddlV5(engine)},
		{version: 6, ddl: dialectDDL(engine, schemaV6), indexes: indexesV6()},
		{version: 7, ddl: dialectDDL(engine, schemaV7)},
		{version: 8, ddl: dialectDDL(engine, schemaV8)},
		{version: 9, ddl: dialectDDL(engine, schemaV9)},
	}
}

// migration is a version of the schema: in one transaction its DDL, then its indexes on tables of earlier versions, as
// far as [indexBuilder] hasn't built them before.
type migration struct {
	version int64
	ddl     string
	indexes []lateIndex
}

// Migrate brings the tables to the newest version. It is expand-only, so that older processes go on working, and does
// nothing when all is done. Several processes may call it at once: on PostgreSQL an advisory lock lets one work; on
// SQLite the transaction that takes the write lock looks again whether its version has been applied meanwhile. On
// PostgreSQL it works through the direct address, if there is one, waits for a table a second at most, so that nobody who
// writes waits longer behind it, and tries again, for up to five minutes. Indexes on tables that are there already are
// built outside of transactions there, while others write; what an interrupted build left is dropped first.
//
// When that is done it fails with [ErrUnfinishedImport] in a store that holds only a part of an archive.
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
	if err = db.sameDatabase(ctx, conn); err == nil {
		err = migrate(ctx, db.location.Engine, conn, migrations(db.location.Engine))
	}
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return sqlError("store: migrate", err)
	}
	if err := db.refuseUnfinishedImport(ctx); err != nil {
		return fmt.Errorf("store: migrate: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, engine Engine, conn *sql.DB, versions []migration) error {
	dialect := goose.DialectSQLite3
	options := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(versionTable),
		goose.WithLogger(goose.NopLogger()),
		goose.WithGoMigrations(gooseMigrations(engine, versions)...),
	}
	if engine == Postgres {
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
	for {
		_, err = provider.Up(ctx)
		if postgresCode(err) != lockNotAvailable || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(migrateAgain/2 + rand.N(migrateAgain)): //nolint:gosec // jitter needs no secret
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// sameDatabase makes sure that a direct address and the first one are about the same database of the same server.
func (db *DB) sameDatabase(ctx context.Context, direct *sql.DB) error {
	if db.location.Direct == "" {
		return nil
	}
	var places [2]struct{ name, started string }
	for i, conn := range []*sql.DB{db.reader, direct} {
		row := conn.QueryRowContext(ctx, "SELECT current_database(), pg_postmaster_start_time()::text")
		if err := row.Scan(&places[i].name, &places[i].started); err != nil {
			return fmt.Errorf("ask which database it is: %w", err)
		}
	}
	if places[0] != places[1] {
		return errOtherDatabase
	}
	return nil
}

func gooseMigrations(engine Engine, versions []migration) []*goose.Migration {
	list := make([]*goose.Migration, len(versions))
	for i, m := range versions {
		run := func(ctx context.Context, tx *sql.Tx) error { return m.run(ctx, tx, engine) }
		list[i] = goose.NewGoMigration(m.version, &goose.GoFunc{RunTx: run}, nil)
	}
	return list
}

// run applies the migration in goose's transaction, which on SQLite holds the write lock from its beginning. Who had
// to wait for that lock finds the version applied and leaves it at that.
func (m migration) run(ctx context.Context, tx *sql.Tx, engine Engine) error {
	applied, err := m.applied(ctx, tx)
	if err != nil || applied {
		return err
	}
	if m.ddl != "" {
		if _, err := tx.ExecContext(ctx, m.ddl); err != nil {
			return fmt.Errorf("version %d: %w", m.version, err)
		}
	}
	for _, index := range m.indexes {
		if err := index.createMissing(ctx, tx, engine); err != nil {
			return fmt.Errorf("version %d: %w", m.version, err)
		}
	}
	return nil
}

// applied asks, in a transaction or without one, whether the version has been applied.
func (m migration) applied(ctx context.Context, conn interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (bool, error) {
	var rows int
	row := conn.QueryRowContext(ctx, "SELECT count(*) FROM "+versionTable+" WHERE version_id = $1", m.version)
	if err := row.Scan(&rows); err != nil {
		return false, fmt.Errorf("look for version %d: %w", m.version, err)
	}
	return rows > 0, nil
}
