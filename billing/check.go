package billing

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
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
func (r Report) OK() bool {
	return len(r.Findings()) == 0
}

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
func Check(ctx context.Context, db *store.DB) (Report, error) {
	return Checker{}.Check(ctx, db)
}

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
		group.Go(func() (err error) {
			report.Invariants[i], err = c.examineOne(ctx, db, now, invariant)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Report{}, err
	}
	return report, nil
}

func (c Checker) examineOne(ctx context.Context, db reader, now int64, invariant invariant) (Examined, error) {
	search := search{
		db: db, pageRows: c.pageRows, now: now, lateBefore: now - 2*c.SweepInterval.Milliseconds(), findings: []Finding{},
	}
	if c.Recent > 0 {
		search.since = now - c.Recent.Milliseconds()
	}
	if err := invariant.search(ctx, &search); err != nil {
		return Examined{}, fmt.Errorf("check %s: %w", invariant.id, err)
	}
	return Examined{
		ID: invariant.id, Text: invariant.text, Advice: invariant.advice, Findings: search.findings, More: search.full(),
	}, nil
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
	return s.read(ctx, func(rows *sql.Rows) error {
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

// start returns the id after which the pages of a table begin.
func (s *search) start(table string) string {
	prefix := pagedTables[table].prefix
	if s.since == 0 || prefix == "" {
		return ""
	}
	return store.FirstID(prefix, s.since-recentMargin.Milliseconds())
}

// pages runs each over the rows of a table, about pageRows rows at a time. after is the last value of the table's column in the page before, and
// through the last value in the page. A page that is too slow is halved and read again.
func (s *search) pages(ctx context.Context, table string, each func(ctx context.Context, after, through string) error) error {
	query := fmt.Sprintf(`SELECT max(%[2]s) FROM (SELECT %[2]s FROM %[1]s WHERE %[2]s > $1 ORDER BY %[2]s LIMIT $2) AS page`,
		table, pagedTables[table].column)
	after := s.start(table)
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
	return s.read(ctx, func(rows *sql.Rows) error { return rows.Scan(value) }, query, args...)
}

// rowReader returns read for rows of any source.
func (s *search) rowReader() rowReader {
	return func(ctx context.Context, each func(store.Row) error, query string, arguments ...any) error {
		return s.read(ctx, func(rows *sql.Rows) error { return each(rows) }, query, arguments...)
	}
}

// read calls each for every row of a statement, within readTimeout.
func (s *search) read(ctx context.Context, each func(*sql.Rows) error, query string, args ...any) error {
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
