package inbox

import (
	"context"
	"fmt"
	"strconv"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// checkPage is how many rows one read of a check covers, on a machine that is quick enough.
	checkPage = 5000
	// lateSending is how long a part may be sending without a worker.
	lateSending = 15 * 60 * 1000 // milliseconds
)

// sentence is an invariant, as a query of the rows that break it. A paged one covers the rows of a table with id > $1 AND id <= $2; the
// others get the database's clock as $1.
type sentence struct {
	table string // "" reads few rows anyway
	text  string
}

var sentences = []sentence{
	{"messages", `SELECT m.id, 'names the turn ' || m.turn_id || ', which is not of its conversation' FROM messages m
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM turns t WHERE t.id = m.turn_id AND t.conversation_id = m.conversation_id AND t.org_id = m.org_id)`},
	{"messages", `SELECT m.id, 'names the turn ' || m.turn_id || ', which was superseded' FROM messages m
		JOIN turns t ON t.id = m.turn_id
		WHERE m.id > $1 AND m.id <= $2 AND t.state = 'superseded'`},
	{"messages", `SELECT m.id, 'is no customer''s message, and names the turn ' || m.turn_id FROM messages m
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NOT NULL AND m.author <> 'customer'`},
	{"messages", `SELECT m.id, 'waits in a conversation that is never due' FROM messages m
		LEFT JOIN conversations c ON c.id = m.conversation_id
		WHERE m.id > $1 AND m.id <= $2 AND m.turn_id IS NULL AND NOT m.handled AND c.run_at IS NULL
			AND coalesce(c.state, 'assistant') <> 'human'`},
	{"turns", `SELECT t.id, 'is answered and has no parts' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'answered'
			AND NOT EXISTS (SELECT 1 FROM outbound_messages o WHERE o.turn_id = t.id)`},
	{"turns", `SELECT t.id, 'is ' || t.state || ' and has parts' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state <> 'answered'
			AND EXISTS (SELECT 1 FROM outbound_messages o WHERE o.turn_id = t.id AND o.state <> 'discarded')`},
	{"turns", `SELECT t.id, 'is ' || t.state || ' and answers no message' FROM turns t
		WHERE t.id > $1 AND t.id <= $2 AND t.state IN ('awaiting', 'answered', 'needs_attention', 'dead') AND t.code <> '` + codeClosed + `'
			AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.turn_id = t.id)`},
	{"turns", `SELECT t.id, 'is awaiting an answer in a conversation that is never due' FROM turns t
		LEFT JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'awaiting' AND c.run_at IS NULL`},
	{"turns", `SELECT t.id, 'is awaiting an answer, and its conversation does not name it' FROM turns t
		LEFT JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'awaiting' AND coalesce(c.turn_id, '') <> t.id`},
	{"turns", `SELECT t.id, 'needs attention, and its conversation does not say so' FROM turns t
		JOIN conversations c ON c.id = t.conversation_id
		WHERE t.id > $1 AND t.id <= $2 AND t.state = 'needs_attention' AND c.attention = ''`},
	{"outbound_messages", `SELECT o.id, 'belongs to the turn ' || o.turn_id || ', which is not of its conversation'
		FROM outbound_messages o
		WHERE o.id > $1 AND o.id <= $2 AND o.turn_id IS NOT NULL AND NOT EXISTS (
			SELECT 1 FROM turns t WHERE t.id = o.turn_id AND t.conversation_id = o.conversation_id AND t.org_id = o.org_id)`},
	{"outbound_messages", `SELECT o.id, o.state || ' in a conversation that is never due' FROM outbound_messages o
		LEFT JOIN conversations c ON c.id = o.conversation_id
		WHERE o.id > $1 AND o.id <= $2 AND o.state IN ('pending', 'sending') AND c.run_at IS NULL`},
	{"outbound_messages", `SELECT o.id, o.state || ' and older than what its conversation sends' FROM outbound_messages o
		JOIN conversations c ON c.id = o.conversation_id
		WHERE o.id > $1 AND o.id <= $2 AND o.state IN ('pending', 'sending') AND o.created_at < c.unsent_since`},
	{"", `SELECT o.id, 'sending since ' || o.updated_at || ' and no worker has its conversation'
		FROM conversations c CROSS JOIN outbound_messages o
		WHERE c.run_at IS NOT NULL AND o.conversation_id = c.id AND o.created_at >= c.unsent_since
			AND c.lease_until < $1 AND o.state = 'sending' AND o.updated_at + ` + strconv.Itoa(lateSending) + ` < $1`},
	{"", `SELECT min(o.id), count(*) || ' parts of ' || min(c.id) || ' are sending at once'
		FROM conversations c CROSS JOIN outbound_messages o
		WHERE c.run_at IS NOT NULL AND o.conversation_id = c.id AND o.created_at >= c.unsent_since
			AND o.state = 'sending' AND CAST($1 AS BIGINT) > 0 GROUP BY c.id || '' HAVING count(*) > 1`}, // by the bare id all are read
}

// CheckSince looks for rows that break the queue's invariants: every text is answered by one turn of its own conversation only, an answered turn
// has its parts and no other has any, unfinished work is due, and no part has been sending for more than 15 minutes without a worker. It
// checks rows from a moment on, in epoch milliseconds, and unfinished rows. 0 means all rows.
// It reads page by page while the database is in use, writes nothing, and reports up to 20 findings of each sort. The error is one of reading.
func CheckSince(ctx context.Context, db *store.DB, since int64) ([]store.Finding, error) {
	now, err := db.Now(ctx)
	var findings []store.Finding
	for _, s := range sentences {
		var found []store.Finding
		switch {
		case err != nil:
		case s.table == "":
			found, err = store.ReadRows(ctx, db, "look at unfinished rows", store.ScanFinding, s.text+fmt.Sprintf(" LIMIT %d", store.MostFindings), now)
		default:
			found, err = store.ReadFindings(ctx, db, s.table, s.after(since), checkPage, s.text)
		}
		findings = append(findings, found...)
	}
	return findings, store.Wrap("check the queue", err)
}

// after returns the id after which the rows since a moment are. It is empty for all rows.
func (s sentence) after(since int64) string {
	switch {
	case since <= 0:
		return ""
	case s.table == "turns":
		return store.FirstID("trn", since)
	}
	return store.FirstID("msg", since)
}
