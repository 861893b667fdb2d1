// Package storetest gives tests a fresh database on either engine. It is imported by tests only and holds
// no assertions about the store: those are the conformance suite of package store, which runs every case on both.
package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// createDatabase is the statement that copies a template. Copying its files takes the server half of the time that
// writing each page to its log takes.
func createDatabase(name, template string) string {
	return "CREATE DATABASE " + name + " TEMPLATE " + template + " ENCODING 'UTF8'"
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
