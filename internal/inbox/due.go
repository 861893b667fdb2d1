package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// leaseSpares is how many conversations beyond the wanted number are locked where rows are locked one by one, because another worker
	// may lease some at the same moment.
	leaseSpares = 16
	// walkSpares is how many organizations beyond the wanted number of leases are visited, because some have nothing due.
	walkSpares = 8
	// maxLeases bounds the leases of one transaction.
	maxLeases = 256
	// maxWalk bounds the organizations that are visited for one lease.
	maxWalk = 64
	// oldestDue bounds the conversations that are read when the visited organizations have too few.
	oldestDue = 512
)

// walkOrganizations visits $3 organizations with work, in order of id beginning after $2, and after the last from the first. Each costs a
// few look-ups in the index conversations_ready, however much waits. leased is how many of its conversations workers have, of all
// processes; expired is the end of a lease that ran out, or 0.
const walkOrganizations = `WITH RECURSIVE walk (org_id, step, first_id) AS (
		SELECT org_id, 1, org_id FROM (SELECT coalesce(
			(SELECT org_id FROM conversations WHERE run_at IS NOT NULL AND org_id > $2 ORDER BY org_id LIMIT 1),
			(SELECT org_id FROM conversations WHERE run_at IS NOT NULL ORDER BY org_id LIMIT 1)) AS org_id) AS beginning
	UNION ALL
		SELECT coalesce(
			(SELECT c.org_id FROM conversations c WHERE c.run_at IS NOT NULL AND c.org_id > walk.org_id ORDER BY c.org_id LIMIT 1),
			(SELECT c.org_id FROM conversations c WHERE c.run_at IS NOT NULL ORDER BY c.org_id LIMIT 1)), step + 1, first_id
		FROM walk WHERE org_id IS NOT NULL AND step <= $3 AND (step = 1 OR org_id <> first_id)
	)
	SELECT org_id,
		(SELECT count(*) FROM conversations c WHERE c.org_id = walk.org_id AND c.lease_until >= $1 AND c.run_at IS NOT NULL) AS leased,
		coalesce((SELECT c.lease_until FROM conversations c WHERE c.org_id = walk.org_id AND c.lease_until > 0 AND c.lease_until < $1
			AND c.run_at <= $1 ORDER BY c.lease_until LIMIT 1), 0) AS expired
	FROM walk WHERE org_id IS NOT NULL AND step <= $3 AND (step = 1 OR org_id <> first_id)`

// walkSizes are the lengths of the list in dueOf.
var walkSizes = store.ListSizes{maxWalk, 16, 4, 1}

// dueOf returns the statement that reads conversations of some organizations that have been due for longest. The list is of an
// organization, the lease_until of its conversations, which is 0 or the end of a lease that ran out, and how many to read. skip is how many
// parameters stand before the list.
func dueOf(rows, skip int, but string) string {
	var text strings.Builder
	for i := range rows {
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		// As written, only conversations_ready has the order: with lease_until = … or run_at <= $1 inside, PostgreSQL may walk all that
		// is due by another index, when it planned while one organization had everything.
		fmt.Fprintf(&text, `SELECT org_id, id FROM (SELECT org_id, id, run_at FROM conversations WHERE org_id = $%[1]d
			AND lease_until BETWEEN $%[2]d AND $%[2]d AND run_at IS NOT NULL%[3]s
			ORDER BY lease_until, run_at, id LIMIT CAST($%[4]d AS BIGINT)) AS due_%[5]d WHERE run_at <= $1`,
			skip+3*i+1, skip+3*i+2, but, skip+3*i+3, i)
	}
	return text.String()
}

var dueOfAll = walkSizes.Build(func(rows int) string { return dueOf(rows, 1, "") })

// selectOldestDue reads the conversations of any organization that have been due for longest. {but} leaves some out.
const selectOldestDue = `SELECT org_id, id FROM conversations WHERE run_at <= $1 AND lease_until < $1{but} ORDER BY run_at LIMIT CAST($2 AS BIGINT)`

// countLeases counts the conversations of organizations that workers have.
var countLeases = walkSizes.Statement(`SELECT org_id, count(*) FROM conversations
	WHERE org_id IN {list} AND lease_until >= $1 AND run_at IS NOT NULL GROUP BY org_id`, 1, 1)

// dueOrganization is an organization with conversations that are due.
type dueOrganization struct {
	id      string
	leased  int64 // how many of its conversations workers have
	expired int64 // the end of a lease that ran out, or 0
	due     []string
	// read is how many are read; more: there may be others.
	read int
	more bool
}

// dueWork is the due work that one lease chooses from, with the organizations in the order of their turns.
type dueWork struct {
	organizations []*dueOrganization
	byID          map[string]*dueOrganization
}

// leases is how many leases the organization has, including its new ones.
func (o *dueOrganization) leases() int64 { return o.leased + int64(o.read) }

func (w *dueWork) add(o *dueOrganization) *dueOrganization {
	w.organizations = append(w.organizations, o)
	w.byID[o.id] = o
	return o
}

// Places are the free places of a worker, and which organizations may have them.
type Places struct {
	// Free is how many conversations may be leased; a call leases up to 256.
	Free int
	// Most is how many places one organization may have at the worker; 0 means any number. Taken is how many each has already.
	Most  int
	Taken map[string]int
}

func (p *Places) may(org string) bool { return p.Free > 0 && (p.Most == 0 || p.Taken[org] < p.Most) }

func (p *Places) take(org string) {
	p.Free--
	p.Taken[org]++
}

// clone returns places that may be taken without a change of these.
func (p *Places) clone() Places {
	return Places{Free: p.Free, Most: p.Most, Taken: maps.Collect(maps.All(p.Taken))}
}

