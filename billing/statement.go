package billing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ErrStatementChanged is returned for a closed month that doesn't fit its hash, because the books were changed by hand.
var ErrStatementChanged = errors.New("the closed month doesn't fit its hash; caddy svc doctor says more")

// monthLayout is the form of a month in statements.
const monthLayout = "2006-01"

// Statement is the account of a wallet in a calendar month of its organization's time zone. It has the charges and postings of a range of
// numbers, so that two months never share one:
//
//	opening + credits + refunds + adjustments + reversals - charges = closing, the opening of the next month
//
// A month that has ended is closed: its row is written once and never changes. Postings come later than the end of the month then, because
// the time of a posting is never before moved_at of its wallet, and the month is closed only after moved_at has reached its end. The exception
// is a clock that was set back by more than [clockLead]; then the number decides, and the posting counts in the next month.
type Statement struct {
	// Month is written as 2026-10, and Zone is the IANA name of its time zone.
	Month, Zone string
	// BeginsAt and EndsAt are in epoch milliseconds. A month begins when the month before ended, also if the zone was changed between.
	BeginsAt, EndsAt int64
	// FirstSeq and LastSeq are the numbers of its first and last entry. Without entries LastSeq is FirstSeq - 1.
	FirstSeq, LastSeq                        int64
	OpeningMicros, CreditMicros              int64
	ChargeMicros, RefundMicros, AdjustMicros int64
	ReversalMicros, ClosingMicros            int64
	// Calls are the calls that were charged. Others are deleted at some time, so no statement counts them.
	Calls int64
	// Charges are the sums of the charges in JSON, see [Statement.Sums]. A list has none for the month in progress.
	Charges string
	// Hash is zero for the month in progress.
	Hash [32]byte
}

// ChargeSum is the sum of the charges for a model that one key or agent caused. An agent that was deleted before its month was closed isn't
// known; then, and for members who tried a model, KeyID and AgentID are empty.
type ChargeSum struct {
	Model            string `json:"model"`
	KeyID            string `json:"key,omitempty"`
	AgentID          string `json:"agent,omitempty"`
	Calls            int64  `json:"calls"`
	PromptTokens     int64  `json:"prompt"`
	CompletionTokens int64  `json:"completion"`
	Micros           int64  `json:"micros"`
}

func (c ChargeSum) compare(other ChargeSum) int {
	return cmp.Or(cmp.Compare(c.Model, other.Model), cmp.Compare(c.KeyID, other.KeyID), cmp.Compare(c.AgentID, other.AgentID))
}

// Closed reports whether the month has ended and its row is written.
func (s *Statement) Closed() bool { return s.Hash != [32]byte{} }

// Sums returns the charges by model, key and agent, in this order.
func (s *Statement) Sums() (sums []ChargeSum, err error) {
	if s.Charges != "" {
		err = json.Unmarshal([]byte(s.Charges), &sums)
	}
	return sums, err
}

