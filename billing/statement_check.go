package billing

import (
	"context"
	"database/sql"
	"fmt"
	"maps"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// selectClosedMonths reads the closed months of a page of organizations, each with the balances of the wallet before and after it.
const selectClosedMonths = `SELECT org_id, env, w.seq, ` + statementColumns + `,
		coalesce((SELECT balance_micros FROM calls c WHERE c.org_id = s.org_id AND c.env = s.env AND c.wallet_seq = s.first_seq - 1),
			(SELECT balance_micros FROM ledger_tx t WHERE t.org_id = s.org_id AND t.env = s.env AND t.wallet_seq = s.first_seq - 1), 0),
		coalesce((SELECT balance_micros FROM calls c WHERE c.org_id = s.org_id AND c.env = s.env AND c.wallet_seq = s.last_seq),
			(SELECT balance_micros FROM ledger_tx t WHERE t.org_id = s.org_id AND t.env = s.env AND t.wallet_seq = s.last_seq), 0)
	FROM statements s LEFT JOIN (SELECT org_id, env, seq FROM wallets) AS w USING (org_id, env)
	WHERE org_id > $1 AND org_id <= $2 ORDER BY org_id, env, month`

// closedMonth is a closed month with the number of its wallet's last entry, and with the balances of the wallet before and after it.
type closedMonth struct {
	WalletID
	Seq sql.NullInt64
	Statement
	Before, After int64
}

// joins returns the reason why a month doesn't follow the month before, which is zero for the first month. Empty means that it does.
func (m *closedMonth) joins(last *Statement) string {
	switch {
	case !m.Seq.Valid || m.LastSeq > m.Seq.Int64:
		return fmt.Sprintf("it ends with number %d, its wallet with %d", m.LastSeq, m.Seq.Int64)
	case m.FirstSeq != last.LastSeq+1:
		return fmt.Sprintf("it begins with number %d, the month before ends with %d", m.FirstSeq, last.LastSeq)
	case last.Month != "" && m.BeginsAt != last.EndsAt:
		return fmt.Sprintf("it begins at %d, the month before ends at %d", m.BeginsAt, last.EndsAt)
	}
	return ""
}

// balances returns the reason why the amounts of a month don't add up, or empty.
func (m *closedMonth) balances(last *Statement) string {
	in := m.CreditMicros + m.RefundMicros + m.AdjustMicros + m.ReversalMicros
	switch {
	case m.OpeningMicros+in-m.ChargeMicros != m.ClosingMicros:
		return fmt.Sprintf("%d, with %d and without %d, is closed with %d", m.OpeningMicros, in, m.ChargeMicros, m.ClosingMicros)
	case m.OpeningMicros != last.ClosingMicros && m.FirstSeq == last.LastSeq+1:
		return fmt.Sprintf("it is opened with %d, the month before closed with %d", m.OpeningMicros, last.ClosingMicros)
	case m.OpeningMicros != m.Before || m.ClosingMicros != m.After:
		return fmt.Sprintf("it is opened with %d and closed with %d, its wallet had %d and %d", m.OpeningMicros, m.ClosingMicros, m.Before, m.After)
	}
	return ""
}

// searchMonths examines every closed month with the month before. A recent check examines the months that ended lately.
func (s *search) searchMonths(ctx context.Context, fault func(m *closedMonth, last *Statement) string) error {
	return s.eachMonth(ctx, func(_ context.Context, m *closedMonth, last *Statement) error {
		if detail := fault(m, last); detail != "" {
			s.add(m.subject(), detail)
		}
		return nil
	})
}

func (m *closedMonth) subject() string { return m.OrgID + ":" + string(m.Env) + " " + m.Month }

func (s *search) eachMonth(ctx context.Context, examine func(ctx context.Context, m *closedMonth, last *Statement) error) error {
	return s.pages(ctx, "statements", func(ctx context.Context, after, through string) error {
		var months []closedMonth
		err := s.read(ctx, func(rows store.Row) error {
			m, err := store.ScanFields[closedMonth]()(rows)
			months = append(months, m)
			return err
		}, selectClosedMonths, after, through)
		if err != nil {
			return err
		}
		for i := range months {
			last := new(Statement)
			if i > 0 && months[i-1].WalletID == months[i].WalletID {
				last = &months[i-1].Statement
			}
			if months[i].EndsAt < s.since {
				continue
			}
			if err := examine(ctx, &months[i], last); err != nil || s.full() {
				return err
			}
		}
		return nil
	})
}

// searchClosedMonths makes the statements of closed months again.
func searchClosedMonths(ctx context.Context, s *search) error {
	return s.eachMonth(ctx, func(ctx context.Context, m *closedMonth, _ *Statement) error {
		again := m.Statement
		hash, err := m.digest(ctx, s.read, m.WalletID)
		if err != nil {
			return err
		}
		if err := again.addUp(ctx, s.read, m.WalletID); err != nil {
			return err
		}
		found, err := sumCharges(ctx, s.read, m.WalletID, m.FirstSeq, m.LastSeq)
		if err != nil {
			return err
		}
		written, err := m.Sums()
		switch {
		case hash != m.Hash || err != nil:
			s.add(m.subject(), "it doesn't fit its hash")
		case again != m.Statement:
			s.add(m.subject(), fmt.Sprintf(
				"it has %d credited, %d refunded, %d adjusted, %d reversed and %d charged in %d calls; its numbers have %d, %d, %d, %d and %d in %d",
				m.CreditMicros, m.RefundMicros, m.AdjustMicros, m.ReversalMicros, m.ChargeMicros, m.Calls,
				again.CreditMicros, again.RefundMicros, again.AdjustMicros, again.ReversalMicros, again.ChargeMicros, again.Calls))
		case !maps.Equal(withoutAgents(found), withoutAgents(written)):
			s.add(m.subject(), "its charges by model and key are not those of its calls")
		}
		return nil
	})
}

// withoutAgents returns sums by model and key, because the turns that name agents are deleted at some time.
func withoutAgents(sums []ChargeSum) map[ChargeSum]ChargeSum {
	merged := map[ChargeSum]ChargeSum{}
	for _, c := range sums {
		c.AgentID = ""
		c.addTo(merged)
	}
	return merged
}