// due returns the wanted conversations for free Places, in the order in which they should be leased, and after them some spares where other
// workers may take them. It begins after the organization that a lease of this queue served last. more: there may be others for these places.
func (q *Queue) due(ctx context.Context, tx store.Tx, free Places) (ids []string, wanted int, more bool, err error) {
	steps := min(free.Free+walkSpares, maxWalk)
	q.mu.Lock()
	served := q.served
	q.mu.Unlock()
	work := &dueWork{byID: map[string]*dueOrganization{}}
	err = tx.Query(ctx, func(row store.Row) error {
		o := &dueOrganization{}
		err := row.Scan(&o.id, &o.leased, &o.expired)
		work.add(o)
		return err
	}, walkOrganizations, tx.Now(), served, steps)
	if err != nil || len(work.organizations) == 0 {
		return nil, 0, false, err
	}
	walked, spares := len(work.organizations), 0
	if locksRows(tx) {
		spares = leaseSpares
	}
	if err := q.readDue(ctx, tx, work, free, spares); err != nil {
		return nil, 0, false, err
	}
	found := 0
	for _, o := range work.organizations {
		found += len(o.due)
	}
	if walked == steps && found < free.Free {
		if err := q.readOldest(ctx, tx, work); err != nil {
			return nil, 0, false, err
		}
	}
	ids, last, more := work.choose(free.clone())
	wanted = len(ids)
	for _, o := range work.organizations {
		spare := o.due[:min(len(o.due), spares)]
		ids, spares = append(ids, spare...), spares-len(spare)
	}
	if last < 0 || last >= walked {
		last = walked - 1
	}
	q.mu.Lock()
	q.served = work.organizations[last].id
	q.mu.Unlock()
	return ids, wanted, more, nil
}

// readDue reads the due conversations of the visited organizations: of each as many as it gets when all have enough, one more, and its part
// of the spares.
func (q *Queue) readDue(ctx context.Context, tx store.Tx, work *dueWork, free Places, spares int) error {
	divided := free.clone() // among organizations that all have enough
	anyOne := func(*dueOrganization) bool { return true }
	for o, _ := work.next(&divided, anyOne); o != nil; o, _ = work.next(&divided, anyOne) {
		o.read++
		divided.take(o.id)
	}
	var list []dueOrganization
	for _, o := range work.organizations {
		if !free.may(o.id) {
			continue
		}
		o.read += 1 + spares/len(work.organizations)
		if o.expired > 0 {
			list = append(list, *o)
		}
		list = append(list, dueOrganization{id: o.id, read: o.read})
	}
	for !slices.Contains(walkSizes, len(list)) && len(list)%maxWalk != 0 {
		list = append(list, dueOrganization{}) // without rows
	}
	but, first := q.skip([]any{tx.Now()})
	err := store.EachPadded(walkSizes, list, func(size int, piece []dueOrganization) error {
		text, args := dueOfAll[size], slices.Clone(first)
		if but != "" {
			text = dueOf(len(piece), len(first), but)
		}
		for i := range piece {
			args = append(args, piece[i].id, piece[i].expired, piece[i].read)
		}
		return tx.Query(ctx, func(row store.Row) error {
			var org, id string
			err := row.Scan(&org, &id)
			if o := work.byID[org]; err == nil && o != nil {
				o.due = append(o.due, id)
			}
			return err
		}, text, args...)
	})
	for _, o := range work.organizations {
		o.more = len(o.due) > 0 && (o.expired > 0 || len(o.due) >= o.read) // leases ran out at other times, too
		o.read = 0
	}
	return err
}

// readOldest reads the longest due conversations of organizations that were not visited.
func (q *Queue) readOldest(ctx context.Context, tx store.Tx, work *dueWork) error {
	but, args := q.skip([]any{tx.Now(), oldestDue})
	visited := work.byID
	work.byID = map[string]*dueOrganization{}
	var added []string
	err := tx.Query(ctx, func(row store.Row) error {
		var org, id string
		err := row.Scan(&org, &id)
		if err != nil || visited[org] != nil {
			return err
		}
		o := work.byID[org]
		if o == nil {
			o = work.add(&dueOrganization{id: org})
			added = append(added, org)
		}
		o.due = append(o.due, id)
		return nil
	}, strings.Replace(selectOldestDue, "{but}", but, 1), args...)
	if err != nil {
		return err
	}
	return store.EachPadded(walkSizes, added, func(size int, piece []string) error {
		return tx.Query(ctx, func(row store.Row) error {
			var org string
			var leased int64
			err := row.Scan(&org, &leased)
			work.byID[org].leased = leased
			return err
		}, countLeases[size], store.Arguments(piece, any(tx.Now()))...)
	})
}

// next returns the ready organization that gets the next place, and its index: it has the fewest leases, and is the first of several. It is
// nil when none may.
func (w *dueWork) next(free *Places, ready func(*dueOrganization) bool) (next *dueOrganization, index int) {
	for i, o := range w.organizations {
		if ready(o) && free.may(o.id) && (next == nil || o.leases() < next.leases()) {
			next, index = o, i
		}
	}
	return next, index
}

// choose removes conversations from the due work for the free places. It ends early, with more, when the next organization may have more
// that was not read. last is the index of the last organization that got a place, or -1.
func (w *dueWork) choose(free Places) (ids []string, last int, more bool) {
	last = -1
	for {
		o, i := w.next(&free, func(o *dueOrganization) bool { return len(o.due) > 0 || o.more })
		if o == nil || len(o.due) == 0 {
			return ids, last, o != nil
		}
		ids, o.due = append(ids, o.due[0]), o.due[1:]
		o.leased++
		free.take(o.id)
		last = max(last, i)
	}
}
