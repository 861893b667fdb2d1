package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// TestListenOnSQLite: a listener hears the commits since it subscribed, of its own process and of others; reads are none.
func TestListenOnSQLite(t *testing.T) {
	t.Parallel()
	location := storetest.Location(t, store.SQLite)
	db, other := storetest.OpenAt(t, location, store.Options{}), storetest.OpenAt(t, location, store.Options{})
	require.NoError(t, db.Listen(t.Context(), "any", func(wait func(context.Context, time.Duration) (bool, error)) error {
		hears := func(want bool) {
			t.Helper()
			atMost := time.Millisecond
			if want {
				atMost = time.Minute
			}
			heard, err := wait(t.Context(), atMost)
			require.NoError(t, err)
			require.Equal(t, want, heard)
		}
		hears(false)
		for name, by := range map[string]*store.DB{"one": db, "two": other} {
			require.NoError(t, by.Organizations.Create(t.Context(), "test", store.Organization{ID: "org_" + name, Name: name, Plan: "free"}))
			hears(true)
			hears(false)
		}
		_, err := other.AuditLog.List(t.Context(), "", store.Page{Limit: 1})
		require.NoError(t, err)
		hears(false)

		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errGaveUp)
		_, err = wait(ended, time.Hour)
		require.ErrorIs(t, err, errGaveUp)
		return nil
	}))
}

var errGaveUp = errors.New("gave up")
