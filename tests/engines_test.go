package tests

import (
	"testing"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// eachEngine runs f on a fresh SQLite file and on a fresh PostgreSQL database, in parallel.
func eachEngine(t *testing.T, f func(t *testing.T, engine store.Engine)) {
	t.Helper()
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			f(t, engine)
		})
	}
}

// eachForm runs f for a whole answer and for a stream.
func eachForm(t *testing.T, f func(t *testing.T, stream bool)) {
	t.Helper()
	t.Run("whole", func(t *testing.T) { f(t, false) })
	t.Run("stream", func(t *testing.T) { f(t, true) })
}
