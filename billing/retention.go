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
	// leastCallDays is how long every call is kept: an organization can look at a month, and no finished Idempotency-Key outlives its call.
	leastCallDays = 31
	// retentionRows is how many calls one transaction looks at.
	retentionRows = 500
)

// Retention deletes the records of old calls that cost nobody anything. Charged calls are the ledger and stay, and so do those whose cost
// the operator bears.
type Retention struct {
	db *store.DB
	// swept is the end of the last call that a wallet's sweep has looked at, in epoch milliseconds.
	swept map[WalletID]int64
}

// NewRetention returns the retention of a database.
func NewRetention(db *store.DB) *Retention { return &Retention{db: db, swept: map[WalletID]int64{}} }

// Sweep deletes, of organizations that don't keep their conversations for ever ([store.Organizations.SetRetention]), the calls that
// cost nothing and are older than that and 31 days, and returns how many. It looks at each old call once.
// It reads page by page and deletes in small transactions. Several processes may sweep a database at once, one goroutine a Retention.
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
		AND shortfall_micros = 0 RETURNING id`
)

// sweepWallet deletes the free calls of a wallet that ended before a moment.
func (r *Retention) sweepWallet(ctx context.Context, id WalletID, before int64) (deleted int64, err error) {
	for {
		var through int64
		err := r.db.Exec(ctx, func(ctx context.Context, tx store.Tx) error {
			after, n := r.swept[id], int64(0)
			page := func(row store.Row) error { return row.Scan(&through) }
			if err := tx.Query(ctx, page, selectOldCalls, id.OrgID, string(id.Env), after, before, retentionRows); err != nil || through == 0 {
				return err
			}
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
