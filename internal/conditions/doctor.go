package conditions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// DoctorInterval is the time between two due runs of the doctor.
	DoctorInterval = time.Hour
	// Recent is the age of the rows that a due run checks.
	Recent = 2 * time.Hour
	// doctorTime limits a run. It rests most of the time, see [store.Paced].
	doctorTime = 20 * time.Minute
	// settledTime is how long a process must have run before it starts the doctor by itself, so that a restart isn't slowed down.
	settledTime = 10 * time.Minute
	// runsKept is how long the results of runs are kept.
	runsKept = 7 * 24 * time.Hour
)

// States of a run.
const (
	RunOK         = "ok"
	RunFindings   = "findings"
	RunUnfinished = "unfinished" // the store couldn't be read, or doctorTime was too short
)

// ErrRunning is the error of a start of the doctor while it runs in any process.
var ErrRunning = errors.New("the doctor runs already")

// errNotDue means that the doctor ran within the last hour.
var errNotDue = errors.New("the doctor has run")

// Run is a run of the doctor. Times are in epoch milliseconds; EndedAt is 0 while it runs.
type Run struct {
	ID, Node string
	// StartedBy is the actor of the audit log. Empty means that the run was due.
	StartedBy          string
	StartedAt, EndedAt int64
	State              string
	Report             billing.Report
}

// LastRun reads the newest run that has ended. It returns [store.ErrNotFound] if there is none.
func LastRun(ctx context.Context, db *store.DB) (Run, error) { return readRun(ctx, db, `ended_at > 0`) }

// RunningRun reads the run that is under way in a living process. It returns [store.ErrNotFound] if there is none.
func RunningRun(ctx context.Context, db *store.DB) (Run, error) {
	return readRun(ctx, db, `ended_at = 0 AND node IN (
		SELECT m.node FROM marks m JOIN processes p ON p.name = m.node WHERE m.name = 'doctor' AND m.at > 0)`)
}

func readRun(ctx context.Context, db *store.DB, which string) (Run, error) {
	return store.ReadRow(ctx, db, "read a run of the doctor", func(row store.Row) (run Run, err error) {
		var report string
		err = row.Scan(&run.ID, &run.Node, &run.StartedBy, &run.StartedAt, &run.EndedAt, &run.State, &report)
		if err == nil && report != "" {
			err = json.Unmarshal([]byte(report), &run.Report)
		}
		return run, err
	}, `SELECT id, node, started_by, started_at, ended_at, state, report FROM doctor_runs WHERE `+which+` ORDER BY id DESC LIMIT 1`)
}

// Doctor runs checks in the background, one at a time over all processes.
type Doctor struct {
	db      *store.DB
	log     *slog.Logger
	began   time.Time
	ctx     context.Context //nolint:containedctx // the lifetime of its runs
	stop    context.CancelFunc
	running sync.WaitGroup
}

// NewDoctor returns a doctor that is idle until [Doctor.Start]. The caller must [Doctor.Stop] it.
func NewDoctor(db *store.DB, log *slog.Logger) *Doctor {
	ctx, stop := context.WithCancel(context.Background())
	return &Doctor{db: db, log: log, began: time.Now(), ctx: ctx, stop: stop}
}

// Stop ends a run, which leaves no result, and waits for its end. No run may be started any longer.
func (d *Doctor) Stop() {
	d.stop()
	d.running.Wait()
}

// StartDue starts a run if none began within [DoctorInterval] and the process has run for a while.
func (d *Doctor) StartDue(ctx context.Context, node string, check Check) error {
	if time.Since(d.began) < settledTime {
		return nil
	}
	now, err := d.db.Now(ctx)
	if err != nil {
		return err
	}
	newest, err := store.ReadRow(ctx, d.db, "look for the doctor's last run", store.ScanValue[int64],
		`SELECT coalesce(max(started_at), 0) FROM doctor_runs`)
	if err != nil || newest > now-DoctorInterval.Milliseconds() {
		return err
	}
	if err = d.Start(ctx, node, "", check); errors.Is(err, ErrRunning) || errors.Is(err, errNotDue) {
		return nil // another process was faster
	}
	return err
}

