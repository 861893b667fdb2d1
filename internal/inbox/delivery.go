package inbox

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// errVanished: the conversation was deleted between finding and locking it.
var errVanished = errors.New("inbox: the conversation was deleted meanwhile")

// delivery reads, decides and writes the arrivals of a batch. Changes of stored rows are queued in the session in the order of the arrivals,
// before the new messages are inserted.
type delivery struct {
	s       *session
	ops     []*enqueueOp
	keys    []conversationKey                // of all arrivals, sorted
	makers  map[conversationKey]*arrivedItem // the item that begins the conversation of a key, if it isn't there; nil: none does
	ids     map[conversationKey]string       // of the stored conversations
	aliases map[conversationKey]string       // of the stored conversations, by the customers' other ids
	failed  []string                         // conversations of messages that were not delivered
	routes  map[string]*store.Route          // of the stored channels, by id
	begun   []*conversationRow               // conversations that begin with this batch, by key
	byKey   map[conversationKey]*conversationRow
	seen    map[messageKey]bool // messages that were stored before, or by this batch
	// sent are the outbound messages that the arrivals are about, by their ids, and by the marks of failed deliveries.
	sent map[messageKey]*sentRow
	// written are the last parts of conversations with an echo of an unknown id.
	written map[string][]*writtenPart
	// known are the digests of automatic replies and of ids of businesses that are stored. learned are new ones.
	known   map[[sha256.Size]byte]bool
	learned []tombstoneRow
	// reads is set when queries were queued that change conversations by their results.
	reads bool
}

func newDelivery(s *session, ops []*enqueueOp) *delivery {
	d := &delivery{
		s: s, ops: ops, makers: map[conversationKey]*arrivedItem{}, aliases: map[conversationKey]string{},
		ids: map[conversationKey]string{}, routes: map[string]*store.Route{}, byKey: map[conversationKey]*conversationRow{},
		seen: map[messageKey]bool{}, sent: map[messageKey]*sentRow{},
		written: map[string][]*writtenPart{}, known: map[[sha256.Size]byte]bool{},
	}
	uniteKeys(ops)
	for _, op := range ops {
		op.again, op.changed = false, false // of a transaction that was undone
		for _, item := range op.items {
			switch {
			case item.stored() && d.makers[item.key] == nil:
				d.makers[item.key] = item
			case (item.Kind == platforms.Blocked || item.Kind == platforms.AutomaticEcho) && d.makers[item.key] == nil:
				d.makers[item.key] = nil
			}
		}
	}
	d.keys = slices.SortedFunc(maps.Keys(d.makers), conversationKey.compare)
	return d
}

