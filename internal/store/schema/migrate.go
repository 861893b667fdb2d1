// Package schema is the tables of the store and their migrations.
package schema

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// VersionTable is where goose keeps which migrations have run. unreleasedTable is where commits before the first schema kept that.
const (
	VersionTable    = "schema_migrations"
	unreleasedTable = "schema_versions"
)

// Why a program can't use a store as it is.
var (
	// ErrUnreleased: a commit before the first schema has made the store.
	ErrUnreleased = errors.New("the store was made by a development version before the first release, and this program doesn't know its " +
		"tables: begin with an empty database")
	// ErrNewer: a newer program has made or migrated the store, which may have rules that this one doesn't know.
	ErrNewer = errors.New("the store is of a newer version of this program: use that one")
	// ErrOlder: the store is to be migrated first.
	ErrOlder = errors.New("the store is of an older version of this program, or empty: run `caddy svc migrate`, or start the server, once no " +
		"older process that you still need is left")
)

// migrateLockSeconds bounds the wait of Migrate on PostgreSQL for another process that migrates.
const migrateLockSeconds = 300

// migrateAgain is the mean pause before a migration that got no lock on a table is tried again.
const migrateAgain = time.Second

// Queryer reads a database.
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Check returns nil if the database has exactly the last of versions. Otherwise it returns [ErrUnreleased], [ErrNewer] or [ErrOlder].
func Check(ctx context.Context, engine driver.Engine, reader Queryer, versions []Version) error {
	if unreleased, err := hasTable(ctx, engine, reader, unreleasedTable); err != nil || unreleased {
		return cmp.Or(err, ErrUnreleased)
	}
	var version int64
	there, err := hasTable(ctx, engine, reader, VersionTable)
	if err != nil {
		return err
	}
	if there {
		if err := reader.QueryRowContext(ctx, "SELECT max(version_id) FROM "+VersionTable).Scan(&version); err != nil {
			return driver.WrapError("read the version of the store", err)
		}
	}
	switch newest := versions[len(versions)-1].Number; {
	case version > newest:
		return fmt.Errorf("%w (its tables have version %d, this program's %d)", ErrNewer, version, newest)
	case version < newest:
		return fmt.Errorf("%w (its tables have version %d, this program's %d)", ErrOlder, version, newest)
	}
	return nil
}

