package inbox

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// conversationKey is the platform's key of a conversation.
type conversationKey struct{ orgID, channelID, customerRef string }

func (k conversationKey) compare(other conversationKey) int {
	return cmp.Or(cmp.Compare(k.orgID, other.orgID), cmp.Compare(k.channelID, other.channelID), cmp.Compare(k.customerRef, other.customerRef))
}

// conversationRow is a locked conversation as an operation leaves it. It is written once per transaction, if anything
// changed.
type conversationRow struct {
	queueState

	id, orgID                 string
	key                       conversationKey
	address                   string
	name                      []byte // sealed, nil none
	lastCustomerAt, updatedAt int64
	people                    peopleState

	stored       queueState // as it is in the database
	storedPeople peopleState
	changed      bool
	deleted      bool
	wake         bool // it became due, so a worker should be woken
}

// queueState is the part of the row that workers and operators decide by; most messages of many leave it unchanged.
type queueState struct {
	state, attention       string
	runAt, waitingSince    sql.NullInt64
	leaseUntil, leaseToken int64
	attempts, pausedUntil  int64
	pacedUntil             int64 // until when messages to the customer keep their pace, see channelPace
	blockedAt              int64 // 0 for a customer whom nobody has blocked
}

// silent reports whether the assistant must not write now.
func (c *conversationRow) silent(now int64) bool {
	return silent(c.state, c.pausedUntil, c.blockedAt, now)
}

func silent(state string, pausedUntil, blockedAt, now int64) bool {
	return state != StateAssistant || pausedUntil > now || blockedAt != 0
}

// runBy makes the conversation due at a time, or leaves an earlier one.
func (c *conversationRow) runBy(at int64) {
	if !c.runAt.Valid || c.runAt.Int64 > at {
		c.runAt = sql.NullInt64{Int64: at, Valid: true}
		c.wake = true // also for a later time: a waiting worker must know it
	}
	c.changed = true
}

// touch marks a change that a reader of the conversation sees.
func (c *conversationRow) touch(now int64) {
	c.updatedAt, c.changed = max(c.updatedAt, now), true
}

// mostBehind is how far the clock may be set back for a conversation's messages to keep their order.
const mostBehind = 24 * time.Hour

// place returns the time of the conversation's next message or turn: now, or right after the last change while the clock is behind that.
// The time is also the position. So an answer stands after its question when the clock was set back in between, and the next prompt
// doesn't ask an answered question again. A clock that is more than a day behind was wrong before, and what follows gets its right time.
func (c *conversationRow) place(now int64) int64 {
	if now < c.updatedAt && c.updatedAt-now <= mostBehind.Milliseconds() {
		now = c.updatedAt + 1
	}
	c.touch(now)
	return now
}

// stands shows in the conversation why a turn stands that isn't answered, "" for none. Then it shows that a delivery is unknown, if one
// is: an answer doesn't resolve that, only a person who has looked at it, or the platform's echo of the message.
func (c *conversationRow) stands(code string) {
	if code == "" && c.people.doubtSince != 0 {
		code = OutboundDeliveryUnknown
	}
	c.attention = code
}

// looked ends the conversation's attention but for code, why a turn still stands: a person has looked at the rest.
func (c *conversationRow) looked(code string) {
	c.people.doubtSince = 0
	c.attention = code
}

const conversationRowColumns = `id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at,
	waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, updated_at, blocked_at, unanswered_since,
	attention_told, handover_reason, retried_at, closed_until, doubt_since, paced_until`

func scanConversationRow(row store.Row) (*conversationRow, error) {
	c := &conversationRow{}
	err := row.Scan(&c.id, &c.orgID, &c.key.channelID, &c.key.customerRef, &c.address, &c.name, &c.state, &c.attention,
		&c.runAt, &c.waitingSince, &c.leaseUntil, &c.leaseToken, &c.attempts, &c.pausedUntil, &c.lastCustomerAt, &c.updatedAt, &c.blockedAt,
		&c.people.unansweredSince, &c.people.attentionTold, &c.people.handoverReason, &c.people.retriedAt,
		&c.people.closedUntil, &c.people.doubtSince, &c.pacedUntil)
	c.key.orgID = c.orgID
	c.stored, c.storedPeople = c.queueState, c.people
	return c, err
}

