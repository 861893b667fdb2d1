package store_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// Parameters bind by their number, not by the order they appear in, in the writer and in the reader.
func TestParametersBindByNumber(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		write(t, db, `CREATE TABLE bound (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT, c TEXT)`)
		write(t, db, `INSERT INTO bound (c, b, a, id) VALUES ($4, $3, $2, $1)`, 1, 20, 30, "forty")
		write(t, db, `UPDATE bound SET a = a + $2, b = b + $2, c = $3 WHERE id = $1 AND b > $2`, 1, 5, "repeated")
		write(t, db, `INSERT INTO bound (id, a, b, c) VALUES ($11, $2, $3, $4), ($5, $2, $7, $10), ($6, $8, $9, $1)`,
			"one", 2, 3, "four", 5, 6, 7, 8, 9, "ten", 11)

		type line struct {
			ID, A, B int64
			C        string
		}
		want := []line{{1, 25, 35, "repeated"}, {5, 2, 7, "ten"}, {6, 8, 9, "one"}, {11, 2, 3, "four"}}
		const query = `SELECT c, b, a, id FROM bound WHERE id >= $2 AND id <= $1 AND id <> $3 AND a <> $3 ORDER BY id`
		var seen []line
		scan := func(row store.Row) error {
			var next line
			err := row.Scan(&next.C, &next.B, &next.A, &next.ID)
			seen = append(seen, next)
			return err
		}
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			return tx.Query(ctx, scan, query, 100, 1, 50)
		}))
		require.Equal(t, want, seen)

		seen = nil
		rows, err := db.Reader().QueryContext(t.Context(), query, int64(100), int64(1), int64(50))
		require.NoError(t, err)
		defer rows.Close() // read to the end
		for rows.Next() {
			require.NoError(t, scan(rows))
		}
		require.NoError(t, rows.Err())
		require.Equal(t, want, seen)
	})
}

// A value comes back as what it was, NULL included, on both engines.
func TestValuesSurvive(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		blob := "BYTEA"
		if db.Engine() == store.SQLite {
			blob = "BLOB"
		}
		write(t, db, `CREATE TABLE vals (id BIGINT PRIMARY KEY, n BIGINT, s TEXT, b `+blob+`, t BOOLEAN)`)
		const insert = `INSERT INTO vals (id, n, s, b, t) VALUES ($1, $2, $3, $4, $5)`
		text := "Xin chào 👋 '\"\\%_ \u2028 \U0010FFFF" + strings.Repeat("ễ", 100_000)
		write(t, db, insert, 1, int64(-1<<63), text, []byte{0, 255, 0}, true)
		write(t, db, insert, 2, nil, nil, nil, nil)
		write(t, db, insert, 3, sql.NullInt64{Int64: 1<<63 - 1, Valid: true}, "", []byte{}, false)
		write(t, db, insert, 4, sql.NullInt64{}, sql.NullString{}, []byte(nil), false)
		write(t, db, insert, 5, 7, store.Live, []byte("x"), true)
		write(t, db, insert, 6, 7, sql.NullString{String: "s", Valid: true}, []byte("x"), true)

		type values struct {
			N sql.NullInt64
			S sql.NullString
			B []byte
		}
		var seen []values
		const query = `SELECT n, s, b FROM vals ORDER BY id`
		read := func(row store.Row) error {
			var next values
			err := row.Scan(&next.N, &next.S, &next.B)
			seen = append(seen, next)
			return err
		}
		null, number := sql.NullInt64{}, func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
		some := func(s string) sql.NullString { return sql.NullString{String: s, Valid: true} }
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error { return tx.Query(ctx, read, query) }))
		require.Equal(t, []values{
			{number(-1 << 63), some(text), []byte{0, 255, 0}},
			{null, sql.NullString{}, nil},
			{number(1<<63 - 1), some(""), []byte{}},
			{null, sql.NullString{}, nil},
			{number(7), some("live"), []byte("x")},
			{number(7), some("s"), []byte("x")},
		}, seen)

		var n int
		var b bool
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			return tx.Query(ctx, func(row store.Row) error { return row.Scan(&n, &b) }, `SELECT n, t FROM vals WHERE id = 5`)
		}))
		require.Equal(t, 7, n)
		require.True(t, b)
	})
}

// What can't be bound or scanned is an error, never a silent change of the value. NUL and bytes that aren't UTF-8 are
// refused on both engines, because PostgreSQL can't keep them.
func TestUnfitValuesAreRefused(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createItems(t, db)
		for name, text := range map[string]string{"NUL": "a\x00b", "cut rune": "\xe1\xbb", "surrogate": "\xed\xa0\x80"} {
			err := tryWrite(db, `INSERT INTO items (id, owner) VALUES (1, $1)`, text)
			require.ErrorIs(t, err, store.ErrText, name)
			require.NotContains(t, err.Error(), text)
		}
		_, err := db.APIKeys.All(t.Context(), "a\x00b")
		require.ErrorIs(t, err, store.ErrText)
		require.ErrorContains(t, tryWrite(db, `INSERT INTO items (id) VALUES ($1)`, 1.5), "float64")
		require.Error(t, tryWrite(db, `INSERT INTO items (id) VALUES ($1)`)) // too few
		require.Zero(t, countItems(t, db))

		write(t, db, `INSERT INTO items (id) VALUES (1)`) // owner is NULL
		for name, dest := range map[string][]any{
			"NULL into a string":  {new(int64), new(string)},
			"text into a number":  {new(sql.NullString), new(int64)},
			"too few":             {new(int64)},
			"too many":            {new(int64), new(sql.NullString), new(string)},
			"bytes from a number": {new([]byte), new(sql.NullString)},
		} {
			if name == "text into a number" {
				write(t, db, `UPDATE items SET owner = 'me' WHERE id = 1`)
			}
			err := db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
				return tx.Query(ctx, func(row store.Row) error { return row.Scan(dest...) }, `SELECT id, CASE WHEN id = $1 THEN NULL ELSE owner END FROM items`, 1)
			})
			if name == "bytes from a number" && db.Engine() == store.Postgres {
				continue // pgx hands out the eight bytes of the wire: nothing asks for that
			}
			require.Error(t, err, name)
		}
	})
}

// A query's callback may end it, and runs no statements of its own.
func TestQueryCallback(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createItems(t, db)
		write(t, db, `INSERT INTO items (id) VALUES (1), (2), (3)`)
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			seen := 0
			err := tx.Query(ctx, func(store.Row) error { seen++; return context.Canceled }, `SELECT id FROM items`)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1, seen)
			tx.Queue(1, `DELETE FROM items WHERE id = 2`) // the transaction goes on
			return nil
		}))
		require.Equal(t, 2, countItems(t, db))
		require.Error(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			return tx.Query(ctx, func(store.Row) error {
				return tx.Query(ctx, func(store.Row) error { return nil }, `SELECT id FROM items`)
			}, `SELECT id FROM items`)
		}))
	})
}

// Now is one time for a whole transaction, also before its first statement, and the engine's row lock is legal SQL.
func TestClockAndRowLocks(t *testing.T) {
	t.Parallel()
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		createItems(t, db)
		require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
			first := tx.Now()
			require.Greater(t, first, int64(1_700_000_000_000))
			require.NoError(t, tx.Query(ctx, func(store.Row) error { return nil }, `SELECT id FROM items ORDER BY id`+tx.LockRows()))
			require.Equal(t, first, tx.Now())
			return nil
		}))
	})
}
