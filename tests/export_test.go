package tests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
)

// moveTo gives the product, which has stopped, another store: two lines of its Caddyfile.
func (p *product) moveTo(t testing.TB, location store.Location) {
	t.Helper()
	p.closeOperatorStore(t)
	p.location, p.StoreLine = location, "store sqlite "+location.DSN
	if location.Engine == store.Postgres {
		p.StoreLine = "store postgres {env.SVC_POSTGRES}"
		p.env = append(p.env, "SVC_POSTGRES="+location.DSN) // the last one counts
	}
	p.writeCaddyfile(p.caddyfile(t))
}

// TestMove guarantees that an installation that outgrew SQLite goes on where it was on PostgreSQL, and back: the
// same key is answered, the balance goes on, the answer to an Idempotency-Key is replayed, a customer's message that was
// answered before isn't answered again and the next one is, with the channel's credentials and the conversation so far.
// The hold of a call that a power failure cut moves, too, and is given back there. Nothing is left of an import that failed.
func TestMove(t *testing.T) {
	t.Parallel()
	c := prepareConnectedWith(t, store.SQLite, func(d *deployment) { d.Longest, d.HoldTTL, d.Sweep = "8s", "1s", "200ms" })
	c.worker = c.startWorker()
	const funds = 1_000_000
	b := c.business(t, funds, c.up.script(replying), nil)
	l := b.line(t, marketa.Type)
	customer := l.from(1)
	first := customer.message("501", "first")
	requireQueued(t, c.deliver(t, first), 1)
	replies := []string{"Re: first"}
	require.Equal(t, replies, c.awaitSent(customer, 1))
	c.requireDelivered(b, l, 1)
	s := c.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
	paid := 1 + 1
	call := &keyedCall{key: "moved", model: modelStd, body: prompt(modelStd, s.Mark, false)}
	call.run(t, c.as(b.customer))

	c.worker.stop()
	hanging := c.up.script(func(call *upstreamCall) { call.hang() })
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		_, _ = c.as(b.customer).tryChat(prompt(modelStd, hanging.Mark, false)) // the power failure is its end
	}()
	c.await("a call to be under way", patience, func() bool { return len(hanging.Calls()) == 1 && c.operator().openHolds(t) == 1 })
	c.kill()
	<-cut

	for i, engine := range []store.Engine{store.Postgres, store.SQLite} {
		archive := filepath.Join(c.Dir, fmt.Sprintf("move-%d.gz", i))
		out := c.svc(t, "export", archive)
		c.moveTo(t, storetest.Location(t, engine))
		c.requireNothingOfAHalf(t, archive)
		in := c.svc(t, "import", archive)
		require.Equal(t, out["archive"], in["archive"])
		require.Equal(t, out["tables"], in["tables"])
		c.start()
		c.awaitReady()
		c.worker.start()
		b.operatorStore = c.operator()

		call.requireReplay(t, c.as(b.customer), "after the move to "+string(engine))
		done := requireAnswered(t, c.as(b.customer).chat(t, prompt(modelStd, s.Mark, true)), modelStd, true)
		require.EqualValues(t, usualCharge, done.charged(t))
		requireQueued(t, c.deliver(t, first), 1)
		next := fmt.Sprintf("on %s", engine)
		requireQueued(t, c.deliver(t, customer.message(fmt.Sprintf("60%d", i), next)), 1)
		replies = append(replies, "Re: "+next)
		require.Equal(t, replies, c.awaitSent(customer, len(replies)))
		c.requireDelivered(b, l, len(replies))
		calls := b.Model.Calls()
		require.Contains(t, calls[len(calls)-1].Raw, "Re: first", "the model is told what came before")

		c.await("the hold of the lost call to be given back", patience, func() bool { return c.operator().openHolds(t) == 0 })
		paid += 2
		b.awaitCalls(t, paid)
		wallet := b.wallet(t)
		require.EqualValues(t, funds-paid*usualCharge, wallet.BalanceMicros)
		require.Zero(t, wallet.HeldMicros)
		require.Equal(t, true, c.svc(t, "doctor")["ok"])
		c.worker.stop()
		c.stop()
	}
	require.Len(t, s.Calls(), 3)
}

// requireNothingOfAHalf imports a part of an archive and asserts that the store is empty then.
func (p *product) requireNothingOfAHalf(t testing.TB, archive string) {
	t.Helper()
	whole, err := os.ReadFile(archive)
	require.NoError(t, err)
	half := archive + ".half"
	require.NoError(t, os.WriteFile(half, whole[:len(whole)-8], 0o600)) // all rows, not the end
	_, err = p.caddy("svc", "import", half, "--config", p.configFile())
	require.ErrorContains(t, err, "the archive is cut")
	require.Empty(t, p.svc(t, "org", "list")["data"])
}

// TestKilledImport guarantees that an import which is killed leaves nothing, and that the next one ends with exactly the rows that were
// exported, on either engine.
func TestKilledImport(t *testing.T) {
	t.Parallel()
	source := prepareProduct(t, deploy(t, store.SQLite, startUpstream(t)))
	customer := source.operator().customer(t, 5_000)
	customer.ownKey(t, "own", "sk-own-key-of-the-customer")
	require.NoError(t, source.operator().db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
			INSERT INTO audit_log SELECT 'aud_x' || i, 1, 'cli', 'test.fill', 'x', '', '' FROM n`)
		return nil
	}))
	archive := filepath.Join(source.Dir, "archive")
	source.svc(t, "export", archive)
	want := archivedRows(t, archive)
	require.Greater(t, len(want), 25_000)
	whole, err := os.ReadFile(archive)
	require.NoError(t, err)

	eachEngine(t, func(t *testing.T, engine store.Engine) {
		d := deploy(t, engine, startUpstream(t))
		d.env = append(d.env, "SVC_MASTER_KEY="+source.masterKey)
		p := prepareProduct(t, d)
		part, end := startPipe(t, whole[:len(whole)/2])
		run := process{t: t, what: "import"}
		run.run(p.Dir, p.environment(), func() {}, caddyBinary, "svc", "import", part, "--config", p.configFile())
		run.await("a part to be imported", startWait, func() bool { return strings.Contains(run.log.String(), "rows imported, at audit_log") })
		run.kill()
		end()
		require.Zero(t, p.rowsOf(t, "audit_log"))
		p.svc(t, "import", archive)
		require.Equal(t, true, p.svc(t, "doctor")["ok"])
		again := filepath.Join(p.Dir, "again")
		p.svc(t, "export", again)
		require.Equal(t, want, archivedRows(t, again))
	})
}

// startPipe makes a pipe with a name, from which a reader gets the content and then waits for more until end.
func startPipe(t testing.TB, content []byte) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // waits for no reader
	require.NoError(t, err)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = pipe.Write(content) // closing it ends this, too
	}()
	return path, func() {
		require.NoError(t, pipe.Close())
		<-written
	}
}

// rowsOf counts the rows of a table, in whatever state the store is.
func (p *product) rowsOf(t testing.TB, table string) (rows int) {
	t.Helper()
	require.NoError(t, connect(t, p.location).QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&rows))
	return rows
}

// archivedRows are the rows of an archive, sorted.
func archivedRows(t testing.TB, path string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		if line[0] == '[' {
			rows = append(rows, string(line))
		}
	}
	slices.Sort(rows)
	return rows
}
