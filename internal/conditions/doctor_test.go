package conditions

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

func doctorOf(t *testing.T, db *store.DB) (*Doctor, Check) {
	t.Helper()
	d := NewDoctor(db, slog.New(slog.DiscardHandler))
	t.Cleanup(d.Stop)
	d.began = d.began.Add(-settledTime)
	catalog, err := messaging.NewCatalog(nil)
	require.NoError(t, err)
	return d, Check{DB: db, Catalog: catalog, Recent: Recent}
}

func write(t *testing.T, db *store.DB, text string, arguments ...any) {
	t.Helper()
	require.NoError(t, db.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
		tx.Queue(store.AnyRows, text, arguments...)
		return nil
	}))
}

// TestDoctorRunsHourlyOnOneNode guarantees on both engines that of two processes one runs the doctor each hour, that its result is kept and is a
// condition, and that a person can start it unless it runs.
func TestDoctorRunsHourlyOnOneNode(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind, billing.Ledger}, func(t *testing.T, db *store.DB) {
		a, b := newNode(t, db, "a"), newNode(t, db, "b")
		first, check := doctorOf(t, db)
		second, _ := doctorOf(t, db)
		young := NewDoctor(db, slog.New(slog.DiscardHandler))
		t.Cleanup(young.Stop)
		runs := func() int {
			n, err := store.ReadRow(t.Context(), db, "count", store.ScanValue[int], `SELECT count(*) FROM doctor_runs`)
			require.NoError(t, err)
			return n
		}
		due := func() {
			require.NoError(t, first.StartDue(t.Context(), a.Node, check))
			require.NoError(t, second.StartDue(t.Context(), b.Node, check))
			first.running.Wait()
			second.running.Wait()
		}
		require.NoError(t, young.StartDue(t.Context(), a.Node, check))
		require.Zero(t, runs(), "a process that has just begun has other things to do")
		_, err := LastRun(t.Context(), db)
		require.ErrorIs(t, err, store.ErrNotFound)
		due()
		due()
		require.Equal(t, 1, runs())
		last, err := LastRun(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, RunOK, last.State)
		require.GreaterOrEqual(t, last.EndedAt, last.StartedAt)
		require.Greater(t, len(last.Report.Invariants), 10)
		found, err := DoctorConditions(t.Context(), db)
		require.NoError(t, err)
		require.Empty(t, found)

		write(t, db, `INSERT INTO organizations (id, name, plan, created_at) VALUES ('org_1', 'one', 'free', 1)`)
		write(t, db, `INSERT INTO wallets (org_id, env, balance_micros, held_micros) VALUES ('org_1', 'live', 7, 0)`)
		write(t, db, `UPDATE doctor_runs SET started_at = started_at - $1`, time.Hour.Milliseconds())
		due()
		require.Equal(t, 2, runs())
		found, err = DoctorConditions(t.Context(), db)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		require.Equal(t, DoctorFindings, found[0].Kind)
		require.Regexp(t, `^\d+ findings against: `, found[0].Text)

		require.NoError(t, first.Start(t.Context(), a.Node, "cli:lan", check))
		first.running.Wait()
		require.Equal(t, 3, runs())
		audit, err := db.AuditLog.List(t.Context(), "", store.Page{})
		require.NoError(t, err)
		require.Equal(t, "doctor.run", audit[0].Action)
		require.Equal(t, "cli:lan", audit[0].Actor)
	})
}

// TestDoctorRunsOnce guarantees that the doctor never runs twice over all processes, that a run which its process can't end leaves no result, and
// that the run of a process that died keeps no other from running.
func TestDoctorRunsOnce(t *testing.T) {
	t.Parallel()
	storetest.Each(t, []store.Kind{inbox.Kind, billing.Ledger}, func(t *testing.T, db *store.DB) {
		a, b := newNode(t, db, "a"), newNode(t, db, "b")
		first, check := doctorOf(t, db)
		second, _ := doctorOf(t, db)
		write(t, db, `INSERT INTO marks (name, node, at) VALUES ('doctor', 'a', $1)`, time.Now().Add(time.Hour).UnixMilli())
		write(t, db, `INSERT INTO doctor_runs (id, node, started_by, started_at, ended_at, state, report) VALUES ('doc_1', 'a', '', $1, 0, 'running', '')`,
			time.Now().UnixMilli())
		require.ErrorIs(t, second.Start(t.Context(), b.Node, "cli:lan", check), ErrRunning)
		require.ErrorIs(t, first.Start(t.Context(), a.Node, "cli:lan", check), ErrRunning)
		running, err := RunningRun(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, "doc_1", running.ID)
		a.ends()
		_, err = RunningRun(t.Context(), db)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.NoError(t, second.Start(t.Context(), b.Node, "cli:lan", check))
		second.Stop()

		second, _ = doctorOf(t, db)
		second.stop()
		require.NoError(t, second.Start(t.Context(), b.Node, "cli:lan", check))
		second.Stop()
		_, err = RunningRun(t.Context(), db)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.NoError(t, first.Start(t.Context(), b.Node, "cli:lan", check), "a stopped run gives the duty back")
	})
}