// Migrate brings a database to the last of versions. Several processes may call it concurrently, see store.DB.Migrate. It returns
// [ErrUnreleased] and [ErrNewer] as [Check] does.
func Migrate(ctx context.Context, engine driver.Engine, conn *sql.DB, versions []Version) error {
	if err := Check(ctx, engine, conn, versions); !errors.Is(err, ErrOlder) {
		return err
	}
	migrations := make([]*goose.Migration, len(versions))
	for i, version := range versions {
		migrations[i] = goose.NewGoMigration(version.Number, &goose.GoFunc{RunTx: version.run}, nil)
	}
	dialect := goose.DialectSQLite3
	options := []goose.ProviderOption{
		goose.WithDisableGlobalRegistry(true),
		goose.WithTableName(VersionTable),
		goose.WithLogger(goose.NopLogger()),
		goose.WithGoMigrations(migrations...),
	}
	if engine == driver.Postgres {
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
	// It retries if a table stays locked.
	for until := time.Now().Add(migrateLockSeconds * time.Second); ; {
		_, err := provider.Up(ctx)
		if driver.PostgresCode(err) != driver.LockNotAvailable || time.Now().After(until) {
			return err
		}
		if ended := repeat.Pause(ctx, repeat.Around(migrateAgain)); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// run applies the version in goose's transaction, which on SQLite holds the write lock from its beginning. A process that had to wait for that
// lock finds the version applied and does nothing.
func (v Version) run(ctx context.Context, tx *sql.Tx) error {
	var rows int
	row := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+VersionTable+" WHERE version_id = $1", v.Number)
	if err := row.Scan(&rows); err != nil {
		return fmt.Errorf("look for version %d: %w", v.Number, err)
	}
	if rows > 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, v.DDL); err != nil {
		return fmt.Errorf("version %d: %w", v.Number, err)
	}
	return nil
}

func hasTable(ctx context.Context, engine driver.Engine, conn Queryer, name string) (bool, error) {
	text := `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = $1`
	if engine == driver.Postgres {
		text = `SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = $1`
	}
	var found int64
	if err := conn.QueryRowContext(ctx, text, name).Scan(&found); err != nil {
		return false, driver.WrapError("look for the table "+name, err)
	}
	return found > 0, nil
}

//go:embed schema.sql
var first string

// Version is a version of the schema, which is applied in one transaction.
type Version struct {
	Number int64
	DDL    string // for its engine
}

// Versions returns every version of the schema, oldest first.
//
// Until the first release a new table or column is a change of schema.sql, later a new version at the end, in the same words; a released
// version never changes. A later version only expands: it adds tables, columns and indexes, because old and new processes share a database
// during a roll-out.
func Versions(engine driver.Engine) []Version {
	return []Version{{Number: 1, DDL: Dialect(engine, first)}}
}

// Newest returns the schema version that this program brings a store to.
func Newest(engine driver.Engine) int64 {
	all := Versions(engine)
	return all[len(all)-1].Number
}

// Table is a table that both engines have.
type Table struct {
	Name    string
	Columns []Column
}

// Column is a column that both engines have. Type is TEXT, BIGINT, BYTEA or BOOLEAN.
type Column struct{ Name, Type string }

var (
	tableLine  = regexp.MustCompile(`^CREATE TABLE (\w+) \($`)
	columnLine = regexp.MustCompile(`^\t(\w+) +(TEXT|BIGINT|BYTEA|BOOLEAN)\b`)
)

// Tables returns the tables of the newest version, each after the tables that its foreign keys name.
func Tables() (tables []Table) {
	for line := range strings.Lines(linesFor("", first)) {
		if table := tableLine.FindStringSubmatch(strings.TrimSpace(line)); table != nil {
			tables = append(tables, Table{Name: table[1]})
		} else if column := columnLine.FindStringSubmatch(line); column != nil {
			last := &tables[len(tables)-1]
			last.Columns = append(last.Columns, Column{column[1], column[2]})
		}
	}
	return tables
}

// Dialect puts DDL in the words of schema.sql into the engine's. On SQLite tables are STRICT, so that both engines refuse a value of the wrong
// type. A {table} is WITHOUT ROWID there, which saves one B-tree for each text key; not so a {long table}, whose rows are many pages long:
// each comparison on the way to a row would read the whole row that it compares. On PostgreSQL a {hot table}, whose rows are updated again
// and again, leaves room on its pages for the new versions. Texts compare byte by byte there, as on SQLite: by the rules of a database's
// language each step of a search in an index takes several times as long, and an index is wrong after an upgrade that changes the rules.
func Dialect(engine driver.Engine, ddl string) string {
	words := strings.NewReplacer(
		"BIGINT", "INTEGER", "BYTEA", "BLOB", "BOOLEAN", "INTEGER",
		"{table}", "STRICT, WITHOUT ROWID", "{hot table}", "STRICT, WITHOUT ROWID", "{long table}", "STRICT",
	)
	if engine == driver.Postgres {
		words = strings.NewReplacer("TEXT", `TEXT COLLATE "C"`, " {table}", "", " {hot table}", " WITH (fillfactor = 50)", " {long table}", "")
	}
	return words.Replace(linesFor(engine, ddl))
}

// linesFor returns the lines that are for the engine: all except the lines between another engine's name and the next mark.
func linesFor(engine driver.Engine, ddl string) string {
	var text strings.Builder
	wanted := true
	for line := range strings.Lines(ddl) {
		switch mark := strings.TrimSpace(line); mark {
		case "-- sqlite", "-- postgres", "-- both":
			wanted = mark == "-- both" || mark == "-- "+string(engine)
		default:
			if wanted {
				text.WriteString(line)
			}
		}
	}
	return text.String()
}
