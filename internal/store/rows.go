package store

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store/driver"
)

// readPatience bounds [EachRow]: a read that stays open keeps SQLite's log from being cut.
const readPatience = 2 * time.Second

// EachRow calls each for the rows of a query through the reader, within 2 s. The arguments have the types of [Tx]. The error begins with doing.
// It is an [ErrBusy] if the time was too short, [ErrText], [ErrClosed], or an error of the query or of each.
func EachRow(ctx context.Context, db *DB, doing string, each func(Row) error, text string, arguments ...any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	defer func() {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}()
	bound, err := driver.BindArgs(arguments) // database/sql takes the same values on both engines
	if err != nil {
		return driver.WrapError(doing, err)
	}
	rows, err := db.reader.QueryContext(ctx, text, bound...)
	if err != nil {
		return driver.WrapError(doing, db.orClosed(err))
	}
	defer func() {
		if closed := rows.Close(); err == nil && closed != nil {
			err = driver.WrapError(doing, closed)
		}
	}()
	for rows.Next() {
		if err := each(rows); err != nil {
			return driver.WrapError(doing, err)
		}
	}
	return driver.WrapError(doing, rows.Err())
}

// ReadRows is [EachRow] for a query whose rows are items, which scan makes of the current row.
func ReadRows[T any](ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text string, arguments ...any) (items []T, err error) {
	err = EachRow(ctx, db, doing, collect(&items, scan), text, arguments...)
	return items, err
}

// ReadMap is [EachRow] for a query of two columns. It returns the second ones by the first ones.
func ReadMap[K comparable, V any](ctx context.Context, db *DB, doing, text string, arguments ...any) (map[K]V, error) {
	values := map[K]V{}
	err := EachRow(ctx, db, doing, func(row Row) error {
		var key K
		var value V
		err := row.Scan(&key, &value)
		values[key] = value
		return err
	}, text, arguments...)
	return values, err
}

// collect returns a function that appends the item of a row to items.
func collect[T any](items *[]T, scan func(Row) (T, error)) func(Row) error {
	return func(row Row) error {
		item, err := scan(row)
		*items = append(*items, item)
		return err
	}
}

// ReadRow is [ReadRows] for a query of one row. It returns [ErrNotFound] if there is none.
func ReadRow[T any](ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text string, arguments ...any) (item T, err error) {
	items, err := ReadRows(ctx, db, doing, scan, text, arguments...)
	if err != nil {
		return item, err
	}
	if len(items) == 0 {
		return item, driver.WrapError(doing, ErrNotFound)
	}
	return items[0], nil
}

// Wrap returns an error that begins with doing, or nil for nil.
func Wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// orClosed returns [ErrClosed] for a read that failed because the database was closed.
func (db *DB) orClosed(err error) error {
	select {
	case <-db.writer.Closed():
		return ErrClosed
	default:
		return err
	}
}

// Changed runs a writing statement with RETURNING and reports whether it changed a row.
func Changed(ctx context.Context, tx Tx, text string, arguments ...any) (bool, error) {
	found := false
	err := tx.Query(ctx, func(Row) error {
		found = true
		return nil
	}, text, arguments...)
	return found, err
}

// change is Changed, but returns [ErrNotFound] if there is no such row.
func change(ctx context.Context, tx Tx, text string, arguments ...any) error {
	found, err := Changed(ctx, tx, text, arguments...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// Write runs a function in a transaction of its own, like [DB.Exec], and returns its result, or the zero value with an error.
func Write[T any](ctx context.Context, db *DB, run func(ctx context.Context, tx Tx) (T, error)) (result T, err error) {
	err = db.Exec(ctx, func(ctx context.Context, tx Tx) (err error) {
		result, err = run(ctx, tx)
		return err
	})
	if err != nil {
		result = *new(T)
	}
	return result, err
}

// execChanged runs a writing statement with RETURNING in a transaction of its own, and reports whether it changed a row.
func execChanged(ctx context.Context, db *DB, text string, arguments ...any) (bool, error) {
	return Write(ctx, db, func(ctx context.Context, tx Tx) (bool, error) { return Changed(ctx, tx, text, arguments...) })
}

// ExecQueued is [DB.Exec] for statements that are only queued.
func (db *DB) ExecQueued(ctx context.Context, queue func(tx Tx)) error {
	return db.Exec(ctx, func(_ context.Context, tx Tx) error {
		queue(tx)
		return nil
	})
}

// execAudited runs a statement that returns the changed row, and adds the entry to the audit log. It returns [ErrNotFound] if no row was changed.
func execAudited(ctx context.Context, db *DB, entry AuditEntry, text string, arguments ...any) error {
	return db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		err := change(ctx, tx, text, arguments...)
		if err == nil {
			QueueAudit(tx, entry)
		}
		return err
	})
}

