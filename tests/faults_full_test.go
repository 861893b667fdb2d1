package tests

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// limit lowers a resource limit of the running process to most. The returned function restores the limit, and is called at
// the test's end at the latest.
func (p *process) limit(resource int, most uint64) (restore func()) {
	p.t.Helper()
	var before unix.Rlimit
	require.NoError(p.t, unix.Prlimit(p.cmd.Process.Pid, resource, nil, &before))
	restore = func() { require.NoError(p.t, unix.Prlimit(p.cmd.Process.Pid, resource, &before, nil)) }
	p.t.Cleanup(func() {
		select {
		case <-p.ended:
		default:
			restore()
		}
	})
	require.NoError(p.t, unix.Prlimit(p.cmd.Process.Pid, resource, &unix.Rlimit{Cur: most, Max: before.Max}, nil))
	return restore
}

// fillDisk leaves the product's store no room. With SQLite, every write(2) of the product fails with EFBIG. SQLite treats that
// as it treats EROFS and EIO, as an I/O error; pages are written at COMMIT, so that is what fails. PostgreSQL refuses each row
// with the code and the words of a full disk. The returned function makes room.
func (p *product) fillDisk(t *testing.T) (makeRoom func()) {
	t.Helper()
	if p.location.Engine == store.SQLite {
		return p.limit(unix.RLIMIT_FSIZE, 0)
	}
	own := connect(t, p.location)
	run := func(statement string) {
		_, err := own.ExecContext(context.Background(), statement)
		require.NoError(t, err)
	}
	onEachTable := func(statement string) {
		run(`DO $$ DECLARE t text; BEGIN
			FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename LOOP
				EXECUTE format('` + statement + `', t);
			END LOOP; END $$`)
	}
	run(`CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'could not extend file "base/16384/16385": No space left on device' USING ERRCODE = 'disk_full'; END $$`)
	onEachTable(`CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION no_room()`)
	return func() { onEachTable(`DROP TRIGGER no_room ON %I`) }
}

// TestStoreWithoutRoom guarantees that a store that takes no write for want of room costs each call, each delivery and each
// settlement a 500 and nothing else: the provider isn't called, the platform is asked to deliver again, reads go on, and
// the service stays up. When there is room the same process goes on: what was held is given back, a delivery that comes
// again is one message, and the books are right. With tranches some calls would still be granted until the first write has failed.
func TestStoreWithoutRoom(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, engine store.Engine) {
		c := prepareConnectedWith(t, engine, func(d *deployment) { d.App += "tranches off\n" })
		b := c.business(t, 1_000_000, &script{}, nil)
		l := b.line(t, social.Messenger)
		asked := c.up.script(func(call *upstreamCall) { call.answer(usualText, usualUsage) })
		streams := holdStreams(t, c.product, c.up, b.customer, 2)
		hello := l.from(1).says("hello")

		makeRoom := c.fillDisk(t)
		streams.gate.open()
		for _, live := range streams.live {
			a := live.rest()
			events := events(t, a.Body)
			require.Equal(t, "internal_error", parseError(t, []byte(events[len(events)-1])).Code)
			requireCut(t, a)
		}
		for _, stream := range []bool{false, true} {
			requireError(t, c.as(b.customer).chat(t, prompt(modelStd, asked.Mark, stream)), "internal_error")
			requireError(t, c.as(b.customer).chat(t, prompt(modelStd, asked.Mark, stream), keyHeader, "while-full"), "internal_error")
		}
		require.Empty(t, asked.Calls(), "the provider was called for a hold that isn't stored")
		refused := c.deliver(t, hello)
		requireError(t, refused, "internal_error")
		require.NotEmpty(t, refused.Header.Get("Retry-After"))
		forged := l.from(1).says("forged")
		forged.Signatures = nil
		requireError(t, c.deliver(t, forged), "unauthenticated")
		for _, path := range []string{"/v1/models", "/wallet", "/conversations"} {
			require.Equal(t, http.StatusOK, c.as(b.customer).get(t, path).Status, path)
		}

		makeRoom()
		c.await("the holds to be given back", patience, func() bool { return b.openHolds(t) == 0 })
		require.EqualValues(t, 1_000_000, b.wallet(t).BalanceMicros)
		requireQueued(t, c.deliver(t, hello), 1)
		requireQueued(t, c.deliver(t, hello), 1)
		by, _ := written(b.messages(t, b.conversation(t, l).ID))
		require.Len(t, by, 1)
		requireCompletion(t, c.as(b.customer).chat(t, prompt(modelStd, asked.Mark, false), keyHeader, "while-full"), modelStd)
		require.Len(t, asked.Calls(), 1)
		require.EqualValues(t, 1_000_000-usualCharge, b.wallet(t).BalanceMicros)
		c.svc(t, "doctor")
	})
}

// TestAccessLogWithoutRoom guarantees that the service goes on when only its access log has no room, and logs again when
// there is some.
func TestAccessLogWithoutRoom(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	p := startProduct(t, deploy(t, store.SQLite, up))
	c := p.operator().customer(t, 1_000_000)
	log := filepath.Join(p.Dir, "access.log")
	logged := func() int64 {
		about, err := os.Stat(log)
		require.NoError(t, err)
		return about.Size()
	}
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	p.await("the access log to begin", patience, func() bool { return logged() > 0 })

	// No file may grow beyond room, which the log has reached and the store never does. Caddy appends to its log.
	const room = 64 << 20
	require.NoError(t, os.Truncate(log, room))
	makeRoom := p.limit(unix.RLIMIT_FSIZE, room)
	for i := range 10 {
		requireAnswered(t, p.as(c).chat(t, prompt(modelStd, "hi", i%2 == 0)), modelStd, i%2 == 0)
	}
	require.EqualValues(t, room, logged(), "the log had room")
	require.EqualValues(t, 1_000_000-11*usualCharge, c.wallet(t).BalanceMicros)

	makeRoom()
	requireCompletion(t, p.as(c).chat(t, prompt(modelStd, "hi", false)), modelStd)
	p.await("the access log to go on", patience, func() bool { return logged() > room })
}
