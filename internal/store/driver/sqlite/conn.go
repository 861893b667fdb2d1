package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// The settings of every SQLite connection. busy_timeout (ms) is the backstop when the write lock could not order the writers. journal_size_limit
// (bytes) limits the WAL file after a checkpoint. wal_autocheckpoint (pages) lets a page be written back once for many commits that changed it.
// temp_store keeps the undo data of savepoints in memory. recursive_triggers makes REPLACE fire the append-only triggers. secure_delete overwrites
// deleted rows with zeros.
var (
	busyTimeout   = "busy_timeout(5000)"
	commonPragmas = []string{busyTimeout, "foreign_keys(1)", "recursive_triggers(1)"}
	readerPragmas = append(slices.Clip(commonPragmas), "query_only(1)")
	durable       = []string{
		"synchronous(FULL)", "journal_size_limit(67108864)", "cache_size(-16384)", "temp_store(MEMORY)", "wal_autocheckpoint(4000)",
		"secure_delete(1)",
	}
	writerPragmas = slices.Concat(commonPragmas, durable)
	// A migration can rebuild a table only where foreign keys are not enforced, see [Driver.ForMigration].
	migrationPragmas = slices.Concat([]string{busyTimeout, "foreign_keys(0)", "recursive_triggers(1)"}, durable)
)

// newConnector opens connections to a database file. A transaction of database/sql acquires the write lock when it begins, because a transaction
// that reads first and writes later can't wait for it.
func newConnector(path string, pragmas []string) (sqldriver.Connector, error) {
	query := url.Values{"_pragma": pragmas, "_dqs": {"0"}, "_txlock": {"immediate"}}
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
	return sqlite.NewConnector(name)
}

// openPool is a database/sql pool of connections to a database file.
func openPool(path string, pragmas []string) (*sql.DB, error) {
	connector, err := newConnector(path, pragmas)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// preparedStatement is a prepared statement of the SQLite driver.
type preparedStatement interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// keptStatement is a prepared statement with the parts that it changes.
type keptStatement struct {
	preparedStatement
	changes parts
	erases  bool // it deletes what is stored about customers
	news    bool // it may change rows that others wait for
	open    bool // database/sql is reading its rows
}

// The bounds of the prepared statements that a connection keeps. Our own SQL texts are fewer than maxStatements.
const (
	maxStatements = 512
	maxReads      = 128 // of a connection in a pool, which also runs texts that were put together
)

// driverConn is a connection of the SQLite driver with the methods that database/sql looks for.
type driverConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.Pinger
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

// preparedConn is one connection of the driver that keeps its statements prepared, because SQLite needs more time to prepare most of ours
// than to run them. Its own methods run them without database/sql, which costs several times as much as a prepared statement; database/sql
// may use it as well ([openReader]). One goroutine uses it at a time.
type preparedConn struct {
	driverConn
	statements map[string]*keptStatement // by text
	most       int
	changed    parts // by the statements of the transaction
	erased     bool  // one of them deletes what is stored about customers
	news       bool  // one of them changed a row that others may wait for
	ran        int   // statements so far
	bound      []sqldriver.NamedValue
}

func dial(ctx context.Context, path string, pragmas []string) (*preparedConn, error) {
	connector, err := newConnector(path, pragmas)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	return connect(ctx, connector, maxStatements)
}

// connect opens a connection that keeps the given number of statements prepared.
func connect(ctx context.Context, connector sqldriver.Connector, most int) (*preparedConn, error) {
	opened, err := connector.Connect(ctx)
	if err != nil {
		return nil, driver.WrapError("open SQLite", err)
	}
	conn, ok := opened.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("open SQLite: the driver's connection lacks methods"), opened.Close())
	}
	return &preparedConn{driverConn: conn, statements: map[string]*keptStatement{}, most: most}, nil
}

