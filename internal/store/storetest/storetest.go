// Package storetest gives tests a fresh database on either engine. It is imported by tests only and holds
// no assertions about the store: those are the conformance suite of package store, which runs every case on both.
package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// PostgresVariable names the environment variable with the DSN of a server on which a test may create and drop
// databases (scripts/services.sh starts one).
const PostgresVariable = "SVC_TEST_POSTGRES"

// patience bounds each step of setting up and tearing down on a loaded machine.
const patience = time.Minute

// Location is a fresh, private, empty database: a file in a temporary directory, or a new database on the test
// server. It is gone after the test.
func Location(t testing.TB, engine store.Engine) store.Location {
	t.Helper()
	if engine == store.SQLite {
		location, err := store.ParseLocation(store.SQLite, filepath.Join(t.TempDir(), "svc.db"))
		require.NoError(t, err)
		return location
	}
	return newDatabase(t, postgresServer(t), emptyTemplate)
}

// Open opens a database of [Migrated] with these kinds. It is closed when the test ends.
func Open(t testing.TB, engine store.Engine, kinds ...store.Kind) *store.DB {
	t.Helper()
	return open(t, Migrated(t, engine), store.Options{Kinds: kinds})
}

// OpenAt opens and migrates the database at a location with these options. It is closed when the test ends, before the
// location is gone.
func OpenAt(t testing.TB, location store.Location, options store.Options) *store.DB {
	t.Helper()
	db := open(t, location, options)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, db.Migrate(ctx))
	return db
}

func open(t testing.TB, location store.Location, options store.Options) *store.DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := store.Open(ctx, location, options)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		db.Close(ctx) // a test that closes it itself sees the error
	})
	return db
}

// Each runs a test on both engines in parallel, each with a database of [Open].
func Each(t *testing.T, kinds []store.Kind, run func(t *testing.T, db *store.DB)) {
	t.Helper()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			run(t, Open(t, engine, kinds...))
		})
	}
}

// postgresServer is the server on which tests may make databases.
func postgresServer(t testing.TB) store.Location {
	t.Helper()
	dsn := os.Getenv(PostgresVariable)
	require.NotEmpty(t, dsn, "%s is not set: run the tests through scripts/services.sh, which starts a PostgreSQL for them", PostgresVariable)
	server, err := store.ParseLocation(store.Postgres, dsn)
	require.NoError(t, err)
	return server
}

// emptyTemplate is PostgreSQL's own template of an empty database.
const emptyTemplate = "template0"

// newDatabase creates a database with a random name from a template, and drops it after the test with all that are still
// connected.
func newDatabase(t testing.TB, server store.Location, template string) store.Location {
	t.Helper()
	name := "svc_test_" + strings.ToLower(rand.Text())
	administer(t, server, createDatabase(name, template))
	t.Cleanup(func() { administer(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })

	location, err := store.ParseLocation(store.Postgres, server.DSN+" dbname="+name)
	require.NoError(t, err)
	return location
}

// createDatabase is the statement that copies a template. The server copies the files of the template in half of the time in which it would
// write each page to its log. It needs PostgreSQL 15.
func createDatabase(name, template string) string {
	return "CREATE DATABASE " + name + " TEMPLATE " + template + " STRATEGY FILE_COPY ENCODING 'UTF8'"
}

// administer runs a statement on the server's own database.
func administer(t testing.TB, server store.Location, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.DSN)
	require.NoError(t, err)
	defer conn.Close(ctx) // the statement's own result counts
	_, err = conn.Exec(ctx, statement)
	require.NoError(t, err)
}

