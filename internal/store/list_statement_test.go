package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestPadded guarantees that a list keeps its order in pieces of the sizes, and that the last piece is filled with the last item.
func TestPadded(t *testing.T) {
	t.Parallel()
	sizes := store.ListSizes{8, 4, 1}
	items := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	var got [][]int
	for size, piece := range store.Padded(sizes, items) {
		require.Len(t, piece, sizes[size])
		got = append(got, piece)
	}
	require.Equal(t, [][]int{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10, 10, 10}}, got)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, items)
}

// TestPaddedCopiesOnce guarantees that a long list costs in proportion to its length.
func TestPaddedCopiesOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	items, large := make([]int, 500), store.ListSizes{1024, 1}
	allocated := testing.AllocsPerRun(10, func() {
		for range store.Padded(large, items) {
			continue
		}
	})
	require.LessOrEqual(t, allocated, 8.0)
}

// TestRowStatement guarantees that rows of columns are written and found once each, however many they are, with what is null in them.
func TestRowStatement(t *testing.T) {
	t.Parallel()
	sizes := store.ListSizes{8, 4, 1}
	types := []string{"text", "bytea", "bigint", "boolean", "bigint"}
	insert := sizes.Rows(`INSERT INTO probe (id, body, n, flag, maybe) {list}`, types...)
	returning := sizes.Rows(`INSERT INTO probe (id, body, n, flag, maybe) {list} RETURNING id`, types...)
	find := sizes.Rows(`WITH wanted (id, n) AS ({list}) SELECT p.id FROM wanted CROSS JOIN probe p WHERE p.id = wanted.id AND p.n = wanted.n`, "text", "bigint")
	storetest.Each(t, nil, func(t *testing.T, db *store.DB) {
		write(t, db, map[store.Engine]string{
			store.SQLite:   `CREATE TABLE probe (id TEXT PRIMARY KEY, body BLOB, n INTEGER NOT NULL, flag INTEGER NOT NULL, maybe INTEGER) STRICT`,
			store.Postgres: `CREATE TABLE probe (id TEXT PRIMARY KEY, body BYTEA, n BIGINT NOT NULL, flag BOOLEAN NOT NULL, maybe BIGINT)`,
		}[db.Engine()])
		columns := func(from, n int) []any {
			rows := make([]int, n)
			for i := range rows {
				rows[i] = from + i
			}
			return []any{
				store.Column(rows, func(i int) string { return fmt.Sprint("row ", i) }),
				store.Column(rows, func(i int) []byte { return map[bool][]byte{true: {byte(i)}}[i%2 == 0] }),
				store.Column(rows, func(i int) int64 { return int64(i) }),
				store.Column(rows, func(i int) bool { return i%3 == 0 }),
				store.Column(rows, func(i int) sql.NullInt64 { return sql.NullInt64{Int64: int64(i), Valid: i%5 == 0} }),
			}
		}
		collect := func(into *[]string) func(store.Row) error {
			return func(row store.Row) error {
				id, err := store.ScanValue[string](row)
				*into = append(*into, id)
				return err
			}
		}
		total := 0
		for n := range 20 {
			require.NoError(t, db.Exec(t.Context(), func(ctx context.Context, tx store.Tx) error {
				var returned, found []string
				insert.Queue(tx, columns(total, n)...)
				returning.QueueQuery(tx, collect(&returned), columns(total+n, n)...)
				all := columns(total, 2*n)
				find.QueueLookup(tx, collect(&found), all[0], all[2])
				if err := tx.Flush(ctx); err != nil {
					return err
				}
				slices.Sort(found)
				require.Len(t, slices.Compact(found), 2*n)
				require.Len(t, returned, n)
				return nil
			}))
			total += 2 * n
		}
		require.Equal(t, []string{fmt.Sprint(total)}, texts(t, db, `SELECT count(*) FROM probe WHERE id = 'row ' || n AND (body IS NULL) = (n % 2 = 1)
			AND (maybe IS NULL) = (n % 5 <> 0) AND coalesce(maybe, n) = n AND flag = (n % 3 = 0)`))
		for _, text := range []string{"\x00", "\xff"} {
			err := db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
				insert.Queue(tx, []string{"good", text}, [][]byte{nil, nil}, []int64{0, 0}, []bool{false, false}, []sql.NullInt64{{}, {}})
				return nil
			})
			require.ErrorIs(t, err, store.ErrText)
		}
	})
}
