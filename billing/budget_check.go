package billing

import (
	"context"
	"database/sql"
	"fmt"
)

const (
	// selectNamed reads, of the wallets of a page, the reserved amount of each period of a budget, and the amounts of holds, keys and tranches with
	// the periods that they name, in one moment.
	selectNamed = `SELECT org_id, env, number, reserved_micros, '' FROM budget_spend WHERE org_id > $1 AND org_id <= $2 AND reserved_micros > 0
		UNION ALL SELECT org_id, env, 0, amount_micros, budgets FROM holds WHERE org_id > $1 AND org_id <= $2 AND budgets <> ''
		UNION ALL SELECT org_id, env, 0, reserved_micros, budgets FROM running_keys WHERE org_id > $1 AND org_id <= $2 AND budgets <> ''
		UNION ALL SELECT org_id, env, 0, left_micros, budgets FROM tranches WHERE org_id > $1 AND org_id <= $2 AND budgets <> ''`
	overspentPeriods = `SELECT org_id || ':' || env, 'period ' || number || ' of ' || budget_id || ': spent ' || spent_micros || ', reserved '
			|| reserved_micros || ', admitted by a limit of ' || most_micros
		FROM budget_spend WHERE org_id > $1 AND org_id <= $2
			AND (reserved_micros < 0 OR spent_micros < 0 OR reserved_micros > most_micros - spent_micros)`
	// selectCountedIn reads the periods of a page that began since the moment $3, in one moment.
	selectCountedIn = `SELECT org_id, env, number, spent_micros, first_seq, last_seq FROM budget_spend
		WHERE org_id > $1 AND org_id <= $2 AND period_start >= $3`
	selectCountedCalls = `SELECT id, wallet_seq, charged_micros, budgets FROM calls
		WHERE org_id = $1 AND env = $2 AND wallet_seq > $3 AND wallet_seq <= $4 AND budgets IS NOT NULL`
)

// searchReserved compares the reserved amounts of periods with the reservations that name them.
func searchReserved(ctx context.Context, s *search) error {
	return s.pages(ctx, "wallets", func(ctx context.Context, after, through string) error {
		missing := map[periodKey]int64{}
		err := s.read(ctx, func(rows *sql.Rows) error {
			var key periodKey
			var micros int64
			var names string
			if err := rows.Scan(&key.wallet.OrgID, &key.wallet.Env, &key.number, &micros, &names); err != nil {
				return err
			}
			if key.number > 0 {
				missing[key] += micros
			}
			for named := range periodKeys(key.wallet, names) {
				missing[named] -= micros
			}
			return nil
		}, selectNamed, after, through)
		for key, micros := range missing {
			if micros != 0 {
				s.add(key.wallet.OrgID+":"+string(key.wallet.Env),
					fmt.Sprintf("period %d of its budgets has reserved %d more than holds, keys and tranches name", key.number, micros))
			}
		}
		return err
	})
}

// countedPeriod is a period with the charges that name it.
type countedPeriod struct{ spent, first, last, charged int64 }

// searchSpent sums up the charges that are counted in periods. Charges up to the last number of a period are written and never change, so the wallet
// may be in use.
func searchSpent(ctx context.Context, s *search) error {
	return s.pages(ctx, "wallets", func(ctx context.Context, after, through string) error {
		wallets := map[WalletID]map[periodKey]*countedPeriod{}
		err := s.read(ctx, func(rows *sql.Rows) error {
			var key periodKey
			p := &countedPeriod{}
			err := rows.Scan(&key.wallet.OrgID, &key.wallet.Env, &key.number, &p.spent, &p.first, &p.last)
			if wallets[key.wallet] == nil {
				wallets[key.wallet] = map[periodKey]*countedPeriod{}
			}
			wallets[key.wallet][key] = p
			return err
		}, selectCountedIn, after, through, s.since)
		if err != nil {
			return err
		}
		for id, periods := range wallets {
			if err := s.searchCharges(ctx, id, periods); err != nil || s.full() {
				return err
			}
		}
		return nil
	})
}

// searchCharges reads the charges of a wallet from the beginning of the first period on.
func (s *search) searchCharges(ctx context.Context, id WalletID, periods map[periodKey]*countedPeriod) error {
	subject := id.OrgID + ":" + string(id.Env)
	var last int64
	first := int64(-1)
	for _, p := range periods {
		last = max(last, p.last)
		if first < 0 || p.first < first {
			first = p.first
		}
	}
	for from := first; from < last && !s.full(); from += int64(s.pageRows) {
		err := s.read(ctx, func(rows *sql.Rows) error {
			var call, names string
			var seq, charged int64
			if err := rows.Scan(&call, &seq, &charged, &names); err != nil {
				return err
			}
			for key := range periodKeys(id, names) {
				switch p := periods[key]; {
				case p == nil && s.since == 0:
					s.add(call, fmt.Sprintf("its charge is counted in period %d of the budgets, which is missing", key.number))
				case p != nil && (seq <= p.first || seq > p.last):
					s.add(call, fmt.Sprintf("its charge has number %d, and period %d counts numbers above %d up to %d", seq, key.number,
						p.first, p.last))
				case p != nil:
					p.charged += charged
				}
			}
			return nil
		}, selectCountedCalls, id.OrgID, string(id.Env), from, min(last, from+int64(s.pageRows)))
		if err != nil {
			return err
		}
	}
	for key, p := range periods {
		if p.charged != p.spent {
			s.add(subject, fmt.Sprintf("period %d of its budgets has spent %d, its charges are %d", key.number, p.spent, p.charged))
		}
	}
	return nil
}
