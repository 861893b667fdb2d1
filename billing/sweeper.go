package billing

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// DefaultSweepInterval is the interval between sweeps unless the operator configures another.
const DefaultSweepInterval = 15 * time.Second

// Lost is the sum of the reservations that a sweep released without a settlement, because their processes were killed or couldn't settle. A vendor
// may have worked for these calls.
type Lost struct {
	// Calls are the ids of the calls with a hold of their own. Only the killed process had the ids of the others.
	Calls []string
	// Micros is the sum of the reservations of Calls and of the rest of abandoned tranches. A sum of several wallets that overflows is the largest
	// number.
	Micros int64
}

func (l *Lost) add(micros int64) {
	sum, err := addMicros(l.Micros, micros)
	if err != nil {
		sum = math.MaxInt64
	}
	l.Micros = sum
}

// Sweep releases expired holds, running Idempotency-Keys and tranches, by the database's clock, and forgets finished keys after their [KeyLife].
// Any number of processes may sweep at the same time.
func (b *Book) Sweep(ctx context.Context) (lost Lost, err error) {
	for {
		op := &sweepOp{}
		if err := b.db.Do(ctx, Ledger, op); err != nil {
			return lost, fmt.Errorf("sweep holds: %w", err)
		}
		lost.Calls = append(lost.Calls, op.lost.Calls...)
		lost.add(op.lost.Micros)
		if !op.more || op.done == 0 {
			return lost, nil
		}
	}
}

// loggedCalls limits the ids of lost calls in a line of the log.
const loggedCalls = 20

// sweepTimeout limits one sweep. If the database hangs, the next sweep tries again.
const sweepTimeout = 30 * time.Second

// StartSweeper sweeps the book immediately and about every interval (0 or less: [DefaultSweepInterval]), until the task is stopped.
func (b *Book) StartSweeper(interval time.Duration, logger *slog.Logger) *repeat.Task {
	if interval <= 0 {
		interval = DefaultSweepInterval
	}
	return repeat.Start(interval, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, sweepTimeout)
		defer cancel()
		lost, err := b.Sweep(bounded)
		if lost.Micros > 0 {
			logger.WarnContext(ctx, "released credits of calls that were never settled; compare with the providers' invoices",
				"micros", lost.Micros, "calls", len(lost.Calls), "some", lost.Calls[:min(len(lost.Calls), loggedCalls)])
		}
		if err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "sweep of holds failed", "error", err)
		}
	})
}

const (
	// retentionPause is the pause between two sweeps of [StartRetention], and the time limit of each. Retention counts days.
	retentionPause = time.Hour
	// leastCallDays is the shortest time for which every call is kept: an organization can read a month, and no finished
	// Idempotency-Key outlives its call.
	leastCallDays = 31
	// retentionRows is the number of calls that one transaction reads.
	retentionRows = 500
)

// Retention deletes the records of old calls without any cost. Charged calls are the ledger and stay, as do calls with a cost that the operator
// bears.
type Retention struct {
	db *store.DB
	// swept is the end of the last call that the sweep of a wallet has read, in epoch milliseconds.
	swept map[WalletID]int64
}

// NewRetention returns the retention of a database.
func NewRetention(db *store.DB) *Retention { return &Retention{db: db, swept: map[WalletID]int64{}} }

// Sweep deletes the calls that cost nothing of organizations with a limited retention ([store.Organizations.SetRetention]), once they are older
// than the retention and 31 days, and returns their number. It reads each old call once, page by page, and deletes in small transactions. Several
// processes may sweep a database at the same time, with one goroutine for each Retention.
func (r *Retention) Sweep(ctx context.Context) (deleted int64, err error) {
	now, err := r.db.Now(ctx)
	if err != nil {
		return 0, err
	}
	for page := (store.Page{}); ; {
		organizations, err := r.db.Organizations.Retentions(ctx, page)
		if err != nil {
			return deleted, fmt.Errorf("delete free calls: %w", err)
		}
		for _, organization := range organizations {
			before := now - max(organization.Days, leastCallDays)*24*time.Hour.Milliseconds()
			for _, env := range []store.Env{store.Live, store.Test} {
				n, err := r.sweepWallet(ctx, WalletID{OrgID: organization.OrgID, Env: env}, before)
				deleted += n
				if err != nil {
					return deleted, fmt.Errorf("delete free calls: %w", err)
				}
			}
		}
		if len(organizations) < page.Rows() {
			return deleted, nil
		}
		page.After = organizations[len(organizations)-1].OrgID
	}
}

const (
	selectOldCalls = `SELECT coalesce(max(ended_at), 0) FROM (SELECT ended_at FROM calls
		WHERE org_id = $1 AND env = $2 AND wallet_seq IS NULL AND ended_at > $3 AND ended_at < $4 ORDER BY ended_at LIMIT $5) AS page`
	deleteFreeCalls = `DELETE FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq IS NULL AND ended_at > $3 AND ended_at <= $4
		AND shortfall_micros = 0 AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.call_id = calls.id AND a.cost_micros > 0) RETURNING id`
)

var deleteAttempts = listSizes.Statement(`DELETE FROM attempts WHERE call_id IN {list}`, 1, 0)

// sweepWallet deletes the free calls of a wallet that ended before a moment.
func (r *Retention) sweepWallet(ctx context.Context, id WalletID, before int64) (deleted int64, err error) {
	for {
		var through int64
		err := r.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			after := r.swept[id]
			page := func(row store.Row) error { return row.Scan(&through) }
			if err := tx.Query(ctx, page, selectOldCalls, id.OrgID, string(id.Env), after, before, retentionRows); err != nil || through == 0 {
				return err
			}
			ids, err := store.QueryValues[string](ctx, tx, deleteFreeCalls, id.OrgID, string(id.Env), after, through)
			store.QueueList(tx, listSizes, deleteAttempts, false, ids, func(values []any, id string) []any { return append(values, id) })
			if err == nil {
				deleted += int64(len(ids))
			}
			return err
		})
		if err != nil || through == 0 {
			return deleted, err
		}
		r.swept[id] = through
	}
}

// StartRetention runs [Retention.Sweep] immediately and about every hour, until the task is stopped.
func StartRetention(db *store.DB, logger *slog.Logger) *repeat.Task {
	r := NewRetention(db)
	return repeat.Start(retentionPause, func(ctx context.Context) {
		bounded, cancel := context.WithTimeout(ctx, retentionPause)
		defer cancel()
		deleted, err := r.Sweep(bounded)
		if deleted > 0 {
			logger.InfoContext(ctx, "deleted records of calls that cost nothing and that organizations don't keep any longer", "calls", deleted)
		}
		if err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "deleting old calls failed", "error", err)
		}
	})
}