// Insist writes until the store doesn't refuse the write as busy, and returns how that ended. Writers of several nodes wait for
// each other's transactions, on a slow machine longer than an operation may wait.
func Insist(write func() error) error {
	for {
		if err := write(); !errors.Is(err, store.ErrBusy) {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Unguard returns the statement that lets a test change what is append-only in a table.
func Unguard(engine store.Engine, table string) string {
	if engine == store.Postgres {
		return "DROP TRIGGER IF EXISTS " + table + "_append_only ON " + table
	}
	return "DROP TRIGGER IF EXISTS " + table + "_no_update; DROP TRIGGER IF EXISTS " + table + "_no_delete"
}

// Migrated is a fresh, private database whose tables are of the newest version, and empty. It is a copy: a test binary
// migrates one database of each engine from nothing and copies that one for its tests. It is gone after the test.
func Migrated(t testing.TB, engine store.Engine) store.Location {
	t.Helper()
	if engine == store.SQLite {
		location := Location(t, store.SQLite)
		file, err := sqliteTemplate()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(location.DSN, file, 0o600))
		return location
	}
	server := postgresServer(t)
	template, err := postgresTemplate(server)
	require.NoError(t, err)
	return newDatabase(t, server, template)
}

// sqliteTemplate returns the content of a migrated file.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	directory, err := os.MkdirTemp("", "svc-template")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the template: %w", err)
	}
	defer os.RemoveAll(directory) //nolint:errcheck // a temporary directory
	location, err := store.ParseLocation(store.SQLite, filepath.Join(directory, "svc.db"))
	if err != nil {
		return nil, err
	}
	if err := migrate(location); err != nil {
		return nil, err
	}
	// The last connection has written the log back and removed it.
	if _, err := os.Stat(location.DSN + "-wal"); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the template's log is still there: %w", err)
	}
	return os.ReadFile(location.DSN)
})

// The templates of PostgreSQL are called svc_template_TIME_RANDOM, TIME in seconds since 1970. A binary can't drop its
// own when it ends, so the next one drops those that are older than any run of tests.
const (
	templatePrefix = "svc_template_"
	templateLife   = 6 * time.Hour
)

var (
	postgresTemplateOnce sync.Once
	postgresTemplateName string
	errPostgresTemplate  error
)

// postgresTemplate returns the name of a migrated database without connections.
func postgresTemplate(server store.Location) (string, error) {
	postgresTemplateOnce.Do(func() {
		name := fmt.Sprintf("%s%d_%s", templatePrefix, time.Now().Unix(), strings.ToLower(rand.Text()))
		postgresTemplateName, errPostgresTemplate = name, makePostgresTemplate(server, name)
	})
	return postgresTemplateName, errPostgresTemplate
}

func makePostgresTemplate(server store.Location, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.DSN)
	if err != nil {
		return fmt.Errorf("connect to make a template: %w", err)
	}
	defer conn.Close(ctx) // each statement's own result counts
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database
		WHERE datname ~ ('^' || $1 || '[0-9]+_') AND split_part(datname, '_', 3)::bigint < $2`, templatePrefix, time.Now().Add(-templateLife).Unix())
	if err != nil {
		return fmt.Errorf("look for old templates: %w", err)
	}
	old, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for old templates: %w", err)
	}
	for _, left := range old {
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+left+" WITH (FORCE)"); err != nil {
			return fmt.Errorf("drop an old template: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, createDatabase(name, emptyTemplate)); err != nil {
		return fmt.Errorf("make a template: %w", err)
	}
	location, err := store.ParseLocation(store.Postgres, server.DSN+" dbname="+name)
	if err != nil {
		return err
	}
	if err := migrate(location); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false"); err != nil {
		return fmt.Errorf("close the template: %w", err)
	}
	return nil
}

// migrate brings an empty database to the newest version, as a first start does.
func migrate(location store.Location) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := store.Open(ctx, location, store.Options{})
	if err != nil {
		return fmt.Errorf("open the template: %w", err)
	}
	return errors.Join(db.Migrate(ctx), db.Close(ctx))
}

// makeClock puts a clock that can be set before the one of the server, for all later connections to the database.
const makeClock = `CREATE SCHEMA clock;
	CREATE TABLE clock.skew (skew INTERVAL NOT NULL);
	INSERT INTO clock.skew VALUES ('0');
	CREATE FUNCTION clock.clock_timestamp() RETURNS TIMESTAMPTZ VOLATILE LANGUAGE SQL
		AS 'SELECT pg_catalog.clock_timestamp() + skew FROM clock.skew';
	DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET search_path = public, clock, pg_catalog', current_database());
	END $$`

// PostgresClock lets a test set the clock of a database on PostgreSQL, by how far it is ahead of the server's. It must be called before the
// database is opened.
func PostgresClock(t testing.TB, location store.Location) (set func(ahead time.Duration)) {
	t.Helper()
	execute := func(statement string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		conn, err := pgx.Connect(ctx, location.DSN)
		require.NoError(t, err)
		defer conn.Close(ctx) //nolint:errcheck // the statement's own result counts
		_, err = conn.Exec(ctx, statement)
		require.NoError(t, err)
	}
	execute(makeClock)
	return func(ahead time.Duration) {
		t.Helper()
		execute(fmt.Sprintf(`UPDATE clock.skew SET skew = '%d milliseconds'`, ahead.Milliseconds()))
	}
}
