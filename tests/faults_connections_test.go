package tests

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPostgresRefusesConnections guarantees that a PostgreSQL that accepts no further connection (SQLSTATE 53300) is like one
// that is gone: every request gets its 500 in the contract's form, no provider is called, and all goes on by itself when the
// server accepts connections again.
func TestPostgresRefusesConnections(t *testing.T) {
	t.Parallel()
	var run func(statement string)
	role := "svc_test_" + strings.ToLower(rand.Text())
	o := prepareOutage(t, func(d *deployment) {
		own := connect(t, d.location)
		run = func(statement string) {
			_, err := own.ExecContext(context.Background(), statement)
			require.NoError(t, err)
		}
		var database string
		require.NoError(t, own.QueryRowContext(t.Context(), `SELECT current_database()`).Scan(&database))
		run(`CREATE ROLE ` + role + ` LOGIN PASSWORD '` + role + `'`) // the limit doesn't bind a superuser
		t.Cleanup(func() {
			run(`REASSIGN OWNED BY ` + role + ` TO CURRENT_USER`)
			run(`DROP OWNED BY ` + role)
			run(`DROP ROLE ` + role)
		})
		run(`ALTER DATABASE ` + database + ` OWNER TO ` + role)
		d.env = append(slices.Clone(d.env), d.storeBehind(t, d.storeAddress(t))+" user="+role+" password="+role)
	})
	o.gather(t)
	goodDay := o.goroutines(t)

	run(`ALTER ROLE ` + role + ` CONNECTION LIMIT 0`)
	run(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '` + role + `'`)
	o.requireReady(http.StatusServiceUnavailable)
	o.requireDown(t, 3)
	require.Contains(t, o.log.String(), "SQLSTATE 53300")

	run(`ALTER ROLE ` + role + ` CONNECTION LIMIT -1`)
	o.requireReady(http.StatusOK)
	o.crowd.awaitWell(30)
	o.crowd.disperse()
	o.requireNoPileUp(t, goodDay)
	o.crowd.requireStored(t)
	o.requireBooks(t)
}
