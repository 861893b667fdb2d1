package tests

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestNodeIsStoppedInATransaction guarantees that a node which is stopped (SIGSTOP, a frozen virtual machine) between the
// statements of a transaction of PostgreSQL and its COMMIT keeps the locks for a short time only: calls of the same wallet
// are served by another node. When the stopped node goes on, its transaction is lost, its call fails without a charge, and
// it serves again.
func TestNodeIsStoppedInATransaction(t *testing.T) {
	t.Parallel()
	binary, err := crashBinary()
	require.NoError(t, err)
	up := startUpstream(t)
	d := deploy(t, store.Postgres, up)
	frozen := prepareProduct(t, d)
	brake := filepath.Join(frozen.Dir, "brake")
	frozen.startBinary(binary, failpoint.SlowVariable+"="+brake)
	frozen.awaitReady()
	other := startProduct(t, d.beside())
	const funds = 1_000_000
	c := frozen.operator().customer(t, funds)
	s := up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	body := prompt(modelStd, s.Mark, false)

	// The transaction of the hold has locked the wallet, and waits in the node, with the server idle.
	require.NoError(t, os.WriteFile(brake, []byte("15s"), 0o600))
	answers := make(chan answer, 1)
	ask := func() {
		a, err := frozen.as(c).tryChat(body)
		failOn(t, err)
		answers <- a
	}
	go ask()
	own := connect(t, frozen.location)
	count := func(query string, arguments ...any) (n int) {
		require.NoError(t, own.QueryRowContext(t.Context(), query, arguments...).Scan(&n))
		return n
	}
	const idle = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`
	locked := func() bool {
		_, err := own.ExecContext(t.Context(), `SELECT 1 FROM wallets WHERE org_id = $1 FOR UPDATE NOWAIT`, c.OrgID)
		return err != nil && strings.Contains(err.Error(), "55P03")
	}
	frozen.await("the wallet to be locked by an idle transaction", patience, func() bool {
		select {
		case a := <-answers: // the brake stopped another write of the node first, such as a sweep
			requireError(t, a, "internal_error")
			go ask()
		default:
		}
		return locked() && count(idle) == 1
	})
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = frozen.cmd.Process.Signal(syscall.SIGCONT) }) // to be stopped in order
	require.NoError(t, os.Remove(brake))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		a, err := other.as(c).try(ctx, http.MethodPost, chatPath, strings.NewReader(body))
		require.NoError(t, err)
		requireCompletion(t, a, modelStd)
	}
	other.await("no transaction of the stopped node", patience, func() bool { return count(idle) == 0 })
	require.Empty(t, answers)

	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGCONT))
	requireError(t, <-answers, "internal_error")
	frozen.await("the node to serve again", patience, func() bool { // it refuses some calls after such a slow commit
		return frozen.as(c).chat(t, body).Status == http.StatusOK
	})
	frozen.await("every call to be on record", patience, func() bool { return c.completed(t) == 4 })
	require.Len(t, s.Calls(), 4, "the provider was called for a hold that isn't stored")
	require.EqualValues(t, funds-4*usualCharge, c.wallet(t).BalanceMicros)
	c.awaitNothingHeld(t)
}
