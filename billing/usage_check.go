package billing

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// selectCounted reads the wallets of a page that have moved since the day $3, each with its figures from this day on, in one moment.
const selectCounted = `SELECT u.org_id, u.env, u.seq, u.ended_at, coalesce(d.day, 0), coalesce(calls, 0), coalesce(answered, 0),
		coalesce(client_gone, 0), coalesce(prompt_tokens, 0), coalesce(completion_tokens, 0), coalesce(cached_tokens, 0), coalesce(charged_micros, 0),
		coalesce(refunded_micros, 0), coalesce(cost_micros, 0), coalesce(unknown_costs, 0)
	FROM usage_wallets u LEFT JOIN usage_days d ON d.org_id = u.org_id AND d.env = u.env AND d.day >= $3
	WHERE u.org_id > $1 AND u.org_id <= $2 AND u.spent_day >= $3`

// countedWallet is the position of a wallet with its figures by day.
type countedWallet struct {
	usageWallet

	days map[int64]*Figures
}

// searchUsage counts the calls of yesterday and today again. Calls up to a wallet's position don't change, so the wallet may be in use.
func searchUsage(ctx context.Context, s *search) error {
	first := s.now/dayMillis - 1
	return s.pages(ctx, "usage_wallets", func(ctx context.Context, after, through string) error {
		wallets := map[WalletID]*countedWallet{}
		err := s.read(ctx, func(rows *sql.Rows) error {
			var w usageWallet
			var day int64
			var f Figures
			err := rows.Scan(store.Arguments(f.fields(), &w.id.OrgID, &w.id.Env, &w.last, &w.endedAt, &day)...)
			if wallets[w.id] == nil {
				wallets[w.id] = &countedWallet{w, map[int64]*Figures{}}
			}
			addFigures(wallets[w.id].days, day, &f)
			return err
		}, selectCounted, after, through, first)
		if err != nil {
			return err
		}
		for _, w := range wallets {
			if err := s.searchDays(ctx, w, first); err != nil || s.full() {
				return err
			}
		}
		return nil
	})
}

// searchDays compares the figures of a wallet with its calls from a day on.
func (s *search) searchDays(ctx context.Context, counted *countedWallet, first int64) error {
	w, until, days := counted.usageWallet, counted.endedAt+1, map[int64]*Figures{}
	if err := s.value(ctx, &w.seq, store.SelectSeqBefore, w.id.OrgID, string(w.id.Env), first*dayMillis); err != nil {
		return err
	}
	read := s.rowReader()
	for w.endedAt, w.free = first*dayMillis-1, true; w.seq < w.last || w.free; {
		err := nextUsage(ctx, read, &w, until, func(_ int64, key usageKey, f *Figures) { addFigures(days, key.day, f) })
		if err != nil {
			return err
		}
	}
	for _, sums := range []map[int64]*Figures{days, counted.days} {
		for day := range sums {
			addFigures(days, day, new(Figures))
			addFigures(counted.days, day, new(Figures))
		}
	}
	for _, day := range slices.Sorted(maps.Keys(days)) {
		if found, stored := days[day], counted.days[day]; *found != *stored {
			s.add(w.id.OrgID+":"+string(w.id.Env), fmt.Sprintf("%s: %d calls, charged %d, refunded %d, cost %d; its usage has %d, %d, %d and %d",
				time.UnixMilli(day*dayMillis).UTC().Format(time.DateOnly), found.Calls, found.ChargedMicros, found.RefundedMicros, found.CostMicros,
				stored.Calls, stored.ChargedMicros, stored.RefundedMicros, stored.CostMicros))
		}
	}
	return nil
}
