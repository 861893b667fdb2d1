package billing

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// readTimeout limits each read of a check. The database is in use, and a long read keeps SQLite's log from being truncated and
// PostgreSQL from cleaning up.
const readTimeout = 2 * time.Second

// Finding is a violation of an invariant.
type Finding = store.Finding

// Examined is one invariant with its findings.
type Examined struct {
	// ID names the invariant: a letter and a number for an invariant of the books, a word for any other.
	ID string `json:"id"`
	// Text states the invariant.
	Text string `json:"text"`
	// Advice names the places at which an operator should look for the cause.
	Advice string `json:"advice"`
	// Findings are the first findings, up to 20.
	Findings []Finding `json:"findings"`
	// More reports that the search ended after 20 findings.
	More bool `json:"more"`
}

// Report is the outcome of a check, one element for each invariant.
type Report struct {
	Invariants []Examined `json:"invariants"`
}

// OK reports whether no invariant is broken.
func (r Report) OK() bool { return len(r.Findings()) == 0 }

// Findings returns the findings of all invariants.
func (r Report) Findings() []Finding {
	var all []Finding
	for _, examined := range r.Invariants {
		all = append(all, examined.Findings...)
	}
	return all
}

// String formats the report for a terminal: a line for each invariant, and below a broken one its findings and advice.
func (r Report) String() string {
	var text strings.Builder
	for _, examined := range r.Invariants {
		verdict := "ok  "
		if len(examined.Findings) > 0 {
			verdict = "FAIL"
		}
		fmt.Fprintf(&text, "%-3s  %s  %s\n", examined.ID, verdict, examined.Text)
		for _, finding := range examined.Findings {
			fmt.Fprintf(&text, "           %s: %s\n", finding.Subject, finding.Detail)
		}
		if examined.More {
			text.WriteString("           there may be more\n")
		}
		if len(examined.Findings) > 0 {
			fmt.Fprintf(&text, "           look at: %s\n", examined.Advice)
		}
	}
	return text.String()
}

// Checker checks the books of a database that may be in use. Its zero value is ready.
type Checker struct {
	// SweepInterval is the configured interval of the sweeper, for L6. 0 means [DefaultSweepInterval].
	SweepInterval time.Duration
	// Recent limits the check to rows from this time until now. 0 means all rows. Of older rows it reads only open ones, and for each wallet the
	// last balance before.
	Recent time.Duration

	pageRows int // for tests; 0 means pageRows
	searches int // at a time; 0 means 1
}

// concurrentSearches is the number of invariants that are checked at a time, each on a connection of its own. More would slow down the calls that
// are served during the check.
const concurrentSearches = 2

// Check calls [Checker.Check] with the default sweep interval.
func Check(ctx context.Context, db *store.DB) (Report, error) { return Checker{}.Check(ctx, db) }

// Check reads the whole ledger in pages and reports every broken invariant. Each page is one statement, and so a snapshot of the
// database. Check writes nothing to the ledger. After an error of reading there is no report.
func (c Checker) Check(ctx context.Context, db *store.DB) (Report, error) {
	now, err := db.Now(ctx)
	if err != nil {
		return Report{}, err
	}
	c.searches = concurrentSearches
	return c.examine(ctx, db.Reader(), now)
}

// examine implements Check for a moment of the database's clock.
func (c Checker) examine(ctx context.Context, db reader, now int64) (Report, error) {
	if c.SweepInterval <= 0 {
		c.SweepInterval = DefaultSweepInterval
	}
	c.pageRows = cmp.Or(c.pageRows, pageRows)
	report := Report{make([]Examined, len(invariants))}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, c.searches))
	for i, invariant := range invariants {
		group.Go(func() error {
			search := search{
				db: db, pageRows: c.pageRows, now: now, lateBefore: now - 2*c.SweepInterval.Milliseconds(), findings: []Finding{},
			}
			if c.Recent > 0 {
				search.since = now - c.Recent.Milliseconds()
			}
			err := invariant.search(ctx, &search)
			report.Invariants[i] = Examined{invariant.id, invariant.text, invariant.advice, search.findings, search.full()}
			return store.Wrap("check "+invariant.id, err)
		})
	}
	if err := group.Wait(); err != nil {
		return Report{}, err
	}
	return report, nil
}