// queryRow scans the last row of a query, or fails with ErrNotFound when there is none.
func queryRow(ctx context.Context, tx Tx, into []any, text string, arguments ...any) error {
	found := false
	err := tx.Query(ctx, func(row Row) error {
		found = true
		return row.Scan(into...)
	}, text, arguments...)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// QueryRows reads all rows of a query in a transaction; scan makes an item of the current row.
func QueryRows[T any](ctx context.Context, tx Tx, scan func(Row) (T, error), text string, arguments ...any) (items []T, err error) {
	err = tx.Query(ctx, collect(&items, scan), text, arguments...)
	return items, err
}

// QueryValues is [QueryRows] for a query of one column.
func QueryValues[T any](ctx context.Context, tx Tx, text string, arguments ...any) (values []T, err error) {
	return QueryRows(ctx, tx, ScanValue[T], text, arguments...)
}

// orAbsent turns [ErrNotFound] into false.
func orAbsent[T any](item T, err error) (T, bool, error) {
	if errors.Is(err, ErrNotFound) {
		return item, false, nil
	}
	return item, err == nil, err
}

// ScanValue scans a row of one column, for [ReadRow] and [ReadRows].
func ScanValue[T any](row Row) (value T, err error) {
	err = row.Scan(&value)
	return value, err
}

// Into returns a function that scans a row into the fields of a new T, to which fields returns pointers.
func Into[T any](fields func(*T) []any) func(Row) (T, error) {
	return func(row Row) (item T, err error) {
		err = row.Scan(fields(&item)...)
		return item, err
	}
}

// eachPage is the number of rows that eachRow reads at a time, so that no read stays open during the callback.
const eachPage = 100

// eachRow calls each with every row of a statement. The parameters of the statement are the columns after which a page begins, and the LIMIT.
// after returns these columns of a row. A row that is written during the call is read before or after the change. The first error of each ends it.
func eachRow[T any](
	ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text string, after func(*T) []any, each func(T) error,
) error {
	last := new(T)
	for {
		page, err := ReadRows(ctx, db, doing, scan, text, append(after(last), eachPage)...)
		if err != nil {
			return err
		}
		for i := range page {
			if err := each(page[i]); err != nil {
				return err
			}
			last = &page[i]
		}
		if len(page) < eachPage {
			return nil
		}
	}
}

// Column returns a column of rows: what of returns for each item.
func Column[T, V any](items []T, of func(T) V) []V {
	column := make([]V, len(items))
	for i, item := range items {
		column[i] = of(item)
	}
	return column
}

// Arguments returns a list as arguments of a statement, after the first ones.
func Arguments[T any](list []T, first ...any) []any {
	arguments := make([]any, 0, len(first)+len(list))
	arguments = append(arguments, first...)
	for _, item := range list {
		arguments = append(arguments, item)
	}
	return arguments
}

// in appends values to arguments and returns the list of their parameters, for IN.
func in[T any](arguments *[]any, values []T) string {
	list := ParameterRows(len(values), 1, len(*arguments))
	*arguments = Arguments(values, *arguments...)
	return list
}

// orNow returns a time, or the transaction's clock when it is 0.
func orNow(tx Tx, at int64) int64 {
	if at == 0 {
		return tx.Now()
	}
	return at
}

// sortableBase32 keeps the order of the bytes it encodes.
var sortableBase32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// FirstID returns the smallest id of a prefix that [NewID] can make at a time, in epoch milliseconds.
func FirstID(prefix string, at int64) string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, at))<<16)
	return prefix + "_" + sortableBase32.EncodeToString(id[:])
}