// openReader returns a pool of connections that only read.
func openReader(path string) (*sql.DB, error) {
	connector, err := newConnector(path, readerPragmas)
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	pool := sql.OpenDB(readerConnector{connector})
	pool.SetMaxOpenConns(maxReaders)
	pool.SetMaxIdleConns(maxReaders)
	return pool, nil
}

type readerConnector struct{ sqldriver.Connector }

// Connect implements [sqldriver.Connector].
func (c readerConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	return connect(ctx, c.Connector, maxReads)
}

// prepare returns the kept statement of a text, or prepares it.
func (c *preparedConn) prepare(text string) (*keptStatement, error) {
	if statement := c.statements[text]; statement != nil {
		return statement, nil
	}
	if len(c.statements) >= c.most {
		if err := c.forget(); err != nil {
			return nil, err
		}
	}
	prepared, err := c.PrepareContext(context.Background(), steady(text))
	if err != nil {
		return nil, driver.WrapError("prepare", err)
	}
	statement, ok := prepared.(preparedStatement)
	if !ok {
		return nil, errors.Join(errors.New("prepare: the driver lacks statements with context"), prepared.Close())
	}
	// News are the statements that may change rows that others wait for. The signs of life of processes would wake every idle process,
	// several times a minute.
	news := writing.MatchString(text) && !signsOfLife.MatchString(text)
	kept := &keptStatement{statement, partsChanged(text), erasing.MatchString(text), news, false}
	c.statements[text] = kept
	return kept, nil
}

var (
	writing     = regexp.MustCompile(`(?i)\b(?:INSERT|REPLACE|UPDATE|DELETE)\b`)
	signsOfLife = regexp.MustCompile(`(?i)\b(?:INTO|UPDATE|FROM)\s+processes\b`)
)

// limits finds the parameters of LIMIT.
var limits = regexp.MustCompile(`\bLIMIT (\$|\?)`)

// steady returns a text that SQLite prepares once: its parameters are positional, and with a plus before the parameter of LIMIT, SQLite
// doesn't plan the statement by its value, and anew for each value.
func steady(text string) string { return limits.ReplaceAllString(positional(text), "LIMIT +$1") }

// positional replaces the parameters $1, $2, … by question marks if they are in this order and each occurs once. SQLite searches named ones in a
// list from its beginning, which for a list of rows grows with the square of its length.
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

// statement prepares a text of the transaction, and records the effects of running it.
func (c *preparedConn) statement(text string) (*keptStatement, error) {
	c.ran++
	statement, err := c.prepare(text)
	if err != nil {
		return nil, err
	}
	for i, changes := range statement.changes {
		c.changed[i] = c.changed[i] || changes
	}
	c.erased = c.erased || statement.erases
	return statement, nil
}

// exec runs a statement and returns how many rows it changed. The context has no Done channel, because the driver
// starts a goroutine for any other: it can't be interrupted.
func (c *preparedConn) exec(text string, arguments ...any) (int64, error) {
	bound, err := c.bind(arguments)
	if err != nil {
		return 0, err
	}
	defer clear(bound)
	statement, err := c.statement(text)
	if err != nil {
		return 0, err
	}
	result, err := statement.ExecContext(context.Background(), bound)
	if err != nil {
		return 0, driver.WrapError("run "+driver.Verb(text), err)
	}
	affected, err := result.RowsAffected()
	c.news = c.news || statement.news && affected > 0
	return affected, err
}

// query runs a statement and calls each for every row until each returns an error. Like exec, it can't be interrupted.
func (c *preparedConn) query(each func(driver.Row) error, text string, arguments ...any) (err error) {
	bound, err := c.bind(arguments)
	if err != nil {
		return err
	}
	statement, err := c.statement(text)
	if err != nil {
		return err
	}
	rows, err := statement.QueryContext(context.Background(), bound)
	clear(bound)
	if err != nil {
		return driver.WrapError("run "+driver.Verb(text), err)
	}
	defer func() {
		if closed := rows.Close(); err == nil && closed != nil {
			err = driver.WrapError("end "+driver.Verb(text), closed)
		}
	}()
	row := make(resultRow, len(rows.Columns()))
	for {
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return driver.WrapError("read "+driver.Verb(text), err)
		}
		c.news = c.news || statement.news
		if err := each(row); err != nil {
			return err
		}
	}
}