// reader is the source of a search. It is a database, or in tests a transaction that breaks the ledger and is rolled back.
type reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// search looks for findings against one invariant.
type search struct {
	db       reader
	pageRows int
	now      int64 // start of the check, on the database's clock
	// lateBefore is the moment on the database's clock before which the sweeper should have ended an open hold.
	lateBefore int64
	// since is the moment from which rows are checked. 0 means all rows.
	since    int64
	findings []Finding
}

func (s *search) full() bool { return len(s.findings) >= store.MostFindings }

func (s *search) add(subject, detail string) {
	if !s.full() {
		s.findings = append(s.findings, Finding{Subject: subject, Detail: detail})
	}
}

// rows runs a statement that returns findings (subject, detail).
func (s *search) rows(ctx context.Context, query string, args ...any) error {
	return s.read(ctx, func(rows store.Row) error {
		var subject, detail string
		if err := rows.Scan(&subject, &detail); err != nil {
			return err
		}
		s.add(subject, detail)
		return nil
	}, fmt.Sprintf("WITH found (subject, detail) AS MATERIALIZED (%s) SELECT subject, detail FROM found LIMIT %d", query,
		store.MostFindings), args...)
}

// pageRows is the number of rows of a table that one statement reads, unless the statement is too slow.
const pageRows = 4000

// pagedTables are the tables that are read in pages: the column of their order, the prefix of its ids if they are sorted by time,
// and a divisor of pageRows. A wallet has a large divisor because it is read with all its charges and postings.
var pagedTables = map[string]struct {
	column, prefix string
	share          int
}{
	"calls": {"id", "call", 1}, "payments": {"pay_id", "pay", 1}, "ledger_tx": {"id", "txn", 1},
	"wallets": {"org_id", "", 4}, "attempts": {"call_id", "call", 1},
	"usage_wallets": {"org_id", "", 4}, "statements": {"org_id", "", 16},
}

// recentMargin is how far a recent check begins before its period, because ids are made by the clocks of processes.
const recentMargin = 10 * time.Minute

// pages runs each over the rows of a table, about pageRows rows at a time. after is the last value of the table's column in the page before, and
// through the last value in the page. A page that is too slow is halved and read again.
func (s *search) pages(ctx context.Context, table string, each func(ctx context.Context, after, through string) error) error {
	query := fmt.Sprintf(`SELECT max(%[2]s) FROM (SELECT %[2]s FROM %[1]s WHERE %[2]s > $1 ORDER BY %[2]s LIMIT $2) AS page`,
		table, pagedTables[table].column)
	after := ""
	if prefix := pagedTables[table].prefix; s.since > 0 && prefix != "" {
		after = store.FirstID(prefix, s.since-recentMargin.Milliseconds())
	}
	return store.ReadPages(ctx, max(1, s.pageRows/pagedTables[table].share), func(rows int) (bool, error) {
		var through sql.NullString
		found := len(s.findings)
		err := s.value(ctx, &through, query, after, rows)
		if err == nil && through.Valid {
			err = each(ctx, after, through.String)
		}
		if err != nil {
			s.findings = s.findings[:found]
			return false, err
		}
		after = through.String
		return through.Valid && !s.full(), nil
	})
}

// pagedRows runs rows for each page of a table. The query's parameters are the page's bounds.
func (s *search) pagedRows(ctx context.Context, table, query string) error {
	return s.pages(ctx, table, func(ctx context.Context, after, through string) error {
		return s.rows(ctx, query, after, through)
	})
}

// value reads the single value of a statement.
func (s *search) value(ctx context.Context, value any, query string, args ...any) error {
	return s.read(ctx, func(rows store.Row) error { return rows.Scan(value) }, query, args...)
}

// read calls each for every row of a statement, within readTimeout.
func (s *search) read(ctx context.Context, each func(store.Row) error, query string, args ...any) error {
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := s.db.QueryContext(bounded, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // a fault of reading shows in rows.Err
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

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
		err := s.read(ctx, func(rows store.Row) error {
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
		err := s.read(ctx, func(rows store.Row) error {
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
		err := s.read(ctx, func(rows store.Row) error {
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
		err := s.read(ctx, func(rows store.Row) error {
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
	for w.endedAt, w.free = first*dayMillis-1, true; w.seq < w.last || w.free; {
		err := nextUsage(ctx, s.read, &w, until, func(_ int64, key usageKey, f *Figures) { addFigures(days, key.day, f) })
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
