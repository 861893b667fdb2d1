package storetest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Fill runs statements that write many rows. They may take longer than the store allows a statement.
func Fill(t testing.TB, db *store.DB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	if db.Engine() == store.SQLite {
		for _, text := range statements {
			require.NoError(t, db.Exec(ctx, func(_ context.Context, tx store.Tx) error {
				tx.Queue(store.AnyRows, text)
				return nil
			}), text)
		}
		return
	}
	conn, err := pgx.Connect(ctx, db.Location().DSN)
	require.NoError(t, err)
	defer conn.Close(ctx) // each statement told its own result
	for _, text := range statements {
		_, err := conn.Exec(ctx, text)
		require.NoError(t, err, text)
	}
}
