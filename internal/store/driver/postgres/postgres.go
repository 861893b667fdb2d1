// Package postgres is the driver of PostgreSQL: a pool for requests and a pool for everything else, with a deadline for each use, and a
// writer that sends a transaction in as few round trips as possible.
//
// It works through a pooler in transaction mode where the location has a direct address for migrations and LISTEN.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// Driver is an open PostgreSQL database.
type Driver struct {
	location driver.Location
	pools    *connPools
	writer   *writerConn
	reader   *sql.DB
	hot      *hotReader
}

// Open connects to a PostgreSQL database.
func Open(ctx context.Context, location driver.Location) (opened *Driver, err error) {
	d := &Driver{location: location}
	d.pools, err = openPools(ctx, location)
	if err == nil {
		err = d.pools.ping(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.pools.close(ctx))
	}
	d.reader = stdlib.OpenDBFromPool(d.pools.reads)
	d.hot = newHotReader(d.pools.work)
	d.writer = newWriterConn(d.pools, location.Direct != "")
	return d, nil
}

// Writer implements [driver.Driver].
func (d *Driver) Writer() driver.Writer { return d.writer }

// Reader implements [driver.Driver].
func (d *Driver) Reader() *sql.DB { return d.reader }

// HotReader implements [driver.Driver].
func (d *Driver) HotReader() driver.HotReader { return d.hot }

// Now implements [driver.Driver].
func (d *Driver) Now(ctx context.Context) (now int64, err error) {
	err = d.reader.QueryRowContext(ctx, "SELECT "+ClockSQL).Scan(&now)
	return now, err
}

// Listen implements [driver.Driver].
func (d *Driver) Listen(ctx context.Context, channel string, use func(driver.Wait) error) error {
	conn, err := d.pools.sessions.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	failed := use(func(ctx context.Context, atMost time.Duration) (bool, error) {
		bounded, cancel := context.WithTimeout(ctx, atMost)
		defer cancel()
		_, err := conn.Conn().WaitForNotification(bounded) // which leaves the connection usable only after its deadline
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case pgconn.Timeout(err):
			return false, nil
		}
		return false, driver.WrapError("store: wait for a notification", err)
	})
	// The connection goes back to the pool, so it must get no more notifications; otherwise it is closed.
	if _, err := conn.Exec(context.WithoutCancel(ctx), "UNLISTEN *"); err != nil {
		err = errors.Join(err, conn.Conn().Close(context.WithoutCancel(ctx)))
		return errors.Join(failed, driver.WrapError("stop listening", err))
	}
	return failed
}

// Committed implements [driver.Driver]: it returns nil, because PostgreSQL reports notifications only.
func (*Driver) Committed() <-chan struct{} { return nil }

// ForMigration implements [driver.Driver]. It uses the direct address, if there is one.
func (d *Driver) ForMigration(ctx context.Context) (conn *sql.DB, done func() error, err error) {
	conn, err = d.unbounded()
	if err != nil {
		return nil, nil, err
	}
	if err := d.sameDatabase(ctx, conn); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, conn.Close, nil
}

// unbounded opens a session without the bounds of everyday statements.
func (d *Driver) unbounded() (*sql.DB, error) {
	config, err := pgxpool.ParseConfig(d.location.SessionDSN()) // takes the pool_* settings out
	if err != nil {
		return nil, driver.ErrPostgresDSN
	}
	boundConnect(&config.ConnConfig.Config)
	// The session bounds the wait of others for a migration, but not the migration itself.
	settings := noticeVanished(idleInReadTimeout) + fmt.Sprintf("SET lock_timeout = %d", driver.MigrationLockTimeout.Milliseconds())
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(setSession(settings))), nil
}

// errOtherDatabase: the two addresses of a location don't lead to the same place.
var errOtherDatabase = errors.New("the direct address leads to another database or server than the first one")

// sameDatabase makes sure that a direct address and the first one are about the same database of the same server.
func (d *Driver) sameDatabase(ctx context.Context, direct *sql.DB) error {
	if d.location.Direct == "" {
		return nil
	}
	var places [2]struct{ name, started string }
	for i, conn := range []*sql.DB{d.reader, direct} {
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

// Snapshot implements [driver.Driver]. It has a connection of its own: everyday reads have bounds, which are not for a table that
// is read whole, at the pace of its reader.
func (d *Driver) Snapshot(ctx context.Context) (reader driver.SnapshotReader, done func() error, err error) {
	conn, err := d.unbounded()
	if err != nil {
		return nil, nil, err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, errors.Join(driver.WrapError("begin a snapshot", err), conn.Close())
	}
	done = func() error {
		err := tx.Rollback()
		if errors.Is(err, sql.ErrTxDone) { // ctx has ended
			err = nil
		}
		return errors.Join(driver.WrapError("end the snapshot", err), conn.Close())
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return nil, nil, errors.Join(driver.WrapError("begin a snapshot", err), done())
	}
	return tx, done, nil
}

// BackupTo implements [driver.Driver]: pg_dump does it better.
func (d *Driver) BackupTo(context.Context, string) error {
	return fmt.Errorf("back up: %w: use pg_dump", driver.ErrUnsupported)
}

// WALBytes implements [driver.Driver].
func (d *Driver) WALBytes() int64 { return 0 }

// Connections returns the number of the process's connections, including connections that are being made or closed. Tests bound it.
func (d *Driver) Connections() int32 {
	return d.pools.work.Stat().TotalConns() + d.pools.reads.Stat().TotalConns()
}

// Close implements [driver.Driver]. It waits for reads that are still open for as long as ctx allows.
func (d *Driver) Close(ctx context.Context) error {
	return errors.Join(d.writer.Close(), d.hot.Close(), d.reader.Close(), d.pools.close(ctx))
}

// Interface guard.
