package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// maxReaders bounds the connections of [DB.Reader] on SQLite.
	maxReaders = 8
	// maxPostgresConns bounds the pool unless the DSN has pool_max_conns: one writes, one answers key lookups, the
	// others read for management requests.
	maxPostgresConns = 16
	// walPatience bounds how long a new file is tried to be put into WAL mode while others use it.
	walPatience = 5 * time.Second
)

// Bounds the server itself keeps, so that a stopped process can't hold a row lock for ever: milliseconds.
const (
	statementTimeout         = "5000"
	idleInTransactionTimeout = "10000"
)

func (db *DB) connectSQLite(ctx context.Context) (writerConn, error) {
	path := db.location.DSN
	if err := prepareFile(path); err != nil {
		return nil, err
	}
	conn, err := newSQLiteWriter(ctx, path, db.clock)
	if err != nil {
		return nil, err
	}
	if err := setWAL(ctx, conn.conn); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	if db.reader, err = openSQLite(path, sqliteReaderPragmas); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	db.reader.SetMaxOpenConns(maxReaders)
	db.reader.SetMaxIdleConns(maxReaders)
	if db.hot, err = openSQLiteHotReader(ctx, path, db.clock); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	return conn, nil
}

// setWAL puts the file into WAL mode, which stays with it. SQLite doesn't ask the busy handler for this, so a second
// process that opens the new file at the same moment must ask again.
func setWAL(ctx context.Context, conn *sqliteConn) error {
	deadline := time.Now().Add(walPatience)
	for {
		var mode string
		err := conn.query("PRAGMA journal_mode = WAL", []driver.NamedValue{}, func(row Row) error { return row.Scan(&mode) })
		switch {
		case err == nil && mode == "wal":
			return nil
		case err == nil:
			return fmt.Errorf("the file system allows no write-ahead log (journal mode %s)", mode)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, ErrBusy) || time.Now().After(deadline):
			return err
		}
		preciseSleep(turnPollSlow)
	}
}

func (db *DB) connectPostgres(ctx context.Context) (writerConn, error) {
	config, err := pgxpool.ParseConfig(db.location.DSN)
	if err != nil {
		return nil, errPostgresDSN
	}
	if !strings.Contains(db.location.DSN, "pool_max_conns=") {
		config.MaxConns = maxPostgresConns
	}
	parameters := config.ConnConfig.RuntimeParams
	parameters["statement_timeout"] = statementTimeout
	parameters["idle_in_transaction_session_timeout"] = idleInTransactionTimeout
	if parameters["application_name"] == "" {
		parameters["application_name"] = "caddy-svc"
	}
	if db.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, sqlError("connect to PostgreSQL", err)
	}
	if err := db.pool.Ping(ctx); err != nil {
		return nil, sqlError("connect to PostgreSQL", err)
	}
	db.reader = stdlib.OpenDBFromPool(db.pool)
	db.hot = newPostgresHotReader(db.pool)
	return &postgresWriter{pool: db.pool}, nil
}

// openForMigration is a connection without the bounds of everyday statements, because a migration may take long.
func openForMigration(location Location) (*sql.DB, error) {
	if location.Engine == SQLite {
		db, err := openSQLite(location.DSN, sqliteWriterPragmas)
		if err == nil {
			db.SetMaxOpenConns(1)
		}
		return db, err
	}
	config, err := pgxpool.ParseConfig(location.DSN) // takes the pool_* settings out
	if err != nil {
		return nil, errPostgresDSN
	}
	return stdlib.OpenDB(*config.ConnConfig), nil
}
