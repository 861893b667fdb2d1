package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// maxReads bounds the statements that a connection of the reader keeps prepared.
const maxReads = 128

// openReader returns a pool of reading connections. They keep their queries prepared, because SQLite needs more time to prepare most of ours
// than to run them.
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

func (c readerConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.Join(errors.New("open SQLite: the driver's connection lacks methods"), conn.Close())
	}
	return &readerConn{fullConn: full, queries: map[string]*keptQuery{}}, nil
}

// fullConn is a connection of the SQLite driver with the methods that database/sql looks for.
type fullConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.Pinger
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

// readerConn is a connection of the reader. database/sql lets one goroutine use it at a time.
type readerConn struct {
	fullConn

	queries map[string]*keptQuery // by text
}

// keptQuery is a prepared query.
type keptQuery struct {
	preparedStatement

	open bool // its rows are being read
}

// QueryContext implements [sqldriver.QueryerContext].
func (c *readerConn) QueryContext(ctx context.Context, text string, arguments []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if !strings.HasPrefix(text, "SELECT") && !strings.HasPrefix(text, "WITH") { // such as a PRAGMA, which may act when it is prepared
		return c.fullConn.QueryContext(ctx, text, arguments)
	}
	query, err := c.query(ctx, text)
	if err != nil {
		return nil, err
	}
	if query.open {
		return c.fullConn.QueryContext(ctx, text, arguments)
	}
	rows, err := query.QueryContext(ctx, arguments)
	if err != nil {
		return nil, err
	}
	query.open = true
	return &keptRows{rows, query}, nil
}

// query returns the prepared query of a text.
func (c *readerConn) query(ctx context.Context, text string) (*keptQuery, error) {
	if query := c.queries[text]; query != nil {
		return query, nil
	}
	if len(c.queries) >= maxReads {
		if err := c.forget(); err != nil {
			return nil, err
		}
	}
	prepared, err := c.PrepareContext(ctx, steady(text))
	if err != nil {
		return nil, err
	}
	statement, ok := prepared.(preparedStatement)
	if !ok {
		return nil, errors.Join(errors.New("prepare: the driver lacks statements with context"), prepared.Close())
	}
	c.queries[text] = &keptQuery{preparedStatement: statement}
	return c.queries[text], nil
}

// forget closes and drops all queries except the ones that are being read.
func (c *readerConn) forget() error {
	var failed error
	for text, query := range c.queries {
		if !query.open {
			failed = errors.Join(failed, query.Close())
			delete(c.queries, text)
		}
	}
	return failed
}

// Close implements [sqldriver.Conn]. SQLite keeps a connection open that has statements.
func (c *readerConn) Close() error {
	var failed error
	for _, query := range c.queries {
		failed = errors.Join(failed, query.Close())
	}
	return errors.Join(failed, c.fullConn.Close())
}

// keptRows are the rows of a kept query.
type keptRows struct {
	sqldriver.Rows

	query *keptQuery
}

// Close implements [sqldriver.Rows].
func (r *keptRows) Close() error {
	r.query.open = false
	return r.Rows.Close()
}
