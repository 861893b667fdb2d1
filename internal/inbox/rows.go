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
	createdAt                 int64
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

// column is a column of the conversations with its field.
type column struct {
	name, kind string                            // kind is PostgreSQL's name of its type
	changes    rowChanges                        // selects the statements that name the column
	field      func(c *conversationRow) any      // points to the field
	value      func(c *conversationRow) any      // returns the field
	values     func(rows []*conversationRow) any // returns the fields of several rows as a slice
}

func columnOf[T any](name, kind string, changes rowChanges, field func(c *conversationRow) *T) column {
	value := func(c *conversationRow) T { return *field(c) }
	return column{
		name, kind, changes, func(c *conversationRow) any { return field(c) }, func(c *conversationRow) any { return value(c) },
		func(rows []*conversationRow) any { return store.Column(rows, value) },
	}
}

// rowChanges are groups of columns that change together. SQLite rewrites every index that has a column which an UPDATE names, changed or not.
// So a statement names lease_until, run_at, the people's columns and paced_until only when they change.
type rowChanges uint8

const (
	identified rowChanges = 1 << iota // the id
	begun                             // what never changes
	heard                             // what each message of a customer changes
	usual                             // what other changes name in any case
	leaseChanged
	placeChanged
	peopleChanged
	paceChanged

	allColumns = ^rowChanges(0)
)

var rowColumns = []column{
	columnOf("id", "text", identified, func(c *conversationRow) *string { return &c.id }),
	columnOf("org_id", "text", begun, func(c *conversationRow) *string { return &c.orgID }),
	columnOf("channel_id", "text", begun, func(c *conversationRow) *string { return &c.key.channelID }),
	columnOf("customer_ref", "text", begun, func(c *conversationRow) *string { return &c.key.customerRef }),
	columnOf("created_at", "bigint", begun, func(c *conversationRow) *int64 { return &c.createdAt }),
	columnOf("last_customer_at", "bigint", heard, func(c *conversationRow) *int64 { return &c.lastCustomerAt }),
	columnOf("updated_at", "bigint", heard, func(c *conversationRow) *int64 { return &c.updatedAt }),
	columnOf("address", "text", usual, func(c *conversationRow) *string { return &c.address }),
	columnOf("customer_name", "bytea", usual, func(c *conversationRow) *[]byte { return &c.name }),
	columnOf("state", "text", usual, func(c *conversationRow) *string { return &c.state }),
	columnOf("attention", "text", usual, func(c *conversationRow) *string { return &c.attention }),
	columnOf("waiting_since", "bigint", usual, func(c *conversationRow) *sql.NullInt64 { return &c.waitingSince }),
	columnOf("lease_token", "bigint", usual, func(c *conversationRow) *int64 { return &c.leaseToken }),
	columnOf("attempts", "bigint", usual, func(c *conversationRow) *int64 { return &c.attempts }),
	columnOf("paused_until", "bigint", usual, func(c *conversationRow) *int64 { return &c.pausedUntil }),
	columnOf("blocked_at", "bigint", usual, func(c *conversationRow) *int64 { return &c.blockedAt }),
	columnOf("turn_id", "text", usual, func(c *conversationRow) *string { return &c.turnID }),
	columnOf("unsent_since", "bigint", usual, func(c *conversationRow) *int64 { return &c.unsentSince }),
	columnOf("lease_until", "bigint", leaseChanged, func(c *conversationRow) *int64 { return &c.leaseUntil }),
	columnOf("run_at", "bigint", placeChanged, func(c *conversationRow) *sql.NullInt64 { return &c.runAt }),
	columnOf("unanswered_since", "bigint", peopleChanged, func(c *conversationRow) *int64 { return &c.people.unansweredSince }),
	columnOf("attention_told", "text", peopleChanged, func(c *conversationRow) *string { return &c.people.reportedAttention }),
	columnOf("handover_reason", "text", peopleChanged, func(c *conversationRow) *string { return &c.people.handoverReason }),
	columnOf("retried_at", "bigint", peopleChanged, func(c *conversationRow) *int64 { return &c.people.retriedAt }),
	columnOf("closed_until", "bigint", peopleChanged, func(c *conversationRow) *int64 { return &c.people.closedUntil }),
	columnOf("doubt_since", "bigint", peopleChanged, func(c *conversationRow) *int64 { return &c.people.unknownSince }),
	columnOf("paced_until", "bigint", paceChanged, func(c *conversationRow) *int64 { return &c.pacedUntil }),
}

// columns yields what of returns for the columns of the groups.
func columns[T any](groups rowChanges, of func(column) T) []T {
	all := make([]T, 0, len(rowColumns))
	for i := range rowColumns {
		if rowColumns[i].changes&groups != 0 {
			all = append(all, of(rowColumns[i]))
		}
	}
	return all
}

