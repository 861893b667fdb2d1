package archive_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write runs one statement through the writer.
func write(t *testing.T, db *store.DB, text string, arguments ...any) {
	t.Helper()
	require.NoError(t, tryWrite(db, text, arguments...))
}

func tryWrite(db *store.DB, text string, arguments ...any) error {
	return db.Exec(context.Background(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, arguments...)
		return nil
	})
}

func createOrganization(t *testing.T, db *store.DB, id string) {
	t.Helper()
	require.NoError(t, db.Organizations.Create(t.Context(), "cli", store.Organization{ID: id, Name: "name of " + id, Plan: "free"}))
}
