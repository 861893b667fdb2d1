package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite"
)

// What every SQLite connection is told (design §7). busy_timeout (ms) is the backstop when the turnstile could not
// order the writers; journal_size_limit (bytes) is what a checkpoint leaves of the WAL file; wal_autocheckpoint (pages)
// has a page written back once for many commits that changed it; temp_store keeps what a savepoint would restore in
// memory; recursive_triggers makes REPLACE fire the append-only triggers.
var (
	sqlitePragmas       = []string{"busy_timeout(5000)", "foreign_keys(1)", "recursive_triggers(1)"}
	sqliteWriterPragmas = append(slices.Clip(sqlitePragmas),
		"synchronous(FULL)", "journal_size_limit(67108864)", "cache_size(-16384)", "temp_store(MEMORY)", "wal_autocheckpoint(4000)")
	sqliteReaderPragmas = append(slices.Clip(sqlitePragmas), "query_only(1)")
)

// sqliteConnector opens connections to a database file. A transaction that database/sql begins on one takes the
// write lock at once, because one that reads first and writes later can't wait for it.
func sqliteConnector(path string, pragmas []string) (driver.Connector, error) {
	query := url.Values{"_pragma": pragmas, "_dqs": {"0"}, "_txlock": {"immediate"}}
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	return sqlite.NewConnector(name)
}

// openSQLite is a database/sql pool of connections to a database file.
func openSQLite(path string, pragmas []string) (*sql.DB, error) {
	connector, err := sqliteConnector(path, pragmas)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// sqliteStatement is a prepared statement of the SQLite driver.
type sqliteStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// maxStatements bounds the prepared statements a connection keeps; our SQL texts are fewer.
const maxStatements = 512

// sqliteConn is one connection of the driver, without database/sql, which costs several times what a prepared
// statement costs (notes/performance.md §4). It keeps every statement prepared. One goroutine uses it at a time.
type sqliteConn struct {
	conn       driver.Conn
	preparer   driver.ConnPrepareContext
	statements map[string]sqliteStatement
}

func dialSQLite(ctx context.Context, path string, pragmas []string) (*sqliteConn, error) {
	connector, err := sqliteConnector(path, pragmas)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, sqlError("open SQLite", err)
	}
	preparer, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, errors.Join(errors.New("open SQLite: the driver can't prepare"), conn.Close())
	}
	return &sqliteConn{conn: conn, preparer: preparer, statements: map[string]sqliteStatement{}}, nil
}

// prepare answers the kept statement of a text, or prepares it.
func (c *sqliteConn) prepare(text string) (sqliteStatement, error) {
	if statement, ok := c.statements[text]; ok {
		return statement, nil
	}
	prepared, err := c.preparer.PrepareContext(context.Background(), positional(text))
	if err != nil {
		return nil, sqlError("prepare", err)
	}
	statement, ok := prepared.(sqliteStatement)
	if !ok {
		return nil, errors.Join(errors.New("prepare: the driver lacks statements with context"), prepared.Close())
	}
	if len(c.statements) >= maxStatements {
		if err := c.forget(); err != nil {
			return nil, errors.Join(err, prepared.Close())
		}
	}
	c.statements[text] = statement
	return statement, nil
}

// positional writes the parameters $1, $2, … as question marks, if they stand in this order and each only once. SQLite
// looks named ones up in a list, from its beginning, which for a list of rows grows with the square of its length.
func positional(text string) string {
	var plain strings.Builder
	rest := text
	for next := 1; ; next++ {
		before, after, found := strings.Cut(rest, "$")
		plain.WriteString(before)
		if !found {
			return plain.String()
		}
		number := strconv.Itoa(next)
		tail, isNext := strings.CutPrefix(after, number)
		if !isNext || tail != "" && tail[0] >= '0' && tail[0] <= '9' || strings.Count(before, "'")%2 != 0 {
			return text
		}
		plain.WriteByte('?')
		rest = tail
	}
}

// exec runs a statement and answers how many rows it changed. It takes a context without Done, because the driver
// starts a goroutine for any other: it can't be interrupted.
func (c *sqliteConn) exec(text string, arguments []driver.NamedValue) (int64, error) {
	statement, err := c.prepare(text)
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(context.Background(), arguments)
	if err != nil {
		return 0, sqlError("run "+verb(text), err)
	}
	return result.RowsAffected()
}

// query runs a statement and hands each row to each, whose error ends it. It can't be interrupted, as exec.
func (c *sqliteConn) query(text string, arguments []driver.NamedValue, each func(Row) error) (err error) {
	statement, err := c.prepare(text)
	if err != nil {
		return err
	}
	rows, err := statement.QueryContext(context.Background(), arguments)
	if err != nil {
		return sqlError("run "+verb(text), err)
	}
	defer func() {
		if closed := rows.Close(); err == nil && closed != nil {
			err = sqlError("end "+verb(text), closed)
		}
	}()
	row := make(sqliteRow, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return sqlError("read "+verb(text), err)
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// forget drops the prepared statements.
func (c *sqliteConn) forget() error {
	var failed error
	for _, statement := range c.statements {
		failed = errors.Join(failed, statement.Close())
	}
	clear(c.statements)
	return failed
}

func (c *sqliteConn) close() error {
	return errors.Join(c.forget(), c.conn.Close())
}

// verb is the first word of a statement, which says in an error what was run without repeating what was written.
func verb(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	word, _, _ = strings.Cut(word, "\n")
	return word
}