const (
	statementColumns = `month, zone, begins_at, ends_at, first_seq, last_seq, opening_micros, credit_micros, charge_micros, refund_micros,
		adjust_micros, reversal_micros, closing_micros, calls, charges, hash`
	insertStatement = `INSERT INTO statements (org_id, env, ` + statementColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) ON CONFLICT DO NOTHING`
	selectMonth  = `SELECT ` + statementColumns + ` FROM statements WHERE org_id = $1 AND env = $2 AND month = $3`
	selectMonths = `SELECT ` + statementColumns + ` FROM statements WHERE org_id = $1 AND env = $2 AND month < $3 ORDER BY month DESC LIMIT $4`

	selectEnd = `SELECT w.org_id, w.env, w.seq, w.balance_micros, w.moved_at, o.time_zone, coalesce(
			(SELECT ended_at FROM calls c WHERE c.org_id = w.org_id AND c.env = w.env AND c.wallet_seq = 1),
			(SELECT created_at FROM ledger_tx t WHERE t.org_id = w.org_id AND t.env = w.env AND t.wallet_seq = 1), 0),
			coalesce(s.month, ''), coalesce(s.ends_at, 0), coalesce(s.last_seq, 0), coalesce(s.closing_micros, 0)
		FROM wallets w JOIN organizations o ON o.id = w.org_id
		LEFT JOIN statements s ON s.org_id = w.org_id AND s.env = w.env
			AND s.month = (SELECT max(m.month) FROM statements m WHERE m.org_id = w.org_id AND m.env = w.env)`
	selectEndOf  = selectEnd + ` WHERE w.org_id = $1 AND w.env = $2`
	selectEndsOf = selectEnd + ` WHERE (w.org_id, w.env) > ($1, $2) ORDER BY w.org_id, w.env LIMIT $3`
	raiseMovedAt = `UPDATE wallets SET moved_at = $3 WHERE org_id = $1 AND env = $2 AND moved_at < $3`

	ofRange         = ` WHERE org_id = $1 AND env = $2 AND wallet_seq >= $3 AND wallet_seq <= $4`
	selectBalanceOf = `SELECT coalesce((SELECT balance_micros FROM calls WHERE org_id = $1 AND env = $2 AND wallet_seq = $3),
		(SELECT balance_micros FROM ledger_tx WHERE org_id = $1 AND env = $2 AND wallet_seq = $3), 0)`
	sumsOfPostings = `SELECT kind, count(*), CAST(sum(amount_micros) AS BIGINT) FROM ledger_tx` + ofRange + ` GROUP BY kind`
	sumsOfCharges  = `SELECT c.model, c.key_id, coalesce(t.agent_id, ''), count(*), CAST(sum(prompt_tokens) AS BIGINT),
			CAST(sum(completion_tokens) AS BIGINT), CAST(sum(charged_micros) AS BIGINT)
		FROM calls c LEFT JOIN turns t ON t.id = c.request_id AND t.org_id = c.org_id
		WHERE c.org_id = $1 AND c.env = $2 AND c.wallet_seq >= $3 AND c.wallet_seq <= $4 GROUP BY c.model, c.key_id, coalesce(t.agent_id, '')`
	selectPostings = `SELECT wallet_seq, id, kind, ref, reason, amount_micros, balance_micros, created_at, corrects FROM ledger_tx` +
		ofRange + ` ORDER BY wallet_seq LIMIT $5`
)

// statementRows is the number of charges that one read sums up.
const statementRows = 20_000

// walletMonths is the end of the closed months of a wallet. Month is empty if none is closed. FirstAt is the time of the wallet's first entry.
type walletMonths struct {
	WalletID
	Seq, BalanceMicros, MovedAt    int64
	Zone                           string
	FirstAt                        int64
	Month                          string
	EndsAt, LastSeq, ClosingMicros int64
}

// next returns the month after the closed ones, with all entries so far and without sums.
func (w *walletMonths) next() (*Statement, error) {
	zone, err := time.LoadLocation(w.Zone)
	if err != nil {
		return nil, fmt.Errorf("the time zone of organization %s: %w", w.OrgID, err)
	}
	s := &Statement{
		Zone: w.Zone, BeginsAt: w.EndsAt, FirstSeq: w.LastSeq + 1, LastSeq: w.Seq, OpeningMicros: w.ClosingMicros, ClosingMicros: w.BalanceMicros,
	}
	var month time.Time
	if w.Month == "" {
		first := time.UnixMilli(w.FirstAt).In(zone)
		month = time.Date(first.Year(), first.Month(), 1, 0, 0, 0, 0, time.UTC)
		s.BeginsAt = beginOfDay(month.Year(), month.Month(), 1, zone)
	} else if month, err = time.Parse(monthLayout, w.Month); err == nil {
		month = month.AddDate(0, 1, 0)
	}
	s.Month, s.EndsAt = month.Format(monthLayout), beginOfDay(month.Year(), month.Month()+1, 1, zone)
	return s, err
}

// rowReader runs each for every row of a query.
type rowReader func(ctx context.Context, each func(store.Row) error, query string, arguments ...any) error

// readerOf returns the reader of a database.
func readerOf(db *store.DB, doing string) rowReader {
	return func(ctx context.Context, each func(store.Row) error, query string, arguments ...any) error {
		return store.EachRow(ctx, db, doing, each, query, arguments...)
	}
}

// addUp sets the sums of a statement with its range and its balances. The charges are the rest, so that it reads only postings.
func (s *Statement) addUp(ctx context.Context, read rowReader, id WalletID) error {
	sums := map[EntryKind]int64{}
	s.Calls = s.LastSeq - s.FirstSeq + 1
	err := read(ctx, func(row store.Row) error {
		var kind EntryKind
		var postings, micros int64
		err := row.Scan(&kind, &postings, &micros)
		sums[kind], s.Calls = micros, s.Calls-postings
		return err
	}, sumsOfPostings, id.OrgID, string(id.Env), s.FirstSeq, s.LastSeq)
	s.CreditMicros, s.AdjustMicros, s.RefundMicros, s.ReversalMicros = sums[EntryTopUp], sums[EntryAdjust], sums[EntryRefund], sums[EntryReversal]
	s.ChargeMicros = s.OpeningMicros + s.CreditMicros + s.AdjustMicros + s.RefundMicros + s.ReversalMicros - s.ClosingMicros
	return err
}

// addTo adds the figures to the sum for the same model, key and agent.
func (c ChargeSum) addTo(sums map[ChargeSum]ChargeSum) {
	key := ChargeSum{Model: c.Model, KeyID: c.KeyID, AgentID: c.AgentID}
	sum := sums[key]
	c.Calls += sum.Calls
	c.PromptTokens += sum.PromptTokens
	c.CompletionTokens += sum.CompletionTokens
	c.Micros += sum.Micros
	sums[key] = c
}

// sumCharges reads the charges with numbers in a range.
func sumCharges(ctx context.Context, read rowReader, id WalletID, from, through int64) ([]ChargeSum, error) {
	sums := map[ChargeSum]ChargeSum{}
	err := store.ReadPages(ctx, statementRows, func(rows int) (more bool, err error) {
		var page []ChargeSum
		last := min(through, from+int64(rows)-1)
		err = read(ctx, func(row store.Row) error {
			var c ChargeSum
			err := row.Scan(&c.Model, &c.KeyID, &c.AgentID, &c.Calls, &c.PromptTokens, &c.CompletionTokens, &c.Micros)
			page = append(page, c)
			return err
		}, sumsOfCharges, id.OrgID, string(id.Env), from, last)
		if err != nil {
			return false, err
		}
		for _, c := range page {
			c.addTo(sums)
		}
		from = last + 1
		return from <= through, nil
	})
	return slices.SortedFunc(maps.Values(sums), ChargeSum.compare), err
}

// readCharges reads the charges in the range of a statement. They must be the difference of its balances.
func (s *Statement) readCharges(ctx context.Context, read rowReader, id WalletID) error {
	charges, err := sumCharges(ctx, read, id, s.FirstSeq, s.LastSeq)
	if err != nil {
		return err
	}
	var calls, micros int64
	for i := range charges {
		calls, micros = calls+charges[i].Calls, micros+charges[i].Micros
	}
	if calls != s.Calls || micros != s.ChargeMicros {
		return fmt.Errorf("the month %s of %s:%s has %d charges of %d micros, and by its balances %d of %d; caddy svc doctor says more",
			s.Month, id.OrgID, id.Env, calls, micros, s.Calls, s.ChargeMicros)
	}
	text, _ := json.Marshal(charges) //nolint:errchkjson // texts and numbers only
	s.Charges = string(text)
	return nil
}

// digest returns the hash of a statement: of its row, and of the postings in its range.
func (s *Statement) digest(ctx context.Context, read rowReader, id WalletID) (hash [32]byte, err error) {
	sum := sha256.New()
	write := func(line ...any) {
		text, _ := json.Marshal(line) //nolint:errchkjson // texts and numbers only
		sum.Write(append(text, '\n'))
	}
	write(id.OrgID, string(id.Env), s.Month, s.Zone, s.BeginsAt, s.EndsAt, s.FirstSeq, s.LastSeq, s.OpeningMicros, s.CreditMicros, s.ChargeMicros,
		s.RefundMicros, s.AdjustMicros, s.ReversalMicros, s.ClosingMicros, s.Calls, s.Charges)
	for next := s.FirstSeq; next > 0; {
		from := next
		next = 0
		err := read(ctx, func(row store.Row) error {
			e, err := scanPosting(row, id)
			write(e.Seq, e.ID, string(e.Kind), e.Ref, e.Note, e.AmountMicros, e.BalanceMicros, e.At, e.Corrects)
			next = e.Seq + 1
			return err
		}, selectPostings, id.OrgID, string(id.Env), from, s.LastSeq, MaxHistoryRows)
		if err != nil {
			return hash, err
		}
	}
	return [32]byte(sum.Sum(nil)), nil
}

func scanPosting(row store.Row, id WalletID) (Entry, error) {
	e := Entry{Wallet: id}
	return e, row.Scan(&e.Seq, &e.ID, &e.Kind, &e.Ref, &e.Note, &e.AmountMicros, &e.BalanceMicros, &e.At, &e.Corrects)
}

// Postings reads the credits, adjustments and refunds with numbers in a range, oldest first, up to [MaxHistoryRows].
func (b *Book) Postings(ctx context.Context, id WalletID, from, through int64) ([]Entry, error) {
	return store.ReadRows(ctx, b.db, "list postings", func(row store.Row) (Entry, error) { return scanPosting(row, id) },
		selectPostings, id.OrgID, string(id.Env), from, through, MaxHistoryRows)
}

// Statements reads the statements of the months before a month, newest first. An empty month means all of them, with the month in progress, whose
// entries so far are in it. It closes months that have ended.
func (b *Book) Statements(ctx context.Context, id WalletID, before string, rows int) ([]Statement, error) {
	progress, err := b.closeMonths(ctx, id)
	if err != nil || progress == nil {
		return nil, err
	}
	var statements []Statement
	if before == "" {
		if err := progress.addUp(ctx, readerOf(b.db, "add up a month"), id); err != nil {
			return nil, err
		}
		statements, before, rows = append(statements, *progress), progress.Month, rows-1
	}
	closed, err := store.ReadRows(ctx, b.db, "list statements", store.ScanFields[Statement](), selectMonths, id.OrgID, string(id.Env), before, rows)
	return append(statements, closed...), err
}

// Statement reads the statement of a month, which may be in progress. It returns [store.ErrNotFound] for a month before the wallet's first entry
// or in the future, and [ErrStatementChanged].
func (b *Book) Statement(ctx context.Context, id WalletID, month string) (*Statement, error) {
	progress, err := b.closeMonths(ctx, id)
	if err != nil {
		return nil, err
	}
	read := readerOf(b.db, "read a statement")
	if progress != nil && progress.Month == month {
		return progress, cmp.Or(progress.addUp(ctx, read, id), progress.readCharges(ctx, read, id))
	}
	closed, err := store.ReadRow(ctx, b.db, "read a statement", store.ScanFields[Statement](), selectMonth, id.OrgID, string(id.Env), month)
	if err != nil {
		return nil, err
	}
	if hash, err := closed.digest(ctx, read, id); err != nil || hash != closed.Hash {
		return nil, cmp.Or(err, fmt.Errorf("%w: %s of %s:%s", ErrStatementChanged, month, id.OrgID, id.Env))
	}
	return &closed, nil
}

// closeMonths closes the months of a wallet that have ended. It returns the month in progress without sums, or nil for a wallet without entries.
func (b *Book) closeMonths(ctx context.Context, id WalletID) (progress *Statement, err error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	now, err := b.db.Now(ctx)
	if err != nil {
		return nil, err
	}
	for {
		wallet, err := store.ReadRow(
			ctx, b.db, "read the months of a wallet", store.ScanFields[walletMonths](), selectEndOf, id.OrgID, string(id.Env))
		if errors.Is(err, store.ErrNotFound) || err == nil && wallet.Seq == 0 {
			return nil, nil //nolint:nilnil // there is no month
		}
		if err != nil {
			return nil, err
		}
		next, err := wallet.next()
		if err != nil || now < next.EndsAt {
			return next, err
		}
		if err := b.closeMonth(ctx, id, &wallet, next); err != nil {
			return nil, fmt.Errorf("close the month %s: %w", next.Month, err)
		}
	}
}

// closeMonth writes the statement of a month that has ended. Any number of processes may do so at the same time: their rows are equal.
func (b *Book) closeMonth(ctx context.Context, id WalletID, wallet *walletMonths, s *Statement) (err error) {
	if wallet.MovedAt < s.EndsAt {
		raise := func(tx store.Tx) { tx.Queue(store.AnyRows, raiseMovedAt, id.OrgID, string(id.Env), s.EndsAt) }
		if err := b.db.ExecQueued(ctx, raise); err != nil {
			return err
		}
	}
	read := readerOf(b.db, "close a month")
	last, err := b.seqBefore(ctx, id, s.EndsAt)
	if err != nil {
		return err
	}
	s.LastSeq, s.ClosingMicros = max(last, s.FirstSeq-1), s.OpeningMicros
	if s.LastSeq >= s.FirstSeq {
		s.ClosingMicros, err = store.ReadRow(
			ctx, b.db, "read a balance", store.ScanValue[int64], selectBalanceOf, id.OrgID, string(id.Env), s.LastSeq)
	}
	if err = cmp.Or(err, s.addUp(ctx, read, id), s.readCharges(ctx, read, id)); err != nil {
		return err
	}
	if s.Hash, err = s.digest(ctx, read, id); err != nil {
		return err
	}
	return b.db.ExecQueued(ctx, func(tx store.Tx) {
		tx.Queue(store.AnyRows, insertStatement, id.OrgID, string(id.Env), s.Month, s.Zone, s.BeginsAt, s.EndsAt, s.FirstSeq, s.LastSeq,
			s.OpeningMicros, s.CreditMicros, s.ChargeMicros, s.RefundMicros, s.AdjustMicros, s.ReversalMicros, s.ClosingMicros,
			s.Calls, s.Charges, s.Hash[:])
	})
}

const (
	// closingPause is the time between two looks for months that have ended.
	closingPause = time.Hour
	// closingWallets is the number of wallets that one read returns.
	closingWallets = 500
	// shortestMonth is less than any month has, in milliseconds.
	shortestMonth = 26 * dayMillis
)

// CloseMonths closes the months of all wallets that have ended.
func (b *Book) CloseMonths(ctx context.Context) error {
	now, err := b.db.Now(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for last := (WalletID{}); ; {
		wallets, err := store.ReadRows(ctx, b.db, "look for months that have ended", store.ScanFields[walletMonths](), selectEndsOf,
			last.OrgID, string(last.Env), closingWallets)
		if err != nil {
			return errors.Join(append(faults, err)...)
		}
		for i := range wallets {
			if wallets[i].Month != "" && now < wallets[i].EndsAt+shortestMonth {
				continue
			}
			if _, err := b.closeMonths(ctx, wallets[i].WalletID); err != nil && len(faults) < store.MostFindings {
				faults = append(faults, err)
			}
		}
		if len(wallets) < closingWallets {
			return errors.Join(faults...)
		}
		last = wallets[len(wallets)-1].WalletID
	}
}

// StartClosing runs [Book.CloseMonths] immediately and about every hour, until the task is stopped.
func StartClosing(db *store.DB, logger *slog.Logger) *repeat.Task {
	book := NewBook(db)
	return repeat.Start(closingPause, func(ctx context.Context) {
		if err := book.CloseMonths(ctx); err != nil && ctx.Err() == nil {
			logger.ErrorContext(ctx, "closing the month of a wallet failed; it is tried again within an hour", "error", err)
		}
	})
}