// items yields the arrivals in order.
func (d *delivery) items() iter.Seq[*arrivedItem] {
	return func(yield func(*arrivedItem) bool) {
		for _, op := range d.ops {
			for _, item := range op.items {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// wroteAt is when the last message of a part's customer arrived, or 0.
const wroteAt = `coalesce((SELECT received_at FROM messages WHERE conversation_id = outbound_messages.conversation_id
	AND author = 'customer' ORDER BY received_at DESC, id DESC LIMIT 1), 0)`

var (
	selectSent = listSizes.Statement(`SELECT id, conversation_id, state, updated_at, `+wroteAt+`, org_id, channel_id,
		platform_message_id FROM outbound_messages WHERE platform_message_id <> '' AND (org_id, channel_id, platform_message_id) IN ({list})`, 3, 0)
	selectMarked = listSizes.Statement(`SELECT id, conversation_id, state, updated_at, `+wroteAt+`, org_id, channel_id, resends, attempts
		FROM outbound_messages WHERE id IN {list}`, 1, 0)
	// failRest ends the parts that follow a part that was not delivered.
	failRest = `UPDATE outbound_messages SET state = 'failed', code = $2, updated_at = $3
		WHERE turn_id = (SELECT turn_id FROM outbound_messages WHERE id = $1) AND state = 'pending'
		AND part > (SELECT part FROM outbound_messages WHERE id = $1)`
	insertMessages = listSizes.Rows(`INSERT INTO messages (id, org_id, channel_id, conversation_id, platform_message_id,
		author, kind, body, handled, sent_at, received_at) {list}`,
		"text", "text", "text", "text", "text", "text", "text", "bytea", "boolean", "bigint", "bigint")
)

// find queues the reading of the arrivals' conversations. All transactions lock conversations in the order of their ids. So find locks them
// itself only if one statement covers everything that this transaction locks. Otherwise it reads now, and returns the ids of the
// conversations to lock; a failed delivery names only its message, and the conversation has to be read first.
func (d *delivery) find(alone bool) ([]string, error) {
	undelivered := d.messageKeys(func(item *arrivedItem) bool { return item.Kind == platforms.FailedDelivery })
	var named []conversationKey // the keys by which the conversations of customers with several ids may be found
	for item := range d.items() {
		if item.otherIDs().Alias != "" {
			named = append(named, item.key, item.aliasKey())
		}
	}
	if alone && len(undelivered) == 0 && len(named) == 0 {
		queueFind(d.s.tx, d.keys, d.ids, d.s.rows, true)
		return nil, nil
	}
	if len(d.ops) == 0 {
		return nil, nil
	}
	queueFind(d.s.tx, append(named, d.keys...), d.ids, d.s.rows, false)
	d.queueAliases(named)
	d.queueSent(undelivered)
	d.queueMarked()
	if err := d.s.tx.Flush(d.s.ctx); err != nil {
		return nil, err
	}
	d.resolveAliases()
	for _, sent := range d.sent {
		d.failed = append(d.failed, sent.conversationID) // only the messages' rows name their conversations
	}
	clear(d.sent) // they are read again under the locks
	return slices.AppendSeq(slices.Clone(d.failed), maps.Values(d.ids)), nil
}

// messageKeys returns the keys of the arrivals that are wanted.
func (d *delivery) messageKeys(wanted func(*arrivedItem) bool) (keys []messageKey) {
	for item := range d.items() {
		if wanted(item) {
			keys = append(keys, item.messageKey())
		}
	}
	return keys
}

// queueRoutes reads the routes of channels that are remembered, or on which conversations may begin. A channel may be deleted after its route
// was read; then its arrivals are dropped, and the other tenants' arrivals of the same delivery are stored.
func (d *delivery) queueRoutes() {
	var channels []string
	for _, key := range d.keys {
		if d.ids[key] == "" && d.makers[key] != nil {
			channels = append(channels, key.channelID)
		}
	}
	for _, op := range d.ops {
		for _, route := range op.remembered {
			channels = append(channels, route.ChannelID)
		}
	}
	slices.Sort(channels)
	store.QueueRoutes(d.s.tx, slices.Compact(channels), d.routes)
}

// withoutChanged returns the delivery without the operations with a remembered route that its channel no longer has. Their content must
// decide nothing about the others, so the others are looked up anew. Their conversations are locked already.
func (d *delivery) withoutChanged() (*delivery, error) {
	var rest []*enqueueOp
	for _, op := range d.ops {
		changed := slices.ContainsFunc(op.remembered, func(route *store.Route) bool {
			now := d.routes[route.ChannelID]
			return now == nil || !now.Same(route)
		})
		if !changed {
			rest = append(rest, op)
			continue
		}
		op.changed = true
	}
	if len(rest) == len(d.ops) {
		return d, nil
	}
	anew := newDelivery(d.s, rest)
	ids, err := anew.find(false)
	if err != nil {
		return nil, err
	}
	queueLock(d.s.tx, ids, d.s.rows)
	anew.queueRoutes()
	anew.queueReads()
	return anew, d.s.tx.Flush(d.s.ctx)
}

// store decides the arrivals on the locked conversations and queues their changes.
func (d *delivery) store() error {
	for key, id := range d.ids {
		if d.s.rows[id] == nil {
			return errVanished
		}
		d.byKey[key] = d.s.rows[id]
	}
	d.attribute()
	for _, key := range d.keys { // in one order in all processes
		if maker := d.makers[key]; d.ids[key] == "" && maker != nil && d.routes[key.channelID] != nil {
			begun := queueState{state: StateAssistant}
			c := &conversationRow{queueState: begun, stored: begun, orgID: maker.route.OrgID, key: key, createdAt: d.s.now, address: maker.Address}
			d.begun, d.byKey[key] = append(d.begun, c), c
		}
	}
	last := ""
	for item := range d.items() { // of two that are due since the same moment, the first id is leased first
		if c := d.byKey[item.key]; c != nil && c.id == "" {
			last = idAfter("cnv", last)
			c.id = last
		}
	}
	if err := d.readEchoes(); err != nil {
		return err
	}
	for item := range d.items() {
		d.decide(item)
	}
	if err := d.insertBegun(); err != nil {
		return err
	}
	d.write()
	d.writeAliases()
	if !d.reads {
		return nil
	}
	return store.Wrap("look for unanswered texts", d.s.tx.Flush(d.s.ctx))
}

// insertBegun inserts the new conversations once, in the state that the arrivals leave them in. If another process has inserted one of them
// at the same time, that conversation's arrivals are left out, and their operations run again. Every transaction inserts after it has
// locked the existing conversations, and in the order of the keys, so that two processes with the same new customers can't deadlock.
func (d *delivery) insertBegun() error {
	// One that is unchanged has no new message: all of its messages were stored before, or deleted.
	d.begun = slices.DeleteFunc(d.begun, func(c *conversationRow) bool { return !c.changed })
	if len(d.begun) == 0 {
		return nil
	}
	stored := make(map[string]bool, len(d.begun))
	insertConversations.QueueQuery(d.s.tx, func(row store.Row) error {
		id, err := store.ScanValue[string](row)
		stored[id] = true
		return err
	}, columnValues(allColumns, d.begun)...)
	if err := d.s.tx.Flush(d.s.ctx); err != nil {
		return err
	}
	lost := map[string]bool{}
	for _, c := range d.begun {
		if !stored[c.id] {
			lost[c.id] = true
			continue
		}
		c.written()
		d.s.rows[c.id] = c
	}
	if len(lost) == 0 {
		return nil
	}
	d.s.arrived = slices.DeleteFunc(d.s.arrived, func(m *messageRow) bool { return lost[m.conversationID] })
	for _, op := range d.ops {
		op.again = op.again || slices.ContainsFunc(op.items, func(item *arrivedItem) bool {
			c := d.byKey[item.key]
			return c != nil && lost[c.id]
		})
	}
	return nil
}

// queueReads reads the rows that the decisions depend on, under the locks of the conversations.
func (d *delivery) queueReads() {
	d.queueSeen(d.messageKeys((*arrivedItem).stored))
	d.queueSent(d.messageKeys(func(item *arrivedItem) bool {
		return item.isEcho() || item.Unsure || item.Kind == platforms.FailedDelivery
	}))
	d.queueMarked()
	var businesses [][sha256.Size]byte
	for _, item := range d.withBusiness() {
		businesses = append(businesses, businessDigest(item, item.otherIDs().Business))
		if item.Unsure {
			businesses = append(businesses, businessDigest(item, item.Address))
		}
	}
	d.queueKnown(businesses)
}

func (d *delivery) queueSent(keys []messageKey) {
	store.QueueListed(d.s.tx, listSizes, selectSent, "", keys, func(values []any, key messageKey) []any {
		return append(values, key.orgID, key.channelID, key.platformID)
	}, func(row store.Row) error {
		var key messageKey
		sent := &sentRow{}
		err := row.Scan(&sent.id, &sent.conversationID, &sent.state, &sent.at, &sent.wroteAt, &key.orgID, &key.channelID, &key.platformID)
		d.sent[key] = sent
		return err
	})
}

// queueMarked reads the messages in the marks of failed deliveries.
func (d *delivery) queueMarked() {
	var ids []string
	for item := range d.items() {
		if id, _, found := strings.Cut(item.otherIDs().Mark, "."); found && item.Kind == platforms.FailedDelivery {
			ids = append(ids, id)
		}
	}
	for size, piece := range store.Padded(listSizes, ids) {
		d.s.tx.QueueQuery(func(row store.Row) error {
			var key messageKey
			var resends, attempts int64
			sent := &sentRow{}
			err := row.Scan(&sent.id, &sent.conversationID, &sent.state, &sent.at, &sent.wroteAt, &key.orgID, &key.channelID, &resends,
				&attempts)
			if sent.state == OutboundDeliveryUnknown { // its try was counted when it broke off
				attempts--
			}
			key.platformID = markOf(sent.id, resends, attempts)
			d.sent[key] = sent
			return err
		}, selectMarked[size], store.Arguments(piece)...)
	}
}

// write writes what echoes have settled and taught and the reports on our messages, and inserts the new messages. If another process stores
// one of them at this moment, under another conversation, the unique index reports [store.ErrConflict].
func (d *delivery) write() {
	s := d.s
	for _, parts := range d.written {
		for _, part := range parts {
			if part.settledAs != "" {
				s.tx.Queue(store.AnyRows, `UPDATE outbound_messages SET state = 'sent', code = '', platform_message_id = $2, updated_at = $3
					WHERE id = $1 AND state = 'delivery_unknown'`, part.id, part.settledAs, s.now)
			}
		}
	}
	s.queueTombstones(d.learned, automaticDays)
	for _, sent := range d.sent {
		if sent.changed {
			s.tx.Queue(1, setPart, sent.id, sent.state, sent.code, s.now)
			s.tx.Queue(store.AnyRows, failRest, sent.id, sent.code, s.now)
		}
	}
	arrived := s.arrived
	s.arrived = nil
	slices.SortFunc(arrived, func(a, b *messageRow) int {
		return cmp.Or(cmp.Compare(a.key.orgID, b.key.orgID), cmp.Compare(a.key.channelID, b.key.channelID), cmp.Compare(a.MessageID, b.MessageID))
	})
	text := func(of func(m *messageRow) string) []string { return store.Column(arrived, of) }
	number := func(of func(m *messageRow) int64) []int64 { return store.Column(arrived, of) }
	insertMessages.Queue(
		s.tx, text(func(m *messageRow) string { return m.id }),
		text(func(m *messageRow) string { return m.route.OrgID }),
		text(func(m *messageRow) string { return m.key.channelID }),
		text(func(m *messageRow) string { return m.conversationID }),
		text(func(m *messageRow) string { return m.MessageID }),
		text(func(m *messageRow) string { return m.author }),
		text(func(m *messageRow) string { return m.kind }),
		store.Column(arrived, func(m *messageRow) []byte { return m.body }),
		store.Column(arrived, func(m *messageRow) bool { return m.handled }),
		number(func(m *messageRow) int64 { return m.sentAt }),
		number(func(m *messageRow) int64 { return m.at }),
	)
	for _, m := range arrived {
		media.Queue(s.tx, m.route.OrgID, m.key.channelID, m.conversationID, m.id, m.files)
	}
}
