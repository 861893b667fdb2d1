package inbox

import (
	"bytes"
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

	stored        queueState // as it is in the database, like the next ones
	storedPeople  peopleState
	storedAddress string
	storedName    []byte
	changed       bool
	deleted       bool
	wake          bool // it became due, so a worker should be woken
}

// queueState is the part of the row that workers and operators decide by; most messages of many leave it unchanged.
type queueState struct {
	state, attention       string
	runAt, waitingSince    sql.NullInt64
	leaseUntil, leaseToken int64
	attempts, pausedUntil  int64
	pacedUntil             int64  // until when messages to the customer keep their pace, see channelPace
	blockedAt              int64  // 0 for a customer whom nobody has blocked
	turnID                 string // the last turn that ran: the running one, if one runs; "" for none
	unsentSince            int64  // no part that isn't sent yet is older
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

// markUpdated marks a change that a reader of the conversation notices.
func (c *conversationRow) markUpdated(now int64) {
	c.updatedAt, c.changed = max(c.updatedAt, now), true
}

// mostBehind is how far the clock may be set back for a conversation's messages to keep their order.
const mostBehind = 24 * time.Hour

// position returns the time of the conversation's next message or turn: now, or right after the last change while the clock is behind that.
// The time is also the position. So an answer stands after its question when the clock was set back in between, and the next prompt doesn't
// ask an answered question again. A clock that is more than a day behind was wrong before, and later messages get their right time.
func (c *conversationRow) position(now int64) int64 {
	if now < c.updatedAt && c.updatedAt-now <= mostBehind.Milliseconds() {
		now = c.updatedAt + 1
	}
	c.markUpdated(now)
	return now
}

// setAttention shows in the conversation the reason why an unanswered turn stands, empty for none. In that case it shows that a delivery is
// unknown, if one is: an answer doesn't resolve that, only a person's acknowledgment or the platform's echo of the message.
func (c *conversationRow) setAttention(code string) {
	if code == "" && c.people.unknownSince != 0 {
		code = OutboundDeliveryUnknown
	}
	c.attention = code
}

// acknowledge ends the conversation's attention because a person has reviewed it, except for code, the reason why a turn still stands.
func (c *conversationRow) acknowledge(code string) {
	c.people.unknownSince = 0
	c.attention = code
}

const conversationRowColumns = `id, org_id, channel_id, customer_ref, address, customer_name, state, attention, run_at,
	waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, updated_at, blocked_at, unanswered_since,
	attention_told, handover_reason, retried_at, closed_until, doubt_since, paced_until, turn_id, unsent_since`

func scanConversationRow(row store.Row) (*conversationRow, error) {
	c := &conversationRow{}
	err := row.Scan(&c.id, &c.orgID, &c.key.channelID, &c.key.customerRef, &c.address, &c.name, &c.state, &c.attention,
		&c.runAt, &c.waitingSince, &c.leaseUntil, &c.leaseToken, &c.attempts, &c.pausedUntil, &c.lastCustomerAt, &c.updatedAt, &c.blockedAt,
		&c.people.unansweredSince, &c.people.reportedAttention, &c.people.handoverReason, &c.people.retriedAt,
		&c.people.closedUntil, &c.people.unknownSince, &c.pacedUntil, &c.turnID, &c.unsentSince)
	c.key.orgID = c.orgID
	c.written()
	return c, err
}

// written records that the database has the row as it is.
func (c *conversationRow) written() {
	c.stored, c.storedPeople, c.storedAddress, c.storedName, c.changed = c.queueState, c.people, c.address, c.name, false
}

// findConversationsText reads each conversation once if each key is wanted once.
const findConversationsText = `WITH wanted (in_org, in_channel, customer) AS ({list})
	SELECT ` + conversationRowColumns + ` FROM wanted CROSS JOIN conversations
	WHERE org_id = in_org AND channel_id = in_channel AND customer_ref = customer`

var (
	findConversations = listSizes.Rows(findConversationsText, "text", "text", "text")
	// findAndLock is for PostgreSQL. By the bare id it would read the whole index of ids in that order, while the table is small and by a
	// plan that it keeps.
	findAndLock         = listSizes.Rows(findConversationsText+" ORDER BY id || '' FOR UPDATE OF conversations", "text", "text", "text")
	insertConversations = listSizes.Rows(`INSERT INTO conversations (id, org_id, channel_id, customer_ref, address, customer_name,
		state, attention, run_at, waiting_since, lease_until, lease_token, attempts, paused_until, last_customer_at, created_at, updated_at,
		unanswered_since, attention_told, handover_reason)
		{list} ON CONFLICT (org_id, channel_id, customer_ref) DO NOTHING RETURNING id`,
		"text", "text", "text", "text", "text", "bytea", "text", "text", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint",
		"bigint", "bigint", "bigint", "text", "text")
	lockConversations = listSizes.Statement(`SELECT `+conversationRowColumns+` FROM conversations WHERE id IN {list} ORDER BY id`, 1, 0)
)

// conversationUpdates are the statements that write a changed conversation, by [rowChanges]. SQLite rewrites every index that has a
// column which an UPDATE names, changed or not. So a statement names lease_until, run_at, the people's columns and paced_until only when
// they change.
var conversationUpdates = func() (texts [16]string) {
	for changes := range texts {
		set, n := []string{`UPDATE conversations SET address = $1, customer_name = $2, last_customer_at = $3, updated_at = $4, state = $5,
		attention = $6, waiting_since = $7, lease_token = $8, attempts = $9, paused_until = $10, blocked_at = $11, turn_id = $12,
		unsent_since = $13`}, 13
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

// updateSeveral and updateHeard write several conversations on PostgreSQL, where a statement costs about as much as the row that it writes,
// and a column that keeps its value touches no index. updateHeard is for conversations in which nothing but a customer's message changed.
var (
	updateSeveral = updateRows(
		"address text", "customer_name bytea", "last_customer_at bigint", "updated_at bigint", "state text", "attention text",
		"waiting_since bigint", "lease_token bigint", "attempts bigint", "paused_until bigint", "blocked_at bigint", "lease_until bigint",
		"run_at bigint", "unanswered_since bigint", "attention_told text", "handover_reason text", "retried_at bigint",
		"closed_until bigint", "doubt_since bigint", "paced_until bigint", "turn_id text", "unsent_since bigint")
	updateHeard = updateRows("last_customer_at bigint", "updated_at bigint")
)

// updateRows writes the statement that sets columns, given with their types, by the ids of conversations.
func updateRows(columns ...string) string {
	names, types, set := []string{"id"}, []string{"text"}, []string{}
	for _, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
		names, types, set = append(names, name), append(types, kind), append(set, name+" = v."+name)
	}
	return "UPDATE conversations c SET " + strings.Join(set, ", ") + " FROM (" + store.ArrayRows(types...) +
		") AS v (" + strings.Join(names, ", ") + ") WHERE c.id = v.id"
}

// queueUpdates writes several conversations on PostgreSQL.
func queueUpdates(tx store.Tx, changed []*conversationRow) {
	var heard, others []*conversationRow
	for _, c := range changed {
		if c.queueState == c.stored && c.people == c.storedPeople && c.address == c.storedAddress && bytes.Equal(c.name, c.storedName) {
			heard = append(heard, c)
		} else {
			others = append(others, c)
		}
	}
	text := func(of func(c *conversationRow) string) []string { return store.Column(others, of) }
	number := func(of func(c *conversationRow) int64) []int64 { return store.Column(others, of) }
	if len(others) > 0 {
		tx.Queue(
			store.AnyRows, updateSeveral, text(func(c *conversationRow) string { return c.id }),
			text(func(c *conversationRow) string { return c.address }),
			store.Column(others, func(c *conversationRow) []byte { return c.name }),
			number(func(c *conversationRow) int64 { return c.lastCustomerAt }),
			number(func(c *conversationRow) int64 { return c.updatedAt }),
			text(func(c *conversationRow) string { return c.state }),
			text(func(c *conversationRow) string { return c.attention }),
			store.Column(others, func(c *conversationRow) sql.NullInt64 { return c.waitingSince }),
			number(func(c *conversationRow) int64 { return c.leaseToken }),
			number(func(c *conversationRow) int64 { return c.attempts }),
			number(func(c *conversationRow) int64 { return c.pausedUntil }),
			number(func(c *conversationRow) int64 { return c.blockedAt }),
			number(func(c *conversationRow) int64 { return c.leaseUntil }),
			store.Column(others, func(c *conversationRow) sql.NullInt64 { return c.runAt }),
			number(func(c *conversationRow) int64 { return c.people.unansweredSince }),
			text(func(c *conversationRow) string { return c.people.reportedAttention }),
			text(func(c *conversationRow) string { return c.people.handoverReason }),
			number(func(c *conversationRow) int64 { return c.people.retriedAt }),
			number(func(c *conversationRow) int64 { return c.people.closedUntil }),
			number(func(c *conversationRow) int64 { return c.people.unknownSince }),
			number(func(c *conversationRow) int64 { return c.pacedUntil }),
			text(func(c *conversationRow) string { return c.turnID }),
			number(func(c *conversationRow) int64 { return c.unsentSince }),
			len(others),
		)
	}
	if len(heard) > 0 {
		tx.Queue(
			store.AnyRows, updateHeard, store.Column(heard, func(c *conversationRow) string { return c.id }),
			store.Column(heard, func(c *conversationRow) int64 { return c.lastCustomerAt }),
			store.Column(heard, func(c *conversationRow) int64 { return c.updatedAt }),
			len(heard),
		)
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
	args = append(make([]any, 0, 24), c.address, c.name, c.lastCustomerAt, c.updatedAt, c.state,
		c.attention, c.waitingSince, c.leaseToken, c.attempts, c.pausedUntil, c.blockedAt, c.turnID, c.unsentSince)
	var changes rowChanges
	if c.leaseUntil != c.stored.leaseUntil {
		changes, args = changes|leaseChanged, append(args, c.leaseUntil)
	}
	if c.runAt != c.stored.runAt {
		changes, args = changes|placeChanged, append(args, c.runAt)
	}
	if c.people != c.storedPeople {
		p := &c.people
		changes, args = changes|peopleChanged, append(args, p.unansweredSince, p.reportedAttention, p.handoverReason, p.retriedAt, p.closedUntil,
			p.unknownSince)
	}
	if c.pacedUntil != c.stored.pacedUntil {
		changes, args = changes|paceChanged, append(args, c.pacedUntil)
	}
	return conversationUpdates[changes], append(args, c.id)
}

// queueFind reads conversations by their keys: their ids, and with lock, or on an engine with one writer for everything, the final rows.
func queueFind(tx store.Tx, keys []conversationKey, ids map[conversationKey]string, rows map[string]*conversationRow, lock bool) {
	find, final := findConversations, lock || !locksRows(tx)
	if lock && locksRows(tx) {
		find = findAndLock
	}
	find.QueueLookup(tx, func(row store.Row) error {
		c, err := scanConversationRow(row)
		if err != nil {
			return err
		}
		ids[c.key] = c.id
		if final {
			rows[c.id] = c
		}
		return nil
	}, store.Column(keys, func(k conversationKey) string { return k.orgID }),
		store.Column(keys, func(k conversationKey) string { return k.channelID }),
		store.Column(keys, func(k conversationKey) string { return k.customerRef }))
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
	if len(changed) > 1 && store.HasArrays(tx) {
		queueUpdates(tx, changed)
	} else {
		for _, c := range changed {
			text, args := c.update()
			tx.Queue(store.AnyRows, text, args...)
		}
	}
	for _, c := range changed {
		c.written()
	}
	if wake && locksRows(tx) {
		tx.Queue(store.AnyRows, `SELECT pg_notify('`+wakeChannel+`', '')`)
	}
}

// wakeChannel is the PostgreSQL channel that [Queue.Wait] listens on.
const wakeChannel = "svc_inbox"

// locksRows reports whether the engine locks rows one by one, as PostgreSQL does; a writer on SQLite has locked all.
func locksRows(tx store.Tx) bool { return tx.LockRows() != "" }