// findSizes has no list of one key: for that PostgreSQL would take the index of an organization's conversations while the table is small, and
// keep to it.
var findSizes = listSizes[:len(listSizes)-1]

var (
	findConversations = findSizes.Statement(`SELECT `+conversationRowColumns+` FROM conversations
		WHERE (org_id, channel_id, customer_ref) IN ({list}) ORDER BY id`, 3, 0)
	insertConversations = listSizes.Statement(`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, customer_name,
		state, attention, run_at, waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at,
		unanswered_since, attention_told, handover_reason)
		{list} ON CONFLICT (org_id, channel_id, customer_ref) DO NOTHING RETURNING id`, 20, 0)
	lockConversations = listSizes.Statement(`SELECT `+conversationRowColumns+` FROM conversations WHERE id IN {list} ORDER BY id`, 1, 0)
)

// conversationUpdates are the statements that write a changed conversation, by [rowChanges]. SQLite rewrites every index that has a
// column which an UPDATE names, changed or not. So a statement names lease_until, run_at, the people's columns and paced_until only when
// they change.
var conversationUpdates = func() (texts [16]string) {
	for changes := range texts {
		set, n := []string{`UPDATE conversations SET address = $1, customer_name = $2, last_customer_at = $3, updated_at = $4, state = $5,
		attention = $6, waiting_since = $7, lease_token = $8, attempts = $9, paused_until = $10, blocked_at = $11`}, 11
		for change, columns := range [...][]string{
			{"lease_until"},
			{"run_at"},
			{"unanswered_since", "attention_told", "handover_reason", "retried_at", "closed_until", "doubt_since"},
			{"paced_until"},
		} {
			for _, column := range columns {
				if changes&(1<<change) != 0 {
					n++
					set = append(set, fmt.Sprintf("%s = $%d", column, n))
				}
			}
		}
		texts[changes] = strings.Join(set, ", ") + fmt.Sprintf(" WHERE id = $%d", n+1)
	}
	return texts
}()

// updatedColumns are those that [conversationRow.values] has, with their types, behind the id.
var updatedColumns = []string{
	"address::text", "customer_name::bytea", "last_customer_at::bigint", "updated_at::bigint", "state::text", "attention::text",
	"waiting_since::bigint", "lease_token::bigint", "attempts::bigint", "paused_until::bigint", "blocked_at::bigint", "lease_until::bigint",
	"run_at::bigint", "unanswered_since::bigint", "attention_told::text", "handover_reason::text", "retried_at::bigint",
	"closed_until::bigint", "doubt_since::bigint", "paced_until::bigint",
}

// updateSeveral are the statements that write several conversations on PostgreSQL, where a statement costs about as much as the row that
// it writes, and a column that keeps its value touches no index.
var updateSeveral = listSizes[:len(listSizes)-1].Build(func(rows int) string {
	var set, names, first strings.Builder
	for i, column := range updatedColumns {
		name, kind, _ := strings.Cut(column, "::")
		fmt.Fprintf(&set, ", %s = v.%s", name, name)
		fmt.Fprintf(&names, ", %s", name)
		fmt.Fprintf(&first, ",$%d::%s", i+2, kind)
	}
	width := len(updatedColumns) + 1
	others := strings.TrimPrefix(store.ParameterRows(rows-1, width, width), "VALUES ")
	return "UPDATE conversations c SET" + set.String()[1:] + " FROM (VALUES ($1::text" + first.String() + ")," + others +
		") AS v (id" + names.String() + ") WHERE c.id = v.id"
})

// values are the id and the columns of updateSeveral.
func (c *conversationRow) values() []any {
	p := &c.people
	return []any{
		c.id, c.address, c.name, c.lastCustomerAt, c.updatedAt, c.state, c.attention, c.waitingSince, c.leaseToken, c.attempts, c.pausedUntil,
		c.blockedAt, c.leaseUntil, c.runAt, p.unansweredSince, p.attentionTold, p.handoverReason, p.retriedAt, p.closedUntil, p.doubtSince,
		c.pacedUntil,
	}
}

// rowChanges is which columns of a row changed that a usual update doesn't name.
type rowChanges uint8

const (
	leaseChanged rowChanges = 1 << iota
	placeChanged
	peopleChanged
	paceChanged
)