// NewID returns a new id: prefix, "_", and a UUIDv7 (RFC 9562 §5.7) as 26 lower-case characters, so that ids sort by the
// time they were made, to a quarter of a microsecond (method 3 of its §6.2), and 62 random bits keep them apart.
func NewID(prefix string) string {
	var id [16]byte
	now := time.Now()
	milliseconds := uint64(now.UnixMilli())
	fraction := uint64(now.Nanosecond()%int(time.Millisecond)) << 12 / uint64(time.Millisecond)
	rand.Read(id[8:])
	binary.BigEndian.PutUint64(id[:8], milliseconds<<16|0x7000|fraction)
	id[8] = id[8]&0x3f | 0x80

	text := make([]byte, 0, len(prefix)+1+26)
	text = append(append(text, prefix...), '_')
	return string(sortableBase32.AppendEncode(text, id[:]))
}

// The rows of a zero Page, and of the largest page.
const (
	defaultPageRows = 100
	maxPageRows     = 1000
)

// Page is a part of a list in order of id, which is the order of creation ([NewID]): the rows after After. The zero value is the first 100
// rows.
type Page struct {
	After string // id of the last row that was seen; "" from the start
	Limit int    // rows; see [Page.Rows]
}

// Rows returns the bound of the page's rows: Limit, but 100 if it is 0 or negative, and never more than 1,000.
func (p Page) Rows() int {
	if p.Limit <= 0 {
		return defaultPageRows
	}
	return min(p.Limit, maxPageRows)
}

// readPage is [ReadRows] for a page. text ends with its WHERE; the result has the rows after the page's After, in order of the column id.
func readPage[T any](
	ctx context.Context, db *DB, doing string, scan func(Row) (T, error), text, id string, page Page, arguments ...any,
) ([]T, error) {
	after := len(arguments) + 1
	return ReadRows(ctx, db, doing, scan, fmt.Sprintf("%s AND %s > $%d ORDER BY %s LIMIT $%d", text, id, after, id, after+1),
		append(arguments, page.After, page.Rows())...)
}

// fewestRows is how small ReadPages makes a page.
const fewestRows = 60

// ReadPages calls read until it reports that there are no more rows. Each call reads one page of up to rows rows, in statements with a
// deadline of their own, so that none stays open for long in a database that is in use. After a deadline the page is read again with half
// the rows, down to 60, and so are the pages after it. ReadPages returns the error of read, also [context.DeadlineExceeded] of the smallest
// page or of ctx.
func ReadPages(ctx context.Context, rows int, read func(rows int) (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := read(rows)
		if ctx.Value(pacedKey{}) != nil {
			_ = repeat.Pause(ctx, pacedShare*time.Since(began))
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && rows >= 2*fewestRows:
			rows /= 2
		case err != nil || !more:
			return err
		}
	}
}

// MostFindings limits the findings of one invariant: enough to see a pattern, few enough to read.
const MostFindings = 20

// Finding is a violation of an invariant.
type Finding struct {
	// Subject identifies the row: a wallet as organization:environment, or an id.
	Subject string `json:"subject"`
	// Detail describes the finding.
	Detail string `json:"detail"`
}

// ScanFinding reads the subject and the detail of a finding.
var ScanFinding = ScanFields[Finding]()

// ReadFindings reads a table page by page, from the id after another one on, and returns the first findings of a statement for the rows of a
// page: id > $1 AND id <= $2. A page has the given number of rows on a machine that is quick enough.
func ReadFindings(ctx context.Context, db *DB, table, after string, page int, statement string, arguments ...any) (found []Finding, err error) {
	err = ReadPages(ctx, page, func(rows int) (bool, error) {
		ids, err := ReadRows(ctx, db, "turn a page of "+table, ScanValue[string],
			`SELECT id FROM `+table+` WHERE id > $1 ORDER BY id LIMIT $2`, after, rows)
		if err != nil || len(ids) == 0 {
			return false, err
		}
		last := ids[len(ids)-1]
		more, err := ReadRows(ctx, db, "look at a page of "+table, ScanFinding, statement, append([]any{after, last}, arguments...)...)
		if err != nil {
			return false, err
		}
		found, after = append(found, more...), last
		return len(found) < MostFindings, nil
	})
	return found[:min(len(found), MostFindings)], err
}