func columnName(c column) string { return c.name }

func columnKind(c column) string { return c.kind }

// columnValues returns the groups' columns of several rows.
func columnValues(groups rowChanges, rows []*conversationRow) []any {
	return columns(groups, func(c column) any { return c.values(rows) })
}

var conversationRowColumns = strings.Join(columns(allColumns, columnName), ", ")

func scanConversationRow(row store.Row) (*conversationRow, error) {
	c := &conversationRow{}
	err := row.Scan(columns(allColumns, func(of column) any { return of.field(c) })...)
	c.key.orgID = c.orgID
	c.written()
	return c, err
}

// written records that the database has the row as it is.
func (c *conversationRow) written() {
	c.stored, c.storedPeople, c.storedAddress, c.storedName, c.changed = c.queueState, c.people, c.address, c.name, false
}

// findConversationsText reads each conversation once if each key is wanted once.
var findConversationsText = `WITH wanted (in_org, in_channel, customer) AS ({list})
	SELECT ` + conversationRowColumns + ` FROM wanted CROSS JOIN conversations
	WHERE org_id = in_org AND channel_id = in_channel AND customer_ref = customer`

var (
	findConversations = listSizes.Rows(findConversationsText, "text", "text", "text")
	// findAndLock is for PostgreSQL. By the bare id it would read the whole index of ids in that order, while the table is small and by a
	// plan that it keeps.
	findAndLock         = listSizes.Rows(findConversationsText+" ORDER BY id || '' FOR UPDATE OF conversations", "text", "text", "text")
	insertConversations = listSizes.Rows(`INSERT INTO conversations (`+conversationRowColumns+`) {list}
		ON CONFLICT (org_id, channel_id, customer_ref) DO NOTHING RETURNING id`, columns(allColumns, columnKind)...)
	lockConversations = listSizes.Statement(`SELECT `+conversationRowColumns+` FROM conversations WHERE id IN {list} ORDER BY id`, 1, 0)
)

// conversationUpdates are the statements that write a changed conversation, by the groups that changed.
var conversationUpdates = func() map[rowChanges]string {
	texts := map[rowChanges]string{}
	for more := range allColumns/leaseChanged + 1 {
		changes := heard | usual | more*leaseChanged
		var set []string
		for i, name := range columns(changes, columnName) {
			set = append(set, fmt.Sprintf("%s = $%d", name, i+1))
		}
		texts[changes] = "UPDATE conversations SET " + strings.Join(set, ", ") + fmt.Sprintf(" WHERE id = $%d", len(set)+1)
	}
	return texts
}()

// updateSeveral and updateHeard write several conversations on PostgreSQL, where a statement costs about as much as the row that it writes,
// and a column that keeps its value touches no index. updateHeard is for conversations in which nothing but a customer's message changed.
var (
	updateSeveral = updateRows(allColumns &^ begun)
	updateHeard   = updateRows(identified | heard)
)

// updateRows writes the statement that sets the groups' columns by the ids of conversations.
func updateRows(groups rowChanges) string {
	var set []string
	for _, name := range columns(groups&^identified, columnName) {
		set = append(set, name+" = v."+name)
	}
	return "UPDATE conversations c SET " + strings.Join(set, ", ") + " FROM (" + store.ArrayRows(columns(groups, columnKind)...) +
		") AS v (" + strings.Join(columns(groups, columnName), ", ") + ") WHERE c.id = v.id"
}

// queueUpdates writes several conversations on PostgreSQL.
func queueUpdates(tx store.Tx, changed []*conversationRow) {
	var messages, others []*conversationRow
	for _, c := range changed {
		if c.queueState == c.stored && c.people == c.storedPeople && c.address == c.storedAddress && bytes.Equal(c.name, c.storedName) {
			messages = append(messages, c)
		} else {
			others = append(others, c)
		}
	}
	if len(others) > 0 {
		tx.Queue(store.AnyRows, updateSeveral, append(columnValues(allColumns&^begun, others), len(others))...)
	}
	if len(messages) > 0 {
		tx.Queue(store.AnyRows, updateHeard, append(columnValues(identified|heard, messages), len(messages))...)
	}
}

// update returns the statement that writes the row, with its arguments.
func (c *conversationRow) update() (text string, args []any) {
	changes := heard | usual
	if c.leaseUntil != c.stored.leaseUntil {
		changes |= leaseChanged
	}
	if c.runAt != c.stored.runAt {
		changes |= placeChanged
	}
	if c.people != c.storedPeople {
		changes |= peopleChanged
	}
	if c.pacedUntil != c.stored.pacedUntil {
		changes |= paceChanged
	}
	return conversationUpdates[changes], append(columns(changes, func(of column) any { return of.value(c) }), c.id)
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