// update returns the statement that writes the row, with its arguments.
func (c *conversationRow) update() (text string, args []any) {
	args = append(make([]any, 0, 20), c.address, c.name, c.lastCustomerAt, c.updatedAt, c.state,
		c.attention, c.waitingSince, c.leaseToken, c.attempts, c.pausedUntil, c.blockedAt)
	var changes rowChanges
	if c.leaseUntil != c.stored.leaseUntil {
		changes, args = changes|leaseChanged, append(args, c.leaseUntil)
	}
	if c.runAt != c.stored.runAt {
		changes, args = changes|placeChanged, append(args, c.runAt)
	}
	if c.people != c.storedPeople {
		p := &c.people
		changes, args = changes|peopleChanged, append(args, p.unansweredSince, p.attentionTold, p.handoverReason, p.retriedAt, p.closedUntil,
			p.doubtSince)
	}
	if c.pacedUntil != c.stored.pacedUntil {
		changes, args = changes|paceChanged, append(args, c.pacedUntil)
	}
	return conversationUpdates[changes], append(args, c.id)
}

// queueFind reads conversations by their keys: their ids, and with lock, or on an engine whose writer has locked everything, the rows,
// which are final then.
func queueFind(tx store.Tx, keys []conversationKey, ids map[conversationKey]string, rows map[string]*conversationRow, lock string) {
	final := lock != "" || !locksRows(tx)
	for size, piece := range store.Padded(findSizes, keys) {
		tx.QueueQuery(func(row store.Row) error {
			c, err := scanConversationRow(row)
			if err != nil {
				return err
			}
			ids[c.key] = c.id
			if final {
				rows[c.id] = c
			}
			return nil
		}, findConversations[size]+lock, conversationKeyArgs(piece)...)
	}
}

func conversationKeyArgs(keys []conversationKey) []any {
	args := make([]any, 0, 3*len(keys))
	for _, key := range keys {
		args = append(args, key.orgID, key.channelID, key.customerRef)
	}
	return args
}

// queueLock reads conversations that are not among rows, sorted by id, and locks them until the transaction ends. Unlike
// platforms' keys, ids have the same order in Go and in every collation.
func queueLock(tx store.Tx, ids []string, rows map[string]*conversationRow) {
	ids = slices.DeleteFunc(ids, func(id string) bool { return rows[id] != nil })
	slices.Sort(ids)
	for size, piece := range store.Padded(listSizes, slices.Compact(ids)) {
		tx.QueueQuery(collectConversations(rows), lockConversations[size]+tx.LockRows(), store.Arguments(piece)...)
	}
}

// collectConversations scans conversations into rows, by id.
func collectConversations(rows map[string]*conversationRow) func(store.Row) error {
	return func(row store.Row) error {
		c, err := scanConversationRow(row)
		if err == nil {
			rows[c.id] = c
		}
		return err
	}
}

// queueConversations writes what changed, and wakes the workers of other processes when something became due.
func queueConversations(tx store.Tx, rows map[string]*conversationRow) {
	wake := false
	var changed []*conversationRow
	for _, c := range rows {
		if c.deleted {
			continue
		}
		wake = wake || c.wake
		c.wake = false
		if !c.changed {
			continue
		}
		c.queueEvents(tx)
		changed = append(changed, c)
	}
	sizes := listSizes
	if !locksRows(tx) {
		sizes = listSizes[len(listSizes)-1:]
	}
	store.EachExact(sizes, changed, func(size int, piece []*conversationRow) {
		text, args := piece[0].update()
		if len(piece) > 1 {
			text, args = updateSeveral[size], nil
			for _, c := range piece {
				args = append(args, c.values()...)
			}
		}
		tx.Queue(store.AnyRows, text, args...)
	})
	for _, c := range changed {
		c.stored, c.storedPeople, c.changed = c.queueState, c.people, false
	}
	if wake && locksRows(tx) {
		tx.Queue(store.AnyRows, `SELECT pg_notify('`+wakeChannel+`', '')`)
	}
}

// wakeChannel is the PostgreSQL channel that [Queue.Wait] listens on.
const wakeChannel = "svc_inbox"

// locksRows reports whether the engine locks rows one by one, as PostgreSQL does; a writer on SQLite has locked all.
func locksRows(tx store.Tx) bool { return tx.LockRows() != "" }
