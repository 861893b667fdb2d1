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