type pacedKey struct{}

// pacedShare is how many times as long as a page a paced reader rests after it.
const pacedShare = 3

// Paced returns a context in which [ReadPages] rests after each page, so that it uses no more than a quarter of a connection and of a processor.
func Paced(ctx context.Context) context.Context { return context.WithValue(ctx, pacedKey{}, true) }

// walkLength is how many organizations one look at [DueWork] visits.
const walkLength = 256

// WalkOrganizations returns the beginning of a query: walk (org_id, step) are the organizations with rows of a table under a condition, in
// order of id, each by a look-up in the index of the condition, however many rows it has. after is the parameter of the id after which the
// walk begins, and length the parameter of the number of organizations. Empty ones mean from the first to the last.
func WalkOrganizations(table, condition, after, length string) string {
	first, on := condition, ""
	if after != "" {
		first += " AND org_id > " + after
	}
	if length != "" {
		on = " AND step < " + length
	}
	return `WITH RECURSIVE walk (org_id, step) AS (
			SELECT org_id, 1 FROM (SELECT (SELECT org_id FROM ` + table + ` WHERE ` + first + ` ORDER BY org_id LIMIT 1) AS org_id) AS beginning
		UNION ALL
			SELECT (SELECT r.org_id FROM ` + table + ` r WHERE ` + condition + ` AND r.org_id > walk.org_id ORDER BY r.org_id LIMIT 1), step + 1
			FROM walk WHERE org_id IS NOT NULL` + on + `
		)
	`
}

// DueWork is a table of organizations' work that waits for its next try. run_at is when a row is due, or when another process may try it
// after the death of the process that leased it.
type DueWork struct{ doing, waiting, walk string }

// NewDueWork returns the work in a table. waiting is the condition of the rows that wait, and of an index on org_id and run_at. doing is for
// errors.
func NewDueWork(doing, table, waiting string) DueWork {
	return DueWork{doing: doing, waiting: waiting, walk: WalkOrganizations(table, waiting, "$2", "$3") +
		`SELECT org_id, EXISTS (SELECT 1 FROM ` + table + ` d WHERE ` + waiting + ` AND d.org_id = walk.org_id AND d.run_at <= $1)
		FROM walk WHERE org_id IS NOT NULL`}
}

// Due visits organizations with waiting work, in order of id beginning after cursor, and returns the organizations with work to try now.
// next is the cursor of the next look; an empty one begins anew. empty reports whether no organization has waiting work.
func (w DueWork) Due(ctx context.Context, db *DB, cursor string) (orgs []string, next string, empty bool, err error) {
	now, err := db.Now(ctx)
	if err != nil {
		return nil, cursor, false, err
	}
	visited := 0
	err = EachRow(ctx, db, w.doing, func(row Row) error {
		var due bool
		err := row.Scan(&next, &due)
		if due {
			orgs = append(orgs, next)
		}
		visited++
		return err
	}, w.walk, now, cursor, walkLength)
	if visited < walkLength {
		next = ""
	}
	return orgs, next, cursor == "" && visited == 0, err
}

// LeaseDue leases up to a number of rows of an organization, the longest due first. selected is the beginning of the query that scan reads.
// begin counts the try of a row and postpones its run_at; other processes skip the row until that time.
func LeaseDue[T any](
	ctx context.Context, db *DB, w DueWork, selected, orgID string, atMost int, scan func(Row) (T, error), begin func(tx Tx, row *T),
) ([]T, error) {
	return Write(ctx, db, func(ctx context.Context, tx Tx) ([]T, error) {
		leased, err := QueryRows(ctx, tx, scan, selected+` WHERE org_id = $1 AND `+w.waiting+` AND run_at <= $2 ORDER BY run_at LIMIT $3`+
			SkipLocked(tx), orgID, tx.Now(), atMost)
		for i := range leased {
			begin(tx, &leased[i])
		}
		return leased, err
	})
}

// SkipLocked is the end of a SELECT that locks the rows it reads and leaves out rows that others have locked. It is empty on an engine
// with one writer for everything.
func SkipLocked(tx Tx) string {
	if lock := tx.LockRows(); lock != "" {
		return lock + " SKIP LOCKED"
	}
	return ""
}
