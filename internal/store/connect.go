package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// maxReaders bounds the connections of [DB.Reader] on SQLite.
	maxReaders = 8
	// walPatience bounds how long a new file is tried to be put into WAL mode while others use it.
	walPatience = 5 * time.Second
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

func (db *DB) connectPostgres(ctx context.Context) (conn writerConn, err error) {
	if db.pools, err = openPostgresPools(ctx, db.location); err != nil {
		return nil, err
	}
	if err := db.pools.ping(ctx); err != nil {
		return nil, err
	}
	db.reader = stdlib.OpenDBFromPool(db.pools.reads)
	db.hot = newPostgresHotReader(db.pools.work)
	return newPostgresWriter(db.pools, db.location.Direct != ""), nil
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
	config, err := pgxpool.ParseConfig(location.session()) // takes the pool_* settings out
	if err != nil {
		return nil, errPostgresDSN
	}
	boundConnect(&config.ConnConfig.Config)
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(setMigrationSession)), nil
}
