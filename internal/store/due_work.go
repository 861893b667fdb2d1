package store

import "context"

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
	_, err = ReadRows(ctx, db, w.doing, func(row Row) (struct{}, error) {
		var due bool
		err := row.Scan(&next, &due)
		if due {
			orgs = append(orgs, next)
		}
		visited++
		return struct{}{}, err
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
) (leased []T, err error) {
	err = db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		leased = nil
		err := tx.Query(ctx, func(row Row) error {
			one, err := scan(row)
			leased = append(leased, one)
			return err
		}, selected+` WHERE org_id = $1 AND `+w.waiting+` AND run_at <= $2 ORDER BY run_at LIMIT $3`+SkipLocked(tx), orgID, tx.Now(), atMost)
		for i := range leased {
			begin(tx, &leased[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return leased, nil
}

// SkipLocked is the end of a SELECT that locks the rows it reads and leaves out rows that others have locked. It is empty on an engine
// with one writer for everything.
func SkipLocked(tx Tx) string {
	if lock := tx.LockRows(); lock != "" {
		return lock + " SKIP LOCKED"
	}
	return ""
}