// Start starts a run for an actor, or a due one if actor is empty. It returns [ErrRunning] while one runs.
func (d *Doctor) Start(ctx context.Context, node, actor string, check Check) error {
	id := store.NewID("doc")
	err := d.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
		free, err := take(ctx, tx, "doctor", node, 2*doctorTime, false)
		if err == nil && !free {
			err = ErrRunning
		}
		if err != nil {
			return err
		}
		if actor != "" {
			store.QueueAudit(tx, store.AuditEntry{Actor: actor, Action: "doctor.run", Target: id})
		} else if recent, err := store.Changed(ctx, tx, `SELECT id FROM doctor_runs WHERE started_at > $1 LIMIT 1`,
			tx.Now()-DoctorInterval.Milliseconds()); err != nil {
			return err
		} else if recent {
			return errNotDue
		}
		tx.Queue(1, `INSERT INTO doctor_runs (id, node, started_by, started_at, ended_at, state, report) VALUES ($1, $2, $3, $4, 0, 'running', '')`,
			id, node, actor, tx.Now())
		return nil
	})
	if err != nil {
		return err
	}
	d.running.Go(func() { d.run(id, check) })
	return nil
}

// run checks and stores the result.
func (d *Doctor) run(id string, check Check) {
	ctx, cancel := context.WithTimeoutCause(d.ctx, doctorTime, fmt.Errorf("the doctor took longer than %s", doctorTime))
	defer cancel()
	report, err := check.Examine(store.Paced(ctx))
	state := RunOK
	if err != nil {
		state = RunUnfinished
		d.log.ErrorContext(ctx, "the doctor did not finish", "error", errors.Join(err, context.Cause(ctx)))
	} else if !report.OK() {
		state = RunFindings
		d.log.ErrorContext(ctx, "the doctor has findings; run caddy svc doctor", "findings", len(report.Findings()))
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic(fmt.Sprintf("conditions: a report can't be written: %v", err)) // it consists of texts
	}
	bounded, cancelStoring := dispatch.Storing(ctx)
	defer cancelStoring()
	err = d.db.Exec(bounded, func(_ context.Context, tx store.Tx) error {
		if d.ctx.Err() != nil {
			tx.Queue(store.AnyRows, `DELETE FROM doctor_runs WHERE id = $1`, id)
		} else {
			tx.Queue(store.AnyRows, `UPDATE doctor_runs SET ended_at = $2, state = $3, report = $4 WHERE id = $1`, id, tx.Now(), state, string(text))
		}
		tx.Queue(store.AnyRows, `UPDATE marks SET at = 0 WHERE name = 'doctor'`)
		tx.Queue(store.AnyRows, `DELETE FROM doctor_runs WHERE started_at < $1`, tx.Now()-runsKept.Milliseconds())
		return nil
	})
	if err != nil {
		d.log.ErrorContext(ctx, "storing the doctor's result failed", "error", err)
	}
}

// DoctorConditions returns the conditions of the last run that has ended: one for each broken invariant, or one if it didn't finish.
func DoctorConditions(ctx context.Context, db *store.DB) (found []Condition, err error) {
	last, err := LastRun(ctx, db)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err == nil && last.State == RunUnfinished {
		found = append(found, Condition{Kind: DoctorFindings, Text: "The doctor's last run didn't finish: the log says why."})
	}
	for _, examined := range last.Report.Invariants {
		if n := len(examined.Findings); n > 0 {
			text := fmt.Sprintf("%d findings against: %s.", n, examined.Text)
			found = append(found, Condition{Kind: DoctorFindings, Subject: examined.ID, Text: text})
		}
	}
	return found, err
}
