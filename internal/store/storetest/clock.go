package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

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
