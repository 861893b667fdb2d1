package billing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// retentionPause is the pause between two sweeps of [StartRetention], and the longest that one may take: retention counts days.
	retentionPause = time.Hour
	// leastCallDays is how long every call is kept: a kept answer names its call for 30 days.
	leastCallDays = 31
	// retentionRows is how many calls one transaction looks at.
	retentionRows = 500
)

// Retention deletes the records of old calls that cost nothing. Charged calls are the ledger and stay.
type Retention struct {
	db *store.DB
	// swept is the beginning of the last call that a wallet's sweep has looked at, in epoch milliseconds.
	swept map[WalletID]int64
}

// NewRetention returns the retention of a database.
func NewRetention(db *store.DB) *Retention { return &Retention{db: db, swept: map[WalletID]int64{}} }

// Sweep deletes, of organizations that don't keep their conversations for ever ([store.Organizations.SetRetention]), the calls that
// were charged nothing and are older than that and 31 days, with their holds, and returns how many. It looks at each old call once.
// It reads page by page and deletes in small transactions. Several processes may sweep a database at once, one goroutine a Retention.
func (r *Retention) Sweep(ctx context.Context) (deleted int64, err error) {
	now, err := r.db.Now(ctx)
	if err != nil {
		return 0, err //nolint:wrapcheck // it says what it did
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
	selectOldCalls = `SELECT coalesce(max(started_at), 0) FROM (SELECT started_at FROM calls
		WHERE org_id = $1 AND env = $2 AND started_at > $3 AND started_at < $4 ORDER BY started_at LIMIT $5) AS page`
	oldFreeCalls = `FROM calls WHERE org_id = $1 AND env = $2 AND started_at > $3 AND started_at <= $4
		AND charged_micros = 0 AND charged_at IS NULL AND tx_id IS NULL
		AND NOT EXISTS (SELECT 1 FROM idempotency_keys k WHERE k.call_id = calls.id)`
	deleteHoldsOfFreeCalls = `DELETE FROM holds WHERE id IN (SELECT id ` + oldFreeCalls + `)`
	deleteFreeCalls        = `DELETE ` + oldFreeCalls + ` RETURNING id`
)

// sweepWallet deletes the free calls of a wallet that began before a moment.
func (r *Retention) sweepWallet(ctx context.Context, id WalletID, before int64) (deleted int64, err error) {
	for {
		var through int64
		err := r.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			after, n := r.swept[id], int64(0)
			page := func(row store.Row) error { return row.Scan(&through) }
			if err := tx.Query(ctx, page, selectOldCalls, id.OrgID, string(id.Env), after, before, retentionRows); err != nil || through == 0 {
				return err
			}
			tx.Queue(store.AnyRows, deleteHoldsOfFreeCalls, id.OrgID, string(id.Env), after, through)
			err := tx.Query(ctx, func(store.Row) error { n++; return nil }, deleteFreeCalls, id.OrgID, string(id.Env), after, through)
			if err == nil {
				deleted += n
			}
			return err
		})
		if err != nil || through == 0 {
			return deleted, err
		}
		r.swept[id] = through
	}
}

// StartRetention runs [Retention.Sweep] at once and about every hour, until the task is stopped.
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
