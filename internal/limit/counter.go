package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Counter is the kind of store operation that [Windows] counts with. [store.Open] gets it; it has no state.
var Counter store.Kind = counter{}

// keepWindows is how many windows before the current one are kept: a transaction that began before the minute turned may still
// count in the previous one.
const keepWindows = 1

type counter struct{}

// take is one request to count with its result, or a counted one that is returned.
type take struct {
	orgID    string
	limit    int64
	back     int64 // the beginning of the window that a permit is returned to; 0 for a request
	decision Decision
}

// Name implements [store.Kind].
func (counter) Name() string { return "limit" }

// Apply counts the requests of many organizations in two statements for each batch and one for each organization: add all
// requests to their windows, which also locks the rows in key order; read the sums; subtract what was not admitted.
func (counter) Apply(ctx context.Context, tx store.Tx, ops []store.Op) []error {
	errs := make([]error, len(ops))
	takes := make([]*take, len(ops))
	for i, op := range ops {
		t, ok := op.(*take)
		if !ok {
			return allFail(errs, fmt.Errorf("limit: unexpected operation %T", op))
		}
		takes[i] = t
	}
	if err := count(ctx, tx, takes); err != nil {
		return allFail(errs, err)
	}
	return errs
}

func allFail(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// group is a batch's requests for one organization's window.
type group struct {
	orgID           string
	asked, returned int64
	// admitted counts those of earlier transactions, then also of this one.
	admitted int64
}

func count(ctx context.Context, tx store.Tx, takes []*take) error {
	const (
		add = `INSERT INTO rate_windows (org_id, window_start, count) VALUES ($1, $2, $3)
		ON CONFLICT (org_id, window_start) DO UPDATE SET count = rate_windows.count + excluded.count`
		// giveBack is for a sum below zero, which both engines refuse in the row that add proposes. The row exists: it
		// counted what is returned.
		giveBack = `UPDATE rate_windows SET count = count + $3 WHERE org_id = $1 AND window_start = $2`
	)
	now := tx.Now()
	length := window.Milliseconds()
	start := now - now%length
	groups := grouped(takes, start)
	if len(groups) == 0 {
		return nil // only permits of windows that are over
	}
	for i := range groups {
		sum, change := groups[i].asked-groups[i].returned, add
		if sum < 0 {
			change = giveBack
		}
		tx.Queue(1, change, groups[i].orgID, start, sum)
	}
	if err := readSums(ctx, tx, start, groups); err != nil {
		return err
	}
	fresh := false
	for i := range groups {
		fresh = fresh || groups[i].admitted == 0
	}
	resetIn := time.Duration(start+length-now) * time.Millisecond
	for _, t := range takes {
		if t.back != 0 {
			continue
		}
		g := find(groups, t.orgID)
		t.decision = decide(g.admitted, t.limit, resetIn)
		if t.decision.Allowed {
			t.decision.window = start
			g.admitted++
			g.asked--
		}
	}
	for i := range groups {
		if groups[i].asked > 0 {
			tx.Queue(1, `UPDATE rate_windows SET count = $3 WHERE org_id = $1 AND window_start = $2`,
				groups[i].orgID, start, groups[i].admitted)
		}
	}
	if fresh {
		tx.Queue(store.AnyRows, forget(tx), start-keepWindows*length)
	}
	return tx.Flush(ctx)
}

// forget deletes the windows before a time. Rows that another node is deleting are skipped: nodes would lock them in any order.
func forget(tx store.Tx) string {
	lock := tx.LockRows()
	if lock == "" {
		return `DELETE FROM rate_windows WHERE window_start < $1`
	}
	return `DELETE FROM rate_windows WHERE ctid = ANY(ARRAY(SELECT ctid FROM rate_windows WHERE window_start < $1` +
		lock + ` SKIP LOCKED))`
}

// grouped sums up by organization, in key order, the requests, and the permits returned to the window that begins at start.
func grouped(takes []*take, start int64) []group {
	groups := make([]group, 0, len(takes))
	for _, t := range takes {
		if t.back != 0 && t.back != start {
			continue
		}
		at, found := slices.BinarySearchFunc(groups, t.orgID, byOrg)
		if !found {
			groups = slices.Insert(groups, at, group{orgID: t.orgID})
		}
		if t.back != 0 {
			groups[at].returned++
		} else {
			groups[at].asked++
		}
	}
	return groups
}

func byOrg(g group, orgID string) int { return strings.Compare(g.orgID, orgID) }

func find(groups []group, orgID string) *group {
	at, _ := slices.BinarySearchFunc(groups, orgID, byOrg)
	return &groups[at]
}

// windowSizes are the lengths of the list of organizations whose windows are read.
var windowSizes = store.ListSizes{256, 64, 16, 4, 1}

var selectSums = windowSizes.Statement(`SELECT org_id, count FROM rate_windows WHERE window_start = $1 AND org_id IN {list}`, 1, 1)

// readSums sets what the windows had admitted before this batch was added.
func readSums(ctx context.Context, tx store.Tx, start int64, groups []group) error {
	orgIDs := make([]string, len(groups))
	for i := range groups {
		orgIDs[i] = groups[i].orgID
	}
	seen := 0
	err := store.EachPadded(windowSizes, orgIDs, func(size int, piece []string) error {
		return tx.Query(ctx, func(row store.Row) error {
			var orgID string
			var sum int64
			if err := row.Scan(&orgID, &sum); err != nil {
				return fmt.Errorf("reading a window: %w", err)
			}
			g := find(groups, orgID)
			g.admitted = sum - g.asked
			seen++
			return nil
		}, selectSums[size], store.Arguments(piece, start)...)
	})
	if err == nil && seen != len(groups) {
		err = fmt.Errorf("limit: %d of %d windows found", seen, len(groups))
	}
	return err
}