// QueryContext implements [sqldriver.QueryerContext]. Statements other than SELECT, such as a PRAGMA, may act when they are prepared, and are not
// kept. Neither is a second statement of a text while rows of the first are being read.
func (c *preparedConn) QueryContext(ctx context.Context, text string, arguments []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if !strings.HasPrefix(text, "SELECT") && !strings.HasPrefix(text, "WITH") {
		return c.driverConn.QueryContext(ctx, text, arguments)
	}
	statement, err := c.prepare(text)
	if err != nil {
		return nil, err
	}
	if statement.open {
		return c.driverConn.QueryContext(ctx, text, arguments)
	}
	rows, err := statement.QueryContext(ctx, arguments)
	if err != nil {
		return nil, err
	}
	statement.open = true
	return &keptRows{rows, statement}, nil
}

// keptRows are the rows of a kept statement that database/sql reads.
type keptRows struct {
	sqldriver.Rows
	statement *keptStatement
}

// Close implements [sqldriver.Rows].
func (r *keptRows) Close() error {
	r.statement.open = false
	return r.Rows.Close()
}

// forget closes and drops all statements, except while their rows are being read.
func (c *preparedConn) forget() error {
	var failed error
	for text, statement := range c.statements {
		if !statement.open {
			failed = errors.Join(failed, statement.Close())
			delete(c.statements, text)
		}
	}
	return failed
}

// Close implements [sqldriver.Conn]. SQLite keeps a connection open that has statements.
func (c *preparedConn) Close() error {
	var failed error
	for _, statement := range c.statements {
		failed = errors.Join(failed, statement.Close())
	}
	return errors.Join(failed, c.driverConn.Close())
}

// bind returns a statement's arguments in the form of the SQLite driver, in memory that the next statement reuses.
func (c *preparedConn) bind(arguments []any) ([]sqldriver.NamedValue, error) {
	c.bound = slices.Grow(c.bound[:0], len(arguments))
	for i, argument := range arguments {
		value, err := driver.BindValue(argument)
		if err != nil {
			clear(c.bound)
			return nil, fmt.Errorf("argument $%d: %w", i+1, err)
		}
		c.bound = append(c.bound, sqldriver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return c.bound, nil
}

// resultRow is the current row of a query on the SQLite driver.
type resultRow []sqldriver.Value

// Scan copies the columns into dest, see [driver.Row].
func (r resultRow) Scan(dest ...any) error {
	if len(dest) != len(r) {
		return fmt.Errorf("store: the row has %d columns, scanned into %d", len(r), len(dest))
	}
	for i, column := range r {
		if !scanColumn(dest[i], column) {
			return fmt.Errorf("store: column %d of type %T can't be scanned into %T", i+1, column, dest[i])
		}
	}
	return nil
}

// scanColumn copies one column, and reports whether the types fit. A NULL fits a nullable value and bytes, which it makes nil.
func scanColumn(dest any, column sqldriver.Value) bool {
	var ok bool
	switch to := dest.(type) {
	case *sql.NullInt64:
		to.Int64, to.Valid = column.(int64)
		return to.Valid || column == nil
	case *sql.NullString:
		to.String, to.Valid = column.(string)
		return to.Valid || column == nil
	case *[]byte: // which the driver has copied already
		if *to, ok = column.([]byte); ok && *to == nil {
			*to = []byte{}
		}
		return ok || column == nil
	case *string:
		*to, ok = column.(string)
	case *driver.Env:
		var text string
		text, ok = column.(string)
		*to = driver.Env(text)
	case *int64:
		*to, ok = column.(int64)
	case *int:
		var number int64
		number, ok = column.(int64)
		*to = int(number)
	case *bool:
		var number int64
		number, ok = column.(int64)
		*to = number != 0
	}
	return ok
}
